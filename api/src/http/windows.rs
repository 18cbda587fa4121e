//! Counts in windows of a minute.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of counted sources.
const SOURCES_MAX: usize = 65_536;

/// Counts by source in windows of a minute, in bounded memory.
pub(crate) struct Windows<Key> {
    counts: Mutex<HashMap<Key, Window>>,
}

struct Window {
    opened: Instant,
    count: u32,
}

impl<Key> Default for Windows<Key> {
    fn default() -> Self {
        Self { counts: Mutex::default() }
    }
}

impl<Key: Hash + Eq> Windows<Key> {
    pub(crate) fn add(&self, key: Key, now: Instant) {
        let mut counts = self.counts.lock();
        let is_open = |window: &Window| now.saturating_duration_since(window.opened) < WINDOW;
        if counts.len() >= SOURCES_MAX && !counts.contains_key(&key) {
            counts.retain(|_, window| is_open(window));
            if counts.len() >= SOURCES_MAX {
                // All counts restart; the total is limited elsewhere.
                counts.clear();
            }
        }
        let window = counts.entry(key).or_insert(Window { opened: now, count: 0 });
        if !is_open(window) {
            *window = Window { opened: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
    }

    /// Seconds until the window closes, when it holds `limit` or more.
    pub(crate) fn exhausted(&self, key: &Key, limit: u32, now: Instant) -> Option<u64> {
        let counts = self.counts.lock();
        let window = counts.get(key)?;
        let left = WINDOW.checked_sub(now.saturating_duration_since(window.opened))?;
        (window.count >= limit && !left.is_zero()).then(|| left.as_secs().saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_window_recovers_and_the_table_is_bounded() {
        let (windows, start) = (Windows::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(windows.exhausted(&1, 3, start), None);
            windows.add(1, start);
        }
        assert_eq!(windows.exhausted(&1, 3, start + WINDOW / 2), Some(31));
        assert_eq!(windows.exhausted(&1, 3, start + WINDOW), None);
        windows.add(1, start + WINDOW);
        assert_eq!(windows.exhausted(&1, 3, start + WINDOW), None);
        for key in 0..2 * SOURCES_MAX {
            windows.add(key, start + WINDOW);
        }
        assert!(windows.counts.lock().len() <= SOURCES_MAX);
    }
}
