//! The settlement of one accepted intent, of any kind: tokens are locked in escrow and released, prefunded money is
//! reserved and handed over; what needs converting is converted; a bank or the chain pays out; a receipt is issued.
//!
//! ```text
//!              ┌─token in──> Locking ──locked──┐            ┌─token in──> Releasing ──settled──┐
//! Accepted ─due┼─money to token ───────────────┴> Converting ─> Paying ──paid──┴─money in─────> Completed
//!    │ │ │     └─money to money ────────────────────────────────^ │
//!    │ │ └─cancel─> Cancelled  Locking ─> Failed   Converting ─> ConversionFailed   Paying ─> PayoutFailed
//!    │ └─deadline─> Expired
//! ```
//!
//! Invariants: a state owns exactly the data that exists in it; [`State::step`] is the only way a settlement changes;
//! a terminal state is never left (an anchor or a refund only adds to it); effects are data, carried out by others
//! after state and effects were committed together. There is a lock when, and only when, the input is a token, and an
//! offramp leg unless money is paid for money.

pub mod leg;

use serde::{Deserialize, Serialize};

pub use self::leg::Withheld;
use crate::decision::Plan;
use crate::event::EventType;
use crate::ids::{PartnerId, Reference};
use crate::intent::IntentRequest;
use crate::ledger::{self, Posting};
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
    /// No leg begins later: before anyone may cancel on the chain there must be time to record what was paid. `None`
    /// for locks of before this was kept.
    #[serde(default)]
    pub begin_before: Option<Timestamp>,
    /// The escrow gave the funds back while a leg was still under way.
    #[serde(default)]
    pub refunded: bool,
}

impl Lock {
    /// A leg that has not begun by now does not begin any more.
    pub fn is_too_late(&self, now: Timestamp) -> bool {
        self.begin_before.is_some_and(|before| now >= before)
    }
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
    Converting {
        lock: Option<Lock>,
        leg: Leg,
    },
    Paying {
        lock: Option<Lock>,
        offramp: Option<LegDone>,
        leg: Leg,
    },
    Releasing {
        lock: Lock,
        offramp: Option<LegDone>,
        payout: LegDone,
        filled: bool,
    },
    Completed {
        lock: Option<Lock>,
        offramp: Option<LegDone>,
        payout: LegDone,
        settle_tx: Option<String>,
        finality: Option<Finality>,
    },
    ConversionFailed {
        lock: Option<Lock>,
        failure: Failure,
        refunded: bool,
    },
    PayoutFailed {
        lock: Option<Lock>,
        offramp: Option<LegDone>,
        failure: Failure,
        refunded: bool,
    },
    Cancelled,
    Expired,
    Failed {
        failure: Failure,
    },
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
    DeadlinePassed {
        at: Timestamp,
    },
    Locked {
        lock: Lock,
        at: Timestamp,
    },
    LockFailed {
        code: String,
        message: String,
        at: Timestamp,
    },
    Offramp {
        answer: RailAnswer,
        at: Timestamp,
    },
    Payout {
        answer: RailAnswer,
        at: Timestamp,
    },
    /// The leg under way was provably never called and is not called any more.
    Withheld {
        why: Withheld,
        at: Timestamp,
    },
    Filled,
    Settled {
        tx_hash: String,
    },
    Refunded,
    Anchored(Finality),
}

/// What is to be done once the step is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the first leg at the time, or end the order when its deadline has passed by then.
    StartAt(Timestamp),
    /// The relayer creates the settlement on the chain.
    CreateOnChain,
    CallOfframp,
    CallPayout,
    /// The relayer pays the recipient in tokens.
    TransferOnChain,
    /// The relayer records the payout and releases the funds.
    FillAndSettle,
    /// The receipt exists: store it and anchor its hash.
    IssueReceipt,
    /// Timers of a state that was left.
    DropTimers,
    Post(Posting),
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

    /// With one effect more, first.
    fn also(mut self, effect: Effect) -> Self {
        self.effects.insert(0, effect);
        self
    }

    fn tell(next: State, kind: EventType, occurred_at: Timestamp, effects: Vec<Effect>) -> Self {
        let told = Emitted { kind, occurred_at, state: next.clone() };
        Self { next, events: vec![told], effects }
    }
}

/// How a settlement begins.
pub fn accept(terms: &Terms) -> Step {
    let effects = vec![
        Effect::Post(ledger::reserved(terms)),
        Effect::StartAt(terms.lock_at.min(terms.request.deadline)),
    ];
    Step::tell(State::Accepted, EventType::IntentAccepted, terms.accepted_at, effects)
}

/// Which legs an order has.
impl Terms {
    /// The input is a token, pulled into the escrow; otherwise it is prefunded.
    pub const fn locks(&self) -> bool {
        self.plan.kind.locks_input()
    }

    /// The output is a token, paid on the chain.
    pub const fn pays_on_chain(&self) -> bool {
        self.plan.kind.pays_on_chain()
    }

    /// There is an offramp leg: not for money against money.
    pub const fn converts(&self) -> bool {
        self.locks() || self.pays_on_chain()
    }
}

impl State {
    /// The only way a settlement changes.
    pub fn step(self, terms: &Terms, happened: Happened) -> Result<Step, IllegalTransition> {
        let illegal = IllegalTransition { state: self.name(), event: happened.name() };
        let step = match (self, happened) {
            (Self::Accepted, Happened::LockDue) => start(terms),
            (Self::Accepted, Happened::CancelAsked) => {
                close(terms, Self::Cancelled, EventType::IntentCancelled, WHEN_RECORDED)
            }
            (Self::Accepted, Happened::DeadlinePassed { at }) => {
                close(terms, Self::Expired, EventType::IntentExpired, at)
            }
            (Self::Locking, Happened::Locked { lock, at }) => locked(terms, lock, at),
            (Self::Locking, Happened::LockFailed { code, message, at }) => {
                let failure = Failure { stage: Stage::Intent, code, message, retryable: false };
                close(terms, Self::Failed { failure }, EventType::IntentFailed, at)
            }
            (Self::Converting { lock, leg }, Happened::Offramp { answer, at }) => {
                converting(terms, lock, leg, answer, at)
            }
            (Self::Paying { lock, offramp, leg }, Happened::Payout { answer, at }) => {
                paying(terms, Paying { lock, offramp, leg }, answer, at)
            }
            (Self::Converting { lock, .. }, Happened::Withheld { why, at }) => {
                conversion_failed(terms, lock, why.failure(Stage::Offramp), at)
            }
            (Self::Paying { lock, offramp, .. }, Happened::Withheld { why, at }) => {
                payout_failed(terms, lock, offramp, why.failure(Stage::Payout), at)
            }
            (Self::Releasing { lock, offramp, payout, .. }, Happened::Filled) => {
                Step::quiet(Self::Releasing { lock, offramp, payout, filled: true }, Vec::new())
            }
            (Self::Releasing { lock, offramp, payout, .. }, Happened::Settled { tx_hash }) => {
                completed(Some(lock), offramp, payout, Some(tx_hash), ledger::settled(terms))
            }
            (Self::Releasing { lock, offramp, payout, .. }, Happened::Refunded) => {
                completed(Some(gone(lock)), offramp, payout, None, ledger::settled_by_house(terms))
                    .also(Effect::Post(ledger::refunded(terms)))
            }
            (
                Self::Completed { lock, offramp, payout, settle_tx, finality: None },
                Happened::Anchored(seen),
            ) => {
                let finality = Some(seen);
                Step::quiet(Self::Completed { lock, offramp, payout, settle_tx, finality }, Vec::new())
            }
            (state, Happened::Refunded) => refunded(terms, state).ok_or(illegal)?,
            (state, again @ (Happened::Locked { .. } | Happened::Settled { .. } | Happened::Anchored(_))) => {
                moved(state, again).ok_or(illegal)?
            }
            (
                _,
                Happened::LockDue
                | Happened::CancelAsked
                | Happened::DeadlinePassed { .. }
                | Happened::LockFailed { .. }
                | Happened::Offramp { .. }
                | Happened::Payout { .. }
                | Happened::Withheld { .. }
                | Happened::Filled,
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
            Self::Withheld { .. } => "withheld",
            Self::Filled => "filled",
            Self::Settled { .. } => "settled",
            Self::Refunded => "refunded",
            Self::Anchored(_) => "anchored",
        }
    }
}

/// Nothing outside says when it occurred: it did when it was recorded.
const WHEN_RECORDED: Timestamp = Timestamp::from_millis(i64::MAX);

/// The first leg begins: the lock of a token, the conversion of money, the payout of money for money.
fn start(terms: &Terms) -> Step {
    if terms.locks() {
        return Step::quiet(State::Locking, vec![Effect::CreateOnChain]);
    }
    if terms.converts() {
        let next = State::Converting { lock: None, leg: Leg::default() };
        let effects = vec![Effect::DropTimers, Effect::CallOfframp];
        return Step::tell(next, EventType::OfframpInitiated, WHEN_RECORDED, effects);
    }
    let next = State::Paying { lock: None, offramp: None, leg: Leg::default() };
    let effects = vec![Effect::DropTimers, Effect::Post(ledger::converted(terms)), Effect::CallPayout];
    Step::tell(next, EventType::PayoutInitiated, WHEN_RECORDED, effects)
}

/// Ends before any funds moved.
fn close(terms: &Terms, next: State, kind: EventType, at: Timestamp) -> Step {
    Step::tell(next, kind, at, vec![Effect::DropTimers, Effect::Post(ledger::released(terms))])
}

fn locked(terms: &Terms, lock: Lock, at: Timestamp) -> Step {
    let next = State::Converting { lock: Some(lock), leg: Leg::default() };
    let effects = vec![Effect::DropTimers, Effect::Post(ledger::locked(terms)), Effect::CallOfframp];
    Step::tell(next, EventType::OfframpInitiated, at, effects)
}

fn is_gone(lock: Option<&Lock>) -> bool {
    lock.is_some_and(|lock| lock.refunded)
}

fn gone(lock: Lock) -> Lock {
    Lock { refunded: true, ..lock }
}

fn converting(terms: &Terms, lock: Option<Lock>, leg: Leg, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let told = leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            progress(State::Converting { lock, leg }, told, EventType::OfframpInProgress, at)
        }
        RailAnswer::Done(_) if is_gone(lock.as_ref()) => {
            // Nobody is paid for funds that went back.
            conversion_failed(terms, lock, Withheld::FundsGone.failure(Stage::Offramp), at)
        }
        RailAnswer::Done(offramp) => converted(terms, lock, offramp, at),
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Offramp, code, message, retryable };
            conversion_failed(terms, lock, failure, at)
        }
    }
}

/// The payout begins, or is withheld for want of time.
fn converted(terms: &Terms, lock: Option<Lock>, offramp: LegDone, at: Timestamp) -> Step {
    let late = lock.as_ref().is_some_and(|lock| lock.is_too_late(at));
    let done_at = offramp.occurred_at;
    let next = State::Paying { lock: lock.clone(), offramp: Some(offramp.clone()), leg: Leg::default() };
    let converted = Emitted { kind: EventType::OfframpCompleted, occurred_at: done_at, state: next.clone() };
    let initiated = Emitted { kind: EventType::PayoutInitiated, occurred_at: at, state: next.clone() };
    let post = Effect::Post(ledger::converted(terms));
    if late {
        let failed = payout_failed(terms, lock, Some(offramp), Withheld::TooLate.failure(Stage::Payout), at);
        let events = [converted, initiated].into_iter().chain(failed.events).collect();
        let effects = [post].into_iter().chain(failed.effects).collect();
        return Step { next: failed.next, events, effects };
    }
    let pay = if terms.pays_on_chain() { Effect::TransferOnChain } else { Effect::CallPayout };
    Step { next, events: vec![converted, initiated], effects: vec![post, pay] }
}

fn conversion_failed(terms: &Terms, lock: Option<Lock>, failure: Failure, at: Timestamp) -> Step {
    let refunded = is_gone(lock.as_ref());
    let next = State::ConversionFailed { lock, failure, refunded };
    Step::tell(next, EventType::OfframpFailed, at, vec![Effect::Post(ledger::released(terms))])
}

fn payout_failed(
    terms: &Terms,
    lock: Option<Lock>,
    offramp: Option<LegDone>,
    failure: Failure,
    at: Timestamp,
) -> Step {
    let refunded = is_gone(lock.as_ref());
    let next = State::PayoutFailed { lock, offramp, failure, refunded };
    Step::tell(next, EventType::PayoutFailed, at, vec![Effect::Post(ledger::returned(terms))])
}

/// What [`State::Paying`] holds.
struct Paying {
    lock: Option<Lock>,
    offramp: Option<LegDone>,
    leg: Leg,
}

fn paying(terms: &Terms, Paying { lock, offramp, leg }: Paying, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let told = leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            progress(State::Paying { lock, offramp, leg }, told, EventType::PayoutInProgress, at)
        }
        RailAnswer::Done(payout) => paid(terms, lock, offramp, payout),
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Payout, code, message, retryable };
            payout_failed(terms, lock, offramp, failure, at)
        }
    }
}

/// The recipient has been paid: locked funds are released next, prefunded ones change hands at once.
fn paid(terms: &Terms, lock: Option<Lock>, offramp: Option<LegDone>, payout: LegDone) -> Step {
    let post = Effect::Post(ledger::paid(terms));
    match lock {
        Some(lock) if !lock.refunded => {
            let next = State::Releasing { lock, offramp, payout, filled: false };
            Step::quiet(next, vec![post, Effect::FillAndSettle])
        }
        Some(lock) => {
            let settled = ledger::settled_by_house(terms);
            completed(Some(lock), offramp, payout, None, settled).also(post)
        }
        None => completed(None, offramp, payout, None, ledger::settled(terms)).also(post),
    }
}

/// A leg's progress is told once.
fn progress(next: State, told: bool, kind: EventType, at: Timestamp) -> Step {
    if told { Step::quiet(next, Vec::new()) } else { Step::tell(next, kind, at, Vec::new()) }
}

/// `payout.completed` occurred when the beneficiary was paid, and is told once the funds are released.
fn completed(
    lock: Option<Lock>,
    offramp: Option<LegDone>,
    payout: LegDone,
    settle_tx: Option<String>,
    settled: Posting,
) -> Step {
    let paid_at = payout.occurred_at;
    let next = State::Completed { lock, offramp, payout, settle_tx, finality: None };
    Step::tell(next, EventType::PayoutCompleted, paid_at, vec![Effect::Post(settled), Effect::IssueReceipt])
}

/// The escrow gave the funds back: after a failure as it should, and by anyone's hand once the fill deadline has
/// passed, even while a leg is under way. `None`: there is nothing locked.
fn refunded(terms: &Terms, state: State) -> Option<Step> {
    let next = match state {
        State::Converting { lock: Some(lock), leg } if !lock.refunded => {
            State::Converting { lock: Some(gone(lock)), leg }
        }
        State::Paying { lock: Some(lock), offramp, leg } if !lock.refunded => {
            State::Paying { lock: Some(gone(lock)), offramp, leg }
        }
        State::ConversionFailed { lock: Some(lock), failure, refunded: false } => {
            State::ConversionFailed { lock: Some(gone(lock)), failure, refunded: true }
        }
        State::PayoutFailed { lock: Some(lock), offramp, failure, refunded: false } => {
            State::PayoutFailed { lock: Some(gone(lock)), offramp, failure, refunded: true }
        }
        State::Accepted
        | State::Locking
        | State::Converting { .. }
        | State::Paying { .. }
        | State::Releasing { .. }
        | State::Completed { .. }
        | State::ConversionFailed { .. }
        | State::PayoutFailed { .. }
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => return None,
    };
    Some(Step::quiet(next, vec![Effect::Post(ledger::refunded(terms))]))
}

/// What the chain had told is told again of another transaction: a reorganization deeper than the confirmations took
/// the first one away. The settlement goes on from where it is and names the transaction that stands. `None`: nothing
/// of the kind had been told, or it is the same transaction.
fn moved(mut state: State, again: Happened) -> Option<Step> {
    match (&mut state, again) {
        (
            State::Converting { lock: Some(known), .. }
            | State::Paying { lock: Some(known), .. }
            | State::Releasing { lock: known, .. }
            | State::Completed { lock: Some(known), .. }
            | State::ConversionFailed { lock: Some(known), .. }
            | State::PayoutFailed { lock: Some(known), .. },
            Happened::Locked { lock, .. },
        ) if known.tx_hash != lock.tx_hash => *known = Lock { refunded: known.refunded, ..lock },
        (State::Completed { settle_tx: Some(known), .. }, Happened::Settled { tx_hash })
            if *known != tx_hash =>
        {
            *known = tx_hash;
        }
        (State::Completed { finality: Some(known), .. }, Happened::Anchored(seen)) if *known != seen => {
            *known = seen;
        }
        _ => return None,
    }
    Some(Step::quiet(state, Vec::new()))
}

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod tests;
