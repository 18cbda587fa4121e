//! The moves of people beside the workers: operators pause legs, hold orders before the lock, and decide in a rail's
//! place; a bank returns a payment after it has paid, until operators have resolved it.

use std::collections::BTreeMap;

use crate::screening::{ScreeningResult, StartDecision};

use super::super::leg::LegKind;
use super::super::{Happened, LegDone, RailAnswer, Remedy, State};
use super::{IN_FLIGHT, Task, World, at, done};

pub(super) struct Office {
    paused: [bool; 2],
    /// What the screening service says, and what no answer of it means.
    pub(super) says: ScreeningResult,
    pub(super) on_error: ScreeningResult,
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
}

impl Default for Office {
    fn default() -> Self {
        let (says, on_error) = (ScreeningResult::Pass, ScreeningResult::Hold);
        let (paused, verdicts, returned) = ([false; 2], BTreeMap::new(), None);
        let (was_held, released, refused) = (false, false, false);
        let has_paid_debt = false;
        Self { paused, says, on_error, was_held, released, refused, verdicts, has_paid_debt, returned }
    }
}

impl Office {
    /// What screening an order comes to.
    pub(super) const fn screen(&self, is_silent: bool) -> ScreeningResult {
        if is_silent { self.on_error } else { self.says }
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
        !is_open && self.returned != Some(false)
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
                self.office.says = match pick % 10 {
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
            _ if pick < 60 => self.give_payment_back(),
            _ => self.resolve(if pick.is_multiple_of(2) { Remedy::PaidAgain } else { Remedy::GivenBack }),
        }
    }

    /// Ends all pauses and holds, and resolves a returned payment.
    pub(super) fn clear_office(&mut self) {
        (self.office.paused, self.office.says) = ([false; 2], ScreeningResult::Pass);
        self.resolve(if self.now % 2 == 0 { Remedy::PaidAgain } else { Remedy::GivenBack });
    }

    /// Operators read the rail's own books, once no call can be in flight: a payment that was carried out is recorded
    /// as paid; one that was not is blocked at the rail and recorded as failed.
    fn decide(&mut self, leg: LegKind) {
        let Some(row) = self.db.effects.get(&Task::Leg(leg)) else { return };
        let in_flight = row.called && self.now - row.called_at < IN_FLIGHT;
        if in_flight || row.lease_until >= self.now || !self.db.state.awaits(leg) {
            return;
        }
        let now = self.now;
        let rail = self.rails.entry(leg).or_default();
        let verdict = if rail.executed > 0 {
            rail.finished = true;
            done(now)
        } else {
            rail.refuses = true;
            RailAnswer::Failed { code: "operator".into(), message: "m".into(), retryable: false }
        };
        self.office.verdicts.insert(leg, verdict);
    }

    /// Operators pay what is owed for a failed payout, when they may, and record it.
    fn pay_debt(&mut self) {
        // The chain says what became of a payment in tokens.
        if !self.db.state.is_released_debt() || self.terms.crosses() {
            return;
        }
        let happened = Happened::Payout { answer: done(self.now), at: at(self.now) };
        if let Ok(step) = self.db.state.clone().step(&self.terms, happened) {
            self.office.has_paid_debt = true;
            self.write(step);
        }
    }

    /// The bank returns a booked payment, once.
    fn give_payment_back(&mut self) {
        let paid = &self.rails[&LegKind::Payout];
        if paid.executed > 0 && paid.finished && self.office.returned.is_none() {
            self.office.returned = Some(false);
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
        let happened = Happened::PaymentReturned { done, code: "c".into(), message: "m".into(), at };
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
        assert!(recipient == 0 || recipient == net, "the recipient has {recipient} of {net}");
        assert!(clearing == 0 || debt == 0, "one output is on its way and owed");
        assert!(recipient == 0 || debt == 0 && clearing == 0, "one output is paid and owed");
    }
}

impl World {
    /// Operators release or refuse an order that screening holds, while nobody has it in hand. Who had it may still come
    /// back, with what was said before.
    fn decide_beginning(&mut self, pick: u8) {
        let (now, was_held) = (self.now, self.office.was_held);
        let Some(row) = self.db.effects.get_mut(&Task::Start) else { return };
        if !was_held || row.lease_until >= now || row.decided.is_some() {
            return;
        }
        let decided = if pick.is_multiple_of(2) { StartDecision::Release } else { StartDecision::Refuse };
        (row.decided, row.due, row.fence) = (Some(decided), now, row.fence + 1);
        self.office.released |= decided == StartDecision::Release;
        self.office.refused |= decided == StartDecision::Refuse;
    }
}
