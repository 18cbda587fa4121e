//! The contract's names of fields and values, as bodies have them and as the OpenAPI document lists them.

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
    ("sepa_instant", PayoutMethod::SepaInstant),
];
pub(crate) const SETTLEMENT_TYPES: &[(&str, SettlementType)] = &[
    ("onchain", SettlementType::Onchain),
    ("offchain", SettlementType::Offchain),
    ("hybrid", SettlementType::Hybrid),
];

pub(crate) const LEGACY_STATUSES: [&str; 8] =
    ["pending", "solving", "queued", "executing", "settled", "expired", "rejected", "cancelled"];

/// The fields of requests.
pub(crate) const QUOTE: &[&str] = &[
    "requestId",
    "actorId",
    "source",
    "target",
    "amount",
    "side",
    "actorType",
    "quoteType",
    "settlementPref",
    "maxSlippageBps",
];
pub(crate) const FIRM_QUOTE: &[&str] =
    &["requestId", "actorId", "actorType", "side", "inputAsset", "outputAsset", "amountMinor", "amountType"];
pub(crate) const INTENT: &[&str] = &[
    "intentId",
    "clientReference",
    "user",
    "inputAsset",
    "outputAsset",
    "inputAmountMinor",
    "minOutputAmountMinor",
    "input",
    "output",
    "quoteId",
    "deadline",
    "settlementType",
    "outputRecipient",
    "beneficiary",
    "permit",
    "actorType",
    "side",
    "metadata",
];
pub(crate) const ASSET: &[&str] = &["type", "symbol", "address", "chain", "currency"];
pub(crate) const BOUNDS: &[&str] = &["targetAmountMinor", "limitAmountMinor"];
pub(crate) const BENEFICIARY: &[&str] =
    &["account", "name", "country", "payoutMethod", "swiftCode", "bank", "address", "travelRuleData"];
/// Of a recipient that is registered.
pub(crate) const RECIPIENT: &[&str] = &["currency", "beneficiary"];
pub(crate) const RECIPIENT_DETAILS: &[&str] =
    &["account", "name", "country", "payoutMethod", "swiftCode", "bank", "address"];
pub(crate) const BENEFICIARY_ADDRESS: &[&str] = &["line1", "city", "state", "postalCode"];
pub(crate) const PERMIT: &[&str] = &["token", "amountMinor", "spender", "nonce", "deadline", "signature"];
pub(crate) const LEGACY_ORDER: &[&str] = &["pair", "side", "amount", "strategy", "constraints", "clientRef"];
pub(crate) const LEGACY_PAIR: &[&str] = &["source", "target"];
pub(crate) const LEGACY_CONSTRAINTS: &[&str] = &["maxSlippageBps", "maxFeeBps", "settlementPref", "ttlMs"];
pub(crate) const RESTING_ORDER: &[&str] =
    &["clientOrderId", "inputAsset", "outputAsset", "rate", "amountMinor"];
pub(crate) const SANDBOX_CLOCK: &[&str] = &["advanceTo"];
pub(crate) const WEBHOOK_REGISTER: &[&str] = &["url", "subscribedTypes"];
pub(crate) const WEBHOOK_UPDATE: &[&str] = &["url", "subscribedTypes", "isActive"];
pub(crate) const WEBHOOK_TEST: &[&str] = &["type"];
pub(crate) const WEBHOOK_REPLAY: &[&str] = &["from", "to", "types"];
