//! The gas fees of a transaction. Pure.

use crate::config::FeePolicy;
use crate::rpc;
use crate::signing::Fees;
use alloy::rpc::types::FeeHistory;

/// The fees of the newest blocks, in wei per gas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Market {
    /// Of the next block.
    pub(super) base_fee: u128,
    pub(super) tip: u128,
}

/// A transaction that offers enough is also replaced once it has waited this many times `bump_blocks`.
const PATIENCE: u64 = 8;

impl Market {
    pub(super) fn of(history: Option<&FeeHistory>, base_fee: u64) -> Self {
        let (base_fee, tip) = rpc::fees_of(history, base_fee);
        Self { base_fee, tip }
    }

    /// For a transaction that was never broadcast: allows the base fee to double, within the cap.
    pub(super) fn first(self, policy: &FeePolicy) -> Fees {
        let tip = self.tip.clamp(policy.tip_floor_wei.min(policy.cap_wei), policy.cap_wei);
        let max_fee = self.base_fee.saturating_mul(2).saturating_add(tip).min(policy.cap_wei);
        Fees { max_fee, priority_fee: tip.min(max_fee) }
    }

    /// Whether the next block excludes it at these prices.
    const fn is_short(self, old: Fees) -> bool {
        old.max_fee < self.base_fee.saturating_add(self.tip) || old.priority_fee < self.tip
    }

    /// Whether a transaction that has waited this many blocks must offer more. One that offers the market's fees is not
    /// raised after a loss or an outage: it is broadcast again unchanged.
    pub(super) const fn is_due(self, old: Fees, waited: u64, policy: &FeePolicy) -> bool {
        (waited >= policy.bump_blocks && self.is_short(old)) || waited >= policy.bump_blocks * PATIENCE
    }

    /// Enough above `old` for a node to accept the replacement, and for the next block; `None` when that is above the
    /// cap.
    pub(super) fn raised(self, old: Fees, policy: &FeePolicy) -> Option<Fees> {
        let Fees { max_fee, priority_fee } = old.bumped(self.first(policy));
        let least = old.bumped(Fees { max_fee: 0, priority_fee: 0 });
        let max_fee = max_fee.min(policy.cap_wei);
        let fees = Fees { max_fee, priority_fee: priority_fee.min(max_fee) };
        (fees.max_fee >= least.max_fee && fees.priority_fee >= least.priority_fee).then_some(fees)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: FeePolicy = FeePolicy {
        tip_floor_wei: 5,
        cap_wei: 1_000,
        bump_blocks: 3,
        gas_margin_percent: 0,
        block_gas: 60_000_000,
        tx_fee_max_wei: 1_000_000,
        tx_bytes_max: 100,
    };

    fn history(base: &[u128], blocks: &[(u128, f64)]) -> FeeHistory {
        FeeHistory {
            base_fee_per_gas: base.to_vec(),
            gas_used_ratio: blocks.iter().map(|(_, used)| *used).collect(),
            reward: Some(blocks.iter().map(|(tip, _)| vec![*tip]).collect()),
            ..FeeHistory::default()
        }
    }

    #[test]
    fn nodes_take_what_is_within_their_cost_and_size() {
        let taken = [(100, 1_000, 1_000), (101, 1, 1), (1, 1_001, 1_000), (1, u64::MAX, u128::MAX)];
        let taken = taken.map(|(bytes, gas, max_fee)| POLICY.takes(bytes, gas, max_fee));
        assert_eq!(taken, [true, false, false, false]);
    }

    #[test]
    fn the_market_is_the_next_base_fee_and_the_median_tip() {
        let reported = history(&[1, 2, 3, 40], &[(7, 0.5), (0, 0.0), (9, 0.1), (100, 1.0)]);
        assert_eq!(Market::of(Some(&reported), 1), Market { base_fee: 40, tip: 9 });
        assert_eq!(Market::of(None, 33), Market { base_fee: 33, tip: 0 });
    }

    #[test]
    fn the_first_offer_stays_between_floor_and_cap() {
        let first = |base_fee, tip| Market { base_fee, tip }.first(&POLICY);
        assert_eq!(first(10, 0), Fees { max_fee: 25, priority_fee: 5 });
        assert_eq!(first(10, 50), Fees { max_fee: 70, priority_fee: 50 });
        assert_eq!(first(900, 50), Fees { max_fee: 1_000, priority_fee: 50 });
        assert_eq!(first(10, 5_000), Fees { max_fee: 1_000, priority_fee: 1_000 });
    }

    #[test]
    fn an_outage_does_not_raise_fees_and_a_rising_market_does() {
        let old = Fees { max_fee: 100, priority_fee: 10 };
        let calm = Market { base_fee: 40, tip: 10 };
        assert!(!calm.is_due(old, 23, &POLICY));
        assert!(calm.is_due(old, 24, &POLICY), "for an unknown reason");
        let dear = Market { base_fee: 95, tip: 10 };
        assert!(!dear.is_due(old, 2, &POLICY));
        assert!(dear.is_due(old, 3, &POLICY));
    }

    #[test]
    fn a_replacement_that_nodes_refuse_is_not_offered() {
        let market = Market { base_fee: 10, tip: 5 };
        let raised = market.raised(Fees { max_fee: 80, priority_fee: 8 }, &POLICY);
        assert_eq!(raised, Some(Fees { max_fee: 90, priority_fee: 9 }));
        assert_eq!(market.raised(Fees { max_fee: 950, priority_fee: 8 }, &POLICY), None);
        let dear = Market { base_fee: 5_000, tip: 5 };
        let raised = dear.raised(Fees { max_fee: 800, priority_fee: 8 }, &POLICY);
        assert_eq!(raised, Some(Fees { max_fee: 1_000, priority_fee: 9 }));
    }
}
