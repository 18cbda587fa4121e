//! The commits of a FIX session, which continue each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The commits of a session's owner since it loaded the numbers: each begins with the number at which the previous one
/// ended. The chain records where the last written commit ended, so that units based on a failed one are known to be
/// stale without a database query. A commit that fails breaks its chain: if it was to take no outbound number, as one that
/// parks an order, the next commit begins with the same number, and would advance the inbound number past a message that
/// was not stored. Loading the numbers begins a new chain.
#[derive(Debug, Clone)]
pub struct FixChain(Arc<AtomicU64>);

/// The value of a chain whose end is unknown. No MsgSeqNum has it.
const NOT_KNOWN: u64 = u64::MAX;
/// The value of a chain of which a commit has failed. No MsgSeqNum has it.
const BROKEN: u64 = u64::MAX - 1;

impl FixChain {
    /// A chain that begins with the loaded numbers.
    pub fn from_loaded(next_out: u64) -> Self {
        Self(Arc::new(AtomicU64::new(next_out)))
    }

    /// The next outbound number after the last commit; `None`: it must be read from the database. That of a broken chain is
    /// no MsgSeqNum, and differs from every unit's.
    pub(crate) fn next_out(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|next_out| *next_out != NOT_KNOWN)
    }

    /// A broken chain stays broken.
    pub(crate) fn set(&self, next_out: u64) {
        let set = |present| (present != BROKEN).then_some(next_out);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// Whether the last commit was written is unknown.
    pub(crate) fn forget(&self) {
        self.set(NOT_KNOWN);
    }

    /// A commit has failed: none after it is written, in whichever batch it is.
    pub(crate) fn break_off(&self) {
        self.0.store(BROKEN, Ordering::Relaxed);
    }

    /// Equal for all parts of a chain, as long as one of them exists.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Default for FixChain {
    /// A chain of unknown state.
    fn default() -> Self {
        Self::from_loaded(NOT_KNOWN)
    }
}
