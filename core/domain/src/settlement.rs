//! The settlement of one accepted intent, of any kind: tokens are locked in escrow, committed and released, or swapped
//! in one transaction; prefunded money is reserved and handed over; a conversion follows where needed; a bank or the
//! chain pays out; a receipt is issued.
//!
//! ```text
//! Resting ─matched─> Accepted    (a range, or an order that waits for a deposit; else it ends as Accepted does)
//! Accepted ─due┬─token for money──> Locking ─locked──> Converting ─converted─> Committing ─filled─> Paying
//!    │ │ │     ├─token for token of another chain: likewise, and the relayer pays
//!    │ │ │     ├─token for token──> Locking ─swapped────────────────────────────────────────────────────> Completed
//!    │ │ │     ├─money for token─────────────────────> Converting ─converted─────────────────────> Paying
//!    │ │ │     └─money for money─────────────────────────────────────────────────────────────────> Paying
//!    │ │ └─cancel─> Cancelled
//!    │ └─deadline─> Expired             Paying ─paid─┬─token in──> Releasing ─settled──> Completed
//!    └─refused, (Locking)──> Failed       │          └─money in────────────────────────> Completed
//!                                         └─the timelock is near─> Owing ─paid, settled─> Completed
//! Converting ─> ConversionFailed          Committing, Paying, Owing ─> PayoutFailed
//! PayoutFailed ─found paid┬─token in──> Releasing         PayoutFailed ─the timelock is near, and the bank has paid─> Owing
//!                         └─money in──> Completed
//! ConversionFailed ─the desk has converted all the same─> ConversionFailed, with its position
//! Completed ─payment returned─> Completed, reversed ─paid again, input returned, or the return taken back─> resolved
//! ```
//!
//! An order that is due when it is accepted takes both steps at once ([`accept_and_begin`]), where nothing is locked for
//! it.
//!
//! Until it is filled, anyone can cancel a lock from its fill deadline on; once filled, it ends by the preimage before
//! its timelock, by two operators, or by a refund from the timelock on. So a rail pays out for locked tokens only in
//! [`State::Paying`] and [`State::Owing`], which only `Filled` leads to, and the preimage is revealed well before the
//! timelock, with or without the payout's final answer.
//!
//! A payment on another chain is paid like one of a rail, after `Filled` is final on the lock's chain. The contract
//! refuses it after a time that is before the time to settle; that it was not made and cannot be made any more is
//! known from a final block of that chain after this time. While that chain stands still neither is known: the lock is
//! settled, and the output is owed.
//!
//! A bank may make a payment that it had refused, or whose recall it had accepted. Two operators record it as found paid,
//! and the preimage is revealed all the same. If they have not when the timelock is near, the lock is settled, and the
//! output is owed until they decide: the input is never returned beside the payment while the service knows of it.
//!
//! A conversion whose order ends without it leaves a position in the ledger, until the order is found paid or operators
//! have recorded the trade that ends it (`position.rs`).
//!
//! Invariants: a state owns exactly the data that exists in it; [`State::step`] is the only way a settlement changes; a
//! terminal state is left only when a failed payout was made after all (an anchor, a refund or a lost lock only adds to
//! it); effects are data, carried out elsewhere after state and effects were committed together. There is a lock when, and only when, the input is a
//! token, and an offramp leg unless money is paid for money.
//!
//! Kept by `core/domain/src/settlement/tests.rs::the_table_of_states_and_events_is_the_committed_one`,
//! `core/domain/src/settlement/protocol.rs::no_interleaving_pays_both_sides_and_every_end_is_reached` and
//! `core/tests/it/commitment.rs::no_payout_is_called_before_the_commitment_is_seen`.

mod early;
mod failure;
pub mod leg;
mod lock;
mod owing;
mod position;
mod reversal;
mod state;
mod step;
mod times;

use serde::{Deserialize, Serialize};

pub use self::failure::{Failure, ShownFailure, Withheld};
pub use self::lock::{Deadlines, Lock};
pub use self::position::{Conversion, DeskOutcome, Position};
pub use self::state::{Remedy, Resolved, Reversal, State};
use crate::event::EventType;
use crate::ledger::{self, Posting};
use crate::money::Minor;
use crate::terms::Terms;
use crate::time::Timestamp;

/// A leg that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegDone {
    pub provider_reference: String,
    pub occurred_at: Timestamp,
}

/// The receipt's anchor, seen at the confirmation depth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finality {
    pub tx_hash: String,
    pub contract_address: String,
    pub chain_id: u64,
}

/// A leg in progress, with the provider's reference once it has answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    pub in_progress: bool,
    pub provider_reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailAnswer {
    InProgress { provider_reference: String },
    Done(LegDone),
    Failed { code: String, message: String, retryable: bool },
}

/// An event that a settlement reacts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// The market meets a resting order: its terms are those of its fill.
    Matched,
    LockDue,
    CancelRequested,
    DeadlinePassed {
        at: Timestamp,
    },
    Locked {
        lock: Lock,
        at: Timestamp,
    },
    /// The lock, or the swap, can never succeed.
    LockFailed {
        code: String,
        message: String,
        at: Timestamp,
    },
    /// Screening, or an operator after it, refused the order before it began.
    Refused {
        code: String,
        message: String,
        at: Timestamp,
    },
    /// A reorganization removed a reported lock.
    LockLost {
        at: Timestamp,
    },
    Offramp {
        answer: RailAnswer,
        at: Timestamp,
    },
    /// Operators fail the conversion, whatever the desk will say.
    ConversionGivenUp {
        code: String,
        message: String,
        at: Timestamp,
    },
    /// The chain is committed to the payout, at the depth that the payout gate requires. Known at this time, which may be
    /// long after the block.
    Filled {
        at: Timestamp,
    },
    /// A reorganization removed a reported commitment.
    FillLost,
    /// The commitment can never succeed.
    FillFailed {
        code: String,
        message: String,
        at: Timestamp,
    },
    Payout {
        answer: RailAnswer,
        at: Timestamp,
    },
    /// Operators have found that the rail made a payment whose payout had failed.
    FoundPaid {
        done: LegDone,
        at: Timestamp,
    },
    /// The leg in progress was provably never called and will not be called.
    Withheld {
        why: Withheld,
        at: Timestamp,
    },
    /// The payout was called and has no final answer, or was made after it had failed, and from the timelock on, which is
    /// near, anyone may refund the lock.
    TimelockNear,
    Settled {
        tx_hash: String,
        at: Timestamp,
    },
    Refunded {
        tx_hash: String,
        at: Timestamp,
    },
    /// Operators returned the input for an output that was settled and never paid.
    DebtReturned {
        done: LegDone,
        at: Timestamp,
    },
    /// The rail returned a payment that it had carried out.
    PaymentReturned {
        done: LegDone,
        /// Less than was paid, when the bank has deducted its charge.
        came: Option<Minor>,
        code: String,
        message: String,
        at: Timestamp,
    },
    /// Operators paid the returned output another way, returned the input, or found that the bank took the return back.
    ReversalResolved {
        remedy: Remedy,
        done: LegDone,
    },
    /// Operators recorded the trade that ends the position of an unused conversion.
    ConversionClosed,
    Anchored(Finality),
}

/// Work to be done after the commit of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the first leg at the time, or end the order when its deadline has passed by then.
    StartAt(Timestamp),
    /// The relayer creates the settlement on the chain.
    CreateOnChain,
    /// The relayer exchanges input and output in one transaction.
    SwapOnChain,
    CallOfframp,
    /// The relayer commits the lock to the payout.
    Fill,
    /// What was requested of that is not carried out any more, unless its transaction is on its way already.
    WithdrawFill,
    /// Withdraws the lock or the swap, which must not be part of any transaction.
    WithdrawLock,
    CallPayout,
    /// The relayer pays the recipient in tokens.
    TransferOnChain,
    /// A timer: the lock is settled at the time if the payout on the other chain has no final answer by then.
    SettleBy(Timestamp),
    /// The relayer releases the funds.
    Settle,
    /// The relayer returns an unfilled lock.
    GiveBack,
    /// A transaction may have made the order's permit public, and there is no lock that used it.
    PublishPermit,
    /// The receipt exists: store it and anchor its hash.
    IssueReceipt,
    /// Deletes the timers of a state that was left.
    DropTimers,
    /// The order waits for the market.
    Rest,
    /// It waits no more.
    EndRest,
    /// The timer that would have ended a resting order starts its first leg.
    BringForward(Timestamp),
    Post(Posting),
}

/// An event to append to the feed, with the state that its snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    pub kind: EventType,
    pub occurred_at: Timestamp,
    pub state: State,
}

impl Emitted {
    fn new(kind: EventType, occurred_at: Timestamp, state: &State) -> Self {
        Self { kind, occurred_at, state: state.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub next: State,
    pub events: Vec<Emitted>,
    pub effects: Vec<Effect>,
}

/// The event does not apply to the state; nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} does not apply to a settlement that is {state}")]
pub struct IllegalTransition {
    pub state: &'static str,
    pub event: &'static str,
}

impl Step {
    fn quiet(next: State, effects: Vec<Effect>) -> Self {
        Self { next, events: Vec::new(), effects }
    }

    fn tell(next: State, kind: EventType, occurred_at: Timestamp, effects: Vec<Effect>) -> Self {
        let reported = Emitted::new(kind, occurred_at, &next);
        Self { next, events: vec![reported], effects }
    }

    /// A leg's progress is reported once.
    fn progress(next: State, reported: bool, kind: EventType, at: Timestamp) -> Step {
        if reported { Step::quiet(next, Vec::new()) } else { Step::tell(next, kind, at, Vec::new()) }
    }

    /// `payout.completed` occurred when the beneficiary was paid, and is reported once the funds are released.
    fn completed(
        lock: Option<Lock>,
        offramp: Option<Conversion>,
        payout: LegDone,
        settle_tx: Option<String>,
        settled: Option<Posting>,
    ) -> Step {
        let paid_at = payout.occurred_at;
        let next = State::Completed { lock, offramp, payout, settle_tx, finality: None, reversal: None };
        let effects = settled.map(Effect::Post).into_iter().chain([Effect::IssueReceipt]).collect();
        Step::tell(next, EventType::PayoutCompleted, paid_at, effects)
    }

    /// Puts these effects before the step's own.
    fn after(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.effects.splice(..0, effects);
        self
    }

    /// Puts these events before the step's own.
    fn reported_after(mut self, events: impl IntoIterator<Item = Emitted>) -> Self {
        self.events.splice(..0, events);
        self
    }
}

pub fn accept(terms: &Terms) -> Step {
    let effects = vec![
        Effect::Post(ledger::reserved(terms)),
        Effect::StartAt(terms.lock_at.min(terms.request.deadline)),
    ];
    Step::tell(State::Accepted, EventType::IntentAccepted, terms.accepted_at, effects)
}

/// The first step of a settlement whose first leg is due already: the acceptance and the beginning as one. No timer is
/// set, so none is deleted.
pub fn accept_and_begin(terms: &Terms) -> Result<Step, IllegalTransition> {
    let mut accepted = accept(terms);
    let begun = accepted.next.step(terms, Happened::LockDue)?;
    let is_timer = |effect: &Effect| matches!(effect, Effect::StartAt(_) | Effect::DropTimers);
    accepted.effects.extend(begun.effects);
    accepted.effects.retain(|effect| !is_timer(effect));
    accepted.events.extend(begun.events);
    Ok(Step { next: begun.next, ..accepted })
}

/// How a resting order begins.
pub fn rest(terms: &Terms) -> Step {
    let effects = vec![Effect::Rest, Effect::StartAt(terms.lock_at)];
    Step::tell(State::Resting, EventType::IntentAccepted, terms.accepted_at, effects)
}

impl Happened {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::LockDue => "lock_due",
            Self::CancelRequested => "cancel_requested",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Locked { .. } => "locked",
            Self::LockFailed { .. } => "lock_failed",
            Self::Refused { .. } => "refused",
            Self::LockLost { .. } => "lock_lost",
            Self::Offramp { .. } => "offramp",
            Self::ConversionGivenUp { .. } => "conversion_given_up",
            Self::Filled { .. } => "filled",
            Self::FillLost => "fill_lost",
            Self::FillFailed { .. } => "fill_failed",
            Self::Payout { .. } => "payout",
            Self::FoundPaid { .. } => "found_paid",
            Self::Withheld { .. } => "withheld",
            Self::TimelockNear => "timelock_near",
            Self::Settled { .. } => "settled",
            Self::Refunded { .. } => "refunded",
            Self::DebtReturned { .. } => "debt_returned",
            Self::PaymentReturned { .. } => "payment_returned",
            Self::ReversalResolved { .. } => "reversal_resolved",
            Self::ConversionClosed => "conversion_closed",
            Self::Anchored(_) => "anchored",
        }
    }
}

/// No outside source states when it occurred: the time of the record is used.
const WHEN_RECORDED: Timestamp = Timestamp::from_millis(i64::MAX);

#[cfg(test)]
mod model;
#[cfg(test)]
mod protocol;
#[cfg(test)]
pub(crate) mod tests;
