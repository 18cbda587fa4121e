//! Payment schemes: what each can carry, what it needs, and how long it takes. One table, read by the checks at
//! acceptance, by the rails that write payments, and by the deadlines of orders.
//!
//! Sources: SEPA Credit Transfer and SEPA Instant rulebooks and customer-to-bank guidelines of the European Payments
//! Council (EPC125-05, EPC132-08, EPC004-16, EPC121-16; characters: EPC217-08); CBPR+ usage of pacs.008 and pain.001 with
//! the addresses of November 2026 (Swift); the Fedwire Funds Service's format of pacs.008; the Nacha Operating Rules,
//! appendix three.

use crate::calendar::Calendar;
use crate::names::names;

names! {
    pub enum PayoutMethod {
        Wire = "wire",
        Swift = "swift",
        Ach = "ach",
        Sepa = "sepa",
        SepaInstant = "sepa_instant",
    }
}

/// What beside letters and digits of ASCII every scheme takes, in every field.
pub const MARKS: &str = "/-?:().,'+ ";
/// The longest parts of a structured address, the same in every scheme.
pub const STREET_MAX: usize = 70;
pub const POST_CODE_MAX: usize = 16;
pub const TOWN_MAX: usize = 35;
pub const SUBDIVISION_MAX: usize = 35;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    pub method: PayoutMethod,
    /// The only currency, if it has one.
    pub currency: Option<&'static str>,
    /// In minor units.
    pub amount_max: Option<u128>,
    pub name_max: usize,
    /// Unstructured remittance information.
    pub remittance_max: usize,
    /// The name of the ultimate debtor. `None`: the scheme has no field for it.
    pub ultimate_debtor_max: Option<usize>,
    pub takes_iban_only: bool,
    pub bank: BankRule,
    /// Banks verify the payee before they pay (Regulation (EU) 2024/886; EPC218-23).
    pub verifies_payee: bool,
    /// The beneficiary's address, with its town and its country.
    pub needs_address: bool,
    /// Payments that leave the European Economic Area need the payer's full address (Regulation (EU) 2023/1113, articles 4
    /// and 5; EPC125-05 and EPC004-16, AT-P005).
    pub needs_payer_address_abroad: bool,
    /// A code of ISO's external list of purposes.
    pub takes_purpose: bool,
    /// Codes of the external code lists.
    pub service_level: &'static str,
    pub local_instrument: Option<&'static str>,
    /// Who bears the banks' charges. The quoted amount arrives, as far as the scheme can guarantee it.
    pub charge_bearer: &'static str,
    pub longest: LongestTime,
}

/// What identifies the beneficiary's bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankRule {
    /// The IBAN does.
    None,
    Bic,
    BicOrMember,
    /// A member id of a national clearing system.
    Member,
}

/// From the day on which the bank has the payment. Cut-offs are each bank's own: the first day never counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongestTime {
    Hours(u64),
    BusinessDays(Calendar, u32),
}

const SEPA: Scheme = Scheme {
    method: PayoutMethod::Sepa,
    currency: Some("EUR"),
    amount_max: Some(99_999_999_999),
    name_max: 70,
    remittance_max: 140,
    ultimate_debtor_max: Some(70),
    takes_iban_only: true,
    bank: BankRule::None,
    verifies_payee: true,
    needs_address: false,
    needs_payer_address_abroad: true,
    takes_purpose: true,
    service_level: "SEPA",
    local_instrument: None,
    charge_bearer: "SLEV",
    longest: LongestTime::BusinessDays(Calendar::Target, 2),
};

/// Ten seconds at any time (Regulation (EU) 2024/886, article 1); an hour is for the files to get there and back.
const SEPA_INSTANT: Scheme = Scheme {
    method: PayoutMethod::SepaInstant,
    local_instrument: Some("INST"),
    longest: LongestTime::Hours(1),
    ..SEPA
};

const SWIFT: Scheme = Scheme {
    method: PayoutMethod::Swift,
    currency: None,
    amount_max: None,
    name_max: 140,
    remittance_max: 140,
    ultimate_debtor_max: Some(140),
    takes_iban_only: false,
    bank: BankRule::Bic,
    verifies_payee: false,
    needs_address: true,
    needs_payer_address_abroad: false,
    takes_purpose: true,
    // Tracked from end to end, which is why each payment has a UETR.
    service_level: "G001",
    local_instrument: None,
    charge_bearer: "DEBT",
    longest: LongestTime::BusinessDays(Calendar::Both, 5),
};

const WIRE: Scheme = Scheme {
    method: PayoutMethod::Wire,
    amount_max: Some(999_999_999_999),
    bank: BankRule::BicOrMember,
    service_level: "URGP",
    longest: LongestTime::BusinessDays(Calendar::Both, 1),
    ..SWIFT
};

/// A credit to a company's or a person's account, with one addendum.
const ACH: Scheme = Scheme {
    method: PayoutMethod::Ach,
    currency: Some("USD"),
    amount_max: Some(9_999_999_999),
    name_max: 22,
    remittance_max: 80,
    ultimate_debtor_max: None,
    takes_iban_only: false,
    bank: BankRule::Member,
    verifies_payee: false,
    needs_address: false,
    needs_payer_address_abroad: false,
    takes_purpose: false,
    service_level: "NURG",
    local_instrument: Some("CCD"),
    charge_bearer: "SHAR",
    longest: LongestTime::BusinessDays(Calendar::FederalReserve, 3),
};

/// The countries of the European Economic Area: the European Union, Iceland, Liechtenstein and Norway.
const EEA: [&str; 30] = [
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IS", "IT",
    "LI", "LT", "LU", "LV", "MT", "NL", "NO", "PL", "PT", "RO", "SE", "SI", "SK",
];

/// Whether a payment to an IBAN leaves the European Economic Area.
pub fn leaves_eea(iban: &str) -> bool {
    !EEA.iter().any(|country| iban.starts_with(country))
}

impl Scheme {
    pub const fn of(method: PayoutMethod) -> &'static Self {
        match method {
            PayoutMethod::Sepa => &SEPA,
            PayoutMethod::SepaInstant => &SEPA_INSTANT,
            PayoutMethod::Swift => &SWIFT,
            PayoutMethod::Wire => &WIRE,
            PayoutMethod::Ach => &ACH,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The documented table is this one.
    #[test]
    fn the_documented_table_is_that_of_the_code() {
        let mut table = String::new();
        for method in PayoutMethod::ALL {
            let Scheme { currency, amount_max, name_max, remittance_max, ultimate_debtor_max, .. } =
                *Scheme::of(method);
            let Scheme { takes_iban_only, bank, needs_address, longest, .. } = *Scheme::of(method);
            let Scheme { service_level, local_instrument, charge_bearer, .. } = *Scheme::of(method);
            let Scheme { verifies_payee, needs_payer_address_abroad, takes_purpose, .. } =
                *Scheme::of(method);
            let purpose = if takes_purpose { "yes" } else { "" };
            let payer = if needs_payer_address_abroad { "needed outside of the EEA" } else { "optional" };
            let verified = if verifies_payee { "yes" } else { "" };
            let account = if takes_iban_only { "IBAN" } else { "IBAN or other" };
            let bank = match bank {
                BankRule::None => "none needed",
                BankRule::Bic => "BIC (`swiftCode`)",
                BankRule::BicOrMember => "BIC or clearing number",
                BankRule::Member => "clearing number",
            };
            let address = if needs_address { "needed" } else { "optional" };
            let major = |minor: u128| format!("{}.{:02}", minor / 100, minor % 100);
            let amount = amount_max.map(major).unwrap_or_default();
            let debtor = ultimate_debtor_max.map(|max| max.to_string()).unwrap_or_default();
            let instrument = local_instrument.map(|code| format!("`{code}`")).unwrap_or_default();
            let longest = match longest {
                LongestTime::Hours(hours) => format!("{hours} hour{}", if hours == 1 { "" } else { "s" }),
                LongestTime::BusinessDays(calendar, days) => {
                    let of = match calendar {
                        Calendar::Target => "of TARGET",
                        Calendar::FederalReserve => "of the Federal Reserve",
                        Calendar::Both => "of both TARGET and the Federal Reserve",
                    };
                    format!("{days} business day{} {of}", if days == 1 { "" } else { "s" })
                }
            };
            let (name, currency) = (method.as_str(), currency.unwrap_or("any"));
            writeln!(
                table,
                "| `{name}` | {currency} | {amount} | {name_max} | {remittance_max} | {debtor} | {account} | {bank} | \
                 {address} | {payer} | {purpose} | {verified} | `{service_level}` | {instrument} | `{charge_bearer}` | {longest} |"
            )
            .unwrap();
        }
        let documented = include_str!("../../../docs/rails.md");
        assert!(documented.contains(&table), "docs/rails.md lacks this table:\n{table}");
    }
}
