//! Attempts in a minute, of each source and of all together: a bound of load.
//!
//! Invariants: a source's count is its own; the total refuses none of the sources from which an operator has signed in; the
//! memory is bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dvp_core::listeners::source::Source;

/// Sources that are counted in a minute. The attempts of further ones count in the total only.
const SOURCES_MAX: usize = 10_000;
/// Sources that are remembered because an operator has signed in from them.
const KNOWN_MAX: usize = 1_000;

/// Attempts, with the time since which they are counted.
#[derive(Debug)]
pub(crate) struct Attempts {
    per_source: u32,
    /// Of all sources from which nobody has signed in.
    in_total: u32,
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    since: Instant,
    total: u32,
    sources: HashMap<Source, u32>,
    known: HashSet<Source>,
}

impl Attempts {
    pub(crate) fn new(per_source: u32, in_total: u32) -> Self {
        let counted =
            Counted { since: Instant::now(), total: 0, sources: HashMap::new(), known: HashSet::new() };
        Self { per_source, in_total, counted: Mutex::new(counted) }
    }

    /// Whether another attempt of a source is within both bounds.
    pub(crate) fn has_room(&self, source: IpAddr) -> bool {
        self.with(|counted| self.is_free(counted, source.into()))
    }

    /// Counts an attempt. Returns whether it is within both bounds; one that is not, is not counted.
    pub(crate) fn count(&self, source: IpAddr) -> bool {
        let source = source.into();
        self.with(|counted| {
            if !self.is_free(counted, source) {
                return false;
            }
            if !counted.known.contains(&source) {
                counted.total = counted.total.saturating_add(1);
            }
            if counted.sources.len() < SOURCES_MAX || counted.sources.contains_key(&source) {
                let of_source = counted.sources.entry(source).or_default();
                *of_source = of_source.saturating_add(1);
            }
            true
        })
    }

    /// An operator has signed in from a source.
    pub(crate) fn know(&self, source: IpAddr) {
        self.with(|counted| {
            if counted.known.len() < KNOWN_MAX {
                counted.known.insert(source.into());
            }
        });
    }

    fn is_free(&self, counted: &Counted, source: Source) -> bool {
        let of_source = counted.sources.get(&source).copied().unwrap_or_default();
        of_source < self.per_source && (counted.total < self.in_total || counted.known.contains(&source))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Counted) -> T) -> T {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.since.elapsed() >= Duration::from_secs(60) {
            counted.since = Instant::now();
            counted.total = 0;
            counted.sources.clear();
        }
        work(&mut counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_source_has_room_for_so_many_attempts_in_a_minute() {
        let attempts = Attempts::new(2, 3);
        let [one, same, other, third] = ["2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2"].map(address);
        assert!(attempts.count(one) && attempts.count(same));
        assert!(!attempts.has_room(one) && !attempts.count(same));
        assert!(attempts.count(other));
        assert!(!attempts.has_room(third), "the total");
        attempts.know(third);
        assert!(attempts.count(third) && attempts.count(third));
        assert!(!attempts.count(third), "its own");
    }
}
