//! Legacy orders: stored, listed, cancelled. `dvp_core::legacy` executes them as intents.
//!
//! The actor is the key's partner. A legacy order contains neither permit nor beneficiary, so it can only be settled
//! from the partner's prefunded balance to the partner's standing instruction; any other order is refused with
//! `CONSTRAINTS_NOT_MET`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, NaiveDate, Utc};
use dvp_core::legacy::{LegacyConstraints, LegacyPair, LegacyRequest, Strategy, beginning};
use dvp_domain::asset::Asset;
use dvp_domain::intent::Side;
use dvp_domain::money::{AmountError, Minor};
use dvp_domain::time::Timestamp;
use dvp_store::database::ids;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::legacy::{LegacyFilter, LegacyIntentRow, NewLegacyIntent};
use serde::Serialize;
use serde_json::{Value, json as value};

use super::{listed_pair, wrapped};
use crate::access::auth::Caller;
use crate::access::idempotency::{IdempotentRequest, answer};
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::{Object, fault};
use crate::http::path::PathId;
use crate::http::query::Params;
use crate::state::Api;
use crate::wire::{LEGACY_CONSTRAINTS, LEGACY_ORDER, LEGACY_PAIR, LEGACY_STATUSES};

const SLIPPAGE_BPS: u32 = 50;
const FEE_BPS: u32 = 30;
const TTL_MS: i64 = 30_000;
const TTL_MS_MAX: i64 = 7 * 24 * 3600 * 1000;
const PREFERENCES: &[(&str, &str)] = &[("onchain", "onchain"), ("offchain", "offchain"), ("auto", "auto")];
const STRATEGIES: [Strategy; 3] = [Strategy::Instant, Strategy::Optimized, Strategy::Scheduled];
const LIMIT: i64 = 20;
const PAGE_MAX: i64 = 1_000_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    intent_id: String,
    pair: Value,
    side: Value,
    amount: Value,
    filled_amount: Value,
    strategy: Value,
    constraints: Value,
    status: String,
    client_ref: Option<String>,
    /// The execution, once there is one.
    reference: Option<String>,
    /// The code of its rejection.
    rejection: Option<String>,
    created_at: String,
    updated_at: String,
}

impl From<LegacyIntentRow> for View {
    fn from(row: LegacyIntentRow) -> Self {
        let field = |name: &str| row.request.get(name).cloned().unwrap_or(Value::Null);
        let settled = row.status == "settled";
        Self {
            pair: field("pair"),
            side: field("side"),
            amount: field("amount"),
            // An order is filled completely or not at all.
            filled_amount: if settled { field("amount") } else { value!("0") },
            strategy: field("strategy"),
            constraints: field("constraints"),
            // An execution that failed after acceptance reports the reason under its reference.
            rejection: row.code.or_else(|| (row.status == "rejected").then(|| "CONSTRAINTS_NOT_MET".into())),
            intent_id: row.intent_id,
            status: row.status,
            client_ref: row.client_ref,
            reference: row.reference,
            created_at: Timestamp::from(row.created_at).iso8601(),
            updated_at: Timestamp::from(row.updated_at).iso8601(),
        }
    }
}

/// Whether a body of `POST /v1/intents` has a field of a legacy order: both APIs share the path.
pub(crate) fn is_order(body: &Value) -> bool {
    let has = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
    has("pair") || has("strategy")
}

pub(crate) async fn create(api: &Api, write: &IdempotentRequest) -> Reply {
    let body = Object::root(&write.body, LEGACY_ORDER)?;
    let (request, client_ref) = parse(api, &body)?;
    let (input, _) = listed_pair(api, &request.pair.source, &request.pair.target)?;
    // The body has no id of its own: without this, another process would execute a captured request again.
    let nonce = write.nonce.as_ref().ok_or_else(|| ApiError::Internal("a request without a nonce".into()))?;
    nonce.use_up(api, &write.caller).await?;
    let tenant = &write.caller.tenant;
    let account = match payable(input) {
        Ok(()) => api.engine.settlement_instruction(tenant, &request.pair.target).await?,
        Err(refused) => return refuse(api, write, refused).await,
    };
    let Some(account) = account else {
        let problem = "there is no standing instruction that says where an output of this asset goes";
        return refuse(api, write, ApiError::ConstraintsNotMet("pair.target", problem)).await;
    };
    let created_at = api.now().to_utc();
    let (stage, run_at, expires_at) = beginning(request.strategy, created_at, request.constraints.ttl_ms);
    let row = LegacyIntentRow {
        intent_id: ids::draw(api.engine.context().cell).to_string(),
        request: serde_json::to_value(&request).map_err(|error| ApiError::Internal(error.to_string()))?,
        status: stage.to_owned(),
        client_ref,
        reference: None,
        code: None,
        created_at,
        updated_at: created_at,
    };
    let new = NewLegacyIntent {
        tenant: tenant.clone(),
        intent_id: row.intent_id.clone(),
        request: row.request.clone(),
        source: request.pair.source,
        target: request.pair.target,
        strategy: request.strategy.as_str(),
        client_ref: row.client_ref.clone(),
        account,
        stage,
        created_at,
        expires_at,
        run_at,
    };
    let stored = StoredResponse { status: StatusCode::CREATED.as_u16(), body: wrapped(View::from(row)) };
    answer(api.engine.keep_legacy_intent(new, write.part_with(stored)).await?)
}

async fn refuse(api: &Api, write: &IdempotentRequest, refused: ApiError) -> Reply {
    answer(api.engine.keep_refusal(write.part_with(refused.stored())).await?)
}

/// A token cannot be pulled without its owner's permit, for which this form has no field; a coin is deposited by a wallet,
/// which it does not name either.
fn payable(input: &Asset) -> Result<(), ApiError> {
    if input.is_fiat() {
        Ok(())
    } else {
        let problem =
            "a token can only be locked with a permit; submit it as an intent with inputAsset and permit";
        Err(ApiError::ConstraintsNotMet("pair.source", problem))
    }
}

fn parse(api: &Api, body: &Object<'_>) -> Result<(LegacyRequest, Option<String>), ApiError> {
    let pair = body.object("pair", LEGACY_PAIR)?;
    let (source, target) = (pair.id("source")?.to_owned(), pair.id("target")?.to_owned());
    // Only from source to target.
    let side = body.choice("side", &[("sell", Side::Sell)])?;
    let amount = body.text("amount")?.to_owned();
    let named = body.text("strategy")?;
    let strategy = STRATEGIES.into_iter().find(|one| one.as_str() == named).ok_or(Code::InvalidStrategy)?;
    let constraints = constraints(body)?;
    let client_ref = body.opt_id("clientRef")?.map(str::to_owned);
    let (input, _) = listed_pair(api, &source, &target)?;
    let amount_minor = parse_amount(&amount, input)?;
    let listed = api.engine.context().registry.pair(&source, &target);
    if listed.is_some_and(|pair| !pair.sizes().take(amount_minor)) {
        return Err(ApiError::Plain(Code::AmountOutOfRange));
    }
    let pair = LegacyPair { source, target };
    Ok((LegacyRequest { pair, side, amount, amount_minor, strategy, constraints }, client_ref))
}

fn constraints(body: &Object<'_>) -> Result<LegacyConstraints, ApiError> {
    let mut constraints = LegacyConstraints {
        max_slippage_bps: SLIPPAGE_BPS,
        max_fee_bps: FEE_BPS,
        settlement_pref: "auto".into(),
        ttl_ms: TTL_MS,
    };
    let Some(given) = body.opt_object("constraints", LEGACY_CONSTRAINTS)? else { return Ok(constraints) };
    let bps = |name: &str| given.opt_bps(name).map(|bps| bps.and_then(|bps| u32::try_from(bps).ok()));
    constraints.max_slippage_bps = bps("maxSlippageBps")?.unwrap_or(constraints.max_slippage_bps);
    constraints.max_fee_bps = bps("maxFeeBps")?.unwrap_or(constraints.max_fee_bps);
    constraints.settlement_pref =
        given.opt_choice("settlementPref", PREFERENCES)?.map_or(constraints.settlement_pref, str::to_owned);
    if given.has("ttlMs") {
        constraints.ttl_ms = given.millis("ttlMs")?;
        if !(1_000..=TTL_MS_MAX).contains(&constraints.ttl_ms) {
            return Err(given.fault("ttlMs", format_args!("must be from 1000 to {TTL_MS_MAX}")));
        }
    }
    Ok(constraints)
}

fn parse_amount(amount: &str, input: &Asset) -> Result<Minor, ApiError> {
    match Minor::parse_decimal(amount, input.exponent) {
        Ok(amount) if amount.is_zero() => Err(ApiError::Plain(Code::AmountOutOfRange)),
        Ok(amount) => Ok(amount),
        Err(AmountError::TooLarge) => Err(ApiError::Plain(Code::AmountOutOfRange)),
        Err(error) => Err(fault("amount", error)),
    }
}

pub(crate) async fn show(State(api): State<Api>, caller: Caller, intent_id: PathId) -> Reply {
    let row = find(&api, &caller, intent_id).await?;
    Ok(json(StatusCode::OK, wrapped(View::from(row))))
}

async fn find(api: &Api, caller: &Caller, intent_id: PathId) -> Result<LegacyIntentRow, ApiError> {
    let id = intent_id.or(Code::IntentNotFound)?;
    api.engine.legacy_intent(&caller.tenant, &id).await?.ok_or(ApiError::Plain(Code::IntentNotFound))
}

/// Until it is executed. A repeated cancellation gets the same answer. `None`: there is no such order.
pub(crate) async fn cancel(api: &Api, caller: &Caller, id: &str) -> Result<Option<Response>, ApiError> {
    if api.engine.legacy_intent(&caller.tenant, id).await?.is_none() {
        return Ok(None);
    }
    api.engine.cancel_legacy_intent(&caller.tenant, id).await?;
    let row = api.engine.legacy_intent(&caller.tenant, id).await?.ok_or(Code::IntentNotFound)?;
    match row.status.as_str() {
        "cancelled" => Ok(Some(json(StatusCode::OK, wrapped(View::from(row))))),
        "expired" => Err(ApiError::Plain(Code::IntentExpired)),
        _ => Err(ApiError::Plain(Code::IntentAlreadyExecuting)),
    }
}

#[derive(Serialize)]
struct Page {
    success: bool,
    data: Vec<View>,
    page: i64,
    limit: i64,
    total: i64,
}

pub(crate) async fn list(State(api): State<Api>, caller: Caller, params: Params) -> Reply {
    let strategies = STRATEGIES.map(Strategy::as_str);
    let one_of = |name: &str, known: &[&str]| -> Result<Option<String>, ApiError> {
        let Some(requested) = params.get(name)? else { return Ok(None) };
        let found = known.iter().find(|known| **known == requested);
        found
            .map(|found| Some((*found).to_owned()))
            .ok_or_else(|| fault(name, format_args!("must be one of {}", known.join(", "))))
    };
    let filter = LegacyFilter {
        status: one_of("status", &LEGACY_STATUSES)?,
        strategy: one_of("strategy", &strategies)?,
        from: params.get("fromDate")?.map(|text| instant("fromDate", text, false)).transpose()?,
        until: params.get("toDate")?.map(|text| instant("toDate", text, true)).transpose()?,
    };
    let page = params.whole("page", PAGE_MAX)?.unwrap_or(1);
    let limit = params.limit(LIMIT)?;
    let offset = page.saturating_sub(1).saturating_mul(limit);
    let (rows, total) = api.engine.legacy_intents(&caller.tenant, &filter, offset, limit).await?;
    let data = rows.into_iter().map(View::from).collect();
    Ok(json(StatusCode::OK, text(&Page { success: true, data, page, limit, total })))
}

/// An ISO 8601 instant, or a day: its beginning, or the beginning of the next one. The end itself is included.
fn instant(name: &str, text: &str, is_end: bool) -> Result<DateTime<Utc>, ApiError> {
    let problem =
        || fault(name, "must be an ISO 8601 date or instant, as 2026-01-31 or 2026-01-31T09:00:00Z");
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        let day = if is_end { day.succ_opt().ok_or_else(problem)? } else { day };
        return Ok(day.and_time(chrono::NaiveTime::MIN).and_utc());
    }
    let at = DateTime::parse_from_rfc3339(text).map_err(|_| problem())?.to_utc();
    let after = if is_end { chrono::TimeDelta::milliseconds(1) } else { chrono::TimeDelta::zero() };
    at.checked_add_signed(after).ok_or_else(problem)
}
