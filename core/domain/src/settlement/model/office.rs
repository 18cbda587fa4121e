//! The moves of people beside the workers: operators pause legs, hold orders before the lock, and decide in a rail's
//! place; a bank makes a payment that it had refused, until operators have found it, and returns a payment after it has
//! paid, until operators have resolved it; a partner takes its prefunded money out and brings it again.

use std::collections::BTreeMap;

use crate::screening::{ScreeningResult, StartDecision};

use super::super::leg::{LegKind, Timer};
use super::super::{Happened, LegDone, Position, RailAnswer, Remedy, State};
use super::{IN_FLIGHT, SETTLE, Task, World, at, done};
use crate::ledger::operation::Operation;
use crate::ledger::{Owner, deposited};
use crate::money::Minor;

#[derive(Default)]
pub(super) struct Office {
    pub(super) paused: [bool; 2],
    /// Screening has held the order; operators have released it, or refused it.
    pub(super) was_held: bool,
    pub(super) released: bool,
    pub(super) refused: bool,
    /// Decisions that take the place of a rail's answer.
    pub(super) verdicts: BTreeMap<LegKind, RailAnswer>,
    /// Operators have paid a debt another way after its payout had failed.
    pub(super) has_paid_debt: bool,
    /// The bank returned the payment; `true`: the settlement has recorded it.
    returned: Option<bool>,
    /// The bank has made a payment that counts as failed, which is known, and operators have not found it.
    pub(super) is_booked: bool,
    /// It did so while the lock could still be settled, and operators have found it.
    pub(super) was_booked_in_time: bool,
    pub(super) was_found: bool,
    /// The partner has taken its returned input out.
    is_withdrawn: bool,
    /// Operators gave the conversion up.
    pub(super) has_given_up: bool,
}

impl Office {
    /// The database is restored: it has these decisions, and a returned payment may not be recorded any more.
    pub(super) fn forget(&mut self, verdicts: BTreeMap<LegKind, RailAnswer>) {
        self.verdicts = verdicts;
        self.returned = self.returned.map(|_| false);
    }

    pub(super) const fn is_paused(&self, leg: LegKind) -> bool {
        self.paused[match leg {
            LegKind::Offramp => 0,
            LegKind::Payout => 1,
        }]
    }

    pub(super) fn is_quiet(&self, state: &State) -> bool {
        let is_open =
            matches!(state, State::Completed { reversal: Some(open), .. } if open.resolved.is_none());
        !is_open && self.returned != Some(false) && !self.is_booked && !self.is_withdrawn
    }
}

fn leg_done(now: i64) -> LegDone {
    LegDone { provider_reference: "r".into(), occurred_at: at(now) }
}

impl World {
    /// One move of an operator, or of the bank after the payment.
    pub(super) fn office(&mut self, what: u8, pick: u8) {
        match what {
            0 => self.office.paused[usize::from(pick % 2)] = pick < 50,
            1 if pick < 30 => {
                self.says = match pick % 10 {
                    0 => ScreeningResult::Fail,
                    1..4 => ScreeningResult::Pass,
                    _ => ScreeningResult::Hold,
                }
            }
            1 => self.decide_beginning(pick),
            2 if pick < 40 => {
                self.decide(if pick.is_multiple_of(2) { LegKind::Offramp } else { LegKind::Payout })
            }
            2 if pick > 200 => self.pay_debt(),
            2 if pick > 120 => self.pay_after_all(),
            2 if pick > 90 => self.find_paid(),
            2 if pick > 70 => self.move_prefunded(),
            _ if pick < 60 => self.give_payment_back(),
            _ if pick < 110 => self.close_position(),
            _ => self.resolve(match pick % 3 {
                0 => Remedy::PaidAgain,
                1 => Remedy::GivenBack,
                _ => Remedy::Stands,
            }),
        }
    }

    /// Ends all pauses and holds, and resolves a returned payment.
    pub(super) fn clear_office(&mut self) {
        (self.office.paused, self.says) = ([false; 2], ScreeningResult::Pass);
        if self.office.is_withdrawn {
            self.move_prefunded();
        }
        self.find_paid();
        self.return_debt();
        self.resolve(if self.now / 100 % 2 == 0 { Remedy::PaidAgain } else { Remedy::GivenBack });
    }

    /// The bank makes a payment that it had refused, and says so.
    fn pay_after_all(&mut self) {
        let rail = self.rails.entry(LegKind::Payout).or_default();
        let has_failed = self.db.state.may_be_found_paid();
        if rail.arrived == 0
            || rail.executed > 0
            || !rail.refuses
            || !has_failed
            || self.terms.pays_on_chain()
        {
            return;
        }
        (rail.executed, rail.finished) = (1, true);
        self.office.is_booked = true;
        let chain = &self.chain;
        let is_in_time = chain.created.is_some_and(|created| self.now < created + SETTLE);
        self.office.was_booked_in_time = is_in_time && !chain.gone;
    }

    /// Two operators record it, if a prefunded input can be taken back.
    pub(super) fn find_paid(&mut self) {
        if !self.office.is_booked || self.office.is_withdrawn {
            return;
        }
        let (done, at) = (leg_done(self.now), at(self.now));
        let happened = match &self.db.state {
            State::PayoutFailed { .. } => Happened::FoundPaid { done, at },
            State::Owing { failure: Some(_), .. } => Happened::Payout { answer: RailAnswer::Done(done), at },
            _ => return,
        };
        let step = self.db.state.clone().step(&self.terms, happened).expect("a payment that was made");
        (self.office.is_booked, self.office.was_found) = (false, true);
        self.write(step);
    }

    /// The timer of a payment that was made after its payout had failed is set when it is due.
    pub(super) fn watch_booked(&mut self) {
        let due = self.db.state.timer(at(self.now), self.office.is_booked) == Timer::Settle;
        let is_failed = matches!(self.db.state, State::PayoutFailed { .. });
        if due && is_failed && !self.db.effects.contains_key(&Task::Timelock) {
            self.set(Task::Timelock, self.now);
        }
    }

    /// The partner withdraws an input that was returned to it, or deposits as much.
    fn move_prefunded(&mut self) {
        let (asset, amount) = (self.terms.input.asset.clone(), self.terms.plan.priced.input);
        let owner = Owner::Partner { id: self.terms.partner_id.to_string(), livemode: self.terms.livemode };
        let has_input = matches!(self.db.state, State::PayoutFailed { lock: None, .. });
        let deposit = deposited(owner.clone(), &asset, amount);
        if self.office.is_withdrawn {
            self.db.books.take(&deposit);
        } else if has_input {
            let operation = Operation::Withdrawal { owner, asset, amount };
            self.db.books.take(&operation.posting().expect("an amount"));
        } else {
            return;
        }
        self.office.is_withdrawn ^= true;
    }

    /// Operators record the trade that ends a position.
    fn close_position(&mut self) {
        let before = self.db.state.open_position();
        if let Ok(step) = self.db.state.clone().step(&self.terms, Happened::ConversionClosed) {
            self.db.taken_over += if before == Some(Position::Short) { -1 } else { 1 };
            self.write(step);
        }
    }

    /// Operators read the rail's own books, once no call can be in flight: a payment that was carried out is recorded
    /// as paid; one that was not is blocked at the rail and recorded as failed. They give up a conversion that the desk has
    /// not confirmed without reading.
    fn decide(&mut self, leg: LegKind) {
        let Some(row) = self.db.effects.get(&Task::Leg(leg)) else { return };
        let in_flight = row.called && self.now - row.called_at < IN_FLIGHT;
        if in_flight || row.claimed_until >= self.now || !self.db.state.awaits(leg) {
            return;
        }
        let now = self.now;
        let is_unread = leg == LegKind::Offramp
            && matches!(self.db.state, State::Converting { .. })
            && self.db.state.confirmed(leg).is_none()
            && now % 2 == 0;
        let rail = self.rails.entry(leg).or_default();
        let verdict = if rail.executed > 0 && !is_unread {
            rail.finished = true;
            done(now)
        } else {
            rail.refuses |= !is_unread;
            RailAnswer::Failed { code: "operator".into(), message: "m".into(), retryable: false }
        };
        self.office.verdicts.insert(leg, verdict);
    }

    /// Operators pay what is owed for a failed payout, when they may, and record it.
    fn pay_debt(&mut self) {
        // The chain says what became of a payment in tokens. One that the bank has made is found, not made again.
        if !self.db.state.is_released_debt() || self.terms.crosses() || self.office.is_booked {
            return;
        }
        let happened = Happened::Payout { answer: done(self.now), at: at(self.now) };
        if let Ok(step) = self.db.state.clone().step(&self.terms, happened) {
            self.office.has_paid_debt = true;
            self.write(step);
        }
    }

    /// A debt whose payment has come back is not paid another way: operators return the input.
    fn return_debt(&mut self) {
        if self.office.returned != Some(false) || !self.db.state.is_released_debt() {
            return;
        }
        let happened = Happened::DebtReturned { done: leg_done(self.now), at: at(self.now) };
        let step = self.db.state.clone().step(&self.terms, happened).expect("a debt");
        self.write(step);
    }

    /// The bank returns a booked payment, once.
    fn give_payment_back(&mut self) {
        let paid = self.rails.entry(LegKind::Payout).or_default();
        if paid.executed > 0 && paid.finished && self.office.returned.is_none() {
            self.office.returned = Some(false);
            if std::mem::take(&mut self.office.is_booked) {
                // Nothing was recorded, and nothing is paid.
                paid.executed = 0;
            }
        }
        self.take_return();
    }

    /// The settlement records a return once it has ended.
    pub(super) fn take_return(&mut self) {
        if self.office.returned != Some(false) || !self.db.state.is_terminal() {
            return;
        }
        self.office.returned = Some(true);
        let (done, at) = (leg_done(self.now), at(self.now));
        // The bank may deduct its charge.
        let output = self.terms.plan.priced.output;
        let came = output.checked_sub(Minor::new(1)).filter(|_| self.now % 3 == 0);
        let happened = Happened::PaymentReturned { done, came, code: "c".into(), message: "m".into(), at };
        if let Ok(step) = self.db.state.clone().step(&self.terms, happened) {
            self.write(step);
        }
    }

    /// Two operators resolve a returned payment. It is tried at any time, and applies to an open return only.
    fn resolve(&mut self, remedy: Remedy) {
        self.take_return();
        let happened = Happened::ReversalResolved { remedy, done: leg_done(self.now) };
        if let Ok(step) = self.db.state.clone().step(&self.terms, happened) {
            self.write(step);
        }
    }

    /// Accounts for every minor unit after every move: the sums are zero (the books check that at each posting), and
    /// what is in the escrow, in clearing and owed is all of the order's amount or nothing.
    pub(super) fn account_for(&self) {
        let (input, output) = (self.terms.input.asset.as_str(), self.terms.output.asset.as_str());
        let priced = &self.terms.plan.priced;
        let units = |amount: crate::money::Minor| i128::try_from(amount.get()).expect("an amount");
        let (whole, gross, net) = (units(priced.input), units(priced.gross_output), units(priced.output));
        let books = &self.db.books;
        let escrow = books.minor("escrow::total", input);
        assert!(escrow == 0 || escrow == whole, "{escrow} of {whole} are in the escrow");
        let clearing = books.minor("clearing::total", output);
        assert!(clearing == 0 || clearing == gross, "{clearing} of {gross} are on their way");
        let debt = books.minor(&format!("debt:{}:total", self.terms.reference), output);
        assert!([0, gross, net].contains(&debt), "{debt} are owed");
        let recipient = books.minor(&format!("external:{}:total", self.terms.reference), output);
        // What the bank deducts from a return stays outside.
        let deducted = match &self.db.state {
            State::Completed { reversal: Some(reversal), .. } => {
                reversal.came.map_or(0, |came| net - units(came))
            }
            _ => 0,
        };
        let is_whole = [0, net].contains(&recipient) || [0, net].contains(&(recipient - deducted));
        assert!(is_whole, "the recipient has {recipient} of {net}");
        let recipient = recipient - deducted;
        assert!(clearing == 0 || debt == 0, "one output is on its way and owed");
        assert!(recipient == 0 || debt == 0 && clearing == 0, "one output is paid and owed");
    }
}

impl World {
    /// Operators release or refuse an order that screening holds, while nobody has it in hand. Who had it may still come
    /// back, with what was said before.
    pub(super) fn decide_beginning(&mut self, pick: u8) {
        let (now, was_held) = (self.now, self.office.was_held);
        let Some(row) = self.db.effects.get_mut(&Task::Start) else { return };
        if !was_held || row.claimed_until >= now || row.decided.is_some() {
            return;
        }
        let decided = if pick.is_multiple_of(2) { StartDecision::Release } else { StartDecision::Refuse };
        (row.decided, row.due, row.fence) = (Some(decided), now, row.fence + 1);
        self.office.released |= decided == StartDecision::Release;
        self.office.refused |= decided == StartDecision::Refuse;
    }
}
