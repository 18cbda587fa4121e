//! The service in the world: its reaction to events, and when it calls the bank.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then, Timer};
use super::super::{Deadlines, Effect, Happened, Lock, State, Terms};
use crate::ledger::tests::shared;
use crate::plan::OrderKind;
use crate::time::Timestamp;

/// The positions of the chain's clock that matter to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Clock {
    /// The order may be locked.
    LockBy,
    TooLateToBegin,
    /// Nothing is filled any more, and anyone may cancel an unfilled lock.
    FillDeadline,
    /// No payout begins any more.
    TooLateToPay,
    /// A payout without a final answer is settled.
    TimelockNear,
    /// Nothing is released any more, and anyone may refund.
    Timelock,
}

impl Clock {
    pub(super) const fn index(self) -> i64 {
        self as i64
    }

    pub(super) const fn next(self) -> Option<Self> {
        match self {
            Self::LockBy => Some(Self::TooLateToBegin),
            Self::TooLateToBegin => Some(Self::FillDeadline),
            Self::FillDeadline => Some(Self::TooLateToPay),
            Self::TooLateToPay => Some(Self::TimelockNear),
            Self::TimelockNear => Some(Self::Timelock),
            Self::Timelock => None,
        }
    }
}

/// The commands to the relayer, and to two operators together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Command {
    Create,
    Fill,
    Settle,
    GiveBack,
    ReturnFilled,
}

pub(super) trait Service: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// The commitment is on the chain before its deadline whenever it is requested, or is about to be, before the
    /// deadline.
    const NEVER_FILLS_LATE: bool;
    /// Operators may record as failed what the bank has and has not refused.
    const FAILS_SENT: bool = false;
    /// A return that the bank takes back contradicts the return.
    const HEARS_TAKEN_BACK: bool = true;

    /// The lock was requested.
    fn begin() -> Self;
    /// One step, with the commands that it requests. `None`: the event does not apply.
    fn step(&self, happened: Happened) -> Option<(Self, Vec<Command>)>;
    fn first(&self, leg: LegKind, claim: CallRecord, clock: Clock) -> First;
    fn requested(&self, claim: CallRecord, response: RailResponse, clock: Clock) -> Then;
    /// What the timer of a failed payment that the bank has made does.
    fn timer(&self, clock: Clock, is_booked: bool) -> Timer;
    /// The payout's final answer, as [`State::taken_for_paid`].
    fn taken_for_paid(&self) -> Option<bool>;
    /// The payout was requested, and no answer about it is recorded.
    fn awaits_first_answer(&self) -> bool;
    /// Operators may pay the output of a failed payout another way.
    fn is_released_debt(&self) -> bool;
    /// The books have a position of an unused conversion.
    fn has_open_position(&self) -> bool {
        false
    }
    /// As the state is stored.
    fn name(&self) -> &'static str;

    /// The books have a debt, and an operator is paged.
    fn is_owing(&self) -> bool {
        self.name() == "owing"
    }
}

/// A moment at a position of the clock.
pub(super) fn at(clock: Clock) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + 1_000 * clock.index())
}

/// The lock as it is reported.
pub(super) fn lock() -> Lock {
    let deadlines = Deadlines {
        begin_before: at(Clock::TooLateToBegin),
        pay_before: at(Clock::TooLateToPay),
        overdue_at: at(Clock::TimelockNear),
        settle_at: at(Clock::TimelockNear),
    };
    Lock::new("0xl".into(), at(Clock::Timelock), deadlines)
}

/// The code that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Current(State);

impl Hash for Current {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        serde_json::to_string(&self.0).unwrap_or_default().hash(hasher);
    }
}

impl Service for Current {
    const NEVER_FILLS_LATE: bool = false;

    fn begin() -> Self {
        Self(State::Locking)
    }

    fn step(&self, happened: Happened) -> Option<(Self, Vec<Command>)> {
        static TERMS: LazyLock<Terms> = LazyLock::new(|| shared(OrderKind::TokenToFiat, &[]));
        let step = self.0.clone().step(&TERMS, happened).ok()?;
        let command = |effect: &Effect| match effect {
            Effect::CreateOnChain => Some(Command::Create),
            Effect::Fill => Some(Command::Fill),
            Effect::Settle => Some(Command::Settle),
            Effect::GiveBack => Some(Command::GiveBack),
            // Its transaction may be on its way: a withdrawn fill stays possible.
            Effect::WithdrawFill
            | Effect::StartAt(_)
            | Effect::SwapOnChain
            | Effect::CallOfframp
            | Effect::CallPayout
            | Effect::TransferOnChain
            | Effect::SettleBy(_)
            | Effect::IssueReceipt
            | Effect::PublishPermit
            | Effect::DropTimers
            | Effect::Rest
            | Effect::EndRest
            | Effect::BringForward(_)
            | Effect::Post(_) => None,
        };
        let commands = step.effects.iter().filter_map(command).collect();
        Some((Self(step.next), commands))
    }

    fn first(&self, leg: LegKind, claim: CallRecord, clock: Clock) -> First {
        self.0.first(leg, claim, at(clock))
    }

    fn requested(&self, claim: CallRecord, response: RailResponse, clock: Clock) -> Then {
        self.0.requested(claim, response, at(clock))
    }

    fn timer(&self, clock: Clock, is_booked: bool) -> Timer {
        self.0.timer(at(clock), is_booked)
    }

    fn taken_for_paid(&self) -> Option<bool> {
        self.0.taken_for_paid()
    }

    fn awaits_first_answer(&self) -> bool {
        matches!(self.0, State::Paying { .. }) && self.0.provider_reference().is_none()
    }

    fn is_released_debt(&self) -> bool {
        self.0.is_released_debt()
    }

    fn has_open_position(&self) -> bool {
        self.0.open_position().is_some()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}

/// The same under an earlier rule: an order whose payout has failed has ended, whatever the bank says afterwards. With
/// `FAILS_SENT` two operators may also end one whose payment the bank has and has not refused. What the bank takes back is
/// not heard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ended<const FAILS_SENT: bool>(Current);

impl<const FAILS_SENT: bool> Service for Ended<FAILS_SENT> {
    const NEVER_FILLS_LATE: bool = false;
    const FAILS_SENT: bool = FAILS_SENT;
    const HEARS_TAKEN_BACK: bool = false;

    fn begin() -> Self {
        Self(Current::begin())
    }

    fn step(&self, happened: Happened) -> Option<(Self, Vec<Command>)> {
        let reopens = matches!(happened, Happened::FoundPaid { .. } | Happened::TimelockNear);
        if self.name() == "payout_failed" && reopens {
            return None;
        }
        self.0.step(happened).map(|(next, commands)| (Self(next), commands))
    }

    fn first(&self, leg: LegKind, claim: CallRecord, clock: Clock) -> First {
        self.0.first(leg, claim, clock)
    }

    fn requested(&self, claim: CallRecord, response: RailResponse, clock: Clock) -> Then {
        self.0.requested(claim, response, clock)
    }

    fn timer(&self, clock: Clock, _is_booked: bool) -> Timer {
        self.0.timer(clock, false)
    }

    fn taken_for_paid(&self) -> Option<bool> {
        self.0.taken_for_paid()
    }

    fn awaits_first_answer(&self) -> bool {
        self.0.awaits_first_answer()
    }

    fn is_released_debt(&self) -> bool {
        self.0.is_released_debt()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}
