//! Rate limits: a bucket that refills at a steady pace, stored as one instant.
//!
//! The form is the "generic cell rate algorithm": instead of counting tokens, remember when the next one would be due
//! if everything taken so far had kept the pace. It needs no timer and cannot overflow.

use std::time::{Duration, Instant};

/// The size limit of a frame of an authenticated peer.
pub(crate) const FRAME_MAX: usize = 64 * 1024;

/// A steady pace with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    interval: Duration,
    /// The burst as a duration at the pace.
    ahead_max: Duration,
}

impl Pace {
    /// The limit on the bytes of a connection's resends.
    pub(crate) const RESENDS: Self = Self::per_second(8 * 1024 * 1024, 16 * 1024 * 1024);
    /// The limit on the bytes of a connection's input, so that one peer does not use up the processors, the line and the
    /// store: some 25,000 orders a second.
    pub(crate) const READS: Self = Self::per_second(8 * 1024 * 1024, 512 * 1024);
    /// The limit on the bytes of a session's answers to OrderMassStatusRequests: each is stored, and written with others'
    /// orders. The largest answer, of two thousand reports, has about a megabyte.
    pub(crate) const MASS_STATUS: Self = Self::per_second(128 * 1024, 4 * 1024 * 1024);

    /// `count` in each `period`, and `burst` at once. Neither is less than 1.
    pub const fn new(count: u32, period: Duration, burst: u32) -> Self {
        let interval = match period.checked_div(count) {
            Some(interval) => interval,
            None => period,
        };
        Self { interval, ahead_max: interval.saturating_mul(burst.saturating_sub(1)) }
    }

    /// `count` in each second, and `burst` at once.
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self::new(count, Duration::from_secs(1), burst)
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
        let pace = |rate: u32| Pace::per_second(rate, rate.saturating_mul(2));
        Self { soft: soft.map(pace), hard: hard.map(pace), admin: admin.map(pace) }
    }
}

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

    /// When one unit can be taken.
    pub(crate) fn goes_on_at(&self, pace: Pace) -> Instant {
        self.due.checked_sub(pace.ahead_max).unwrap_or(self.due)
    }

    /// How long until one unit can be taken.
    pub(crate) fn wait(&self, pace: Pace, now: Instant) -> Duration {
        self.goes_on_at(pace).saturating_duration_since(now)
    }

    /// Takes `count` units, even beyond the limit.
    pub(crate) fn spend(&mut self, pace: Pace, count: usize, now: Instant) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
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
        let pace = Pace::per_second(10, 5);
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let taken = (0..20).filter(|_| bucket.take(pace, start)).count();
        assert_eq!(taken, 5);
        let later = start + Duration::from_millis(250);
        let taken = (0..20).filter(|_| bucket.take(pace, later)).count();
        assert_eq!(taken, 2);
        let much_later = start + Duration::from_secs(3600);
        assert!(bucket.is_full(much_later));
        assert_eq!((0..20).filter(|_| bucket.take(pace, much_later)).count(), 5, "idle time accrues no more");
    }

    #[test]
    fn a_debt_delays_later_requests() {
        let pace = Pace::per_second(10, 5);
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
}
