//! The metric of the console's requests.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use metrics::histogram;

/// What requests for no page are counted under.
const UNMATCHED: &str = "unmatched";

/// Measures a request from its head to the head of its answer: the stream of changes is open for as long as its page.
pub(crate) async fn measure(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = if request.method() == axum::http::Method::POST { "POST" } else { "GET" };
    // The template, so that no identifier is a label.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    histogram!(
        "dvp_console_request_seconds",
        "method" => method,
        "route" => route.as_ref().map_or(UNMATCHED, MatchedPath::as_str).to_owned(),
        "status" => response.status().as_str().to_owned(),
    )
    .record(started.elapsed());
    response
}
