//! The content of a payment order by the rules of its rail: names, character set, service level, charges. Pure.

use dvp_domain::beneficiary::{Beneficiary, BeneficiaryAddress};
use dvp_domain::currency::{AccountNumber, account_number, exponent, is_bic, is_country};
use dvp_domain::intent::CLIENT_REFERENCE;
use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentSubject;
use dvp_domain::scheme::{
    BankRule, POST_CODE_MAX, STREET_MAX, SUBDIVISION_MAX, Scheme, TOWN_MAX, leaves_eea,
};
use serde::Deserialize;

use super::text::{clearing_member, plain, plain_name};
use crate::{PayoutOrder, RailRequest, Unpayable};

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
    #[serde(default)]
    pub street: Option<String>,
    #[serde(default)]
    pub post_code: Option<String>,
    /// A code of ISO's external list of purposes, for the payments from it.
    #[serde(default)]
    pub purpose: Option<String>,
}

impl Debtor {
    pub(super) fn address(&self) -> Option<Address> {
        let part = |text: &Option<String>, most| {
            text.as_deref().map(|text| plain(text, most)).filter(|text| !text.is_empty())
        };
        let (street, post_code) = (part(&self.street, STREET_MAX), part(&self.post_code, POST_CODE_MAX));
        let (town, country) = (part(&self.town, TOWN_MAX)?, self.country.clone());
        Some(Address { street, post_code, town, subdivision: None, country })
    }

    /// Whether payments to countries outside of the EEA can have the payer's address that they need: a street or a post
    /// code, the town and the country.
    pub fn has_full_address(&self) -> bool {
        self.address().is_some_and(|address| address.street.or(address.post_code).is_some())
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
    pub scheme: &'static Scheme,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
    pub name: String,
    pub account: Account,
    pub agent: Option<Agent>,
    pub address: Option<Address>,
    /// For the recipient to read.
    pub remittance: String,
    /// For whom the payment is made.
    pub ultimate_debtor: Option<String>,
}

const fn refuse<T>(field: &'static str, code: &'static str, message: &'static str) -> Result<T, Unpayable> {
    Err(Unpayable { code, field, message })
}

/// Checks from the order alone whether a bank can pay it.
///
/// # Errors
/// What the payment's rail lacks or cannot carry.
pub fn check_payout(order: &PayoutOrder<'_>) -> Result<(), Unpayable> {
    Instruction::new(order, String::new(), "").map(drop)
}

/// The bank would have to be told where the payer is.
pub const PAYER_ADDRESS: Unpayable = Unpayable {
    code: "payer_address_missing",
    field: "beneficiary.account",
    message: "the payment leaves the European Economic Area, and the account that it is paid from has no full address",
};

/// Whether a payment to a beneficiary needs the payer's full address.
pub fn needs_payer_address(beneficiary: &Beneficiary) -> bool {
    let iban = beneficiary.account().and_then(super::text::iban);
    beneficiary.scheme().is_some_and(|scheme| scheme.needs_payer_address_abroad)
        && iban.is_some_and(|iban| leaves_eea(&iban))
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
            // Any other was found to be writable when the order was accepted.
            reference: request.payer_reference.as_deref().map(|text| (CLIENT_REFERENCE, text)),
        };
        Self::new(&order, end_to_end_id(&request.reference), &request.execution)
    }

    /// The same, made for somebody: if the scheme can say so, and the whole name.
    pub fn made_for(self, name: &str) -> Self {
        let ultimate_debtor = self.scheme.ultimate_debtor_max.and_then(|most| plain_name(name, most));
        Self { ultimate_debtor, ..self }
    }

    fn new(order: &PayoutOrder<'_>, end_to_end_id: String, execution: &str) -> Result<Self, Unpayable> {
        let details = || {
            let message = "the bank needs the beneficiary's name and account";
            refuse("beneficiary", "beneficiary_details_missing", message)
        };
        let Some(beneficiary) = order.beneficiary else { return details() };
        if beneficiary.is_reference() {
            return refuse(
                "beneficiary",
                "beneficiary_unknown",
                "the registry of beneficiaries has no such recipient of yours",
            );
        }
        let (Some(name), Some(account), Some(scheme)) =
            (beneficiary.name(), beneficiary.account(), beneficiary.scheme())
        else {
            return details();
        };
        let Some(name) = plain_name(name, scheme.name_max) else {
            return refuse(
                "beneficiary.name",
                "beneficiary_name_unwritable",
                "the name has a letter that has no transcription for banks, or is longer than the rail's names",
            );
        };
        let written = |text: &str| plain_name(text, scheme.remittance_max);
        let remittance = match order.reference.map(|(field, text)| (field, written(text))) {
            Some((_, Some(text))) => text,
            // A correlation key of the caller's: no recipient waits for it.
            None | Some((CLIENT_REFERENCE, None)) => written(execution).unwrap_or_default(),
            Some((field, None)) => {
                return refuse(
                    field,
                    "reference_unwritable",
                    "the recipient reads it: it has a letter that has no transcription for banks, or is longer than the rail's texts",
                );
            }
        };
        let instruction = Self {
            end_to_end_id,
            scheme,
            amount: order.amount,
            currency: order.currency.to_owned(),
            exponent: order.exponent,
            name,
            account: account_of(account)?,
            agent: agent_of(beneficiary)?,
            address: address_of(beneficiary)?,
            remittance,
            ultimate_debtor: None,
        };
        instruction.check()?;
        Ok(instruction)
    }

    /// Checks the scheme's requirements beyond the schema.
    fn check(&self) -> Result<(), Unpayable> {
        const AMOUNT: &str = "bounds";
        if self.amount.is_zero() || Some(self.exponent) != exponent(&self.currency) {
            return refuse(
                AMOUNT,
                "amount_unwritable",
                "the amount cannot be written in the currency's decimals",
            );
        }
        if self.amount.get() >= 1_000_000_000_000_000_000 {
            return refuse(AMOUNT, "amount_unwritable", "the amount has more than eighteen digits");
        }
        let Scheme { currency, amount_max, takes_iban_only, bank, needs_address, .. } = *self.scheme;
        if currency.is_some_and(|only| only != self.currency) {
            const METHOD: &str = "beneficiary.payoutMethod";
            return refuse(METHOD, "currency_not_served_by_rail", "sepa pays euros only, and ach dollars");
        }
        if amount_max.is_some_and(|most| self.amount.get() > most) {
            return refuse(AMOUNT, "amount_over_rail_limit", "the rail takes no payment of this amount");
        }
        if takes_iban_only && !matches!(self.account, Account::Iban(_)) {
            return refuse(
                "beneficiary.account",
                "beneficiary_account_invalid",
                "sepa pays to an IBAN only, with right check digits",
            );
        }
        let missing = |field, message| refuse(field, "beneficiary_bank_missing", message);
        match (bank, &self.agent) {
            (BankRule::Bic, None | Some(Agent::Member { .. })) => {
                missing("beneficiary.swiftCode", "swift needs the BIC of the beneficiary's bank")
            }
            (BankRule::BicOrMember, None) => {
                missing("beneficiary.bank", "a wire needs the bank's BIC or clearing number")
            }
            (BankRule::Member, None | Some(Agent::Bic(_))) => {
                missing("beneficiary.bank", "ach needs the bank's clearing number")
            }
            (BankRule::None | BankRule::Bic | BankRule::BicOrMember | BankRule::Member, _)
                if needs_address && self.address.is_none() =>
            {
                refuse(
                    "beneficiary.address",
                    "beneficiary_address_missing",
                    "swift and wire need the beneficiary's address with its town and country",
                )
            }
            (BankRule::None | BankRule::Bic | BankRule::BicOrMember | BankRule::Member, _) => Ok(()),
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

/// The payment with a UETR, in whatever form that is written.
pub(super) fn by_uetr(uetr: &str) -> Option<PaymentSubject> {
    let uetr = uuid::Uuid::parse_str(uetr).ok()?;
    Some(PaymentSubject::Uetr(uetr.simple().to_string()))
}

/// Refuses references of ours that are not all of one payment. Those of others are passed over, and so is a UETR, which a
/// bank may have given itself.
pub(super) fn one_payment(ids: &[Option<&str>]) -> Result<(), String> {
    let mut own = ids.iter().copied().flatten().filter(|id| is_end_to_end_id(id));
    let first = own.next();
    if own.any(|id| Some(id) != first) {
        return Err("it names two payments".to_owned());
    }
    Ok(())
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
            let message = "the account is no account number that banks take";
            refuse("beneficiary.account", "beneficiary_account_invalid", message)
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
            return refuse("beneficiary.swiftCode", "beneficiary_bank_invalid", "swiftCode is no BIC");
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

/// `None`: it has no town or no country. What of it is written is written whole.
fn address_of(beneficiary: &Beneficiary) -> Result<Option<Address>, Unpayable> {
    let Some(BeneficiaryAddress { line1, city, state, postal_code }) = &beneficiary.address else {
        return Ok(None);
    };
    let part = |field, text: &str, most| match plain_name(text, most) {
        None if text.trim().is_empty() => Ok(None),
        None => refuse(
            field,
            "beneficiary_address_unwritable",
            "it has a letter that has no transcription for banks, or is longer than addresses of banks have it",
        ),
        part => Ok(part),
    };
    let street = part("beneficiary.address.line1", line1, STREET_MAX)?;
    let post_code = part("beneficiary.address.postalCode", postal_code, POST_CODE_MAX)?;
    let town = part("beneficiary.address.city", city, TOWN_MAX)?;
    let subdivision = part("beneficiary.address.state", state, SUBDIVISION_MAX)?;
    let country = beneficiary.country.as_deref().map(|code| code.trim().to_ascii_uppercase());
    let place = town.zip(country.filter(|code| is_country(code)));
    Ok(place.map(|(town, country)| Address { street, post_code, town, subdivision, country }))
}
