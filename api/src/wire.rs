//! The contract's names of values, as bodies have them and as the OpenAPI document lists them.

use dvp_domain::asset::AssetType;
use dvp_domain::beneficiary::PayoutMethod;
use dvp_domain::intent::{ActorType, SettlementType, Side};

pub(crate) const ACTOR_TYPES: &[(&str, ActorType)] =
    &[("retail", ActorType::Retail), ("institution", ActorType::Institution)];
pub(crate) const SIDES: &[(&str, Side)] = &[("buy", Side::Buy), ("sell", Side::Sell)];

pub(crate) const ASSET_TYPES: &[(&str, AssetType)] =
    &[("erc20", AssetType::Erc20), ("fiat", AssetType::Fiat), ("native", AssetType::Native)];
pub(crate) const PAYOUT_METHODS: &[(&str, PayoutMethod)] = &[
    ("wire", PayoutMethod::Wire),
    ("swift", PayoutMethod::Swift),
    ("ach", PayoutMethod::Ach),
    ("sepa", PayoutMethod::Sepa),
];
pub(crate) const SETTLEMENT_TYPES: &[(&str, SettlementType)] = &[
    ("onchain", SettlementType::Onchain),
    ("offchain", SettlementType::Offchain),
    ("hybrid", SettlementType::Hybrid),
];

/// The statuses of orders of the legacy API.
pub(crate) const LEGACY_STATUSES: [&str; 8] =
    ["pending", "solving", "queued", "executing", "settled", "expired", "rejected", "cancelled"];
