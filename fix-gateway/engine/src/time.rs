//! UTCTimestamp: the one date arithmetic this crate needs, in integers.
//!
//! Every message has two or three timestamps. They are taken apart by place: combinators of nom take four times as
//! long for it (38 ns against 9 ns).

use crate::codec::digit;

/// Nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcNanos(pub u64);

const NANOS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

impl UtcNanos {
    /// The distance to `other`, whichever is later, in nanoseconds.
    pub const fn abs_diff(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// `YYYYMMDD-HH:MM:SS` with 0 to 9 fraction digits after a point. A leap second (`:60`) is taken and counts as
    /// the first second of the next minute.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (days, rest) = date(text)?;
        let time = time_of_day(rest.strip_prefix(b"-")?)?;
        days.checked_mul(DAY)?.checked_mul(NANOS)?.checked_add(time).map(Self)
    }

    /// `YYYYMMDD-HH:MM:SS`, and after a point the digits of the fraction, the rest of which is cut.
    pub fn text(self, precision: Precision) -> TimeText {
        let seconds = self.0 / NANOS;
        let (year, month, day) = civil_from_days(seconds / DAY);
        let of_day = seconds % DAY;
        let mut bytes = *b"00000000-00:00:00.000000000";
        write_two(&mut bytes, 0, year / 100);
        write_two(&mut bytes, 2, year);
        write_two(&mut bytes, 4, month);
        write_two(&mut bytes, 6, day);
        write_two(&mut bytes, 9, of_day / 3600);
        write_two(&mut bytes, 12, of_day / 60 % 60);
        write_two(&mut bytes, 15, of_day % 60);
        let nanos = self.0 % NANOS;
        bytes[18] = digit(nanos / 100_000_000);
        write_two(&mut bytes, 19, nanos / 1_000_000);
        if matches!(precision, Precision::Micros | Precision::Nanos) {
            write_two(&mut bytes, 21, nanos / 10_000);
            bytes[23] = digit(nanos / 1000);
            bytes[24] = digit(nanos / 100);
            write_two(&mut bytes, 25, nanos);
        }
        TimeText { bytes, precision }
    }

    /// `YYYYMMDD-HH:MM:SS.sss`.
    pub fn to_millis_text(self) -> String {
        self.text(Precision::Millis).as_ref().iter().copied().map(char::from).collect()
    }
}

/// The fraction of a second that a session's timestamps have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    Seconds,
    #[default]
    Millis,
    Micros,
    Nanos,
}

/// Not the name of a [`Precision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not seconds, millis, micros or nanos")]
pub struct NoPrecision;

impl Precision {
    const ALL: [Self; 4] = [Self::Seconds, Self::Millis, Self::Micros, Self::Nanos];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Millis => "millis",
            Self::Micros => "micros",
            Self::Nanos => "nanos",
        }
    }

    /// The digits after the point; without any there is no point.
    pub const fn digits(self) -> u8 {
        match self {
            Self::Seconds => 0,
            Self::Millis => 3,
            Self::Micros => 6,
            Self::Nanos => 9,
        }
    }

    pub fn of_digits(digits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.digits() == digits)
    }
}

impl std::str::FromStr for Precision {
    type Err = NoPrecision;

    fn from_str(text: &str) -> Result<Self, NoPrecision> {
        Self::ALL.into_iter().find(|precision| precision.as_str() == text).ok_or(NoPrecision)
    }
}

/// A time as a message has it. One that is sent again keeps the precision that it was first sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub time: UtcNanos,
    pub precision: Precision,
}

impl Stamp {
    pub fn text(self) -> TimeText {
        self.time.text(self.precision)
    }
}

/// With milliseconds.
impl From<UtcNanos> for Stamp {
    fn from(time: UtcNanos) -> Self {
        Self { time, precision: Precision::Millis }
    }
}

/// A UTCTimestamp as text.
#[derive(Debug, Clone, Copy)]
pub struct TimeText {
    bytes: [u8; 27],
    precision: Precision,
}

impl AsRef<[u8]> for TimeText {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self.precision {
            Precision::Seconds => &self.bytes[..17],
            Precision::Millis => &self.bytes[..21],
            Precision::Micros => &self.bytes[..24],
            Precision::Nanos => &self.bytes,
        }
    }
}

/// Writes the last two digits of `value`.
#[inline]
fn write_two(out: &mut [u8; 27], at: usize, value: u64) {
    /// All numbers of two digits.
    static PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut value: u8 = 0;
        while value < 100 {
            pairs[value as usize] = [b'0' + value / 10, b'0' + value % 10];
            value += 1;
        }
        pairs
    };
    let pair =
        usize::try_from(value % 100).ok().and_then(|value| PAIRS.get(value)).copied().unwrap_or_default();
    [out[at], out[at + 1]] = pair;
}

/// Is this `HH:MM:SS` with an optional fraction?
pub fn is_time_of_day(text: &[u8]) -> bool {
    time_of_day(text).is_some()
}

/// Is this `YYYYMMDD`, a day that exists?
pub fn is_date(text: &[u8]) -> bool {
    date(text).is_some_and(|(_, rest)| rest.is_empty())
}

/// The value of two digits.
#[inline]
fn two(tens: u8, ones: u8) -> Option<u64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| u64::from(tens) * 10 + u64::from(ones))
}

/// Days since 1970-01-01, and the remainder of the text.
#[inline]
fn date(text: &[u8]) -> Option<(u64, &[u8])> {
    let (&[a, b, c, d, e, f, g, h], rest) = text.split_first_chunk()?;
    let (year, month, day) = (two(a, b)? * 100 + two(c, d)?, two(e, f)?, two(g, h)?);
    let is_day = year >= 1970 && (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
    is_day.then(|| (days_from_civil(year, month, day), rest))
}

/// Nanoseconds since midnight.
#[inline]
fn time_of_day(text: &[u8]) -> Option<u64> {
    let (&[a, b, b':', c, d, b':', e, f], rest) = text.split_first_chunk()? else { return None };
    let (hour, minute, second) = (two(a, b)?, two(c, d)?, two(e, f)?);
    let nanos = match rest {
        [] => 0,
        [b'.', fraction @ ..] => nanos(fraction)?,
        _ => return None,
    };
    (hour <= 23 && minute <= 59 && second <= 60).then(|| (hour * 3600 + minute * 60 + second) * NANOS + nanos)
}

/// One to nine digits of a second's fraction.
fn nanos(fraction: &[u8]) -> Option<u64> {
    /// The value of the last digit, by the number of digits.
    const WORTH: [u64; 10] = [0, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1000, 100, 10, 1];
    let worth = WORTH.get(fraction.len()).filter(|worth| **worth > 0)?;
    let value = fraction.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| value * 10 + u64::from(digit))
    })?;
    Some(value * worth)
}

const fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Howard Hinnant's algorithm, for years from 1970 on.
const fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year % 400;
    let shifted = (month + 9) % 12;
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day by Neri and Schneider's Euclidean affine functions: a product and a shift for each division that
/// a calendar in 365ths and 153rds takes.
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    // The year begins in March, so that the leap day is its last.
    let quarters = 4 * (days + 719_468) + 3;
    let century = quarters / 146_097;
    let product = 2_939_745 * (quarters % 146_097 / 4 * 4 + 3);
    let year = 100 * century + (product >> 32);
    let of_year = (product & 0xffff_ffff) / 2_939_745 / 4;
    let month_and_day = 2_141 * of_year + 197_913;
    let (month, day) = (month_and_day >> 16, (month_and_day & 0xffff) / 2_141 + 1);
    if of_year >= 306 { (year + 1, month - 12, day) } else { (year, month, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_the_round_trip() {
        for text in [
            "19700101-00:00:00.000",
            "20000229-23:59:59.999",
            "20261121-12:00:40.123",
            "20991231-00:00:01.001",
        ] {
            assert_eq!(UtcNanos::parse(text.as_bytes()).unwrap().to_millis_text(), text);
        }
        assert_eq!(UtcNanos::parse(b"19700102-00:00:01.000000002"), Some(UtcNanos((DAY + 1) * NANOS + 2)));
        assert_eq!(UtcNanos::parse(b"20161231-23:59:60"), UtcNanos::parse(b"20170101-00:00:00"));
    }

    #[test]
    fn a_time_has_the_fraction_of_its_precision() {
        let time = UtcNanos::parse(b"20261130-23:59:59.012345678").unwrap();
        for (name, text) in [
            ("seconds", "20261130-23:59:59"),
            ("millis", "20261130-23:59:59.012"),
            ("micros", "20261130-23:59:59.012345"),
            ("nanos", "20261130-23:59:59.012345678"),
        ] {
            let precision: Precision = name.parse().unwrap();
            assert_eq!(time.text(precision).as_ref(), text.as_bytes());
            assert_eq!(
                (precision.as_str(), Precision::of_digits(precision.digits())),
                (name, Some(precision))
            );
        }
        assert_eq!("days".parse::<Precision>(), Err(NoPrecision));
    }

    #[test]
    fn dates_of_four_hundred_years_round_trip() {
        for days in 0..146_097 {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(date(format!("{year:04}{month:02}{day:02}").as_bytes()), Some((days, &b""[..])));
        }
    }

    #[test]
    fn an_invalid_timestamp_is_refused() {
        for text in [
            "",
            "20040415",
            "20230229-00:00:00",
            "20231301-00:00:00",
            "20230101-24:00:00",
            "20230101-00:00:00.",
            "20230101 00:00:00",
            "20230101-00:00:00Z",
            "20230101-00:00:00.1234567890",
            "+0230101-00:00:00",
        ] {
            assert_eq!(UtcNanos::parse(text.as_bytes()), None, "{text}");
        }
    }
}
