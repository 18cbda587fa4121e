//! Indicative and firm quotes from a configured liquidity provider (spec sections 2.2 to 2.4).

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::asset::{Asset, Registry};
use crate::ids::QuoteId;
use crate::intent::Side;
use crate::money::Minor;
use crate::pricing::{FeeItem, FeeSchedule, Price, Priced, all_in_rate};
use crate::time::Timestamp;

/// A configured liquidity provider: buys the input, delivers the output from its balance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiquidityProvider {
    pub id: String,
    /// The wallet that released funds go to, on the settler's allow-list.
    pub wallet: String,
    pub spread_bps: u32,
    /// How far the price gives way when an order takes the whole balance, in basis points.
    pub full_depth_bps: u32,
    pub fees: FeeSchedule,
    /// How long an indicative candidate holds.
    pub candidate_ttl_sec: u32,
    /// How long a firm quote is locked.
    pub firm_ttl_sec: u32,
}

/// What a quote is made from: the configuration and the provider's free balance of the output asset.
#[derive(Debug, Clone, Copy)]
pub struct Market<'a> {
    pub registry: &'a Registry,
    pub provider: &'a LiquidityProvider,
    pub available: Minor,
}

/// A priced route with the provider's terms.
#[derive(Debug, Clone)]
pub struct Route<'a> {
    pub price: Price<'a>,
    pub reference_price: Decimal,
    pub provider: &'a LiquidityProvider,
    pub available: Minor,
}

impl<'a> Market<'a> {
    /// The route for a pair of assets, if the service settles it: a token in, fiat out, at a known price.
    pub fn route(&self, input: &'a Asset, output: &'a Asset) -> Option<Route<'a>> {
        let pair = self.registry.pair(&input.symbol, &output.symbol)?;
        if input.is_fiat() || !output.is_fiat() || self.available.is_zero() {
            return None;
        }
        let rate = all_in_rate(pair.reference_price, self.provider.spread_bps)?;
        let price = Price { rate, fees: self.provider.fees, input, output };
        Some(Route {
            price,
            reference_price: pair.reference_price,
            provider: self.provider,
            available: self.available,
        })
    }
}

impl Route<'_> {
    /// Whether the provider's balance covers what it pays out.
    pub fn covers(&self, priced: &Priced) -> bool {
        priced.gross_output <= self.available
    }

    /// How far the price is expected to give way for this size, in basis points, rounded down.
    pub fn slippage_bps(&self, priced: &Priced) -> u128 {
        let share = priced.gross_output.get().saturating_mul(u128::from(self.provider.full_depth_bps));
        share.checked_div(self.available.get()).unwrap_or(0)
    }
}

/// Spec section 2.3, Candidate.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    pub route_id: String,
    pub ttl_sec: u32,
    pub total_cost: String,
    pub slippage_bps: u128,
    pub provider: String,
    pub hops: Vec<String>,
    pub legs: Vec<Leg>,
    pub metadata: CandidateMetadata,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leg {
    pub from: String,
    pub to: String,
    pub venue: String,
    pub price: String,
    pub fee_bps: u32,
    pub capacity: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateMetadata {
    pub latency_ms: u64,
    pub base_price: serde_json::Number,
    pub fees_bps: u32,
    pub liquidity_available: serde_json::Number,
    pub score: u128,
    pub constraint_violations: Vec<String>,
}

/// A request for an indicative quote, its assets known.
#[derive(Debug, Clone)]
pub struct IndicativeRequest<'a> {
    pub request_id: &'a str,
    pub input: &'a Asset,
    pub output: &'a Asset,
    pub amount: Minor,
    pub max_slippage_bps: Option<u128>,
}

/// The candidates for a request, best first. An empty list means no liquidity right now.
pub fn indicative(market: &Market<'_>, request: &IndicativeRequest<'_>, latency_ms: u64) -> Vec<Candidate> {
    let Some(route) = market.route(request.input, request.output) else { return Vec::new() };
    let Some(priced) = route.price.forward(request.amount).filter(|priced| route.covers(priced)) else {
        return Vec::new();
    };
    let slippage_bps = route.slippage_bps(&priced);
    let violation = request.max_slippage_bps.filter(|max| slippage_bps > *max);
    let fees_bps = route.provider.fees.protocol_fee_bps;
    let capacity = route.available.to_decimal_string(request.output.exponent);
    let leg = Leg {
        from: request.input.symbol.clone(),
        to: request.output.symbol.clone(),
        venue: format!("LP:{}", route.provider.id),
        price: priced.rate.to_string(),
        fee_bps: fees_bps,
        capacity: capacity.clone(),
    };
    let spread = u128::from(route.provider.spread_bps.saturating_add(fees_bps));
    vec![Candidate {
        route_id: format!("lp:{}:{}", route.provider.id, request.request_id),
        ttl_sec: route.provider.candidate_ttl_sec,
        total_cost: priced.output.to_decimal_string(request.output.exponent),
        slippage_bps,
        provider: route.provider.id.clone(),
        hops: Vec::new(),
        legs: vec![leg],
        metadata: CandidateMetadata {
            latency_ms,
            base_price: json_number(&route.reference_price.to_string()),
            fees_bps,
            liquidity_available: json_number(&capacity),
            score: spread.saturating_add(slippage_bps),
            constraint_violations: violation.map(|max| format!("slippage>{max}")).into_iter().collect(),
        },
    }]
}

/// The contract wants numbers here; the text is a decimal of ours, so it always parses.
fn json_number(text: &str) -> serde_json::Number {
    serde_json::from_str(text).unwrap_or_else(|_| serde_json::Number::from(0))
}

/// Which side of a firm quote is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AmountType {
    Source,
    Target,
}

/// What a firm quote locks until `valid_until`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirmTerms {
    pub quote_id: QuoteId,
    pub provider: String,
    pub input_asset: String,
    pub output_asset: String,
    pub side: Side,
    pub amount_type: AmountType,
    pub priced: Priced,
    pub valid_until: Timestamp,
}

/// A request for a firm quote, its assets known.
#[derive(Debug, Clone)]
pub struct FirmRequest<'a> {
    pub input: &'a Asset,
    pub output: &'a Asset,
    pub amount: Minor,
    pub amount_type: AmountType,
    pub side: Side,
}

/// Locks rate and fees. `None` when nobody can fill it.
pub fn firm(
    market: &Market<'_>,
    request: &FirmRequest<'_>,
    quote_id: QuoteId,
    now: Timestamp,
) -> Option<FirmTerms> {
    let route = market.route(request.input, request.output)?;
    let priced = match request.amount_type {
        AmountType::Source => route.price.forward(request.amount),
        AmountType::Target => route.price.inverse(request.amount),
    };
    let priced = priced.filter(|priced| route.covers(priced))?;
    Some(FirmTerms {
        quote_id,
        provider: route.provider.id.clone(),
        input_asset: request.input.symbol.clone(),
        output_asset: request.output.symbol.clone(),
        side: request.side,
        amount_type: request.amount_type,
        priced,
        valid_until: now.plus_millis(i64::from(route.provider.firm_ttl_sec).saturating_mul(1000)),
    })
}

impl FirmTerms {
    /// The locked fees.
    pub fn fees(&self) -> &[FeeItem] {
        &self.priced.fees
    }
}
