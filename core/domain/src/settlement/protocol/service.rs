//! The service in the world: its reaction to events, and when it calls the bank.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then};
use super::super::{Deadlines, Effect, Happened, Lock, State, Terms};
use super::world::{Clock, Command};
use crate::ledger::tests::shared;
use crate::plan::OrderKind;
use crate::time::Timestamp;

pub(super) trait Service: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// The commitment is on the chain before its deadline whenever it is requested, or is about to be, before the
    /// deadline.
    const NEVER_FILLS_LATE: bool;

    /// The lock was requested.
    fn begin() -> Self;
    /// One step, with the commands that it requests. `None`: the event does not apply.
    fn step(&self, happened: Happened) -> Option<(Self, Vec<Command>)>;
    fn first(&self, leg: LegKind, claim: CallRecord, clock: Clock) -> First;
    fn requested(&self, claim: CallRecord, response: RailResponse, clock: Clock) -> Then;
    /// The payout was requested, and no answer about it is recorded.
    fn awaits_first_answer(&self) -> bool;
    /// Operators may pay the output of a failed payout another way.
    fn is_released_debt(&self) -> bool;
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

    fn awaits_first_answer(&self) -> bool {
        matches!(self.0, State::Paying { .. }) && self.0.provider_reference().is_none()
    }

    fn is_released_debt(&self) -> bool {
        self.0.is_released_debt()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}
