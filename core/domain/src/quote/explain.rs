//! How a price was made, step by step, from the numbers that were stored with a quote or an order.
//!
//! ```text
//! input - protocol fee = converted input
//! floor(converted input × rate) = gross output      rate = reference price × (1 - spread)
//! gross output - payout fee = output
//! floor(sum of gas × fee per gas × price of the coin) = network fee, where it was computed
//! ```
//!
//! Each step is computed again from the one before it. A stored amount that differs is an error, not an explanation.

use rust_decimal::Decimal;
use serde::Serialize;

use crate::fees::{Collection, FeeItem, FeeType, GasCharge};
use crate::liquidity::network_fee;
use crate::money::{Minor, Ratio, Residual, executed_rate};
use crate::plan::Slice;
use crate::pricing::Priced;

/// An asset's symbol and decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Unit<'a> {
    pub asset: &'a str,
    pub exponent: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PriceStep<'a> {
    pub step: &'static str,
    pub amount_minor: Minor,
    #[serde(flatten)]
    pub unit: Unit<'a>,
    /// How the amount follows from the steps before it.
    pub rule: String,
}

/// One provider's part of the conversion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PricePart<'a> {
    pub provider_id: &'a str,
    pub venue: &'a str,
    pub input_minor: Minor,
    pub output_minor: Minor,
    /// Output per one input, as executed.
    pub rate: Option<Decimal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation<'a> {
    pub steps: Vec<PriceStep<'a>>,
    /// Output per one input before spread and fees, when the price was made. `None`: there was no reference price.
    pub reference_price: Option<Decimal>,
    /// Output per one input as converted: with the spread, without the fees.
    pub rate: Decimal,
    /// How far the rate is below the reference price, in basis points; negative above it.
    pub spread_bps: Option<Decimal>,
    /// What the recipient gets less than the reference price alone would give, in basis points: spread, fees and
    /// rounding together; negative when it is more.
    pub cost_bps: Option<Decimal>,
    /// Fees that the service pays; they change no amount.
    pub absorbed: Vec<&'a FeeItem>,
    /// What the network fee was computed from; empty for a configured one.
    pub gas: &'a [GasCharge],
    /// What the roundings of the parts cut off, in 10^-18 minor units of the output asset, and what the rounding of the
    /// protocol fee does, of the input asset. Both are posted to the ledger's residual accounts.
    pub residual_e18: Residual,
    pub fee_residual_e18: Residual,
    pub parts: Vec<PricePart<'a>>,
}

/// A stored amount that does not follow from the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step} is {stated}, but {rule} is {computed}")]
pub struct ContradictoryPrice {
    pub step: &'static str,
    pub stated: String,
    pub rule: String,
    pub computed: String,
}

fn equal(
    step: &'static str,
    stated: Minor,
    rule: &str,
    computed: Option<Minor>,
) -> Result<(), ContradictoryPrice> {
    if computed == Some(stated) {
        return Ok(());
    }
    Err(ContradictoryPrice {
        step,
        stated: stated.to_string(),
        rule: rule.to_owned(),
        computed: computed.map_or_else(|| "no amount".to_owned(), |amount| amount.to_string()),
    })
}

/// How far `part` is below `whole`, in basis points with two places.
fn below_bps(part: Decimal, whole: Decimal) -> Option<Decimal> {
    let share = part.checked_div(whole)?;
    let below = Decimal::ONE.checked_sub(share)?.checked_mul(Decimal::from(10_000_u32))?;
    Some(below.round_dp(2).normalize())
}

fn sum(slices: &[Slice], amount: fn(&Slice) -> Minor) -> Option<Minor> {
    slices.iter().try_fold(Minor::ZERO, |sum, slice| sum.checked_add(amount(slice)))
}

/// Explains a price between two assets.
pub fn explain<'a>(
    priced: &'a Priced,
    slices: &'a [Slice],
    (input, output): (Unit<'a>, Unit<'a>),
) -> Result<Explanation<'a>, ContradictoryPrice> {
    let net = sum(slices, |slice| slice.input).unwrap_or_default();
    let net_rule = format!("{} - {}", priced.input, priced.protocol_fee);
    equal("converted input", net, &net_rule, priced.input.checked_sub(priced.protocol_fee))?;

    let scale = i32::from(output.exponent) - i32::from(input.exponent);
    let gross_rule = format!("floor({net} × {} × 10^{scale})", priced.rate);
    let ratio = Ratio::from_rate(priced.rate, input.exponent, output.exponent);
    let forward = ratio.and_then(|ratio| ratio.forward(net)).map(|floored| floored.amount);
    equal("gross output", priced.gross_output, &gross_rule, forward)?;
    equal(
        "gross output",
        priced.gross_output,
        "the sum of the parts' outputs",
        sum(slices, |slice| slice.output),
    )?;

    let output_rule = format!("{} - {}", priced.gross_output, priced.payout_fee);
    equal("output", priced.output, &output_rule, priced.gross_output.checked_sub(priced.payout_fee))?;

    if !priced.gas.is_empty() {
        let stated = priced.fees.iter().find(|fee| fee.kind == FeeType::NetworkFee);
        let stated = stated.map_or(Minor::ZERO, |fee| fee.amount_minor);
        let computed = network_fee::amount(&priced.gas, input.exponent);
        equal("network fee", stated, "the gas at its fees and prices", computed)?;
    }

    let step = |step, amount_minor, unit, rule| PriceStep { step, amount_minor, unit, rule };
    let steps = vec![
        step("input", priced.input, input, "paid by the user".to_owned()),
        step("protocol fee", priced.protocol_fee, input, fee_rule(priced)),
        step("converted input", net, input, net_rule),
        step("gross output", priced.gross_output, output, gross_rule),
        step("payout fee", priced.payout_fee, output, "fixed, deducted from the output".to_owned()),
        step("output", priced.output, output, output_rule),
    ];
    let executed = executed_rate((priced.input, input.exponent), (priced.output, output.exponent));
    Ok(Explanation {
        steps,
        reference_price: priced.reference,
        rate: priced.rate,
        spread_bps: priced.reference.and_then(|reference| below_bps(priced.rate, reference)),
        cost_bps: priced
            .reference
            .zip(executed)
            .and_then(|(reference, executed)| below_bps(executed, reference)),
        absorbed: priced.fees.iter().filter(|fee| fee.collection == Collection::Absorbed).collect(),
        gas: &priced.gas,
        residual_e18: priced.residual_e18,
        fee_residual_e18: priced.fee_residual_e18,
        parts: slices.iter().map(|slice| part(slice, input, output)).collect(),
    })
}

fn part<'a>(slice: &'a Slice, input: Unit<'_>, output: Unit<'_>) -> PricePart<'a> {
    PricePart {
        provider_id: &slice.provider_id,
        venue: &slice.venue,
        input_minor: slice.input,
        output_minor: slice.output,
        rate: executed_rate((slice.input, input.exponent), (slice.output, output.exponent)),
    }
}

/// The fee is stored as an amount; its share of the input is shown as executed.
fn fee_rule(priced: &Priced) -> String {
    let share = executed_rate((priced.input, 0), (priced.protocol_fee, 0))
        .and_then(|share| share.checked_mul(Decimal::from(10_000_u32)))
        .unwrap_or_default();
    format!("{} bps of the input, rounded down", share.round_dp(2).normalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fees::GasUse;

    const USDC: Unit<'_> = Unit { asset: "USDC", exponent: 6 };
    const EUR: Unit<'_> = Unit { asset: "EUR", exponent: 2 };

    /// 1,000 USDC at 0.92 less 15 basis points; a fee of 10 basis points and one of 0.25 EUR.
    fn sample() -> (Priced, Vec<Slice>) {
        let network = FeeItem {
            kind: FeeType::NetworkFee,
            amount_minor: Minor::new(20_000),
            currency: "USDC".into(),
            exponent: 6,
            collection: Collection::Absorbed,
        };
        let priced = Priced {
            rate: "0.91862".parse().unwrap(),
            reference: "0.92".parse().ok(),
            input: Minor::new(1_000_000_000),
            protocol_fee: Minor::new(1_000_000),
            gross_output: Minor::new(91_770),
            payout_fee: Minor::new(25),
            output: Minor::new(91_745),
            residual_e18: 138_000_000_000_000_000.into(),
            fee_residual_e18: Residual::ZERO,
            fees: vec![network],
            gas: Vec::new(),
        };
        let slice = |id: &str, input: u128, output: u128, residual_e18: u64| Slice {
            provider_id: id.into(),
            venue: format!("LP:{id}"),
            wallet: "0x1".into(),
            input: Minor::new(input),
            output: Minor::new(output),
            residual_e18: residual_e18.into(),
            level_id: None,
        };
        let slices = vec![
            slice("one", 499_500_000, 45_885, 69_000_000_000_000_000),
            slice("two", 499_500_000, 45_885, 69_000_000_000_000_000),
        ];
        (priced, slices)
    }

    #[test]
    fn each_step_follows_from_the_one_before() {
        let (priced, slices) = sample();
        let explained = explain(&priced, &slices, (USDC, EUR)).unwrap();
        let steps: Vec<(&str, u128, &str)> = explained
            .steps
            .iter()
            .map(|step| (step.step, step.amount_minor.get(), step.rule.as_str()))
            .collect();
        assert_eq!(
            steps,
            [
                ("input", 1_000_000_000, "paid by the user"),
                ("protocol fee", 1_000_000, "10 bps of the input, rounded down"),
                ("converted input", 999_000_000, "1000000000 - 1000000"),
                ("gross output", 91_770, "floor(999000000 × 0.91862 × 10^-4)"),
                ("payout fee", 25, "fixed, deducted from the output"),
                ("output", 91_745, "91770 - 25"),
            ]
        );
        assert_eq!((explained.spread_bps, explained.cost_bps), ("15".parse().ok(), "27.72".parse().ok()));
        assert_eq!((explained.absorbed.len(), explained.residual_e18), (1, 138_000_000_000_000_000.into()));
        let parts: Vec<_> = explained.parts.iter().map(|part| (part.venue, part.rate)).collect();
        assert_eq!(
            parts,
            [
                ("LP:one", "0.918618618618618619".parse().ok()),
                ("LP:two", "0.918618618618618619".parse().ok())
            ]
        );
    }

    #[test]
    fn a_price_without_a_reference_has_neither_spread_nor_cost() {
        let (mut priced, slices) = sample();
        priced.reference = None;
        let explained = explain(&priced, &slices, (USDC, EUR)).unwrap();
        assert_eq!((explained.spread_bps, explained.cost_bps), (None, None));
    }

    /// 100,000 gas at 0.1 gwei and 2,000 USDC: 0.02 USDC.
    fn charge() -> GasCharge {
        GasCharge {
            chain: "anvil".into(),
            gas_use: GasUse::Settlement,
            gas: 100_000,
            wei_per_gas: Minor::new(100_000_000),
            coin: "ETH".into(),
            coin_price: Decimal::from(2_000),
        }
    }

    #[test]
    fn a_computed_network_fee_follows_from_its_parts() {
        let (mut priced, slices) = sample();
        priced.gas = vec![charge()];
        assert_eq!(explain(&priced, &slices, (USDC, EUR)).unwrap().gas, [charge()]);
        let stored = serde_json::to_value(&priced).unwrap();
        assert_eq!(
            stored["gas"].to_string(),
            r#"[{"chain":"anvil","coin":"ETH","coinPrice":"2000","gas":100000,"gasUse":"settlement","weiPerGas":"100000000"}]"#
        );
        assert_eq!(serde_json::from_value::<Priced>(stored).unwrap(), priced);
    }

    #[test]
    fn a_changed_amount_is_a_contradiction() {
        let fault = |change: fn(&mut Priced, &mut Vec<Slice>)| {
            let (mut priced, mut slices) = sample();
            change(&mut priced, &mut slices);
            explain(&priced, &slices, (USDC, EUR)).unwrap_err().step
        };
        assert_eq!(fault(|priced, _| priced.input = Minor::new(1_000_000_001)), "converted input");
        assert_eq!(
            fault(|priced, _| priced.gas = vec![GasCharge { gas: 100_100, ..charge() }]),
            "network fee"
        );
        assert_eq!(
            fault(|priced, _| (priced.gas, priced.fees) = (vec![charge()], Vec::new())),
            "network fee"
        );
        assert_eq!(fault(|priced, _| priced.protocol_fee = Minor::new(2_000_000_000)), "converted input");
        assert_eq!(fault(|_, slices| slices[0].input = Minor::new(1)), "converted input");
        assert_eq!(fault(|priced, _| priced.rate = "0.9187".parse().unwrap()), "gross output");
        assert_eq!(fault(|priced, _| priced.gross_output = Minor::new(91_771)), "gross output");
        assert_eq!(fault(|_, slices| slices[1].output = Minor::new(1)), "gross output");
        assert_eq!(fault(|priced, _| priced.payout_fee = Minor::new(26)), "output");
        assert_eq!(fault(|priced, _| priced.output = Minor::new(91_746)), "output");
    }
}
