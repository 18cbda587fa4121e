//! Currencies (ISO 4217) and countries (ISO 3166-1), and the numbers of banks and of accounts that begin with a country's
//! code. The lists are those of `iso_currency` and `iban_validate`.

use iban::{Iban, IbanLike as _};
use iso_currency::{Country, Currency};

/// Kosovo. ISO 3166-1 has no code for it: this one is left to its users, and the registers of BICs and IBANs use it.
const KOSOVO: &str = "XK";

/// The decimals of a currency's amounts. `None`: there is no such currency, or it has none (gold, test codes).
pub fn exponent(code: &str) -> Option<u8> {
    Currency::from_code(code)?.exponent().and_then(|places| u8::try_from(places).ok())
}

/// Whether a text is the code of a country, in capitals.
pub fn is_country(code: &str) -> bool {
    code == KOSOVO || !code.is_empty() && code.parse::<Country>().is_ok()
}

/// Whether a text is the code of a bank (ISO 9362): a party of four characters, a country, a place of two and a branch of
/// three, in capitals.
pub fn is_bic(text: &str) -> bool {
    let (Some(party), Some(country), Some(place)) = (text.get(..4), text.get(4..6), text.get(6..)) else {
        return false;
    };
    let fits = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    fits(party) && is_country(country) && fits(place) && matches!(place.len(), 2 | 5)
}

/// What an account's number looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountNumber {
    /// An IBAN in capitals, without spaces.
    Iban(String),
    /// It begins like an IBAN, and its country has none, or none of this length, structure or check digits.
    WrongIban,
    /// A number of the bank's own.
    Other,
}

/// Reads the number of an account.
pub fn account_number(text: &str) -> AccountNumber {
    let compact: String =
        text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_uppercase();
    if let Ok(iban) = compact.parse::<Iban>() {
        return AccountNumber::Iban(iban.electronic_str().to_owned());
    }
    let looks = compact.bytes().take(2).all(|byte| byte.is_ascii_uppercase())
        && compact.bytes().skip(2).take(2).all(|byte| byte.is_ascii_digit())
        && compact.len() >= IBAN_LENGTH_MIN;
    if looks { AccountNumber::WrongIban } else { AccountNumber::Other }
}

/// Of Norway.
const IBAN_LENGTH_MIN: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_have_the_decimals_of_iso_4217() {
        let two = ["USD", "EUR", "GBP", "HUF", "MGA", "MRU"].map(|code| (code, Some(2)));
        let none = ["JPY", "KRW", "CLP", "ISK", "UGX", "VND", "XAF", "XOF", "XPF", "UYI"];
        let three = ["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"].map(|code| (code, Some(3)));
        let cases = two.into_iter().chain(none.map(|code| (code, Some(0)))).chain(three);
        for (code, places) in cases.chain([("CLF", Some(4)), ("UYW", Some(4)), ("XAU", None), ("usd", None)])
        {
            assert_eq!(exponent(code), places, "{code}");
        }
        assert_eq!((exponent("ZZZ"), exponent("")), (None, None));
    }

    #[test]
    fn a_bic_names_a_country() {
        for bic in ["DEUTDEFF", "DEUTDEFF500", "BOFAUS3N", "NCBVXKPR", "E097AEXX"] {
            assert!(is_bic(bic), "{bic}");
        }
        for wrong in
            ["", "nonsense!", "NONSENSE", "DEUTZZFF", "deutdeff", "DEUTDEF", "DEUTDEFF50", "DÉUTDEFF"]
        {
            assert!(!is_bic(wrong), "{wrong}");
        }
        assert!(is_country("DE") && is_country("XK") && is_country("SS"));
        for wrong in ["", "ZZ", "de", "EU", "D", "DEU", "UK"] {
            assert!(!is_country(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_iban_has_the_length_and_structure_of_its_country() {
        let iban = |text: &str| AccountNumber::Iban(text.to_owned());
        let german = "DE89370400440532013000";
        assert_eq!(account_number(german), iban(german));
        assert_eq!(account_number(" de89 3704 0044 0532 0130 00"), iban(german));
        assert_eq!(account_number("NO9386011117947"), iban("NO9386011117947"));
        // The check digits of the first are right, but there is no such country; the second lacks a digit.
        for wrong in
            ["XX86ABCDEFGHIJK", "DE8937040044053201300", "DE89370400440532013001", "US64SVBKUS6S3300958879"]
        {
            assert_eq!(account_number(wrong), AccountNumber::WrongIban, "{wrong}");
        }
        for other in ["", "0123456789", "ACC-1", "DE89", "12DE89370400440532013000"] {
            assert_eq!(account_number(other), AccountNumber::Other, "{other}");
        }
    }
}
