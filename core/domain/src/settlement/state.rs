//! The states of a settlement.

use serde::{Deserialize, Serialize};

use super::leg::LegKind;
use super::{Conversion, DeskOutcome, Failure, Finality, Leg, LegDone, Lock};
use crate::money::Minor;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// A range order that the market does not meet yet: nothing is reserved or locked, and its terms are not final.
    Resting,
    Accepted,
    /// The lock, or the swap, is requested.
    Locking,
    Converting {
        lock: Option<Lock>,
        leg: Leg,
    },
    /// The chain is requested to commit the lock to the payout. The payout has not been requested.
    Committing {
        lock: Lock,
        offramp: Conversion,
    },
    Paying {
        lock: Option<Lock>,
        offramp: Option<Conversion>,
        leg: Leg,
    },
    /// The timelock was near before the payout's final answer: the funds are released, and the output is owed until it
    /// is paid or the input is returned.
    Owing {
        lock: Lock,
        offramp: Option<Conversion>,
        leg: Leg,
        settle_tx: Option<String>,
        /// The payout's final failure, when it was not paid.
        failure: Option<Failure>,
        /// The order had failed, which was reported, and the bank has made its payment after all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_reopened: bool,
    },
    Releasing {
        lock: Lock,
        offramp: Option<Conversion>,
        payout: LegDone,
    },
    Completed {
        lock: Option<Lock>,
        offramp: Option<Conversion>,
        payout: LegDone,
        settle_tx: Option<String>,
        finality: Option<Finality>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reversal: Option<Box<Reversal>>,
    },
    ConversionFailed {
        lock: Option<Lock>,
        failure: Failure,
        #[serde(default, skip_serializing_if = "DeskOutcome::has_not_executed")]
        desk: DeskOutcome,
    },
    PayoutFailed {
        lock: Option<Lock>,
        offramp: Option<Conversion>,
        failure: Failure,
        /// The funds had been released, and operators returned the input.
        debt_returned: Option<LegDone>,
    },
    Cancelled,
    Expired,
    Failed {
        failure: Failure,
    },
}

/// A payment that was returned after it was paid: the output is owed until it is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reversal {
    /// The rail's reference for the return, and its time.
    pub returned: LegDone,
    /// What came, when the bank has deducted its charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came: Option<Minor>,
    pub failure: Failure,
    pub resolved: Option<Resolved>,
}

impl Reversal {
    /// Whether operators have recorded that the bank took the return back.
    pub fn stands(&self) -> bool {
        self.resolved.as_ref().is_some_and(|resolved| resolved.remedy == Remedy::Stands)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    pub remedy: Remedy,
    pub done: LegDone,
}

/// How operators resolve a returned output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// The beneficiary was paid another way.
    PaidAgain,
    GivenBack,
    /// The bank took the return back: the payment stands.
    Stands,
}

/// The lock in a state, borrowed as the state is.
macro_rules! lock_of {
    ($state:expr, $borrow:ident) => {
        match $state {
            Self::Committing { lock, .. } | Self::Owing { lock, .. } | Self::Releasing { lock, .. } => {
                Some(lock)
            }
            Self::Converting { lock, .. }
            | Self::Paying { lock, .. }
            | Self::Completed { lock, .. }
            | Self::ConversionFailed { lock, .. }
            | Self::PayoutFailed { lock, .. } => lock.$borrow(),
            Self::Resting
            | Self::Accepted
            | Self::Locking
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => None,
        }
    };
}

impl State {
    /// The names of the states in which a settlement has not ended, in their order.
    pub const OPEN_STAGES: [&'static str; 8] =
        ["resting", "accepted", "locking", "converting", "committing", "paying", "owing", "releasing"];

    /// The names of all states.
    pub const NAMES: [&'static str; 15] = [
        "resting",
        "accepted",
        "locking",
        "converting",
        "committing",
        "paying",
        "owing",
        "releasing",
        "completed",
        "reversed",
        "conversion_failed",
        "payout_failed",
        "cancelled",
        "expired",
        "failed",
    ];

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Resting => "resting",
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

    /// Whether it has ended. No event of the feed follows, unless the bank changes its word about the payment.
    pub const fn is_terminal(&self) -> bool {
        match self {
            Self::Resting
            | Self::Accepted
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

    /// Whether the order's output is reserved and it counts as open: it was filled, and its settlement has not ended.
    pub const fn is_open(&self) -> bool {
        !self.is_terminal() && !matches!(self, Self::Resting)
    }

    /// Whether the settlement has ended and its providers keep what they had reserved.
    pub const fn gives_back(&self) -> bool {
        match self {
            Self::Cancelled
            | Self::Expired
            | Self::Failed { .. }
            | Self::ConversionFailed { .. }
            | Self::PayoutFailed { debt_returned: None, .. } => true,
            Self::Resting
            | Self::Accepted
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

    /// Whether its payout has failed, and the rail may turn out to have made it after all: the input was not returned
    /// outside of the service.
    pub const fn may_be_found_paid(&self) -> bool {
        matches!(self, Self::PayoutFailed { debt_returned: None, .. })
    }

    /// Whether the payout's final answer is that it was paid. `None`: no final answer.
    pub const fn taken_for_paid(&self) -> Option<bool> {
        match self {
            Self::Releasing { .. } | Self::Completed { reversal: None, .. } => Some(true),
            Self::PayoutFailed { .. } | Self::Owing { failure: Some(_), .. } => Some(false),
            Self::Resting
            | Self::Accepted
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

    /// The rail's reference for the leg in progress, once it has confirmed the leg.
    pub fn confirmed(&self, leg: LegKind) -> Option<&str> {
        match (leg, self) {
            (
                LegKind::Offramp,
                Self::Converting { leg, .. } | Self::ConversionFailed { desk: DeskOutcome::Asked(leg), .. },
            )
            | (LegKind::Payout, Self::Paying { leg, .. } | Self::Owing { leg, .. }) => {
                leg.provider_reference.as_deref()
            }
            _ => None,
        }
    }

    /// Whether the recipient was paid although the escrow had returned the input, at the service's expense. If that
    /// payment comes back, nothing is owed to the user.
    pub const fn was_paid_by_house(&self) -> bool {
        matches!(self, Self::Completed { lock: Some(lock), settle_tx: None, .. } if lock.refunded)
    }

    /// The lock, once it exists.
    pub const fn lock(&self) -> Option<&Lock> {
        lock_of!(self, as_ref)
    }

    pub(super) const fn lock_mut(&mut self) -> Option<&mut Lock> {
        lock_of!(self, as_mut)
    }

    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::ConversionFailed { failure, .. }
            | Self::PayoutFailed { failure, .. }
            | Self::Failed { failure } => Some(failure),
            Self::Completed { reversal: Some(reversal), .. } => Some(&reversal.failure),
            Self::Resting
            | Self::Accepted
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
