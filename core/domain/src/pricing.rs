//! The price of an exchange: one all-in rate, and separate fees, never inside the principal (spec section 2.1).
//!
//! Forward: `output = convert(input - protocol fee) - payout fee`. The inverse finds the smallest input whose forward
//! result reaches the output, so a recipient of a locked amount is never short-paid. [`liquidity`](crate::liquidity)
//! does the conversion; fees are the same for every provider.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::asset::{Asset, OrderSizes};
use crate::fees::{Collection, FeeItem, FeeSchedule, FeeType, GasCharge};
use crate::money::{Minor, Ratio, Residual, gross_up_bps};

/// A pair's fees and the sizes of its orders, with its assets.
#[derive(Debug, Clone, Copy)]
pub struct Charges<'a> {
    pub fees: FeeSchedule,
    pub sizes: OrderSizes,
    pub input: &'a Asset,
    pub output: &'a Asset,
    /// The parts of the network fee, when it was computed.
    pub gas: &'a [GasCharge],
}

/// A priced exchange. `input - protocol_fee` converts to `gross_output`; the recipient gets `output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priced {
    /// Output per one input as converted: includes the spread, excludes the fees. `gross_output` is the net input times
    /// this rate, rounded down.
    pub rate: Decimal,
    /// The reference price when the price was made: output per one input, before spread and fees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Decimal>,
    pub input: Minor,
    pub protocol_fee: Minor,
    pub gross_output: Minor,
    pub payout_fee: Minor,
    pub output: Minor,
    /// What the conversion's rounding cuts off, in 10^-18 minor units of the output asset.
    pub residual_e18: Residual,
    /// What the rounding of the protocol fee cuts off, in 10^-18 minor units of the input asset.
    #[serde(default, skip_serializing_if = "Residual::is_zero")]
    pub fee_residual_e18: Residual,
    pub fees: Vec<FeeItem>,
    /// The parts of the network fee, when it was computed from the chains' fees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gas: Vec<GasCharge>,
}

/// A conversion of the net input, before the fees around it are known.
#[derive(Debug, Clone, Copy)]
pub struct Converted {
    pub rate: Decimal,
    pub gross_output: Minor,
    pub residual_e18: Residual,
}

impl Priced {
    /// The converted amount: the input less the fees deducted from it.
    pub fn net_input(&self) -> Minor {
        self.input.checked_sub(self.protocol_fee).unwrap_or_default()
    }

    /// Whether the net input times the rate is the gross output, to the unit. Not for amounts with more digits than a
    /// rate can have (28): their receipt could not add up.
    pub fn is_exact(&self, input_exponent: u8, output_exponent: u8) -> bool {
        let ratio = Ratio::from_rate(self.rate, input_exponent, output_exponent);
        let forward = ratio.and_then(|ratio| ratio.forward(self.net_input()));
        forward.is_some_and(|forward| forward.amount == self.gross_output)
    }
}

impl Charges<'_> {
    /// The part of `input` that is left to convert.
    pub fn net(&self, input: Minor) -> Option<Minor> {
        input.checked_sub(input.bps_floor(self.fees.protocol_fee_bps))
    }

    /// The smallest input that leaves `net` to convert.
    pub fn input_for(&self, net: Minor) -> Option<Minor> {
        gross_up_bps(net, self.fees.protocol_fee_bps)
    }

    /// The conversion result that is needed to deliver `output`.
    pub fn gross_for(&self, output: Minor) -> Option<Minor> {
        output.checked_add(self.fees.payout_fee_minor)
    }

    /// Adds the fees to a conversion. `None` when they leave nothing to deliver.
    pub fn priced(&self, input: Minor, converted: Converted) -> Option<Priced> {
        let protocol_fee = input.bps_floor(self.fees.protocol_fee_bps);
        let payout_fee = self.fees.payout_fee_minor;
        let output = converted.gross_output.checked_sub(payout_fee).filter(|left| !left.is_zero())?;
        Some(Priced {
            rate: converted.rate,
            reference: None,
            input,
            protocol_fee,
            gross_output: converted.gross_output,
            payout_fee,
            output,
            residual_e18: converted.residual_e18,
            fee_residual_e18: input.bps_residual_e18(self.fees.protocol_fee_bps),
            fees: self.fee_items(protocol_fee),
            gas: self.gas.to_vec(),
        })
    }

    fn fee_items(&self, protocol_fee: Minor) -> Vec<FeeItem> {
        let item = |kind, amount_minor, asset: &Asset, collection| FeeItem {
            kind,
            amount_minor,
            currency: asset.symbol.clone(),
            exponent: asset.exponent,
            collection,
        };
        let FeeSchedule { protocol_fee_bps, payout_fee_minor, network_fee_minor } = self.fees;
        let protocol = (protocol_fee_bps > 0)
            .then(|| item(FeeType::ProtocolFee, protocol_fee, self.input, Collection::Deducted));
        let payout = (!payout_fee_minor.is_zero())
            .then(|| item(FeeType::PayoutFee, payout_fee_minor, self.output, Collection::Deducted));
        let network = (!network_fee_minor.is_zero())
            .then(|| item(FeeType::NetworkFee, network_fee_minor, self.input, Collection::Absorbed));
        [protocol, payout, network].into_iter().flatten().collect()
    }
}

/// `reference × (1 - spread)`, cut to twelve places after the point's leading zeros.
pub fn all_in_rate(reference: Decimal, spread_bps: u32) -> Option<Decimal> {
    let kept = Decimal::from(10_000_u32.checked_sub(spread_bps)?);
    let rate = reference.checked_mul(kept)?.checked_div(Decimal::from(10_000_u32))?;
    if rate <= Decimal::ZERO {
        return None;
    }
    let digits = rate.mantissa().unsigned_abs().checked_ilog10().unwrap_or(0).saturating_add(1);
    let leading_zeros = rate.scale().saturating_sub(digits);
    Some(rate.trunc_with_scale(leading_zeros.saturating_add(12).min(28)).normalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_all_in_rate_carries_the_spread_and_enough_digits() {
        assert_eq!(all_in_rate("0.92".parse().unwrap(), 15), "0.91862".parse().ok());
        assert_eq!(all_in_rate(Decimal::ONE, 10_001), None);
        assert_eq!(all_in_rate(Decimal::ONE, 10_000), None);
        let small = all_in_rate("0.000312345678901234567890".parse().unwrap(), 0).unwrap();
        assert_eq!(small, "0.000312345678901".parse().unwrap());
    }
}
