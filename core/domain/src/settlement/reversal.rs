//! A payment that the rail returned after it was carried out: the contract's one edge from `completed` to `reversed`.
//!
//! The input stays where it is, and the returned output is owed to the user. It ends when operators have paid the
//! beneficiary another way or returned the input, or when the bank has taken the return back. If the escrow had returned the input before the payment, the house has
//! paid for it, and the returned output makes good what the house paid. Only money can be returned: a payment in tokens is
//! final.

use super::{Effect, Failure, Happened, Remedy, Resolved, Reversal, State, Step};
use crate::event::{EventType, Stage};
use crate::ledger;
use crate::terms::Terms;

/// `None`: the event does not apply.
pub(super) fn step(terms: &Terms, state: State, happened: Happened) -> Option<Step> {
    let was_paid_by_house = state.was_paid_by_house();
    let State::Completed { lock, offramp, payout, settle_tx, finality, reversal } = state else {
        return None;
    };
    let with = |reversal| State::Completed {
        lock,
        offramp,
        payout,
        settle_tx,
        finality,
        reversal: Some(Box::new(reversal)),
    };
    match (happened, reversal) {
        // Again after the bank had taken the first return back: that it came back was reported.
        (Happened::PaymentReturned { done, came, code, message, at }, before)
            if !terms.pays_on_chain() && before.as_ref().is_none_or(|before| before.stands()) =>
        {
            let failure = Failure { stage: Stage::Payout, code, message, retryable: false };
            // What is more than was paid is not the payment's return.
            let came = came.filter(|came| *came < terms.plan.priced.output);
            let next = with(Reversal { returned: done, came, failure, resolved: None });
            let posted = vec![Effect::Post(ledger::reversed(terms, came))];
            Some(match before {
                None => Step::tell(next, EventType::PayoutReversed, at, posted),
                Some(_) => Step::quiet(next, posted),
            })
        }
        (Happened::ReversalResolved { remedy, done }, Some(open)) if open.resolved.is_none() => {
            let posting = match remedy {
                // The user would have both.
                Remedy::PaidAgain if was_paid_by_house => return None,
                Remedy::PaidAgain => ledger::paid_again(terms),
                Remedy::Stands => ledger::reversal_undone(terms, open.came),
                Remedy::GivenBack if was_paid_by_house => ledger::reversal_given_to_house(terms),
                Remedy::GivenBack => ledger::reversal_given_back(terms),
            };
            let resolved = Some(Resolved { remedy, done });
            Some(Step::quiet(with(Reversal { resolved, ..*open }), vec![Effect::Post(posting)]))
        }
        _ => None,
    }
}
