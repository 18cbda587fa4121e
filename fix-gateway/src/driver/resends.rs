//! The pace of resends: a peer that keeps requesting resends must not use up the line and the store.

use std::time::{Duration, Instant};

/// Bytes of resends on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResendPace {
    pub bytes_per_second: u32,
    /// The burst.
    pub burst_bytes: u32,
}

impl Default for ResendPace {
    fn default() -> Self {
        Self { bytes_per_second: 8 * 1024 * 1024, burst_bytes: 16 * 1024 * 1024 }
    }
}

impl ResendPace {
    /// The time for this many bytes at the pace.
    fn time_of(self, bytes: u64) -> Duration {
        let nanos = bytes.saturating_mul(1_000_000_000) / u64::from(self.bytes_per_second.max(1));
        Duration::from_nanos(nanos)
    }
}

/// The resent bytes of a connection, as the instant until which they take at the pace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resent {
    until: Instant,
}

impl Resent {
    pub(super) const fn new(now: Instant) -> Self {
        Self { until: now }
    }

    pub(super) fn spend(&mut self, pace: ResendPace, now: Instant, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.until = self.until.max(now) + pace.time_of(bytes);
    }

    /// When the next slice may go out.
    pub(super) fn goes_on_at(&self, pace: ResendPace) -> Instant {
        self.until.checked_sub(pace.time_of(u64::from(pace.burst_bytes))).unwrap_or(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_out_at_once_and_the_rest_at_the_pace() {
        let pace = ResendPace { bytes_per_second: 1_000, burst_bytes: 2_000 };
        let start = Instant::now() + Duration::from_secs(60);
        let mut resent = Resent::new(start);
        resent.spend(pace, start, 2_000);
        assert!(resent.goes_on_at(pace) <= start, "the burst");
        resent.spend(pace, start, 500);
        assert_eq!(resent.goes_on_at(pace), start + Duration::from_millis(500));
        let later = start + Duration::from_secs(3600);
        resent.spend(pace, later, 2_100);
        assert_eq!(
            resent.goes_on_at(pace),
            later + Duration::from_millis(100),
            "silence earns the burst, no more"
        );
    }
}
