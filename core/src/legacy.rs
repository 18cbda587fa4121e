//! Legacy orders: each waits for the moment that its strategy selects, and is then executed as an intent.
//!
//! ```text
//! pending ─┐                      ┌─> rejected (constraints unmet, no liquidity, instruction replaced)
//! queued  ─┼─> solving ─> submitting ─> submitted (executing, settled, …: the status of its execution)
//! (epoch)  │      └─> expired     └─> solving (a later window)
//!          └─> cancelled, until submitting
//! ```
//!
//! The attempt's number is committed before the intent is submitted and is part of the intent's id, which can be used
//! once: after a crash between the two, the next attempt finds the intent, or submits it for the first time. An intent
//! is decided only while its attempt's claim is valid, and its acceptance ends the order in the same commit: an attempt
//! that outlasted its claim executes nothing.

mod prices;
mod schedule;
mod strategy;

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::asset::{Asset, AssetDescriptor, AssetKind, AssetType};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::decision::Reason;
use dvp_domain::intent::{ActorType, Bounds, IntentRequest, SettlementType, Side};
use dvp_domain::money::Minor;
use dvp_domain::quote::IndicativeRequest;
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::orders::intents::{self, Tenant};
use dvp_store::orders::legacy::{
    self, ClaimedLegacyIntent, HeldTurn, LegacyFilter, LegacyIntentRow, NewLegacyIntent, Turn,
};
use dvp_store::partners::registry::nonces::{self, NewNonce};
use dvp_store::workers::{self, Apart, Step, Worker};
use serde::{Deserialize, Serialize};
use tracing::info;

pub use self::schedule::{LegacyFigures, LegacyView, run, run_with};
use self::strategy::{Offer, StrategyDecision, Window, judge};
pub use self::strategy::{Strategy, first_turn};
use crate::engine::reads::SNAPSHOT;
use crate::engine::{Engine, EngineError};
use crate::writer::{Done, IdempotencyPart, Outcome, Refusal, Unit, Work};

/// The duration of an attempt's claim; afterwards another process may start a new one.
const CLAIM_SECS: f64 = 30.0;
const BATCH: i64 = 32;
/// The longest time for one order, within its claim.
const TURN_MAX: Duration = Duration::from_secs(20);

/// The error code of unmet constraints in the legacy API.
pub const CONSTRAINTS_NOT_MET: &str = "CONSTRAINTS_NOT_MET";
pub const INSUFFICIENT_LIQUIDITY: &str = "INSUFFICIENT_LIQUIDITY";
/// The error code of an order whose partner is disabled.
pub const API_KEY_DISABLED: &str = "API_KEY_DISABLED";

/// The request of an order, with its defaults. Stored and displayed unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyRequest {
    pub pair: LegacyPair,
    pub side: Side,
    /// As it was written.
    pub amount: String,
    pub amount_minor: Minor,
    pub strategy: Strategy,
    pub constraints: LegacyConstraints,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyPair {
    pub source: String,
    pub target: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyConstraints {
    pub max_slippage_bps: u32,
    pub max_fee_bps: u32,
    /// `onchain`, `offchain` or `auto`.
    pub settlement_pref: String,
    pub ttl_ms: i64,
}

impl Engine {
    /// Stores an order with its answer.
    pub async fn keep_legacy_intent(
        &self,
        new: NewLegacyIntent,
        key: IdempotencyPart,
    ) -> Result<Done, EngineError> {
        let work = Work::LegacyIntent(Box::new(new));
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    /// Marks the nonce of a signed request as used, for every process and before any other work. `false`: it was used
    /// before.
    pub async fn use_nonce(&self, nonce: &NewNonce) -> Result<bool, EngineError> {
        let mut conn = self.pool().acquire().await?;
        Ok(nonces::insert(&mut conn, nonce).await?)
    }

    /// The recipient of a tenant's outputs of an asset.
    pub async fn settlement_instruction(
        &self,
        tenant: &Tenant,
        asset: &str,
    ) -> Result<Option<String>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(legacy::find_instruction(&mut conn, tenant, asset).await?)
    }

    pub async fn legacy_intent(
        &self,
        tenant: &Tenant,
        intent_id: &str,
    ) -> Result<Option<LegacyIntentRow>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(legacy::find(&mut conn, tenant, intent_id).await?)
    }

    /// A page of orders, newest first, and how many there are.
    pub async fn legacy_intents(
        &self,
        tenant: &Tenant,
        filter: &LegacyFilter,
        offset: i64,
        limit: i64,
    ) -> Result<(Vec<LegacyIntentRow>, i64), EngineError> {
        let mut tx = self.reads().begin_with(SNAPSHOT).await?;
        let total = legacy::count(&mut tx, tenant, filter).await?;
        let rows = legacy::list(&mut tx, tenant, filter, offset, limit).await?;
        tx.commit().await?;
        Ok((rows, total))
    }

    /// Cancels an order that is not being executed. `false`: the order does not exist, or it is too late.
    pub async fn cancel_legacy_intent(&self, tenant: &Tenant, intent_id: &str) -> Result<bool, EngineError> {
        let mut conn = self.pool().acquire().await?;
        Ok(legacy::cancel(&mut conn, tenant, intent_id).await?)
    }
}

/// Evaluates due orders of every tenant that has any, each once and apart. Returns the number of orders.
pub async fn turns(engine: &Engine) -> Result<usize, EngineError> {
    turns_of(engine, &orders(engine)).await
}

/// The orders as items of the loop.
fn orders(engine: &Engine) -> Apart {
    Apart::new(engine.pool().clone(), Worker::Legacy, TURN_MAX)
}

async fn turns_of(engine: &Engine, orders: &Apart) -> Result<usize, EngineError> {
    let mut conn = engine.pool().acquire().await?;
    let due = legacy::claim(&mut conn, CLAIM_SECS, BATCH).await?;
    drop(conn);
    let count = due.len();
    for order in due {
        let (engine, id) = (engine.clone(), order.intent_id.clone());
        // The claim of one that fails expires.
        orders.attend(&id, &id, async move { turn(&engine, &order).await }).await;
    }
    Ok(count)
}

async fn turn(engine: &Engine, order: &ClaimedLegacyIntent) -> Result<(), EngineError> {
    workers::at(Step::LegacyTurn, &order.intent_id).await?;
    let request: LegacyRequest = serde_json::from_value(order.request.clone())
        .map_err(|error| StoreError::corrupt("legacy_intent", error))?;
    let found = if order.submitting { submission(engine, order).await? } else { None };
    let window =
        Window { now: engine.now().to_utc(), created_at: order.created_at, expires_at: order.expires_at };
    let turn = match found {
        Some(Some(reference)) => Turn::Submitted { reference },
        Some(None) => after_rejection(&request, &window, CONSTRAINTS_NOT_MET),
        None => {
            let offers = offers(engine, order, &request).await?;
            match judge(request.strategy, &offers, &window, order.best_output) {
                StrategyDecision::Take { min_output } => {
                    return submit(engine, order, &request, min_output, &window).await;
                }
                StrategyDecision::Wait { run_at, best_output } => {
                    Turn::Wait { stage: request.strategy.waiting_stage(), run_at, best_output }
                }
                StrategyDecision::Reject(code) => Turn::Rejected { code },
                StrategyDecision::Expire => Turn::Expired,
            }
        }
    };
    finish(engine, order, &turn).await
}

async fn finish(engine: &Engine, order: &ClaimedLegacyIntent, turn: &Turn) -> Result<(), EngineError> {
    let mut conn = engine.pool().acquire().await?;
    let held = legacy::update(&mut conn, order, turn).await?;
    info!(intent_id = order.intent_id, ?turn, held, "legacy order evaluated");
    Ok(())
}

/// The outcome of the order's current attempt, if it was submitted.
async fn submission(
    engine: &Engine,
    order: &ClaimedLegacyIntent,
) -> Result<Option<Option<String>>, EngineError> {
    let mut conn = engine.pool().acquire().await?;
    let id = attempt_id(&order.intent_id, order.attempt);
    Ok(intents::find_submission(&mut conn, &order.tenant, &id).await?)
}

/// The first attempt carries the order's own id.
fn attempt_id(intent_id: &str, attempt: i32) -> String {
    if attempt <= 1 { intent_id.to_owned() } else { format!("{intent_id}~{attempt}") }
}

async fn offers(
    engine: &Engine,
    order: &ClaimedLegacyIntent,
    request: &LegacyRequest,
) -> Result<Vec<Offer>, EngineError> {
    let registry = &engine.context().registry;
    let Some((input, output)) = registry.find(&order.source).zip(registry.find(&order.target)) else {
        return Ok(Vec::new());
    };
    let requested = IndicativeRequest {
        request_id: &order.intent_id,
        input,
        output,
        amount: request.amount_minor,
        actor: ActorType::Institution,
        settlement_pref: settlement(&request.constraints.settlement_pref),
        max_slippage_bps: Some(u128::from(request.constraints.max_slippage_bps)),
    };
    let candidates = engine.quote(&requested).await?;
    Ok(candidates
        .iter()
        .filter_map(|candidate| {
            let output = Minor::parse_decimal(&candidate.total_cost, output.exponent).ok()?;
            let within = candidate.metadata.constraint_violations.is_empty()
                && candidate.metadata.fees_bps <= request.constraints.max_fee_bps;
            // The market movement allowed between the evaluation and the fill.
            let slip = output.bps_floor(request.constraints.max_slippage_bps);
            Some(Offer { output, min_output: output.checked_sub(slip)?, within })
        })
        .collect())
}

async fn submit(
    engine: &Engine,
    order: &ClaimedLegacyIntent,
    request: &LegacyRequest,
    min_output: Minor,
    window: &Window,
) -> Result<(), EngineError> {
    let attempt = if order.submitting { order.attempt } else { order.attempt.saturating_add(1) };
    let mut conn = engine.pool().acquire().await?;
    if !legacy::update(&mut conn, order, &Turn::Submitting { attempt }).await? {
        return Ok(());
    }
    drop(conn);
    let order = &ClaimedLegacyIntent { attempt, ..order.clone() };
    let intent = intent(engine, order, request, min_output)
        .ok_or_else(|| StoreError::corrupt("legacy_intent", "its assets left the registry"))?;
    let held =
        HeldTurn { tenant: order.tenant.clone(), intent_id: order.intent_id.clone(), version: order.version };
    let Some(done) = engine.submit_turn(intent, held).await? else {
        info!(intent_id = order.intent_id, "legacy order's claim expired before it was executed");
        return Ok(());
    };
    let turn = match done.outcome {
        Outcome::Accepted(accepted) => {
            info!(intent_id = order.intent_id, reference = accepted.reference, "legacy order executed");
            return Ok(());
        }
        Outcome::Rejected { reason, .. } => after_rejection(request, window, code(reason)),
        // Tried again while it lives.
        Outcome::Refused(Refusal::CoolingDown(_)) => after_rejection(request, window, CONSTRAINTS_NOT_MET),
        Outcome::Refused(Refusal::DuplicateIntent) => match submission(engine, order).await?.flatten() {
            Some(reference) => Turn::Submitted { reference },
            None => after_rejection(request, window, CONSTRAINTS_NOT_MET),
        },
        Outcome::Refused(Refusal::PartnerDisabled) => Turn::Rejected { code: API_KEY_DISABLED },
        Outcome::Refused(
            Refusal::DuplicateClientReference
            | Refusal::InvalidPermit(_)
            | Refusal::Unpayable(_)
            | Refusal::NotHeld
            | Refusal::TooManyWaiting
            | Refusal::Redirected,
        )
        | Outcome::Unfilled(_)
        | Outcome::Written
        | Outcome::KeyUsed(_) => Turn::Rejected { code: CONSTRAINTS_NOT_MET },
    };
    finish(engine, order, &turn).await
}

/// An instant order has one attempt, the others as many as their lifetime allows.
fn after_rejection(request: &LegacyRequest, window: &Window, code: &'static str) -> Turn {
    match request.strategy {
        Strategy::Instant => Turn::Rejected { code },
        Strategy::Optimized | Strategy::Scheduled => {
            let run_at = request.strategy.next_turn(window);
            Turn::Wait { stage: request.strategy.waiting_stage(), run_at, best_output: None }
        }
    }
}

fn code(reason: Reason) -> &'static str {
    match reason {
        Reason::NoLiquidity => INSUFFICIENT_LIQUIDITY,
        Reason::BeneficiaryRequiredForRemittance
        | Reason::PermitRequired
        | Reason::QuoteNotFound
        | Reason::QuoteExpired
        | Reason::QuoteAlreadyUsed
        | Reason::QuoteMismatch(_)
        | Reason::BelowMinimumOutput
        | Reason::AboveMaximumInput
        | Reason::BeneficiaryAccountRequiredForFiatOutput
        | Reason::BeneficiaryIncompleteForJitPayout
        | Reason::BeneficiaryAddressRequiredForRail
        | Reason::ChainHalted
        | Reason::Limit(_) => CONSTRAINTS_NOT_MET,
    }
}

fn settlement(pref: &str) -> SettlementType {
    match pref {
        "onchain" => SettlementType::Onchain,
        "offchain" => SettlementType::Offchain,
        _ => SettlementType::Hybrid,
    }
}

/// The intent of an attempt: the actor is the partner, the output goes to the recipient of the partner's standing
/// instruction. The writer refuses it when the instruction names another one by then: the order is not redirected either,
/// because its partner has agreed to the account of its acceptance.
fn intent(
    engine: &Engine,
    order: &ClaimedLegacyIntent,
    request: &LegacyRequest,
    min_output: Minor,
) -> Option<IntentRequest> {
    let registry = &engine.context().registry;
    let (input, output) = (registry.find(&order.source)?, registry.find(&order.target)?);
    let to_wallet = !output.is_fiat();
    let beneficiary = Beneficiary { account: Some(order.account.clone()), ..Beneficiary::default() };
    Some(IntentRequest {
        intent_id: attempt_id(&order.intent_id, order.attempt),
        client_reference: None,
        user: order.tenant.partner_id.clone(),
        input_asset: descriptor(input),
        output_asset: descriptor(output),
        bounds: Bounds::ExactInput { input: request.amount_minor, min_output: at_least_one(min_output) },
        quote_id: None,
        deadline: Timestamp::from(order.expires_at),
        settlement_type: settlement(&request.constraints.settlement_pref),
        output_recipient: to_wallet.then(|| order.account.clone()),
        beneficiary: (!to_wallet).then_some(beneficiary),
        permit: None,
        actor_type: ActorType::Institution,
        side: request.side,
        metadata: None,
    })
}

fn at_least_one(amount: Minor) -> Minor {
    amount.max(Minor::new(1))
}

fn descriptor(asset: &Asset) -> AssetDescriptor {
    let (kind, address, chain, currency) = match &asset.kind {
        AssetKind::Erc20 { chain, address } => {
            (AssetType::Erc20, Some(address.clone()), Some(chain.clone()), None)
        }
        AssetKind::Native { chain, .. } => (AssetType::Native, None, Some(chain.clone()), None),
        AssetKind::Fiat { currency } => (AssetType::Fiat, None, None, Some(currency.clone())),
    };
    AssetDescriptor { kind, symbol: asset.symbol.clone(), address, chain, currency }
}

/// The initial state of a new order: its first stage, its first evaluation, its end.
pub fn beginning(
    strategy: Strategy,
    created_at: DateTime<Utc>,
    ttl_ms: i64,
) -> (&'static str, DateTime<Utc>, DateTime<Utc>) {
    let expires_at = Timestamp::from(created_at).plus_millis(ttl_ms).to_utc();
    let (stage, run_at) = first_turn(strategy, created_at, expires_at);
    (stage, run_at, expires_at)
}
