//! Facts of the chain that come before their settlement waits for them: after a restore to an earlier moment the chain
//! is ahead of the database.
//!
//! Kept by `core/tests/it/early_facts.rs::facts_of_steps_that_were_forgotten_are_applied_as_the_order_comes_to_them`.

use super::{Happened, RailAnswer, State};
use crate::terms::Terms;

impl State {
    /// Whether a later state may take a fact that this one cannot take: it is kept until then. Otherwise it can never
    /// matter, because it was applied before, or the settlement has ended or takes another way.
    pub fn takes_later(&self, terms: &Terms, happened: &Happened) -> bool {
        if self.is_terminal() {
            // Operators may still find that the bank made the payment.
            return matches!(self, Self::PayoutFailed { lock: Some(lock), debt_returned: None, .. } if !lock.refunded)
                && matches!(happened, Happened::Settled { .. });
        }
        let is_before_lock = matches!(self, Self::Resting | Self::Accepted);
        let is_locked = terms.locks() && !terms.swaps();
        match happened {
            Happened::Locked { .. } => is_locked && is_before_lock,
            Happened::Filled { .. } | Happened::Refunded { .. } => {
                is_locked && (is_before_lock || matches!(self, Self::Locking))
            }
            Happened::Settled { .. } if terms.swaps() => is_before_lock,
            Happened::Settled { .. } => {
                is_locked
                    && matches!(
                        self,
                        Self::Resting
                            | Self::Accepted
                            | Self::Locking
                            | Self::Converting { .. }
                            | Self::Committing { .. }
                    )
                    && self.lock().is_none_or(|lock| !lock.refunded)
            }
            Happened::Payout { answer: RailAnswer::Done(_), .. } => {
                terms.pays_on_chain()
                    && !terms.swaps()
                    && !matches!(self, Self::Paying { .. } | Self::Owing { .. } | Self::Releasing { .. })
            }
            Happened::Anchored(_) => true,
            Happened::Payout {
                answer: RailAnswer::InProgress { .. } | RailAnswer::Failed { .. }, ..
            }
            | Happened::Matched
            | Happened::LockDue
            | Happened::CancelRequested
            | Happened::DeadlinePassed { .. }
            | Happened::LockFailed { .. }
            | Happened::LockLost { .. }
            | Happened::Refused { .. }
            | Happened::Offramp { .. }
            | Happened::ConversionGivenUp { .. }
            | Happened::Withheld { .. }
            | Happened::FillLost
            | Happened::FillFailed { .. }
            | Happened::FoundPaid { .. }
            | Happened::TimelockNear
            | Happened::DebtReturned { .. }
            | Happened::PaymentReturned { .. }
            | Happened::ReversalResolved { .. }
            | Happened::ConversionClosed => false,
        }
    }
}
