//! Characters, account numbers, amounts and times in bank files. Pure.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use deunicode::deunicode_char;
use dvp_domain::currency::{AccountNumber, account_number};
use dvp_domain::money::Minor;
use dvp_domain::scheme::MARKS;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// The characters that every bank and payment system accepts.
pub fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || MARKS.contains(letter)
}

/// Text in the agreed characters, without what they may not begin, end or contain (`/` at either end, `//`), no longer
/// than `length_max`. A character without a counterpart becomes a space, and spaces are not doubled.
pub fn plain(text: &str, length_max: usize) -> String {
    let cut: String = transcribed(text).0.chars().take(length_max).collect();
    cut.trim_matches([' ', '/']).to_owned()
}

/// A text in the agreed characters, with all of its letters. `None`: one of them has no transcription, or it is longer than
/// `length_max`.
pub fn plain_name(text: &str, length_max: usize) -> Option<String> {
    let (text, is_whole) = transcribed(text);
    (is_whole && !text.is_empty() && text.chars().count() <= length_max).then_some(text)
}

/// A text in the agreed characters, and whether each of its letters and digits is in it.
fn transcribed(text: &str) -> (String, bool) {
    let (mut out, mut is_whole) = (String::new(), true);
    let mut letters = text.nfc().peekable();
    while let Some(letter) = letters.next() {
        let plain = match letter {
            letter if is_plain(letter) => Some(letter.to_string()),
            // As passports have them (ICAO Doc 9303, part 3): the soft sign is not written. The hard sign divides in
            // Russian, before a vowel of two sounds, and is a vowel in Bulgarian (Transliteration Act of 2009).
            'ь' | 'Ь' => Some(String::new()),
            'ъ' | 'Ъ' => {
                let divides = letters.peek().is_some_and(|next| "еёюяЕЁЮЯ".contains(*next));
                let small = if divides { "ie" } else { "a" };
                Some(if letter == 'Ъ' { small.to_ascii_uppercase() } else { small.to_owned() })
            }
            letter => counterpart(letter),
        };
        is_whole &= plain.is_some();
        for letter in plain.as_deref().unwrap_or(" ").chars() {
            let doubled = matches!(letter, ' ' | '/') && out.ends_with(letter);
            if !doubled {
                out.push(letter);
            }
        }
    }
    (out.trim_matches([' ', '/']).to_owned(), is_whole)
}

/// The transcription of a character that banks do not take: a space for a sign without one. `None`: it is a letter or a
/// digit, and has none.
fn counterpart(letter: char) -> Option<String> {
    let usual = match letter {
        'ä' | 'æ' => "ae",
        'ö' | 'œ' => "oe",
        'ü' => "ue",
        'Ä' | 'Æ' => "Ae",
        'Ö' | 'Œ' => "Oe",
        'Ü' => "Ue",
        'ə' => "e",
        'Ə' => "E",
        '&' => "+",
        // Their sounds depend on the language.
        letter if is_ideograph(letter) => return None,
        letter => deunicode_char(letter).unwrap_or_default(),
    };
    let plain = usual.chars().map(|letter| match letter {
        letter if is_plain(letter) => letter,
        '`' | '"' => '\'',
        _ => ' ',
    });
    let plain: String = plain.collect();
    if letter.is_alphanumeric() {
        let is_written = plain.chars().any(|letter| letter.is_ascii_alphanumeric() || letter == '\'');
        is_written.then_some(plain)
    } else if is_combining_mark(letter) {
        Some(String::new())
    } else {
        // A sign is not written in words.
        let is_sign = !plain.is_empty() && !plain.chars().any(|letter| letter.is_ascii_alphanumeric());
        Some(if is_sign { plain } else { " ".to_owned() })
    }
}

fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// An IBAN without its spaces, if it is one of its country's length and structure, with right check digits.
pub fn iban(text: &str) -> Option<String> {
    match account_number(text) {
        AccountNumber::Iban(iban) => Some(iban),
        AccountNumber::WrongIban | AccountNumber::Other => None,
    }
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
    use expect_test::expect_file;

    use super::*;

    #[test]
    fn names_are_transcribed_to_the_permitted_characters() {
        for (given, wanted) in [
            ("José Müller-Łódź", "Jose Mueller-Lodz"),
            ("  A/S // Søn & Cie  ", "A/S / Son + Cie"),
            ("/REF/", "REF"),
            ("日本 Bank", "Bank"),
            ("Đorđe", "Dorde"),
            ("Guðrún Þórsdóttir", "Gudrun Thorsdottir"),
            ("Ю\u{301}рий Щербаков", "Iurii Shcherbakov"),
            ("Mu\u{308}ller", "Mueller"),
            ("Игорь Подъячев ЕЛЬЦОВ", "Igor Podieiachev ELTsOV"),
            ("Първан Ъглов", "Parvan Aglov"),
            ("tab\tnew\nline", "tab new line"),
        ] {
            assert_eq!(plain(given, 140), wanted);
        }
        assert_eq!(plain("abc /def", 5), "abc");
    }

    /// Names of Europe's alphabets, each with what banks get.
    #[test]
    fn no_letter_of_a_name_is_lost() {
        let (mut told, mut lost) = (String::new(), Vec::new());
        for line in include_str!("names.txt").lines() {
            let name = line.split_once(" =").unwrap().0;
            let Some(plain) = plain_name(name, 70) else {
                lost.push(name);
                continue;
            };
            assert!(plain.chars().all(is_plain), "{name}: {plain}");
            let written = plain.chars().filter(|letter| letter.is_alphabetic() || *letter == '\'').count();
            let is_sounded = |letter: &char| letter.is_alphabetic() && !matches!(letter, 'ь' | 'Ь');
            assert!(written >= name.chars().filter(is_sounded).count(), "{name}: {plain}");
            // Accents that stand by themselves are those of their letters.
            assert_eq!(plain_name(&name.nfd().collect::<String>(), 70).as_deref(), Some(&*plain), "{name}");
            told.push_str(&format!("{name} = {plain}\n"));
        }
        assert_eq!(lost, [""; 0]);
        expect_file!["names.txt"].assert_eq(&told);
    }

    #[test]
    fn a_name_that_cannot_be_written_whole_is_none() {
        for name in ["日本", "日本 Bank", "Иван 王", "", " / ", "\u{1f600}", "\u{e000}\u{4e00}"] {
            assert_eq!(plain_name(name, 70), None, "{name}");
        }
        assert_eq!(plain_name(&"ß".repeat(35), 70).as_deref(), Some(&*"s".repeat(70)));
        assert_eq!(plain_name(&"ß".repeat(36), 70), None, "too long");
    }

    #[test]
    fn ibans_are_validated_by_country_length_structure_and_check_digits() {
        for good in ["DE89370400440532013000", "gb82 WEST 1234 5698 7654 32", "NO9386011117947"] {
            assert!(iban(good).is_some(), "{good}");
        }
        for bad in [
            "DE88370400440532013000",
            "XX86ABCDEFGHIJK",
            "DE8937040044053201300",
            "US64SVBKUS6S3300958879",
            "000123456789",
            "DE89",
            "",
            "DÉ89370400440532013000",
            "bene_a:dest_1",
        ] {
            assert!(iban(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn clearing_members_are_validated_by_their_form() {
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
