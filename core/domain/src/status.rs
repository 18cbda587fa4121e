//! The execution status resource (spec section 2.6).

use serde::Serialize;

use crate::event::{EventType, PhaseState, Stage};
use crate::names::names;
use crate::settlement::{Failure, Finality, ShownFailure, State};
use crate::terms::Terms;
use crate::time::Timestamp;

names! {
    pub enum ExecutionStatus {
        InProgress = "in_progress",
        Completed = "completed",
        Failed = "failed",
    }
}

impl ExecutionStatus {
    /// The status of an execution whose last event this is.
    pub const fn after(last: EventType) -> Self {
        match last {
            EventType::PayoutCompleted => Self::Completed,
            EventType::OfframpFailed
            | EventType::PayoutFailed
            | EventType::PayoutReversed
            | EventType::IntentCancelled
            | EventType::IntentExpired
            | EventType::IntentFailed => Self::Failed,
            EventType::IntentAccepted
            | EventType::OfframpInitiated
            | EventType::OfframpInProgress
            | EventType::OfframpCompleted
            | EventType::PayoutInitiated
            | EventType::PayoutInProgress => Self::InProgress,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionView {
    pub client_reference: Option<String>,
    pub reference: String,
    pub provider_reference: Option<String>,
    pub status: ExecutionStatus,
    pub phase: Stage,
    pub events: Vec<EventEntry>,
    pub failure: Option<ShownFailure>,
    pub finality: Option<Finality>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventEntry {
    pub phase: Stage,
    pub state: PhaseState,
    pub occurred_at: String,
    pub observed_at: String,
    pub is_terminal: bool,
    pub is_reversible: bool,
}

/// An event as it was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recorded {
    pub kind: EventType,
    pub occurred_at: Timestamp,
    pub observed_at: Timestamp,
}

impl EventEntry {
    pub fn of(recorded: &Recorded) -> Self {
        let (phase, state) = recorded.kind.phase_state();
        Self {
            phase,
            state,
            occurred_at: recorded.occurred_at.iso8601(),
            observed_at: recorded.observed_at.iso8601(),
            is_terminal: state.is_terminal(),
            is_reversible: phase == Stage::Payout && state == PhaseState::Completed,
        }
    }
}

/// The status of an execution with its recorded events, oldest first.
pub fn view(terms: &Terms, state: &State, recorded: &[Recorded]) -> ExecutionView {
    ExecutionView {
        client_reference: terms.request.client_reference.clone(),
        reference: terms.reference.to_string(),
        provider_reference: provider_reference(state),
        status: aggregate(state),
        phase: recorded.last().map_or(Stage::Intent, |last| last.kind.phase_state().0),
        events: recorded.iter().map(EventEntry::of).collect(),
        failure: failure(state),
        finality: match state {
            State::Completed { finality, .. } => finality.clone(),
            _ => None,
        },
    }
}

fn aggregate(state: &State) -> ExecutionStatus {
    match state {
        State::Resting
        | State::Accepted
        | State::Locking
        | State::Converting { .. }
        | State::Committing { .. }
        | State::Paying { .. }
        | State::Owing { .. }
        | State::Releasing { .. } => ExecutionStatus::InProgress,
        State::Completed { reversal: None, .. } => ExecutionStatus::Completed,
        State::Completed { .. }
        | State::ConversionFailed { .. }
        | State::PayoutFailed { .. }
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => ExecutionStatus::Failed,
    }
}

/// The reason of a failed, cancelled or expired execution, which always has one.
fn failure(state: &State) -> Option<ShownFailure> {
    let ended = |code: &str, message: &str| {
        let (code, message) = (code.into(), message.into());
        let failure = Failure { stage: Stage::Intent, code, message, retryable: false };
        Some(ShownFailure { failure, detail: None })
    };
    match state {
        State::Cancelled => ended("cancelled", "cancelled before the funds were locked"),
        State::Expired => ended("expired", "the deadline passed before the funds were locked"),
        other => other.failure().cloned().map(ShownFailure::from),
    }
}

fn provider_reference(state: &State) -> Option<String> {
    match state {
        State::Releasing { payout, .. } | State::Completed { payout, .. } => {
            Some(payout.provider_reference.clone())
        }
        State::Paying { leg, .. } | State::Owing { leg, .. } => leg.provider_reference.clone(),
        State::Converting { leg, .. } => leg.provider_reference.clone(),
        _ => None,
    }
}
