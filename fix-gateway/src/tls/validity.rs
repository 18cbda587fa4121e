//! Reads the end of a certificate's validity, which rustls does not report: RFC 5280, section 4.1, in DER.

/// DER tags.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate expires, in Unix seconds. `None`: it is not as RFC 5280 has it.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let mut certificate = Reader(certificate).enter(SEQUENCE)?;
    let mut body = certificate.enter(SEQUENCE)?;
    if body.0.first() == Some(&VERSION) {
        body.element()?;
    }
    // The serial number, the signature's algorithm, and the issuer.
    for _ in 0..3 {
        body.element()?;
    }
    let mut validity = body.enter(SEQUENCE)?;
    validity.element()?;
    let (tag, time) = validity.element()?;
    let time = std::str::from_utf8(time).ok()?;
    match tag {
        // RFC 5280, section 4.1.2.5.1: years from 50 on are of the twentieth century.
        UTC_TIME if time.get(..2)? >= "50" => unix_seconds("19", time),
        UTC_TIME => unix_seconds("20", time),
        GENERALIZED_TIME => unix_seconds("", time),
        _ => None,
    }
}

/// The rest of an element's content.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next element's tag and content.
    fn element(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let bytes = usize::from(first & 0x7f);
            if bytes == 0 || bytes > 4 {
                return None;
            }
            let (digits, after) = rest.split_at_checked(bytes)?;
            length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    fn enter(&mut self, tag: u8) -> Option<Self> {
        let (found, content) = self.element()?;
        (found == tag).then_some(Self(content))
    }
}

/// `YYMMDDHHMMSSZ` after the century.
fn unix_seconds(century: &str, time: &str) -> Option<i64> {
    let digits = format!("{century}{}", time.strip_suffix('Z')?);
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Days of the proleptic Gregorian calendar; years begin in March, so that a leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_years = year * 365 + year / 4 - year / 100 + year / 400;
    let days = of_years + (month * 153 + 2) / 5 + day - 1;
    let epoch = 719_468;
    Some((days - epoch) * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        for (date, seconds) in [
            ((2026, 11, 23), 1_795_392_000),
            ((2028, 2, 29), 1_835_395_200),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
        ] {
            assert_eq!(not_after(&certificate(date.0, date.1, date.2)), Some(seconds), "{date:?}");
        }
    }

    #[test]
    fn a_broken_certificate_has_no_end_and_no_prefix_panics() {
        let whole = certificate(2026, 11, 23);
        assert!((0..whole.len()).all(|length| not_after(&whole[..length]).is_none()));
        for at in 0..whole.len().min(200) {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = not_after(&changed);
        }
    }
}
