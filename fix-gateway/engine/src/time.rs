//! UTCTimestamp: the one date arithmetic this crate needs, in integers.

use nom::{
    IResult, Parser,
    bytes::complete::{tag, take_while_m_n, take_while1},
    character::complete::char,
    combinator::{all_consuming, map_opt, opt, verify},
    sequence::preceded,
};

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
        let (_, (date, _, time)) = all_consuming((date, char('-'), time_of_day)).parse(text).ok()?;
        date.checked_mul(DAY)?.checked_mul(NANOS)?.checked_add(time).map(Self)
    }

    /// Appends `YYYYMMDD-HH:MM:SS.sss`.
    pub fn write_millis(self, out: &mut Vec<u8>) {
        let seconds = self.0 / NANOS;
        let (year, month, day) = civil_from_days(seconds / DAY);
        let of_day = seconds % DAY;
        digits(out, year, 4);
        digits(out, month, 2);
        digits(out, day, 2);
        out.push(b'-');
        digits(out, of_day / 3600, 2);
        out.push(b':');
        digits(out, of_day / 60 % 60, 2);
        out.push(b':');
        digits(out, of_day % 60, 2);
        out.push(b'.');
        digits(out, self.0 % NANOS / 1_000_000, 3);
    }

    /// `YYYYMMDD-HH:MM:SS.sss`.
    pub fn to_millis_text(self) -> String {
        let mut out = Vec::with_capacity(21);
        self.write_millis(&mut out);
        out.into_iter().map(char::from).collect()
    }
}

/// Is this `HH:MM:SS` with an optional fraction?
pub fn is_time_of_day(text: &[u8]) -> bool {
    all_consuming(time_of_day).parse(text).is_ok()
}

/// Is this `YYYYMMDD`, a day that exists?
pub fn is_date(text: &[u8]) -> bool {
    all_consuming(date).parse(text).is_ok()
}

fn number<'a>(
    width: usize,
    low: u64,
    high: u64,
) -> impl Parser<&'a [u8], Output = u64, Error = nom::error::Error<&'a [u8]>> {
    verify(
        take_while_m_n(width, width, |byte: u8| byte.is_ascii_digit())
            .map(|digits: &[u8]| digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))),
        move |value| (low..=high).contains(value),
    )
}

/// Days since 1970-01-01.
fn date(input: &[u8]) -> IResult<&[u8], u64> {
    map_opt((number(4, 1970, 9999), number(2, 1, 12), number(2, 1, 31)), |(year, month, day)| {
        let days = days_from_civil(year, month, day);
        (civil_from_days(days) == (year, month, day)).then_some(days)
    })
    .parse(input)
}

/// Nanoseconds since midnight.
fn time_of_day(input: &[u8]) -> IResult<&[u8], u64> {
    let fraction = verify(take_while1(|byte: u8| byte.is_ascii_digit()), |digits: &[u8]| digits.len() <= 9)
        .map(|digits: &[u8]| {
            let value = digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
            (digits.len()..9).fold(value, |value, _| value * 10)
        });
    (
        number(2, 0, 23),
        tag(":"),
        number(2, 0, 59),
        tag(":"),
        number(2, 0, 60),
        opt(preceded(char('.'), fraction)),
    )
        .map(|(hour, _, minute, _, second, nanos)| {
            (hour * 3600 + minute * 60 + second) * NANOS + nanos.unwrap_or(0)
        })
        .parse(input)
}

fn digits(out: &mut Vec<u8>, value: u64, width: u32) {
    for place in (0..width).rev() {
        let digit = value / 10_u64.pow(place) % 10;
        out.push(b'0' + u8::try_from(digit).unwrap_or(0));
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

const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
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
    fn what_is_no_timestamp_is_refused() {
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
