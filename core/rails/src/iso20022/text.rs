//! Characters, account numbers, amounts and times in bank files. Pure.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use dvp_domain::money::Minor;

/// The characters that every bank and payment system accepts.
pub fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "/-?:().,'+ ".contains(letter)
}

/// Text in the agreed characters, without what they may not begin, end or contain (`/` at either end, `//`), no longer
/// than `length_max`. A character without a counterpart becomes a space, and spaces are not doubled.
pub fn plain(text: &str, length_max: usize) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        let plain = match letter {
            letter if is_plain(letter) => letter.to_string(),
            letter => counterpart(letter).to_owned(),
        };
        for letter in plain.chars() {
            let doubled = matches!(letter, ' ' | '/') && out.ends_with(letter);
            if !doubled {
                out.push(letter);
            }
        }
    }
    let cut: String = out.trim_matches([' ', '/']).chars().take(length_max).collect();
    cut.trim_matches([' ', '/']).to_owned()
}

/// The usual transcription of letters outside the permitted characters.
const fn counterpart(letter: char) -> &'static str {
    match letter {
        'ä' | 'æ' => "ae",
        'ö' | 'œ' => "oe",
        'ü' => "ue",
        'Ä' | 'Æ' => "Ae",
        'Ö' | 'Œ' => "Oe",
        'Ü' => "Ue",
        'ß' => "ss",
        'à' | 'á' | 'â' | 'ã' | 'å' | 'ā' | 'ă' | 'ą' => "a",
        'À' | 'Á' | 'Â' | 'Ã' | 'Å' | 'Ā' | 'Ă' | 'Ą' => "A",
        'ç' | 'ć' | 'č' => "c",
        'Ç' | 'Ć' | 'Č' => "C",
        'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ę' | 'ě' => "e",
        'È' | 'É' | 'Ê' | 'Ë' | 'Ē' | 'Ę' | 'Ě' => "E",
        'ì' | 'í' | 'î' | 'ï' | 'ī' | 'ı' => "i",
        'Ì' | 'Í' | 'Î' | 'Ï' | 'Ī' | 'İ' => "I",
        'ł' => "l",
        'Ł' => "L",
        'ñ' | 'ń' | 'ň' => "n",
        'Ñ' | 'Ń' | 'Ň' => "N",
        'ò' | 'ó' | 'ô' | 'õ' | 'ø' | 'ō' | 'ő' => "o",
        'Ò' | 'Ó' | 'Ô' | 'Õ' | 'Ø' | 'Ō' | 'Ő' => "O",
        'ř' => "r",
        'Ř' => "R",
        'ś' | 'š' | 'ş' | 'ș' => "s",
        'Ś' | 'Š' | 'Ş' | 'Ș' => "S",
        'ť' | 'ţ' | 'ț' => "t",
        'Ť' | 'Ţ' | 'Ț' => "T",
        'ù' | 'ú' | 'û' | 'ū' | 'ů' | 'ű' => "u",
        'Ù' | 'Ú' | 'Û' | 'Ū' | 'Ů' | 'Ű' => "U",
        'ý' | 'ÿ' => "y",
        'Ý' => "Y",
        'ź' | 'ż' | 'ž' => "z",
        'Ź' | 'Ż' | 'Ž' => "Z",
        '’' | '‘' => "'",
        '–' | '—' => "-",
        '&' => "+",
        _ => " ",
    }
}

/// An IBAN without its spaces, if its form and its check digits (ISO 13616, mod 97) are valid.
pub fn iban(text: &str) -> Option<String> {
    let compact: String =
        text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_uppercase();
    let (country, rest) = (compact.get(..2)?, compact.get(2..)?);
    let (digits, account) = (rest.get(..2)?, rest.get(2..)?);
    let well_formed = country.chars().all(|c| c.is_ascii_uppercase())
        && digits.chars().all(|c| c.is_ascii_digit())
        && (11..=30).contains(&account.len())
        && account.chars().all(|c| c.is_ascii_alphanumeric());
    if !well_formed {
        return None;
    }
    let remainder = format!("{account}{country}{digits}").chars().try_fold(0_u32, |remainder, letter| {
        let value = letter.to_digit(36)?;
        Some(if value < 10 { (remainder * 10 + value) % 97 } else { (remainder * 100 + value) % 97 })
    })?;
    (remainder == 1).then_some(compact)
}

/// A BIC of eight or eleven characters.
pub fn is_bic(text: &str) -> bool {
    let (Some(bank), Some(country), Some(place)) = (text.get(..4), text.get(4..6), text.get(6..)) else {
        return false;
    };
    let alphanumeric = |text: &str| text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    alphanumeric(bank)
        && country.chars().all(|c| c.is_ascii_uppercase())
        && alphanumeric(place)
        && matches!(place.len(), 2 | 5)
}

/// A member id of a national clearing system with the system's code before it, as `USABA021000021`: the code and the
/// id. Codes are those of the external code list that the contract's rails meet.
pub fn clearing_member(text: &str) -> Option<(&'static str, &str)> {
    const SYSTEMS: [(&str, usize); 8] = [
        ("USABA", 9),
        ("USPID", 4),
        ("GBDSC", 6),
        ("CACPA", 9),
        ("AUBSB", 6),
        ("INFSC", 11),
        ("CHBCC", 5),
        ("DEBLZ", 8),
    ];
    SYSTEMS.into_iter().find_map(|(code, length)| {
        let member = text.trim().strip_prefix(code)?;
        let well_formed = member.len() == length && member.chars().all(|c| c.is_ascii_alphanumeric());
        (well_formed && (code != "USABA" || is_routing_number(member))).then_some((code, member))
    })
}

/// The check digit of an American routing number.
fn is_routing_number(digits: &str) -> bool {
    let weights = [3, 7, 1, 3, 7, 1, 3, 7, 1];
    let sum = digits
        .chars()
        .zip(weights)
        .try_fold(0, |sum, (digit, weight)| Some(sum + digit.to_digit(10)? * weight));
    sum.is_some_and(|sum| sum % 10 == 0)
}

/// An amount with all of its currency's decimals.
pub fn fixed(amount: Minor, exponent: u8) -> String {
    let places = usize::from(exponent);
    let digits = format!("{:0>width$}", amount.to_string(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    if places == 0 { digits } else { format!("{whole}.{fraction}") }
}

/// An amount of a bank file in minor units: exact, or `None`.
pub fn minor(text: &str, exponent: u8) -> Option<Minor> {
    Minor::parse_decimal(&decimal(text)?, exponent).ok()
}

/// A number in any form of xs:decimal (`+1.00`, `.5`, `100.`) in its shortest one.
pub fn decimal(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !all_digits || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    let sign = if whole == "0" && fraction.is_empty() { "" } else { sign };
    Some(if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") })
}

/// A value of xs:boolean.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// A value of xs:date. It is the day that the bank names, in whatever zone.
pub fn date(text: &str) -> Option<NaiveDate> {
    let (day, zone) = text.split_at_checked(10)?;
    let is_formed = day.bytes().enumerate().all(|(n, byte)| match n {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    (is_formed && (zone.is_empty() || offset(zone).is_some())).then(|| day.parse().ok())?
}

/// A value of xs:dateTime; without a zone it is of UTC.
pub fn date_time(text: &str) -> Option<DateTime<Utc>> {
    let (day, clock) = text.split_once('T')?;
    let (clock, zone) = clock.find(['Z', '+', '-']).map_or((clock, ""), |zone| clock.split_at(zone));
    let offset = if zone.is_empty() { TimeDelta::zero() } else { offset(zone)? };
    let is_formed = clock.bytes().enumerate().all(|(n, byte)| match n {
        2 | 5 => byte == b':',
        8 => byte == b'.',
        _ => byte.is_ascii_digit(),
    });
    let day = date(day).filter(|_| is_formed && clock.len() >= 8 && !clock.ends_with('.'))?;
    // The end of a day may be written as its 24th hour.
    let is_end =
        clock.strip_prefix("24:00:00").is_some_and(|rest| rest.bytes().all(|b| matches!(b, b'.' | b'0')));
    let at = if is_end {
        day.succ_opt()?.and_time(NaiveTime::MIN)
    } else {
        day.and_time(NaiveTime::parse_from_str(clock, "%H:%M:%S%.f").ok()?)
    };
    at.and_utc().checked_sub_signed(offset)
}

/// A zone of a date or a time: `Z`, or up to fourteen hours from UTC.
fn offset(zone: &str) -> Option<TimeDelta> {
    if zone == "Z" {
        return Some(TimeDelta::zero());
    }
    let (sign, clock) = zone.split_at_checked(1)?;
    let (hours, minutes) = clock.split_once(':').filter(|_| clock.len() == 5)?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<i64>().ok())?;
    let minutes = digits(hours)? * 60 + digits(minutes).filter(|minutes| *minutes < 60)?;
    let minutes = match sign {
        "+" => minutes,
        "-" => -minutes,
        _ => return None,
    };
    (minutes.abs() <= 14 * 60).then(|| TimeDelta::minutes(minutes))
}

/// A time, or a date as the beginning of the day.
pub(super) fn time(text: &str) -> Option<DateTime<Utc>> {
    date_time(text).or_else(|| Some(date(text)?.and_time(NaiveTime::MIN).and_utc()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_transcribed_to_the_permitted_characters() {
        for (given, wanted) in [
            ("José Müller-Łódź", "Jose Mueller-Lodz"),
            ("  A/S // Søn & Cie  ", "A/S / Son + Cie"),
            ("/REF/", "REF"),
            ("日本 Bank", "Bank"),
            ("tab\tnew\nline", "tab new line"),
        ] {
            assert_eq!(plain(given, 140), wanted);
        }
        assert_eq!(plain("abc /def", 5), "abc");
    }

    #[test]
    fn ibans_are_validated_by_their_check_digits() {
        for good in ["DE89370400440532013000", "gb82 WEST 1234 5698 7654 32", "NO9386011117947"] {
            assert!(iban(good).is_some(), "{good}");
        }
        for bad in
            ["DE88370400440532013000", "000123456789", "DE89", "", "DÉ89370400440532013000", "bene_a:dest_1"]
        {
            assert!(iban(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn bics_and_clearing_members_are_validated_by_their_form() {
        assert!(is_bic("DEUTDEFF") && is_bic("DEUTDEFF500") && !is_bic("DEUTDEF") && !is_bic("deutdeff"));
        assert_eq!(clearing_member("USABA021000021"), Some(("USABA", "021000021")));
        assert_eq!(clearing_member("USABA021000022"), None, "the check digit");
        assert_eq!(clearing_member("GBDSC200000"), Some(("GBDSC", "200000")));
        assert_eq!(clearing_member("First National"), None);
    }

    #[test]
    fn dates_times_and_booleans_are_read_in_every_form_of_their_types() {
        for text in ["2026-11-28", "2026-11-28Z", "2026-11-28+01:00", "2026-11-28-14:00"] {
            assert_eq!(date(text), NaiveDate::from_ymd_opt(2026, 11, 28), "{text}");
            assert_eq!(time(text), "2026-11-28T00:00:00Z".parse().ok(), "{text}");
        }
        for (text, wanted) in [
            ("2026-11-28T01:02:03", "2026-11-28T01:02:03Z"),
            ("2026-11-28T01:02:03Z", "2026-11-28T01:02:03Z"),
            ("2026-11-28T01:02:03.5+01:00", "2026-11-28T00:02:03.5Z"),
            ("2026-11-28T01:02:03.123456789012-05:30", "2026-11-28T06:32:03.123456789Z"),
            ("2026-11-28T24:00:00.0", "2026-11-29T00:00:00Z"),
        ] {
            assert_eq!(time(text), wanted.parse().ok(), "{text}");
        }
        for wrong in [
            "",
            "2026-11-2",
            "2026-11-31",
            "2026/11/28",
            "2026-11-28+1",
            "2026-11-28+15:00",
            "2026-11-28 01:02:03",
            "2026-11-28T01:02",
            "2026-11-28T25:00:00",
            "2026-11-28T01:02:03.",
            "2026-11-28T24:00:01",
            "2026-11-2é",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        let read = ["true", "1", "false", "0", "yes", ""].map(boolean);
        assert_eq!(read, [Some(true), Some(true), Some(false), Some(false), None, None]);
    }

    #[test]
    fn amounts_are_exact_or_refused() {
        for (text, wanted) in
            [("100.", 10_000), (".5", 50), ("+1.00", 100), ("00.10", 10), ("0", 0), ("-0.00", 0)]
        {
            assert_eq!(minor(text, 2), Some(Minor::new(wanted)), "{text}");
        }
        for wrong in ["", ".", "+", "1,00", "1e2", "--1", "1.2.3", "NaN"] {
            assert_eq!(minor(wrong, 2), None, "{wrong}");
        }
        assert_eq!(minor("99.350", 2), Some(Minor::new(9935)));
        assert_eq!(minor("99", 2), Some(Minor::new(9900)));
        assert_eq!(minor("99.355", 2), None);
        assert_eq!(minor("7.00", 0), Some(Minor::new(7)));
        assert_eq!(minor("-1", 2), None);
        for (amount, exponent, wanted) in
            [(5, 2, "0.05"), (10_000, 2, "100.00"), (7, 0, "7"), (1_005, 3, "1.005")]
        {
            assert_eq!(fixed(Minor::new(amount), exponent), wanted);
        }
    }
}
