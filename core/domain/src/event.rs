//! The types of the feed's events, and the phase and state that each shows (spec sections 2.8, 3.1 and 3.2).

use serde::{Deserialize, Serialize};

use crate::names::names;

/// The schema version of event payloads.
pub const API_VERSION: &str = "2026-11-01";

names! {
    pub enum EventType {
        IntentAccepted = "intent.accepted",
        OfframpInitiated = "offramp.initiated",
        OfframpInProgress = "offramp.in_progress",
        OfframpCompleted = "offramp.completed",
        OfframpFailed = "offramp.failed",
        PayoutInitiated = "payout.initiated",
        PayoutInProgress = "payout.in_progress",
        PayoutCompleted = "payout.completed",
        PayoutFailed = "payout.failed",
        PayoutReversed = "payout.reversed",
        IntentCancelled = "intent.cancelled",
        IntentExpired = "intent.expired",
        IntentFailed = "intent.failed",
    }
}

names! {
    /// The phases of an intent (spec section 3.1), which are also the stages at which one fails (section 2.6).
    pub enum Stage {
        Intent = "intent",
        Offramp = "offramp",
        Payout = "payout",
    }
}

/// The five states of a phase (spec section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseState {
    Initiated,
    InProgress,
    Completed,
    Failed,
    Reversed,
}

impl PhaseState {
    /// The service will not advance the phase.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Initiated | Self::InProgress => false,
            Self::Completed | Self::Failed | Self::Reversed => true,
        }
    }
}

impl EventType {
    /// Whether no more events follow for the intent, except `payout.reversed` when the bank returns a payment.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::OfframpFailed
            | Self::PayoutCompleted
            | Self::PayoutFailed
            | Self::PayoutReversed
            | Self::IntentCancelled
            | Self::IntentExpired
            | Self::IntentFailed => true,
            Self::IntentAccepted
            | Self::OfframpInitiated
            | Self::OfframpInProgress
            | Self::OfframpCompleted
            | Self::PayoutInitiated
            | Self::PayoutInProgress => false,
        }
    }

    /// Whether the payout was carried out, for which the fees are charged. A payment that the bank returned was.
    pub const fn is_paid(self) -> bool {
        match self {
            Self::PayoutCompleted | Self::PayoutReversed => true,
            Self::IntentAccepted
            | Self::OfframpInitiated
            | Self::OfframpInProgress
            | Self::OfframpCompleted
            | Self::OfframpFailed
            | Self::PayoutInitiated
            | Self::PayoutInProgress
            | Self::PayoutFailed
            | Self::IntentCancelled
            | Self::IntentExpired
            | Self::IntentFailed => false,
        }
    }

    /// Phase and state as the status resource shows them. The intent phase stays `initiated` when it is accepted; an
    /// early end changes it to `failed`.
    pub const fn phase_state(self) -> (Stage, PhaseState) {
        match self {
            Self::IntentAccepted => (Stage::Intent, PhaseState::Initiated),
            Self::IntentCancelled | Self::IntentExpired | Self::IntentFailed => {
                (Stage::Intent, PhaseState::Failed)
            }
            Self::OfframpInitiated => (Stage::Offramp, PhaseState::Initiated),
            Self::OfframpInProgress => (Stage::Offramp, PhaseState::InProgress),
            Self::OfframpCompleted => (Stage::Offramp, PhaseState::Completed),
            Self::OfframpFailed => (Stage::Offramp, PhaseState::Failed),
            Self::PayoutInitiated => (Stage::Payout, PhaseState::Initiated),
            Self::PayoutInProgress => (Stage::Payout, PhaseState::InProgress),
            Self::PayoutCompleted => (Stage::Payout, PhaseState::Completed),
            Self::PayoutFailed => (Stage::Payout, PhaseState::Failed),
            Self::PayoutReversed => (Stage::Payout, PhaseState::Reversed),
        }
    }
}
