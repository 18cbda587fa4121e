//! The broken promises, each once with its first case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Collects from all peers at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises {
    broken: Arc<Mutex<BTreeMap<String, (u64, String)>>>,
}

impl Promises {
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

    /// One line for each broken promise.
    pub(super) fn lines(&self) -> Vec<String> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken
            .iter()
            .map(|(promise, (count, case))| format!("{promise}: {count} times, first: {case}"))
            .collect()
    }
}
