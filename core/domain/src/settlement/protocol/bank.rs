//! A payout by a bank, which changes its word; what was heard of it, and what operators do about it.

use std::sync::LazyLock;

use stateright::Property;

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then, Timer};
use super::super::{Effect, Happened, RailAnswer, Remedy, State};
use super::world::{Bounds, Command, Defect, Payout, Slot, World, done, refused};
use super::{Clock, Protocol};
use crate::ledger::tests::shared;
use crate::payment::{PaymentStanding, PaymentStatus};
use crate::plan::OrderKind;
use crate::terms::Terms;

pub(super) const ONCE: &str = "the bank is asked to pay once";
pub(super) const PAID_ONCE: &str = "the beneficiary is paid once";
pub(super) const POSITION: &str = "a conversion has a position exactly when its order ends without it";
pub(super) const COMMITTED: &str = "no payment is made before the chain is committed";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Bank {
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
enum Word {
    Refused,
    Booked,
    Returned,
    TakenBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BankAction {
    /// The database is restored to a moment before it recorded the call of the bank.
    Restored,
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
    /// Operators pay the output of a failed payout another way, when they may.
    DebtPaid,
    /// Operators resolve a return: the payment is made another way, or the input is given back.
    PaidAgain,
    GivenBack,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ByBank {
    /// The payout's row shows that a call may have reached the bank.
    is_called: bool,
    /// The row has forgotten a call. The bank's own memory has not.
    was_restored: bool,
    /// Workers that have decided to call, and calls in flight.
    callers: u8,
    calls: u8,
    bank: Bank,
    bank_received: u8,
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
    has_changed: bool,
    /// It was heard before the timelock that the payment is made.
    is_known_in_time: bool,
    /// The input went back, or the output was paid another way, although it was known that the payment is made.
    is_blamed: bool,
    /// Operators have paid the output another way, beside the bank's payment.
    debt_paid: bool,
    /// The input of a payment that came back.
    is_given_back: bool,
}

impl Payout for ByBank {
    type Action = BankAction;

    const ACTIONS: &'static [BankAction] = &[
        BankAction::Restored,
        BankAction::Claimed { is_answered: true },
        BankAction::Claimed { is_answered: false },
        BankAction::CallSent,
        BankAction::CallRefused,
        BankAction::WorkerStops,
        BankAction::CallLost,
        BankAction::BankReceives,
        BankAction::BankPays,
        BankAction::BankFails,
        BankAction::BankChangesItsWord,
        BankAction::BankIsHeard,
        BankAction::OperatorStops,
        BankAction::OperatorsFail,
        BankAction::OperatorsFindPaid,
        BankAction::Rings,
        BankAction::DebtPaid,
        BankAction::PaidAgain,
        BankAction::GivenBack,
    ];

    fn new(bounds: Bounds) -> Self {
        let row = PaymentStanding {
            status: PaymentStatus::Pending,
            contradicting: None,
            is_closed: false,
            came_back: false,
            is_debt_paid: false,
            is_recalled: false,
        };
        Self {
            is_called: false,
            was_restored: false,
            callers: 0,
            calls: 0,
            bank: Bank::Idle,
            bank_received: 0,
            words: Vec::new(),
            row,
            is_said_paid: false,
            is_return_open: false,
            is_heard_at_once: bounds.changes == 0,
            has_changed: false,
            is_known_in_time: false,
            is_blamed: false,
            debt_paid: false,
            is_given_back: false,
        }
    }

    fn terms() -> &'static Terms {
        static TERMS: LazyLock<Terms> = LazyLock::new(|| shared(OrderKind::TokenToFiat, &[]));
        &TERMS
    }

    fn properties() -> Vec<Property<Protocol<Self>>> {
        vec![
            Property::always(ONCE, |_, world: &World<Self>| world.payout.bank_received <= 1),
            Property::always(PAID_ONCE, |_, world: &World<Self>| {
                !world.payout.is_paid_twice() || world.payout.is_the_payers()
            }),
            Property::always(COMMITTED, |_, world: &World<Self>| {
                // The bank may change its word whenever it likes.
                world.payout.bank != Bank::Paid
                    || world.payout.has_changed
                    || matches!(world.slot, Slot::Filled | Slot::Settled)
            }),
            Property::always(POSITION, |_, world: &World<Self>| {
                world.state.open_position().is_some() == world.has_unused_conversion()
            }),
            Property::sometimes("converted after it was given up", |_, world: &World<Self>| {
                world.has_unused_conversion() && world.state.name() == "conversion_failed"
            }),
            Property::sometimes("never locked", |_, world: &World<Self>| world.is_end("failed", Slot::None)),
            Property::sometimes("payout failed, given back", |_, world: &World<Self>| {
                world.is_end("payout_failed", Slot::Returned)
            }),
            Property::sometimes(
                "cancelled by the user from the fill deadline on",
                |_, world: &World<Self>| {
                    world.slot == Slot::Returned && !world.was_filled && world.cancelled_by_user
                },
            ),
            Property::sometimes("a debt that pages", |_, world: &World<Self>| {
                world.is_owing() && world.slot == Slot::Settled
            }),
            Property::sometimes("a debt that is paid another way", |_, world: &World<Self>| {
                world.payout.debt_paid
            }),
            Property::sometimes("a lock that was lost", |_, world: &World<Self>| {
                world.slot == Slot::None && world.state.name() == "payout_failed"
            }),
        ]
    }

    fn act(world: &mut World<Self>, action: BankAction) -> Option<()> {
        match action {
            BankAction::Restored => world.restore(),
            BankAction::Claimed { is_answered } => world.claim(is_answered),
            BankAction::CallSent
            | BankAction::CallRefused
            | BankAction::WorkerStops
            | BankAction::CallLost
            | BankAction::BankReceives
            | BankAction::BankPays
            | BankAction::BankFails
            | BankAction::BankChangesItsWord
            | BankAction::BankIsHeard
            | BankAction::OperatorStops => world.bank(action),
            BankAction::OperatorsFail
            | BankAction::OperatorsFindPaid
            | BankAction::Rings
            | BankAction::DebtPaid
            | BankAction::PaidAgain
            | BankAction::GivenBack => world.office(action),
        }
    }

    /// A return is applied to an order that has ended, and dropped when it ended unpaid.
    fn stepped(world: &mut World<Self>, _: &[Effect]) {
        let has_ended = matches!(world.state.name(), "completed" | "reversed" | "payout_failed");
        if world.payout.is_return_open && has_ended {
            world.payout.is_return_open = false;
            let (done, at) = (done(), world.now());
            let (code, message) = ("c".to_owned(), "m".to_owned());
            let _ = world.step(Happened::PaymentReturned { done, came: None, code, message, at });
        }
    }

    fn is_settling(world: &World<Self>) -> bool {
        let (taken, now) = (world.payout.taken(), world.now());
        let is_unanswered = world.state.requested(taken, RailResponse::Silence, now) == Then::Settle;
        let is_asked = world.state.first(LegKind::Payout, taken, now) == First::Ask;
        is_asked && is_unanswered || world.rings()
    }

    fn is_paid(&self) -> bool {
        self.bank == Bank::Paid || self.debt_paid
    }

    fn is_refused(&self) -> bool {
        self.bank == Bank::Failed
    }

    fn is_booked(&self) -> bool {
        self.row.against_unpaid().is_some()
    }

    fn returned(&mut self) {
        self.is_blamed |= self.is_known_in_time;
    }

    fn is_paid_twice(&self) -> bool {
        self.bank == Bank::Paid && self.debt_paid
    }

    fn is_the_payers(&self) -> bool {
        self.has_changed && !self.is_blamed
    }

    fn is_contradicted(&self) -> bool {
        self.row.contradicting.is_some() && !self.row.is_closed
    }
}

impl ByBank {
    /// The record of earlier calls of the bank.
    const fn taken(&self) -> CallRecord {
        CallRecord { called_before: self.is_called, in_flight: self.callers + self.calls > 0 }
    }

    fn requested(&self) -> RailResponse {
        RailResponse::Answer(match self.row.status {
            PaymentStatus::Refused => refused(),
            PaymentStatus::Paid | PaymentStatus::Returned => RailAnswer::Done(done()),
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending => {
                if self.bank == Bank::Idle {
                    return RailResponse::NeverSeen;
                }
                RailAnswer::InProgress { provider_reference: "r".to_owned() }
            }
        })
    }
}

impl World<ByBank> {
    /// No process ran at the moment of the restore, and no call of them is on its way any more. Only a payout that the
    /// bank has not answered: else the state that was restored is an earlier one.
    fn restore(&mut self) -> Option<()> {
        let awaits_first_answer =
            matches!(*self.state, State::Paying { .. }) && self.state.provider_reference().is_none();
        if !self.payout.is_called || !awaits_first_answer || self.payout.taken().in_flight {
            return None;
        }
        self.left.restores = self.left.restores.checked_sub(1)?;
        (self.payout.is_called, self.payout.was_restored) = (false, true);
        Some(())
    }

    /// A worker decides by the state it has loaded. If the state has changed by the commit, nothing is written and the
    /// worker decides again; only a call leaves without that check, see [`BankAction::CallSent`].
    fn claim(&mut self, is_answered: bool) -> Option<()> {
        let (claim, at) = (self.payout.taken(), self.now());
        let then = match self.state.first(LegKind::Payout, claim, at) {
            First::Nothing | First::Wait => return None,
            First::Call => Then::Call,
            First::Ask => {
                let response = if is_answered { self.payout.requested() } else { RailResponse::Silence };
                self.state.requested(claim, response, at)
            }
        };
        match then {
            Then::Take(answer) => {
                self.payout.is_called = true;
                self.step(Happened::Payout { answer, at })
            }
            Then::Withhold(why) => self.step(Happened::Withheld { why, at }),
            Then::Settle => {
                self.payout.is_called = true;
                self.step(Happened::TimelockNear)
            }
            Then::Later { called } => {
                self.payout.is_called = called;
                Some(())
            }
            Then::Call => {
                self.payout.is_called = true;
                self.payout.callers = (self.payout.callers + 1).min(2);
                Some(())
            }
        }
    }

    fn bank(&mut self, action: BankAction) -> Option<()> {
        let payout = &mut self.payout;
        match action {
            BankAction::CallSent => {
                payout.callers = payout.callers.checked_sub(1)?;
                payout.calls += 1;
            }
            BankAction::CallRefused => {
                payout.callers = payout.callers.checked_sub(1)?;
                payout.is_called = false;
            }
            BankAction::WorkerStops => payout.callers = payout.callers.checked_sub(1)?,
            BankAction::CallLost => payout.calls = payout.calls.checked_sub(1)?,
            BankAction::BankReceives => {
                payout.calls = payout.calls.checked_sub(1)?;
                // A stopped or refused payment remains so, and a forgotten one is not ordered again.
                let is_remembered = payout.was_restored && payout.bank != Bank::Idle;
                if payout.bank != Bank::Failed && !is_remembered {
                    payout.bank_received += 1;
                    payout.bank = if payout.bank == Bank::Idle { Bank::Working } else { payout.bank };
                }
            }
            BankAction::BankPays if payout.bank == Bank::Working => self.says(Bank::Paid, Word::Booked),
            BankAction::BankFails if payout.bank == Bank::Working => self.says(Bank::Failed, Word::Refused),
            BankAction::BankChangesItsWord if payout.bank_received > 0 => {
                let (bank, word) = match payout.bank {
                    Bank::Failed => (Bank::Paid, Word::Booked),
                    Bank::Paid => (Bank::Returned, Word::Returned),
                    Bank::Returned => (Bank::Paid, Word::TakenBack),
                    Bank::Idle | Bank::Working => return None,
                };
                self.left.changes = self.left.changes.checked_sub(1)?;
                payout.has_changed = true;
                self.says(bank, word);
            }
            BankAction::BankIsHeard => return self.hear(),
            BankAction::OperatorStops
                if payout.is_called && matches!(payout.bank, Bank::Idle | Bank::Working) =>
            {
                self.says(Bank::Failed, Word::Refused);
            }
            _ => return None,
        }
        Some(())
    }

    /// The timer of a failed payment that was made rings now.
    fn rings(&self) -> bool {
        let is_booked = self.payout.is_booked() && !self.ends_unpaid();
        self.state.timer(self.now(), is_booked) == Timer::Settle
    }

    /// A bank that never changes its word is heard at once: what is late is covered by a worker without an answer.
    fn says(&mut self, bank: Bank, word: Word) {
        self.payout.bank = bank;
        self.payout.words.push(word);
        if self.payout.is_heard_at_once {
            let _ = self.hear();
        }
    }

    /// As the bank's files are imported.
    fn hear(&mut self) -> Option<()> {
        let word = *self.payout.words.first()?;
        self.payout.words.remove(0);
        let hears_taken_back = !self.ends_unpaid();
        let row = &mut self.payout.row;
        match (word, row.status) {
            (Word::Booked, PaymentStatus::Pending) => row.status = PaymentStatus::Paid,
            (Word::Booked, PaymentStatus::Refused) if !row.came_back => {
                row.contradicting = Some(PaymentStatus::Paid);
            }
            (Word::Refused, PaymentStatus::Pending) => row.status = PaymentStatus::Refused,
            (Word::Returned, PaymentStatus::Paid) => {
                (row.status, row.came_back) = (PaymentStatus::Returned, true);
            }
            (Word::Returned, PaymentStatus::Refused) => row.came_back = true,
            (Word::TakenBack, status) if hears_taken_back && row.came_back => {
                row.came_back = false;
                row.contradicting = Some(PaymentStatus::Paid);
                if status == PaymentStatus::Returned {
                    row.status = PaymentStatus::Paid;
                }
            }
            _ => {}
        }
        if row.status == PaymentStatus::Paid && self.state.taken_for_paid() == Some(false) {
            row.contradicting = Some(PaymentStatus::Paid);
        }
        let has_come_back = row.has_come_back();
        let is_in_time = self.clock < Clock::Timelock && !self.commands.contains(&Command::ReturnFilled);
        let payout = &mut self.payout;
        payout.is_said_paid = matches!(word, Word::Booked | Word::TakenBack);
        payout.is_known_in_time = payout.is_booked() && (payout.is_known_in_time || is_in_time);
        // The settlement hears of a return once it has ended.
        payout.is_return_open |= word == Word::Returned && has_come_back;
        ByBank::stepped(self, &[]);
        Some(())
    }

    fn office(&mut self, action: BankAction) -> Option<()> {
        let (at, is_booked) = (self.now(), self.payout.is_booked());
        match action {
            BankAction::OperatorsFail
                if self.has(Defect::FailsSent) && self.payout.is_called && !is_booked =>
            {
                self.step(Happened::Payout { answer: refused(), at })
            }
            BankAction::OperatorsFindPaid if is_booked => match self.state.name() {
                "payout_failed" => self.step(Happened::FoundPaid { done: done(), at }),
                "reversed" => self.step(Happened::ReversalResolved { remedy: Remedy::Stands, done: done() }),
                "owing" if self.state.taken_for_paid() == Some(false) => {
                    self.step(Happened::Payout { answer: RailAnswer::Done(done()), at })
                }
                _ => None,
            },
            BankAction::Rings if self.rings() => self.step(Happened::TimelockNear),
            BankAction::DebtPaid if self.state.is_released_debt() && !is_booked => {
                self.step(Happened::Payout { answer: RailAnswer::Done(done()), at })?;
                self.payout.debt_paid = true;
                Some(())
            }
            BankAction::PaidAgain | BankAction::GivenBack if !is_booked => {
                let pays = action == BankAction::PaidAgain;
                let remedy = if pays { Remedy::PaidAgain } else { Remedy::GivenBack };
                self.step(Happened::ReversalResolved { remedy, done: done() })?;
                self.payout.is_blamed |= self.payout.is_said_paid;
                self.payout.is_given_back |= !pays;
                self.payout.debt_paid |= pays;
                // The house had paid what the escrow had returned, and keeps what came back.
                self.debt_returned |= !pays && self.slot != Slot::Returned;
                Some(())
            }
            _ => None,
        }
    }

    /// The desk has converted, and the order has ended without it.
    fn has_unused_conversion(&self) -> bool {
        let has_ended = match self.state.name() {
            "conversion_failed" | "payout_failed" => true,
            "reversed" => self.payout.is_given_back,
            _ => false,
        };
        self.has_converted && has_ended
    }
}
