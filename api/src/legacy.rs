//! The legacy API (contract section 2.9): rates, pairs, and orders by strategy, in `{success: true, data}`.

pub(crate) mod intents;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use dvp_core::context;
use dvp_core::legacy::Strategy;
use dvp_domain::asset::Asset;
use dvp_domain::intent::{ActorType, SettlementType};
use dvp_domain::money::Minor;
use dvp_domain::quote::{Candidate, IndicativeRequest};
use rust_decimal::Decimal;
use serde::Serialize;

use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::state::Api;

#[derive(Serialize)]
struct Wrapped<T> {
    success: bool,
    data: T,
}

pub(crate) fn wrapped<T: Serialize>(data: T) -> String {
    text(&Wrapped { success: true, data })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PairView<'a> {
    pair: String,
    base: &'a str,
    target: &'a str,
    base_exponent: u8,
    target_exponent: u8,
    strategies: [Strategy; 3],
}

pub(crate) async fn pairs(State(api): State<Api>) -> Response {
    let registry = &api.engine.context().registry;
    let exponent = |symbol: &str| registry.find(symbol).map_or(0, |asset| asset.exponent);
    let pairs: Vec<PairView<'_>> = registry
        .pairs
        .iter()
        .map(|pair| PairView {
            pair: format!("{}/{}", pair.base, pair.quote),
            base: &pair.base,
            target: &pair.quote,
            base_exponent: exponent(&pair.base),
            target_exponent: exponent(&pair.quote),
            strategies: [Strategy::Instant, Strategy::Optimized, Strategy::Scheduled],
        })
        .collect();
    json(StatusCode::OK, wrapped(pairs))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RateView<'a> {
    base: &'a str,
    target: &'a str,
    rate: String,
    applied_rate: String,
    spread_bps: i64,
    timestamp: String,
    ttl_ms: u64,
}

/// The amount for which a rate is quoted, in whole units: large enough to hide fixed fees and rounding.
const PROBE_UNITS: u128 = 1_000;

pub(crate) async fn rate(
    State(api): State<Api>,
    pair: Result<Path<(String, String)>, PathRejection>,
) -> Reply {
    let Path((base, target)) = pair.map_err(|_| ApiError::Plain(Code::InvalidPair))?;
    let (input, output) = listed_pair(&api, &base, &target)?;
    let unit = 10_u128.checked_pow(u32::from(input.exponent)).unwrap_or(1);
    let requested = IndicativeRequest {
        request_id: "rate",
        input,
        output,
        amount: Minor::new(unit.saturating_mul(PROBE_UNITS)),
        actor: ActorType::Institution,
        settlement_pref: SettlementType::Hybrid,
        max_slippage_bps: None,
    };
    let candidates = api.engine.quote(&requested).await?;
    let best = candidates.first().ok_or(Code::InsufficientLiquidity)?;
    let (rate, applied) = prices(best).ok_or(Code::InsufficientLiquidity)?;
    let view = RateView {
        base: &base,
        target: &target,
        rate: rate.to_string(),
        applied_rate: applied.to_string(),
        spread_bps: spread_bps(rate, applied),
        timestamp: context::now().iso8601(),
        ttl_ms: u64::from(best.ttl_sec).saturating_mul(1000),
    };
    Ok(json(StatusCode::OK, wrapped(view)))
}

/// The reference price and the applied rate over all legs.
fn prices(candidate: &Candidate) -> Option<(Decimal, Decimal)> {
    let rate: Decimal = candidate.metadata.base_price.to_string().parse().ok()?;
    let mut applied = Decimal::ONE;
    for leg in &candidate.legs {
        applied = applied.checked_mul(leg.price.parse().ok()?)?;
    }
    (!rate.is_zero()).then_some((rate.normalize(), applied.normalize()))
}

/// The difference of the applied rate below the reference, in basis points; negative when it is above.
fn spread_bps(rate: Decimal, applied: Decimal) -> i64 {
    let spread = rate
        .checked_sub(applied)
        .and_then(|gap| gap.checked_mul(Decimal::from(10_000)))
        .and_then(|gap| gap.checked_div(rate));
    spread.and_then(|bps| i64::try_from(bps.round().mantissa()).ok()).unwrap_or(0)
}

fn listed_pair<'a>(api: &'a Api, source: &str, target: &str) -> Result<(&'a Asset, &'a Asset), ApiError> {
    let registry = &api.engine.context().registry;
    let pair = registry.pair(source, target).ok_or(Code::InvalidPair)?;
    registry.find(&pair.base).zip(registry.find(&pair.quote)).ok_or(ApiError::Plain(Code::InvalidPair))
}
