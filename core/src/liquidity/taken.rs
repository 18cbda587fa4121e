//! What orders have taken from the sources' answers: a source that delivers at most so much at its price delivers it once,
//! and the next unit of a pool costs more than the one before, whichever order takes it.
//!
//! Each process counts its own orders, from their decision on. One that is decided again counts again, and one whose commit
//! failed stays counted: until the source's next answer less may be offered than there is, and never more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use dvp_domain::liquidity::{AnswerId, Snapshot};
use dvp_domain::money::Minor;
use dvp_domain::plan::Plan;
use dvp_domain::time::Timestamp;
use parking_lot::Mutex;

pub(super) fn new_answer() -> AnswerId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    AnswerId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The output taken from each answer, and until when the answer is used.
#[derive(Debug, Default)]
pub(crate) struct Taken(Mutex<HashMap<AnswerId, (Minor, Timestamp)>>);

impl Taken {
    pub(crate) fn of(&self, answer: AnswerId) -> Minor {
        self.0.lock().get(&answer).map(|(output, _)| *output).unwrap_or_default()
    }

    /// A plan was made from a snapshot. One that a firm quote promised takes nothing: the quote had an answer of its own.
    pub(crate) fn take(&self, snapshot: &Snapshot, pair: (&str, &str), plan: &Plan, now: Timestamp) {
        if plan.quote_id.is_some() {
            return;
        }
        let mut taken = self.0.lock();
        for slice in plan.slices.iter().filter(|slice| slice.level_id.is_none()) {
            for (answer, valid_until) in snapshot.answers(pair, slice) {
                let (output, _) = taken.entry(answer).or_insert((Minor::ZERO, valid_until));
                *output = output.checked_add(slice.output).unwrap_or(Minor::new(u128::MAX));
            }
        }
        taken.retain(|_, (_, valid_until)| *valid_until > now);
    }
}
