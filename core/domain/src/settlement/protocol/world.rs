//! The world around one order: the possible actions, and their results.

use std::collections::BTreeSet;

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then};
use super::super::{Happened, LegDone, RailAnswer};
use super::service::{Service, at, lock};

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
        match self {
            Self::LockBy => 0,
            Self::TooLateToBegin => 1,
            Self::FillDeadline => 2,
            Self::TooLateToPay => 3,
            Self::TimelockNear => 4,
            Self::Timelock => 5,
        }
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

/// The escrow's state of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    None,
    Locked,
    Filled,
    Settled,
    /// The maker has the funds back.
    Returned,
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

/// The reports of the indexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    Locked,
    LockFailed,
    LockLost,
    Filled,
    FillFailed,
    Settled,
    Refunded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bank {
    /// The bank has not received the payment.
    Idle,
    Working,
    Paid,
    /// Refused, returned, or stopped by an operator before it was paid.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelAction {
    Tick,
    /// The relayer's transaction is in a block.
    Mined(Command),
    /// The relayer reports that a command can never succeed.
    GivenUp(Command),
    /// The oldest fact is applied, or the last one again.
    Reported,
    ReportedAgain,
    /// A reorganization reverts what no payout gate has passed.
    Reorganized,
    /// The database is restored to a moment before it recorded the call of the bank.
    Restored,
    ConversionBegins,
    ConversionEnds {
        well: bool,
    },
    /// A worker claims the payout. Its query to the bank, if it makes one, is answered or not.
    Claimed {
        is_answered: bool,
    },
    /// A worker's call leaves, or the worker learns that the bank was not reached.
    CallSent,
    CallRefused,
    /// A worker stops before its call leaves, or a call is lost.
    WorkerStops,
    CallLost,
    BankReceives,
    BankPays,
    BankFails,
    /// An operator has the bank stop the payment.
    OperatorStops,
    /// One of them signs for the return of the funds once the beneficiary can no longer be paid; the other one signs
    /// whenever requested.
    CarefulOperatorSigns,
    CarelessOperatorSigns,
    DebtGivenBack,
    /// Operators pay the output of a failed payout another way, when they may.
    DebtPaid,
    UserCancels,
    AnybodyRefunds,
}

const ACTIONS: [ModelAction; 33] = [
    ModelAction::Tick,
    ModelAction::Mined(Command::Create),
    ModelAction::Mined(Command::Fill),
    ModelAction::Mined(Command::Settle),
    ModelAction::Mined(Command::GiveBack),
    ModelAction::Mined(Command::ReturnFilled),
    ModelAction::GivenUp(Command::Create),
    ModelAction::GivenUp(Command::Fill),
    ModelAction::Reported,
    ModelAction::ReportedAgain,
    ModelAction::Reorganized,
    ModelAction::Restored,
    ModelAction::ConversionBegins,
    ModelAction::ConversionEnds { well: true },
    ModelAction::ConversionEnds { well: false },
    ModelAction::Claimed { is_answered: true },
    ModelAction::Claimed { is_answered: false },
    ModelAction::CallSent,
    ModelAction::CallRefused,
    ModelAction::WorkerStops,
    ModelAction::CallLost,
    ModelAction::BankReceives,
    ModelAction::BankPays,
    ModelAction::BankFails,
    ModelAction::OperatorStops,
    ModelAction::CarefulOperatorSigns,
    ModelAction::CarelessOperatorSigns,
    ModelAction::DebtGivenBack,
    ModelAction::DebtPaid,
    ModelAction::UserCancels,
    ModelAction::AnybodyRefunds,
    ModelAction::GivenUp(Command::Settle),
    ModelAction::GivenUp(Command::GiveBack),
];

/// How much of the world is explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ExplorationBounds {
    pub(super) reorgs: u8,
    pub(super) restores: u8,
    /// The timelock leaves time for a worker's turn and a transaction.
    pub(super) has_margin: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World<S> {
    clock: Clock,
    pub(super) service: S,
    /// The conversion was called.
    is_converting: bool,
    /// The payout's row shows that a call may have reached the bank.
    is_called: bool,
    /// The row has forgotten a call. The bank's own memory has not.
    was_restored: bool,
    /// Workers that have decided to call, and calls in flight.
    callers: u8,
    calls: u8,
    pub(super) bank: Bank,
    pub(super) bank_received: u8,
    pub(super) slot: Slot,
    commands: BTreeSet<Command>,
    /// Not applied yet, oldest first.
    facts: Vec<Fact>,
    last_reported: Option<Fact>,
    left: ExplorationBounds,
    signatures: [bool; 2],
    pub(super) was_filled: bool,
    pub(super) was_owing: bool,
    pub(super) cancelled_by_user: bool,
    pub(super) returned_by_operators: bool,
    pub(super) debt_returned: bool,
    /// Beside the bank's payment.
    pub(super) debt_paid: bool,
}

impl<S: Service> World<S> {
    pub(super) fn new(bounds: ExplorationBounds) -> Self {
        Self {
            clock: Clock::LockBy,
            service: S::begin(),
            is_converting: false,
            is_called: false,
            was_restored: false,
            callers: 0,
            calls: 0,
            bank: Bank::Idle,
            bank_received: 0,
            slot: Slot::None,
            commands: BTreeSet::from([Command::Create]),
            facts: Vec::new(),
            last_reported: None,
            left: bounds,
            signatures: [false; 2],
            was_filled: false,
            was_owing: false,
            cancelled_by_user: false,
            returned_by_operators: false,
            debt_returned: false,
            debt_paid: false,
        }
    }

    /// The possible actions that change something, with their results.
    pub(super) fn possible(&self) -> impl Iterator<Item = (ModelAction, Self)> + '_ {
        ACTIONS.into_iter().filter_map(|action| Some((action, self.after(action)?)))
    }

    /// The world after an action. `None`: it is not possible, or changes nothing.
    pub(super) fn after(&self, action: ModelAction) -> Option<Self> {
        let mut world = self.clone();
        world.act(action)?;
        world.was_owing |= world.service.is_owing();
        (world != *self).then_some(world)
    }

    /// The maker has the input again, and the beneficiary has the output.
    pub(super) fn maker_has_both(&self) -> bool {
        let is_paid = self.bank == Bank::Paid || self.debt_paid;
        is_paid && (self.slot == Slot::Returned || self.debt_returned)
    }

    /// The beneficiary has the output from the bank and another way.
    pub(super) fn beneficiary_is_paid_twice(&self) -> bool {
        self.bank == Bank::Paid && self.debt_paid
    }

    /// No action remains: what was owed is paid, or is a debt in the books and pages an operator.
    pub(super) fn is_settled_up(&self) -> bool {
        match (self.bank, self.slot) {
            (Bank::Paid, slot) => slot == Slot::Settled && self.service.name() == "completed",
            (_, slot) if self.debt_paid => slot == Slot::Settled && self.service.name() == "completed",
            (_, Slot::None | Slot::Returned) => true,
            (_, Slot::Settled) => self.service.is_owing() || self.debt_returned,
            (_, Slot::Locked | Slot::Filled) => false,
        }
    }

    pub(super) fn is_end(&self, name: &str, slot: Slot) -> bool {
        self.service.name() == name && self.slot == slot
    }

    fn act(&mut self, action: ModelAction) -> Option<()> {
        match action {
            ModelAction::Tick => self.tick(),
            ModelAction::Mined(command) => self.mine(command),
            ModelAction::GivenUp(command) => self.give_up(command),
            ModelAction::Reported => self.tell(),
            ModelAction::ReportedAgain => self.last_reported.and_then(|fact| self.take_in(fact)),
            ModelAction::Reorganized => self.reorganize(),
            ModelAction::Restored => self.restore(),
            ModelAction::ConversionBegins | ModelAction::ConversionEnds { .. } => self.convert(action),
            ModelAction::Claimed { is_answered } => self.claim(is_answered),
            ModelAction::CallSent
            | ModelAction::CallRefused
            | ModelAction::WorkerStops
            | ModelAction::CallLost
            | ModelAction::BankReceives
            | ModelAction::BankPays
            | ModelAction::BankFails
            | ModelAction::OperatorStops => self.bank(action),
            ModelAction::CarefulOperatorSigns
            | ModelAction::CarelessOperatorSigns
            | ModelAction::DebtGivenBack
            | ModelAction::DebtPaid
            | ModelAction::UserCancels
            | ModelAction::AnybodyRefunds => self.people(action),
        }
    }

    fn tick(&mut self) -> Option<()> {
        let next = self.clock.next()?;
        let is_due = match next {
            Clock::Timelock => self.left.has_margin && self.slot == Slot::Filled && self.is_settling(),
            Clock::FillDeadline => S::NEVER_FILLS_LATE && self.slot == Slot::Locked && self.is_filling(),
            Clock::LockBy | Clock::TooLateToBegin | Clock::TooLateToPay | Clock::TimelockNear => false,
        };
        if is_due {
            return None;
        }
        self.clock = next;
        Some(())
    }

    /// The funds are about to be released, for a payout that may have been made.
    fn is_settling(&self) -> bool {
        let is_unanswered =
            self.service.requested(self.taken(), RailResponse::Silence, self.clock) == Then::Settle;
        let is_asked = self.service.first(LegKind::Payout, self.taken(), self.clock) == First::Ask;
        self.commands.contains(&Command::Settle) || is_asked && is_unanswered
    }

    fn is_filling(&self) -> bool {
        let is_unheard = self.bank == Bank::Paid && self.service.name() == "paying";
        self.commands.contains(&Command::Fill) || is_unheard
    }

    /// Applies the contract's rules.
    fn mine(&mut self, command: Command) -> Option<()> {
        let is_requested = self.commands.contains(&command);
        let (slot, fact) = match (command, self.slot) {
            (Command::Create, Slot::None) if self.clock == Clock::LockBy => (Slot::Locked, Fact::Locked),
            (Command::Fill, Slot::Locked) if self.clock < Clock::FillDeadline => (Slot::Filled, Fact::Filled),
            (Command::Settle, Slot::Filled) if self.clock < Clock::Timelock => (Slot::Settled, Fact::Settled),
            (Command::GiveBack, Slot::Locked) | (Command::ReturnFilled, Slot::Filled) => {
                (Slot::Returned, Fact::Refunded)
            }
            _ => return None,
        };
        self.was_filled |= slot == Slot::Filled;
        self.returned_by_operators |= command == Command::ReturnFilled;
        self.happens(slot, fact);
        is_requested.then_some(())
    }

    fn happens(&mut self, slot: Slot, fact: Fact) {
        self.slot = slot;
        self.facts.push(fact);
    }

    /// Gives up only what the contract will never accept any more.
    fn give_up(&mut self, command: Command) -> Option<()> {
        let fact = match command {
            Command::Create if self.slot == Slot::None && self.clock > Clock::LockBy => Fact::LockFailed,
            Command::Fill if self.slot == Slot::Returned || self.clock >= Clock::FillDeadline => {
                Fact::FillFailed
            }
            Command::Create | Command::Fill | Command::Settle | Command::GiveBack | Command::ReturnFilled => {
                return None;
            }
        };
        let is_filled = matches!(self.slot, Slot::Filled | Slot::Settled);
        if command == Command::Fill && is_filled || !self.commands.remove(&command) {
            return None;
        }
        self.facts.push(fact);
        Some(())
    }

    fn tell(&mut self) -> Option<()> {
        if self.facts.is_empty() {
            return None;
        }
        let fact = self.facts.remove(0);
        self.last_reported = Some(fact);
        // A fact that does not apply is recorded and consumed.
        let _ = self.take_in(fact);
        Some(())
    }

    fn take_in(&mut self, fact: Fact) -> Option<()> {
        let text = || ("c".to_owned(), "m".to_owned());
        let at = at(self.clock);
        let ((code, message), tx_hash) = (text(), "0xt".to_owned());
        self.step(match fact {
            Fact::Locked => Happened::Locked { lock: lock(), at },
            Fact::LockFailed => Happened::LockFailed { code, message, at },
            Fact::LockLost => Happened::LockLost { at },
            Fact::Filled => Happened::Filled { at },
            Fact::FillFailed => Happened::FillFailed { code, message, at },
            Fact::Settled => Happened::Settled { tx_hash, at },
            Fact::Refunded => Happened::Refunded { tx_hash, at },
        })
    }

    fn step(&mut self, happened: Happened) -> Option<()> {
        let (next, commands) = self.service.step(happened)?;
        self.service = next;
        self.commands.extend(commands);
        Some(())
    }

    /// A reported commitment is past its payout gate, and is not reverted.
    fn reorganize(&mut self) -> Option<()> {
        self.left.reorgs = self.left.reorgs.checked_sub(1)?;
        let unreported = |facts: &[Fact], fact| facts.iter().rposition(|one| *one == fact);
        match self.slot {
            Slot::Locked => {
                self.slot = Slot::None;
                match unreported(&self.facts, Fact::Locked) {
                    Some(at) => drop(self.facts.remove(at)),
                    None => self.facts.push(Fact::LockLost),
                }
            }
            Slot::Filled => {
                let at = unreported(&self.facts, Fact::Filled)?;
                self.facts.remove(at);
                self.slot = Slot::Locked;
            }
            Slot::None | Slot::Settled | Slot::Returned => return None,
        }
        Some(())
    }

    /// No process ran at the moment of the restore, and no call of them is on its way any more. Only a payout that the
    /// bank has not answered: else the state that was restored is an earlier one.
    fn restore(&mut self) -> Option<()> {
        let is_unanswered = self.service.awaits_first_answer() && self.callers + self.calls == 0;
        if !self.is_called || !is_unanswered {
            return None;
        }
        self.left.restores = self.left.restores.checked_sub(1)?;
        (self.is_called, self.was_restored) = (false, true);
        Some(())
    }

    fn convert(&mut self, action: ModelAction) -> Option<()> {
        let claim = CallRecord { called_before: self.is_converting, in_flight: false };
        let first = self.service.first(LegKind::Offramp, claim, self.clock);
        let at = at(self.clock);
        let answer = match (action, first) {
            (ModelAction::ConversionBegins, First::Call) => {
                self.is_converting = true;
                return Some(());
            }
            (ModelAction::ConversionBegins, First::Withhold(why)) => {
                return self.step(Happened::Withheld { why, at });
            }
            (ModelAction::ConversionEnds { well: true }, First::Ask) => RailAnswer::Done(done()),
            (ModelAction::ConversionEnds { well: false }, First::Ask) => refused(),
            _ => return None,
        };
        self.step(Happened::Offramp { answer, at })
    }

    /// The record of earlier calls of the bank.
    const fn taken(&self) -> CallRecord {
        CallRecord { called_before: self.is_called, in_flight: self.callers + self.calls > 0 }
    }

    /// A worker decides by the state it has loaded. If the state has changed by the commit, nothing is written and the
    /// worker decides again; only a call leaves without that check, see [`ModelAction::CallSent`].
    fn claim(&mut self, is_answered: bool) -> Option<()> {
        let at = at(self.clock);
        let claim = self.taken();
        let then = match self.service.first(LegKind::Payout, claim, self.clock) {
            First::Nothing | First::Wait => return None,
            First::Call => Then::Call,
            First::Withhold(why) => Then::Withhold(why),
            First::Ask => {
                let response = if is_answered { self.requested_bank() } else { RailResponse::Silence };
                self.service.requested(claim, response, self.clock)
            }
        };
        match then {
            Then::Take(answer) => {
                self.is_called = true;
                self.step(Happened::Payout { answer, at })
            }
            Then::Withhold(why) => self.step(Happened::Withheld { why, at }),
            Then::Settle => {
                self.is_called = true;
                self.step(Happened::TimelockNear)
            }
            Then::Later { called } => {
                self.is_called = called;
                Some(())
            }
            Then::Call => {
                self.is_called = true;
                self.callers = (self.callers + 1).min(2);
                Some(())
            }
        }
    }

    fn requested_bank(&self) -> RailResponse {
        match self.bank {
            Bank::Idle => RailResponse::NeverSeen,
            Bank::Working => {
                RailResponse::Answer(RailAnswer::InProgress { provider_reference: "r".to_owned() })
            }
            Bank::Paid => RailResponse::Answer(RailAnswer::Done(done())),
            Bank::Failed => RailResponse::Answer(refused()),
        }
    }

    fn bank(&mut self, action: ModelAction) -> Option<()> {
        match action {
            ModelAction::CallSent => {
                self.callers = self.callers.checked_sub(1)?;
                self.calls += 1;
            }
            ModelAction::CallRefused => {
                self.callers = self.callers.checked_sub(1)?;
                self.is_called = false;
            }
            ModelAction::WorkerStops => self.callers = self.callers.checked_sub(1)?,
            ModelAction::CallLost => self.calls = self.calls.checked_sub(1)?,
            ModelAction::BankReceives => {
                self.calls = self.calls.checked_sub(1)?;
                // A stopped or refused payment remains so, and a forgotten one is not ordered again.
                let is_remembered = self.was_restored && self.bank != Bank::Idle;
                if self.bank != Bank::Failed && !is_remembered {
                    self.bank_received += 1;
                    self.bank = if self.bank == Bank::Idle { Bank::Working } else { self.bank };
                }
            }
            ModelAction::BankPays if self.bank == Bank::Working => self.bank = Bank::Paid,
            ModelAction::BankFails if self.bank == Bank::Working => self.bank = Bank::Failed,
            ModelAction::OperatorStops
                if self.is_called && matches!(self.bank, Bank::Idle | Bank::Working) =>
            {
                self.bank = Bank::Failed;
            }
            _ => return None,
        }
        Some(())
    }

    fn people(&mut self, action: ModelAction) -> Option<()> {
        match action {
            ModelAction::CarefulOperatorSigns => {
                let is_stopped = self.bank == Bank::Failed || self.service.name() == "payout_failed";
                self.signatures[0] |= is_stopped;
            }
            ModelAction::CarelessOperatorSigns => self.signatures[1] = true,
            ModelAction::DebtGivenBack => {
                self.step(Happened::DebtReturned { done: done(), at: at(self.clock) })?;
                self.debt_returned = true;
            }
            ModelAction::DebtPaid if self.service.is_released_debt() => {
                self.step(Happened::Payout { answer: RailAnswer::Done(done()), at: at(self.clock) })?;
                self.debt_paid = true;
            }
            ModelAction::UserCancels if self.slot == Slot::Locked && self.clock >= Clock::FillDeadline => {
                self.cancelled_by_user = true;
                self.happens(Slot::Returned, Fact::Refunded);
            }
            ModelAction::AnybodyRefunds
                if matches!(self.slot, Slot::Locked | Slot::Filled) && self.clock == Clock::Timelock =>
            {
                self.happens(Slot::Returned, Fact::Refunded);
            }
            _ => return None,
        }
        if self.signatures == [true; 2] {
            self.commands.insert(Command::ReturnFilled);
        }
        Some(())
    }
}

/// The same at every moment, so that worlds which differ in nothing else are equal.
pub(super) fn done() -> LegDone {
    LegDone { provider_reference: "r".to_owned(), occurred_at: at(Clock::LockBy) }
}

pub(super) fn refused() -> RailAnswer {
    RailAnswer::Failed { code: "c".to_owned(), message: "m".to_owned(), retryable: false }
}
