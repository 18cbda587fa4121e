//! A limit on log lines of one kind, so that a client that is refused repeatedly cannot flood the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// One line per this time; the others are counted.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct LogLimit(Mutex<Lines>);

struct Lines {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Lines { last: None, suppressed: 0 }))
    }

    /// Whether a line may be written now, and then the number of suppressed lines since the previous one.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        if lines.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            lines.suppressed = lines.suppressed.saturating_add(1);
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_counts_the_suppressed_ones() {
        let (limit, begin) = (LogLimit::new(), Instant::now());
        let admitted = |millis| limit.admit(begin + Duration::from_millis(millis));
        assert_eq!(admitted(0), Some(0));
        for millis in [0, 1, 500, 999] {
            assert_eq!(admitted(millis), None, "{millis}");
        }
        assert_eq!(admitted(1000), Some(4));
        assert_eq!(admitted(1999), None);
        assert_eq!(admitted(5000), Some(1));
        assert_eq!(admitted(6000), Some(0));
    }
}
