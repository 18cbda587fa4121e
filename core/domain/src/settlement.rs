//! The settlement of one accepted intent, of any kind: tokens are locked in escrow, committed and released, or swapped
//! in one transaction; prefunded money is reserved and handed over; a conversion follows where needed; a bank or the
//! chain pays out; a receipt is issued.
//!
//! ```text
//! Resting ─matched─> Accepted    (a range order; cancelled, expired and failed as Accepted)
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
//! Completed ─payment returned─> Completed, reversed ─paid again or input returned─> resolved
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
//! Invariants: a state owns exactly the data that exists in it; [`State::step`] is the only way a settlement changes; a
//! terminal state is never left (an anchor, a refund or a lost lock only adds to it); effects are data, carried out
//! elsewhere after state and effects were committed together. There is a lock when, and only when, the input is a
//! token, and an offramp leg unless money is paid for money.

mod failure;
pub mod leg;
mod lock;
mod owing;
mod reversal;
mod state;
mod step;
mod times;

use serde::{Deserialize, Serialize};

pub use self::failure::{Failure, Withheld};
pub use self::lock::{Deadlines, Lock};
pub use self::state::{Remedy, Resolved, Reversal, State};
use crate::event::EventType;
use crate::ledger::{self, Posting};
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

/// A rail's answer about a leg.
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
    /// The leg in progress was provably never called and will not be called.
    Withheld {
        why: Withheld,
        at: Timestamp,
    },
    /// The payout was called and has no final answer, and from the timelock on, which is near, anyone may refund the
    /// lock.
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
        code: String,
        message: String,
        at: Timestamp,
    },
    /// Operators paid the returned output another way, or returned the input.
    ReversalResolved {
        remedy: Remedy,
        done: LegDone,
    },
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

/// The first step of a settlement.
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
    let effects = vec![Effect::Rest, Effect::StartAt(terms.request.deadline)];
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
            Self::Filled { .. } => "filled",
            Self::FillLost => "fill_lost",
            Self::FillFailed { .. } => "fill_failed",
            Self::Payout { .. } => "payout",
            Self::Withheld { .. } => "withheld",
            Self::TimelockNear => "timelock_near",
            Self::Settled { .. } => "settled",
            Self::Refunded { .. } => "refunded",
            Self::DebtReturned { .. } => "debt_returned",
            Self::PaymentReturned { .. } => "payment_returned",
            Self::ReversalResolved { .. } => "reversal_resolved",
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
