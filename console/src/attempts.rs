//! The number of attempts in a minute, of all sources together: a bound of load.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Attempts, with the time since which they are counted.
#[derive(Debug)]
pub(crate) struct Attempts {
    per_minute: u32,
    counted: Mutex<Option<(Instant, u32)>>,
}

impl Attempts {
    pub(crate) const fn new(per_minute: u32) -> Self {
        Self { per_minute, counted: Mutex::new(None) }
    }

    pub(crate) fn has_room(&self) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.is_none_or(|(since, count)| is_over(since) || count < self.per_minute)
    }

    pub(crate) fn count(&self) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted = match *counted {
            Some((since, count)) if !is_over(since) => Some((since, count.saturating_add(1))),
            Some(_) | None => Some((Instant::now(), 1)),
        };
    }
}

fn is_over(since: Instant) -> bool {
    since.elapsed() >= Duration::from_secs(60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_room_for_so_many_attempts() {
        let attempts = Attempts::new(3);
        for _ in 0..3 {
            assert!(attempts.has_room());
            attempts.count();
        }
        assert!(!attempts.has_room());
    }
}
