//! Sessions that failed or have an invalid configuration: when each may be started again.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::Terms;

/// The delay of the first restart of a failed driver; doubled each time after that.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// A driver that ran this long before it failed is considered healthy.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// The faults of sessions.
#[derive(Debug, Default)]
pub(super) struct Faults {
    failed: HashMap<String, Failed>,
    /// Sessions with an invalid configuration, with that configuration; `None` where it is unreadable.
    unusable: HashMap<String, Option<Terms>>,
}

#[derive(Debug)]
struct Failed {
    pause: Duration,
    retry_at: Instant,
}

impl Faults {
    /// A driver failed after it ran for this long. Returns the restart delay.
    pub(super) fn failed(&mut self, session_id: &str, ran: Duration, now: Instant) -> Duration {
        let before = self.failed.get(session_id).filter(|_| ran < HEALTHY_AFTER);
        let pause = before.map_or(RETRY_FIRST, |failed| RETRY_MAX.min(failed.pause * 2));
        self.failed.insert(session_id.to_owned(), Failed { pause, retry_at: now + pause });
        pause
    }

    pub(super) fn may_start(&self, session_id: &str, now: Instant) -> bool {
        self.failed.get(session_id).is_none_or(|failed| failed.retry_at <= now)
    }

    /// A session's configuration is invalid. Is that new?
    pub(super) fn is_news(&mut self, session_id: &str, terms: Option<&Terms>) -> bool {
        if self.unusable.get(session_id).is_some_and(|known| known.as_ref() == terms) {
            return false;
        }
        self.unusable.insert(session_id.to_owned(), terms.cloned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_of_a_failing_driver_back_off_up_to_a_minute() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        let briefly = Duration::from_secs(1);
        let pauses: Vec<u64> = (0..8).map(|_| faults.failed("a", briefly, now).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(!faults.may_start("a", now + Duration::from_secs(59)));
        assert!(faults.may_start("a", now + Duration::from_secs(60)));
        assert!(faults.may_start("b", now));
        assert_eq!(faults.failed("a", HEALTHY_AFTER, now), RETRY_FIRST);
    }

    #[test]
    fn a_fault_is_reported_once() {
        let mut faults = Faults::default();
        assert!(faults.is_news("a", None));
        assert!(!faults.is_news("a", None));
        assert!(faults.is_news("b", None));
    }
}
