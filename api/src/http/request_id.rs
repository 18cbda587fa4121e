//! The id of the request that is answered, for the bodies of errors.

use std::sync::Arc;

tokio::task_local! {
    /// The id of the request that this task answers, for the bodies of errors.
    static CURRENT_ID: Arc<str>;
}

/// The id of the request that is answered; empty outside of one.
pub(crate) fn current_id() -> Arc<str> {
    CURRENT_ID.try_with(Clone::clone).unwrap_or_default()
}

/// Runs what answers the request with this id, elsewhere than in the request's own task.
pub(crate) fn answering<T>(id: Arc<str>, answer: impl FnOnce() -> T) -> T {
    CURRENT_ID.sync_scope(id, answer)
}

/// Answers a request with this id.
pub(crate) fn scope<F: Future>(id: Arc<str>, answer: F) -> impl Future<Output = F::Output> {
    CURRENT_ID.scope(id, answer)
}
