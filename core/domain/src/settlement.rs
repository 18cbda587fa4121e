//! The settlement of one accepted intent: a token locked in escrow, converted, paid out, released, receipted.
//!
//! ```text
//! Accepted ──lock due──> Locking ──locked──> Converting ──done──> Paying ──paid──> Releasing ──settled──> Completed
//!    │ │ └─cancel─> Cancelled  │                 │                   │
//!    │ └─deadline─> Expired    └─fails─> Failed  └─fails─> ConversionFailed   └─fails─> PayoutFailed
//! ```
//!
//! Invariants: a state owns exactly the data that exists in it; [`State::step`] is the only way a settlement changes;
//! a terminal state is never left (an anchor or a refund only adds to it); effects are data, carried out by others
//! after state and effects were committed together.

use serde::{Deserialize, Serialize};

use crate::decision::Plan;
use crate::event::EventType;
use crate::ids::{PartnerId, Reference};
use crate::intent::IntentRequest;
use crate::ledger::{self, Move};
use crate::money::Minor;
use crate::time::Timestamp;

/// What was agreed at acceptance; never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    pub reference: Reference,
    pub partner_id: PartnerId,
    pub livemode: bool,
    pub request: IntentRequest,
    pub plan: Plan,
    pub input: AssetAmount,
    pub output: AssetAmount,
    pub accepted_at: Timestamp,
    /// The settlement's id on the chain.
    pub entity: String,
    /// SHA-256 of the preimage that releases the funds.
    pub hashlock: String,
    /// When the lock is sent; later than acceptance only when a rail asks for it.
    pub lock_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetAmount {
    pub asset: String,
    pub amount: Minor,
    pub exponent: u8,
    pub chain: Option<String>,
}

/// The funds are in the escrow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub tx_hash: String,
    pub timelock_expires_at: Timestamp,
}

/// A leg that ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegDone {
    pub provider_reference: String,
    pub occurred_at: Timestamp,
}

/// Spec section 2.6, Failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub stage: Stage,
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Intent,
    Offramp,
    Payout,
}

/// The receipt's anchor, seen at the confirmation depth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finality {
    pub tx_hash: String,
    pub contract_address: String,
    pub chain_id: u64,
}

/// A leg under way: what the provider calls it, once it has answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    pub in_progress: bool,
    pub provider_reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Accepted,
    Locking,
    Converting { lock: Lock, leg: Leg },
    Paying { lock: Lock, offramp: LegDone, leg: Leg },
    Releasing { lock: Lock, offramp: LegDone, payout: LegDone, filled: bool },
    Completed { lock: Lock, offramp: LegDone, payout: LegDone, settle_tx: String, finality: Option<Finality> },
    ConversionFailed { lock: Lock, failure: Failure, refunded: bool },
    PayoutFailed { lock: Lock, offramp: LegDone, failure: Failure, refunded: bool },
    Cancelled,
    Expired,
    Failed { failure: Failure },
}

/// What a rail said about a leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailAnswer {
    InProgress { provider_reference: String },
    Done(LegDone),
    Failed { code: String, message: String, retryable: bool },
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    LockDue,
    CancelAsked,
    DeadlinePassed { at: Timestamp },
    Locked { lock: Lock, at: Timestamp },
    LockFailed { code: String, message: String, at: Timestamp },
    Offramp { answer: RailAnswer, at: Timestamp },
    Payout { answer: RailAnswer, at: Timestamp },
    Filled,
    Settled { tx_hash: String },
    Refunded,
    Anchored(Finality),
}

/// What is to be done once the step is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send the lock, not before the time.
    LockAt(Timestamp),
    /// Wake when the intent's deadline passes.
    ExpireAt(Timestamp),
    /// The relayer creates the settlement on the chain.
    CreateOnChain,
    CallOfframp,
    CallPayout,
    /// The relayer records the payout and releases the funds.
    FillAndSettle,
    /// The receipt exists: store it and anchor its hash.
    IssueReceipt,
    /// Timers of a state that was left.
    DropTimers,
    /// The provider's reserved output goes back to its free balance.
    ReleaseReservation,
    /// The provider's reserved output is gone: it was delivered.
    SpendReservation,
    Post(Vec<Move>),
}

/// An event to append to the feed, with the state its snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    pub kind: EventType,
    pub occurred_at: Timestamp,
    pub state: State,
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
        let told = Emitted { kind, occurred_at, state: next.clone() };
        Self { next, events: vec![told], effects }
    }
}

/// How a settlement begins.
pub fn accept(terms: &Terms) -> Step {
    let effects = vec![Effect::LockAt(terms.lock_at), Effect::ExpireAt(terms.request.deadline)];
    Step::tell(State::Accepted, EventType::IntentAccepted, terms.accepted_at, effects)
}

impl State {
    /// The only way a settlement changes.
    pub fn step(self, terms: &Terms, happened: Happened) -> Result<Step, IllegalTransition> {
        let illegal = IllegalTransition { state: self.name(), event: happened.name() };
        let step = match (self, happened) {
            (Self::Accepted, Happened::LockDue) => Step::quiet(Self::Locking, vec![Effect::CreateOnChain]),
            (Self::Accepted, Happened::CancelAsked) => {
                close(Self::Cancelled, EventType::IntentCancelled, None)
            }
            (Self::Accepted, Happened::DeadlinePassed { at }) => {
                close(Self::Expired, EventType::IntentExpired, Some(at))
            }
            (Self::Locking, Happened::Locked { lock, at }) => locked(terms, lock, at),
            (Self::Locking, Happened::LockFailed { code, message, at }) => {
                let failure = Failure { stage: Stage::Intent, code, message, retryable: false };
                close(Self::Failed { failure }, EventType::IntentFailed, Some(at))
            }
            (Self::Converting { lock, leg }, Happened::Offramp { answer, at }) => {
                converting(lock, leg, answer, at)
            }
            (Self::Paying { lock, offramp, leg }, Happened::Payout { answer, at }) => {
                paying(terms, lock, offramp, leg, answer, at)
            }
            (Self::Releasing { lock, offramp, payout, .. }, Happened::Filled) => {
                Step::quiet(Self::Releasing { lock, offramp, payout, filled: true }, Vec::new())
            }
            (Self::Releasing { lock, offramp, payout, .. }, Happened::Settled { tx_hash }) => {
                settled(terms, lock, offramp, payout, tx_hash)
            }
            (
                Self::Completed { lock, offramp, payout, settle_tx, finality: None },
                Happened::Anchored(seen),
            ) => {
                let finality = Some(seen);
                Step::quiet(Self::Completed { lock, offramp, payout, settle_tx, finality }, Vec::new())
            }
            (Self::ConversionFailed { lock, failure, refunded: false }, Happened::Refunded) => Step::quiet(
                Self::ConversionFailed { lock, failure, refunded: true },
                vec![Effect::Post(ledger::refunded(terms))],
            ),
            (Self::PayoutFailed { lock, offramp, failure, refunded: false }, Happened::Refunded) => {
                Step::quiet(
                    Self::PayoutFailed { lock, offramp, failure, refunded: true },
                    vec![Effect::Post(ledger::refunded(terms))],
                )
            }
            (
                _,
                Happened::LockDue
                | Happened::CancelAsked
                | Happened::DeadlinePassed { .. }
                | Happened::Locked { .. }
                | Happened::LockFailed { .. }
                | Happened::Offramp { .. }
                | Happened::Payout { .. }
                | Happened::Filled
                | Happened::Settled { .. }
                | Happened::Refunded
                | Happened::Anchored(_),
            ) => return Err(illegal),
        };
        Ok(step)
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Locking => "locking",
            Self::Converting { .. } => "converting",
            Self::Paying { .. } => "paying",
            Self::Releasing { .. } => "releasing",
            Self::Completed { .. } => "completed",
            Self::ConversionFailed { .. } => "conversion_failed",
            Self::PayoutFailed { .. } => "payout_failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Failed { .. } => "failed",
        }
    }

    /// No event of the feed follows.
    pub const fn is_terminal(&self) -> bool {
        match self {
            Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Paying { .. }
            | Self::Releasing { .. } => false,
            Self::Completed { .. }
            | Self::ConversionFailed { .. }
            | Self::PayoutFailed { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => true,
        }
    }
}

impl Happened {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LockDue => "lock_due",
            Self::CancelAsked => "cancel_asked",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Locked { .. } => "locked",
            Self::LockFailed { .. } => "lock_failed",
            Self::Offramp { .. } => "offramp",
            Self::Payout { .. } => "payout",
            Self::Filled => "filled",
            Self::Settled { .. } => "settled",
            Self::Refunded => "refunded",
            Self::Anchored(_) => "anchored",
        }
    }
}

/// Ends before any funds moved. `None`: it occurred when it was recorded.
fn close(next: State, kind: EventType, at: Option<Timestamp>) -> Step {
    let at = at.unwrap_or(Timestamp::from_millis(i64::MAX));
    Step::tell(next, kind, at, vec![Effect::DropTimers, Effect::ReleaseReservation])
}

fn locked(terms: &Terms, lock: Lock, at: Timestamp) -> Step {
    let next = State::Converting { lock, leg: Leg::default() };
    let effects = vec![Effect::DropTimers, Effect::Post(ledger::locked(terms)), Effect::CallOfframp];
    Step::tell(next, EventType::OfframpInitiated, at, effects)
}

fn converting(lock: Lock, leg: Leg, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let told = leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            progress(State::Converting { lock, leg }, told, EventType::OfframpInProgress, at)
        }
        RailAnswer::Done(offramp) => {
            let paid_in = offramp.occurred_at;
            let next = State::Paying { lock, offramp, leg: Leg::default() };
            let converted =
                Emitted { kind: EventType::OfframpCompleted, occurred_at: paid_in, state: next.clone() };
            let initiated =
                Emitted { kind: EventType::PayoutInitiated, occurred_at: at, state: next.clone() };
            Step { next, events: vec![converted, initiated], effects: vec![Effect::CallPayout] }
        }
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Offramp, code, message, retryable };
            let next = State::ConversionFailed { lock, failure, refunded: false };
            Step::tell(next, EventType::OfframpFailed, at, vec![Effect::ReleaseReservation])
        }
    }
}

fn paying(terms: &Terms, lock: Lock, offramp: LegDone, leg: Leg, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let told = leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            progress(State::Paying { lock, offramp, leg }, told, EventType::PayoutInProgress, at)
        }
        RailAnswer::Done(payout) => {
            let next = State::Releasing { lock, offramp, payout, filled: false };
            let post = Effect::Post(ledger::paid(terms));
            Step::quiet(next, vec![Effect::SpendReservation, post, Effect::FillAndSettle])
        }
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Payout, code, message, retryable };
            let next = State::PayoutFailed { lock, offramp, failure, refunded: false };
            Step::tell(next, EventType::PayoutFailed, at, vec![Effect::ReleaseReservation])
        }
    }
}

/// A leg's progress is told once.
fn progress(next: State, told: bool, kind: EventType, at: Timestamp) -> Step {
    if told { Step::quiet(next, Vec::new()) } else { Step::tell(next, kind, at, Vec::new()) }
}

/// `payout.completed` occurred when the beneficiary was paid, and is told once the funds are released.
fn settled(terms: &Terms, lock: Lock, offramp: LegDone, payout: LegDone, settle_tx: String) -> Step {
    let paid_at = payout.occurred_at;
    let next = State::Completed { lock, offramp, payout, settle_tx, finality: None };
    let effects = vec![Effect::Post(ledger::released(terms)), Effect::IssueReceipt];
    Step::tell(next, EventType::PayoutCompleted, paid_at, effects)
}

#[cfg(test)]
mod tests;
