//! Fees beside the price of an exchange, and how they are rendered (spec section 2.1).

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::money::Minor;

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

/// What an order uses a chain for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GasUse {
    Settlement,
    Payment,
}

impl GasUse {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settlement => "settlement",
            Self::Payment => "payment",
        }
    }
}

/// One chain's part of a network fee, with the numbers that it was computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GasCharge {
    pub chain: String,
    pub gas_use: GasUse,
    pub gas: u64,
    /// A decimal string, as amounts are.
    pub wei_per_gas: Minor,
    pub coin: String,
    /// Units of the input asset for one coin.
    pub coin_price: Decimal,
}
