//! Limits how often a session may reset its sequence numbers.
//!
//! A reset costs an authentication, a commit, and a row for each renumbered message. A peer that resets in a loop,
//! within a session or by reconnecting, is delayed and not refused: a peer with frequent valid resets loses a second
//! each time, and no other session is affected.

use std::time::{Duration, Instant};

use tracing::warn;

use super::Driver;
use crate::application::Application;
use crate::limits::{Bucket, Pace};

/// The burst of resets.
const BURST: u32 = 10;
/// Renumbering this many messages counts as one more reset against the limit.
const KEPT_PER_RESET: u64 = 1_000;
/// The longest delay of one reset.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The resets of a session, in all of its connections.
pub(super) struct Resets {
    pace: Pace,
    bucket: Bucket,
}

impl Resets {
    pub(super) fn new(now: Instant) -> Self {
        Self { pace: Pace::per_second(1, BURST), bucket: Bucket::new(now) }
    }

    /// How long the next reset must wait.
    fn wait(&self, now: Instant) -> Duration {
        self.bucket.wait(self.pace, now).min(WAIT_MAX)
    }

    /// Counts a reset that renumbered `kept` messages.
    pub(super) fn count(&mut self, kept: u64, now: Instant) {
        let cost = usize::try_from(kept / KEPT_PER_RESET).unwrap_or(usize::MAX).saturating_add(1);
        self.bucket.spend(self.pace, cost, now);
    }
}

impl<A: Application> Driver<A> {
    /// Waits until the session may reset its numbers, or the driver must stop.
    pub(super) async fn wait_for_reset(&mut self) {
        let wait = self.resets.wait(self.now.mono);
        if wait.is_zero() {
            return;
        }
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        warn!(
            session = self.name,
            wait_ms, "session resets its sequence numbers too often; this reset is delayed"
        );
        self.metrics.reset_delayed();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.stop.cancelled() => {}
        }
        self.read_clocks();
        // No input was read meanwhile, so the time does not count as the peer's silence.
        self.session.resume_listening(self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_resets_pass_then_one_a_second_and_kept_messages_cost_more() {
        let start = Instant::now();
        let mut resets = Resets::new(start);
        let mut wait_and_count = |kept| {
            let wait = resets.wait(start).as_millis();
            resets.count(kept, start);
            wait
        };
        let waits: Vec<u128> = [0; 12].map(&mut wait_and_count).to_vec();
        assert_eq!(waits, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, 2000]);
        assert_eq!(wait_and_count(5_000), 3000);
        assert_eq!(wait_and_count(1_000_000), 9000);
        assert_eq!(wait_and_count(0), 10_000);
    }
}
