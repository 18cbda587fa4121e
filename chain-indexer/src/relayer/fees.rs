//! The gas fees of a transaction. Pure.

use crate::config::FeePolicy;
use crate::rpc::FeeHistory;
use crate::signing::Fees;

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
    /// `base_fee`: of the newest block, for a node without a history.
    pub(super) fn of(history: Option<FeeHistory>, base_fee: u64) -> Self {
        let FeeHistory { base_fee: next, tip } = history.unwrap_or_default();
        Self { base_fee: next.unwrap_or_else(|| base_fee.into()), tip }
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
    use serde_json::{Value, json};

    const POLICY: FeePolicy = FeePolicy {
        tip_floor_wei: 5,
        cap_wei: 1_000,
        bump_blocks: 3,
        gas_margin_percent: 0,
        block_gas: 60_000_000,
        tx_fee_max_wei: 1_000_000,
        tx_bytes_max: 100,
    };

    #[test]
    fn nodes_take_what_is_within_their_cost_and_size() {
        let taken =
            [(100, 1_000, 1_000, 0), (101, 1, 1, 0), (1, 1_001, 1_000, 0), (1, u64::MAX, u128::MAX, 0)];
        let taken = taken.map(|(bytes, gas, max_fee, data)| POLICY.takes(bytes, gas, max_fee, data));
        assert_eq!(taken, [true, false, false, false]);
        // The data's fee on the L1 is a part of the cost.
        assert!(POLICY.takes(1, 900, 1_000, 100_000) && !POLICY.takes(1, 900, 1_000, 100_001));
        assert!(!POLICY.takes(1, 1, 1, u128::MAX));
        let cap = |gas, data| POLICY.within(gas, data).cap_wei;
        assert_eq!(
            [cap(10_000, 0), cap(10_000, 500_000), cap(10_000, 2_000_000), cap(1, 0)],
            [100, 50, 0, 1_000]
        );
    }

    #[test]
    fn the_market_is_the_next_base_fee_and_the_median_tip() {
        let of = |history| Market::of(Some(FeeHistory::read(&history)), 1);
        let whole = json!({
            "oldestBlock": "0x1", "baseFeePerGas": ["0x1", "0x2", "0x3", "0x4", "0x28"],
            "gasUsedRatio": [0.5, 0.0, 0.1, 1.0], "reward": [["0x7"], ["0x0"], ["0x9"], ["0x64"]],
        });
        assert_eq!(of(whole.clone()), Market { base_fee: 40, tip: 9 });
        // A node without a block's gas, without tips, or without anything.
        let parts = |gas, reward| json!({"baseFeePerGas": whole["baseFeePerGas"], "gasUsedRatio": gas, "reward": reward});
        let tips = || whole["reward"].clone();
        assert_eq!(of(parts(json!([null, null, null, null]), tips())), Market { base_fee: 40, tip: 9 });
        assert_eq!(of(parts(Value::Null, tips())), Market { base_fee: 40, tip: 9 });
        assert_eq!(of(parts(json!([1, 1, 1, 1]), json!([[null], [], null, ["0x5"]]))).tip, 5);
        assert_eq!(of(parts(json!([]), Value::Null)), Market { base_fee: 40, tip: 0 });
        assert_eq!(of(Value::Null), Market { base_fee: 1, tip: 0 });
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
