//! The entries of an account, as notifications, reports and statements have them in every version. Pure.
//!
//! Invariant: an entry that was read is understood: what is needed of it is there, once, and of its form. What is not is
//! told in plain words.

use chrono::{DateTime, Utc};
use dvp_domain::payment::PaymentSubject;

use super::instruction::{by_uetr, is_end_to_end_id, one_payment};
use super::pain001::{BLOCK, MESSAGE};
use super::part::Part;
use super::schema::exponent;
use super::text::{boolean, decimal, minor, time};
use super::word::Booked;
use super::xml::Node;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Credit,
    Debit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryStatus {
    Booked,
    /// It may still change (`PDNG`), or is of a later day (`FUTR`).
    Pending,
    /// No money has moved.
    Information,
}

#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    pub(super) node: &'a Node,
    /// Its place in the report, for operators.
    pub(super) place: String,
    pub(super) amount: Booked,
    pub(super) direction: Direction,
    pub(super) is_reversal: bool,
    pub(super) status: EntryStatus,
    pub(super) booked_at: Option<DateTime<Utc>>,
    /// What the bank itemizes.
    pub(super) payments: Vec<&'a Node>,
    /// The amounts of several payments in minor units, when they add up to the entry. Credits are positive.
    pub(super) parts: Option<Vec<i128>>,
}

/// One payment of an entry.
#[derive(Debug, Clone)]
pub(super) struct EntryPayment<'a> {
    pub(super) subject: Option<PaymentSubject>,
    pub(super) amount: Option<Booked>,
    pub(super) direction: Direction,
    pub(super) bank_reference: Option<&'a str>,
    /// Why it has come back, if it has.
    pub(super) returned: Option<Option<&'a str>>,
}

/// Reads the entries of a report. What cannot be understood is described in `set_aside`.
pub(super) fn read_all<'a>(report: &'a Node, set_aside: &mut Vec<Part>) -> Vec<Entry<'a>> {
    let id = report.text_at("Id").unwrap_or_default();
    let mut entries = Vec::new();
    for (n, node) in report.all("Ntry").enumerate() {
        let reference = node.text_at("AcctSvcrRef").or_else(|| node.text_at("NtryRef"));
        let reference = reference.map(|reference| format!(" ({reference})")).unwrap_or_default();
        let place = format!("entry {}{reference} of {id}", n + 1);
        match Entry::read(node, place.clone()) {
            Ok(entry) => entries.push(entry),
            Err(why) => set_aside.push(Part::of(node, format!("{place}: {why}"))),
        }
    }
    entries
}

impl<'a> Entry<'a> {
    fn read(node: &'a Node, place: String) -> Result<Self, String> {
        let mut payments: Vec<&Node> =
            node.all("NtryDtls").flat_map(|details| details.all("TxDtls")).collect();
        if payments.is_empty() {
            // A block of ours has one payment.
            payments.extend(node.all("NtryDtls").filter_map(|details| details.child("Btch")));
        }
        let amount = node.sole("Amt")?.ok_or("it has no amount")?;
        let is_reversal = match node.sole_text("RvslInd")? {
            Some(text) => boolean(text).ok_or_else(|| format!("RvslInd is {text}"))?,
            None => false,
        };
        let mut entry = Self {
            node,
            place,
            amount: money(amount)?,
            direction: direction(node)?.ok_or("it is neither a credit nor a debit")?,
            is_reversal,
            status: status(node)?,
            booked_at: booked_at(node)?,
            payments,
            parts: None,
        };
        entry.parts = entry.itemized();
        Ok(entry)
    }

    fn itemized(&self) -> Option<Vec<i128>> {
        let parts: Option<Vec<i128>> = self.payments.iter().map(|payment| self.part(payment)).collect();
        let sum = |parts: &[i128]| parts.iter().try_fold(0_i128, |sum, part| sum.checked_add(*part));
        parts.filter(|parts| parts.len() > 1 && sum(parts) == self.signed_amount())
    }

    /// What one payment contributes.
    fn part(&self, payment: &Node) -> Option<i128> {
        let amount = self.amount_of(payment).ok()??;
        let direction = direction(payment).ok()?.unwrap_or(self.direction);
        signed(&amount, direction).filter(|_| amount.1 == self.amount.1)
    }

    /// A payment's own amount, or that of an entry of this payment alone. The early versions have it among the details.
    fn amount_of(&self, payment: &Node) -> Result<Option<Booked>, String> {
        match payment.sole("Amt")? {
            Some(amount) => money(amount).map(Some),
            None if self.payments.len() == 1 => Ok(Some(self.amount.clone())),
            None => payment.sole("AmtDtls/TxAmt/Amt")?.map(money).transpose(),
        }
    }

    /// In minor units of its currency. Credits are positive.
    pub(super) fn signed_amount(&self) -> Option<i128> {
        signed(&self.amount, self.direction)
    }

    pub(super) fn read_payment(&self, payment: &'a Node) -> Result<EntryPayment<'a>, String> {
        let direction = direction(payment)?.unwrap_or(self.direction);
        // Payments in both directions may be booked in one entry of what remains.
        if direction != self.direction && self.parts.is_none() {
            return Err("its CdtDbtInd is not that of its entry".to_owned());
        }
        let reference = payment.sole_text("Refs/AcctSvcrRef")?;
        let returned = match payment.sole("RtrInf")? {
            Some(info) => Some(info.sole_text("Rsn/Cd")?.or(info.sole_text("Rsn/Prtry")?)),
            None => None,
        };
        Ok(EntryPayment {
            subject: match end_to_end_id(payment)? {
                Some(id) => Some(PaymentSubject::Payment(id.to_owned())),
                None => payment.sole_text("Refs/UETR")?.and_then(by_uetr),
            },
            amount: self.amount_of(payment)?,
            direction,
            bank_reference: reference.or(self.node.sole_text("AcctSvcrRef")?),
            returned,
        })
    }
}

/// The end-to-end id of a payment by its references: the id itself, or another one of ours, which are all derived from it.
pub(super) fn end_to_end_id(payment: &Node) -> Result<Option<&str>, String> {
    let refs = payment.sole("Refs")?.unwrap_or(payment);
    let block = refs.sole_text("PmtInfId")?.and_then(|id| id.strip_prefix(BLOCK));
    let message = refs.sole_text("MsgId")?.and_then(|id| id.strip_prefix(MESSAGE));
    let own = [refs.sole_text("EndToEndId")?, refs.sole_text("InstrId")?, block, message];
    one_payment(&own)?;
    for (name, prefix) in [("EndToEndId", ""), ("InstrId", ""), ("PmtInfId", BLOCK), ("MsgId", MESSAGE)] {
        let id = refs.sole_text(name)?.and_then(|id| id.strip_prefix(prefix));
        if let Some(id) = id.filter(|id| is_end_to_end_id(id)) {
            return Ok(Some(id));
        }
    }
    Ok(refs.sole_text("EndToEndId")?.filter(|id| *id != "NOTPROVIDED"))
}

fn signed((amount, currency): &Booked, direction: Direction) -> Option<i128> {
    let amount = i128::try_from(minor(amount, exponent(currency))?.get()).ok()?;
    match direction {
        Direction::Credit => Some(amount),
        Direction::Debit => amount.checked_neg(),
    }
}

/// An amount in its shortest form, with its currency.
pub(super) fn money(amount: &Node) -> Result<Booked, String> {
    let text = &amount.text;
    let currency = amount.attribute("Ccy").ok_or_else(|| format!("the amount {text} has no currency"))?;
    if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("{currency} is no currency"));
    }
    let number = decimal(text).filter(|number| minor(number, exponent(currency)).is_some());
    Ok((number.ok_or_else(|| format!("{text} is no amount of {currency}"))?, currency.to_owned()))
}

pub(super) fn direction(node: &Node) -> Result<Option<Direction>, String> {
    match node.sole_text("CdtDbtInd")? {
        None => Ok(None),
        Some("CRDT") => Ok(Some(Direction::Credit)),
        Some("DBIT") => Ok(Some(Direction::Debit)),
        Some(other) => Err(format!("CdtDbtInd is {other}")),
    }
}

/// The early versions have the code itself in `Sts`.
fn status(entry: &Node) -> Result<EntryStatus, String> {
    let status = entry.sole("Sts")?.ok_or("it has no status")?;
    let given = [status.sole_text("Cd")?, status.sole_text("Prtry")?, Some(status.text.as_str())];
    let mut given = given.into_iter().flatten().filter(|code| !code.is_empty());
    match (given.next(), given.next()) {
        (Some("BOOK"), None) => Ok(EntryStatus::Booked),
        (Some("PDNG" | "FUTR"), None) => Ok(EntryStatus::Pending),
        (Some("INFO"), None) => Ok(EntryStatus::Information),
        (Some(other), None) => Err(format!("its status {other} is not known")),
        (None, _) => Err("it has no status".to_owned()),
        (Some(_), Some(_)) => Err("it has several statuses".to_owned()),
    }
}

/// The booking date, or else the value date.
fn booked_at(entry: &Node) -> Result<Option<DateTime<Utc>>, String> {
    for path in ["BookgDt/DtTm", "BookgDt/Dt", "ValDt/DtTm", "ValDt/Dt"] {
        if let Some(text) = entry.sole_text(path)? {
            return time(text).map(Some).ok_or_else(|| format!("{text} is no date"));
        }
    }
    Ok(None)
}
