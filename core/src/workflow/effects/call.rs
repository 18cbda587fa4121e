//! The call of a rail for one effect: claim, call, and what its answer does.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::beneficiary::destination::DestinationRefusal;
use dvp_domain::payment::PaymentStanding;
use dvp_domain::settlement::leg::{CallRecord, First, RailResponse, Then, back_off_ms};
use dvp_domain::settlement::{Happened, LegDone, RailAnswer, State, Withheld};
use dvp_domain::terms::AssetAmount;
use dvp_domain::time::Timestamp;
use dvp_rails::{LegKind, Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_store::orders::bank;
use dvp_store::orders::effects::{self, Claimed, EffectEnd, ManualResolution};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::rail_calls::RailCall;
use dvp_store::partners::beneficiaries;
use metrics::{counter, histogram};
use tracing::{error, info, warn};

use super::{RAIL_TIMEOUT, consumed, ended, is_suspect};
use crate::engine::Engine;
use crate::engine::knowledge::{NOT_READ, is_older, knows_chain};
use crate::trace;
use crate::workflow::failed::Failed;
use crate::workflow::step::{StepResult, account, take};
use crate::writer::Consumed;
use crate::writer::handover::Payee;

const PAUSED: &str = "paused";

/// What was called under a claim.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) calls: Vec<RailCall>,
    /// The rail's last response, for display.
    last_result: &'static str,
}

/// A claimed leg and its rail.
pub(super) struct Call<'a> {
    pub(super) engine: &'a Engine,
    pub(super) rail: &'a dyn Rail,
    pub(super) poll_max: Duration,
    pub(super) leg: LegKind,
    pub(super) claim: &'a Claimed,
    /// The leg is paused; a leg that was called before is still followed.
    pub(super) is_paused: bool,
}

impl Call<'_> {
    pub(super) async fn carry_out(&self, execution: Execution, payee: Payee) -> Result<StepResult, Failed> {
        if let Some(answer) = self.claim.verdict.as_ref().and_then(ManualResolution::answer)
            && execution.state.takes(self.leg, &answer)
            && !self.is_contradicted(&execution.state, &answer).await?
        {
            info!(leg = self.leg.as_str(), ?answer, "operator's decision replaces the rail's answer");
            let happened = execution.state.decided(self.leg, answer, self.engine.now());
            return self.take_decision(execution, happened).await;
        }
        if let Some(RailAnswer::Done(done)) = self.claim.verdict.as_ref().and_then(ManualResolution::answer)
            && self.leg == LegKind::Payout
            && execution.state.may_be_found_paid()
        {
            if self.is_contradicted_by(PaymentStanding::against_found).await? {
                return self.end(EffectEnd::Done, &Made::default()).await;
            }
            return self.take_decision(execution, Happened::FoundPaid { done, at: self.engine.now() }).await;
        }
        if let Some(ManualResolution::Returned { provider_reference, occurred_at }) = &self.claim.verdict {
            if self.is_contradicted_by(PaymentStanding::against_unpaid).await? {
                return self.end(EffectEnd::Done, &Made::default()).await;
            }
            let occurred_at = Timestamp::from(*occurred_at);
            let done = LegDone { provider_reference: provider_reference.clone(), occurred_at };
            let happened = Happened::DebtReturned { done, at: self.engine.now() };
            return self.take_decision(execution, happened).await;
        }
        // A restored database has forgotten later calls.
        let called_before = self.claim.called_before || is_older(self.engine, &execution);
        let known = CallRecord { called_before, in_flight: self.claim.in_flight };
        let mut request = rail_request(&execution, self.leg, self.claim.called_at)?;
        let refused = self.resolve_beneficiary(&execution, payee, &mut request).await?;
        let mut made = Made::default();
        let then = match execution.state.first(self.leg, known, self.engine.now()) {
            First::Nothing => return self.end(EffectEnd::Done, &made).await,
            First::Wait => Then::Later { called: false },
            First::Call if self.is_paused => return self.waits(false, PAUSED, &made).await,
            First::Call => Then::Call,
            First::Ask => {
                let answer = self.ask(&request, &mut made).await;
                let then = execution.state.requested(known, answer, self.engine.now());
                if then == Then::Call && self.is_paused {
                    return self.waits(false, PAUSED, &made).await;
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
                None => self.call(&request, &mut made).await,
            }),
            Then::Take(_) | Then::Withhold(_) | Then::Settle | Then::Later { .. } => then,
        };
        match then {
            Then::Withhold(_) if !knows_chain(self.engine, &execution).await? => {
                self.waits(false, NOT_READ, &made).await
            }
            Then::Take(RailAnswer::Done(_))
                if is_late(&execution.state, self.leg, self.engine.now())
                    && !knows_chain(self.engine, &execution).await? =>
            {
                self.waits(true, NOT_READ, &made).await
            }
            Then::Take(answer) => self.take_answer(execution, answer, &made).await,
            Then::Withhold(why) => self.withhold(execution, why, &made).await,
            Then::Settle => self.settle(execution, &made).await,
            Then::Later { called } => self.later(called, &execution.state, &made).await,
            Then::Call => Err(Failed::Unwritable("a call led to a call".into())),
        }
    }

    /// Replaces the reference of a registered beneficiary by its details. Returns why it may not be paid, if so: it may
    /// have been disabled since the order was accepted.
    async fn resolve_beneficiary(
        &self,
        execution: &Execution,
        payee: Payee,
        request: &mut RailRequest,
    ) -> Result<Option<DestinationRefusal>, Failed> {
        let Some(named) = request.beneficiary.as_ref().filter(|_| self.leg == LegKind::Payout) else {
            return Ok(None);
        };
        let Some((beneficiary, destination)) = named.reference() else { return Ok(None) };
        let found = match payee {
            Payee::Read(found) => found.map(|found| *found),
            Payee::Unread => {
                let named = (execution.terms.partner_id.as_str(), beneficiary, destination);
                let mut conn = self.engine.pool.acquire().await?;
                beneficiaries::find_destinations(&mut conn, &[named]).await?.into_values().next().flatten()
            }
        };
        let Some(destination) = found else { return Ok(None) };
        let refused = destination.payee(&request.currency).err();
        request.account = destination.details.account().unwrap_or_default().to_owned();
        request.beneficiary = Some(destination.details);
        Ok(refused)
    }

    /// Whether the rail has contradicted an operator's decision since it was made: then the rail's own answer is used.
    async fn is_contradicted(&self, state: &State, decided: &RailAnswer) -> Result<bool, Failed> {
        let why = match self.leg {
            LegKind::Offramp => state.against_failed_conversion(decided),
            LegKind::Payout => {
                let mut conn = self.engine.pool.acquire().await?;
                let standing = bank::find_standing(&mut conn, &self.claim.reference).await?;
                standing.and_then(|standing| match decided {
                    RailAnswer::Done(_) if state.awaits(self.leg) => standing.against_paid(),
                    RailAnswer::Done(_) => standing.against_paid_debt(),
                    RailAnswer::Failed { .. } => standing.against_unpaid(),
                    RailAnswer::InProgress { .. } => None,
                })
            }
        };
        if let Some(why) = why {
            error!(why, ?decided, "operator's decision is contradicted, using the rail's answer");
            counter!("dvp_rail_contradictions_total", "by" => "decision").increment(1);
        }
        Ok(why.is_some())
    }

    /// Whether the bank has contradicted a decision since it was made which takes no answer's place.
    async fn is_contradicted_by(
        &self,
        against: fn(PaymentStanding) -> Option<&'static str>,
    ) -> Result<bool, Failed> {
        let mut conn = self.engine.pool.acquire().await?;
        let standing = bank::find_standing(&mut conn, &self.claim.reference).await?;
        let why = standing.and_then(against);
        if let Some(why) = why {
            error!(why, "operator's decision is contradicted: it is not carried out");
            counter!("dvp_rail_contradictions_total", "by" => "decision").increment(1);
        }
        Ok(why.is_some())
    }

    pub(super) async fn ask(&self, request: &RailRequest, made: &mut Made) -> RailResponse {
        let (at, began) = (self.engine.now().to_utc(), Instant::now());
        let response = match in_time(self.rail.status(request)).await {
            Ok(RailStatus::Known(answer)) => RailResponse::Answer(answer),
            Ok(RailStatus::NeverSeen) => {
                made.last_result = "never seen by the rail";
                RailResponse::NeverSeen
            }
            Err(error) => silence(&error, made),
        };
        made.calls.push(self.record("query", (at, began), &response));
        response
    }

    async fn call(&self, request: &RailRequest, made: &mut Made) -> RailResponse {
        let (at, began) = (self.engine.now().to_utc(), Instant::now());
        let response = match in_time(self.rail.submit(request)).await {
            Ok(answer) => RailResponse::Answer(answer),
            Err(error) => silence(&error, made),
        };
        made.calls.push(self.record("submit", (at, began), &response));
        response
    }

    /// Counts a call in the metrics, and returns its record.
    fn record(
        &self,
        call: &'static str,
        (at, began): (DateTime<Utc>, Instant),
        response: &RailResponse,
    ) -> RailCall {
        let (leg, took) = (self.leg.as_str(), began.elapsed());
        let (result, detail) = match response {
            RailResponse::Answer(RailAnswer::Done(done)) => ("done", Some(done.provider_reference.clone())),
            RailResponse::Answer(RailAnswer::InProgress { provider_reference }) => {
                ("in_progress", Some(provider_reference.clone()))
            }
            RailResponse::Answer(RailAnswer::Failed { code, .. }) => ("failed", Some(code.clone())),
            RailResponse::NeverSeen => ("never_seen", None),
            RailResponse::Down => ("unavailable", None),
            RailResponse::Silence => ("unconfirmed", None),
        };
        counter!("dvp_rail_calls_total", "leg" => leg, "call" => call, "result" => result).increment(1);
        histogram!("dvp_rail_call_seconds", "leg" => leg, "call" => call).record(took);
        let took_ms = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        RailCall { reference: self.claim.reference.clone(), leg, call, result, at, took_ms, detail }
    }

    async fn mark_called(&self) -> Result<Option<DateTime<Utc>>, Failed> {
        let mut conn = self.engine.pool.acquire().await?;
        Ok(effects::mark_called(&mut conn, self.claim.id, self.claim.fence).await?)
    }

    /// The rail is unavailable or has not answered: the claim is released until later.
    async fn later(&self, called: bool, state: &State, made: &Made) -> Result<StepResult, Failed> {
        let last_result = made.last_result;
        let attempts = u32::try_from(self.claim.attempts).unwrap_or(0);
        let retry = back_off_ms(attempts, RETRY_MS, RETRY_MAX_MS, self.chance());
        // A query costs the rail little, and an operator waits for its answer.
        let wait = if called { ASK_AGAIN_MS.max(retry / 4) } else { retry };
        info!(attempts, called, last_result, wait_ms = wait, "rail call failed, will retry");
        let at = self.in_time_to_settle(state, self.in_ms(wait));
        self.end(EffectEnd::Again { at, called, last_result }, made).await
    }

    /// The next attempt is not later than the time to settle: however rarely the rail is queried, the funds are released
    /// before anyone may refund them.
    fn in_time_to_settle(&self, state: &State, at: DateTime<Utc>) -> DateTime<Utc> {
        match state.settles_at(self.engine.now()) {
            // This process's clock may be behind the database's: then it is not time yet at the first attempt.
            Some(settle_at) => at.min(settle_at.to_utc().max(self.in_ms(ASK_AGAIN_MS))),
            None => at,
        }
    }

    /// It is paused, or the chain's facts are not read yet: the leg is claimed again soon.
    async fn waits(&self, called: bool, why: &'static str, made: &Made) -> Result<StepResult, Failed> {
        self.end(EffectEnd::Again { at: self.in_ms(PAUSED_MS), called, last_result: why }, made).await
    }

    fn in_ms(&self, wait: u64) -> DateTime<Utc> {
        in_ms(self.engine, wait)
    }

    fn ask_max_ms(&self) -> u64 {
        u64::try_from(self.poll_max.as_millis()).unwrap_or(u64::MAX)
    }

    fn chance(&self) -> u64 {
        RandomState::new().hash_one(self.claim.id)
    }

    async fn end(&self, end: EffectEnd, made: &Made) -> Result<StepResult, Failed> {
        let mut conn = self.engine.pool.acquire().await?;
        effects::end(&mut conn, &[ended(self.claim, end, made.calls.clone())]).await?;
        Ok(StepResult::Ignored)
    }

    /// Decided by the settlement as it was read: after a concurrent change it is decided again.
    async fn withhold(&self, execution: Execution, why: Withheld, made: &Made) -> Result<StepResult, Failed> {
        error!(?why, leg = self.leg.as_str(), "leg failed before it began");
        let happened = Happened::Withheld { why, at: self.engine.now() };
        let consumed = consumed(self.claim, EffectEnd::Done, made.calls.clone());
        take(self.engine, execution, happened, consumed, is_suspect(self.claim)).await
    }

    /// The rail is still polled.
    async fn settle(&self, execution: Execution, made: &Made) -> Result<StepResult, Failed> {
        error!(
            "payout has no final answer and its timelock is near: the funds are released, and the output is a debt \
             until it is paid or the input returned"
        );
        let end = EffectEnd::Again {
            at: self.in_ms(ASK_AGAIN_MS),
            called: true,
            last_result: "settled without a final answer",
        };
        let consumed = consumed(self.claim, end, made.calls.clone());
        take(self.engine, execution, Happened::TimelockNear, consumed, is_suspect(self.claim)).await
    }

    /// Steps by operators' decision, unless the claim was taken away since: then the bank has said something about it. A
    /// desk whose conversion was given up is asked what became of it.
    async fn take_decision(&self, execution: Execution, happened: Happened) -> Result<StepResult, Failed> {
        let end = if matches!(happened, Happened::ConversionGivenUp { .. }) {
            EffectEnd::Again {
                at: self.in_ms(ASK_AGAIN_MS),
                called: true,
                last_result: "given up by operators",
            }
        } else {
            EffectEnd::Done
        };
        let consumed = Consumed { is_guarded: true, ..consumed(self.claim, end, Vec::new()) };
        take(self.engine, execution, happened, consumed, is_suspect(self.claim)).await
    }

    /// Steps by the rail's answer. After a concurrent change the answer is applied again, without a second rail call.
    async fn take_answer(
        &self,
        mut execution: Execution,
        answer: RailAnswer,
        made: &Made,
    ) -> Result<StepResult, Failed> {
        let end = match &answer {
            RailAnswer::InProgress { .. } => {
                let attempts = u32::try_from(self.claim.attempts).unwrap_or(0);
                let wait = back_off_ms(attempts, ASK_AGAIN_MS, self.ask_max_ms(), self.chance());
                let at = self.in_time_to_settle(&execution.state, self.in_ms(wait));
                EffectEnd::Again { at, called: true, last_result: "in progress" }
            }
            RailAnswer::Done(_) | RailAnswer::Failed { .. } => EffectEnd::Done,
        };
        let at = self.engine.now();
        let happened = self.leg.answered(answer, at);
        // Progress that was already recorded changes nothing.
        let step = execution.state.clone().step(&execution.terms, happened.clone());
        if step.is_ok_and(|step| step.next == execution.state) {
            return self.end(end, made).await;
        }
        loop {
            let reference = execution.terms.reference.to_string();
            let consumed = consumed(self.claim, end.clone(), made.calls.clone());
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

/// Whether a conversion comes too late for a lock that is not committed, as far as it is known.
fn is_late(state: &State, leg: LegKind, now: Timestamp) -> bool {
    leg == LegKind::Offramp && state.lock().is_some_and(|lock| lock.is_too_late(now) && !lock.filled)
}

async fn in_time<T>(requested: RailFuture<'_, T>) -> Result<T, RailError> {
    tokio::time::timeout(RAIL_TIMEOUT, requested).await.unwrap_or(Err(RailError::Unconfirmed))
}

fn silence(error: &RailError, made: &mut Made) -> RailResponse {
    match error {
        RailError::Down(why) => {
            warn!(%why, "rail is unavailable, will retry");
            made.last_result = "rail is unavailable";
            RailResponse::Down
        }
        RailError::Unconfirmed => {
            made.last_result = "unconfirmed";
            RailResponse::Silence
        }
    }
}

pub(super) fn in_ms(engine: &Engine, wait: u64) -> DateTime<Utc> {
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

/// `called_at` is the time of the claim: a process that was suspended beyond its claim does not call the rail.
pub(super) fn rail_request(
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
        trace: trace::current(),
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
        payer_reference: terms.request.payer_reference().map(|(_, text)| text.to_owned()),
        partner: terms.partner_id.to_string(),
        not_after: called_at + RAIL_TIMEOUT,
    })
}

/// The first polling interval of a leg in progress; the rail defines the longest.
const ASK_AGAIN_MS: u64 = 500;

/// The interval at which a paused leg checks its pause.
const PAUSED_MS: u64 = 2_000;

/// Back-off of an unavailable rail: doubled at each attempt up to the maximum.
const RETRY_MS: u64 = 250;

const RETRY_MAX_MS: u64 = 60_000;

/// How long a returned payment waits for its settlement to end.
pub(super) const UNENDED_MS: u64 = 2_000;
