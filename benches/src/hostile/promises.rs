//! The broken promises, each once with its first case.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Default)]
pub(super) struct Promises {
    broken: Arc<Mutex<BTreeMap<String, (u64, String)>>>,
    /// Other work shares the machine: a service without processor time may ask a caller to try again.
    shares_machine: bool,
    excused: Arc<AtomicUsize>,
}

impl Promises {
    pub(super) fn new(shares_machine: bool) -> Self {
        Self { shares_machine, ..Self::default() }
    }

    /// Whether the answer asks the caller to try again, and may.
    pub(super) fn is_excused(&self, status: u16) -> bool {
        let is_excused = self.shares_machine && status == 503;
        if is_excused {
            self.excused.fetch_add(1, Ordering::Relaxed);
        }
        is_excused
    }

    pub(super) fn excused(&self) -> usize {
        self.excused.load(Ordering::Relaxed)
    }

    /// Whether an error of the log is such an answer, or an item that had no processor for its time: a comparison may come
    /// after the node has forgotten the state of the block.
    pub(super) fn is_excused_in_log(&self, line: &str) -> bool {
        const LATE: [&str; 6] = [
            "pool timed out",
            "not finished within",
            "no answer to a connection in time",
            "batch is slow",
            "code=\"SERVICE_UNAVAILABLE\"",
            "BlockOutOfRangeError",
        ];
        self.shares_machine && LATE.iter().any(|late| line.contains(late))
    }

    /// `promise` is the same text for every case of it; `case` describes the event.
    pub(super) fn broken(&self, promise: &str, case: impl FnOnce() -> String) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        match broken.get_mut(promise) {
            Some((count, _)) => *count = count.saturating_add(1),
            None => {
                broken.insert(promise.to_owned(), (1, case()));
            }
        }
    }

    pub(super) fn check(&self, is_kept: bool, promise: &str, case: impl FnOnce() -> String) {
        if !is_kept {
            self.broken(promise, case);
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken
            .iter()
            .map(|(promise, (count, case))| format!("{promise}: {count} times, first: {case}"))
            .collect()
    }
}
