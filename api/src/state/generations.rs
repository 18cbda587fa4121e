//! The latest of many keys, in bounded memory.

use std::collections::HashSet;
use std::hash::Hash;
use std::mem;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Keys, dropped between one and two times `age` later, or when `max` and up to twice as many came after them.
pub(crate) struct Generations<K> {
    age: Duration,
    max: usize,
    kept: Mutex<Kept<K>>,
}

struct Kept<K> {
    since: Instant,
    recent: HashSet<K>,
    older: HashSet<K>,
}

impl<K: Eq + Hash> Generations<K> {
    pub(crate) fn new(age: Duration, max: usize) -> Self {
        let kept = Kept { since: Instant::now(), recent: HashSet::new(), older: HashSet::new() };
        Self { age, max, kept: Mutex::new(kept) }
    }

    /// Keeps a key. Returns whether it was kept before.
    pub(crate) fn note(&self, key: K, now: Instant) -> bool {
        self.with(now, |kept| {
            let is_old = kept.older.contains(&key);
            !kept.recent.insert(key) || is_old
        })
    }

    pub(crate) fn holds(&self, key: &K, now: Instant) -> bool {
        self.with(now, |kept| kept.recent.contains(key) || kept.older.contains(key))
    }

    fn with(&self, now: Instant, work: impl FnOnce(&mut Kept<K>) -> bool) -> bool {
        let mut kept = self.kept.lock();
        let age = now.saturating_duration_since(kept.since);
        if age >= self.age || kept.recent.len() >= self.max {
            kept.older = mem::take(&mut kept.recent);
            if age >= self.age.saturating_mul(2) {
                kept.older.clear();
            }
            kept.since = now;
        }
        work(&mut kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_once_or_twice_their_age_and_bounded() {
        let (age, max) = (Duration::from_secs(1), 100);
        let keys = Generations::new(age, max);
        let start = Instant::now();
        assert!(!keys.note(0, start) && keys.note(0, start));
        assert!(keys.holds(&0, start + age) && !keys.holds(&0, start + age * 2));
        for n in 0..3 * max {
            assert!(!keys.note(n, start + age * 2));
        }
        assert!(keys.holds(&(3 * max - 1), start + age * 2) && !keys.holds(&0, start + age * 2));
        let kept = keys.kept.lock();
        assert!(kept.recent.len() <= max && kept.older.len() <= max);
    }
}
