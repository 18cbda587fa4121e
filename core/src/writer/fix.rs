//! A FIX session's part in a commit: the inbound MsgSeqNum, the order's effect and the outbound report are one
//! transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dvp_store::fix::rows::{FixNumbers, FixRows};

use super::unit::Outcome;

/// Turns the outcome into the rows that report it. Called inside the transaction, more than once if it is retried.
pub type RenderFix = Arc<dyn Fn(&Outcome) -> FixRows + Send + Sync>;

/// What a session writes with a unit: its numbers, and the rows that report the outcome.
#[derive(Clone)]
pub struct FixPart {
    pub numbers: FixNumbers,
    /// The ClOrdID that the unit uses up. An order whose ClOrdID was used before, by whatever request of the session,
    /// becomes [`Outcome::DuplicateIntent`] in the commit, where nothing can come in between.
    pub cl_ord_id: Option<String>,
    pub render: RenderFix,
    /// The commits this one builds on.
    pub chain: FixChain,
}

/// The commits of a session's owner since it loaded the numbers: each begins with the number where the one before it
/// ended. It remembers where the last one that was written ended, so that what was built on one that failed is known
/// to be stale without asking the database. Whoever loads the numbers begins a new chain.
#[derive(Debug, Clone)]
pub struct FixChain(Arc<AtomicU64>);

/// No MsgSeqNum: where the chain ended is not known.
const NOT_KNOWN: u64 = u64::MAX;

impl FixChain {
    /// A chain that begins with the numbers as they were loaded.
    pub fn from_loaded(next_out: u64) -> Self {
        Self(Arc::new(AtomicU64::new(next_out)))
    }

    /// The next outbound number after the last commit; `None`: the database has to be asked.
    pub(crate) fn next_out(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|next_out| *next_out != NOT_KNOWN)
    }

    pub(crate) fn set(&self, next_out: u64) {
        self.0.store(next_out, Ordering::Relaxed);
    }

    /// Whether the last commit was written is not known.
    pub(crate) fn forget(&self) {
        self.set(NOT_KNOWN);
    }

    /// The same for all parts of a chain, as long as one of them is there.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Default for FixChain {
    /// A chain of which nothing is known.
    fn default() -> Self {
        Self::from_loaded(NOT_KNOWN)
    }
}

impl FixPart {
    /// The same part, of a unit that uses up a ClOrdID.
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
