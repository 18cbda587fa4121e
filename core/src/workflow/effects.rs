//! Due effects: timers and rail calls.
//!
//! A claim commits `called` before a rail is called. A worker that finds `called` set queries the rail by reference
//! first: only proof that the call never arrived allows a second call. The rules are in
//! [`leg`](dvp_domain::settlement::leg); this module executes them. A slow rail delays only its own calls.

mod call;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::pause::Pauses;
use dvp_domain::settlement::leg::IN_FLIGHT_SECS;
use dvp_domain::settlement::{Happened, LegDone};
use dvp_rails::{LegKind, Rail};
use dvp_store::orders::effects::{
    self, Claimed, EffectEnd, EffectKind, EndedEffect, ManualResolution, Rooms,
};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::pauses;
use metrics::counter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument, error, info_span, warn};

use self::call::{Call, UNENDED_MS, in_ms};
use super::putting_off::{Failed, PutOff};
use super::screened::{Beginning, screened};
use super::step::{StepResult, take};
use super::{BACK_OFF, POLL, Wake};
use crate::engine::{Engine, EngineError};
use crate::writer::Consumed;

/// The lease of a claim.
const LEASE_SECS: i32 = 30;

/// Effects in progress at a time, of each kind: a rail that hangs takes the places of its own leg only.
const PLACES: i64 = 128;

/// The time limit of a rail's answer.
const RAIL_TIMEOUT: Duration = Duration::from_secs(10);

const _: () = assert!(
    RAIL_TIMEOUT.as_secs() < IN_FLIGHT_SECS.unsigned_abs() as u64,
    "a call may take effect for as long as the rail may take to answer it"
);

const _: () =
    assert!(IN_FLIGHT_SECS < LEASE_SECS, "a call ends within its claim, which nobody else takes before");

#[derive(Clone)]
pub(super) struct Rails {
    pub offramp: Arc<dyn Rail>,
    pub payout: Arc<dyn Rail>,
}

pub(super) async fn run(engine: &Engine, rails: &Rails, stop: watch::Receiver<bool>) {
    let mut wake = Wake::new(engine, &["dvp_feed"], stop).await;
    let mut in_hand = InHand::default();
    loop {
        let pause = match take_up_due(engine, rails, &mut in_hand).await {
            Ok(pause) => pause,
            Err(error) => {
                warn!(%error, "effect poll failed, will retry");
                BACK_OFF
            }
        };
        let full = in_hand.is_full();
        let go_on = tokio::select! {
            go_on = wake.wait(pause) => go_on,
            () = in_hand.join_one(), if full => !wake.stopped(),
        };
        if !go_on {
            in_hand.join_all().await;
            return;
        }
        wake.listen().await;
    }
}

/// The effects in progress.
#[derive(Default)]
struct InHand {
    own: JoinSet<()>,
    offramp: JoinSet<()>,
    payout: JoinSet<()>,
}

impl InHand {
    const fn of(&mut self, kind: EffectKind) -> &mut JoinSet<()> {
        match kind {
            EffectKind::Lock | EffectKind::Reversal => &mut self.own,
            EffectKind::Offramp => &mut self.offramp,
            EffectKind::Payout => &mut self.payout,
        }
    }

    /// The free places, after the tasks that have ended are gone.
    fn rooms(&mut self) -> Rooms {
        let room = |tasks: &mut JoinSet<()>| {
            while tasks.try_join_next().is_some() {}
            PLACES.saturating_sub(i64::try_from(tasks.len()).unwrap_or(PLACES))
        };
        Rooms { own: room(&mut self.own), offramp: room(&mut self.offramp), payout: room(&mut self.payout) }
    }

    fn is_full(&mut self) -> bool {
        let Rooms { own, offramp, payout } = self.rooms();
        own == 0 || offramp == 0 || payout == 0
    }

    /// Waits until one has ended.
    async fn join_one(&mut self) {
        tokio::select! {
            Some(_) = self.own.join_next() => {}
            Some(_) = self.offramp.join_next() => {}
            Some(_) = self.payout.join_next() => {}
            else => {}
        }
    }

    async fn join_all(&mut self) {
        for tasks in [&mut self.own, &mut self.offramp, &mut self.payout] {
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// Claims due effects and starts them. Returns the time until the next one can be due.
async fn take_up_due(engine: &Engine, rails: &Rails, in_hand: &mut InHand) -> Result<Duration, EngineError> {
    loop {
        let rooms = in_hand.rooms();
        let mut conn = engine.pool.acquire().await?;
        let claimed = effects::claim(&mut conn, LEASE_SECS, IN_FLIGHT_SECS, rooms).await?;
        if claimed.is_empty() {
            let next = effects::find_next_due(&mut conn).await?;
            let wait = next.and_then(|at| at.signed_duration_since(engine.now().to_utc()).to_std().ok());
            return Ok(wait.unwrap_or(POLL).min(POLL));
        }
        let pauses = Arc::new(pauses::load(&mut conn).await?);
        drop(conn);
        for claim in claimed {
            let tasks = in_hand.of(claim.kind);
            tasks.spawn(carry_out_logged(engine.clone(), rails.clone(), Arc::clone(&pauses), claim));
        }
    }
}

/// After a database failure the claim expires, and the effect is retried then. An effect that cannot be written is
/// postponed.
async fn carry_out_logged(engine: Engine, rails: Rails, pauses: Arc<Pauses>, claim: Claimed) {
    let (id, kind) = (claim.id, claim.kind);
    let put_off = match carry_out(&engine, &rails, &pauses, &claim).await {
        Ok(()) => return,
        Err(Failed::Unwritable(why)) => put_off(&engine, &claim, &why).await,
        Err(Failed::Later(error)) => Err(error),
    };
    if let Err(error) = put_off {
        let secs = LEASE_SECS;
        warn!(%error, id, kind = kind.as_str(), reference = claim.reference, secs, "effect failed, will retry when its claim expires");
    }
}

async fn put_off(engine: &Engine, claim: &Claimed, why: &str) -> Result<(), EngineError> {
    let attempts = claim.unwritten.saturating_add(1);
    let off = PutOff { kind: "effect", id: claim.id, about: &claim.reference, attempts };
    let wait = off.wait(why);
    let mut conn = engine.pool.acquire().await?;
    Ok(effects::put_off(&mut conn, claim.id, claim.fence, wait, why).await?)
}

async fn carry_out(engine: &Engine, rails: &Rails, pauses: &Pauses, claim: &Claimed) -> Result<(), Failed> {
    if let Some(why) = &claim.unreadable {
        return Err(Failed::Unwritable(why.clone()));
    }
    loop {
        let mut conn = engine.pool.acquire().await?;
        let Some(execution) = executions::find_by_reference(&mut conn, &claim.reference).await? else {
            return Err(Failed::Unwritable(format!("effect {} has no execution", claim.id)));
        };
        drop(conn);
        let span = info_span!(
            "effect",
            intent_id = %execution.terms.request.intent_id,
            reference = %execution.terms.reference,
            kind = claim.kind.as_str(),
        );
        let (rail, leg) = match claim.kind {
            EffectKind::Lock => {
                let taken = start(engine, execution, claim).instrument(span).await?;
                if taken != StepResult::Stale {
                    return Ok(());
                }
                continue;
            }
            EffectKind::Reversal => {
                let taken = reversal(engine, execution, claim).instrument(span).await?;
                if taken != StepResult::Stale {
                    return Ok(());
                }
                continue;
            }
            EffectKind::Offramp => (rails.offramp.as_ref(), LegKind::Offramp),
            EffectKind::Payout => (rails.payout.as_ref(), LegKind::Payout),
        };
        let call = Call { engine, rail, leg, claim, is_paused: pauses.stops_leg(leg) };
        if call.carry_out(execution).instrument(span).await? != StepResult::Stale {
            return Ok(());
        }
    }
}

/// The timer of an accepted order: starts its first step once it was screened, or ends it when the deadline has passed.
async fn start(engine: &Engine, execution: Execution, claim: &Claimed) -> Result<StepResult, Failed> {
    let beginning = screened(engine, &execution, claim.verdict.as_ref()).await?;
    let happened = match beginning {
        Beginning::Now(happened) => happened,
        Beginning::Later(wait, heard) => {
            let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let end = EffectEnd::Again { at: in_ms(engine, wait), called: false, heard };
            let mut conn = engine.pool.acquire().await?;
            effects::end(&mut conn, &[EndedEffect { id: claim.id, fence: claim.fence, end }]).await?;
            return Ok(StepResult::Ignored);
        }
    };
    take(engine, execution, happened, consumed(claim, EffectEnd::Done), is_suspect(claim)).await
}

/// A payment that came back, or what became of it. It is held back until the settlement has ended.
async fn reversal(engine: &Engine, execution: Execution, claim: &Claimed) -> Result<StepResult, Failed> {
    let leg = |provider_reference: &str, at: DateTime<Utc>| LegDone {
        provider_reference: provider_reference.to_owned(),
        occurred_at: at.into(),
    };
    let happened = match &claim.verdict {
        Some(ManualResolution::PaymentReturned { provider_reference, occurred_at, code, message }) => {
            let (done, at) = (leg(provider_reference, *occurred_at), (*occurred_at).into());
            Happened::PaymentReturned { done, code: code.clone(), message: message.clone(), at }
        }
        Some(ManualResolution::ReversalResolved { remedy, provider_reference, occurred_at }) => {
            Happened::ReversalResolved { remedy: *remedy, done: leg(provider_reference, *occurred_at) }
        }
        _ => return Err(Failed::Unwritable("a reversal without its verdict".into())),
    };
    if !execution.state.is_terminal() {
        let end =
            EffectEnd::Again { at: in_ms(engine, UNENDED_MS), called: true, heard: "not completed yet" };
        let mut conn = engine.pool.acquire().await?;
        effects::end(&mut conn, &[EndedEffect { id: claim.id, fence: claim.fence, end }]).await?;
        return Ok(StepResult::Ignored);
    }
    if let Happened::PaymentReturned { done, code, .. } = &happened {
        error!(
            code,
            provider_reference = done.provider_reference,
            "a payment came back after it was paid: its output is owed until operators have resolved it"
        );
        counter!("dvp_payments_returned_total").increment(1);
    }
    take(engine, execution, happened, consumed(claim, EffectEnd::Done), is_suspect(claim)).await
}

const fn is_suspect(claim: &Claimed) -> bool {
    claim.unwritten > 0
}

fn consumed(claim: &Claimed, end: EffectEnd) -> Consumed {
    Consumed { fact: None, effect: Some(EndedEffect { id: claim.id, fence: claim.fence, end }) }
}
