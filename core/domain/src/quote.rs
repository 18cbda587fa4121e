//! Indicative and firm quotes (spec sections 2.2 to 2.4).
//!
//! A candidate is one offer alone, or all offers together where that gives more or where no offer can fill the amount
//! alone. The score is the route's cost against the reference price, in basis points, plus its violations; the list is
//! sorted by it.

pub mod explain;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::asset::Asset;
use crate::fees::FeeItem;
use crate::ids::QuoteId;
use crate::intent::{ActorType, SettlementType, Side};
use crate::liquidity::route::{Fill, Route, Want};
use crate::liquidity::{Ask, ListedOffer, Market, Offer, Venue};
use crate::money::{Minor, Ratio, executed_rate};
use crate::plan::Slice;
use crate::pricing::Priced;
use crate::time::Timestamp;

pub const CANDIDATES: usize = 5;
/// The addition to a score for a violated constraint: more than any price causes.
const VIOLATION: u128 = 1_000_000;

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
    pub legs: Vec<QuoteLeg>,
    pub metadata: CandidateMetadata,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuoteLeg {
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
    /// Metadata keys of the source.
    #[serde(flatten)]
    pub of_source: Map<String, Value>,
}

/// A request for an indicative quote, its assets known.
#[derive(Debug, Clone, Copy)]
pub struct IndicativeRequest<'a> {
    pub request_id: &'a str,
    pub input: &'a Asset,
    pub output: &'a Asset,
    /// Amount of the input, for either side of the caller (spec section 2.2).
    pub amount: Minor,
    pub actor: ActorType,
    pub settlement_pref: SettlementType,
    pub max_slippage_bps: Option<u128>,
}

/// The candidates for a request, best first. An empty list means no liquidity right now.
pub fn indicative(market: &Market<'_>, request: &IndicativeRequest<'_>, latency_ms: u64) -> Vec<Candidate> {
    let ask = Ask { input: request.input, output: request.output, actor: request.actor, firm: false };
    let want = Want::Input(request.amount);
    let alone = market.single_routes(&ask);
    let capacities: Vec<(ListedOffer<'_>, Minor)> =
        alone.iter().filter_map(|route| Some((route.offers().next()?, route.capacity()))).collect();
    let mut filled = run(alone, want);
    let most = filled.iter().map(|(_, fill)| fill.priced.output).max();
    let together = run(market.split_routes(&ask), want).into_iter();
    filled.extend(together.filter(|(_, fill)| most.is_none_or(|most| fill.priced.output > most)).take(1));
    let reference = market.reference(&ask);
    let telling = Telling { request, reference, capacities: &capacities, latency_ms };
    let mut candidates: Vec<(Minor, Candidate)> = filled
        .iter()
        .filter_map(|(route, fill)| Some((fill.priced.output, telling.candidate(route, fill)?)))
        .collect();
    candidates.sort_by(|(a_out, a), (b_out, b)| {
        let by_score = a.metadata.score.cmp(&b.metadata.score);
        by_score.then(b_out.cmp(a_out)).then_with(|| a.route_id.cmp(&b.route_id))
    });
    candidates.into_iter().take(CANDIDATES).map(|(_, candidate)| candidate).collect()
}

fn run<'a>(routes: Vec<Route<'a>>, want: Want) -> Vec<(Route<'a>, Fill)> {
    routes.into_iter().filter_map(|route| route.fill(want).map(|fill| (route, fill))).collect()
}

/// The data of a candidate beside its route.
struct Telling<'a> {
    request: &'a IndicativeRequest<'a>,
    reference: Option<Decimal>,
    capacities: &'a [(ListedOffer<'a>, Minor)],
    latency_ms: u64,
}

impl Telling<'_> {
    fn candidate(&self, route: &Route<'_>, fill: &Fill) -> Option<Candidate> {
        let (input, output) = (self.request.input, self.request.output);
        let offers: Vec<ListedOffer<'_>> = route.offers().filter(|offer| takes_part(offer, fill)).collect();
        let provider = fill.primary()?.provider_id.clone();
        let marginal = route.marginal()?;
        let capacity = route.capacity();
        let slippage_bps = slippage_bps(&offers, &marginal, fill, capacity);
        let base_price = self.reference.unwrap_or_else(|| marginal.to_rate(input.exponent, output.exponent));
        let violations = self.violations(&offers, slippage_bps);
        let penalty = VIOLATION.saturating_mul(u128::try_from(violations.len()).unwrap_or(u128::MAX));
        let score = cost_bps(&fill.priced, base_price, input, output)
            .saturating_add(slippage_bps)
            .saturating_add(penalty);
        let kind = if offers.len() > 1 { "split" } else { offers.first()?.venue.handle() };
        let source = offers.iter().map(|offer| offer.source.as_str()).collect::<Vec<_>>().join("+");
        Some(Candidate {
            route_id: format!("{kind}:{source}:{}", self.request.request_id),
            ttl_sec: offers.iter().map(|offer| offer.ttl_sec).min()?,
            total_cost: fill.priced.output.to_decimal_string(output.exponent),
            slippage_bps,
            provider,
            hops: Vec::new(),
            legs: offers.iter().map(|offer| self.leg(offer, fill, route.fees_bps())).collect(),
            metadata: CandidateMetadata {
                latency_ms: offers.iter().filter_map(|o| o.latency_ms).max().unwrap_or(self.latency_ms),
                base_price: json_number(&base_price.to_string()),
                fees_bps: route.fees_bps(),
                liquidity_available: json_number(&capacity.to_decimal_string(output.exponent)),
                score,
                constraint_violations: violations,
                of_source: offers.iter().flat_map(|offer| offer.metadata.clone()).collect(),
            },
        })
    }

    fn violations(&self, offers: &[ListedOffer<'_>], slippage_bps: u128) -> Vec<String> {
        let slipped = self.request.max_slippage_bps.filter(|max| slippage_bps > *max);
        let slipped = slipped.map(|max| format!("slippage>{max}"));
        let on_chain = |offer: &ListedOffer<'_>| offer.venue.is_on_chain();
        let elsewhere = match self.request.settlement_pref {
            SettlementType::Onchain if !offers.iter().all(on_chain) => Some("settlement!=onchain"),
            SettlementType::Offchain if offers.iter().any(on_chain) => Some("settlement!=offchain"),
            SettlementType::Onchain | SettlementType::Offchain | SettlementType::Hybrid => None,
        };
        slipped.into_iter().chain(elsewhere.map(str::to_owned)).collect()
    }

    fn leg(&self, offer: &ListedOffer<'_>, fill: &Fill, fee_bps: u32) -> QuoteLeg {
        let (input, output) = (self.request.input, self.request.output);
        let venue = offer.venue.to_string();
        let of_venue = fill.slices.iter().filter(|slice| of_offer(slice, offer));
        let (paid, given) = of_venue.fold((0_u128, 0_u128), |(paid, given), slice| {
            (paid.saturating_add(slice.input.get()), given.saturating_add(slice.output.get()))
        });
        let executed =
            executed_rate((Minor::new(paid), input.exponent), (Minor::new(given), output.exponent));
        let alone = fill.slices.iter().all(|slice| of_offer(slice, offer));
        let price = if alone { fill.priced.rate } else { executed.unwrap_or_default() };
        let known = self.capacities.iter().find(|(known, _)| known.is(offer));
        QuoteLeg {
            from: input.symbol.clone(),
            to: output.symbol.clone(),
            venue,
            price: price.to_string(),
            fee_bps,
            capacity: known.map_or(Minor::ZERO, |(_, c)| *c).to_decimal_string(output.exponent),
        }
    }
}

fn of_offer(slice: &Slice, offer: &Offer) -> bool {
    offer.venue.is_named(&slice.venue) && offer.deliverers().any(|id| id == slice.provider_id)
}

fn takes_part(offer: &Offer, fill: &Fill) -> bool {
    fill.slices.iter().any(|slice| of_offer(slice, offer))
}

impl Venue {
    /// The prefix of a route's handle.
    const fn handle(&self) -> &'static str {
        match self {
            Self::Provider(_) => "lp",
            Self::External => "rfq",
            Self::Pool => "amm",
            Self::OrderBook => "book",
        }
    }
}

/// `part ÷ whole` in basis points; zero when `whole` is zero.
fn ratio_bps(part: Minor, whole: Minor, up: bool) -> u128 {
    use crate::money::U512;
    if whole.is_zero() {
        return 0;
    }
    let (scaled, whole) = (U512::from(part.get()) * U512::from(10_000_u32), U512::from(whole.get()));
    let bps = if up { scaled.div_ceil(whole) } else { scaled / whole };
    u128::try_from(bps).unwrap_or(u128::MAX)
}

/// How much less is delivered than at the reference price, in basis points, rounded up; zero for a better price.
pub fn cost_bps(priced: &Priced, reference: Decimal, input: &Asset, output: &Asset) -> u128 {
    let fair = Ratio::from_rate(reference, input.exponent, output.exponent)
        .and_then(|ratio| ratio.forward(priced.input))
        .map_or(Minor::ZERO, |fair| fair.amount);
    ratio_bps(fair.checked_sub(priced.output).unwrap_or_default(), fair, true)
}

/// The price impact of this size, in basis points, rounded down: that of the curve, and that which the sources expect
/// for this share of their capacity.
fn slippage_bps(offers: &[ListedOffer<'_>], marginal: &Ratio, fill: &Fill, capacity: Minor) -> u128 {
    let net = fill.priced.net_input();
    let gross = fill.priced.gross_output;
    let at_first = marginal.forward(net).map_or(gross, |first| first.amount);
    let along = ratio_bps(at_first.checked_sub(gross).unwrap_or_default(), at_first, false);
    let depth = offers.iter().map(|offer| offer.full_depth_bps).max().unwrap_or(0);
    let expected = ratio_bps(gross, capacity, false).saturating_mul(u128::from(depth)) / 10_000;
    along.saturating_add(expected)
}

/// The contract requires numbers here; the text comes from a decimal, so it always parses.
fn json_number(text: &str) -> serde_json::Number {
    serde_json::from_str(text).unwrap_or_else(|_| serde_json::Number::from(0))
}

/// The fixed side of a firm quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AmountType {
    Source,
    Target,
}

/// The terms that a firm quote locks until `valid_until`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirmTerms {
    pub quote_id: QuoteId,
    pub provider: String,
    pub input_asset: String,
    pub output_asset: String,
    pub side: Side,
    /// For whom it was priced: providers may have other prices for the other kind.
    #[serde(default)]
    pub actor: ActorType,
    pub amount_type: AmountType,
    pub priced: Priced,
    /// The providers' commitments.
    pub slices: Vec<Slice>,
    /// The cost of the locked price against the reference, as a path's score.
    pub score: u64,
    pub valid_until: Timestamp,
}

/// A request for a firm quote, its assets known.
#[derive(Debug, Clone, Copy)]
pub struct FirmRequest<'a> {
    pub input: &'a Asset,
    pub output: &'a Asset,
    pub amount: Minor,
    pub amount_type: AmountType,
    pub side: Side,
    pub actor: ActorType,
}

/// Locks rate and fees with the sources that commit to a price. `None` when none can fill it.
pub fn firm(market: &Market<'_>, request: &FirmRequest<'_>, quote_id: QuoteId) -> Option<FirmTerms> {
    let ask = Ask { input: request.input, output: request.output, actor: request.actor, firm: true };
    let want = match request.amount_type {
        AmountType::Source => Want::Input(request.amount),
        AmountType::Target => Want::Output(request.amount),
    };
    let (route, fill) = market.best(&ask, want)?;
    if !fill.priced.is_exact(request.input.exponent, request.output.exponent) {
        return None;
    }
    let provider = fill.primary()?.provider_id.clone();
    let valid_until = route
        .offers()
        .filter(|offer| takes_part(offer, &fill))
        .filter_map(|offer| committed_until(&offer, market.now))
        .min()?;
    Some(FirmTerms {
        quote_id,
        provider,
        input_asset: request.input.symbol.clone(),
        output_asset: request.output.symbol.clone(),
        side: request.side,
        actor: request.actor,
        amount_type: request.amount_type,
        score: path_score(market, &ask, &fill.priced),
        priced: fill.priced,
        slices: fill.slices,
        valid_until,
    })
}

/// A configured provider commits for its own time, even while the reference behind its price ages; another source's
/// commitment ends with its offer.
fn committed_until(offer: &Offer, now: Timestamp) -> Option<Timestamp> {
    let until = now.plus_millis(i64::from(offer.firm_ttl_sec?).saturating_mul(1000));
    Some(match offer.venue {
        Venue::External => until.min(offer.valid_until),
        Venue::Provider(_) | Venue::Pool | Venue::OrderBook => until,
    })
}

/// The score of an accepted path: its cost against the reference price; zero without a reference price.
pub(crate) fn path_score(market: &Market<'_>, ask: &Ask<'_>, priced: &Priced) -> u64 {
    let cost =
        market.reference(ask).map_or(0, |reference| cost_bps(priced, reference, ask.input, ask.output));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

impl FirmTerms {
    /// The locked fees.
    pub fn fees(&self) -> &[FeeItem] {
        &self.priced.fees
    }
}

#[cfg(test)]
mod tests;
