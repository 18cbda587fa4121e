//! Due effects: timers, and calls of the rails.
//!
//! A claim commits `called` before a rail is called. Whoever finds a claim that was called before asks the rail by
//! reference first: only proof that the call never arrived lets it be made again.

use std::sync::Arc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use dvp_domain::canonical::sha256;
use dvp_domain::settlement::{Happened, RailAnswer};
use futures_util::future::join_all;
use tokio::sync::watch;
use tracing::{Instrument, info, info_span, warn};

use super::step::{Taken, account, awaits_offramp, awaits_payout, take};
use super::{BACK_OFF, POLL, Wake};
use crate::context::now;
use crate::engine::{Engine, EngineError};
use crate::rails::{LegKind, Rail, RailError, RailRequest, RailStatus};
use crate::store::StoreError;
use crate::store::effects::{self, Claimed, EffectEnd, EffectKind, EndedEffect};
use crate::store::executions::{self, Execution};
use crate::writer::Consumed;

/// How long a claim is this process's own.
const LEASE_SECS: i32 = 30;
/// Effects claimed at a time.
const CLAIM: i64 = 128;
/// How long a rail may take to answer.
const RAIL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a call it may still take effect: longer than the rail may take to answer it.
const IN_FLIGHT_SECS: i32 = 12;
/// How often a leg under way is asked for.
const ASK_AGAIN_MS: i64 = 500;
/// Back-off of a rail that is down: doubled at each attempt up to the longest.
const RETRY_MS: i64 = 250;
const RETRY_MAX_MS: i64 = 60_000;

pub(super) struct Rails {
    pub offramp: Arc<dyn Rail>,
    pub payout: Arc<dyn Rail>,
}

pub(super) async fn run(engine: &Engine, rails: &Rails, stop: watch::Receiver<bool>) {
    let mut wake = Wake::new(engine, "dvp_feed", stop).await;
    loop {
        let pause = match carry_out_due(engine, rails).await {
            Ok(pause) => pause,
            Err(error) => {
                warn!(%error, "effects are not carried out; trying again");
                BACK_OFF
            }
        };
        if !wake.wait(pause).await {
            return;
        }
        if wake.listener.is_none() {
            wake.listen(engine).await;
        }
    }
}

/// Carries out what is due and returns how long there may be nothing to do.
async fn carry_out_due(engine: &Engine, rails: &Rails) -> Result<Duration, EngineError> {
    loop {
        let mut conn = engine.pool.acquire().await?;
        let claimed = effects::claim(&mut conn, LEASE_SECS, IN_FLIGHT_SECS, CLAIM).await?;
        if claimed.is_empty() {
            let next = effects::find_next_due(&mut conn).await?;
            let wait = next.and_then(|at| at.signed_duration_since(Utc::now()).to_std().ok());
            return Ok(wait.unwrap_or(POLL).min(POLL));
        }
        drop(conn);
        join_all(claimed.into_iter().map(|claim| carry_out_logged(engine, rails, claim))).await;
    }
}

/// A failure leaves the claim to run out; it is taken up again then.
async fn carry_out_logged(engine: &Engine, rails: &Rails, claim: Claimed) {
    let (id, kind) = (claim.id, claim.kind);
    if let Err(error) = carry_out(engine, rails, claim).await {
        warn!(%error, id, kind = kind.as_str(), "effect not carried out");
    }
}

async fn carry_out(engine: &Engine, rails: &Rails, claim: Claimed) -> Result<(), EngineError> {
    loop {
        let mut conn = engine.pool.acquire().await?;
        let Some(execution) = executions::find_by_reference(&mut conn, &claim.reference).await? else {
            return Err(EngineError::Corrupt(format!("effect {} has no execution", claim.id)));
        };
        drop(conn);
        let span = info_span!(
            "effect",
            intent_id = %execution.terms.request.intent_id,
            reference = %execution.terms.reference,
            kind = claim.kind.as_str(),
        );
        let taken = match claim.kind {
            EffectKind::Lock => {
                let deadline = execution.terms.request.deadline;
                let happened = if now() < deadline {
                    Happened::LockDue
                } else {
                    Happened::DeadlinePassed { at: deadline }
                };
                end_with(engine, execution, happened, &claim).instrument(span).await?
            }
            EffectKind::Offramp => {
                call(engine, rails, execution, LegKind::Offramp, &claim).instrument(span).await?
            }
            EffectKind::Payout => {
                call(engine, rails, execution, LegKind::Payout, &claim).instrument(span).await?
            }
        };
        if taken != Taken::Stale {
            return Ok(());
        }
    }
}

async fn end_with(
    engine: &Engine,
    execution: Execution,
    happened: Happened,
    claim: &Claimed,
) -> Result<Taken, EngineError> {
    take(engine, execution, happened, consumed(claim, EffectEnd::Done)).await
}

fn consumed(claim: &Claimed, end: EffectEnd) -> Consumed {
    Consumed { fact: None, effect: Some(EndedEffect { id: claim.id, fence: claim.fence, end }) }
}

async fn call(
    engine: &Engine,
    rails: &Rails,
    execution: Execution,
    leg: LegKind,
    claim: &Claimed,
) -> Result<Taken, EngineError> {
    let (rail, wanted) = match leg {
        LegKind::Offramp => (&rails.offramp, awaits_offramp(&execution.state)),
        LegKind::Payout => (&rails.payout, awaits_payout(&execution.state)),
    };
    if !wanted {
        return end(engine, claim, EffectEnd::Done).await;
    }
    let request = rail_request(&execution, leg);
    let heard = tokio::time::timeout(RAIL_TIMEOUT, ask(engine, rail.as_ref(), &request, claim))
        .await
        .unwrap_or(Err(RailError::Unconfirmed));
    let at = now();
    let answer = match heard {
        Ok(answer) => answer,
        Err(RailError::Down(why)) => {
            // Down at the first call proves that nothing happened; down at a question proves nothing.
            let end_at =
                EffectEnd::Again { at: Utc::now() + back_off(claim.attempts), called: claim.called_before };
            info!(%why, attempt = claim.attempts, "rail down; called again later");
            return end(engine, claim, end_at).await;
        }
        Err(RailError::Unconfirmed) => {
            let soon = TimeDelta::milliseconds(ASK_AGAIN_MS).max(back_off(claim.attempts) / 4);
            let at = Utc::now() + soon;
            info!(attempt = claim.attempts, "outcome unconfirmed; the rail will be asked");
            return end(engine, claim, EffectEnd::Again { at, called: true }).await;
        }
    };
    let ends = match &answer {
        RailAnswer::InProgress { .. } => {
            EffectEnd::Again { at: Utc::now() + TimeDelta::milliseconds(ASK_AGAIN_MS), called: true }
        }
        RailAnswer::Done(_) | RailAnswer::Failed { .. } => EffectEnd::Done,
    };
    let happened = match leg {
        LegKind::Offramp => Happened::Offramp { answer, at },
        LegKind::Payout => Happened::Payout { answer, at },
    };
    take_answer(engine, execution, &happened, consumed(claim, ends)).await
}

/// Steps by what the rail answered. When the settlement moved meanwhile the answer is taken in again: the rail is not
/// called again for it.
async fn take_answer(
    engine: &Engine,
    mut execution: Execution,
    happened: &Happened,
    consumed: Consumed,
) -> Result<Taken, EngineError> {
    loop {
        let reference = execution.terms.reference.to_string();
        let taken = take(engine, execution, happened.clone(), consumed.clone()).await?;
        if taken != Taken::Stale {
            return Ok(taken);
        }
        let mut conn = engine.pool.acquire().await?;
        let found = executions::find_by_reference(&mut conn, &reference).await?;
        execution = found.ok_or_else(|| EngineError::Corrupt(format!("execution {reference} is gone")))?;
    }
}

/// Calls the rail, or asks it first when an earlier call may have arrived.
async fn ask(
    engine: &Engine,
    rail: &dyn Rail,
    request: &RailRequest,
    claim: &Claimed,
) -> Result<RailAnswer, RailError> {
    if claim.called_before {
        match rail.status(request).await? {
            RailStatus::Known(answer) => return Ok(answer),
            // Not yet: it may still be on its way.
            RailStatus::NeverSeen if claim.in_flight => return Err(RailError::Unconfirmed),
            RailStatus::NeverSeen => info!("the rail has never seen the call; it is made"),
        }
        let unmarked = |error: StoreError| RailError::Down(error.to_string());
        let mut conn = engine.pool.acquire().await.map_err(|error| unmarked(error.into()))?;
        if !effects::mark_called(&mut conn, claim.id, claim.fence).await.map_err(unmarked)? {
            return Err(RailError::Unconfirmed);
        }
    }
    rail.submit(request).await
}

async fn end(engine: &Engine, claim: &Claimed, end: EffectEnd) -> Result<Taken, EngineError> {
    let mut conn = engine.pool.acquire().await?;
    effects::end(&mut conn, &[EndedEffect { id: claim.id, fence: claim.fence, end }]).await?;
    Ok(Taken::Ignored)
}

fn rail_request(execution: &Execution, leg: LegKind) -> RailRequest {
    let terms = &execution.terms;
    let amount = match leg {
        LegKind::Offramp => terms.plan.priced.gross_output,
        LegKind::Payout => terms.plan.priced.output,
    };
    RailRequest {
        leg,
        reference: hex::encode(sha256(&format!("{}:{}", terms.reference, leg.as_str()))),
        account: account(terms),
        amount,
        currency: terms.output.asset.clone(),
        not_after: Utc::now() + RAIL_TIMEOUT,
    }
}

fn back_off(attempts: i32) -> TimeDelta {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(10);
    TimeDelta::milliseconds(RETRY_MS.saturating_mul(1 << doublings).min(RETRY_MAX_MS))
}
