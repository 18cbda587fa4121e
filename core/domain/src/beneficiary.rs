//! The recipient of a payout, and the data that a payout requires (spec section 2.5, Beneficiary).

pub mod destination;

use serde::{Deserialize, Serialize};

use crate::currency::{AccountNumber, account_number, is_bic, is_country};
use crate::names::names;
pub use crate::scheme::PayoutMethod;
use crate::scheme::Scheme;

/// Missing fields are `None`, not an error: the contract gives each its own rejection reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Beneficiary {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payout_method: Option<PayoutMethod>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swift_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<BeneficiaryAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub travel_rule_data: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BeneficiaryAddress {
    #[serde(default)]
    pub line1: String,
    #[serde(default)]
    pub city: String,
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub postal_code: String,
}

impl BeneficiaryAddress {
    /// A partly filled address counts as missing.
    fn is_complete(&self) -> bool {
        [&self.line1, &self.city, &self.state, &self.postal_code].iter().all(|part| !part.trim().is_empty())
    }
}

/// A recipient, with the keyed hash of its account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaskedBeneficiary {
    pub name_masked: Option<String>,
    pub account_last4: Option<String>,
    pub account_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bank: Option<String>,
}

impl MaskedBeneficiary {
    pub fn of(beneficiary: &Beneficiary, account_hash: impl FnOnce(&str) -> String) -> Self {
        Self {
            name_masked: beneficiary.name_masked(),
            account_last4: beneficiary.account_last4(),
            account_hash: beneficiary.account().map(account_hash),
            bank: beneficiary.bank.clone(),
        }
    }
}

fn filled(text: Option<&String>) -> Option<&str> {
    text.map(|t| t.trim()).filter(|t| !t.is_empty())
}

/// A detail that no bank could pay to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} {}", .field.as_str(), .problem)]
pub struct BeneficiaryFault {
    pub field: BeneficiaryField,
    pub problem: &'static str,
}

names! {
    /// A field that has a form of its own.
    pub enum BeneficiaryField {
        Account = "account",
        Country = "country",
        SwiftCode = "swiftCode",
    }
}

impl Beneficiary {
    /// Checks the details that are given. What is missing has a rejection reason and is no fault.
    pub fn check(&self) -> Result<(), BeneficiaryFault> {
        let fault = |field, problem| Err(BeneficiaryFault { field, problem });
        if let Some(account) = self.account().filter(|_| !self.is_reference()) {
            match account_number(account) {
                AccountNumber::WrongIban => {
                    return fault(
                        BeneficiaryField::Account,
                        "must be an IBAN of its country's length and structure, with right check digits",
                    );
                }
                AccountNumber::Other if self.scheme().is_some_and(|scheme| scheme.takes_iban_only) => {
                    return fault(
                        BeneficiaryField::Account,
                        "must be an IBAN: sepa pays to no other account",
                    );
                }
                AccountNumber::Iban(_) | AccountNumber::Other => {}
            }
        }
        if filled(self.country.as_ref()).is_some_and(|code| !is_country(&code.to_ascii_uppercase())) {
            return fault(BeneficiaryField::Country, "must be an ISO 3166-1 alpha-2 code of a country");
        }
        if filled(self.swift_code.as_ref()).is_some_and(|code| !is_bic(&code.to_ascii_uppercase())) {
            return fault(BeneficiaryField::SwiftCode, "must be a BIC of 8 or 11 characters (ISO 9362)");
        }
        Ok(())
    }

    pub fn account(&self) -> Option<&str> {
        filled(self.account.as_ref())
    }

    pub fn name(&self) -> Option<&str> {
        filled(self.name.as_ref())
    }

    /// The two ids of `bene_<id>:dest_<id>`: the details are in the registry or with the payout provider, and the
    /// conditional checks are skipped.
    pub fn reference(&self) -> Option<(&str, &str)> {
        let is_named = |part: &str, prefix: &str| part.strip_prefix(prefix).is_some_and(|id| !id.is_empty());
        let (beneficiary, destination) = self.account()?.split_once(':')?;
        (is_named(beneficiary, "bene_") && is_named(destination, "dest_"))
            .then_some((beneficiary, destination))
    }

    pub fn is_reference(&self) -> bool {
        self.reference().is_some()
    }

    /// The rail of the payout: the named one, else `swift` when a BIC is given.
    pub fn rail(&self) -> Option<PayoutMethod> {
        self.payout_method.or_else(|| filled(self.swift_code.as_ref()).map(|_| PayoutMethod::Swift))
    }

    /// What the rail of the payout can carry.
    pub fn scheme(&self) -> Option<&'static Scheme> {
        self.rail().map(Scheme::of)
    }

    /// Whether name, country and rail are known.
    pub fn has_rail_details(&self) -> bool {
        self.name().is_some() && filled(self.country.as_ref()).is_some() && self.rail().is_some()
    }

    /// Whether the rail needs no address, or a complete one is given.
    pub fn has_address_for_rail(&self) -> bool {
        let is_complete = || self.address.as_ref().is_some_and(BeneficiaryAddress::is_complete);
        !self.scheme().is_some_and(|scheme| scheme.needs_address) || is_complete()
    }

    /// The last four characters of the account.
    pub fn account_last4(&self) -> Option<String> {
        let account = self.account()?;
        let skip = account.chars().count().saturating_sub(4);
        Some(account.chars().skip(skip).collect())
    }

    /// The first letter of each word of the name, the rest starred.
    pub fn name_masked(&self) -> Option<String> {
        let words = self.name()?.split_whitespace().map(|word| {
            let mut letters = word.chars();
            letters.next().into_iter().chain(letters.map(|_| '*')).collect::<String>()
        });
        Some(words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(text: &str) -> Beneficiary {
        Beneficiary { account: Some(text.into()), ..Beneficiary::default() }
    }

    #[test]
    fn a_reference_has_both_parts_and_both_ids() {
        assert!(account("bene_1:dest_2").is_reference());
        for other in ["bene_1", "bene_:dest_2", "bene_1:dest_", "DE89370400440532013000", "dest_1:bene_2"] {
            assert!(!account(other).is_reference(), "{other}");
        }
    }

    #[test]
    fn a_bic_alone_sets_the_rail_and_a_wire_needs_a_whole_address() {
        let mut beneficiary = account("1");
        assert_eq!(beneficiary.rail(), None);
        beneficiary.swift_code = Some("DEUTDEFF".into());
        assert_eq!(beneficiary.rail(), Some(PayoutMethod::Swift));
        assert!(!beneficiary.has_address_for_rail());
        beneficiary.address = Some(BeneficiaryAddress { line1: "1 St".into(), ..Default::default() });
        assert!(!beneficiary.has_address_for_rail());
        beneficiary.payout_method = Some(PayoutMethod::Ach);
        assert!(beneficiary.has_address_for_rail());
    }

    #[test]
    fn details_that_exist_nowhere_are_faults() {
        let iban = || account("DE89370400440532013000");
        let sepa = Some(PayoutMethod::Sepa);
        let field = |beneficiary: Beneficiary| beneficiary.check().err().map(|fault| fault.field);
        for fine in [
            Beneficiary::default(),
            Beneficiary {
                country: Some(String::new()),
                swift_code: Some(" ".into()),
                ..account("000123456789")
            },
            Beneficiary { country: Some("de".into()), payout_method: sepa, ..iban() },
            Beneficiary { swift_code: Some("deutdeff500".into()), ..iban() },
            Beneficiary { payout_method: sepa, ..account("bene_1:dest_2") },
        ] {
            assert_eq!(field(fine.clone()), None, "{fine:?}");
        }
        for wrong in ["XX86ABCDEFGHIJK", "DE89370400440532013001", "DE8937040044053201300"] {
            assert_eq!(field(account(wrong)), Some(BeneficiaryField::Account), "{wrong}");
        }
        let no_iban = Beneficiary { payout_method: sepa, ..account("000123456789") };
        assert_eq!(field(no_iban), Some(BeneficiaryField::Account));
        for wrong in ["ZZ", "USA", "D", "EU"] {
            let of = Beneficiary { country: Some(wrong.into()), ..iban() };
            assert_eq!(field(of), Some(BeneficiaryField::Country), "{wrong}");
        }
        for wrong in ["nonsense!", "DEUTZZFF", "DEUTDEF"] {
            let at = Beneficiary { swift_code: Some(wrong.into()), ..iban() };
            assert_eq!(field(at), Some(BeneficiaryField::SwiftCode), "{wrong}");
        }
    }

    #[test]
    fn masking_leaves_initials_and_four_characters() {
        let beneficiary = Beneficiary { name: Some("Jane van Doe".into()), ..account("000123456789") };
        assert_eq!(beneficiary.name_masked().unwrap(), "J*** v** D**");
        assert_eq!(beneficiary.account_last4().unwrap(), "6789");
        assert_eq!(account("12").account_last4().unwrap(), "12");
    }
}
