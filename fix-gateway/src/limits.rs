//! Rate limits: a bucket that refills at a steady pace, stored as one instant.
//!
//! The form is the "generic cell rate algorithm": instead of counting tokens, remember when the next one would be due
//! if everything taken so far had kept the pace. It needs no timer and cannot overflow.

mod bytes;

use std::time::{Duration, Instant};

pub(crate) use bytes::ByteBucket;
pub use bytes::BytePace;

/// A steady pace with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    interval: Duration,
    /// The burst as a duration at the pace.
    ahead_max: Duration,
}

impl Pace {
    /// `count` in each `period`, and `burst` at once. Neither is less than 1.
    pub fn new(count: u32, period: Duration, burst: u32) -> Self {
        let interval = period / count.max(1);
        Self { interval, ahead_max: interval.saturating_mul(burst.max(1) - 1) }
    }
}

/// The message rates of a connection. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageLimits {
    /// Application messages beyond this rate are rejected one by one.
    pub soft: Option<Pace>,
    /// Application messages beyond this rate end the session.
    pub hard: Option<Pace>,
    /// Session messages beyond this rate end the session.
    pub admin: Option<Pace>,
}

impl MessageLimits {
    /// A rate per second, with a burst of twice as many.
    pub fn per_second(soft: Option<u32>, hard: Option<u32>, admin: Option<u32>) -> Self {
        let pace = |rate: u32| Pace::new(rate, Duration::from_secs(1), rate.saturating_mul(2));
        Self { soft: soft.map(pace), hard: hard.map(pace), admin: admin.map(pace) }
    }
}

/// The state of a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    /// When the next unit is due at the pace.
    due: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) const fn new(now: Instant) -> Self {
        Self { due: now }
    }

    /// Takes one unit, if the limit allows it.
    pub(crate) fn take(&mut self, pace: Pace, now: Instant) -> bool {
        let due = self.due.max(now);
        if due - now > pace.ahead_max {
            return false;
        }
        self.due = due + pace.interval;
        true
    }

    /// How long until one unit can be taken.
    pub(crate) fn wait(&self, pace: Pace, now: Instant) -> Duration {
        self.due.saturating_duration_since(now).saturating_sub(pace.ahead_max)
    }

    /// Takes `count` units, even beyond the limit.
    pub(crate) fn spend(&mut self, pace: Pace, count: u32, now: Instant) {
        self.due = self.due.max(now) + pace.interval.saturating_mul(count);
    }

    /// Whether a whole burst can be taken.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.due <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let pace = Pace::new(10, Duration::from_secs(1), 5);
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let taken = (0..20).filter(|_| bucket.take(pace, start)).count();
        assert_eq!(taken, 5);
        let later = start + Duration::from_millis(250);
        let taken = (0..20).filter(|_| bucket.take(pace, later)).count();
        assert_eq!(taken, 2);
        assert!(bucket.is_full(start + Duration::from_secs(2)));
    }

    #[test]
    fn a_debt_delays_later_requests() {
        let pace = Pace::new(10, Duration::from_secs(1), 5);
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let mut waits = Vec::new();
        for count in [1, 3, 1, 1, 10, 1] {
            waits.push(bucket.wait(pace, start).as_millis());
            bucket.spend(pace, count, start);
        }
        assert_eq!(waits, [0, 0, 0, 100, 200, 1200]);
        assert_eq!(bucket.wait(pace, start + Duration::from_secs(2)), Duration::ZERO);
    }

    #[test]
    fn a_long_idle_time_accrues_at_most_the_burst() {
        let pace = Pace::new(10, Duration::from_secs(1), 5);
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!((0..20).filter(|_| bucket.take(pace, much_later)).count(), 5);
    }
}
