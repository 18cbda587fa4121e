//! The pace of bytes on a connection, so that one peer does not use up the processors, the line and the store.

use std::time::{Duration, Instant};

/// Bytes per second with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytePace {
    pub bytes_per_second: u32,
    pub burst_bytes: u32,
}

impl BytePace {
    /// The limit on a connection's resends.
    pub const RESENDS: Self = Self { bytes_per_second: 8 * 1024 * 1024, burst_bytes: 16 * 1024 * 1024 };
    /// The limit on a connection's input: some 25,000 orders a second.
    pub const READS: Self = Self { bytes_per_second: 8 * 1024 * 1024, burst_bytes: 512 * 1024 };

    /// The limit on a session's answers to OrderMassStatusRequests: each is stored, and written with others' orders. The
    /// largest answer, of two thousand reports, has about a megabyte.
    pub const MASS_STATUS: Self = Self { bytes_per_second: 128 * 1024, burst_bytes: 4 * 1024 * 1024 };

    /// The time for this many bytes at the pace.
    fn time_of(self, bytes: u64) -> Duration {
        let nanos = bytes.saturating_mul(1_000_000_000) / u64::from(self.bytes_per_second.max(1));
        Duration::from_nanos(nanos)
    }
}

/// The bytes of a connection, as the instant until which they take at the pace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteBucket {
    until: Instant,
}

impl ByteBucket {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { until: now }
    }

    pub(crate) fn spend(&mut self, pace: BytePace, now: Instant, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.until = self.until.max(now) + pace.time_of(bytes);
    }

    /// When the next bytes are due.
    pub(crate) fn goes_on_at(&self, pace: BytePace) -> Instant {
        self.until.checked_sub(pace.time_of(u64::from(pace.burst_bytes))).unwrap_or(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let pace = BytePace { bytes_per_second: 1_000, burst_bytes: 2_000 };
        let start = Instant::now() + Duration::from_secs(60);
        let mut bucket = ByteBucket::new(start);
        bucket.spend(pace, start, 2_000);
        assert!(bucket.goes_on_at(pace) <= start, "the burst");
        bucket.spend(pace, start, 500);
        assert_eq!(bucket.goes_on_at(pace), start + Duration::from_millis(500));
        let later = start + Duration::from_secs(3600);
        bucket.spend(pace, later, 2_100);
        assert_eq!(
            bucket.goes_on_at(pace),
            later + Duration::from_millis(100),
            "silence earns the burst, no more"
        );
    }
}
