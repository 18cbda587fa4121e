//! What a caller may request of the service (spec section 2.5), over any interface.

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

/// An intent's deadline is at most this far ahead, in days: providers' and partners' balances are not reserved for longer,
/// and no order rests for ever.
pub const LIFETIME_DAYS_MAX: i64 = 30;

#[must_use]
pub const fn latest_deadline(now: Timestamp) -> Timestamp {
    now.plus_millis(LIFETIME_DAYS_MAX * 24 * 60 * 60 * 1000)
}

/// What is fixed and what is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounds {
    /// The input is fixed, the output has a floor.
    ExactInput { input: Minor, min_output: Minor },
    /// The output is fixed, the input has a cap.
    ExactOutput { output: Minor, max_input: Minor },
    /// An auction: the input has a cap, the output falls from its target to its limit over the intent's lifetime,
    /// which begins with its acceptance; `received_at` stands for that until then.
    Range { max_input: Minor, target_output: Minor, min_output: Minor, received_at: Timestamp },
}

impl Bounds {
    /// The same, with a lifetime that begins now.
    #[must_use]
    pub const fn beginning(self, now: Timestamp) -> Self {
        match self {
            Self::Range { max_input, target_output, min_output, .. } => {
                Self::Range { max_input, target_output, min_output, received_at: now }
            }
            Self::ExactInput { .. } | Self::ExactOutput { .. } => self,
        }
    }

    /// The most that may be paid.
    pub const fn max_input(self) -> Minor {
        match self {
            Self::ExactInput { input, .. } => input,
            Self::ExactOutput { max_input, .. } | Self::Range { max_input, .. } => max_input,
        }
    }

    /// The least that is delivered.
    pub const fn min_output(self) -> Minor {
        match self {
            Self::ExactInput { min_output, .. } | Self::Range { min_output, .. } => min_output,
            Self::ExactOutput { output, .. } => output,
        }
    }
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

impl IntentRequest {
    /// The wallet that receives a token output: the recipient, or else the user. `None` when it is not an address.
    pub fn delivery_wallet(&self) -> Option<&str> {
        let to = self.output_recipient.as_deref().unwrap_or(&self.user);
        is_address(to).then_some(to)
    }

    /// The payer's reference for the recipient of money, after the name of its field.
    pub fn payer_reference(&self) -> Option<(&'static str, &str)> {
        let of_deposit = self.metadata.as_ref().and_then(|all| all.get("depositReference")?.as_str());
        let both =
            [("metadata.depositReference", of_deposit), (CLIENT_REFERENCE, self.client_reference.as_deref())];
        both.into_iter()
            .find_map(|(field, text)| Some((field, text?.trim())).filter(|(_, text)| !text.is_empty()))
    }
}

/// The field of the caller's own reference.
pub const CLIENT_REFERENCE: &str = "clientReference";

/// `0x` and forty hex digits.
pub fn is_address(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}
