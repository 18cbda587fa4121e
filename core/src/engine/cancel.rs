//! Cancellation of an accepted execution.

use dvp_domain::screening::ScreeningResult;
use dvp_domain::settlement::{Happened, IllegalTransition, State};
use dvp_store::chain::commands;
use dvp_store::orders::executions::{self, RefType};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::screenings;
use tracing::{info, info_span};

use super::error::EngineError;
use super::knowledge::may_have_begun_there;
use super::{Engine, flow};
use crate::writer::{Change, Consumed, FixPart, Unit, Work, WriteError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    Cancelled,
    /// The lock is part of a signed transaction, a later one of its wallet waits behind it, or a rail was called.
    TooLate,
    Unknown,
}

/// How often a step is retried after a concurrent change.
const STEP_ATTEMPTS: usize = 8;

impl Engine {
    /// Cancels an execution whose lock is in no signed transaction yet, and of which no rail was called. The FIX part is
    /// rendered from `Outcome::Written` when the cancellation succeeded; otherwise the caller renders it.
    pub async fn cancel(
        &self,
        tenant: &Tenant,
        reference: &str,
        fix: Option<FixPart>,
    ) -> Result<CancelOutcome, EngineError> {
        let mut was_stale = false;
        for _ in 0..STEP_ATTEMPTS {
            let mut conn = self.pool.acquire().await?;
            let named = RefType::ExecutionId;
            let found = executions::find_for_tenant(&mut conn, tenant, named, reference).await?;
            let Some(found) = found else { return Ok(CancelOutcome::Unknown) };
            let was_held = found.state == State::Accepted
                && screenings::find_latest(&mut conn, found.terms.reference.as_str()).await?
                    == Some(ScreeningResult::Hold);
            let is_signed = found.state == State::Locking
                && !commands::can_withdraw_lock(&mut conn, found.terms.reference.as_str()).await?;
            drop(conn);
            if is_signed {
                info!(
                    reference,
                    "too late to cancel: the lock is signed, or a later one of its wallet waits"
                );
                return Ok(CancelOutcome::TooLate);
            }
            let is_before = matches!(found.state, State::Accepted | State::Resting | State::Locking);
            if is_before && may_have_begun_there(self, &found).await? {
                info!(
                    reference,
                    "too late to cancel: the order has begun on its chain, or chain and rails are not read yet"
                );
                return Ok(CancelOutcome::TooLate);
            }
            let span = info_span!("cancel", intent_id = %found.terms.request.intent_id, reference);
            let was_open = found.state.is_open();
            let step = match found.state.step(&found.terms, Happened::CancelRequested) {
                Ok(step) => step,
                // The cancellation is our own attempt whose commit was not acknowledged, or another one: the execution
                // is cancelled in both cases. A FIX session's numbers show which.
                Err(illegal) if was_stale && fix.is_none() && illegal.state == State::Cancelled.name() => {
                    return Ok(CancelOutcome::Cancelled);
                }
                Err(IllegalTransition { state, .. }) => {
                    span.in_scope(|| info!(state, "too late to cancel"));
                    return Ok(CancelOutcome::TooLate);
                }
            };
            let change = Change {
                terms: found.terms,
                version: found.version,
                last_sequence: found.last_sequence,
                last_occurred_at: found.last_occurred_at,
                step: Some(step),
                consumed: Consumed::default(),
                was_open,
                was_held,
            };
            let unit = Unit {
                flow: flow(tenant.clone(), fix.as_ref()),
                work: Work::Step(Box::new(change)),
                idempotency: None,
                fix: fix.clone(),
            };
            let pending = span.in_scope(|| self.queue(unit)).await?;
            match pending.await.unwrap_or(Err(WriteError::Stopped)) {
                Ok(_) => {
                    span.in_scope(|| info!("cancelled"));
                    return Ok(CancelOutcome::Cancelled);
                }
                Err(WriteError::Stale { .. }) => was_stale = true,
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Busy)
    }
}
