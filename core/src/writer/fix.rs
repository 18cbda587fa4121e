//! A FIX session's part in a commit: the inbound MsgSeqNum, the order's effect and the outbound report are one
//! transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dvp_store::fix::rows::{FixNumbers, FixRows};

use super::unit::Outcome;

/// Turns the outcome into the rows that report it. Called inside the transaction, and again when the transaction is
/// retried.
pub type RenderFix = Arc<dyn Fn(&Outcome) -> FixRows + Send + Sync>;

/// The rows a session writes with a unit: its numbers, and the reports of the outcome.
#[derive(Clone)]
pub struct FixPart {
    pub numbers: FixNumbers,
    /// The ClOrdID that the unit uses. An order whose ClOrdID was used before, by any request of the session, becomes
    /// [`Refusal::DuplicateIntent`](super::Refusal::DuplicateIntent) within the commit, without a race.
    pub cl_ord_id: Option<String>,
    pub render: RenderFix,
    /// The commits that this one continues.
    pub chain: FixChain,
}

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

impl FixPart {
    /// The same part, of a unit that uses a ClOrdID.
    #[must_use]
    pub fn using(self, cl_ord_id: &str) -> Self {
        Self { cl_ord_id: Some(cl_ord_id.to_owned()), ..self }
    }
}

impl std::fmt::Debug for FixPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FixPart").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}
