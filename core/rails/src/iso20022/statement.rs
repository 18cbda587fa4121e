//! A statement of account out of camt.053: its balances and its booked entries. Pure.
//!
//! Invariant: the entries of what is returned lead from its opening to its closing balance.

use std::collections::BTreeSet;

use chrono::{DateTime, Days, NaiveTime, Utc};
use sha2::{Digest as _, Sha256};

use super::entry::{Direction, Entry, EntryStatus, direction, end_to_end_id, money};
use super::instruction::is_end_to_end_id;
use super::schema::exponent;
use super::text::{minor, time};
use super::word::PaymentReport;
use super::xml::{Node, Span};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The account's number at the bank: an IBAN, or the bank's own.
    pub account: String,
    pub currency: String,
    pub id: String,
    /// From 1 on.
    pub page: i32,
    pub begins_at: DateTime<Utc>,
    pub ends_at: DateTime<Utc>,
    pub opening: i128,
    pub closing: i128,
    pub entries: Vec<StatementEntry>,
    /// What it says of payments.
    pub said: Vec<PaymentReport>,
    pub span: Span,
}

/// A booked entry, or one payment of a batch that the bank itemizes. Positive amounts are credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementEntry {
    pub amount: i128,
    pub booked_at: DateTime<Utc>,
    pub end_to_end_id: Option<String>,
    /// Every reference that it carries, and its unstructured remittance information.
    pub references: Vec<String>,
}

impl Statement {
    /// SHA-256 of all that counts in it.
    pub fn digest(&self) -> [u8; 32] {
        let Self {
            account,
            currency,
            id,
            page,
            begins_at,
            ends_at,
            opening,
            closing,
            entries,
            said: _,
            span: _,
        } = self;
        let mut hasher = Sha256::new();
        let mut add = |text: &str| {
            hasher.update(text.as_bytes());
            hasher.update([0]);
        };
        add(&format!("{account}\0{currency}\0{id}\0{page}\0{begins_at}\0{ends_at}\0{opening}\0{closing}"));
        for StatementEntry { amount, booked_at, end_to_end_id, references } in entries {
            add(&format!("{amount}\0{booked_at}\0{end_to_end_id:?}\0{references:?}"));
        }
        hasher.finalize().into()
    }
}

/// A statement that contradicts itself, or says less than is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("statement {id} {what}")]
pub struct WrongStatement {
    pub id: String,
    pub what: String,
    /// Its entries and its balances are understood and contradict each other: none of them counts.
    pub is_contradiction: bool,
}

/// Reads one `Stmt` with its entries. `is_complete`: all of them are understood. `page`: that of its message.
pub(super) fn read(
    node: &Node,
    entries: &[Entry<'_>],
    is_complete: bool,
    page: Option<&str>,
) -> Result<Statement, WrongStatement> {
    let id = node.text_at("Id").unwrap_or_default().to_owned();
    let lacking = |what: String| WrongStatement { id: id.clone(), what, is_contradiction: false };
    let account = node.text_at("Acct/Id/IBAN").or_else(|| node.text_at("Acct/Id/Othr/Id"));
    let account = account.ok_or_else(|| lacking("names no account".into()))?.to_owned();
    let balances: Vec<&Node> = node.all("Bal").collect();
    let of_first = || balances.first().and_then(|balance| balance.child("Amt")?.attribute("Ccy"));
    let currency = node.text_at("Acct/Ccy").or_else(of_first);
    let currency = currency.ok_or_else(|| lacking("names no currency".into()))?.to_owned();
    let kind = |balance: &&&Node| balance.text_at("Tp/CdOrPrtry/Cd").unwrap_or_default().to_owned();
    // On a page in the middle the balances are interim ones.
    let opening = balances.iter().find(|one| matches!(kind(one).as_str(), "OPBD" | "PRCD"));
    let opening = opening.or_else(|| balances.iter().find(|one| kind(one) == "ITBD"));
    let closing = balances.iter().find(|one| kind(one) == "CLBD");
    let closing = closing.or_else(|| balances.iter().rev().find(|one| kind(one) == "ITBD"));
    let (Some(opening), Some(closing)) = (opening, closing) else {
        return Err(lacking("has no opening or no closing balance".into()));
    };
    if std::ptr::eq(*opening, *closing) {
        return Err(lacking("has one balance only".into()));
    }
    let (begins_at, ends_at) = times(node, closing).ok_or_else(|| lacking("has no date".into()))?;
    let balance =
        |node: &Node| balance(node, &currency).map_err(|why| lacking(format!("has a wrong balance: {why}")));
    let (opening, closing) = (balance(opening)?, balance(closing)?);
    let page = node.text_at("StmtPgntn/PgNb").or(page).and_then(|page| page.parse().ok()).unwrap_or(1);
    let entries = booked(entries, &currency, ends_at)
        .ok_or_else(|| lacking(format!("has an entry that is not of {currency}")))?;
    let sum = entries.iter().fold(opening, |sum: i128, entry| sum.saturating_add(entry.amount));
    if sum != closing {
        let what = format!("opens with {opening}, closes with {closing}, and its entries lead to {sum}");
        return Err(WrongStatement { id, what, is_contradiction: is_complete });
    }
    Ok(Statement {
        account,
        currency,
        id,
        page,
        begins_at,
        ends_at,
        opening,
        closing,
        entries,
        said: Vec::new(),
        span: node.span,
    })
}

/// From its period, or else the day of its closing balance.
fn times(node: &Node, closing: &Node) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let at = |path: &str| node.text_at(path).and_then(time);
    if let (Some(from), Some(to)) = (at("FrToDt/FrDtTm"), at("FrToDt/ToDtTm")) {
        return Some((from, to));
    }
    let is_day = closing.text_at("Dt/Dt").is_some();
    let end = closing.text_at("Dt/Dt").or_else(|| closing.text_at("Dt/DtTm")).and_then(time)?;
    let day = end.date_naive().and_time(NaiveTime::MIN).and_utc();
    Some((day, if is_day { day.checked_add_days(Days::new(1))? } else { end }))
}

/// A balance in minor units of a currency. Credits are positive.
fn balance(node: &Node, currency: &str) -> Result<i128, String> {
    let (amount, given) = money(node.sole("Amt")?.ok_or("it has no amount")?)?;
    let minor = minor(&amount, exponent(currency)).filter(|_| given == currency);
    let minor = minor.and_then(|minor| i128::try_from(minor.get()).ok());
    let minor = minor.ok_or_else(|| format!("{amount} {given} is no amount of {currency}"))?;
    match direction(node)?.ok_or("it is neither a credit nor a debit")? {
        Direction::Credit => Ok(minor),
        Direction::Debit => Ok(-minor),
    }
}

/// What is pending or informs only is no entry yet. `None`: one is of another currency.
fn booked(entries: &[Entry<'_>], currency: &str, ends_at: DateTime<Utc>) -> Option<Vec<StatementEntry>> {
    let mut all = Vec::new();
    for entry in entries.iter().filter(|entry| entry.status == EntryStatus::Booked) {
        let amount = entry.signed_amount().filter(|_| entry.amount.1 == currency)?;
        let booked_at = entry.booked_at.unwrap_or(ends_at);
        match &entry.parts {
            Some(parts) => all.extend(parts.iter().zip(&entry.payments).map(|(amount, payment)| {
                entry_of(entry.node, std::slice::from_ref(payment), *amount, booked_at)
            })),
            None => all.push(entry_of(entry.node, &entry.payments, amount, booked_at)),
        }
    }
    Some(all)
}

fn entry_of(entry: &Node, payments: &[&Node], amount: i128, booked_at: DateTime<Utc>) -> StatementEntry {
    const REFS: [&str; 7] =
        ["EndToEndId", "InstrId", "TxId", "UETR", "AcctSvcrRef", "ClrSysRef", "AcctSvcrTxId"];
    let of_payments = payments.iter().flat_map(|payment| {
        let refs = payment.child("Refs");
        let refs = REFS.iter().filter_map(move |name| refs.and_then(|refs| refs.text_at(name)));
        // The text of a payment of ours is its payer's, and names nothing of ours.
        let is_own = end_to_end_id(payment).ok().flatten().is_some_and(is_end_to_end_id);
        let texts = payment.child("RmtInf").filter(|_| !is_own).into_iter();
        let texts = texts.flat_map(|info| info.all("Ustrd"));
        refs.chain(texts.map(|text| text.text.as_str()))
    });
    let of_entry = ["AcctSvcrRef", "NtryRef"].into_iter().filter_map(|name| entry.text_at(name));
    let mut references: Vec<String> = Vec::new();
    for reference in of_payments.chain(of_entry) {
        if reference != "NOTPROVIDED" && !references.iter().any(|known| known == reference) {
            references.push(reference.to_owned());
        }
    }
    let ids: BTreeSet<&str> =
        payments.iter().filter_map(|payment| end_to_end_id(payment).ok().flatten()).collect();
    let mut own = ids.iter().filter(|id| payments.len() == 1 || is_end_to_end_id(id));
    let end_to_end_id = own.next().filter(|_| own.next().is_none()).map(|id| (*id).to_owned());
    StatementEntry { amount, booked_at, end_to_end_id, references }
}

#[cfg(test)]
mod tests;
