//! Characters, account numbers, amounts and times in bank files. Pure.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use dvp_domain::money::Minor;

use super::xml::Node;

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
    // Trailing zeros beyond the currency's places have no meaning.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let kept = fraction.trim_end_matches('0');
    let exact = if kept.is_empty() { whole.to_owned() } else { format!("{whole}.{kept}") };
    Minor::parse_decimal(&exact, exponent).ok()
}

/// The booking date of an entry, or else its value date.
pub(super) fn booked_at(entry: &Node) -> Option<DateTime<Utc>> {
    let dates = ["BookgDt/DtTm", "BookgDt/Dt", "ValDt/DtTm", "ValDt/Dt"];
    dates.into_iter().find_map(|path| entry.text_at(path)).and_then(time)
}

/// A time with an offset, or without one as UTC, or a date as the beginning of the day.
pub(super) fn time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text)
        .map(|at| at.to_utc())
        .ok()
        .or_else(|| text.parse::<NaiveDateTime>().ok().map(|at| at.and_utc()))
        .or_else(|| text.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0).map(|at| at.and_utc()))
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
    fn amounts_are_exact_or_refused() {
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
