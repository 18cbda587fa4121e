//! What is known of orders that rest here and were filled before a restore (`core/src/ranges/forgotten.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forgotten(Arc<Mutex<ForgottenFills>>);

#[derive(Debug, Default)]
pub(crate) struct ForgottenFills {
    /// Chains whose events are read, and whose forgotten fills are found.
    pub(crate) read: HashSet<i64>,
    /// Orders that have begun there and are not filled yet.
    pub(crate) kept: HashSet<String>,
    /// Of these the ones whose amounts or provider could not be found.
    pub(crate) unfound: HashSet<String>,
}

impl Forgotten {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ForgottenFills> {
        self.0.lock()
    }

    pub(crate) fn is_done(&self, chains: &[i64]) -> bool {
        let known = self.lock();
        chains.iter().all(|chain| known.read.contains(chain)) && known.kept.is_subset(&known.unfound)
    }
}
