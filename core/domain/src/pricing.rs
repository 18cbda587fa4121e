//! What an exchange costs: one all-in rate, and fees beside it, never inside the principal (spec section 2.1).
//!
//! Forward: `output = floor((input - protocol fee) × rate) - payout fee`. The inverse finds the smallest input whose
//! forward result reaches the output, so a recipient of a locked amount is never short-paid.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::asset::Asset;
use crate::money::{Minor, Ratio, gross_up_bps};

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

/// What is charged on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeeSchedule {
    /// Of the input, in basis points, deducted from it.
    pub protocol_fee_bps: u32,
    /// Fixed, in the output asset, deducted from it.
    pub payout_fee_minor: Minor,
    /// Fixed estimate in the input asset, absorbed.
    pub network_fee_minor: Minor,
}

/// A price to be applied: the rate (output per one input, spread inside) and the fees.
#[derive(Debug, Clone)]
pub struct Price<'a> {
    pub rate: Decimal,
    pub fees: FeeSchedule,
    pub input: &'a Asset,
    pub output: &'a Asset,
}

/// A priced exchange. `input - protocol_fee` converts to `gross_output`; the recipient gets `output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priced {
    pub rate: Decimal,
    pub input: Minor,
    pub protocol_fee: Minor,
    pub gross_output: Minor,
    pub payout_fee: Minor,
    pub output: Minor,
    /// What the floor of the conversion cut off, in 10^-18 minor units of the output asset.
    pub residual_e18: u64,
    pub fees: Vec<FeeItem>,
}

impl Price<'_> {
    fn ratio(&self) -> Option<Ratio> {
        Ratio::from_rate(self.rate, self.input.exponent, self.output.exponent)
    }

    /// What `input` delivers. `None` when nothing is left after fees, or above 2^128 - 1.
    pub fn forward(&self, input: Minor) -> Option<Priced> {
        let protocol_fee = input.bps_floor(self.fees.protocol_fee_bps);
        let converted = self.ratio()?.forward(input.checked_sub(protocol_fee)?)?;
        let payout_fee = self.fees.payout_fee_minor;
        let output = converted.amount.checked_sub(payout_fee).filter(|left| !left.is_zero())?;
        Some(Priced {
            rate: self.rate,
            input,
            protocol_fee,
            gross_output: converted.amount,
            payout_fee,
            output,
            residual_e18: converted.residual_e18,
            fees: self.fee_items(protocol_fee),
        })
    }

    /// The smallest input that delivers at least `output`. What the rounding yields beyond it stays with the
    /// solver: exactly `output` is delivered.
    pub fn inverse(&self, output: Minor) -> Option<Priced> {
        let gross = output.checked_add(self.fees.payout_fee_minor)?;
        let net = self.ratio()?.inverse(gross)?;
        let input = gross_up_bps(net, self.fees.protocol_fee_bps)?;
        let priced = self.forward(input)?;
        Some(Priced { gross_output: gross, output, residual_e18: 0, ..priced })
    }

    fn fee_items(&self, protocol_fee: Minor) -> Vec<FeeItem> {
        let item = |kind, amount_minor, asset: &Asset, collection| FeeItem {
            kind,
            amount_minor,
            currency: asset.symbol.clone(),
            exponent: asset.exponent,
            collection,
        };
        vec![
            item(FeeType::ProtocolFee, protocol_fee, self.input, Collection::Deducted),
            item(FeeType::PayoutFee, self.fees.payout_fee_minor, self.output, Collection::Deducted),
            item(FeeType::NetworkFee, self.fees.network_fee_minor, self.input, Collection::Absorbed),
        ]
    }
}

/// `reference × (1 - spread)`, cut to eight places.
pub fn all_in_rate(reference: Decimal, spread_bps: u32) -> Option<Decimal> {
    let kept = Decimal::from(10_000_u32.checked_sub(spread_bps)?);
    let rate = reference.checked_mul(kept)?.checked_div(Decimal::from(10_000_u32))?;
    Some(rate.trunc_with_scale(8).normalize())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::asset::AssetKind;

    fn assets(ei: u8, eo: u8) -> (Asset, Asset) {
        let chain = AssetKind::Erc20 { chain: "anvil".into(), address: "0x1".into() };
        let fiat = AssetKind::Fiat { currency: "EUR".into() };
        (
            Asset { symbol: "USDC".into(), exponent: ei, kind: chain },
            Asset { symbol: "EUR".into(), exponent: eo, kind: fiat },
        )
    }

    fn schedule(bps: u32, payout: u128) -> FeeSchedule {
        FeeSchedule {
            protocol_fee_bps: bps,
            payout_fee_minor: Minor::new(payout),
            network_fee_minor: Minor::new(30_000),
        }
    }

    #[test]
    fn fees_are_beside_the_principal_and_sum_to_what_is_missing() {
        let (input, output) = assets(6, 2);
        let price =
            Price { rate: "0.92".parse().unwrap(), fees: schedule(10, 50), input: &input, output: &output };
        let priced = price.forward(Minor::new(1_000_000_000)).unwrap();
        assert_eq!(priced.protocol_fee, Minor::new(1_000_000));
        assert_eq!(priced.gross_output, Minor::new(91_908));
        assert_eq!(priced.output, Minor::new(91_858));
        assert_eq!(priced.fees.iter().filter(|f| f.collection == Collection::Deducted).count(), 2);
    }

    #[test]
    fn an_input_that_fees_eat_up_has_no_price() {
        let (input, output) = assets(6, 2);
        let price = Price { rate: Decimal::ONE, fees: schedule(10, 50), input: &input, output: &output };
        assert_eq!(price.forward(Minor::new(400_000)), None);
    }

    #[test]
    fn the_all_in_rate_carries_the_spread_and_eight_places() {
        assert_eq!(all_in_rate("0.92".parse().unwrap(), 15), "0.91862".parse().ok());
        assert_eq!(all_in_rate(Decimal::ONE, 10_001), None);
    }

    proptest! {
        #[test]
        fn the_inverse_never_short_pays_and_no_smaller_input_would_do(
            mantissa in 1_i64..1_000_000_000_000, scale in 0_u32..=8, ei in 0_u8..=18, eo in 0_u8..=6,
            bps in 0_u32..500, payout in 0_u128..10_000, target in 1_u128..1_000_000_000_000,
        ) {
            let (input, output) = assets(ei, eo);
            let price = Price {
                rate: Decimal::new(mantissa, scale), fees: schedule(bps, payout), input: &input, output: &output,
            };
            if let Some(priced) = price.inverse(Minor::new(target)) {
                prop_assert_eq!(priced.output, Minor::new(target));
                prop_assert!(price.forward(priced.input).unwrap().output >= priced.output);
                if let Some(below) = priced.input.checked_sub(Minor::new(1)) {
                    prop_assert!(price.forward(below).is_none_or(|less| less.output < priced.output));
                }
            }
        }
    }
}
