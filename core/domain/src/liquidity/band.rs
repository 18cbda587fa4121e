//! Price bands: how far a price may be from the middle of a pair.
//!
//! The middle is the operators' own price of the pair, or else its reference price. A pair with a band is not traded
//! without a fresh middle, nor while a fresh reference price of any source is outside of the band: the sources
//! disagree, and it is not known which one is right. Of the offers, the parts outside of the band are left out: a rung
//! by its rate, a pool from the amount on at which its price leaves the band.
//!
//! One trade can move a pool's price, so a pool is used only within a band of its own besides, around the middle and
//! around its time-weighted average price ([`Guard`]); a pool without an average is not used.
//!
//! Bands are applied where offers are published and again in the transaction that accepts orders, so that every
//! source and both interfaces are under them.
//!
//! Kept by `core/tests/it/bands.rs::no_source_fills_at_a_price_that_gives_far_too_much` and
//! `core/tests/it/bands.rs::a_stale_or_contradicted_reference_leaves_no_price_of_any_source`.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::curve::Pool;
use super::{Curve, Guard, Offer, PairMarket, Reference, Snapshot};
use crate::asset::{Asset, Registry};
use crate::money::{Ratio, U512};
use crate::names::names;
use crate::time::Timestamp;

/// 100 percent.
const WHOLE_BPS: u32 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Band {
    /// How far a price may be from the middle, in basis points: more than 0 and less than 10,000.
    pub deviation_bps: u32,
    /// The operators' own price; `None`: the reference price is the middle.
    pub middle: Option<Decimal>,
}

/// The band of a pool, unless another one is configured, in basis points.
pub const POOL_DEVIATION_BPS: u32 = 500;

/// The bands in force, by input and output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bands(BTreeMap<(String, String), Band>);

impl FromIterator<((String, String), Band)> for Bands {
    fn from_iter<T: IntoIterator<Item = ((String, String), Band)>>(bands: T) -> Self {
        Self(bands.into_iter().collect())
    }
}

names! {
    /// Why a price is not used.
    #[derive(PartialOrd, Ord)]
    pub enum Fault {
        /// The pair has no middle: no reference price, or a stale one.
        NoReference = "no_reference",
        /// A reference price is outside of the band.
        ReferenceOutside = "reference_outside",
        /// The source gives more than the band allows.
        Above = "above",
        /// The source gives less than the band allows, and nothing of its offer is left.
        Below = "below",
        /// The pool's average price is not known yet.
        NoAverage = "no_average",
        /// The pool gives more than its average price allows.
        AboveAverage = "above_average",
        /// The pool gives less than its average price allows.
        BelowAverage = "below_average",
    }
}

/// A price that is not used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedPrice {
    pub input: String,
    pub output: String,
    /// The source of liquidity; `None`: the pair's reference price.
    pub source: Option<String>,
    pub fault: Fault,
}

/// The lowest and the highest price of a band.
struct Range {
    middle: Decimal,
    low: Decimal,
    high: Decimal,
}

impl Range {
    fn holds(&self, price: Decimal) -> bool {
        self.low <= price && price <= self.high
    }
}

impl Band {
    /// `None` when a bound overflows, or the band is not valid.
    fn around(&self, middle: Decimal) -> Option<Range> {
        let whole = Decimal::from(WHOLE_BPS);
        let of = |bps: u32| middle.checked_mul(Decimal::from(bps))?.checked_div(whole);
        let low = of(WHOLE_BPS.checked_sub(self.deviation_bps)?)?;
        let high = of(WHOLE_BPS.checked_add(self.deviation_bps)?)?;
        (low > Decimal::ZERO).then_some(Range { middle, low, high })
    }

    /// Removes what is outside of the band from a pair's market.
    fn limit(
        &self,
        market: &mut PairMarket,
        assets: (&Asset, &Asset),
        now: Timestamp,
    ) -> Vec<(Option<String>, Fault)> {
        let fresh = |reference: &Reference| now < reference.valid_until;
        let reference = market.reference.filter(fresh);
        let middle = self.middle.or_else(|| reference.map(|reference| reference.price));
        let Some(range) = middle.and_then(|middle| self.around(middle)) else {
            market.withdraw();
            return vec![(None, Fault::NoReference)];
        };
        let others = market.other_references.iter().copied().filter(fresh);
        if reference.into_iter().chain(others).any(|reference| !range.holds(reference.price)) {
            market.withdraw();
            return vec![(None, Fault::ReferenceOutside)];
        }
        let until = reference.filter(|_| self.middle.is_none()).map(|reference| reference.valid_until);
        let mut refused = Vec::new();
        market.offers.retain_mut(|offer| {
            let fault = limit_offer(offer, &range, assets);
            refused.extend(fault.map(|fault| (Some(offer.source.clone()), fault)));
            offer.valid_until = until.map_or(offer.valid_until, |until| until.min(offer.valid_until));
            !offer.is_empty()
        });
        refused
    }
}

/// Cuts the pools of a pair without a band to their own ones.
fn limit_pools(
    market: &mut PairMarket,
    assets: (&Asset, &Asset),
    now: Timestamp,
) -> Vec<(Option<String>, Fault)> {
    let reference = market.reference.filter(|reference| now < reference.valid_until);
    let mut refused = Vec::new();
    market.offers.retain_mut(|offer| {
        let Curve::Pool { pool, guard, .. } = &mut offer.curve else { return true };
        let Some(reference) = reference else {
            refused.push((Some(offer.source.clone()), Fault::NoReference));
            return false;
        };
        let fault = limit_pool(pool, guard, &guard.around(reference.price), assets);
        refused.extend(fault.map(|fault| (Some(offer.source.clone()), fault)));
        offer.valid_until = offer.valid_until.min(reference.valid_until);
        !offer.is_empty()
    });
    refused
}

/// Cuts an offer to the band.
fn limit_offer(offer: &mut Offer, range: &Range, assets: (&Asset, &Asset)) -> Option<Fault> {
    match &mut offer.curve {
        Curve::Ladder(rungs) => {
            let is_above = rungs.iter().any(|rung| rung.rate > range.high);
            rungs.retain(|rung| range.holds(rung.rate));
            if is_above { Some(Fault::Above) } else { rungs.is_empty().then_some(Fault::Below) }
        }
        Curve::Pool { pool, guard, .. } => {
            let own = guard.around(range.middle);
            let both = own.map(|own| Range {
                middle: range.middle,
                low: range.low.max(own.low),
                high: range.high.min(own.high),
            });
            limit_pool(pool, guard, &both, assets)
        }
    }
}

impl Guard {
    fn around(&self, middle: Decimal) -> Option<Range> {
        Band { deviation_bps: self.deviation_bps, middle: None }.around(middle)
    }

    /// The lowest and the highest price around the pool's average.
    fn around_average(&self, average: &Ratio) -> Option<(Ratio, Ratio)> {
        let of = |bps: u32| {
            let num = average.num.checked_mul(U512::from(bps))?;
            Some(Ratio { num, den: average.den.checked_mul(U512::from(WHOLE_BPS))? })
        };
        let low = of(WHOLE_BPS.checked_sub(self.deviation_bps)?)?;
        Some((low, of(WHOLE_BPS.checked_add(self.deviation_bps)?)?))
    }
}

/// Cuts a pool to the range around the middle, and to its own band around its average. A bound that is not a price
/// leaves nothing.
fn limit_pool(
    pool: &mut Pool,
    guard: &Guard,
    range: &Option<Range>,
    (input, output): (&Asset, &Asset),
) -> Option<Fault> {
    let bound = |price| Ratio::from_rate(price, input.exponent, output.exponent);
    let bounds = range.as_ref().and_then(|range| bound(range.low).zip(bound(range.high)));
    let fault = cut(pool, bounds, (Fault::Above, Fault::Below));
    if fault.is_some() {
        return fault;
    }
    let Some(average) = &guard.average else {
        *pool = pool.clone().emptied();
        return Some(Fault::NoAverage);
    };
    cut(pool, guard.around_average(average), (Fault::AboveAverage, Fault::BelowAverage))
}

fn cut(pool: &mut Pool, bounds: Option<(Ratio, Ratio)>, (above, below): (Fault, Fault)) -> Option<Fault> {
    let spot = pool.spot();
    let within = bounds.filter(|(_, high)| spot <= *high);
    *pool = match &within {
        Some((low, _)) => pool.clone().until(low),
        None => pool.clone().emptied(),
    };
    if within.is_none() { Some(above) } else { pool.depth().is_zero().then_some(below) }
}

impl Bands {
    /// Replaces the bands of the same pairs by those of another list.
    #[must_use]
    pub fn overridden_by(&self, changed: impl IntoIterator<Item = ((String, String), Band)>) -> Self {
        let mut all = self.0.clone();
        all.extend(changed);
        Self(all)
    }

    /// Removes every price outside of its band from the snapshot, and returns what it removed.
    pub fn apply(&self, snapshot: &mut Snapshot, registry: &Registry, now: Timestamp) -> Vec<RefusedPrice> {
        let mut refused = Vec::new();
        for (input, outputs) in &mut snapshot.pairs {
            for (output, market) in outputs {
                let Some(assets) = registry.find(input).zip(registry.find(output)) else { continue };
                let faults = match self.0.get(&(input.clone(), output.clone())) {
                    Some(band) => band.limit(market, assets, now),
                    None => limit_pools(market, assets, now),
                };
                refused.extend(faults.into_iter().map(|(source, fault)| RefusedPrice {
                    input: input.clone(),
                    output: output.clone(),
                    source,
                    fault,
                }));
            }
        }
        refused.sort_by(|a, b| (&a.input, &a.output).cmp(&(&b.input, &b.output)));
        refused
    }
}

#[cfg(test)]
mod tests;
