//! `POST /v1/quotes`: candidates for a pair (contract sections 2.2 and 2.3).
//!
//! `side` is stored with the request but does not change the price: `amount` is always of the source.

use axum::extract::State;
use axum::http::StatusCode;
use dvp_domain::asset::Asset;
use dvp_domain::intent::{ActorType, SettlementType};
use dvp_domain::money::{AmountError, Minor};
use dvp_domain::quote::{Candidate, IndicativeRequest};
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::quotes::QuoteContext;
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::idempotency::{IdempotentRequest, Lookup, answer};
use crate::http::error::{ApiError, Reply, text};
use crate::http::fields::Object;
use crate::state::Api;
use crate::wire::{ACTOR_TYPES, QUOTE, SETTLEMENT_TYPES, SIDES};

struct QuoteRequest<'a> {
    request_id: &'a str,
    source: &'a str,
    target: &'a str,
    amount: &'a str,
    max_slippage_bps: Option<u128>,
    actor: ActorType,
    settlement_pref: SettlementType,
    /// As it is stored: the known fields with their defaults.
    context: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    request_id: &'a str,
    timestamp: i64,
    candidates: &'a [Candidate],
}

pub(crate) async fn create(State(api): State<Api>, write: IdempotentRequest) -> Reply {
    write.perform(&api, Lookup::First, async |write| quote(&api, write).await).await
}

async fn quote(api: &Api, write: &IdempotentRequest) -> Reply {
    let requested = parse(&write.body)?;
    let registry = &api.engine.context().registry;
    let source = registry.find(requested.source);
    let amount = parse_amount(requested.amount, source)?;
    let candidates = match source.zip(registry.find(requested.target)) {
        Some((input, output)) => {
            let QuoteRequest { request_id, max_slippage_bps, actor, settlement_pref, .. } = requested;
            let request = IndicativeRequest {
                request_id,
                input,
                output,
                amount,
                actor,
                settlement_pref,
                max_slippage_bps,
            };
            api.engine.quote(&request).await?
        }
        None => Vec::new(),
    };
    let view =
        View { request_id: requested.request_id, timestamp: api.now().millis(), candidates: &candidates };
    let stored = StoredResponse { status: StatusCode::OK.as_u16(), body: text(&view) };
    let context = QuoteContext {
        tenant: write.caller.tenant.clone(),
        request_id: requested.request_id.to_owned(),
        request: requested.context,
        response: serde_json::to_value(&view).map_err(|error| ApiError::Internal(error.to_string()))?,
    };
    answer(api.engine.keep_quote(context, write.part_with(stored)).await?)
}

fn parse(body: &Value) -> Result<QuoteRequest<'_>, ApiError> {
    const QUOTE_TYPES: &[(&str, &str)] = &[("A_retail", "A_retail"), ("B_institution", "B_institution")];
    let body = Object::root(body, QUOTE)?;
    let request_id = body.id("requestId")?;
    let actor_id = body.id("actorId")?;
    let source = body.id("source")?;
    let target = body.id("target")?;
    let amount = body.text("amount")?;
    let side = body.choice("side", SIDES)?;
    let actor = body.opt_choice("actorType", ACTOR_TYPES)?.unwrap_or_default();
    let quote_type = body.opt_choice("quoteType", QUOTE_TYPES)?.unwrap_or("B_institution");
    let settlement_pref =
        body.opt_choice("settlementPref", SETTLEMENT_TYPES)?.unwrap_or(SettlementType::Hybrid);
    let max_slippage_bps = body.opt_bps("maxSlippageBps")?;
    let context = json!({
        "requestId": request_id, "actorId": actor_id, "source": source, "target": target, "amount": amount,
        "side": side, "actorType": actor, "quoteType": quote_type, "settlementPref": settlement_pref,
        "constraints": {"maxSlippageBps": max_slippage_bps.map(|bps| bps.to_string())},
    });
    Ok(QuoteRequest { request_id, source, target, amount, max_slippage_bps, actor, settlement_pref, context })
}

/// Validated by the asset's decimal places. For an unknown asset only the form is checked: it gets no quote.
fn parse_amount(amount: &str, asset: Option<&Asset>) -> Result<Minor, ApiError> {
    let problem = |problem: &dyn std::fmt::Display| crate::http::fields::fault("amount", problem);
    let parsed = match (Minor::parse_decimal(amount, asset.map_or(18, |asset| asset.exponent)), asset) {
        (Ok(parsed), _) => parsed,
        (Err(AmountError::TooPrecise), None) => return Ok(Minor::ZERO),
        (Err(error), _) => return Err(problem(&error)),
    };
    if parsed.is_zero() { Err(problem(&"must be above zero")) } else { Ok(parsed) }
}
