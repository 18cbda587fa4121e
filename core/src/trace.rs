//! The trace of the work in progress: taken from a caller's `traceparent`, stored with the order, and passed on to rails
//! and webhook receivers.
//!
//! Without a `traceparent`, a request begins a trace only while spans are recorded ([`record_spans`]).
//!
//! The trace is the order's: spans of other processes belong to it, and nothing waits for a collector.
//!
//! Kept by `tests/e2e/traces.rs::a_trace_goes_from_either_interface_to_the_anchor_and_the_webhook`.

use std::sync::atomic::{AtomicBool, Ordering};

use dvp_domain::trace::TraceContext;
use futures_util::future::Either;
use tracing::Span;
use uuid::Uuid;

/// The target of spans that only traces show: they are made while spans are recorded.
pub const SPANS: &str = "dvp_traces";

static IS_RECORDING: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// Spans are recorded from now on: requests without a trace begin one.
pub fn record_spans() {
    IS_RECORDING.store(true, Ordering::Relaxed);
}

pub fn is_recording() -> bool {
    IS_RECORDING.load(Ordering::Relaxed)
}

/// The trace that the present task works for.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// A future whose [`current`] trace is this one.
pub fn within<F: Future>(context: Option<TraceContext>, future: F) -> impl Future<Output = F::Output> {
    match context {
        Some(context) => Either::Left(CURRENT.scope(context, future)),
        None => Either::Right(future),
    }
}

/// A span of a request: within the caller's trace, or of a new one if spans are recorded.
pub fn of_request(caller: Option<TraceContext>) -> Option<TraceContext> {
    let caller =
        caller.or_else(|| is_recording().then(|| TraceContext::begin(*Uuid::new_v4().as_bytes(), span_id())));
    child(caller)
}

/// A span of work for an order.
pub fn child(parent: Option<TraceContext>) -> Option<TraceContext> {
    parent.map(|parent| parent.child(span_id()))
}

/// Writes the ids into the fields `trace_id`, `span_id` and `parent_span_id` of a span, which has to declare them. A
/// span of a trace that its caller does not record gets the first one only.
pub fn mark(span: &Span, context: Option<TraceContext>, parent: Option<TraceContext>) {
    let Some(context) = context else { return };
    span.record("trace_id", context.trace_id());
    if context.is_sampled() {
        span.record("span_id", context.span_id());
        if let Some(parent) = parent {
            span.record("parent_span_id", parent.span_id());
        }
    }
}

/// The id of a span that no other process has to know.
pub fn new_span_id() -> String {
    TraceContext::begin([1; 16], span_id()).span_id()
}

/// The last eight bytes of a random UUID: two of their bits are fixed, and never all are zero.
fn span_id() -> [u8; 8] {
    let [.., a, b, c, d, e, f, g, h] = *Uuid::new_v4().as_bytes();
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_knows_its_trace_and_no_other() {
        let caller: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
        assert_eq!(current(), None);
        let context = of_request(Some(caller));
        let seen = within(context, async { current() }).await;
        assert_eq!(seen, context);
        let seen = seen.unwrap();
        assert_eq!(seen.trace_id(), caller.trace_id());
        assert_ne!(seen.span_id(), caller.span_id());
        assert_eq!(within(None, async { current() }).await, None);
        assert_eq!(current(), None);
    }
}
