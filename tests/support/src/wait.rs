//! Waiting for something to become true, without saying how long it takes.

use std::future::Future;
use std::time::{Duration, Instant};

/// Long enough for a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN: Duration = Duration::from_millis(10);

/// Asks until there is an answer.
///
/// # Panics
/// When there is none after a minute.
pub async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Looks until it is so.
///
/// # Panics
/// When it is not after a minute.
pub async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    wait_for(what, || std::future::ready(is_so().then_some(()))).await;
}
