//! One step of a settlement, retried after a concurrent change.

use std::time::Duration;

use dvp_domain::settlement::Happened;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_store::orders::executions::Execution;
use dvp_store::workers::{self, Step};
use metrics::{counter, histogram};
use tracing::{Instrument as _, debug, debug_span, info};

use super::failed::Failed;
use crate::engine::Engine;
use crate::trace::SPANS;
use crate::writer::{Change, Consumed, Unit, WriteError};

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
    let step = if consumed.fact.is_some() { Step::FactWrite } else { Step::EffectWrite };
    workers::at(step, &execution.terms.reference).await?;
    let Execution { terms, state, version, last_sequence, last_occurred_at } = execution;
    let (from, event) = (state.name(), happened.name());
    let since = [terms.accepted_at, last_occurred_at];
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
    let ends = !state.is_terminal() && step.as_ref().is_some_and(|step| step.next.is_terminal());
    let was_open = state.is_open();
    let change =
        Change { terms, version, last_sequence, last_occurred_at, step, consumed, was_open, was_held: false };
    let writing = engine.writer.write_patiently(Unit::of_settlement(change, is_suspect));
    match writing.instrument(debug_span!(target: SPANS, "commit")).await {
        Ok(_) => {
            if let Some(to) = to {
                info!(from, event, to, "settlement state changed");
                count(engine.now(), since, (from, to), ends);
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

/// Records a committed step: how long after the order's last event it left its stage, and, at its end, how long after
/// its acceptance.
fn count(
    now: Timestamp,
    [accepted, last_event]: [Timestamp; 2],
    (from, to): (&'static str, &'static str),
    ends: bool,
) {
    let since =
        |at: Timestamp| Duration::from_millis(now.millis().saturating_sub(at.millis()).max(0).unsigned_abs());
    if from != to {
        histogram!("dvp_order_stage_seconds", "stage" => from).record(since(last_event));
        counter!("dvp_order_steps_total", "stage" => from, "next" => to).increment(1);
    }
    if ends {
        counter!("dvp_orders_ended_total", "outcome" => to).increment(1);
        histogram!("dvp_order_settlement_seconds", "outcome" => to).record(since(accepted));
    }
}

/// The account a rail pays to.
pub(super) fn account(terms: &Terms) -> String {
    terms.request.beneficiary.as_ref().and_then(|b| b.account()).unwrap_or_default().to_owned()
}
