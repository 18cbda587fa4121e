//! One step of a settlement, retried after a concurrent change.

use dvp_domain::settlement::Happened;
use dvp_domain::terms::Terms;
use dvp_store::orders::executions::Execution;
use tracing::{debug, info};

use super::putting_off::Failed;
use crate::engine::Engine;
use crate::writer::{Change, Consumed, Unit, WriteError};

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepResult {
    Stepped,
    /// The event does not apply to the present state; it was consumed and nothing changed.
    Ignored,
    /// The settlement changed concurrently: load it again.
    Stale,
}

/// Steps a settlement by `happened` and consumes its cause in the same transaction. `is_suspect`: an earlier attempt
/// could not be written.
pub(super) async fn take(
    engine: &Engine,
    execution: Execution,
    happened: Happened,
    consumed: Consumed,
    is_suspect: bool,
) -> Result<StepResult, Failed> {
    let Execution { terms, state, version, last_sequence, last_occurred_at } = execution;
    let (from, event) = (state.name(), happened.name());
    let happened = happened.between(last_occurred_at, engine.now());
    let step = match state.clone().step(&terms, happened) {
        // A commit that was not acknowledged has already applied it: it only has to be consumed.
        Ok(step) if step.next == state && step.events.is_empty() && step.effects.is_empty() => None,
        Ok(step) => Some(step),
        Err(illegal) => {
            debug!(%illegal, "ignored");
            None
        }
    };
    let to = step.as_ref().map(|step| step.next.name());
    let was_open = !state.is_terminal();
    let change = Change { terms, version, last_sequence, last_occurred_at, step, consumed, was_open };
    match engine.writer.write_patiently(Unit::of_settlement(change, is_suspect)).await {
        Ok(_) => {
            if let Some(to) = to {
                info!(from, event, to, "settlement state changed");
            }
            Ok(if to.is_some() { StepResult::Stepped } else { StepResult::Ignored })
        }
        Err(WriteError::Stale { .. }) => Ok(StepResult::Stale),
        Err(WriteError::Store(error)) => Err(Failed::Unwritable(error.to_string())),
        // A locked row would delay every batch that contains it.
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
