//! The metrics of requests, named by OpenTelemetry's semantic conventions. Handles are kept: making one costs more than
//! counting.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use metrics::{Gauge, Histogram, gauge, histogram};
use parking_lot::RwLock;

/// What callers that name no route are counted under.
const UNMATCHED: &str = "unmatched";

type ByRoute = HashMap<String, Vec<((&'static str, StatusCode), Histogram)>>;

static IN_PROGRESS: LazyLock<Gauge> = LazyLock::new(|| gauge!("http_server_active_requests"));
static DURATIONS: LazyLock<RwLock<ByRoute>> = LazyLock::new(RwLock::default);

/// A request that is not answered yet. A request whose client is gone is not counted as answered.
pub(crate) struct InProgress {
    pub(crate) started: Instant,
    method: &'static str,
    route: Option<MatchedPath>,
}

impl InProgress {
    pub(crate) fn begin(request: &Request) -> Self {
        IN_PROGRESS.increment(1);
        let method = match *request.method() {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            _ => "_OTHER",
        };
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { started: Instant::now(), method, route }
    }

    pub(crate) fn end(&self, status: StatusCode) {
        // The template, so that no path of a caller is a label.
        let route = self.route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
        let key = (self.method, status);
        let kept = find(&DURATIONS.read(), route, key);
        kept.unwrap_or_else(|| keep(route, key)).record(self.started.elapsed());
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        IN_PROGRESS.decrement(1);
    }
}

fn find(known: &ByRoute, route: &str, key: (&'static str, StatusCode)) -> Option<Histogram> {
    let (_, histogram) = known.get(route)?.iter().find(|(one, _)| *one == key)?;
    Some(histogram.clone())
}

fn keep(route: &str, key: (&'static str, StatusCode)) -> Histogram {
    let (method, status) = key;
    let histogram = histogram!(
        "http_server_request_duration_seconds",
        "http_request_method" => method,
        "http_route" => route.to_owned(),
        "http_response_status_code" => status.as_str().to_owned(),
    );
    let mut known = DURATIONS.write();
    if find(&known, route, key).is_none() {
        known.entry(route.to_owned()).or_default().push((key, histogram.clone()));
    }
    histogram
}
