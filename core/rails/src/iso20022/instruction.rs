//! The content of a payment order by the rules of its rail: names, character set, service level, charges. Pure.

use dvp_domain::beneficiary::{Beneficiary, PayoutMethod};
use dvp_domain::currency::{AccountNumber, account_number, exponent, is_bic, is_country};
use dvp_domain::money::Minor;
use serde::Deserialize;

use super::text::{clearing_member, plain, plain_name};
use crate::{PayoutOrder, RailRequest, Unpayable};

/// The longest name of a town.
const TOWN_MAX: usize = 35;

/// The account that payments are made from, as registered at its bank.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Debtor {
    pub name: String,
    /// ISO 4217.
    pub currency: String,
    /// An IBAN, or an account number of the bank's own.
    pub account: String,
    pub bic: String,
    /// ISO 3166-1 alpha-2.
    pub country: String,
    /// Its address is written with its town or not at all.
    pub town: Option<String>,
}

impl Debtor {
    pub(super) fn address(&self) -> Option<Address> {
        let town = self.town.as_deref().map(|town| plain(town, TOWN_MAX)).filter(|town| !town.is_empty())?;
        Some(Address { town, country: self.country.clone(), ..Address::default() })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    Iban(String),
    Other(String),
}

/// A bank's identification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agent {
    Bic(String),
    /// A member of a national clearing system.
    Member {
        system: &'static str,
        member: String,
        name: Option<String>,
    },
}

/// A postal address. Payment schemes require its town and its country.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address {
    pub street: Option<String>,
    pub post_code: Option<String>,
    pub town: String,
    pub subdivision: Option<String>,
    pub country: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// 32 characters that identify this payment, the same at every attempt.
    pub end_to_end_id: String,
    pub method: PayoutMethod,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
    pub name: String,
    pub account: Account,
    pub agent: Option<Agent>,
    pub address: Option<Address>,
    /// For the recipient to read.
    pub remittance: String,
}

const fn refuse<T>(code: &'static str, message: &'static str) -> Result<T, Unpayable> {
    Err(Unpayable { code, message })
}

/// The longest name of a rail.
const fn name_max(method: PayoutMethod) -> usize {
    match method {
        PayoutMethod::Sepa => 70,
        PayoutMethod::Wire | PayoutMethod::Swift | PayoutMethod::Ach => 140,
    }
}

/// Checks from the order alone whether a bank can pay it.
///
/// # Errors
/// What the payment's rail lacks or cannot carry.
pub fn check_payout(order: &PayoutOrder<'_>) -> Result<(), Unpayable> {
    Instruction::new(order, String::new(), String::new()).map(drop)
}

/// The end-to-end id of a payment: half of the reference's 64 hex digits, which is the longest that fits.
pub fn end_to_end_id(reference: &str) -> String {
    reference.chars().take(32).collect::<String>().to_ascii_uppercase()
}

/// Whether an id is one of ours by its form.
pub(super) fn is_end_to_end_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

impl Instruction {
    /// Reads the order of a payout.
    pub fn of(request: &RailRequest) -> Result<Self, Unpayable> {
        let order = PayoutOrder {
            beneficiary: request.beneficiary.as_ref(),
            amount: request.amount,
            currency: &request.currency,
            exponent: request.exponent,
        };
        Self::new(&order, end_to_end_id(&request.reference), plain(&request.execution, 140))
    }

    fn new(order: &PayoutOrder<'_>, end_to_end_id: String, remittance: String) -> Result<Self, Unpayable> {
        let details =
            || refuse("beneficiary_details_missing", "the bank needs the beneficiary's name and account");
        let Some(beneficiary) = order.beneficiary else { return details() };
        if beneficiary.is_reference() {
            return refuse(
                "beneficiary_unknown",
                "the registry of beneficiaries has no such recipient of yours",
            );
        }
        let (Some(name), Some(account), Some(method)) =
            (beneficiary.name(), beneficiary.account(), beneficiary.rail())
        else {
            return details();
        };
        let Some(name) = plain_name(name, name_max(method)) else {
            return refuse(
                "beneficiary_name_unwritable",
                "the name has a letter that has no transcription for banks, or is longer than the rail's names",
            );
        };
        let account = account_of(account)?;
        let agent = agent_of(beneficiary)?;
        let instruction = Self {
            end_to_end_id,
            method,
            amount: order.amount,
            currency: order.currency.to_owned(),
            exponent: order.exponent,
            name,
            account,
            agent,
            address: address_of(beneficiary),
            remittance,
        };
        instruction.check()?;
        Ok(instruction)
    }

    /// Checks the rail's requirements beyond the schema.
    fn check(&self) -> Result<(), Unpayable> {
        if self.amount.is_zero() || Some(self.exponent) != exponent(&self.currency) {
            return refuse("amount_unwritable", "the amount cannot be written in the currency's decimals");
        }
        if self.amount.get() >= 1_000_000_000_000_000_000 {
            return refuse("amount_unwritable", "the amount has more than eighteen digits");
        }
        let has_iban = matches!(self.account, Account::Iban(_));
        let has_bic = matches!(self.agent, Some(Agent::Bic(_)));
        match self.method {
            PayoutMethod::Sepa if self.currency != "EUR" => {
                refuse("currency_not_served_by_rail", "sepa pays euros only")
            }
            PayoutMethod::Sepa if !has_iban => {
                refuse("beneficiary_account_invalid", "sepa pays to an IBAN only, with right check digits")
            }
            PayoutMethod::Swift if !has_bic => {
                refuse("beneficiary_bank_missing", "swift needs the BIC of the beneficiary's bank")
            }
            PayoutMethod::Wire if self.agent.is_none() => {
                refuse("beneficiary_bank_missing", "a wire needs the bank's BIC or clearing number")
            }
            PayoutMethod::Ach if !matches!(self.agent, Some(Agent::Member { .. })) => {
                refuse("beneficiary_bank_missing", "ach needs the bank's clearing number")
            }
            PayoutMethod::Swift | PayoutMethod::Wire if self.address.is_none() => refuse(
                "beneficiary_address_missing",
                "swift and wire need the beneficiary's address with its town and country",
            ),
            PayoutMethod::Sepa | PayoutMethod::Swift | PayoutMethod::Wire | PayoutMethod::Ach => Ok(()),
        }
    }

    /// The external code of the service level, if the rail has one.
    pub const fn service_level(&self) -> Option<&'static str> {
        match self.method {
            PayoutMethod::Sepa => Some("SEPA"),
            PayoutMethod::Wire => Some("URGP"),
            PayoutMethod::Ach => Some("NURG"),
            // Tracked from end to end, which is why each payment has a UETR.
            PayoutMethod::Swift => Some("G001"),
        }
    }

    /// The external code of the local instrument: a credit to a company's or a person's account.
    pub const fn local_instrument(&self) -> Option<&'static str> {
        match self.method {
            PayoutMethod::Ach => Some("CCD"),
            PayoutMethod::Sepa | PayoutMethod::Wire | PayoutMethod::Swift => None,
        }
    }

    /// The bearer of the banks' charges. The quoted amount arrives, as far as the rail can guarantee it.
    pub const fn charge_bearer(&self) -> &'static str {
        match self.method {
            PayoutMethod::Sepa => "SLEV",
            PayoutMethod::Wire | PayoutMethod::Swift => "DEBT",
            PayoutMethod::Ach => "SHAR",
        }
    }
}

/// A UUID of version 4 derived from the end-to-end id, so a payment has the same one at every attempt, and in its
/// recall.
pub fn uetr(end_to_end_id: &str) -> Option<String> {
    let value = u128::from_str_radix(end_to_end_id, 16).ok()?;
    let version = (value & !(0xf << 76)) | (0x4 << 76);
    let variant = (version & !(0x3 << 62)) | (0x2 << 62);
    Some(uuid::Uuid::from_u128(variant).to_string())
}

/// The end-to-end ids that a UETR may be derived from: it has a version and a variant in place of six of their bits.
pub(super) fn ids_of_uetr(uetr: &str) -> Option<Vec<String>> {
    let kept = uuid::Uuid::parse_str(uetr).ok()?.as_u128() & !(0xf << 76) & !(0x3 << 62);
    let ids = (0..64_u128).map(|lost| kept | (lost >> 2) << 76 | (lost & 0x3) << 62);
    Some(ids.map(|id| format!("{id:032X}")).collect())
}

/// An IBAN of its country's form; a text that looks like one and is none is refused.
fn account_of(text: &str) -> Result<Account, Unpayable> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    match account_number(text) {
        AccountNumber::Iban(iban) => Ok(Account::Iban(iban)),
        AccountNumber::Other
            if !compact.is_empty() && compact.chars().count() <= 34 && compact == plain(&compact, 34) =>
        {
            Ok(Account::Other(compact))
        }
        AccountNumber::WrongIban | AccountNumber::Other => {
            refuse("beneficiary_account_invalid", "the account is no account number that banks take")
        }
    }
}

/// A BIC takes precedence over a clearing number; each has its own field, a clearing number with its system's code in
/// that of the bank.
fn agent_of(beneficiary: &Beneficiary) -> Result<Option<Agent>, Unpayable> {
    let given = |text: &Option<String>| {
        text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    if let Some(bic) = given(&beneficiary.swift_code) {
        let bic = bic.to_ascii_uppercase();
        if !is_bic(&bic) {
            return refuse("beneficiary_bank_invalid", "swiftCode is no BIC");
        }
        return Ok(Some(Agent::Bic(bic)));
    }
    let Some(bank) = given(&beneficiary.bank) else { return Ok(None) };
    let (code, name) = bank.split_once(' ').map_or((bank.as_str(), None), |(code, name)| (code, Some(name)));
    let member = clearing_member(code).map(|(system, member)| Agent::Member {
        system,
        member: member.to_owned(),
        name: name.map(|name| plain(name, 140)).filter(|name| !name.is_empty()),
    });
    Ok(member)
}

/// `None`: it has no town or no country.
fn address_of(beneficiary: &Beneficiary) -> Option<Address> {
    let address = beneficiary.address.as_ref()?;
    let part = |text: &str, most| Some(plain(text, most)).filter(|text| !text.is_empty());
    let country = beneficiary.country.as_deref().map(|code| code.trim().to_ascii_uppercase());
    Some(Address {
        street: part(&address.line1, 70),
        post_code: part(&address.postal_code, 16),
        town: part(&address.city, TOWN_MAX)?,
        subdivision: part(&address.state, 35),
        country: country.filter(|code| is_country(code))?,
    })
}
