//! Datatypes, as far as a value can be malformed.

use crate::time;

/// FIX datatypes grouped by the check they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One line of UTF-8 without control characters.
    Text,
    /// UTF-8 that may have several lines: tab, line feed and carriage return are its only control characters.
    Lines,
    /// Any bytes, after a length field.
    Data,
    /// Exactly one ASCII character that is no control character.
    Char,
    /// `Y` or `N`.
    Boolean,
    /// Digits, an optional point, an optional minus; no plus, no exponent.
    Decimal,
    /// Digits and an optional minus.
    Integer,
    /// `YYYYMM`, `YYYYMMDD` or `YYYYMMwN`.
    MonthYear,
    /// Values separated by one space.
    Multiple,
    /// `YYYYMMDD`.
    Date,
    /// `HH:MM:SS` with an optional fraction.
    TimeOfDay,
    /// `YYYYMMDD-HH:MM:SS` with an optional fraction.
    Timestamp,
}

impl Kind {
    /// Has the value the datatype's form?
    pub fn accepts(self, value: &[u8]) -> bool {
        match self {
            Self::Text | Self::Multiple => is_text(value, char::is_control),
            Self::Lines => is_text(value, |c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')),
            Self::Data => true,
            Self::Char => matches!(value, [b' '..=b'~']),
            Self::Boolean => value == b"Y" || value == b"N",
            Self::Decimal => {
                let unsigned = value.strip_prefix(b"-").unwrap_or(value);
                let points = unsigned.iter().filter(|byte| **byte == b'.').count();
                points <= 1
                    && unsigned.len() > points
                    && unsigned.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
            }
            Self::Integer => {
                let unsigned = value.strip_prefix(b"-").unwrap_or(value);
                !unsigned.is_empty() && unsigned.iter().all(u8::is_ascii_digit)
            }
            Self::MonthYear => match value {
                [year_month @ .., b'w', b'1'..=b'5'] if year_month.len() == 6 => {
                    year_month.iter().all(u8::is_ascii_digit)
                }
                _ => matches!(value.len(), 6 | 8) && value.iter().all(u8::is_ascii_digit),
            },
            Self::Date => time::is_date(value),
            Self::TimeOfDay => time::is_time_of_day(value),
            Self::Timestamp => crate::UtcNanos::parse(value).is_some(),
        }
    }

    /// Is the value among the legal ones? For [`Kind::Multiple`], is each of its parts?
    pub fn is_one_of(self, value: &[u8], legal: &[&str]) -> bool {
        let known = |part: &[u8]| legal.binary_search_by(|value| value.as_bytes().cmp(part)).is_ok();
        match self {
            Self::Multiple => value.split(|byte| *byte == b' ').all(known),
            _ => known(value),
        }
    }
}

/// Is the value UTF-8 without the characters that `is_refused` names? NUL is among the control characters:
/// padded C strings would otherwise reach a store that cannot keep it.
fn is_text(value: &[u8], is_refused: impl Fn(char) -> bool) -> bool {
    value.iter().all(|byte| matches!(byte, b' '..=b'~'))
        || std::str::from_utf8(value).is_ok_and(|text| !text.chars().any(is_refused))
}
