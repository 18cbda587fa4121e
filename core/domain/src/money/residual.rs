//! What rounding cuts off, in 10^-18 of a minor unit. One unit of an input can be worth more than 2^128 parts of the
//! output, so a residual is wider than an amount.

use std::fmt;

use ruint::Uint;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Minor;

type U256 = Uint<256, 4>;

/// Parts of a minor unit.
pub(crate) const E18: u64 = 1_000_000_000_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Residual(U256);

impl Residual {
    pub const ZERO: Self = Self(U256::ZERO);

    /// Whole units and the parts of another one.
    pub(crate) fn of(units: Minor, parts: u64) -> Self {
        Self(U256::from(units.get()) * U256::from(E18) + U256::from(parts))
    }

    /// `None` beyond 2^256 - 1.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Whole units and the parts of another one. `None` for more units than an amount has.
    pub fn split(self) -> Option<(Minor, u64)> {
        let (units, parts) = self.0.div_rem(U256::from(E18));
        Some((Minor::new(u128::try_from(units).ok()?), u64::try_from(parts).ok()?))
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
}

impl From<u64> for Residual {
    fn from(parts: u64) -> Self {
        Self(U256::from(parts))
    }
}

impl fmt::Display for Residual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number, or text where JSON has no number for it.
impl Serialize for Residual {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(parts) => serializer.serialize_u64(parts),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Residual {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl Visitor<'_> for Parts {
            type Value = Residual;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("parts of a minor unit")
            }

            fn visit_u64<E: Error>(self, parts: u64) -> Result<Residual, E> {
                Ok(parts.into())
            }

            fn visit_str<E: Error>(self, parts: &str) -> Result<Residual, E> {
                parts.parse().map(Residual).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Parts)
    }
}
