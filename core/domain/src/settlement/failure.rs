//! Why a settlement failed.

use serde::{Deserialize, Serialize};

use crate::event::Stage;
use crate::failure_code::FailureCode;

/// Spec section 2.6, Failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub stage: Stage,
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

/// A failure as partners see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownFailure {
    #[serde(flatten)]
    pub failure: Failure,
    /// The service's own code, where the contract's says less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ShownFailure {
    /// The service's own code.
    pub fn exact_code(&self) -> &str {
        self.detail.as_deref().unwrap_or(&self.failure.code)
    }
}

/// The codes that an `intent.failed` may have (spec section 6.1).
const OF_INTENTS: [&str; 4] = [
    "beneficiary_required_for_remittance",
    FailureCode::NoLiquidity.as_str(),
    FailureCode::BelowMinimumOutput.as_str(),
    "beneficiary_account_required_for_fiat_output",
];

impl From<Failure> for ShownFailure {
    fn from(mut failure: Failure) -> Self {
        if failure.stage != Stage::Intent || OF_INTENTS.contains(&failure.code.as_str()) {
            return Self { failure, detail: None };
        }
        let wider = match FailureCode::parse(&failure.code) {
            Some(FailureCode::AboveMaximumInput) => FailureCode::BelowMinimumOutput,
            _ => FailureCode::NoLiquidity,
        };
        let exact = std::mem::replace(&mut failure.code, wider.as_str().to_owned());
        Self { failure, detail: Some(exact) }
    }
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
                (FailureCode::LockRefunded, "the funds went back to the wallet before the payout", false)
            }
            Self::LockLost => (FailureCode::LockLost, "the chain took the lock back before the payout", true),
            Self::TooLate => {
                (FailureCode::FillDeadlineNear, "too little time was left to commit to the payout", true)
            }
            Self::TimelockNear => (
                FailureCode::TimelockNear,
                "too little time was left to pay before the funds may be refunded",
                true,
            ),
            Self::GivenUp => (FailureCode::ConversionGivenUp, "operators gave the conversion up", false),
        };
        Failure { stage, code: code.as_str().to_owned(), message: message.to_owned(), retryable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_that_failed_before_its_legs_has_a_code_of_the_contract() {
        let shown = |stage, code: &str| {
            let failure = Failure { stage, code: code.into(), message: String::new(), retryable: false };
            let shown = ShownFailure::from(failure);
            assert_eq!(shown.exact_code(), code);
            (shown.failure.code.clone(), shown.detail)
        };
        let exact = |code: &str| (code.to_owned(), None);
        let wider = |code: &str, exact: &str| (code.to_owned(), Some(exact.to_owned()));
        for code in OF_INTENTS {
            assert_eq!(shown(Stage::Intent, code), exact(code));
        }
        let dearer = shown(Stage::Intent, "above_maximum_input");
        assert_eq!(dearer, wider("below_minimum_output", "above_maximum_input"));
        for code in ["insufficient_funds", "permit_expired", "chain_halted", "an_operators_code"] {
            assert_eq!(shown(Stage::Intent, code), wider("no_liquidity", code));
        }
        assert_eq!(shown(Stage::Offramp, "conversion_failed"), exact("conversion_failed"));
    }
}
