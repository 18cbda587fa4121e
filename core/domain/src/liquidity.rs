//! What the sources of liquidity offer, as the rest of the rules see it: an [`Offer`] has a curve that says what an
//! amount converts to, and whose balance delivers it.
//!
//! ```text
//! sources ──> offers of a Snapshot ──┐
//! balances, resting orders ──────────┼─> Market ─> routes: each offer alone, and the best of all of them together
//! ```
//!
//! Invariants: whatever the venue, the output is a balance that some provider holds with us, so nothing is promised
//! that nobody holds; an offer past its `valid_until` does not exist; which routes there are does not depend on the
//! amount (but for an offer's smallest order), so that the smallest input for an output is exact over all of them.

pub mod band;
pub mod curve;
pub mod route;

use std::collections::HashMap;
use std::ops::Deref;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::asset::{Asset, Pair};
use crate::intent::ActorType;
use crate::money::{Minor, Ratio};
use crate::pricing::{Charges, all_in_rate};
use crate::time::Timestamp;
use curve::Pool;

/// The kind of a source, as a leg names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Venue {
    /// A configured provider.
    Provider(String),
    /// A provider asked over HTTP.
    External,
    /// A constant-product pool on the chain.
    Pool,
    /// Resting orders kept by the service.
    OrderBook,
}

impl Venue {
    /// Its price is made on the chain.
    pub const fn is_on_chain(&self) -> bool {
        matches!(self, Self::Pool)
    }

    /// Whether this is how it is written.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        match self {
            Self::Provider(id) => text.strip_prefix(self.kind()).is_some_and(|rest| rest == id),
            Self::External | Self::Pool | Self::OrderBook => text == self.kind(),
        }
    }

    /// What its name begins with, which for all but configured providers is all of it.
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

/// Who delivers: the account whose balance is reserved and the wallet that released funds go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliverer {
    pub provider_id: String,
    pub wallet: String,
}

/// So much of the output at one rate.
#[derive(Debug, Clone)]
pub struct Rung {
    pub deliverer: Deliverer,
    /// Output per one input.
    pub rate: Decimal,
    pub ratio: Ratio,
    /// Output in minor units, at most.
    pub capacity: Minor,
    /// The resting order behind it, whose rest is looked up when the order is decided.
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

/// What an amount converts to.
#[derive(Debug, Clone)]
pub enum Curve {
    /// Rates that get worse from rung to rung.
    Ladder(Vec<Rung>),
    /// A constant-product pool; `deliverer` is the desk that fills from its inventory at the pool's price.
    Pool { deliverer: Deliverer, pool: Pool },
}

/// What one source offers for a pair.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The source's id.
    pub source: String,
    pub venue: Venue,
    pub curve: Curve,
    pub policy: Policy,
    /// How far the price is expected to give way when an order takes all there is, in basis points.
    pub full_depth_bps: u32,
    /// From then on the offer does not exist.
    pub valid_until: Timestamp,
    /// How long an indicative candidate holds.
    pub ttl_sec: u32,
    /// How long the source commits to a locked price; `None`: it cannot.
    pub firm_ttl_sec: Option<u32>,
    /// How long the source took to answer, if it was asked for this request.
    pub latency_ms: Option<u64>,
    /// The metadata keys of this source alone.
    pub metadata: Map<String, Value>,
}

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

/// Which orders a source takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The smallest input of an order that it takes part in.
    pub min_order: Minor,
    /// The most output that it gives to one order.
    pub max_fill: Minor,
    pub retail: bool,
    pub institution: bool,
}

impl Default for Policy {
    /// Any size, anybody.
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
    /// From then on it is stale, and no price at all.
    pub valid_until: Timestamp,
}

/// What is known about one pair at a moment.
#[derive(Debug, Clone, Default)]
pub struct PairMarket {
    pub reference: Option<Reference>,
    /// What other sources say that the reference price is: a price band compares them.
    pub other_references: Vec<Reference>,
    pub offers: Vec<Offer>,
}

impl PairMarket {
    /// No price and no offer.
    fn withdraw(&mut self) {
        self.reference = None;
        self.offers.clear();
    }
}

/// Everything the sources offer at a moment. Never changed: the next moment has its own.
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

    /// Keeps the offers for which `keep` says so, given input, output and offer.
    pub fn retain_offers(&mut self, keep: impl Fn(&str, &str, &Offer) -> bool) {
        for (input, outputs) in &mut self.pairs {
            for (output, market) in outputs {
                market.offers.retain(|offer| keep(input, output, offer));
            }
        }
    }

    /// The providers that may deliver an order of the pair, each at least once.
    pub fn deliverers<'a>(&'a self, input: &str, output: &str) -> impl Iterator<Item = &'a str> {
        self.pair(input, output).into_iter().flat_map(|pair| &pair.offers).flat_map(Offer::deliverers)
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

    /// Whether nobody can take anything.
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

/// What can still be delivered, looked up when an order is priced.
pub trait Holdings {
    /// The free balance of a provider, in minor units.
    fn available(&self, provider_id: &str, asset: &str) -> Minor;

    /// What the ordering partner has prefunded and free of an asset that is not locked on the chain.
    fn prefunded(&self, _asset: &str) -> Minor {
        Minor::new(u128::MAX)
    }

    /// What is left of a resting order, when that is known better than the snapshot does.
    fn rest_of_level(&self, _level_id: i64) -> Option<Minor> {
        None
    }
}

/// Nothing ever runs out: for prices alone.
#[derive(Debug, Clone, Copy)]
pub struct Unlimited;

impl Holdings for Unlimited {
    fn available(&self, _provider_id: &str, _asset: &str) -> Minor {
        Minor::new(u128::MAX)
    }
}

/// A configured liquidity provider: buys the input, delivers the output from its balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiquidityProvider {
    pub id: String,
    /// The wallet that released funds go to, on the settler's allow-list.
    pub wallet: String,
    pub spread_bps: u32,
    /// A worse spread from a size on: `(output from which it holds, spread)`, ascending. Only what is beyond the size
    /// is priced at it.
    pub tiers: Vec<(Minor, u32)>,
    /// How far the price gives way when an order takes the whole balance, in basis points.
    pub full_depth_bps: u32,
    pub policy: Policy,
    /// The pairs it deals in; all when there are none.
    pub pairs: Vec<(String, String)>,
    /// How long an indicative candidate holds.
    pub candidate_ttl_sec: u32,
    /// How long a firm quote is locked.
    pub firm_ttl_sec: u32,
}

impl LiquidityProvider {
    /// Deals in every pair, with anybody, in any size, at one spread; candidates hold 15 seconds, firm quotes 30.
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

    /// What the provider offers for a pair around a reference price. `None` when it does not deal in it.
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
            metadata: Map::new(),
        })
    }
}

/// What an order is priced against: the registry's fees, the sources' offers, what can still be delivered, the time.
#[derive(Clone, Copy)]
pub struct Market<'a> {
    pub registry: &'a crate::asset::Registry,
    pub snapshot: &'a Snapshot,
    pub holdings: &'a dyn Holdings,
    pub now: Timestamp,
}

/// What is asked of the market: a pair, and who asks.
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

    /// A pair's fees, when the service deals in it.
    pub fn charges<'b>(&self, ask: &Ask<'b>) -> Option<Charges<'b>> {
        let pair = self.listed(ask)?;
        Some(Charges { fees: pair.fees, sizes: pair.sizes(), input: ask.input, output: ask.output })
    }

    /// The reference price of a pair, unless it is stale.
    pub fn reference(&self, ask: &Ask<'_>) -> Option<Decimal> {
        let pair = self.snapshot.pair(&ask.input.symbol, &ask.output.symbol)?;
        pair.reference.filter(|reference| self.now < reference.valid_until).map(|reference| reference.price)
    }

    /// The offers that stand now for this caller.
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
