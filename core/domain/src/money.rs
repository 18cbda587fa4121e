//! Money is an integer count of minor units. Rounding is down, and what is cut off is kept as a residual.

mod residual;

use ruint::Uint;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

pub(crate) use self::residual::E18;
pub use self::residual::Residual;

/// Wide enough for every product here: two amounts, a power of ten for an asset and one for a rate.
pub(crate) type U512 = Uint<512, 8>;
/// For comparisons of fractions of the above.
type U1024 = Uint<1024, 16>;

/// The powers of ten that fit into 128 bits.
const POWERS: [u128; 39] = {
    let mut powers = [1; 39];
    let mut e = 1;
    while e < powers.len() {
        powers[e] = powers[e - 1] * 10;
        e += 1;
    }
    powers
};

/// 10^e. Exponents beyond the table are rare.
pub(crate) fn power_of_ten(e: u32) -> U512 {
    match usize::try_from(e).ok().and_then(|e| POWERS.get(e)) {
        Some(power) => U512::from(*power),
        None => U512::from(10_u8).pow(U512::from(e)),
    }
}

/// Nearly every number here fits machine arithmetic, which takes a tenth of the time.
fn small(wide: &U512) -> Option<u128> {
    let limbs = wide.as_limbs();
    let (low, high) = limbs.split_at(2);
    high.iter().all(|limb| *limb == 0).then(|| u128::from(low[0]) | (u128::from(low[1]) << 64))
}

/// The square root, rounded down.
pub(crate) fn floor_root(square: U512) -> U512 {
    let shift = square.bit_len().saturating_sub(128).next_multiple_of(2);
    let Some(head) = small(&(square >> shift)) else { return U512::MAX };
    if shift == 0 {
        return U512::from(head.isqrt());
    }
    // Newton's steps from above come down to the root and stop there; the head's root gives the first 64 bits.
    let mut root = U512::from(head.isqrt() + 1) << (shift / 2);
    loop {
        let next = (root + square / root) >> 1;
        if next >= root {
            return root;
        }
        root = next;
    }
}

/// Minor units of one asset, never negative. On the wire a decimal string (spec section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Minor(u128);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("must be an integer string of minor units without sign, point or exponent")]
    NotMinorUnits,
    #[error("must be a decimal string without sign or exponent")]
    NotDecimal,
    #[error("has more decimal places than the asset")]
    TooPrecise,
    #[error("is larger than 2^128 - 1 minor units")]
    TooLarge,
}

impl Minor {
    pub const ZERO: Self = Self(0);

    pub const fn new(units: u128) -> Self {
        Self(units)
    }

    pub const fn get(self) -> u128 {
        self.0
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Parses an integer string of minor units.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(AmountError::NotMinorUnits);
        }
        text.parse().map(Self).map_err(|_| AmountError::TooLarge)
    }

    /// Parses a decimal string (digits and at most one point) of an asset with `exponent` decimal places.
    pub fn parse_decimal(text: &str, exponent: u8) -> Result<Self, AmountError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') {
            return Err(AmountError::NotDecimal);
        }
        let places = usize::from(exponent);
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > places {
            return Err(AmountError::TooPrecise);
        }
        let minor = format!("{whole}{fraction:0<places$}");
        minor.parse().map(Self).map_err(|_| AmountError::TooLarge)
    }

    /// The decimal string of an asset with `exponent` decimal places, without trailing zeros.
    pub fn to_decimal_string(self, exponent: u8) -> String {
        let places = usize::from(exponent);
        let digits = format!("{:0>width$}", self.0, width = places.saturating_add(1));
        let (whole, fraction) = digits.split_at(digits.len().saturating_sub(places));
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
    }

    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// `self × part ÷ whole`, rounded down. `None` when `whole` is zero, or above 2^128 - 1.
    pub fn share_floor(self, part: u128, whole: u128) -> Option<Self> {
        let exact = (U512::from(self.0) * U512::from(part)).checked_div(U512::from(whole))?;
        u128::try_from(exact).ok().map(Self)
    }

    /// `self × part ÷ whole`, rounded up. `None` without a whole, or above 2^128 - 1.
    pub fn share_ceil(self, part: u128, whole: u128) -> Option<Self> {
        let product = U512::from(self.0) * U512::from(part);
        let exact = (whole > 0).then(|| product.div_ceil(U512::from(whole)))?;
        u128::try_from(exact).ok().map(Self)
    }

    /// `self × bps / 10 000`, rounded down.
    pub fn bps_floor(self, bps: u32) -> Self {
        let exact = U512::from(self.0) * U512::from(bps) / U512::from(10_000_u32);
        Self(u128::try_from(exact).unwrap_or(u128::MAX))
    }

    /// What [`bps_floor`](Self::bps_floor) cuts off.
    pub fn bps_residual_e18(self, bps: u32) -> Residual {
        const WHOLE: u64 = 10_000;
        let rest = U512::from(self.0) * U512::from(bps) % U512::from(WHOLE) * U512::from(E18 / WHOLE);
        u64::try_from(rest).map_or(Residual::ZERO, Residual::from)
    }
}

impl std::fmt::Display for Minor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for Minor {
    type Error = AmountError;

    fn try_from(text: String) -> Result<Self, AmountError> {
        Self::parse(&text)
    }
}

impl From<Minor> for String {
    fn from(amount: Minor) -> Self {
        amount.0.to_string()
    }
}

/// A number rounded down, and what was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floored {
    pub amount: Minor,
    pub residual_e18: Residual,
}

impl Floored {
    /// A smaller amount for the same input: the rest is cut off. `None` when it is larger.
    pub fn cut_to(self, amount: Minor) -> Option<Self> {
        let more = Residual::of(self.amount.checked_sub(amount)?, 0);
        Some(Self { amount, residual_e18: more.checked_add(self.residual_e18)? })
    }
}

/// A price between two assets as an exact fraction over their minor units: output = input × num ÷ den.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    pub(crate) num: U512,
    pub(crate) den: U512,
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By value: more output for the same input is more.
impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let small = |a: &U512, b: &U512| small(a)?.checked_mul(small(b)?);
        if let (Some(ours), Some(theirs)) = (small(&self.num, &other.den), small(&other.num, &self.den)) {
            return ours.cmp(&theirs);
        }
        let product = |a: U512, b: U512| U1024::from(a) * U1024::from(b);
        product(self.num, other.den).cmp(&product(other.num, self.den))
    }
}

impl Ratio {
    /// From a rate in whole units (`output per one input`) and both exponents. `None` for a rate that is not positive.
    pub fn from_rate(rate: Decimal, input_exponent: u8, output_exponent: u8) -> Option<Self> {
        let mantissa = u128::try_from(rate.mantissa()).ok().filter(|m| *m > 0)?;
        Some(Self {
            num: U512::from(mantissa) * power_of_ten(u32::from(output_exponent)),
            den: power_of_ten(rate.scale()) * power_of_ten(u32::from(input_exponent)),
        })
    }

    /// The rate in whole units, cut to eighteen significant digits.
    pub fn to_rate(&self, input_exponent: u8, output_exponent: u8) -> Decimal {
        let (digits, places) = self.cut(input_exponent, output_exponent, RATE_DIGITS);
        decimal(digits, places)
    }

    /// The first significant digits of the rate in whole units, as an integer, and the number of them after the point.
    fn cut(&self, input_exponent: u8, output_exponent: u8, digits_max: u32) -> (u128, u32) {
        /// The most places a [`Decimal`] has.
        const PLACES: u32 = 28;
        let numerator = self.num * power_of_ten(u32::from(input_exponent) + PLACES);
        let mut quotient = numerator / (self.den * power_of_ten(u32::from(output_exponent)));
        let mut places = PLACES;
        let digits = loop {
            match small(&quotient) {
                Some(digits) => break digits,
                None if places == 0 => return (u128::MAX, 0),
                None => (quotient, places) = (quotient / U512::from(10_u8), places - 1),
            }
        };
        let beyond =
            digits.checked_ilog10().map_or(0, |log| (log + 1).saturating_sub(digits_max)).min(places);
        (digits / 10_u128.pow(beyond), places - beyond)
    }

    /// `input × rate`, rounded down, with the fraction that was cut off. `None` above 2^128 - 1.
    pub fn forward(&self, input: Minor) -> Option<Floored> {
        if let Some(floored) = self.forward_small(input) {
            return Some(floored);
        }
        let (quotient, rest) = (U512::from(input.0) * self.num).div_rem(self.den);
        let residual = rest * U512::from(E18) / self.den;
        Some(Floored {
            amount: Minor(u128::try_from(quotient).ok()?),
            residual_e18: u64::try_from(residual).ok()?.into(),
        })
    }

    /// The same in machine arithmetic; `None` on overflow.
    fn forward_small(&self, input: Minor) -> Option<Floored> {
        let den = small(&self.den)?;
        let product = input.0.checked_mul(small(&self.num)?)?;
        let (quotient, rest) = (product.checked_div(den)?, product.checked_rem(den)?);
        let residual = rest.checked_mul(E18.into())?.checked_div(den)?;
        Some(Floored { amount: Minor(quotient), residual_e18: u64::try_from(residual).ok()?.into() })
    }

    fn inverse_small(&self, output: Minor) -> Option<Minor> {
        Some(Minor(
            output.0.checked_mul(small(&self.den)?)?.div_ceil(small(&self.num).filter(|num| *num > 0)?),
        ))
    }

    /// The smallest input whose [`forward`](Self::forward) reaches `output`. `None` above 2^128 - 1.
    pub fn inverse(&self, output: Minor) -> Option<Minor> {
        if let Some(input) = self.inverse_small(output) {
            return Some(input);
        }
        let (quotient, rest) = (U512::from(output.0) * self.den).div_rem(self.num);
        let rounded = if rest.is_zero() { quotient } else { quotient + U512::from(1_u8) };
        u128::try_from(rounded).ok().map(Minor)
    }
}

const RATE_DIGITS: u32 = 18;
/// The number of digits that every [`Decimal`] can have.
const RATE_DIGITS_MAX: u32 = 28;

fn decimal(digits: u128, places: u32) -> Decimal {
    let mantissa = i128::try_from(digits).unwrap_or(i128::MAX);
    Decimal::try_from_i128_with_scale(mantissa, places).unwrap_or(Decimal::MAX).normalize()
}

/// A rate in whole units by which `input` becomes exactly `output` when the product is rounded down: with eighteen
/// significant digits, or more if necessary. When no decimal is exact, the quotient cut to the most digits. `None` for
/// an input of zero.
pub fn executed_rate(input: (Minor, u8), output: (Minor, u8)) -> Option<Decimal> {
    let ((input, input_exponent), (output, output_exponent)) = (input, output);
    if input.is_zero() {
        return None;
    }
    let ratio = Ratio { num: U512::from(output.0), den: U512::from(input.0) };
    let is_exact = |rate: &Decimal| {
        let forward = Ratio::from_rate(*rate, input_exponent, output_exponent)?.forward(input)?;
        Some(forward.amount == output)
    };
    let exact = (RATE_DIGITS..=RATE_DIGITS_MAX).find_map(|digits| {
        let (cut, places) = ratio.cut(input_exponent, output_exponent, digits);
        let rates = [decimal(cut, places), decimal(cut.saturating_add(1), places)];
        rates.into_iter().find(|rate| is_exact(rate) == Some(true))
    });
    Some(exact.unwrap_or_else(|| ratio.to_rate(input_exponent, output_exponent)))
}

/// The smallest amount that leaves `net` after `bps` of it are taken off (rounded down). `None` if there is none.
pub fn gross_up_bps(net: Minor, bps: u32) -> Option<Minor> {
    let kept = 10_000_u32.checked_sub(bps).filter(|kept| *kept > 0)?;
    let Some(below) = net.0.checked_sub(1) else { return Some(Minor::ZERO) };
    let quotient = U512::from(below) * U512::from(10_000_u32) / U512::from(kept);
    u128::try_from(quotient + U512::from(1_u8)).ok().map(Minor)
}

#[cfg(test)]
mod tests;
