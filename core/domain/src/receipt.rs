//! The receipt of a completed execution and the hash that is anchored for it (spec section 2.7).

mod arithmetic;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::{canonical_sha256, hex32};
use crate::fees::FeeItem;
use crate::settlement::{Conversion, Finality, LegDone};
use crate::terms::Terms;
use crate::time::Timestamp;

pub use self::arithmetic::{ReceiptFault, check};

pub const SCHEMA_VERSION: &str = "svc-receipt-1";
/// What is left of a receipt of which fields were erased.
pub const ERASED_VERSION: &str = "svc-receipt-1-erased";

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(rename = "_schemaVersion")]
    schema_version: &'static str,
    client_reference: Option<&'a str>,
    provider: &'a str,
    /// Null for an exchange of money for money.
    offramp: Option<Value>,
    payout: Value,
    fees: &'a [FeeItem],
    issued_at: String,
}

/// A receipt as it is stored: the body without `txHash` and `finality`, and its content hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    pub body: Value,
    /// `0x` and 64 hex digits.
    pub content_hash: String,
}

pub fn issue(terms: &Terms, offramp: Option<&Conversion>, payout: &LegDone, issued_at: Timestamp) -> Receipt {
    let priced = &terms.plan.priced;
    let body = Body {
        schema_version: SCHEMA_VERSION,
        client_reference: terms.request.client_reference.as_deref(),
        provider: terms.plan.path.payout_provider(),
        offramp: offramp.map(|offramp| {
            json!({
                "fromAsset": terms.input.asset,
                "toAsset": terms.output.asset,
                "fromAmountMinor": priced.net_input(),
                "toAmountMinor": priced.gross_output,
                "fxRate": priced.rate.to_string(),
                "roundingRule": "floor",
                "occurredAt": offramp.done.occurred_at.iso8601(),
            })
        }),
        payout: json!({
            "amountMinor": priced.output,
            "currency": terms.output.asset,
            "exponent": terms.output.exponent,
            "bankRef": payout.provider_reference,
            "occurredAt": payout.occurred_at.iso8601(),
        }),
        fees: &priced.fees,
        issued_at: issued_at.iso8601(),
    };
    let body = serde_json::to_value(body).unwrap_or(Value::Null);
    let content_hash = hash(&body);
    Receipt { body, content_hash }
}

/// The hash of the body without `txHash` and `finality`.
pub fn hash(body: &Value) -> String {
    let mut body = body.clone();
    if let Some(map) = body.as_object_mut() {
        map.remove("txHash");
        map.remove("finality");
    }
    hex32(&canonical_sha256(&body))
}

/// What is left of a receipt when fields are erased, a document of its own version: they are null, and `erased` names
/// them, with the content hash of the receipt as it was issued. Whoever has the fields can put them and the version back
/// and compute the hash again.
#[must_use]
pub fn without(body: &Value, field: &str) -> Value {
    let (mut fields, content_hash) =
        erased(body).map_or_else(|| (Vec::new(), hash(body)), |erased| (erased.fields, erased.content_hash));
    let mut body = body.clone();
    let Some(map) = body.as_object_mut() else { return body };
    if map.get(field).is_some_and(|value| !value.is_null()) {
        map.insert(field.to_owned(), Value::Null);
        fields.push(field.to_owned());
        map.insert("_schemaVersion".into(), json!(ERASED_VERSION));
        map.insert("erased".into(), json!({"fields": fields, "contentHash": content_hash}));
    }
    body
}

/// What was erased of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Erased {
    pub fields: Vec<String>,
    /// Of the receipt as it was issued.
    pub content_hash: String,
}

/// What was erased of a receipt, by its own statement. `None`: nothing.
pub fn erased(body: &Value) -> Option<Erased> {
    Erased::deserialize(body.get("erased")?).ok()
}

/// The content hash that was anchored: computed, or of an erased receipt the stated one.
pub fn anchored_hash(body: &Value) -> String {
    erased(body).map_or_else(|| hash(body), |erased| erased.content_hash)
}

/// The body as readers receive it: with `txHash` and `finality` once the anchor is confirmed.
pub fn with_finality(body: &Value, finality: Option<&Finality>) -> Value {
    let mut body = body.clone();
    if let (Some(map), Some(finality)) = (body.as_object_mut(), finality) {
        map.insert("txHash".into(), json!(finality.tx_hash));
        map.insert("finality".into(), json!(finality));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erased_receipt_says_so_and_is_verified_with_the_field_put_back() {
        let issued = json!({"_schemaVersion": SCHEMA_VERSION, "clientReference": "ref-1", "provider": "lp", "fees": []});
        let content_hash = hash(&issued);
        let mut left = without(&issued, "clientReference");
        assert_eq!(without(&left, "clientReference"), left, "once");
        assert_eq!(left["clientReference"], Value::Null);
        let fields = vec!["clientReference".to_owned()];
        assert_eq!(erased(&left), Some(Erased { fields, content_hash: content_hash.clone() }));
        assert_eq!(anchored_hash(&left), content_hash);
        assert_eq!(left["_schemaVersion"], ERASED_VERSION);
        left["_schemaVersion"] = json!(SCHEMA_VERSION);
        left["clientReference"] = json!("ref-1");
        left.as_object_mut().unwrap().remove("erased");
        assert_eq!(hash(&left), content_hash);
        let without_one = json!({"clientReference": null, "provider": "lp"});
        assert_eq!(without(&without_one, "clientReference"), without_one, "nothing to erase");
    }
}
