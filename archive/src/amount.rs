//! Amounts of the ledger: minor units with up to eighteen decimal places, exactly.

use std::fmt;
use std::ops::Neg as _;

const DECIMALS: usize = 18;
const ONE: i128 = 1_000_000_000_000_000_000;

/// A number of minor units: `whole`, and 10^-18 of one; both of the same sign.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    whole: i128,
    rest: i128,
}

impl Amount {
    /// `None`: no such number.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if !is_number || rest.len() > DECIMALS {
            return None;
        }
        let amount = Self { whole: whole.parse().ok()?, rest: format!("{rest:0<DECIMALS$}").parse().ok()? };
        Some(if is_negative { Self { whole: amount.whole.neg(), rest: amount.rest.neg() } } else { amount })
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        let mut whole = self.whole.checked_add(other.whole)?;
        let mut rest = self.rest.checked_add(other.rest)?;
        whole = whole.checked_add(rest / ONE)?;
        rest %= ONE;
        if whole > 0 && rest < 0 {
            (whole, rest) = (whole.checked_sub(1)?, rest.checked_add(ONE)?);
        } else if whole < 0 && rest > 0 {
            (whole, rest) = (whole.checked_add(1)?, rest.checked_sub(ONE)?);
        }
        Some(Self { whole, rest })
    }

    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.whole < 0 || self.rest < 0 { "-" } else { "" };
        let whole = self.whole.unsigned_abs();
        if self.rest == 0 {
            return write!(f, "{sign}{whole}");
        }
        let rest = format!("{:0>DECIMALS$}", self.rest.unsigned_abs());
        write!(f, "{sign}{whole}.{}", rest.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn amounts_are_added_exactly_across_zero_and_beyond_sixty_four_bits() {
        let sum = |texts: &[&str]| {
            let amounts = texts.iter().map(|text| Amount::parse(text).unwrap());
            amounts.fold(Amount::default(), |sum, one| sum.checked_add(one).unwrap()).to_string()
        };
        assert_eq!(sum(&["0.5", "0.5"]), "1");
        assert_eq!(sum(&["1", "-0.000000000000000001"]), "0.999999999999999999");
        assert_eq!(sum(&["-1", "0.25", "0.5"]), "-0.25");
        assert_eq!(sum(&["-0.3", "0.3"]), "0");
        assert_eq!(
            sum(&["340282366920938463463374607431768211", "1.10"]),
            "340282366920938463463374607431768212.1"
        );
        for wrong in ["", "-", ".5", "1e3", "1.0000000000000000001", "+1", "1-"] {
            assert_eq!(Amount::parse(wrong), None, "{wrong}");
        }
    }
}
