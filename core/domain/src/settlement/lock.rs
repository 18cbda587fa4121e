//! A lock of funds in the escrow, and the chain's events about it that can come in any state.

use serde::{Deserialize, Serialize};

use super::{Effect, Happened, State, Step};
use crate::ledger;
use crate::terms::Terms;
use crate::time::Timestamp;

/// The funds are in the escrow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub tx_hash: String,
    pub timelock_expires_at: Timestamp,
    pub deadlines: Deadlines,
    /// The chain is committed to the payout: the lock can no longer be cancelled.
    pub filled: bool,
    /// A reorganization removed the lock's transaction; it may be included again.
    pub lost: bool,
    /// The escrow returned the funds.
    pub refunded: bool,
    /// The transaction that returned them.
    pub refund_tx: Option<String>,
}

/// The service's own deadlines for a lock. Each is well before the chain's deadline that it protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    /// No conversion and no commitment begins later: from the fill deadline on anyone may cancel.
    pub begin_before: Timestamp,
    /// No payout begins later: it might have no final answer in time.
    pub pay_before: Timestamp,
    /// A payout without a final answer is reported.
    pub overdue_at: Timestamp,
    /// A payout without a final answer is settled: from the timelock on anyone may refund.
    pub settle_at: Timestamp,
}

impl Lock {
    /// A lock whose `Created` event was just seen.
    pub const fn new(tx_hash: String, timelock_expires_at: Timestamp, deadlines: Deadlines) -> Self {
        let (filled, lost, refunded) = (false, false, false);
        Self { tx_hash, timelock_expires_at, deadlines, filled, lost, refunded, refund_tx: None }
    }

    /// The lock of a swap: the transaction has released it already.
    pub(super) fn swapped(tx_hash: String, at: Timestamp) -> Self {
        let deadlines = Deadlines { begin_before: at, pay_before: at, overdue_at: at, settle_at: at };
        Self { filled: true, ..Self::new(tx_hash, at, deadlines) }
    }

    /// Whether it is too late to begin a conversion or a commitment.
    pub fn is_too_late(&self, now: Timestamp) -> bool {
        now >= self.deadlines.begin_before
    }

    /// Whether the escrow holds the funds, as far as the events say.
    pub const fn holds(&self) -> bool {
        !self.lost && !self.refunded
    }

    /// An event proves that the lock exists. Returns the posting that is due if it had been recorded as lost.
    pub(super) fn found(self, terms: &Terms) -> (Self, Option<Effect>) {
        let posted = self.lost.then(|| Effect::Post(ledger::locked(terms)));
        (Self { lost: false, ..self }, posted)
    }

    /// The funds were returned to the maker. A lost lock needs no posting: the ledger no longer holds it.
    pub(super) fn gone(self, terms: &Terms, tx_hash: String) -> (Self, Option<Effect>) {
        let posted = (!self.lost).then(|| Effect::Post(ledger::refunded(terms)));
        (Self { lost: false, refunded: true, refund_tx: Some(tx_hash), ..self }, posted)
    }
}

/// Applies an event about the lock that does not change the state: the funds were returned, a reorganization removed or
/// restored the lock, removed its commitment to the payout, or `Filled` was seen when the state does not wait for it.
/// `None`: nothing new.
pub(super) fn reported(terms: &Terms, mut state: State, happened: Happened) -> Option<Step> {
    let failed = matches!(
        state,
        State::ConversionFailed { .. }
            | State::PayoutFailed { .. }
            | State::Owing { settle_tx: None, failure: Some(_), is_reopened: false, .. }
    );
    // The funds were released to the solver.
    let released = matches!(
        state,
        State::Completed { .. }
            | State::Owing { settle_tx: Some(_), .. }
            | State::PayoutFailed { debt_returned: Some(_), .. }
    );
    let lock = state.lock_mut()?;
    let effects = match happened {
        Happened::Refunded { tx_hash, .. } if !lock.refunded && !released => {
            let (gone, posted) = lock.clone().gone(terms, tx_hash);
            *lock = gone;
            posted.into_iter().collect()
        }
        Happened::LockLost { .. } if lock.holds() && !released => {
            lock.lost = true;
            vec![Effect::PublishPermit, Effect::Post(ledger::lock_lost(terms))]
        }
        Happened::Locked { lock: again, .. } if lock.lost => {
            let mut effects = vec![Effect::Post(ledger::locked(terms))];
            let filled = lock.filled && !failed;
            if failed {
                effects.push(Effect::GiveBack);
            }
            *lock = Lock { filled, ..again };
            effects
        }
        Happened::Locked { lock: again, .. } if lock.tx_hash != again.tx_hash => {
            let Lock { filled, refunded, refund_tx, .. } = lock.clone();
            *lock = Lock { filled, refunded, refund_tx, ..again };
            Vec::new()
        }
        Happened::Filled { .. } if !lock.filled && !lock.refunded => {
            lock.filled = true;
            Vec::new()
        }
        Happened::FillLost if lock.filled && !lock.refunded && !released => {
            lock.filled = false;
            (failed && lock.holds()).then_some(Effect::GiveBack).into_iter().collect()
        }
        Happened::Refunded { .. }
        | Happened::LockLost { .. }
        | Happened::Locked { .. }
        | Happened::Filled { .. }
        | Happened::FillLost
        | Happened::Matched
        | Happened::LockDue
        | Happened::CancelRequested
        | Happened::DeadlinePassed { .. }
        | Happened::LockFailed { .. }
        | Happened::Refused { .. }
        | Happened::Offramp { .. }
        | Happened::ConversionGivenUp { .. }
        | Happened::FillFailed { .. }
        | Happened::Payout { .. }
        | Happened::FoundPaid { .. }
        | Happened::Withheld { .. }
        | Happened::TimelockNear
        | Happened::Settled { .. }
        | Happened::DebtReturned { .. }
        | Happened::PaymentReturned { .. }
        | Happened::ReversalResolved { .. }
        | Happened::ConversionClosed
        | Happened::Anchored(_) => return None,
    };
    Some(Step::quiet(state, effects))
}

/// Applies the event of another transaction for a settlement that is settled or anchored already: a reorganization
/// deeper than the confirmations removed the first one. `None`: it is the same transaction, or no such event was
/// reported before.
pub(super) fn moved(mut state: State, happened: Happened) -> Option<Step> {
    match (&mut state, happened) {
        (
            State::Completed { settle_tx: Some(known), .. } | State::Owing { settle_tx: Some(known), .. },
            Happened::Settled { tx_hash, .. },
        ) if *known != tx_hash => *known = tx_hash,
        (State::Completed { finality: Some(known), .. }, Happened::Anchored(seen)) if *known != seen => {
            *known = seen;
        }
        _ => return None,
    }
    Some(Step::quiet(state, Vec::new()))
}

/// An unfilled lock is cancelled immediately. A filled one is returned by two operators, or refunded at its timelock.
pub(super) fn give_back(lock: Option<&Lock>) -> Option<Effect> {
    lock.is_some_and(|lock| lock.holds() && !lock.filled).then_some(Effect::GiveBack)
}
