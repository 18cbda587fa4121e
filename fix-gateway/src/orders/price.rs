//! Bounds and prices of orders, in exact integers.

use dvp_domain::{
    asset::Asset,
    intent::Bounds,
    money::{Minor, Ratio},
};
use ruint::aliases::U512;
use rust_decimal::Decimal;

/// Decimal places of a computed price.
const PLACES: u32 = 15;

/// `floor(quantity × price)` in minor units of the quote asset. `None` when the price is not a positive number or the
/// result overflows.
pub(crate) fn value_at(price: &str, quantity: Minor, base: &Asset, quote: &Asset) -> Option<Minor> {
    let price = Decimal::from_str_exact(price).ok()?;
    Ratio::from_rate(price, base.exponent, quote.exponent)?.forward(quantity).map(|floored| floored.amount)
}

/// The amount with `bps` more or less, never below zero.
pub(crate) fn slipped(bounds: Bounds, bps: u32) -> Bounds {
    match bounds {
        Bounds::ExactInput { input, min_output } => Bounds::ExactInput {
            input,
            min_output: min_output.checked_sub(min_output.bps_floor(bps)).unwrap_or(Minor::ZERO),
        },
        Bounds::ExactOutput { output, max_input } => {
            let more = max_input.checked_add(max_input.bps_floor(bps));
            Bounds::ExactOutput { output, max_input: more.unwrap_or(max_input) }
        }
        // A range is bounded by its own prices.
        Bounds::Range { .. } => bounds,
    }
}

/// Quote units per base unit, rounded up at the fifteenth place: `floor(quantity × price)` gives the amount back.
pub(crate) fn price_of(base: Amount, quote: Amount) -> Option<String> {
    if base.minor.is_zero() {
        return None;
    }
    let ten = U512::from(10_u8);
    let power = |exponent: u32| ten.pow(U512::from(exponent));
    let numerator = U512::from(quote.minor.get()) * power(u32::from(base.exponent) + PLACES);
    let denominator = U512::from(base.minor.get()) * power(u32::from(quote.exponent));
    let (quotient, rest) = numerator.div_rem(denominator);
    let scaled = if rest.is_zero() { quotient } else { quotient + U512::from(1_u8) };
    let scaled = Minor::new(u128::try_from(scaled).ok()?);
    Some(scaled.to_decimal_string(u8::try_from(PLACES).unwrap_or(u8::MAX)))
}

/// Minor units with their exponent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) minor: Minor,
    pub(crate) exponent: u8,
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.minor.to_decimal_string(self.exponent))
    }
}

#[cfg(test)]
mod tests {
    use dvp_domain::asset::AssetKind;

    use super::*;

    fn asset(exponent: u8) -> Asset {
        Asset { symbol: "X".into(), exponent, kind: AssetKind::Fiat { currency: "X".into() } }
    }

    #[test]
    fn quantity_times_the_reported_price_equals_the_delivered_amount() {
        for (base, base_exponent, quote, quote_exponent) in [
            (100_000_000, 6, 9935, 2),
            (3, 6, 1, 2),
            (1_234_567_890_123, 18, 7, 6),
            (99_999, 2, 123_456_789, 2),
        ] {
            let of = |minor, exponent| Amount { minor: Minor::new(minor), exponent };
            let price = price_of(of(base, base_exponent), of(quote, quote_exponent)).unwrap();
            let back = value_at(&price, Minor::new(base), &asset(base_exponent), &asset(quote_exponent));
            assert_eq!(back, Some(Minor::new(quote)), "{price}");
        }
        assert_eq!(
            price_of(
                Amount { minor: Minor::ZERO, exponent: 2 },
                Amount { minor: Minor::new(1), exponent: 2 }
            ),
            None
        );
    }

    #[test]
    fn a_limit_is_floored_and_invalid_prices_are_refused() {
        let value = |price| value_at(price, Minor::new(1_000_000), &asset(6), &asset(2));
        assert_eq!(value("0.9999"), Some(Minor::new(99)));
        assert_eq!(["0", "-1", "x", ""].map(value), [None; 4]);
    }

    #[test]
    fn slippage_loosens_the_bound_of_either_side() {
        let sell = Bounds::ExactInput { input: Minor::new(5), min_output: Minor::new(10_000) };
        assert_eq!(
            slipped(sell, 50),
            Bounds::ExactInput { input: Minor::new(5), min_output: Minor::new(9_950) }
        );
        let buy = Bounds::ExactOutput { output: Minor::new(5), max_input: Minor::new(10_000) };
        assert_eq!(
            slipped(buy, 50),
            Bounds::ExactOutput { output: Minor::new(5), max_input: Minor::new(10_050) }
        );
    }
}
