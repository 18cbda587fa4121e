//! The world around an order of two chains: the possible actions, and their results.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use super::super::super::leg::{CallRecord, First, LegKind, RailResponse, Then, Timer};
use super::super::super::tests::across;
use super::super::super::{Effect, Happened, RailAnswer, State};
use super::super::service::{Clock, Command, at};
use super::super::world::{Fact, Slot, done, mined, refused, reverted};
use crate::terms::Terms;

/// A mistake that the checker must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Defect {
    /// The relayer reports that a payment can never be made by a block that is not final.
    ProofAtHead,
    /// A payment is reported before it is final.
    GateAtHead,
    /// Nothing settles the lock before its timelock.
    NoTimer,
    /// The other contract pays at any time.
    NoLastSecond,
}

/// The payment on the other chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Payment {
    None,
    /// A signed transaction is on its way.
    Sent,
    Included,
    Final,
}

/// The reports of the other chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Report {
    Paid,
    NeverPaid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Mined(Command),
    GivenUp(Command),
    Reported,
    Reorganized,
    ConversionBegins,
    ConversionEnds {
        well: bool,
    },
    /// The timer of the payout rings.
    Rings,
    Sent,
    Included,
    /// The other chain's last block is after the payment's last second.
    PastLastSecond,
    BecomesFinal,
    ReorganizedThere,
    /// The relayer of the other chain learns that the payment can never be made.
    Judged,
    ReportedThere,
    ReportedThereAgain,
    CarefulOperatorSigns,
    CarelessOperatorSigns,
    DebtGivenBack,
    UserCancels,
    AnybodyRefunds,
}

const ACTIONS: [Action; 28] = [
    Action::Tick,
    Action::Mined(Command::Create),
    Action::Mined(Command::Fill),
    Action::Mined(Command::Settle),
    Action::Mined(Command::GiveBack),
    Action::Mined(Command::ReturnFilled),
    Action::GivenUp(Command::Create),
    Action::GivenUp(Command::Fill),
    Action::Reported,
    Action::Reorganized,
    Action::ConversionBegins,
    Action::ConversionEnds { well: true },
    Action::ConversionEnds { well: false },
    Action::Rings,
    Action::Sent,
    Action::Included,
    Action::PastLastSecond,
    Action::BecomesFinal,
    Action::ReorganizedThere,
    Action::Judged,
    Action::ReportedThere,
    Action::ReportedThereAgain,
    Action::CarefulOperatorSigns,
    Action::CarelessOperatorSigns,
    Action::DebtGivenBack,
    Action::UserCancels,
    Action::AnybodyRefunds,
    Action::GivenUp(Command::Settle),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored(pub(super) State);

impl Hash for Stored {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        serde_json::to_string(&self.0).unwrap_or_default().hash(hasher);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    defect: Option<Defect>,
    clock: Clock,
    pub(super) service: Stored,
    is_converting: bool,
    has_timer: bool,
    pub(super) slot: Slot,
    commands: BTreeSet<Command>,
    /// Not applied yet, oldest first.
    facts: Vec<Fact>,
    /// The command that pays is open.
    is_requested: bool,
    pub(super) payment: Payment,
    /// The other chain's last block, and its final one, are after the payment's last second.
    is_past: bool,
    is_past_for_good: bool,
    reports: Vec<Report>,
    last_report: Option<Report>,
    reorgs: u8,
    signatures: [bool; 2],
    pub(super) was_filled: bool,
    pub(super) was_owing: bool,
    pub(super) returned_by_operators: bool,
    pub(super) debt_returned: bool,
}

impl World {
    pub(super) fn new(reorgs: u8, defect: Option<Defect>) -> Self {
        Self {
            defect,
            clock: Clock::LockBy,
            service: Stored(State::Locking),
            is_converting: false,
            has_timer: false,
            slot: Slot::None,
            commands: BTreeSet::from([Command::Create]),
            facts: Vec::new(),
            is_requested: false,
            payment: Payment::None,
            is_past: false,
            is_past_for_good: false,
            reports: Vec::new(),
            last_report: None,
            reorgs,
            signatures: [false; 2],
            was_filled: false,
            was_owing: false,
            returned_by_operators: false,
            debt_returned: false,
        }
    }

    pub(super) fn possible(&self) -> impl Iterator<Item = (Action, Self)> + '_ {
        ACTIONS.into_iter().filter_map(|action| Some((action, self.after(action)?)))
    }

    pub(super) fn after(&self, action: Action) -> Option<Self> {
        let mut world = self.clone();
        world.act(action)?;
        world.was_owing |= world.is_owing();
        (world != *self).then_some(world)
    }

    pub(super) fn is_owing(&self) -> bool {
        matches!(self.service.0, State::Owing { .. })
    }

    pub(super) fn is_end(&self, name: &str, slot: Slot) -> bool {
        self.service.0.name() == name && self.slot == slot
    }

    /// The maker has the input again, and the output.
    pub(super) fn maker_has_both(&self) -> bool {
        self.payment == Payment::Final && (self.slot == Slot::Returned || self.debt_returned)
    }

    /// The service has the input, and the maker neither the output nor a debt in the books that pages.
    pub(super) fn maker_has_neither(&self) -> bool {
        self.slot == Slot::Settled
            && self.payment != Payment::Final
            && !self.is_owing()
            && !self.debt_returned
    }

    pub(super) fn is_settled_up(&self) -> bool {
        match (self.payment, self.slot) {
            (Payment::Final, slot) => slot == Slot::Settled && self.service.0.name() == "completed",
            (_, Slot::None | Slot::Returned) => true,
            (_, Slot::Settled) => self.is_owing() || self.debt_returned,
            (_, Slot::Locked | Slot::Filled) => false,
        }
    }

    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Tick => self.tick(),
            Action::Mined(command) => self.mine(command),
            Action::GivenUp(command) => self.give_up(command),
            Action::Reported => self.tell(),
            Action::Reorganized => self.reorganize(),
            Action::ConversionBegins | Action::ConversionEnds { .. } => self.convert(action),
            Action::Rings => self.ring(),
            Action::Sent
            | Action::Included
            | Action::PastLastSecond
            | Action::BecomesFinal
            | Action::ReorganizedThere
            | Action::Judged => self.there(action),
            Action::ReportedThere => {
                if self.reports.is_empty() {
                    return None;
                }
                let report = self.reports.remove(0);
                self.last_report = Some(report);
                // One that does not apply is consumed.
                let _ = self.take_report(report);
                Some(())
            }
            Action::ReportedThereAgain => self.last_report.and_then(|report| self.take_report(report)),
            Action::CarefulOperatorSigns
            | Action::CarelessOperatorSigns
            | Action::DebtGivenBack
            | Action::UserCancels
            | Action::AnybodyRefunds => self.people(action),
        }
    }

    /// Between the time to settle and the timelock a worker has a turn and the relayer a transaction.
    fn tick(&mut self) -> Option<()> {
        let next = self.clock.next()?;
        let is_due = self.has_timer && self.service.0.timer(at(self.clock), false) == Timer::Settle
            || self.commands.contains(&Command::Settle);
        if next == Clock::Timelock && self.slot == Slot::Filled && is_due {
            return None;
        }
        self.clock = next;
        Some(())
    }

    fn mine(&mut self, command: Command) -> Option<()> {
        let (slot, fact) = mined(command, self.slot, self.clock)?;
        self.was_filled |= slot == Slot::Filled;
        self.returned_by_operators |= command == Command::ReturnFilled;
        self.happens(slot, fact);
        self.commands.contains(&command).then_some(())
    }

    fn happens(&mut self, slot: Slot, fact: Fact) {
        self.slot = slot;
        self.facts.push(fact);
    }

    fn give_up(&mut self, command: Command) -> Option<()> {
        let fact = match command {
            Command::Create if self.slot == Slot::None && self.clock > Clock::LockBy => Fact::LockFailed,
            Command::Fill
                if self.slot == Slot::Returned
                    || self.slot == Slot::Locked && self.clock >= Clock::FillDeadline =>
            {
                Fact::FillFailed
            }
            _ => return None,
        };
        if !self.commands.remove(&command) {
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
        let _ = self.step(fact.happened(self.clock));
        Some(())
    }

    fn step(&mut self, happened: Happened) -> Option<()> {
        static TERMS: LazyLock<Terms> = LazyLock::new(across);
        let step = self.service.0.clone().step(&TERMS, happened).ok()?;
        self.service = Stored(step.next);
        for effect in step.effects {
            match effect {
                Effect::Fill => drop(self.commands.insert(Command::Fill)),
                Effect::Settle => drop(self.commands.insert(Command::Settle)),
                Effect::GiveBack => drop(self.commands.insert(Command::GiveBack)),
                Effect::TransferOnChain => {
                    assert!(!self.is_requested && self.payment == Payment::None, "requested twice");
                    self.is_requested = true;
                }
                Effect::SettleBy(_) => self.has_timer = self.defect != Some(Defect::NoTimer),
                Effect::SwapOnChain | Effect::CallPayout => panic!("{effect:?} of an order of two chains"),
                // Its transaction may be on its way: a withdrawn fill stays possible.
                Effect::WithdrawFill
                | Effect::StartAt(_)
                | Effect::CreateOnChain
                | Effect::CallOfframp
                | Effect::IssueReceipt
                | Effect::PublishPermit
                | Effect::DropTimers
                | Effect::Rest
                | Effect::EndRest
                | Effect::BringForward(_)
                | Effect::Post(_) => {}
            }
        }
        Some(())
    }

    fn reorganize(&mut self) -> Option<()> {
        self.reorgs = self.reorgs.checked_sub(1)?;
        self.slot = reverted(self.slot, &mut self.facts)?;
        Some(())
    }

    fn convert(&mut self, action: Action) -> Option<()> {
        let claim = CallRecord { called_before: self.is_converting, in_flight: false };
        let (at, state) = (at(self.clock), &self.service.0);
        let answer = match (action, state.first(LegKind::Offramp, claim, at)) {
            (Action::ConversionBegins, First::Call) => {
                self.is_converting = true;
                return Some(());
            }
            (Action::ConversionBegins, First::Ask) if !self.is_converting => {
                return match state.requested(claim, RailResponse::NeverSeen, at) {
                    Then::Withhold(why) => self.step(Happened::Withheld { why, at }),
                    Then::Take(_) | Then::Call | Then::Settle | Then::Later { .. } => None,
                };
            }
            (Action::ConversionEnds { well }, First::Ask) if self.is_converting => {
                if well {
                    RailAnswer::Done(done())
                } else {
                    refused()
                }
            }
            _ => return None,
        };
        self.step(Happened::Offramp { answer, at })
    }

    fn ring(&mut self) -> Option<()> {
        if !self.has_timer {
            return None;
        }
        match self.service.0.timer(at(self.clock), false) {
            Timer::Settle => {
                self.has_timer = false;
                self.step(Happened::TimelockNear)
            }
            Timer::Later(_) => None,
            Timer::Nothing => {
                self.has_timer = false;
                Some(())
            }
        }
    }

    fn there(&mut self, action: Action) -> Option<()> {
        let is_in_time = !self.is_past || self.defect == Some(Defect::NoLastSecond);
        match action {
            Action::Sent if self.is_requested && self.payment == Payment::None => {
                self.payment = Payment::Sent;
            }
            Action::Included if self.payment == Payment::Sent && is_in_time => {
                self.payment = Payment::Included;
                self.is_paid(Defect::GateAtHead);
            }
            Action::PastLastSecond => self.is_past = true,
            Action::BecomesFinal => {
                self.is_past_for_good = self.is_past;
                if self.payment == Payment::Included {
                    self.payment = Payment::Final;
                    if self.defect != Some(Defect::GateAtHead) {
                        self.report(Report::Paid);
                    }
                }
            }
            Action::ReorganizedThere => {
                self.reorgs = self.reorgs.checked_sub(1)?;
                self.is_past = self.is_past_for_good;
                if self.payment == Payment::Included {
                    self.payment = Payment::Sent;
                    self.is_requested = true;
                    self.reports.retain(|report| *report != Report::Paid);
                }
            }
            Action::Judged => {
                let is_proved =
                    self.is_past_for_good || self.defect == Some(Defect::ProofAtHead) && self.is_past;
                let is_unpaid = matches!(self.payment, Payment::None | Payment::Sent);
                if !(self.is_requested && is_proved && is_unpaid) {
                    return None;
                }
                self.report(Report::NeverPaid);
            }
            _ => return None,
        }
        Some(())
    }

    fn is_paid(&mut self, only_with: Defect) {
        if self.defect == Some(only_with) {
            self.report(Report::Paid);
        }
    }

    fn report(&mut self, report: Report) {
        self.is_requested = false;
        self.reports.push(report);
    }

    fn take_report(&mut self, report: Report) -> Option<()> {
        let answer = match report {
            Report::Paid => RailAnswer::Done(done()),
            Report::NeverPaid => refused(),
        };
        self.step(Happened::Payout { answer, at: at(self.clock) })
    }

    fn people(&mut self, action: Action) -> Option<()> {
        match action {
            Action::CarefulOperatorSigns => {
                self.signatures[0] |= self.service.0.name() == "payout_failed";
            }
            Action::CarelessOperatorSigns => self.signatures[1] = true,
            Action::DebtGivenBack => {
                self.step(Happened::DebtReturned { done: done(), at: at(self.clock) })?;
                self.debt_returned = true;
            }
            Action::UserCancels if self.slot == Slot::Locked && self.clock >= Clock::FillDeadline => {
                self.happens(Slot::Returned, Fact::Refunded);
            }
            Action::AnybodyRefunds
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
