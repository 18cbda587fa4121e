//! The bank of the world, which changes its word, what was heard of it, and what operators do about it.

use super::*;
use crate::payment::PaymentStatus;

pub(super) const UNHEARD: PaymentStanding = PaymentStanding {
    status: PaymentStatus::Pending,
    contradicting: None,
    is_closed: false,
    came_back: false,
    is_debt_paid: false,
    is_recalled: false,
};

impl<S: Service> World<S> {
    /// The record of earlier calls of the bank.
    pub(super) const fn taken(&self) -> CallRecord {
        CallRecord { called_before: self.is_called, in_flight: self.callers + self.calls > 0 }
    }

    /// A worker decides by the state it has loaded. If the state has changed by the commit, nothing is written and the
    /// worker decides again; only a call leaves without that check, see [`ModelAction::CallSent`].
    pub(super) fn claim(&mut self, is_answered: bool) -> Option<()> {
        let at = at(self.clock);
        let claim = self.taken();
        let then = match self.service.first(LegKind::Payout, claim, self.clock) {
            First::Nothing | First::Wait => return None,
            First::Call => Then::Call,
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

    pub(super) fn bank(&mut self, action: ModelAction) -> Option<()> {
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
            ModelAction::BankPays if self.bank == Bank::Working => self.says(Bank::Paid, Word::Booked),
            ModelAction::BankFails if self.bank == Bank::Working => self.says(Bank::Failed, Word::Refused),
            ModelAction::BankChangesItsWord if self.bank_received > 0 => {
                let (bank, word) = match self.bank {
                    Bank::Failed => (Bank::Paid, Word::Booked),
                    Bank::Paid => (Bank::Returned, Word::Returned),
                    Bank::Returned => (Bank::Paid, Word::TakenBack),
                    Bank::Idle | Bank::Working => return None,
                };
                self.left.changes = self.left.changes.checked_sub(1)?;
                self.has_changed = true;
                self.says(bank, word);
            }
            ModelAction::BankIsHeard => return self.hear(),
            ModelAction::OperatorStops
                if self.is_called && matches!(self.bank, Bank::Idle | Bank::Working) =>
            {
                self.says(Bank::Failed, Word::Refused);
            }
            _ => return None,
        }
        Some(())
    }

    /// What was heard says that the payment is made.
    pub(super) fn is_booked(&self) -> bool {
        self.row.against_unpaid().is_some()
    }

    /// An operator is paged until it is put right.
    pub(super) fn is_contradicted(&self) -> bool {
        self.row.contradicting.is_some() && !self.row.is_closed
    }

    pub(super) fn may_pay_another_way(&self) -> bool {
        self.service.is_released_debt() && !self.is_booked()
    }

    /// The timer of a failed payment that was made rings now.
    pub(super) fn rings(&self) -> bool {
        self.service.timer(self.clock, self.is_booked()) == Timer::Settle
    }

    /// A bank that never changes its word is heard at once: what is late is covered by a worker without an answer.
    fn says(&mut self, bank: Bank, word: Word) {
        self.bank = bank;
        self.words.push(word);
        if self.is_heard_at_once {
            let _ = self.hear();
        }
    }

    /// As the bank's files are imported.
    fn hear(&mut self) -> Option<()> {
        if self.words.is_empty() {
            return None;
        }
        let (word, row) = (self.words.remove(0), &mut self.row);
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
            (Word::TakenBack, status) if S::HEARS_TAKEN_BACK && row.came_back => {
                row.came_back = false;
                row.contradicting = Some(PaymentStatus::Paid);
                if status == PaymentStatus::Returned {
                    row.status = PaymentStatus::Paid;
                }
            }
            _ => {}
        }
        self.is_said_paid = matches!(word, Word::Booked | Word::TakenBack);
        if row.status == PaymentStatus::Paid && self.service.taken_for_paid() == Some(false) {
            row.contradicting = Some(PaymentStatus::Paid);
        }
        let is_in_time = self.clock < Clock::Timelock && !self.commands.contains(&Command::ReturnFilled);
        self.is_known_in_time = self.is_booked() && (self.is_known_in_time || is_in_time);
        if word == Word::Returned && self.row.has_come_back() {
            // The settlement hears of it once it has ended.
            self.is_return_open = true;
        }
        self.take_return();
        Some(())
    }

    /// A return is applied to an order that has ended, and dropped when it ended unpaid.
    pub(super) fn take_return(&mut self) {
        let has_ended = matches!(self.service.name(), "completed" | "reversed" | "payout_failed");
        if self.is_return_open && has_ended {
            self.is_return_open = false;
            let (done, at) = (done(), at(self.clock));
            let (code, message) = ("c".to_owned(), "m".to_owned());
            let _ = self.step(Happened::PaymentReturned { done, came: None, code, message, at });
        }
    }

    pub(super) fn office(&mut self, action: ModelAction) -> Option<()> {
        let at = at(self.clock);
        match action {
            ModelAction::OperatorsFail if S::FAILS_SENT && self.is_called && !self.is_booked() => {
                self.step(Happened::Payout { answer: refused(), at })
            }
            ModelAction::OperatorsFindPaid if self.is_booked() => match self.service.name() {
                "payout_failed" => self.step(Happened::FoundPaid { done: done(), at }),
                "reversed" => self.step(Happened::ReversalResolved { remedy: Remedy::Stands, done: done() }),
                "owing" if self.service.taken_for_paid() == Some(false) => {
                    self.step(Happened::Payout { answer: RailAnswer::Done(done()), at })
                }
                _ => None,
            },
            ModelAction::Rings if self.rings() => self.step(Happened::TimelockNear),
            ModelAction::PaidAgain | ModelAction::GivenBack if !self.is_booked() => {
                let pays = action == ModelAction::PaidAgain;
                let remedy = if pays { Remedy::PaidAgain } else { Remedy::GivenBack };
                let was_paid_by_house = self.slot == Slot::Returned;
                self.step(Happened::ReversalResolved { remedy, done: done() })?;
                self.is_blamed |= self.is_said_paid;
                self.is_given_back |= !pays;
                // The house had paid, and keeps what came back.
                (self.debt_paid, self.debt_returned) =
                    (self.debt_paid | pays, self.debt_returned | (!pays && !was_paid_by_house));
                Some(())
            }
            _ => None,
        }
    }
}
