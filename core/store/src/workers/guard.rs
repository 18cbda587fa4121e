//! The guard of an item: a time limit, and panics that do not leave it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use dvp_domain::text::{TEXT_MAX, clean};
use futures_util::FutureExt as _;
use tokio::time::timeout;

/// Why an item was not finished.
#[derive(Debug, thiserror::Error)]
pub enum ItemError<E> {
    #[error("{0}")]
    Failed(E),
    /// A defect of ours.
    #[error("panic: {0}")]
    Panicked(String),
    #[error("not finished within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
}

/// Runs the work on an item for at most `limit`. Its panic is an error.
pub async fn guarded<T, E>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ItemError<E>> {
    match timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(done)) => done.map_err(ItemError::Failed),
        Ok(Err(panic)) => Err(ItemError::Panicked(message(panic.as_ref()))),
        Err(_) => Err(ItemError::TimedOut(limit)),
    }
}

/// What a panic said.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    clean(text.unwrap_or("without a message"), TEXT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_item_fails_panics_or_takes_too_long() {
        let limit = Duration::from_millis(20);
        let told = |error: ItemError<&str>| error.to_string();
        assert_eq!(guarded(limit, async { Ok::<_, &str>(1) }).await.map_err(told), Ok(1));
        assert_eq!(
            guarded(limit, async { Err::<(), _>("no row") }).await.map_err(told),
            Err("no row".into())
        );
        let panics = async { if limit.is_zero() { Ok(()) } else { panic!("index\0 7") } };
        assert_eq!(guarded(limit, panics).await.map_err(told), Err("panic: index 7".into()));
        let hangs = std::future::pending::<Result<(), _>>();
        assert_eq!(guarded(limit, hangs).await.map_err(told), Err("not finished within 0.02 s".into()));
    }
}
