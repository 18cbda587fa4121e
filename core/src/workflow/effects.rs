//! Due effects: timers and rail calls.
//!
//! A claim commits `called` before a rail is called. A worker that finds `called` set queries the rail by reference
//! first: only proof that the call never arrived allows a second call. The rules are in
//! [`leg`](dvp_domain::settlement::leg); this module executes them. A slow rail delays only its own calls.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::beneficiary::destination::DestinationRefusal;
use dvp_domain::pause::Pauses;
use dvp_domain::settlement::leg::{Claim, First, IN_FLIGHT_SECS, RailResponse, Then, back_off_ms};
use dvp_domain::settlement::{Happened, LegDone, RailAnswer, State, Withheld};
use dvp_domain::terms::AssetAmount;
use dvp_domain::time::Timestamp;
use dvp_rails::{LegKind, Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_store::beneficiaries;
use dvp_store::orders::bank;
use dvp_store::orders::effects::{
    self, Claimed, EffectEnd, EffectKind, EndedEffect, ManualResolution, Rooms,
};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::pauses;
use metrics::counter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument, error, info, info_span, warn};

use super::putting_off::{Failed, PutOff};
use super::screened::{Beginning, screened};
use super::step::{StepResult, account, take};
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
/// The polling interval of a leg in progress at first; the rail says how long it becomes.
const ASK_AGAIN_MS: u64 = 500;
/// The interval at which a paused leg checks its pause.
const PAUSED_MS: u64 = 2_000;
/// Back-off of an unavailable rail: doubled at each attempt up to the maximum.
const RETRY_MS: u64 = 250;
const RETRY_MAX_MS: u64 = 60_000;
/// How long a payment that came back waits for its settlement to end.
const UNENDED_MS: u64 = 2_000;

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

/// A claimed leg and its rail.
struct Call<'a> {
    engine: &'a Engine,
    rail: &'a dyn Rail,
    leg: LegKind,
    claim: &'a Claimed,
    /// The leg is paused; a leg that was called before is still followed.
    is_paused: bool,
}

impl Call<'_> {
    async fn carry_out(&self, execution: Execution) -> Result<StepResult, Failed> {
        if let Some(answer) = self.claim.verdict.as_ref().and_then(ManualResolution::answer)
            && execution.state.awaits(self.leg)
            && !self.is_contradicted(&answer).await?
        {
            info!(leg = self.leg.as_str(), ?answer, "operator's decision replaces the rail's answer");
            return self.take_answer(execution, answer).await;
        }
        if let Some(ManualResolution::Returned { provider_reference, occurred_at }) = &self.claim.verdict {
            let occurred_at = Timestamp::from(*occurred_at);
            let done = LegDone { provider_reference: provider_reference.clone(), occurred_at };
            let happened = Happened::DebtReturned { done, at: self.engine.now() };
            let consumed = consumed(self.claim, EffectEnd::Done);
            return take(self.engine, execution, happened, consumed, is_suspect(self.claim)).await;
        }
        let known = Claim { called_before: self.claim.called_before, in_flight: self.claim.in_flight };
        let mut request = rail_request(&execution, self.leg, self.claim.called_at)?;
        let refused = self.resolve_beneficiary(&execution, &mut request).await?;
        let mut heard = "";
        let then = match execution.state.first(self.leg, known, self.engine.now()) {
            First::Nothing => return self.end(EffectEnd::Done).await,
            First::Wait => Then::Later { called: false },
            First::Withhold(why) => Then::Withhold(why),
            First::Call if self.is_paused => return self.paused().await,
            First::Call => Then::Call,
            First::Ask => {
                let answer = self.ask(&request, &mut heard).await;
                let then = execution.state.asked(known, answer, self.engine.now());
                if then == Then::Call && self.is_paused {
                    return self.paused().await;
                }
                if then == Then::Call {
                    info!("rail has not seen the call; calling it");
                    match self.mark_called().await? {
                        Some(at) => request.not_after = at + RAIL_TIMEOUT,
                        // Another worker holds the claim by now.
                        None => return Ok(StepResult::Ignored),
                    }
                }
                then
            }
        };
        let then = match then {
            Then::Call => State::called(match refused {
                Some(refusal) => RailResponse::Answer(refused_destination(refusal)),
                None => self.call(&request, &mut heard).await,
            }),
            Then::Take(_) | Then::Withhold(_) | Then::Settle | Then::Later { .. } => then,
        };
        match then {
            Then::Take(answer) => self.take_answer(execution, answer).await,
            Then::Withhold(why) => self.withhold(execution, why).await,
            Then::Settle => self.settle(execution).await,
            Then::Later { called } => self.later(called, heard).await,
            Then::Call => Err(Failed::Unwritable("a call led to a call".into())),
        }
    }

    /// Puts the details of a registered beneficiary in the place of its reference. Why it is not to be paid, if it is not:
    /// it may have been disabled since the order was accepted.
    async fn resolve_beneficiary(
        &self,
        execution: &Execution,
        request: &mut RailRequest,
    ) -> Result<Option<DestinationRefusal>, Failed> {
        let Some(named) = request.beneficiary.as_ref().filter(|_| self.leg == LegKind::Payout) else {
            return Ok(None);
        };
        let Some((beneficiary, destination)) = named.reference() else { return Ok(None) };
        let partner = execution.terms.partner_id.as_str();
        let mut conn = self.engine.pool.acquire().await?;
        let found =
            beneficiaries::find_destinations(&mut conn, &[(partner, beneficiary, destination)]).await?;
        let Some(destination) = found.into_values().next() else { return Ok(None) };
        let refused = destination.payee(&request.currency).err();
        request.account = destination.details.account().unwrap_or_default().to_owned();
        request.beneficiary = Some(destination.details);
        Ok(refused)
    }

    /// Whether the bank has said the opposite of an operator's decision since it was made: then the rail's own answer is
    /// taken.
    async fn is_contradicted(&self, decided: &RailAnswer) -> Result<bool, Failed> {
        if self.leg != LegKind::Payout {
            return Ok(false);
        }
        let mut conn = self.engine.pool.acquire().await?;
        let standing = bank::find_standing(&mut conn, &self.claim.reference).await?;
        let why = standing.and_then(|standing| match decided {
            RailAnswer::Done(_) => standing.against_paid(),
            RailAnswer::Failed { .. } => standing.against_unpaid(),
            RailAnswer::InProgress { .. } => None,
        });
        if let Some(why) = why {
            error!(why, ?decided, "an operator's decision is contradicted and is not carried out");
            counter!("dvp_rail_contradictions_total", "by" => "decision").increment(1);
        }
        Ok(why.is_some())
    }

    async fn ask(&self, request: &RailRequest, heard: &mut &'static str) -> RailResponse {
        match in_time(self.rail.status(request)).await {
            Ok(RailStatus::Known(answer)) => RailResponse::Answer(answer),
            Ok(RailStatus::NeverSeen) => {
                *heard = "never seen by the rail";
                RailResponse::NeverSeen
            }
            Err(error) => silence(&error, heard),
        }
    }

    async fn call(&self, request: &RailRequest, heard: &mut &'static str) -> RailResponse {
        match in_time(self.rail.submit(request)).await {
            Ok(answer) => RailResponse::Answer(answer),
            Err(error) => silence(&error, heard),
        }
    }

    async fn mark_called(&self) -> Result<Option<DateTime<Utc>>, Failed> {
        let mut conn = self.engine.pool.acquire().await?;
        Ok(effects::mark_called(&mut conn, self.claim.id, self.claim.fence).await?)
    }

    /// The rail is unavailable or has not answered: the claim is released until later.
    async fn later(&self, called: bool, heard: &'static str) -> Result<StepResult, Failed> {
        let attempts = u32::try_from(self.claim.attempts).unwrap_or(0);
        let retry = back_off_ms(attempts, RETRY_MS, RETRY_MAX_MS, self.chance());
        // A query costs the rail little, and an operator waits for its answer.
        let wait = if called { ASK_AGAIN_MS.max(retry / 4) } else { retry };
        info!(attempts, called, heard, wait_ms = wait, "rail call failed, will retry");
        self.end(EffectEnd::Again { at: self.in_ms(wait), called, heard }).await
    }

    /// The leg was never called, and does not begin while it is paused.
    async fn paused(&self) -> Result<StepResult, Failed> {
        self.end(EffectEnd::Again { at: self.in_ms(PAUSED_MS), called: false, heard: "paused" }).await
    }

    fn in_ms(&self, wait: u64) -> DateTime<Utc> {
        in_ms(self.engine, wait)
    }

    fn ask_max_ms(&self) -> u64 {
        u64::try_from(self.rail.poll_max().as_millis()).unwrap_or(u64::MAX)
    }

    fn chance(&self) -> u64 {
        RandomState::new().hash_one(self.claim.id)
    }

    async fn end(&self, end: EffectEnd) -> Result<StepResult, Failed> {
        let mut conn = self.engine.pool.acquire().await?;
        effects::end(&mut conn, &[EndedEffect { id: self.claim.id, fence: self.claim.fence, end }]).await?;
        Ok(StepResult::Ignored)
    }

    /// Decided by the settlement as it was read: after a concurrent change it is decided again.
    async fn withhold(&self, execution: Execution, why: Withheld) -> Result<StepResult, Failed> {
        error!(?why, leg = self.leg.as_str(), "leg failed before it began");
        let happened = Happened::Withheld { why, at: self.engine.now() };
        let consumed = consumed(self.claim, EffectEnd::Done);
        take(self.engine, execution, happened, consumed, is_suspect(self.claim)).await
    }

    /// The rail is still polled.
    async fn settle(&self, execution: Execution) -> Result<StepResult, Failed> {
        error!(
            "a payout has no final word and its timelock is near: the funds are released, and the output is a debt \
             until it is paid or the input given back"
        );
        let end =
            EffectEnd::Again { at: self.in_ms(ASK_AGAIN_MS), called: true, heard: "settled without a word" };
        let consumed = consumed(self.claim, end);
        take(self.engine, execution, Happened::TimelockNear, consumed, is_suspect(self.claim)).await
    }

    /// Steps by the rail's answer. After a concurrent change the answer is applied again, without a second rail call.
    async fn take_answer(&self, mut execution: Execution, answer: RailAnswer) -> Result<StepResult, Failed> {
        let end = match &answer {
            RailAnswer::InProgress { .. } => {
                let attempts = u32::try_from(self.claim.attempts).unwrap_or(0);
                let wait = back_off_ms(attempts, ASK_AGAIN_MS, self.ask_max_ms(), self.chance());
                EffectEnd::Again { at: self.in_ms(wait), called: true, heard: "in progress" }
            }
            RailAnswer::Done(_) | RailAnswer::Failed { .. } => EffectEnd::Done,
        };
        let at = self.engine.now();
        let happened = match self.leg {
            LegKind::Offramp => Happened::Offramp { answer, at },
            LegKind::Payout => Happened::Payout { answer, at },
        };
        // Progress that was already recorded changes nothing.
        let step = execution.state.clone().step(&execution.terms, happened.clone());
        if step.is_ok_and(|step| step.next == execution.state) {
            return self.end(end).await;
        }
        loop {
            let reference = execution.terms.reference.to_string();
            let consumed = consumed(self.claim, end.clone());
            let suspect = is_suspect(self.claim);
            let taken = take(self.engine, execution, happened.clone(), consumed, suspect).await?;
            if taken != StepResult::Stale {
                return Ok(taken);
            }
            let mut conn = self.engine.pool.acquire().await?;
            let found = executions::find_by_reference(&mut conn, &reference).await?;
            execution = found.ok_or_else(|| Failed::Unwritable(format!("execution {reference} is gone")))?;
        }
    }
}

async fn in_time<T>(asked: RailFuture<'_, T>) -> Result<T, RailError> {
    tokio::time::timeout(RAIL_TIMEOUT, asked).await.unwrap_or(Err(RailError::Unconfirmed))
}

fn silence(error: &RailError, heard: &mut &'static str) -> RailResponse {
    match error {
        RailError::Down(why) => {
            info!(%why, "rail is unavailable");
            *heard = "rail is unavailable";
            RailResponse::Down
        }
        RailError::Unconfirmed => {
            *heard = "unconfirmed";
            RailResponse::Silence
        }
    }
}

fn in_ms(engine: &Engine, wait: u64) -> DateTime<Utc> {
    engine.now().to_utc() + TimeDelta::milliseconds(i64::try_from(wait).unwrap_or(i64::MAX))
}

/// The payout of a destination that may not be paid fails before the rail is called.
fn refused_destination(refusal: DestinationRefusal) -> RailAnswer {
    RailAnswer::Failed {
        code: refusal.code().to_owned(),
        message: refusal.message().to_owned(),
        retryable: false,
    }
}

/// `called_at` is the time of the claim: a process that was suspended beyond its lease does not call the rail.
fn rail_request(
    execution: &Execution,
    leg: LegKind,
    called_at: DateTime<Utc>,
) -> Result<RailRequest, Failed> {
    let terms = &execution.terms;
    let priced = &terms.plan.priced;
    let (amount, sold) = match leg {
        LegKind::Offramp => {
            let net = priced.input.checked_sub(priced.protocol_fee);
            let net = net.ok_or_else(|| Failed::Unwritable("the protocol fee exceeds the input".into()))?;
            (priced.gross_output, Some(AssetAmount { amount: net, ..terms.input.clone() }))
        }
        LegKind::Payout => (priced.output, None),
    };
    Ok(RailRequest {
        leg,
        reference: hex::encode(leg.reference(&terms.reference)),
        account: account(terms),
        beneficiary: terms.request.beneficiary.clone(),
        amount,
        currency: terms.output.asset.clone(),
        exponent: terms.output.exponent,
        sold,
        provider_reference: execution.state.provider_reference().map(str::to_owned),
        execution: terms.reference.to_string(),
        not_after: called_at + RAIL_TIMEOUT,
    })
}
