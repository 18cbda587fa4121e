//! Waiting for what a scene brings about: a test that waits this long has failed.

use std::fmt::Debug;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(240);
const BETWEEN: Duration = Duration::from_millis(100);

/// Asks again and again until the answer is as wanted, and returns it.
pub async fn answer<T: Debug>(mut ask: impl AsyncFnMut() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if is_wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long: {answer:?}");
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Looks again and again until it is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    answer(async || (what, is_so().await), |(_, is_so)| *is_so).await;
}
