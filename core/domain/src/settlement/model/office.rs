//! What people do beside the workers: they pause legs, hold orders before the lock, and decide in a rail's place; and
//! what a bank says after it has paid: that the payment came back, until operators have resolved it.

use std::collections::BTreeMap;

use super::super::leg::LegKind;
use super::super::{Happened, LegDone, RailAnswer, Remedy, State};
use super::{IN_FLIGHT, Task, World, at, done};

#[derive(Default)]
pub(super) struct Office {
    paused: [bool; 2],
    /// A check before the lock holds the order: it is not locked, and expires at its deadline.
    pub(super) held: bool,
    /// Decisions that take the place of a rail's answer.
    pub(super) verdicts: BTreeMap<LegKind, RailAnswer>,
    /// The bank gave the payment back; `true`: the settlement has taken it in.
    returned: Option<bool>,
}

impl Office {
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
    /// One move of somebody in the office, or of the bank after the payment.
    pub(super) fn office(&mut self, what: u8, pick: u8) {
        match what {
            0 => self.office.paused[usize::from(pick % 2)] = pick < 50,
            1 => self.office.held = pick < 15,
            2 if pick < 40 => {
                self.decide(if pick.is_multiple_of(2) { LegKind::Offramp } else { LegKind::Payout })
            }
            _ if pick < 60 => self.give_payment_back(),
            _ => self.resolve(if pick.is_multiple_of(2) { Remedy::PaidAgain } else { Remedy::GivenBack }),
        }
    }

    /// Nothing is paused or held any more, and what came back is resolved.
    pub(super) fn clear_office(&mut self) {
        (self.office.paused, self.office.held) = ([false; 2], false);
        self.resolve(if self.now % 2 == 0 { Remedy::PaidAgain } else { Remedy::GivenBack });
    }

    /// Operators look at the rail's own books, once no call can be on its way: what was carried out is taken for done,
    /// and what was not is blocked there and taken for failed.
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

    /// The bank gives a booked payment back, once.
    fn give_payment_back(&mut self) {
        let paid = &self.rails[&LegKind::Payout];
        if paid.executed > 0 && paid.finished && self.office.returned.is_none() {
            self.office.returned = Some(false);
        }
        self.take_return();
    }

    /// The settlement takes a return in once it has ended.
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

    /// Two operators resolve what came back. It is offered at any time, and applies to an open return only.
    fn resolve(&mut self, remedy: Remedy) {
        self.take_return();
        let happened = Happened::ReversalResolved { remedy, done: leg_done(self.now) };
        if let Ok(step) = self.db.state.clone().step(&self.terms, happened) {
            self.write(step);
        }
    }

    /// Every minor unit is somewhere, after every move: the sums are zero (the books check that at each posting), and what
    /// is in the escrow, on its way and owed is all of the order's amount or nothing.
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
