//! Limits failed authentication attempts.
//!
//! Attempts are counted by session and source together: guessing from one address does not lock out the session's owner
//! at another, and behind a load balancer that hides addresses one session's stale password locks out no other session.
//! Guessing at many sessions is limited by the connection rate of a source. An attempt is counted before it is checked
//! and refunded when it succeeds, so that concurrent guesses count, too. While a pair is locked out, no password is
//! checked.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use dvp_core::listeners::source::Source;
use parking_lot::Mutex;

use crate::limits::{Bucket, Pace};

/// The maximum number of remembered pairs. Beyond it, only pairs with recent failures are kept.
const REMEMBERED_MAX: usize = 65_536;

/// The limits of failed attempts of a source at a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lockout {
    /// At once.
    pub attempts: u32,
    /// Per minute, after the burst.
    pub per_minute: u32,
}

impl Default for Lockout {
    fn default() -> Self {
        Self { attempts: 10, per_minute: 4 }
    }
}

/// Attempts at all sessions of a process.
#[derive(Debug)]
pub(crate) struct Lockouts {
    pairs: Mutex<HashMap<(String, Source), Bucket>>,
    pace: Pace,
}

impl Lockouts {
    pub(crate) fn new(lockout: Lockout) -> Self {
        let pace = Pace::new(lockout.per_minute, Duration::from_secs(60), lockout.attempts);
        Self { pairs: Mutex::default(), pace }
    }

    /// Counts an attempt. `false`: it must not be checked.
    pub(crate) fn attempt(&self, session_id: &str, addr: IpAddr, now: Instant) -> bool {
        let key = (session_id.to_owned(), Source::from(addr));
        let mut pairs = self.pairs.lock();
        if pairs.len() >= REMEMBERED_MAX && !pairs.contains_key(&key) {
            pairs.retain(|_, bucket| !bucket.is_full(now));
            if pairs.len() >= REMEMBERED_MAX {
                return false;
            }
        }
        pairs.entry(key).or_insert_with(|| Bucket::new(now)).take(self.pace, now)
    }

    /// Refunds a successful attempt.
    pub(crate) fn succeeded(&self, session_id: &str, addr: IpAddr) {
        let mut pairs = self.pairs.lock();
        pairs.remove(&(session_id.to_owned(), Source::from(addr)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "192.0.2.1";
    const THERE: &str = "192.0.2.2";

    fn attempts(lockouts: &Lockouts, session: &str, source: &str, now: Instant, count: usize) -> usize {
        let source = source.parse().unwrap();
        (0..count).filter(|_| lockouts.attempt(session, source, now)).count()
    }

    #[test]
    fn a_source_that_guesses_is_locked_and_neither_the_owner_elsewhere_nor_another_session_is() {
        let (lockouts, now) = (Lockouts::new(Lockout::default()), Instant::now());
        assert_eq!(attempts(&lockouts, "a", HERE, now, 30), 10);
        assert_eq!(attempts(&lockouts, "a", THERE, now, 1), 1);
        assert_eq!(attempts(&lockouts, "other", HERE, now, 1), 1);
        let later = now + Duration::from_secs(16);
        assert_eq!(attempts(&lockouts, "a", HERE, later, 30), 1);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let (lockouts, now) = (Lockouts::new(Lockout { attempts: 1, per_minute: 60 }), Instant::now());
        let here = HERE.parse().unwrap();
        let counted =
            (0..REMEMBERED_MAX + 10).filter(|n| lockouts.attempt(&n.to_string(), here, now)).count();
        assert_eq!(counted, REMEMBERED_MAX);
        assert!(lockouts.attempt("late", here, now + Duration::from_secs(2)));
    }

    #[test]
    fn success_clears_the_failures() {
        let (lockouts, now) = (Lockouts::new(Lockout::default()), Instant::now());
        assert_eq!(attempts(&lockouts, "a", HERE, now, 9), 9);
        lockouts.succeeded("a", HERE.parse().unwrap());
        assert_eq!(attempts(&lockouts, "a", HERE, now, 30), 10);
    }
}
