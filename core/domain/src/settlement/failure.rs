//! Why a settlement failed.

use serde::{Deserialize, Serialize};

use crate::event::Stage;

/// Spec section 2.6, Failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub stage: Stage,
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

/// Why a leg that was never called will not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// The escrow returned the funds.
    FundsGone,
    /// A reorganization removed the lock.
    LockLost,
    /// The fill deadline, from which anyone may cancel, is too near to commit to the payout.
    TooLate,
    /// The timelock, from which anyone may refund the lock, is too near for the payout's final answer.
    TimelockNear,
    /// Operators gave the conversion up.
    GivenUp,
}

impl Withheld {
    pub(super) fn failure(self, stage: Stage) -> Failure {
        let (code, message, retryable) = match self {
            Self::FundsGone => {
                ("lock_refunded", "the funds went back to the wallet before the payout", false)
            }
            Self::LockLost => ("lock_lost", "the chain took the lock back before the payout", true),
            Self::TooLate => ("fill_deadline_near", "too little time was left to commit to the payout", true),
            Self::TimelockNear => {
                ("timelock_near", "too little time was left to pay before the funds may be refunded", true)
            }
            Self::GivenUp => ("conversion_given_up", "operators gave the conversion up", false),
        };
        Failure { stage, code: code.to_owned(), message: message.to_owned(), retryable }
    }
}
