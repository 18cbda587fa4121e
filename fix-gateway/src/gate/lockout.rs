//! How often one may be wrong about who one is.
//!
//! Attempts are counted by session and source together, so that nobody can lock a session's owner out by guessing from
//! elsewhere, and by source over all sessions. An attempt is counted before it is looked at and forgiven when it
//! succeeds, so guesses at the same time count, too. While one is locked, not even the right password is looked at.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    acceptor::source_of,
    limits::{Bucket, Pace},
};

/// Remembered at most, of each kind. Beyond that only those that have failed lately are.
const REMEMBERED_MAX: usize = 65_536;

/// Attempts of all sessions of a process.
#[derive(Debug)]
pub(crate) struct Lockouts {
    attempts: Mutex<Attempts>,
    of_pair: Pace,
    of_source: Pace,
}

#[derive(Debug, Default)]
struct Attempts {
    pairs: HashMap<(String, IpAddr), Bucket>,
    sources: HashMap<IpAddr, Bucket>,
}

impl Default for Lockouts {
    /// Ten wrong attempts for a session from one source, then one every 15 seconds; 50 for all sessions, then one
    /// every 2 seconds.
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            attempts: Mutex::default(),
            of_pair: Pace::new(4, minute, 10),
            of_source: Pace::new(30, minute, 50),
        }
    }
}

impl Lockouts {
    /// Counts an attempt. `false`: it is not to be looked at.
    pub(crate) fn attempt(&self, session_id: &str, addr: IpAddr, now: Instant) -> bool {
        let source = source_of(addr);
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let Attempts { pairs, sources } = &mut *attempts;
        take(sources, source, self.of_source, now)
            && take(pairs, (session_id.to_owned(), source), self.of_pair, now)
    }

    /// Forgives: this one was who it said.
    pub(crate) fn succeeded(&self, session_id: &str, addr: IpAddr) {
        let source = source_of(addr);
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.pairs.remove(&(session_id.to_owned(), source));
        attempts.sources.remove(&source);
    }
}

fn take<K: Hash + Eq>(buckets: &mut HashMap<K, Bucket>, key: K, pace: Pace, now: Instant) -> bool {
    if buckets.len() >= REMEMBERED_MAX && !buckets.contains_key(&key) {
        buckets.retain(|_, bucket| !bucket.is_full(now));
        if buckets.len() >= REMEMBERED_MAX {
            return false;
        }
    }
    buckets.entry(key).or_insert_with(|| Bucket::new(now)).take(pace, now)
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
    fn a_source_that_guesses_is_locked_and_the_owner_elsewhere_is_not() {
        let (lockouts, now) = (Lockouts::default(), Instant::now());
        assert_eq!(attempts(&lockouts, "a", HERE, now, 30), 10);
        assert_eq!(attempts(&lockouts, "a", THERE, now, 1), 1);
        let later = now + Duration::from_secs(16);
        assert_eq!(attempts(&lockouts, "a", HERE, later, 30), 1);
    }

    #[test]
    fn guessing_at_many_sessions_locks_the_source() {
        let (lockouts, now) = (Lockouts::default(), Instant::now());
        let let_through: usize = (0..100).map(|n| attempts(&lockouts, &format!("s{n}"), HERE, now, 1)).sum();
        assert_eq!(let_through, 50);
    }

    #[test]
    fn success_forgives() {
        let (lockouts, now) = (Lockouts::default(), Instant::now());
        assert_eq!(attempts(&lockouts, "a", HERE, now, 9), 9);
        lockouts.succeeded("a", HERE.parse().unwrap());
        assert_eq!(attempts(&lockouts, "a", HERE, now, 30), 10);
    }
}
