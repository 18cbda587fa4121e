//! Limits on orders: on the amount of one order, of all orders of a UTC day, and of all open orders.
//!
//! | scope | target | counts |
//! |---|---|---|
//! | everything | | the amounts of the asset that orders pay |
//! | partner | its id | the amounts of the asset that its orders pay |
//! | pair | `INPUT/OUTPUT` | the amounts that orders of the pair pay; the asset is the input |
//! | provider | its id | the amounts of the asset that the provider delivers |
//! | rail | `offramp` or `payout` | the amounts of an asset to be converted, or of a currency to be paid out |
//! | chain | its name | the amounts of a token of the chain that orders pay or receive |
//!
//! An accepted amount counts for its day even if the order ends otherwise: an order that is cancelled and placed again
//! counts twice. An open order counts from its acceptance to its end.
//!
//! Sums change in the transaction that accepts or ends the orders: those of a day are locked rows, those of open
//! orders lists of changes under the lock of their limit.
//!
//! Kept by `core/tests/it/limits.rs::concurrent_orders_in_several_processes_do_not_exceed_a_days_limit` and
//! `core/tests/it/limits.rs::open_orders_are_limited_in_all_processes_until_they_end`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::money::Minor;
use crate::names::names;
pub use crate::pause::Scope as LimitScope;
use crate::plan::Plan;
use crate::settlement::leg::LegKind;
use crate::terms::Terms;

names! {
    /// The sum that is limited: one order, the orders of a UTC day, or the orders that have not ended.
    #[derive(PartialOrd, Ord)]
    pub enum Period {
        Order = "order",
        Day = "day",
        Open = "open",
    }
}

/// The key by which amounts are summed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitKey {
    pub scope: LimitScope,
    pub target: String,
    pub asset: String,
}

/// The limit that an order would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Exceeded {
    pub scope: LimitScope,
    pub period: Period,
}

impl Exceeded {
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |scope| Period::ALL.into_iter().map(move |period| Self { scope, period });
        LimitScope::ALL.into_iter().flat_map(of)
    }

    /// The reason's wire text.
    pub const fn as_str(self) -> &'static str {
        match (self.scope, self.period) {
            (LimitScope::Everything, Period::Order) => "order_limit_exceeded",
            (LimitScope::Everything, Period::Day) => "day_limit_exceeded",
            (LimitScope::Everything, Period::Open) => "open_limit_exceeded",
            (LimitScope::Partner, Period::Order) => "partner_order_limit_exceeded",
            (LimitScope::Partner, Period::Day) => "partner_day_limit_exceeded",
            (LimitScope::Partner, Period::Open) => "partner_open_limit_exceeded",
            (LimitScope::Pair, Period::Order) => "pair_order_limit_exceeded",
            (LimitScope::Pair, Period::Day) => "pair_day_limit_exceeded",
            (LimitScope::Pair, Period::Open) => "pair_open_limit_exceeded",
            (LimitScope::Provider, Period::Order) => "provider_order_limit_exceeded",
            (LimitScope::Provider, Period::Day) => "provider_day_limit_exceeded",
            (LimitScope::Provider, Period::Open) => "provider_open_limit_exceeded",
            (LimitScope::Rail, Period::Order) => "rail_order_limit_exceeded",
            (LimitScope::Rail, Period::Day) => "rail_day_limit_exceeded",
            (LimitScope::Rail, Period::Open) => "rail_open_limit_exceeded",
            (LimitScope::Chain, Period::Order) => "chain_order_limit_exceeded",
            (LimitScope::Chain, Period::Day) => "chain_day_limit_exceeded",
            (LimitScope::Chain, Period::Open) => "chain_open_limit_exceeded",
        }
    }
}

/// An asset that an order pays or receives, and its chain.
#[derive(Debug, Clone, Copy)]
pub struct OrderAsset<'a> {
    pub symbol: &'a str,
    pub chain: Option<&'a str>,
}

/// What an accepted order adds to each sum.
pub fn amounts_of(terms: &Terms) -> BTreeMap<LimitKey, Minor> {
    let [input, output] = [&terms.input, &terms.output]
        .map(|side| OrderAsset { symbol: &side.asset, chain: side.chain.as_deref() });
    amounts(terms.partner_id.as_str(), input, output, &terms.plan)
}

/// What an order adds to each sum.
pub fn amounts(
    partner_id: &str,
    input: OrderAsset<'_>,
    output: OrderAsset<'_>,
    plan: &Plan,
) -> BTreeMap<LimitKey, Minor> {
    let sides = [(input, plan.priced.input), (output, plan.priced.output)];
    let (input, output) = (input.symbol, output.symbol);
    let key = |scope, target: &str, asset: &str| LimitKey {
        scope,
        target: target.to_owned(),
        asset: asset.to_owned(),
    };
    let paid = plan.priced.input;
    let mut amounts = BTreeMap::from([
        (key(LimitScope::Everything, "", input), paid),
        (key(LimitScope::Partner, partner_id, input), paid),
        (key(LimitScope::Pair, &format!("{input}/{output}"), input), paid),
    ]);
    for slice in &plan.slices {
        let sum = amounts.entry(key(LimitScope::Provider, &slice.provider_id, output)).or_default();
        *sum = plus(*sum, slice.output);
    }
    for (side, amount) in sides {
        if let Some(chain) = side.chain {
            let sum = amounts.entry(key(LimitScope::Chain, chain, side.symbol)).or_default();
            *sum = plus(*sum, amount);
        }
    }
    let crosses = sides[0].0.chain.zip(sides[1].0.chain).is_some_and(|(input, output)| input != output);
    if plan.kind.locks_input() != plan.kind.pays_on_chain() || crosses {
        amounts.insert(key(LimitScope::Rail, LegKind::Offramp.as_str(), input), paid);
    }
    if !plan.kind.pays_on_chain() {
        amounts.insert(key(LimitScope::Rail, LegKind::Payout.as_str(), output), plan.priced.output);
    }
    amounts
}

fn left(limit: Minor, sum: Option<&Minor>) -> Minor {
    limit.checked_sub(sum.copied().unwrap_or_default()).unwrap_or_default()
}

/// A sum that overflows exceeds every possible limit.
fn plus(one: Minor, other: Minor) -> Minor {
    one.checked_add(other).unwrap_or(Minor::new(u128::MAX))
}

/// The limits in force, the sums accepted today for daily limits, and the sums of open orders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    limits: BTreeMap<(LimitKey, Period), Minor>,
    used: BTreeMap<LimitKey, Minor>,
    open: BTreeMap<LimitKey, Minor>,
}

impl FromIterator<(LimitKey, Period, Minor)> for Limits {
    fn from_iter<T: IntoIterator<Item = (LimitKey, Period, Minor)>>(limits: T) -> Self {
        let limits = limits.into_iter().map(|(key, period, amount)| ((key, period), amount)).collect();
        Self { limits, ..Self::default() }
    }
}

impl Limits {
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// The sums that have a limit of this kind, in the order of their keys.
    pub fn keys(&self, of: Period) -> impl Iterator<Item = &LimitKey> {
        self.limits.keys().filter(move |(_, period)| *period == of).map(|(key, _)| key)
    }

    /// Sets the sums accepted earlier today.
    pub fn set_used(&mut self, used: impl IntoIterator<Item = (LimitKey, Minor)>) {
        self.used.extend(used);
    }

    pub fn set_open(&mut self, open: impl IntoIterator<Item = (LimitKey, Minor)>) {
        self.open.extend(open);
    }

    fn room(&self, key: &LimitKey, period: Period) -> Option<Minor> {
        let limit = *self.limits.get(&(key.clone(), period))?;
        Some(match period {
            Period::Order => limit,
            Period::Day => left(limit, self.used.get(key)),
            Period::Open => left(limit, self.open.get(key)),
        })
    }

    /// How much of an asset a provider may deliver for one order now.
    pub fn room_of_provider(&self, provider_id: &str, asset: &str) -> Minor {
        let unlimited = Minor::new(u128::MAX);
        if self.is_empty() {
            return unlimited;
        }
        let key =
            LimitKey { scope: LimitScope::Provider, target: provider_id.to_owned(), asset: asset.to_owned() };
        Period::ALL.into_iter().filter_map(|period| self.room(&key, period)).fold(unlimited, Minor::min)
    }

    pub fn exceeded(&self, amounts: &BTreeMap<LimitKey, Minor>) -> Option<Exceeded> {
        if self.is_empty() {
            return None;
        }
        amounts.iter().find_map(|(key, amount)| {
            let is_exceeded = |period: &Period| self.room(key, *period).is_some_and(|room| *amount > room);
            let period = Period::ALL.into_iter().find(is_exceeded)?;
            Some(Exceeded { scope: key.scope, period })
        })
    }

    /// Counts an accepted order.
    pub fn take(&mut self, amounts: &BTreeMap<LimitKey, Minor>) {
        if self.is_empty() {
            return;
        }
        for (key, amount) in amounts {
            for sums in [&mut self.used, &mut self.open] {
                let sum = sums.entry(key.clone()).or_default();
                *sum = plus(*sum, *amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::AssetAmount;

    fn key(scope: LimitScope, target: &str) -> LimitKey {
        LimitKey { scope, target: target.into(), asset: "USD".into() }
    }

    fn order(amount: u128) -> BTreeMap<LimitKey, Minor> {
        BTreeMap::from([(key(LimitScope::Partner, "p"), Minor::new(amount))])
    }

    #[test]
    fn a_day_takes_orders_up_to_its_limit() {
        let mut limits = Limits::from_iter([(key(LimitScope::Partner, "p"), Period::Day, Minor::new(100))]);
        limits.set_used([(key(LimitScope::Partner, "p"), Minor::new(30))]);
        let exceeded = Some(Exceeded { scope: LimitScope::Partner, period: Period::Day });
        assert_eq!((limits.exceeded(&order(71)), limits.exceeded(&order(70))), (exceeded, None));
        limits.take(&order(70));
        assert_eq!(limits.exceeded(&order(1)), exceeded);
        limits.take(&order(u128::MAX));
        assert_eq!(limits.exceeded(&order(1)), exceeded, "an overflowing sum exceeds the limit");
    }

    #[test]
    fn an_order_across_counts_for_both_chains_and_the_rail_that_converts() {
        let across = crate::settlement::tests::across();
        let (given, got) = (&across.input, &across.output);
        let of = |scope: LimitScope, target: &str, side: &AssetAmount| {
            (scope, target.to_owned(), side.asset.clone(), side.amount)
        };
        let counted: Vec<_> = amounts_of(&across)
            .into_iter()
            .filter(|(key, _)| matches!(key.scope, LimitScope::Rail | LimitScope::Chain))
            .map(|(key, amount)| (key.scope, key.target, key.asset, amount))
            .collect();
        let expected = [
            of(LimitScope::Rail, "offramp", given),
            of(LimitScope::Chain, "away", got),
            of(LimitScope::Chain, "home", given),
        ];
        assert_eq!(counted, expected);
    }

    #[test]
    fn a_provider_may_deliver_what_both_of_its_limits_allow() {
        let provider = key(LimitScope::Provider, "north");
        let mut limits = Limits::from_iter([
            (provider.clone(), Period::Order, Minor::new(50)),
            (provider.clone(), Period::Day, Minor::new(80)),
        ]);
        assert_eq!(limits.room_of_provider("north", "USD"), Minor::new(50));
        limits.take(&BTreeMap::from([(provider, Minor::new(50))]));
        assert_eq!(limits.room_of_provider("north", "USD"), Minor::new(30));
        assert_eq!(limits.room_of_provider("north", "EUR"), Minor::new(u128::MAX));
        assert_eq!(limits.room_of_provider("south", "USD"), Minor::new(u128::MAX));
    }
}
