//! Checks that a receipt's own numbers add up, without any other data.
//!
//! ```text
//! offramp.toAmountMinor = floor(offramp.fromAmountMinor × offramp.fxRate), in the exponents of both assets
//! payout.amountMinor    = offramp.toAmountMinor − the fees deducted in the output asset
//! ```

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use crate::fees::{Collection, FeeItem};
use crate::money::{Minor, Ratio};

/// The largest number of decimals of an asset.
const EXPONENT_MAX: u8 = 38;

/// How a receipt does not add up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptFault {
    #[error("the receipt's amounts cannot be read: {0}")]
    Unreadable(String),
    #[error("offramp.toAmountMinor is {stated}, but fromAmountMinor times fxRate is {computed} rounded down")]
    Conversion { stated: Minor, computed: String },
    #[error(
        "payout.amountMinor is {stated}, but toAmountMinor less the fees deducted in {currency} is {computed}"
    )]
    Payout { stated: Minor, currency: String, computed: Minor },
    #[error("the fees deducted in {currency} are more than toAmountMinor")]
    Fees { currency: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Amounts {
    offramp: Option<Offramp>,
    payout: Payout,
    fees: Vec<FeeItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offramp {
    from_asset: String,
    to_asset: String,
    from_amount_minor: Minor,
    to_amount_minor: Minor,
    fx_rate: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payout {
    amount_minor: Minor,
    exponent: u8,
}

/// Checks the body of a receipt. One without an `offramp` block (money for money) has nothing to check.
///
/// The exponent of the input asset is that of a fee in it. A receipt without one must add up with some exponent.
pub fn check(body: &Value) -> Result<(), ReceiptFault> {
    let unreadable = |error: &dyn std::fmt::Display| ReceiptFault::Unreadable(error.to_string());
    let Amounts { offramp, payout, fees } = Amounts::deserialize(body).map_err(|error| unreadable(&error))?;
    let Some(offramp) = offramp else { return Ok(()) };
    let rate: Decimal = offramp.fx_rate.parse().map_err(|error: rust_decimal::Error| unreadable(&error))?;
    let converted = |exponent: u8| {
        let ratio = Ratio::from_rate(rate, exponent, payout.exponent)?;
        Some(ratio.forward(offramp.from_amount_minor)?.amount)
    };
    let known = fees.iter().find(|fee| fee.currency == offramp.from_asset).map(|fee| fee.exponent);
    let adds_up = match known {
        Some(exponent) => converted(exponent) == Some(offramp.to_amount_minor),
        None => (0..=EXPONENT_MAX).any(|exponent| converted(exponent) == Some(offramp.to_amount_minor)),
    };
    if !adds_up {
        let computed = match known {
            Some(exponent) => converted(exponent).map_or_else(|| "no amount".to_owned(), |c| c.to_string()),
            None => "another amount with any number of decimals".to_owned(),
        };
        return Err(ReceiptFault::Conversion { stated: offramp.to_amount_minor, computed });
    }
    let mut left = offramp.to_amount_minor;
    for fee in &fees {
        if fee.collection == Collection::Deducted && fee.currency == offramp.to_asset {
            left = left
                .checked_sub(fee.amount_minor)
                .ok_or_else(|| ReceiptFault::Fees { currency: fee.currency.clone() })?;
        }
    }
    if left != payout.amount_minor {
        return Err(ReceiptFault::Payout {
            stated: payout.amount_minor,
            currency: offramp.to_asset,
            computed: left,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt() -> Value {
        let fee = |kind: &str, amount: &str, currency: &str, exponent: u8, collection: &str| {
            json!({"type": kind, "amountMinor": amount, "currency": currency, "exponent": exponent,
                   "collection": collection})
        };
        json!({
            "offramp": {"fromAsset": "USDC", "toAsset": "EUR", "fromAmountMinor": "99900000",
                        "toAmountMinor": "9177", "fxRate": "0.91862"},
            "payout": {"amountMinor": "9127", "exponent": 2},
            "fees": [fee("protocol_fee", "100000", "USDC", 6, "deducted"),
                     fee("payout_fee", "50", "EUR", 2, "deducted"),
                     fee("network_fee", "700", "USDC", 6, "absorbed")],
        })
    }

    #[test]
    fn a_valid_receipt_passes_and_each_changed_number_is_found() {
        assert_eq!(check(&receipt()), Ok(()));
        let changed = |at: &str, to: &str| {
            let mut body = receipt();
            *body.pointer_mut(at).unwrap() = json!(to);
            check(&body).unwrap_err()
        };
        let conversion = ["/offramp/fromAmountMinor", "/offramp/toAmountMinor", "/offramp/fxRate"];
        for (at, to) in conversion.into_iter().zip(["100000000", "9178", "0.9188"]) {
            assert!(matches!(changed(at, to), ReceiptFault::Conversion { .. }), "{at}");
        }
        let payout = changed("/payout/amountMinor", "9128");
        let wrong = |stated: u32, computed: u32| ReceiptFault::Payout {
            stated: Minor::new(stated.into()),
            currency: "EUR".into(),
            computed: Minor::new(computed.into()),
        };
        assert_eq!(payout, wrong(9128, 9127));
        assert_eq!(changed("/fees/1/amountMinor", "51"), wrong(9127, 9126));
        let fee = changed("/fees/1/amountMinor", "9178");
        assert_eq!(fee, ReceiptFault::Fees { currency: "EUR".into() });
        assert!(matches!(changed("/offramp/fxRate", "much"), ReceiptFault::Unreadable(_)));
    }

    #[test]
    fn without_an_input_fee_the_decimals_are_found_by_trial() {
        let mut body = receipt();
        body["fees"] = json!([]);
        body["payout"]["amountMinor"] = json!("9177");
        assert_eq!(check(&body), Ok(()));
        body["offramp"]["toAmountMinor"] = json!("9178");
        body["payout"]["amountMinor"] = json!("9178");
        assert!(matches!(check(&body), Err(ReceiptFault::Conversion { .. })));
    }

    #[test]
    fn money_for_money_has_no_conversion_to_check() {
        let body = json!({"offramp": null, "payout": {"amountMinor": "5", "exponent": 2}, "fees": []});
        assert_eq!(check(&body), Ok(()));
    }
}
