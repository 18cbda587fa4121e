//! What must be true of every order that has ended.

use super::*;

impl World {
    pub(super) fn check(&self) {
        let state = &self.db.state;
        let delivered = self.delivered();
        // What a bank does after the input went back is its own.
        let is_the_banks = self.office.was_found && !self.office.was_booked_in_time;
        assert!(delivered == 0 || !self.chain.gone || is_the_banks, "maker and beneficiary were both paid");
        let owes = matches!(state, State::Owing { .. });
        let debt_returned = matches!(state, State::PayoutFailed { debt_returned: Some(_), .. });
        if self.chain.settled {
            assert!(
                delivered == 1 || owes || debt_returned,
                "the funds were taken and the beneficiary was not paid: {}",
                state.name()
            );
        }
        self.check_position();
        for pair in self.db.reported.windows(2) {
            assert!(follows(pair[0], pair[1]), "{pair:?}");
        }
        let debt =
            self.db.books.minor(&format!("debt:{}:total", self.terms.reference), &self.terms.output.asset);
        assert_eq!(owes, debt > 0, "the books have a debt");
        if owes {
            return;
        }
        check_ended(&self.terms, state, &self.db.books);
        let ends = self.db.reported.iter().filter(|kind| kind.is_terminal()).count();
        let came_back = matches!(state, State::Completed { reversal: Some(_), .. });
        // Its failure was reported before.
        let was_found =
            self.db.reported.contains(&EventType::PayoutFailed) && matches!(state, State::Completed { .. });
        let expected = 1 + usize::from(came_back) + usize::from(was_found);
        assert_eq!((ends, self.db.reported.last().is_some_and(|last| last.is_terminal())), (expected, true));
        assert_eq!(delivered, u32::from(matches!(state, State::Completed { .. })), "{}", state.name());
        assert_eq!(state.lock().is_some_and(|lock| lock.refunded), self.chain.gone && state.lock().is_some());
        assert_eq!(self.db.books.minor("escrow::total", &self.terms.input.asset), 0);
    }
}

impl World {
    /// How often the recipient was paid.
    pub(super) fn delivered(&self) -> u32 {
        let (converted, paid) = (&self.rails[&LegKind::Offramp], &self.rails[&LegKind::Payout]);
        assert!(converted.executed <= 1 && paid.executed <= 1, "a rail moved money twice");
        paid.executed + self.chain.paid + u32::from(self.office.has_paid_debt)
    }

    /// The desk has converted, and the order has ended without it: the position is in the books, or the house has it.
    pub(super) fn check_position(&self) {
        let state = &self.db.state;
        let is_given_back = matches!(state, State::Completed { reversal: Some(open), .. }
            if open.resolved.as_ref().is_some_and(|resolved| resolved.remedy == Remedy::GivenBack));
        let has_ended = matches!(state, State::ConversionFailed { .. } | State::PayoutFailed { .. });
        let is_unused = self.rails[&LegKind::Offramp].executed == 1 && (has_ended || is_given_back);
        let expected = i128::from(is_unused) - self.db.taken_over;
        let priced = &self.terms.plan.priced;
        let account = format!("position:{}:total", self.terms.reference);
        let minor = |asset: &str| self.db.books.minor(&account, asset);
        let units = |amount: Minor| i128::try_from(amount.get()).expect("an amount") * expected;
        assert_eq!(minor(&self.terms.output.asset), units(priced.gross_output), "{state:?}");
        assert_eq!(minor(&self.terms.input.asset), -units(priced.net_input()), "{state:?}");
        let is_open = state.open_position().is_some();
        assert_eq!(is_open, state.is_terminal() && expected != 0, "{state:?}");
    }
}

/// The contract's table of events (section 3.2).
fn follows(before: EventType, after: EventType) -> bool {
    use EventType as E;
    match before {
        E::IntentAccepted => matches!(
            after,
            E::OfframpInitiated
                | E::PayoutInitiated
                | E::IntentCancelled
                | E::IntentExpired
                | E::IntentFailed
        ),
        E::OfframpInitiated => matches!(after, E::OfframpInProgress | E::OfframpCompleted | E::OfframpFailed),
        E::OfframpInProgress => matches!(after, E::OfframpCompleted | E::OfframpFailed),
        E::OfframpCompleted => after == E::PayoutInitiated,
        E::PayoutInitiated => matches!(after, E::PayoutInProgress | E::PayoutCompleted | E::PayoutFailed),
        E::PayoutInProgress => matches!(after, E::PayoutCompleted | E::PayoutFailed),
        E::PayoutCompleted => after == E::PayoutReversed,
        // The bank has made a payment that it had refused.
        E::PayoutFailed => after == E::PayoutCompleted,
        E::OfframpFailed | E::PayoutReversed | E::IntentCancelled | E::IntentExpired | E::IntentFailed => {
            false
        }
    }
}
