//! Fees beside the price of an exchange, and how they are rendered (spec section 2.1).

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::money::Minor;
use crate::names::names;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeeType {
    /// For executing the intent.
    ProtocolFee,
    /// The payout rail's or provider's charge.
    PayoutFee,
    /// On-chain gas of the settlement's legs.
    NetworkFee,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Collection {
    /// Taken in-flow from the transferred asset.
    Deducted,
    /// Fronted by the service; informational.
    Absorbed,
}

/// Spec section 2.1, fee item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeeItem {
    #[serde(rename = "type")]
    pub kind: FeeType,
    pub amount_minor: Minor,
    pub currency: String,
    pub exponent: u8,
    pub collection: Collection,
}

/// The fees of a pair, the same for every provider. A fee of zero is not charged and has no fee item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeeSchedule {
    /// Of the input, in basis points, deducted from it.
    pub protocol_fee_bps: u32,
    /// Fixed, in the output asset, deducted from it.
    pub payout_fee_minor: Minor,
    /// In the input asset, absorbed: a fixed estimate, unless it is computed from the fees of the chains.
    pub network_fee_minor: Minor,
}

impl FeeSchedule {
    /// The smallest input from which on the protocol fee is at least a minor unit: an order below it would pay none.
    pub fn least_input(&self) -> Minor {
        const WHOLE: u32 = 10_000;
        if self.protocol_fee_bps == 0 {
            Minor::ZERO
        } else {
            Minor::new(WHOLE.div_ceil(self.protocol_fee_bps).into())
        }
    }
}

names! {
    /// What an order uses a chain for.
    pub enum GasUse {
        Settlement = "settlement",
        Payment = "payment",
        /// The bytes of a settlement's transactions, which a rollup pays for on its L1.
        SettlementData = "settlement_data",
        PaymentData = "payment_data",
    }
}

/// One chain's part of a network fee, with the numbers that it was computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GasCharge {
    pub chain: String,
    pub gas_use: GasUse,
    /// Of data: its bytes.
    pub gas: u64,
    /// A decimal string, as amounts are. Of data: for each byte.
    pub wei_per_gas: Minor,
    pub coin: String,
    /// Units of the input asset for one coin.
    pub coin_price: Decimal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_input_is_the_first_that_pays_a_fee() {
        for bps in [1, 3, 5, 30, 9_999, 10_000] {
            let fees = FeeSchedule { protocol_fee_bps: bps, ..FeeSchedule::default() };
            let least = fees.least_input();
            assert!(!least.bps_floor(bps).is_zero(), "{bps}");
            let below = least.checked_sub(Minor::new(1)).unwrap();
            assert!(below.bps_floor(bps).is_zero(), "{bps}");
        }
        assert_eq!(FeeSchedule::default().least_input(), Minor::ZERO);
    }
}
