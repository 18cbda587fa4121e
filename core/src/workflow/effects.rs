//! Due effects: timers and rail calls.
//!
//! A claim commits `called` before a rail is called. A worker that finds `called` set queries the rail by reference
//! first: only proof that the call never arrived allows a second call. The rules are in
//! [`leg`](dvp_domain::settlement::leg); this module executes them. A slow rail delays only its own calls.

mod begun;
mod call;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::pause::Pauses;
use dvp_domain::payment::PaymentStanding;
use dvp_domain::settlement::leg::{IN_FLIGHT_SECS, Timer};
use dvp_domain::settlement::{Happened, LegDone, Remedy, State};
use dvp_rails::LegKind;
use dvp_store::operators::pauses;
use dvp_store::orders::bank;
use dvp_store::orders::effects::{self, Claimed, EffectEnd, EffectKind, EndedEffect, ManualResolution};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::rail_calls::RailCall;
use dvp_store::partners::beneficiaries::{self, Destinations};
use dvp_store::workers::{self, Step, Worker, set_aside_for};
use dvp_store::{PgConnection, StoreError};
use metrics::counter;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::field::Empty;
use tracing::{Instrument, error, info_span, warn};

use self::call::{Call, UNENDED_MS, in_ms};
use super::failed::{Failed, WORK_MAX, contained};
use super::screened::{Beginning, screened};
use super::step::{StepResult, take};
use super::{BACK_OFF, POLL, RailUse, Wake};
use crate::engine::{Engine, EngineError};
use crate::ranges::fill_as_found;
use crate::trace;
use crate::writer::handover::{CLAIM_SECS, ClaimedWork, Payee, Places, destination_of};
use crate::writer::{Consumed, Outcome, WriteError};

/// The maximum number of locks and reversals in progress.
const OWN_PLACES: u16 = 128;

/// How long workers that stop wait for work that is being committed.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// The time limit of a rail's answer.
const RAIL_TIMEOUT: Duration = Duration::from_secs(10);

const _: () = assert!(
    RAIL_TIMEOUT.as_secs() < IN_FLIGHT_SECS.unsigned_abs() as u64,
    "a call may take effect for as long as the rail may take to answer it"
);

const _: () = assert!(IN_FLIGHT_SECS < CLAIM_SECS, "a call ends within its claim");

const _: () = assert!(
    RAIL_TIMEOUT.as_secs() * 2 < WORK_MAX.as_secs() && WORK_MAX.as_secs() < CLAIM_SECS.unsigned_abs() as u64,
    "work ends after two calls of a rail and within its claim"
);

#[derive(Clone)]
pub(super) struct Rails {
    pub offramp: RailUse,
    pub payout: RailUse,
}

pub(super) async fn run(engine: &Engine, rails: &Rails, stop: watch::Receiver<bool>) {
    let mut wake = Wake::new(engine, &["dvp_work"], stop).await;
    let places = Places::new(OWN_PLACES, rails.offramp.concurrency, rails.payout.concurrency);
    let handover = engine.writer.handover();
    let mut workers =
        Workers { engine, rails, handed: handover.open(places.clone()), places, in_progress: JoinSet::new() };
    loop {
        let pause = match workers.take_up_due().await {
            Ok(pause) => pause,
            Err(error) => {
                warn!(%error, "effect poll failed, will retry");
                BACK_OFF
            }
        };
        if !workers.take_over_until(wake.wait(pause)).await {
            break;
        }
        wake.listen().await;
    }
    // What was committed as claimed is still executed; further steps leave their work to other processes.
    handover.close();
    let drained = timeout(DRAIN_MAX, async {
        while let Some(work) = workers.handed.recv().await {
            workers.start("handed_over", work);
        }
    });
    // While the database is unavailable, what was reserved is not known to be committed: its claims expire.
    let _ = drained.await;
    while workers.in_progress.join_next().await.is_some() {}
}

/// The effects in progress, claimed or handed over.
struct Workers<'a> {
    engine: &'a Engine,
    rails: &'a Rails,
    places: Places,
    handed: UnboundedReceiver<ClaimedWork>,
    in_progress: JoinSet<()>,
}

impl Workers<'_> {
    /// Starts what is handed over until `woken` is ready, or a place has become free after all were taken. `false`:
    /// stop.
    async fn take_over_until(&mut self, woken: impl Future<Output = bool>) -> bool {
        let mut woken = std::pin::pin!(woken);
        let is_full = self.places.is_full();
        loop {
            tokio::select! {
                go_on = &mut woken => return go_on,
                Some(work) = self.handed.recv() => self.start("handed_over", work),
                Some(_) = self.in_progress.join_next() => if is_full { return true },
            }
        }
    }

    /// `from`: how it came to this process, for the metrics.
    fn start(&mut self, from: &'static str, work: ClaimedWork) {
        counter!("dvp_workflow_effects_total", "from" => from).increment(1);
        let (engine, rails) = (self.engine.clone(), self.rails.clone());
        self.in_progress.spawn(async move {
            let ClaimedWork { claim, execution, place, pauses, payee } = work;
            carry_out_logged(engine, rails, pauses, claim, (execution, payee)).await;
            drop(place);
        });
    }

    /// Claims due effects and starts them. Returns the time until the next one can be due.
    async fn take_up_due(&mut self) -> Result<Duration, EngineError> {
        loop {
            let engine = self.engine;
            let mut held = self.places.take_half();
            let mut conn = engine.pool.acquire().await?;
            let claimed = effects::claim(&mut conn, CLAIM_SECS, IN_FLIGHT_SECS, held.rooms()).await?;
            if claimed.is_empty() {
                let next = effects::find_next_due(&mut conn).await?;
                let wait = next.and_then(|at| at.signed_duration_since(engine.now().to_utc()).to_std().ok());
                return Ok(wait.unwrap_or(POLL).min(POLL));
            }
            let pauses = Arc::new(pauses::load(&mut conn).await?);
            let references: Vec<&str> = claimed.iter().map(|claim| claim.reference.as_str()).collect();
            // An unreadable row among them concerns its own effect only, which reads it again.
            let loaded = executions::list_by_references(&mut conn, &references).await.unwrap_or_default();
            let mut loaded: HashMap<_, _> =
                loaded.into_iter().map(|one| (one.terms.reference.to_string(), one)).collect();
            // The same.
            let destinations = find_destinations(&mut conn, &claimed, &loaded).await.unwrap_or_default();
            drop(conn);
            for claim in claimed {
                let (place, execution) = (held.take(claim.kind), loaded.remove(&claim.reference));
                let terms = execution.as_ref().map(|execution| &execution.terms);
                let payee = terms.map_or(Payee::Unread, |terms| Payee::among(&destinations, terms));
                let pauses = Arc::clone(&pauses);
                self.start("claimed", ClaimedWork { claim, execution, place, pauses, payee });
            }
        }
    }
}

/// The registered destinations of the claimed payouts.
async fn find_destinations(
    conn: &mut PgConnection,
    claimed: &[Claimed],
    loaded: &HashMap<String, Execution>,
) -> Result<Destinations, StoreError> {
    let payouts = claimed.iter().filter(|claim| claim.kind == EffectKind::Payout);
    let orders = payouts.filter_map(|claim| loaded.get(&claim.reference));
    let named: BTreeSet<_> = orders.filter_map(|execution| destination_of(&execution.terms)).collect();
    if named.is_empty() {
        return Ok(Destinations::new());
    }
    beneficiaries::find_destinations(conn, &Vec::from_iter(named)).await
}

/// Work that fails, panics or takes too long is set aside. While the database does not take that either, the claim
/// expires.
async fn carry_out_logged(
    engine: Engine,
    rails: Rails,
    pauses: Arc<Pauses>,
    claim: Claimed,
    loaded: (Option<Execution>, Payee),
) {
    let (id, kind) = (claim.id, claim.kind);
    let put_off = match contained(Box::pin(carry_out(&engine, &rails, &pauses, &claim, loaded))).await {
        Ok(()) => return,
        Err(Failed::Later(EngineError::Busy)) => Err(EngineError::Busy),
        Err(failed) => put_off(&engine, &claim, &failed.to_string()).await,
    };
    if let Err(error) = put_off {
        let secs = CLAIM_SECS;
        warn!(%error, id, kind = kind.as_str(), reference = claim.reference, secs, "effect failed, will retry when its claim expires");
    }
}

async fn put_off(engine: &Engine, claim: &Claimed, why: &str) -> Result<(), EngineError> {
    let (id, attempts) = (claim.id.to_string(), claim.unwritten.saturating_add(1));
    let wait = set_aside_for(Worker::Effects, &id, &claim.reference, why, attempts);
    let mut conn = engine.pool.acquire().await?;
    Ok(effects::put_off(&mut conn, claim.id, claim.fence, wait, why).await?)
}

/// `loaded`: the execution as it was read after the claim, if it could be read. `payee` was read before.
async fn carry_out(
    engine: &Engine,
    rails: &Rails,
    pauses: &Pauses,
    claim: &Claimed,
    (mut loaded, mut payee): (Option<Execution>, Payee),
) -> Result<(), Failed> {
    if let Some(why) = &claim.unreadable {
        return Err(Failed::Unwritable(why.clone()));
    }
    workers::at(Step::EffectRead, &claim.reference).await?;
    loop {
        let execution = match loaded.take() {
            Some(execution) => execution,
            None => find(engine, claim).await?,
        };
        let span = info_span!(
            "effect",
            intent_id = %execution.terms.request.intent_id,
            reference = %execution.terms.reference,
            kind = claim.kind.as_str(),
            trace_id = Empty,
            span_id = Empty,
            parent_span_id = Empty,
        );
        let context = trace::child(execution.terms.trace);
        trace::mark(&span, context, execution.terms.trace);
        let (rail, leg) = match claim.kind {
            EffectKind::Lock => {
                let taken = Box::pin(start(engine, rails, execution, claim)).instrument(span).await?;
                // Operators may have decided meanwhile: whoever claims the work next has their decision.
                if taken != StepResult::Stale || !is_claimed(engine, claim).await? {
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
            EffectKind::Timelock => {
                let taken = settle_in_time(engine, execution, claim).instrument(span).await?;
                if taken != StepResult::Stale {
                    return Ok(());
                }
                continue;
            }
            EffectKind::Offramp => (&rails.offramp, LegKind::Offramp),
            EffectKind::Payout => (&rails.payout, LegKind::Payout),
        };
        let is_held = engine.context.is_held(&execution.terms).map_err(EngineError::from)?;
        let terms = &execution.terms;
        let is_paused = pauses.stops_leg(leg, terms.pays_on_chain()) || terms.converts() && is_held;
        let call = Call { engine, rail: rail.rail.as_ref(), poll_max: rail.poll_max, leg, claim, is_paused };
        let carried = trace::within(context, call.carry_out(execution, std::mem::take(&mut payee)));
        let carried = Box::pin(carried.instrument(span)).await?;
        // Of a decision that was taken away whoever claims the work next decides.
        if carried != StepResult::Stale || claim.verdict.is_some() && !is_claimed(engine, claim).await? {
            return Ok(());
        }
    }
}

async fn find(engine: &Engine, claim: &Claimed) -> Result<Execution, Failed> {
    let mut conn = engine.pool.acquire().await?;
    let found = executions::find_by_reference(&mut conn, &claim.reference).await?;
    found.ok_or_else(|| Failed::Unwritable(format!("effect {} has no execution", claim.id)))
}

async fn is_claimed(engine: &Engine, claim: &Claimed) -> Result<bool, Failed> {
    let mut conn = engine.pool.acquire().await?;
    Ok(effects::is_claimed(&mut conn, claim.id, claim.fence).await?)
}

/// The timer of an accepted order: starts its first step once it was screened, or ends it when the deadline has passed.
async fn start(
    engine: &Engine,
    rails: &Rails,
    execution: Execution,
    claim: &Claimed,
) -> Result<StepResult, Failed> {
    if let (Some(ManualResolution::Filled { input, output }), State::Resting) =
        (&claim.verdict, &execution.state)
    {
        return match fill_as_found(engine, execution, [*input, *output]).await {
            // It begins like every other order.
            Ok(Outcome::Written) | Err(WriteError::Stale { .. }) => Ok(StepResult::Stale),
            Ok(outcome) => Err(Failed::Unwritable(format!("cannot be filled again: {outcome:?}"))),
            Err(error) => Err(EngineError::from(error).into()),
        };
    }
    let beginning = screened(engine, &execution, claim.verdict.as_ref()).await?;
    let (beginning, calls) = begun::checked(engine, rails, &execution, claim, beginning).await?;
    let happened = match beginning {
        Beginning::Now(happened) => happened,
        Beginning::Later(wait, last_result) => {
            let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let end = EffectEnd::Again { at: in_ms(engine, wait), called: false, last_result };
            let mut conn = engine.pool.acquire().await?;
            effects::end(&mut conn, &[ended(claim, end, calls)]).await?;
            return Ok(StepResult::Ignored);
        }
    };
    let consumed = Consumed { is_guarded: true, ..consumed(claim, EffectEnd::Done, calls) };
    take(engine, execution, happened, consumed, is_suspect(claim)).await
}

/// The timelock is near of an order that is paid on another chain, or whose payment the bank has made after it had failed:
/// without a final answer, or a decision, its lock is settled.
async fn settle_in_time(
    engine: &Engine,
    execution: Execution,
    claim: &Claimed,
) -> Result<StepResult, Failed> {
    let mut conn = engine.pool.acquire().await?;
    let standing = bank::find_standing(&mut conn, &claim.reference).await?;
    drop(conn);
    let is_booked = standing.and_then(PaymentStanding::against_unpaid).is_some();
    let end = match execution.state.timer(engine.now(), is_booked) {
        Timer::Settle => {
            error!(
                is_booked,
                "payout has no final answer, or was made after it had failed, and its timelock is near: the funds are \
                 released, and the output is a debt until it is paid or the input returned"
            );
            let consumed = consumed(claim, EffectEnd::Done, Vec::new());
            return take(engine, execution, Happened::TimelockNear, consumed, is_suspect(claim)).await;
        }
        Timer::Later(at) => EffectEnd::Again { at: at.to_utc(), called: false, last_result: "not due yet" },
        Timer::Nothing => EffectEnd::Done,
    };
    let mut conn = engine.pool.acquire().await?;
    effects::end(&mut conn, &[ended(claim, end, Vec::new())]).await?;
    Ok(StepResult::Ignored)
}

/// A returned payment, or its resolution, or that of an unused conversion. It is held back until the settlement has ended.
async fn reversal(engine: &Engine, execution: Execution, claim: &Claimed) -> Result<StepResult, Failed> {
    let leg = |provider_reference: &str, at: DateTime<Utc>| LegDone {
        provider_reference: provider_reference.to_owned(),
        occurred_at: at.into(),
    };
    let happened = match &claim.verdict {
        Some(ManualResolution::PaymentReturned { provider_reference, occurred_at, came, code, message }) => {
            let (done, at) = (leg(provider_reference, *occurred_at), (*occurred_at).into());
            let (code, message) = (code.clone(), message.clone());
            Happened::PaymentReturned { done, came: *came, code, message, at }
        }
        Some(ManualResolution::ReversalResolved { remedy, provider_reference, occurred_at }) => {
            Happened::ReversalResolved { remedy: *remedy, done: leg(provider_reference, *occurred_at) }
        }
        Some(ManualResolution::ConversionClosed) => Happened::ConversionClosed,
        _ => return Err(Failed::Unwritable("a reversal without its verdict".into())),
    };
    if !execution.state.is_terminal() {
        let end = EffectEnd::Again {
            at: in_ms(engine, UNENDED_MS),
            called: true,
            last_result: "not completed yet",
        };
        let mut conn = engine.pool.acquire().await?;
        effects::end(&mut conn, &[ended(claim, end, Vec::new())]).await?;
        return Ok(StepResult::Ignored);
    }
    if let Happened::ReversalResolved { remedy, .. } = &happened
        && is_contradicted(engine, claim, *remedy).await?
    {
        let mut conn = engine.pool.acquire().await?;
        effects::end(&mut conn, &[ended(claim, EffectEnd::Done, Vec::new())]).await?;
        return Ok(StepResult::Ignored);
    }
    if let Happened::PaymentReturned { done, code, .. } = &happened
        && matches!(&execution.state, State::Completed { reversal, .. }
            if reversal.as_ref().is_none_or(|before| before.stands()))
    {
        error!(
            code,
            provider_reference = done.provider_reference,
            "payment returned after it was paid; its output is owed until operators have resolved it"
        );
        counter!("dvp_payments_returned_total").increment(1);
    }
    let is_guarded = matches!(happened, Happened::ReversalResolved { .. } | Happened::ConversionClosed);
    let consumed = Consumed { is_guarded, ..consumed(claim, EffectEnd::Done, Vec::new()) };
    take(engine, execution, happened, consumed, is_suspect(claim)).await
}

/// Whether the bank has taken the return back, or given the payment back again, since operators decided about it.
async fn is_contradicted(engine: &Engine, claim: &Claimed, remedy: Remedy) -> Result<bool, Failed> {
    let mut conn = engine.pool.acquire().await?;
    let standing = bank::find_standing(&mut conn, &claim.reference).await?;
    let why = standing.and_then(match remedy {
        Remedy::Stands => PaymentStanding::against_found,
        Remedy::PaidAgain | Remedy::GivenBack => PaymentStanding::against_unpaid,
    });
    if let Some(why) = why {
        error!(why, ?remedy, "operator's decision is contradicted: it is not carried out");
        counter!("dvp_rail_contradictions_total", "by" => "decision").increment(1);
    }
    Ok(why.is_some())
}

const fn is_suspect(claim: &Claimed) -> bool {
    claim.unwritten > 0
}

fn consumed(claim: &Claimed, end: EffectEnd, calls: Vec<RailCall>) -> Consumed {
    Consumed { effect: Some(ended(claim, end, calls)), ..Consumed::default() }
}

/// A claim's end, with the calls that were made under it.
fn ended(claim: &Claimed, end: EffectEnd, calls: Vec<RailCall>) -> EndedEffect {
    EndedEffect { id: claim.id, fence: claim.fence, end, calls }
}
