//! One step of a settlement, tried anew when another writer was faster.

use dvp_domain::settlement::{Happened, Terms};
use dvp_store::orders::executions::Execution;
use tracing::{debug, info};

use super::putting_off::Failed;
use crate::context::now;
use crate::engine::Engine;
use crate::writer::{Change, Consumed, Unit, WriteError};

/// What became of something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepResult {
    Stepped,
    /// It does not apply to the state (any more); it was consumed and nothing changed.
    Ignored,
    /// The settlement moved meanwhile: load it again.
    Stale,
}

/// Steps a settlement by `happened` and consumes what led to it in the same transaction. `is_suspect`: an earlier
/// attempt failed because of what was to be written.
pub(super) async fn take(
    engine: &Engine,
    execution: Execution,
    happened: Happened,
    consumed: Consumed,
    is_suspect: bool,
) -> Result<StepResult, Failed> {
    let Execution { terms, state, version, last_sequence, last_occurred_at } = execution;
    let (from, event) = (state.name(), happened.name());
    let happened = happened.between(last_occurred_at, now());
    let step = match state.clone().step(&terms, happened) {
        // It was taken in before, by a commit that was not acknowledged: there is nothing left but to consume it.
        Ok(step) if step.next == state && step.events.is_empty() && step.effects.is_empty() => None,
        Ok(step) => Some(step),
        Err(illegal) => {
            debug!(%illegal, "ignored");
            None
        }
    };
    let to = step.as_ref().map(|step| step.next.name());
    let change = Change { terms, version, last_sequence, last_occurred_at, step, consumed };
    match engine.writer.write_patiently(Unit::of_settlement(change, is_suspect)).await {
        Ok(_) => {
            if let Some(to) = to {
                info!(from, event, to, "settlement state changed");
            }
            Ok(if to.is_some() { StepResult::Stepped } else { StepResult::Ignored })
        }
        Err(WriteError::Stale { .. }) => Ok(StepResult::Stale),
        Err(WriteError::Store(error)) => Err(Failed::Unwritable(error.to_string())),
        // Who keeps a row locked would hold up every batch that it is in.
        Err(WriteError::Slow(why)) => Err(Failed::Unwritable(why.to_string())),
        Err(error @ (WriteError::Busy | WriteError::Stopped | WriteError::Unavailable(_))) => {
            Err(Failed::Later(error.into()))
        }
    }
}

/// The account a rail pays to.
pub(super) fn account(terms: &Terms) -> String {
    terms.request.beneficiary.as_ref().and_then(|b| b.account()).unwrap_or_default().to_owned()
}
