//! Fees beside the price of an exchange, and how they are rendered (spec section 2.1).

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
    /// Fixed estimate in the input asset, absorbed.
    pub network_fee_minor: Minor,
}
