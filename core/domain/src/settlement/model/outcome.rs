//! What must be true of every order that has ended.

use super::*;

impl World {
    pub(super) fn check(&self) {
        let state = &self.db.state;
        let (converted, paid) = (&self.rails[&LegKind::Offramp], &self.rails[&LegKind::Payout]);
        assert!(converted.executed <= 1 && paid.executed <= 1, "a rail moved money twice");
        let delivered = paid.executed + self.chain.paid + u32::from(self.office.has_paid_debt);
        assert!(delivered == 0 || !self.chain.gone, "maker and beneficiary were both paid");
        let owes = matches!(state, State::Owing { .. });
        if self.chain.settled {
            assert!(
                delivered == 1 || owes,
                "the funds were taken and the beneficiary was not paid: {}",
                state.name()
            );
        }
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
        let expected = 1 + usize::from(came_back);
        assert_eq!((ends, self.db.reported.last().is_some_and(|last| last.is_terminal())), (expected, true));
        assert_eq!(delivered, u32::from(matches!(state, State::Completed { .. })), "{}", state.name());
        assert_eq!(state.lock().is_some_and(|lock| lock.refunded), self.chain.gone && state.lock().is_some());
        assert_eq!(self.db.books.minor("escrow::total", &self.terms.input.asset), 0);
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
        E::OfframpFailed
        | E::PayoutFailed
        | E::PayoutReversed
        | E::IntentCancelled
        | E::IntentExpired
        | E::IntentFailed => false,
    }
}
