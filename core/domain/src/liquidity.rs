//! The offers of the sources of liquidity: an [`Offer`] has a curve that converts amounts, and the provider whose
//! balance delivers the output.
//!
//! ```text
//! sources ──> offers of a Snapshot ──┐
//! balances, resting orders ──────────┼─> Market ─> routes: each offer alone, and the best of all of them together
//! ```
//!
//! Invariants: whatever the venue, the output is a balance that a provider holds with the service, so only existing
//! balances are promised; an offer past its `valid_until` is ignored; the set of routes does not depend on the amount
//! (except for an offer's smallest order), so that the smallest input for an output is exact over all of them.

pub mod average;
pub mod band;
pub mod curve;
pub mod network_fee;
pub mod route;

use std::collections::HashMap;
use std::ops::Deref;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::asset::{Asset, Pair};
use crate::fees::FeeSchedule;
use crate::intent::ActorType;
use crate::money::{Minor, Ratio};
use crate::plan::Slice;
use crate::pricing::{Charges, all_in_rate};
use crate::time::Timestamp;
use curve::Pool;
use network_fee::PairNetworkFee;

/// The kind of a source, as in a quote's leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Venue {
    /// A configured provider, by id.
    Provider(String),
    /// A provider whose prices are requested over HTTP.
    External,
    Pool,
    /// Resting orders kept by the service.
    OrderBook,
}

impl Venue {
    /// Whether its price is made on the chain.
    pub const fn is_on_chain(&self) -> bool {
        matches!(self, Self::Pool)
    }

    /// Whether `text` is its written form.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        match self {
            Self::Provider(id) => text.strip_prefix(self.kind()).is_some_and(|rest| rest == id),
            Self::External | Self::Pool | Self::OrderBook => text == self.kind(),
        }
    }

    /// The prefix of its name; for all but configured providers it is the whole name.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Provider(_) => "LP:",
            Self::External => "ExternalLP",
            Self::Pool => "AMM-Pool",
            Self::OrderBook => "Orderbook",
        }
    }
}

impl std::fmt::Display for Venue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Provider(id) => write!(f, "{}{id}", self.kind()),
            Self::External | Self::Pool | Self::OrderBook => f.write_str(self.kind()),
        }
    }
}

/// The provider that delivers: the account whose balance is reserved, and the wallet that receives released funds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliverer {
    pub provider_id: String,
    pub wallet: String,
}

/// A part of the output at one rate.
#[derive(Debug, Clone)]
pub struct Rung {
    pub deliverer: Deliverer,
    /// Output per one input.
    pub rate: Decimal,
    pub ratio: Ratio,
    /// Output in minor units, at most.
    pub capacity: Minor,
    /// The resting order behind it, whose remaining amount is read when the order is decided.
    pub level_id: Option<i64>,
}

impl Rung {
    /// `None` for a rate that is not positive.
    pub fn new(
        deliverer: Deliverer,
        rate: Decimal,
        capacity: Minor,
        (input, output): (&Asset, &Asset),
    ) -> Option<Self> {
        let ratio = Ratio::from_rate(rate, input.exponent, output.exponent)?;
        Some(Self { deliverer, rate, ratio, capacity, level_id: None })
    }
}

/// How an amount converts.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a pair has a few offers")]
pub enum Curve {
    /// Rates that get worse from rung to rung.
    Ladder(Vec<Rung>),
    /// A pool of the chain; `deliverer` is the provider that fills from its inventory at the pool's price.
    Pool { deliverer: Deliverer, pool: Pool, guard: Guard },
}

/// What a pool's price is compared with, because one trade can move it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// How far the pool's price may be from its average and from the middle of the pair, in basis points.
    pub deviation_bps: u32,
    /// The pool's time-weighted average price. `None`: not known yet, and the pool is not used.
    pub average: Option<Ratio>,
}

#[derive(Debug, Clone)]
pub struct Offer {
    pub source: String,
    pub venue: Venue,
    pub curve: Curve,
    pub policy: Policy,
    /// The price impact that the source expects of an order that takes its whole capacity, in basis points.
    pub full_depth_bps: u32,
    /// The time from which the offer is ignored.
    pub valid_until: Timestamp,
    /// For how long an indicative candidate is shown as valid.
    pub ttl_sec: u32,
    /// For how long the source commits to a locked price; `None`: it does not commit.
    pub firm_ttl_sec: Option<u32>,
    /// The source's response time, if it was called for this request.
    pub latency_ms: Option<u64>,
    /// The answer of the source that orders take from until the next one. `None`: each order may have the whole capacity,
    /// as of a source that states none, or whose resting orders are taken from.
    pub answer: Option<AnswerId>,
    /// Metadata keys that only this source has.
    pub metadata: Map<String, Value>,
}

/// An answer of a source, within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AnswerId(pub u64);

/// An offer of a pair. Its position in the pair's list identifies it: two offers may be equal.
#[derive(Debug, Clone, Copy)]
pub struct ListedOffer<'a> {
    position: usize,
    offer: &'a Offer,
}

impl ListedOffer<'_> {
    /// Whether both are the same offer of one pair.
    pub const fn is(&self, other: &Self) -> bool {
        self.position == other.position
    }
}

impl Deref for ListedOffer<'_> {
    type Target = Offer;

    fn deref(&self) -> &Offer {
        self.offer
    }
}

/// The orders that a source accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The smallest input of an order that the source takes part in.
    pub min_order: Minor,
    /// The most output that the source gives to one order.
    pub max_fill: Minor,
    pub retail: bool,
    pub institution: bool,
}

impl Default for Policy {
    /// Orders of any size, of any partner.
    fn default() -> Self {
        Self { min_order: Minor::ZERO, max_fill: Minor::new(u128::MAX), retail: true, institution: true }
    }
}

impl Policy {
    pub const fn serves(&self, actor: ActorType) -> bool {
        match actor {
            ActorType::Retail => self.retail,
            ActorType::Institution => self.institution,
        }
    }
}

/// A reference price of a pair: output per one input, before spread and fees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    pub price: Decimal,
    /// The time from which the price is stale and not used.
    pub valid_until: Timestamp,
}

#[derive(Debug, Clone, Default)]
pub struct PairMarket {
    pub reference: Option<Reference>,
    /// The reference prices of other sources, which a price band compares.
    pub other_references: Vec<Reference>,
    pub offers: Vec<Offer>,
    pub network_fee: PairNetworkFee,
}

impl PairMarket {
    /// Removes the prices and all offers.
    fn withdraw(&mut self) {
        self.reference = None;
        self.offers.clear();
    }
}

/// All offers at a moment. Immutable: each update makes a new snapshot.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pairs: HashMap<String, HashMap<String, PairMarket>>,
}

impl Snapshot {
    pub fn pair(&self, input: &str, output: &str) -> Option<&PairMarket> {
        self.pairs.get(input)?.get(output)
    }

    pub fn pair_mut(&mut self, input: &str, output: &str) -> &mut PairMarket {
        self.pairs.entry(input.to_owned()).or_default().entry(output.to_owned()).or_default()
    }

    /// Keeps the offers for which `keep` returns true, given input, output and offer.
    pub fn retain_offers(&mut self, keep: impl Fn(&str, &str, &Offer) -> bool) {
        for (input, outputs) in &mut self.pairs {
            for (output, market) in outputs {
                market.offers.retain(|offer| keep(input, output, offer));
            }
        }
    }

    /// Keeps what these providers deliver, given their ids. Of a ladder the others' rungs remain.
    pub fn retain_deliverers(&mut self, keep: impl Fn(&str) -> bool) {
        for market in self.pairs.values_mut().flat_map(HashMap::values_mut) {
            market.offers.retain_mut(|offer| match &mut offer.curve {
                Curve::Ladder(rungs) => {
                    rungs.retain(|rung| keep(&rung.deliverer.provider_id));
                    !rungs.is_empty()
                }
                Curve::Pool { deliverer, .. } => keep(&deliverer.provider_id),
            });
        }
    }

    /// The providers that may deliver an order of the pair, each at least once.
    pub fn deliverers<'a>(&'a self, input: &str, output: &str) -> impl Iterator<Item = &'a str> {
        self.pair(input, output).into_iter().flat_map(|pair| &pair.offers).flat_map(Offer::deliverers)
    }

    /// The answers that a slice of an order of the pair takes from: those of its provider and venue.
    pub fn answers<'a>(
        &'a self,
        (input, output): (&str, &str),
        slice: &'a Slice,
    ) -> impl Iterator<Item = (AnswerId, Timestamp)> + 'a {
        let offers = self.pair(input, output).into_iter().flat_map(|pair| &pair.offers);
        let is_of = |offer: &&Offer| {
            offer.venue.is_named(&slice.venue) && offer.deliverers().any(|id| id == slice.provider_id)
        };
        offers.filter(is_of).filter_map(|offer| Some((offer.answer?, offer.valid_until)))
    }

    /// The resting orders that an order of the pair may take from.
    pub fn levels<'a>(&'a self, input: &str, output: &str) -> impl Iterator<Item = i64> + 'a {
        self.pair(input, output).into_iter().flat_map(|pair| &pair.offers).flat_map(Offer::levels)
    }
}

impl Offer {
    fn rungs(&self) -> &[Rung] {
        match &self.curve {
            Curve::Ladder(rungs) => rungs,
            Curve::Pool { .. } => &[],
        }
    }

    pub(crate) fn deliverers(&self) -> impl Iterator<Item = &str> {
        let desk = match &self.curve {
            Curve::Ladder(_) => None,
            Curve::Pool { deliverer, .. } => Some(deliverer),
        };
        let all = self.rungs().iter().map(|rung| &rung.deliverer).chain(desk);
        all.map(|deliverer| deliverer.provider_id.as_str())
    }

    /// Whether there is no offer.
    fn is_empty(&self) -> bool {
        match &self.curve {
            Curve::Ladder(rungs) => rungs.is_empty(),
            Curve::Pool { pool, .. } => pool.depth().is_zero(),
        }
    }

    fn levels(&self) -> impl Iterator<Item = i64> {
        self.rungs().iter().filter_map(|rung| rung.level_id)
    }
}

/// The amounts that can still be delivered, read when an order is priced.
pub trait Holdings {
    /// The free balance of a provider, in minor units.
    fn available(&self, provider_id: &str, asset: &str) -> Minor;

    /// The ordering partner's free prefunded balance of an asset that is not locked on the chain.
    fn prefunded(&self, _asset: &str) -> Minor {
        Minor::new(u128::MAX)
    }

    /// The remaining amount of a resting order, when it is known more exactly than in the snapshot.
    fn rest_of_level(&self, _level_id: i64) -> Option<Minor> {
        None
    }

    /// The output that orders have taken from an answer.
    fn taken_of(&self, _answer: AnswerId) -> Minor {
        Minor::ZERO
    }
}

/// Holdings without limits, for prices alone.
#[derive(Debug, Clone, Copy)]
pub struct Unlimited;

impl Holdings for Unlimited {
    fn available(&self, _provider_id: &str, _asset: &str) -> Minor {
        Minor::new(u128::MAX)
    }
}

/// A configured liquidity provider: receives the input and delivers the output from its balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiquidityProvider {
    pub id: String,
    /// The wallet that receives released funds, on the settler's allow-list.
    pub wallet: String,
    pub spread_bps: u32,
    /// Larger spreads for larger sizes: `(output from which it applies, spread)`, ascending. Each applies only to the
    /// part beyond its size.
    pub tiers: Vec<(Minor, u32)>,
    /// The price impact of an order that takes the whole balance, in basis points.
    pub full_depth_bps: u32,
    pub policy: Policy,
    /// The pairs that the provider trades; empty: all.
    pub pairs: Vec<(String, String)>,
    /// For how long an indicative candidate is shown as valid.
    pub candidate_ttl_sec: u32,
    /// For how long a firm quote is locked.
    pub firm_ttl_sec: u32,
}

impl LiquidityProvider {
    /// Trades every pair, with every partner, in any size, at one spread; candidates are valid for 15 seconds, firm
    /// quotes for 30.
    pub fn new(id: impl Into<String>, wallet: impl Into<String>, spread_bps: u32) -> Self {
        Self {
            id: id.into(),
            wallet: wallet.into(),
            spread_bps,
            tiers: Vec::new(),
            full_depth_bps: 0,
            policy: Policy::default(),
            pairs: Vec::new(),
            candidate_ttl_sec: 15,
            firm_ttl_sec: 30,
        }
    }

    /// The provider's offer for a pair around a reference price. `None` when it does not trade the pair.
    pub fn offer(&self, reference: &Reference, input: &Asset, output: &Asset) -> Option<Offer> {
        let deals = |(base, quote): &(String, String)| *base == input.symbol && *quote == output.symbol;
        if !self.pairs.is_empty() && !self.pairs.iter().any(deals) {
            return None;
        }
        let ends = self.tiers.iter().map(|(from, _)| *from).chain([Minor::new(u128::MAX)]);
        let spreads = [self.spread_bps].into_iter().chain(self.tiers.iter().map(|(_, spread)| *spread));
        let mut rungs = Vec::new();
        let mut start = Minor::ZERO;
        for (end, spread) in ends.zip(spreads) {
            let deliverer = Deliverer { provider_id: self.id.clone(), wallet: self.wallet.clone() };
            let rate = all_in_rate(reference.price, spread)?;
            rungs.push(Rung::new(deliverer, rate, end.checked_sub(start)?, (input, output))?);
            start = end;
        }
        Some(Offer {
            source: self.id.clone(),
            venue: Venue::Provider(self.id.clone()),
            curve: Curve::Ladder(rungs),
            policy: self.policy,
            full_depth_bps: self.full_depth_bps,
            valid_until: reference.valid_until,
            ttl_sec: self.candidate_ttl_sec,
            firm_ttl_sec: Some(self.firm_ttl_sec),
            latency_ms: None,
            answer: None,
            metadata: Map::new(),
        })
    }
}

/// The inputs of pricing: the registry's fees, the sources' offers, what can still be delivered, the time.
#[derive(Clone, Copy)]
pub struct Market<'a> {
    pub registry: &'a crate::asset::Registry,
    pub snapshot: &'a Snapshot,
    pub holdings: &'a dyn Holdings,
    pub now: Timestamp,
}

/// A request to the market: a pair, and the requesting partner.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub input: &'a Asset,
    pub output: &'a Asset,
    pub actor: ActorType,
    /// Only sources that commit to a price.
    pub firm: bool,
}

impl<'a> Market<'a> {
    fn listed(&self, ask: &Ask<'_>) -> Option<&'a Pair> {
        self.registry.pair(&ask.input.symbol, &ask.output.symbol)
    }

    /// A pair's fees, when the service trades the pair and its network fee is known.
    pub fn charges<'b>(&self, ask: &Ask<'b>) -> Option<Charges<'b>>
    where
        'a: 'b,
    {
        let pair = self.listed(ask)?;
        let snapshot: &'a Snapshot = self.snapshot;
        let market = snapshot.pair(&ask.input.symbol, &ask.output.symbol);
        let configured = pair.fees.network_fee_minor;
        let (network_fee_minor, gas) = match market {
            Some(market) => market.network_fee.at(self.now, configured)?,
            None => (configured, [].as_slice()),
        };
        let fees = FeeSchedule { network_fee_minor, ..pair.fees };
        Some(Charges { fees, sizes: pair.sizes(), input: ask.input, output: ask.output, gas })
    }

    /// The reference price of a pair, unless it is stale.
    pub fn reference(&self, ask: &Ask<'_>) -> Option<Decimal> {
        let pair = self.snapshot.pair(&ask.input.symbol, &ask.output.symbol)?;
        pair.reference.filter(|reference| self.now < reference.valid_until).map(|reference| reference.price)
    }

    /// The offers that are valid now for this caller.
    fn offers(&self, ask: &Ask<'_>) -> impl Iterator<Item = ListedOffer<'a>> {
        let Ask { actor, firm, .. } = *ask;
        let now = self.now;
        self.listed(ask)
            .and_then(|_| self.snapshot.pair(&ask.input.symbol, &ask.output.symbol))
            .into_iter()
            .flat_map(|pair| pair.offers.iter().enumerate())
            .map(|(position, offer)| ListedOffer { position, offer })
            .filter(move |offer| now < offer.valid_until && offer.policy.serves(actor))
            .filter(move |offer| !firm || offer.firm_ttl_sec.is_some())
    }
}
