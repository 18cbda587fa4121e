//! The world around one order: the possible actions, and their results.

use std::collections::BTreeSet;

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then, Timer};
use super::super::{Happened, LegDone, RailAnswer, Remedy};
use super::service::{Clock, Command, Service, at, lock};
use crate::payment::PaymentStanding;

mod bank;

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

impl Fact {
    pub(super) fn happened(self, clock: Clock) -> Happened {
        let (code, message, tx_hash, at) = ("c".to_owned(), "m".to_owned(), "0xt".to_owned(), at(clock));
        match self {
            Fact::Locked => Happened::Locked { lock: lock(), at },
            Fact::LockFailed => Happened::LockFailed { code, message, at },
            Fact::LockLost => Happened::LockLost { at },
            Fact::Filled => Happened::Filled { at },
            Fact::FillFailed => Happened::FillFailed { code, message, at },
            Fact::Settled => Happened::Settled { tx_hash, at },
            Fact::Refunded => Happened::Refunded { tx_hash, at },
        }
    }
}

/// Applies the contract's rules to a transaction.
pub(super) fn mined(command: Command, slot: Slot, clock: Clock) -> Option<(Slot, Fact)> {
    match (command, slot) {
        (Command::Create, Slot::None) if clock == Clock::LockBy => Some((Slot::Locked, Fact::Locked)),
        (Command::Fill, Slot::Locked) if clock < Clock::FillDeadline => Some((Slot::Filled, Fact::Filled)),
        (Command::Settle, Slot::Filled) if clock < Clock::Timelock => Some((Slot::Settled, Fact::Settled)),
        (Command::GiveBack, Slot::Locked) | (Command::ReturnFilled, Slot::Filled) => {
            Some((Slot::Returned, Fact::Refunded))
        }
        _ => None,
    }
}

/// Takes the last transaction back. A reported commitment is past its payout gate, and is not reverted.
pub(super) fn reverted(slot: Slot, facts: &mut Vec<Fact>) -> Option<Slot> {
    let unreported = |fact| facts.iter().rposition(|one| *one == fact);
    match slot {
        Slot::Locked => {
            match unreported(Fact::Locked) {
                Some(at) => drop(facts.remove(at)),
                None => facts.push(Fact::LockLost),
            }
            Some(Slot::None)
        }
        Slot::Filled => {
            let at = unreported(Fact::Filled)?;
            facts.remove(at);
            Some(Slot::Locked)
        }
        Slot::None | Slot::Settled | Slot::Returned => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bank {
    /// The bank has not received the payment.
    Idle,
    Working,
    Paid,
    /// Refused, or stopped by an operator before it was paid.
    Failed,
    /// It was paid, and has come back.
    Returned,
}

/// What the bank tells of the payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Refused,
    Booked,
    Returned,
    /// It took the return back.
    TakenBack,
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
    /// Operators fail a conversion that the desk has not answered.
    ConversionGivenUp,
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
    /// It makes a payment that it had refused, gives one back that it had made, or takes that back.
    BankChangesItsWord,
    /// Its oldest word that was not heard is heard.
    BankIsHeard,
    /// An operator has the bank stop the payment, which it confirms.
    OperatorStops,
    /// Two operators record as failed what the bank has and has not refused.
    OperatorsFail,
    /// Two operators record that a payment which had failed was made.
    OperatorsFindPaid,
    /// The timer of such a payment rings.
    Rings,
    /// One of them signs for the return of the funds once the beneficiary can no longer be paid; the other one signs
    /// whenever requested.
    CarefulOperatorSigns,
    CarelessOperatorSigns,
    DebtGivenBack,
    /// Operators pay the output of a failed payout another way, when they may.
    DebtPaid,
    /// Operators resolve a return: the payment is made another way, or the input is given back.
    PaidAgain,
    GivenBack,
    /// The user empties the wallet, or fills it again.
    UserMovesFunds,
    UserCancels,
    AnybodyRefunds,
}

const ACTIONS: [ModelAction; 42] = [
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
    ModelAction::ConversionGivenUp,
    ModelAction::Claimed { is_answered: true },
    ModelAction::Claimed { is_answered: false },
    ModelAction::CallSent,
    ModelAction::CallRefused,
    ModelAction::WorkerStops,
    ModelAction::CallLost,
    ModelAction::BankReceives,
    ModelAction::BankPays,
    ModelAction::BankFails,
    ModelAction::BankChangesItsWord,
    ModelAction::BankIsHeard,
    ModelAction::OperatorStops,
    ModelAction::OperatorsFail,
    ModelAction::OperatorsFindPaid,
    ModelAction::Rings,
    ModelAction::CarefulOperatorSigns,
    ModelAction::CarelessOperatorSigns,
    ModelAction::DebtGivenBack,
    ModelAction::DebtPaid,
    ModelAction::PaidAgain,
    ModelAction::GivenBack,
    ModelAction::UserMovesFunds,
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
    /// How often the bank changes its word.
    pub(super) changes: u8,
    /// The timelock leaves time for a worker's turn and a transaction.
    pub(super) has_margin: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World<S> {
    clock: Clock,
    pub(super) service: S,
    /// The conversion was called.
    is_converting: bool,
    /// The desk has: its answer is the moment.
    has_converted: bool,
    /// The payout's row shows that a call may have reached the bank.
    is_called: bool,
    /// The row has forgotten a call. The bank's own memory has not.
    was_restored: bool,
    /// Workers that have decided to call, and calls in flight.
    callers: u8,
    calls: u8,
    pub(super) bank: Bank,
    pub(super) bank_received: u8,
    /// Not heard yet, oldest first.
    words: Vec<Word>,
    /// The payment's row: what was heard.
    row: PaymentStanding,
    /// Its last word that was heard says that the payment is made.
    is_said_paid: bool,
    /// A return was heard that the settlement has not taken.
    is_return_open: bool,
    is_heard_at_once: bool,
    /// The bank has changed its word.
    pub(super) has_changed: bool,
    /// It was heard before the timelock that the payment is made.
    is_known_in_time: bool,
    /// The input went back, or the output was paid another way, although it was known that the payment is made.
    pub(super) is_blamed: bool,
    is_wallet_empty: bool,
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
    /// The input of a payment that came back.
    is_given_back: bool,
}

impl<S: Service> World<S> {
    pub(super) fn new(bounds: ExplorationBounds) -> Self {
        Self {
            clock: Clock::LockBy,
            service: S::begin(),
            is_converting: false,
            has_converted: false,
            is_called: false,
            was_restored: false,
            callers: 0,
            calls: 0,
            bank: Bank::Idle,
            bank_received: 0,
            words: Vec::new(),
            row: bank::UNHEARD,
            is_said_paid: false,
            is_return_open: false,
            is_heard_at_once: bounds.changes == 0,
            has_changed: false,
            is_known_in_time: false,
            is_blamed: false,
            is_wallet_empty: false,
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
            is_given_back: false,
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

    /// The bank changed its word, and the service could not know it when it did its part.
    pub(super) const fn is_the_banks(&self) -> bool {
        self.has_changed && !self.is_blamed
    }

    /// No action remains: what was owed is paid, or is a debt in the books and pages an operator. What the bank has done
    /// to both sides pages, too.
    pub(super) fn is_settled_up(&self) -> bool {
        let is_paid = self.bank == Bank::Paid || self.debt_paid;
        match self.slot {
            // Paid again, or given back, and then the bank took its return back.
            _ if self.maker_has_both() || self.beneficiary_is_paid_twice() => {
                self.is_the_banks() && self.is_contradicted()
            }
            Slot::Settled if is_paid => matches!(self.service.name(), "completed" | "reversed"),
            _ if is_paid => self.is_the_banks() && self.is_contradicted(),
            Slot::None | Slot::Returned => true,
            Slot::Settled => self.service.is_owing() || self.debt_returned,
            Slot::Locked | Slot::Filled => false,
        }
    }

    /// The desk has converted, and the order has ended without it.
    pub(super) fn has_unused_conversion(&self) -> bool {
        let has_ended = match self.service.name() {
            "conversion_failed" | "payout_failed" => true,
            "reversed" => self.is_given_back,
            _ => false,
        };
        self.has_converted && has_ended
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
            ModelAction::ConversionBegins
            | ModelAction::ConversionEnds { .. }
            | ModelAction::ConversionGivenUp => self.convert(action),
            ModelAction::Claimed { is_answered } => self.claim(is_answered),
            ModelAction::CallSent
            | ModelAction::CallRefused
            | ModelAction::WorkerStops
            | ModelAction::CallLost
            | ModelAction::BankReceives
            | ModelAction::BankPays
            | ModelAction::BankFails
            | ModelAction::BankChangesItsWord
            | ModelAction::BankIsHeard
            | ModelAction::OperatorStops => self.bank(action),
            ModelAction::OperatorsFail
            | ModelAction::OperatorsFindPaid
            | ModelAction::Rings
            | ModelAction::PaidAgain
            | ModelAction::GivenBack => self.office(action),
            ModelAction::CarefulOperatorSigns
            | ModelAction::CarelessOperatorSigns
            | ModelAction::DebtGivenBack
            | ModelAction::DebtPaid
            | ModelAction::UserMovesFunds
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
        self.commands.contains(&Command::Settle) || is_asked && is_unanswered || self.rings()
    }

    fn is_filling(&self) -> bool {
        let is_unheard = self.bank == Bank::Paid && self.service.name() == "paying";
        self.commands.contains(&Command::Fill) || is_unheard
    }

    fn mine(&mut self, command: Command) -> Option<()> {
        let is_requested = self.commands.contains(&command);
        if command == Command::Create && self.is_wallet_empty {
            return None;
        }
        let (slot, fact) = mined(command, self.slot, self.clock)?;
        self.was_filled |= slot == Slot::Filled;
        self.returned_by_operators |= command == Command::ReturnFilled;
        self.happens(slot, fact);
        is_requested.then_some(())
    }

    fn happens(&mut self, slot: Slot, fact: Fact) {
        self.is_blamed |= slot == Slot::Returned && self.is_known_in_time;
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
        self.step(fact.happened(self.clock))
    }

    fn step(&mut self, happened: Happened) -> Option<()> {
        let (next, commands) = self.service.step(happened)?;
        self.service = next;
        self.commands.extend(commands);
        self.take_return();
        Some(())
    }

    fn reorganize(&mut self) -> Option<()> {
        self.left.reorgs = self.left.reorgs.checked_sub(1)?;
        self.slot = reverted(self.slot, &mut self.facts)?;
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
            // The desk has never seen it.
            (ModelAction::ConversionBegins, First::Ask) if !self.is_converting => {
                return match self.service.requested(claim, RailResponse::NeverSeen, self.clock) {
                    Then::Withhold(why) => self.step(Happened::Withheld { why, at }),
                    Then::Take(_) | Then::Call | Then::Settle | Then::Later { .. } => None,
                };
            }
            (ModelAction::ConversionEnds { well }, First::Ask) if self.is_converting => {
                self.has_converted = well;
                if well { RailAnswer::Done(done()) } else { refused() }
            }
            (ModelAction::ConversionGivenUp, First::Call | First::Ask) => {
                let (code, message) = ("c".to_owned(), "m".to_owned());
                return self.step(Happened::ConversionGivenUp { code, message, at });
            }
            _ => return None,
        };
        self.step(Happened::Offramp { answer, at })
    }

    fn people(&mut self, action: ModelAction) -> Option<()> {
        match action {
            ModelAction::CarefulOperatorSigns => {
                let is_stopped = self.bank == Bank::Failed || self.service.name() == "payout_failed";
                self.signatures[0] |= is_stopped && !self.is_booked();
            }
            ModelAction::CarelessOperatorSigns => self.signatures[1] = true,
            ModelAction::DebtGivenBack if !self.is_booked() => {
                self.step(Happened::DebtReturned { done: done(), at: at(self.clock) })?;
                self.debt_returned = true;
            }
            ModelAction::DebtPaid if self.may_pay_another_way() => {
                self.step(Happened::Payout { answer: RailAnswer::Done(done()), at: at(self.clock) })?;
                self.debt_paid = true;
            }
            // It matters before the lock only.
            ModelAction::UserMovesFunds if self.slot == Slot::None && self.clock == Clock::LockBy => {
                self.is_wallet_empty ^= true;
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
        if self.signatures == [true; 2] && !self.is_booked() {
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
