//! What a caller may ask of the service (spec section 2.5), whichever door it came through.

use serde::{Deserialize, Serialize};

use crate::asset::AssetDescriptor;
use crate::beneficiary::Beneficiary;
use crate::money::Minor;
use crate::time::Timestamp;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorType {
    Retail,
    #[default]
    Institution,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Buy,
    #[default]
    Sell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SettlementType {
    Onchain,
    Offchain,
    Hybrid,
}

/// What is fixed and what is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounds {
    /// The input is fixed, the output has a floor.
    ExactInput { input: Minor, min_output: Minor },
    /// The output is fixed, the input has a cap.
    ExactOutput { output: Minor, max_input: Minor },
}

/// An EIP-712 authorization for the escrow to pull the input (spec section 2.5, Permit).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permit {
    pub token: String,
    pub amount_minor: Minor,
    pub spender: String,
    pub nonce: Minor,
    /// Unix seconds.
    pub deadline: u64,
    pub signature: String,
}

/// A request to exchange one asset for another, structurally valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntentRequest {
    pub intent_id: String,
    pub client_reference: Option<String>,
    pub user: String,
    pub input_asset: AssetDescriptor,
    pub output_asset: AssetDescriptor,
    pub bounds: Bounds,
    pub quote_id: Option<String>,
    pub deadline: Timestamp,
    pub settlement_type: SettlementType,
    pub output_recipient: Option<String>,
    pub beneficiary: Option<Beneficiary>,
    pub permit: Option<Permit>,
    pub actor_type: ActorType,
    pub side: Side,
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Why a permit can be seen to be malformed without asking anyone: the contract's three cases, the spender, the
/// deadline and the signature's form. Whose signature it is, and the nonce, are checked by whoever can.
pub fn permit_defect(request: &IntentRequest, escrow: &str, now: Timestamp) -> Option<&'static str> {
    let permit = request.permit.as_ref()?;
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    if request.input_asset.address.as_ref().is_some_and(|address| !same(address, &permit.token)) {
        return Some("permit.token differs from inputAsset.address");
    }
    if !is_signature(&permit.signature) {
        return Some("permit.signature is not a 65-byte hex value");
    }
    if let Bounds::ExactInput { input, .. } = request.bounds
        && permit.amount_minor < input
    {
        return Some("permit.amountMinor is below the amount to be locked");
    }
    if !same(&permit.spender, escrow) {
        return Some("permit.spender is not the escrow");
    }
    if permit.deadline <= now.unix_secs() {
        return Some("permit.deadline has passed");
    }
    None
}

fn is_signature(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.len() == 130 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `0x` and forty hex digits.
pub fn is_address(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}
