//! The recipient of a payout, and the data that a payout requires (spec section 2.5, Beneficiary).

pub mod destination;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayoutMethod {
    Wire,
    Swift,
    Ach,
    Sepa,
}

impl PayoutMethod {
    pub const ALL: [Self; 4] = [Self::Wire, Self::Swift, Self::Ach, Self::Sepa];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Swift => "swift",
            Self::Ach => "ach",
            Self::Sepa => "sepa",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }
}

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

fn filled(text: Option<&String>) -> Option<&str> {
    text.map(|t| t.trim()).filter(|t| !t.is_empty())
}

impl Beneficiary {
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

    /// Whether country and rail are known.
    pub fn has_rail_details(&self) -> bool {
        filled(self.country.as_ref()).is_some() && self.rail().is_some()
    }

    /// Whether the rail needs no address, or a complete one is given.
    pub fn has_address_for_rail(&self) -> bool {
        match self.rail() {
            Some(PayoutMethod::Wire | PayoutMethod::Swift) => {
                self.address.as_ref().is_some_and(BeneficiaryAddress::is_complete)
            }
            Some(PayoutMethod::Ach | PayoutMethod::Sepa) | None => true,
        }
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
    fn masking_leaves_initials_and_four_characters() {
        let beneficiary = Beneficiary { name: Some("Jane van Doe".into()), ..account("000123456789") };
        assert_eq!(beneficiary.name_masked().unwrap(), "J*** v** D**");
        assert_eq!(beneficiary.account_last4().unwrap(), "6789");
        assert_eq!(account("12").account_last4().unwrap(), "12");
    }
}
