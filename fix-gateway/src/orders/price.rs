//! Bounds and prices of orders, in exact integers.

use dvp_domain::{
    asset::Asset,
    intent::Bounds,
    money::{Minor, Ratio},
};
use ruint::aliases::U512;
use rust_decimal::Decimal;

/// Decimal places of a price we compute.
const PLACES: u32 = 15;

/// `floor(quantity × price)` in minor units of the quote asset. `None` when the price is no positive number or the
/// result is beyond any amount.
pub(crate) fn value_at(price: &str, quantity: Minor, base: &Asset, quote: &Asset) -> Option<Minor> {
    let price = Decimal::from_str_exact(price).ok()?;
    Ratio::from_rate(price, base.exponent, quote.exponent)?.forward(quantity).map(|floored| floored.amount)
}

/// The amount with `bps` more or less, never less than nothing.
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

/// Minor units and what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) minor: Minor,
    pub(crate) exponent: u8,
}
