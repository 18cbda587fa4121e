//! Where a settlement stands.

use serde::{Deserialize, Serialize};

use super::leg::LegKind;
use super::{Failure, Finality, Leg, LegDone, Lock};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Accepted,
    /// The lock, or the swap, is asked for.
    Locking,
    Converting {
        lock: Option<Lock>,
        leg: Leg,
    },
    /// The chain is asked to commit the lock to the payout. Nobody has been asked to pay.
    Committing {
        lock: Lock,
        offramp: LegDone,
    },
    Paying {
        lock: Option<Lock>,
        offramp: Option<LegDone>,
        leg: Leg,
    },
    /// The timelock came near before the payout's final word: the funds are released, and the output is owed until it
    /// is paid or the input is given back.
    Owing {
        lock: Lock,
        offramp: Option<LegDone>,
        leg: Leg,
        settle_tx: Option<String>,
        /// The payout's final word, when it was not paid.
        failure: Option<Failure>,
    },
    Releasing {
        lock: Lock,
        offramp: Option<LegDone>,
        payout: LegDone,
    },
    Completed {
        lock: Option<Lock>,
        offramp: Option<LegDone>,
        payout: LegDone,
        settle_tx: Option<String>,
        finality: Option<Finality>,
        /// The payment came back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reversal: Option<Box<Reversal>>,
    },
    ConversionFailed {
        lock: Option<Lock>,
        failure: Failure,
    },
    PayoutFailed {
        lock: Option<Lock>,
        offramp: Option<LegDone>,
        failure: Failure,
        /// The funds had been released, and operators gave the input back.
        debt_returned: Option<LegDone>,
    },
    Cancelled,
    Expired,
    Failed {
        failure: Failure,
    },
}

/// A payment that came back after it was paid: the output is owed until it is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reversal {
    /// What the rail calls the return, and when it came.
    pub returned: LegDone,
    pub failure: Failure,
    pub resolved: Option<Resolved>,
}

/// How a reversal was resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    pub remedy: Remedy,
    pub done: LegDone,
}

/// What becomes of an output that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// The beneficiary was paid another way.
    PaidAgain,
    /// The input was given back.
    GivenBack,
}

impl State {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Locking => "locking",
            Self::Converting { .. } => "converting",
            Self::Committing { .. } => "committing",
            Self::Paying { .. } => "paying",
            Self::Owing { .. } => "owing",
            Self::Releasing { .. } => "releasing",
            Self::Completed { reversal: Some(_), .. } => "reversed",
            Self::Completed { .. } => "completed",
            Self::ConversionFailed { .. } => "conversion_failed",
            Self::PayoutFailed { .. } => "payout_failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Failed { .. } => "failed",
        }
    }

    /// No event of the feed follows.
    pub const fn is_terminal(&self) -> bool {
        match self {
            Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Committing { .. }
            | Self::Paying { .. }
            | Self::Owing { .. }
            | Self::Releasing { .. } => false,
            Self::Completed { .. }
            | Self::ConversionFailed { .. }
            | Self::PayoutFailed { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => true,
        }
    }

    /// The settlement has ended, and its providers keep what they had promised.
    pub const fn gives_back(&self) -> bool {
        match self {
            Self::Cancelled
            | Self::Expired
            | Self::Failed { .. }
            | Self::ConversionFailed { .. }
            | Self::PayoutFailed { debt_returned: None, .. } => true,
            Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Committing { .. }
            | Self::Paying { .. }
            | Self::Owing { .. }
            | Self::Releasing { .. }
            | Self::Completed { .. }
            | Self::PayoutFailed { debt_returned: Some(_), .. } => false,
        }
    }

    /// Whether the payout has its final word, and that it was paid. `None`: it has none.
    pub const fn taken_for_paid(&self) -> Option<bool> {
        match self {
            Self::Releasing { .. } | Self::Completed { reversal: None, .. } => Some(true),
            Self::PayoutFailed { .. } | Self::Owing { failure: Some(_), .. } => Some(false),
            Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Committing { .. }
            | Self::Paying { .. }
            | Self::Owing { failure: None, .. }
            | Self::Completed { .. }
            | Self::ConversionFailed { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => None,
        }
    }

    /// What the rail calls the leg under way, once it has confirmed that it has it.
    pub fn confirmed(&self, leg: LegKind) -> Option<&str> {
        match (leg, self) {
            (LegKind::Offramp, Self::Converting { leg, .. })
            | (LegKind::Payout, Self::Paying { leg, .. } | Self::Owing { leg, .. }) => {
                leg.provider_reference.as_deref()
            }
            _ => None,
        }
    }

    /// The lock, once it exists.
    pub const fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Committing { lock, .. } | Self::Owing { lock, .. } | Self::Releasing { lock, .. } => {
                Some(lock)
            }
            Self::Converting { lock, .. }
            | Self::Paying { lock, .. }
            | Self::Completed { lock, .. }
            | Self::ConversionFailed { lock, .. }
            | Self::PayoutFailed { lock, .. } => lock.as_ref(),
            Self::Accepted | Self::Locking | Self::Cancelled | Self::Expired | Self::Failed { .. } => None,
        }
    }

    pub(super) const fn lock_mut(&mut self) -> Option<&mut Lock> {
        match self {
            Self::Committing { lock, .. } | Self::Owing { lock, .. } | Self::Releasing { lock, .. } => {
                Some(lock)
            }
            Self::Converting { lock, .. }
            | Self::Paying { lock, .. }
            | Self::Completed { lock, .. }
            | Self::ConversionFailed { lock, .. }
            | Self::PayoutFailed { lock, .. } => lock.as_mut(),
            Self::Accepted | Self::Locking | Self::Cancelled | Self::Expired | Self::Failed { .. } => None,
        }
    }

    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::ConversionFailed { failure, .. }
            | Self::PayoutFailed { failure, .. }
            | Self::Failed { failure } => Some(failure),
            Self::Completed { reversal: Some(reversal), .. } => Some(&reversal.failure),
            Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Committing { .. }
            | Self::Paying { .. }
            | Self::Owing { .. }
            | Self::Releasing { .. }
            | Self::Completed { .. }
            | Self::Cancelled
            | Self::Expired => None,
        }
    }
}
