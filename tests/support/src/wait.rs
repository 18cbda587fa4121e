//! Waiting for something to become true, without saying how long it takes.

use std::future::Future;
use std::time::{Duration, Instant};

use dvp_core::context::now;

/// Long enough for a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN: Duration = Duration::from_millis(10);

/// Asks until there is an answer.
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
pub async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    wait_for(what, || std::future::ready(is_so().then_some(()))).await;
}

/// Waits for the next day (UTC) when this one is about to end: for tests of what belongs to one day.
pub async fn wait_past_midnight() {
    const ENDS: u64 = 120;
    let left = 86_400 - now().unix_secs() % 86_400;
    if left < ENDS {
        tokio::time::sleep(Duration::from_secs(left)).await;
    }
}
