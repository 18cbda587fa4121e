//! What the market offers for each pair: waiting orders are evaluated when it has changed.

use std::collections::HashMap;

use dvp_domain::liquidity::curve::Pool;
use dvp_domain::liquidity::{Curve, Market, Offer, Policy};
use dvp_domain::money::Minor;
use rust_decimal::Decimal;

/// Source and target.
type PairNames = (String, String);

/// Everything that decides what an order of the pair gets, without the times until which it is valid.
#[derive(Debug, PartialEq, Eq)]
struct Offered {
    reference: Option<Decimal>,
    offers: Vec<OfferSeen>,
}

#[derive(Debug, PartialEq, Eq)]
struct OfferSeen {
    source: String,
    policy: Policy,
    full_depth_bps: u32,
    pool: Option<Pool>,
    rungs: Vec<RungSeen>,
    /// Of a pool's provider.
    available: Option<Minor>,
}

#[derive(Debug, PartialEq, Eq)]
struct RungSeen {
    rate: Decimal,
    capacity: Minor,
    level_id: Option<i64>,
    /// Of the rung's provider.
    available: Minor,
}

/// The market as it was compared last.
#[derive(Debug, Default)]
pub(super) struct Prices {
    seen: HashMap<PairNames, Offered>,
}

impl Prices {
    /// The pairs whose prices or balances differ from the last comparison; at the first all of them.
    pub(super) fn changed(&mut self, market: &Market<'_>) -> Vec<PairNames> {
        let mut changed = Vec::new();
        for pair in &market.registry.pairs {
            let names = (pair.base.clone(), pair.quote.clone());
            let offered = offered(market, &names);
            if self.seen.get(&names) != Some(&offered) {
                self.seen.insert(names.clone(), offered);
                changed.push(names);
            }
        }
        changed
    }
}

fn offered(market: &Market<'_>, (source, target): &PairNames) -> Offered {
    let Some(pair) = market.snapshot.pair(source, target) else {
        return Offered { reference: None, offers: Vec::new() };
    };
    let reference = pair.reference.filter(|reference| reference.valid_until > market.now);
    let valid = pair.offers.iter().filter(|offer| offer.valid_until > market.now);
    Offered {
        reference: reference.map(|reference| reference.price),
        offers: valid.map(|offer| seen(market, offer, target)).collect(),
    }
}

fn seen(market: &Market<'_>, offer: &Offer, target: &str) -> OfferSeen {
    let available = |provider: &str| market.holdings.available(provider, target);
    let (pool, desk, rungs) = match &offer.curve {
        Curve::Pool { deliverer, pool, guard: _ } => (Some(pool.clone()), Some(deliverer), &[][..]),
        Curve::Ladder(rungs) => (None, None, rungs.as_slice()),
    };
    let rungs = rungs.iter().map(|rung| RungSeen {
        rate: rung.rate,
        capacity: rung.capacity,
        level_id: rung.level_id,
        available: available(&rung.deliverer.provider_id),
    });
    OfferSeen {
        source: offer.source.clone(),
        policy: offer.policy,
        full_depth_bps: offer.full_depth_bps,
        pool,
        rungs: rungs.collect(),
        available: desk.map(|desk| available(&desk.provider_id)),
    }
}
