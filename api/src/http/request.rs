//! The outer layer of every request: its id, its span, its time limit, and the envelope for errors outside of handlers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dvp_core::chain::wallets::LOOK_UP_WITHIN;
use dvp_core::listeners::source::{Peer, Source, client};
use dvp_core::trace;
use futures_util::FutureExt;
use tracing::{Instrument, field, info, info_span};
use uuid::Uuid;

use crate::http::error::{ApiError, RefusedRequest};
use crate::http::fields::fault;
use crate::http::figures::InProgress;
use crate::http::load::Load;
use crate::http::request_id;

/// The time limit of a route. The request may still be committed: its idempotency key shows.
pub(crate) const ROUTE_LIMIT: Duration = Duration::from_secs(10);
const _: () = assert!(
    LOOK_UP_WITHIN.as_secs() < ROUTE_LIMIT.as_secs(),
    "an order hears that its wallet was not found in time"
);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const REQUEST_ID_MAX: usize = 128;

/// The outermost layer. Each request has one line in the log: partner, key, route, status, and the reason of a refusal.
pub(crate) async fn wrap(State(load): State<Arc<Load>>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let source = request
        .extensions()
        .get::<Peer>()
        .map(|Peer(peer)| Source::from(client(*peer, &load.limits.proxies, request.headers())));
    let caller = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    let context = trace::of_request(caller);
    let span = info_span!(
        "request",
        method = %request.method(),
        path = request.uri().path(),
        request_id = id.to_str().unwrap_or_default(),
        source = source.map(tracing::field::display),
        route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str),
        partner = field::Empty,
        key = field::Empty,
        intent_id = field::Empty,
        trace_id = field::Empty,
        span_id = field::Empty,
        parent_span_id = field::Empty,
    );
    trace::mark(&span, context, caller);
    if let Some(source) = source {
        request.extensions_mut().insert(source);
    }
    let answering = InProgress::begin(&request);
    let started = answering.started;
    let current: Arc<str> = id.to_str().unwrap_or_default().into();
    let work = async {
        let mut response = if source.is_some() && !names_a_host(&request) {
            fault("Host", "must be there once").into_response()
        } else {
            let answer = trace::within(context, next.run(request));
            guarded(load.limits.request, answer).await
        };
        answering.end(response.status());
        response.headers_mut().insert(REQUEST_ID, id);
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let status = response.status().as_u16();
        match response.extensions_mut().remove::<RefusedRequest>() {
            Some(RefusedRequest { code, message }) => {
                info!(status, code = code.as_str(), reason = message, millis, "request refused");
            }
            None => info!(status, millis, "request answered"),
        }
        response
    };
    request_id::scope(current, work).instrument(span).await
}

/// As RFC 9112, section 3.2, requires it.
fn names_a_host(request: &Request) -> bool {
    request.version() < Version::HTTP_11 || request.headers().get_all(HOST).iter().count() == 1
}

/// The answer, or the envelope when it times out or panics.
pub(crate) async fn guarded(limit: Duration, answer: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(tokio::time::timeout(limit, answer)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => ApiError::TimedOut.into_response(),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            ApiError::Internal(format!("panic: {said}")).into_response()
        }
    }
}

/// The caller's id if it can be logged unchanged, otherwise a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sane = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    headers
        .get(&REQUEST_ID)
        .filter(|id| (1..=REQUEST_ID_MAX).contains(&id.len()) && id.as_bytes().iter().all(sane))
        .cloned()
        .unwrap_or_else(|| {
            HeaderValue::try_from(Uuid::new_v4().to_string()).expect("hex digits and hyphens fit a header")
        })
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::http::StatusCode;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn answer(path: &str) -> (StatusCode, HeaderMap, String) {
        let panics = || async {
            if true {
                panic!("secret detail")
            }
        };
        let router = Router::new()
            .route("/panics", get(panics))
            .route("/hangs", get(std::future::pending::<()>))
            .layer(axum::middleware::from_fn_with_state(Arc::<Load>::default(), wrap));
        let response = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = String::from_utf8(to_bytes(body, 4096).await.unwrap().to_vec()).unwrap();
        (parts.status, parts.headers, body)
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error_that_leaks_nothing() {
        let (status, headers, body) = answer("/panics").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(body.contains("INTERNAL_ERROR") && !body.contains("secret"), "{body}");
        assert!(headers.contains_key(REQUEST_ID));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_route_answers_unavailable_at_its_time_limit() {
        let (status, headers, body) = answer("/hangs").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("SERVICE_UNAVAILABLE"), "{body}");
        assert!(headers.contains_key("retry-after"));
    }
}
