//! The demand of resting orders: for each pair the number of orders and the sum of their caps.
//!
//! Invariant: it contains nothing from which a target, a limit, a time or an owner of an order could be computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::money::{Minor, U512};

/// The symbols of input and output.
pub type Symbols = (Arc<str>, Arc<str>);

/// The demand of all pairs that have any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    pairs: BTreeMap<Symbols, PairDemand>,
}

/// The demand of a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PairDemand {
    pub orders: u64,
    /// Wide enough for any number of orders.
    input: U512,
}

impl PairDemand {
    /// The sum of the orders' caps, and the largest amount when the sum is beyond it.
    pub fn input(&self) -> Minor {
        Minor::new(u128::try_from(self.input).unwrap_or(u128::MAX))
    }
}

impl Demand {
    /// Adds an order that takes `input` at most.
    pub fn add(&mut self, pair: &Symbols, input: Minor) {
        let demand = self.pairs.entry(pair.clone()).or_default();
        demand.orders = demand.orders.saturating_add(1);
        demand.input = demand.input.saturating_add(U512::from(input.get()));
    }

    /// Removes an order that was added.
    pub fn remove(&mut self, pair: &Symbols, input: Minor) {
        let Some(demand) = self.pairs.get_mut(pair) else { return };
        demand.orders = demand.orders.saturating_sub(1);
        demand.input = demand.input.saturating_sub(U512::from(input.get()));
        if demand.orders == 0 {
            self.pairs.remove(pair);
        }
    }

    /// The demand of some pairs.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Self {
        let wanted = self.pairs.iter().filter(|((input, output), _)| is_wanted(input, output));
        Self { pairs: wanted.map(|(pair, demand)| (pair.clone(), *demand)).collect() }
    }

    /// Input, output and demand of each pair, by their symbols.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str, PairDemand)> {
        self.pairs.iter().map(|((input, output), demand)| (&**input, &**output, *demand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(input: &str, output: &str) -> Symbols {
        (input.into(), output.into())
    }

    fn shown(demand: &Demand) -> Vec<(&str, &str, u64, u128)> {
        let pairs = demand.pairs();
        pairs.map(|(input, output, of_pair)| (input, output, of_pair.orders, of_pair.input().get())).collect()
    }

    #[test]
    fn orders_of_a_pair_are_counted_and_their_caps_are_summed() {
        let (usd, eur) = (pair("USDC", "USD"), pair("USDC", "EUR"));
        let mut demand = Demand::default();
        assert_eq!(shown(&demand), []);
        for (pair, cap) in [(&usd, 100), (&eur, 5), (&usd, 40)] {
            demand.add(pair, Minor::new(cap));
        }
        assert_eq!(shown(&demand), [("USDC", "EUR", 1, 5), ("USDC", "USD", 2, 140)]);
        assert_eq!(shown(&demand.only(|_, output| output == "USD")), [("USDC", "USD", 2, 140)]);
        demand.remove(&usd, Minor::new(100));
        demand.remove(&eur, Minor::new(5));
        assert_eq!(shown(&demand), [("USDC", "USD", 1, 40)]);
        demand.remove(&usd, Minor::new(40));
        assert_eq!(demand, Demand::default(), "a pair without orders has no demand");
        demand.remove(&usd, Minor::new(40));
        assert_eq!(demand, Demand::default());
    }

    #[test]
    fn a_sum_beyond_the_largest_amount_is_shown_as_that_and_kept_exactly() {
        let usd = pair("USDC", "USD");
        let mut demand = Demand::default();
        for cap in [u128::MAX, u128::MAX, 7] {
            demand.add(&usd, Minor::new(cap));
        }
        assert_eq!(shown(&demand), [("USDC", "USD", 3, u128::MAX)]);
        demand.remove(&usd, Minor::new(u128::MAX));
        demand.remove(&usd, Minor::new(u128::MAX));
        assert_eq!(shown(&demand), [("USDC", "USD", 1, 7)]);
    }
}
