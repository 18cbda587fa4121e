//! A statement of account out of camt.053: its balances and its booked entries. Pure.
//!
//! Invariant: the entries of what is returned lead from its opening to its closing balance.

use chrono::{DateTime, Days, NaiveTime, Utc};
use sha2::{Digest as _, Sha256};

use super::schema::exponent;
use super::text::{booked_at, minor, time};
use super::xml::Node;

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
        let Self { account, currency, id, page, begins_at, ends_at, opening, closing, entries } = self;
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
}

/// Reads one `Stmt` of a message that is as the schema has it.
pub fn read(node: &Node) -> Result<Statement, WrongStatement> {
    let id = node.text_at("Id").unwrap_or_default().to_owned();
    let wrong = |what: String| WrongStatement { id: id.clone(), what };
    let account = node.text_at("Acct/Id/IBAN").or_else(|| node.text_at("Acct/Id/Othr/Id"));
    let account = account.ok_or_else(|| wrong("names no account".into()))?.to_owned();
    let balances: Vec<&Node> = node.all("Bal").collect();
    let of_first = || balances.first().and_then(|balance| balance.child("Amt")?.attribute("Ccy"));
    let currency = node.text_at("Acct/Ccy").or_else(of_first);
    let currency = currency.ok_or_else(|| wrong("names no currency".into()))?.to_owned();
    let kind = |balance: &&&Node| balance.text_at("Tp/CdOrPrtry/Cd").unwrap_or_default().to_owned();
    // On a page in the middle the balances are interim ones.
    let opening = balances.iter().find(|one| matches!(kind(one).as_str(), "OPBD" | "PRCD"));
    let opening = opening.or_else(|| balances.iter().find(|one| kind(one) == "ITBD"));
    let closing = balances.iter().find(|one| kind(one) == "CLBD");
    let closing = closing.or_else(|| balances.iter().rev().find(|one| kind(one) == "ITBD"));
    let (Some(opening), Some(closing)) = (opening, closing) else {
        return Err(wrong("has no opening or no closing balance".into()));
    };
    if std::ptr::eq(*opening, *closing) {
        return Err(wrong("has one balance only".into()));
    }
    let amount = |node: &Node| {
        signed(node, &currency).ok_or_else(|| wrong(format!("has an amount that is not of {currency}")))
    };
    let (begins_at, ends_at) = times(node, closing).ok_or_else(|| wrong("has no date".into()))?;
    let statement = Statement {
        opening: amount(opening)?,
        closing: amount(closing)?,
        entries: entries(node, &currency, ends_at)
            .ok_or_else(|| wrong(format!("has an entry that is not of {currency}")))?,
        page: node.text_at("StmtPgntn/PgNb").and_then(|page| page.parse().ok()).unwrap_or(1),
        account,
        currency: currency.clone(),
        id: id.clone(),
        begins_at,
        ends_at,
    };
    let sum = statement.entries.iter().fold(statement.opening, |sum, entry| sum.saturating_add(entry.amount));
    if sum != statement.closing {
        let Statement { opening, closing, .. } = statement;
        return Err(wrong(format!(
            "opens with {opening}, closes with {closing}, and its entries lead to {sum}"
        )));
    }
    Ok(statement)
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

/// An amount with its direction, in minor units of a currency.
fn signed(node: &Node, currency: &str) -> Option<i128> {
    let amount = node.child("Amt")?;
    let minor =
        minor(&amount.text, exponent(currency)).filter(|_| amount.attribute("Ccy") == Some(currency))?;
    let amount = i128::try_from(minor.get()).ok()?;
    Some(if node.text_at("CdtDbtInd") == Some("DBIT") { amount.checked_neg()? } else { amount })
}

/// What is pending or informs only is no entry yet. `None`: one is of another currency.
fn entries(node: &Node, currency: &str, ends_at: DateTime<Utc>) -> Option<Vec<StatementEntry>> {
    let mut all = Vec::new();
    for entry in node.all("Ntry") {
        if entry.text_at("Sts/Cd").or_else(|| entry.text_at("Sts/Prtry")) != Some("BOOK") {
            continue;
        }
        let amount = signed(entry, currency)?;
        let booked_at = booked_at(entry).unwrap_or(ends_at);
        let payments: Vec<&Node> = entry.all("NtryDtls").flat_map(|details| details.all("TxDtls")).collect();
        let parts: Option<Vec<i128>> =
            payments.iter().map(|payment| part(entry, payment, currency)).collect();
        let parts = parts.filter(|parts| parts.len() > 1);
        let parts =
            parts.filter(|parts| parts.iter().fold(0, |sum: i128, one| sum.saturating_add(*one)) == amount);
        match parts {
            Some(parts) => {
                all.extend(parts.into_iter().zip(&payments).map(|(amount, payment)| {
                    entry_of(entry, std::slice::from_ref(payment), amount, booked_at)
                }))
            }
            None => all.push(entry_of(entry, &payments, amount, booked_at)),
        }
    }
    Some(all)
}

/// What one payment of a batch contributes.
fn part(entry: &Node, payment: &Node, currency: &str) -> Option<i128> {
    let direction = payment.text_at("CdtDbtInd").or_else(|| entry.text_at("CdtDbtInd"))?;
    let amount = payment.child("Amt").filter(|amount| amount.attribute("Ccy") == Some(currency))?;
    let amount = i128::try_from(minor(&amount.text, exponent(currency))?.get()).ok()?;
    Some(if direction == "DBIT" { amount.checked_neg()? } else { amount })
}

fn entry_of(entry: &Node, payments: &[&Node], amount: i128, booked_at: DateTime<Utc>) -> StatementEntry {
    const REFS: [&str; 6] = ["EndToEndId", "InstrId", "TxId", "AcctSvcrRef", "ClrSysRef", "AcctSvcrTxId"];
    let of_payments = payments.iter().flat_map(|payment| {
        let refs = payment.child("Refs");
        let refs = REFS.iter().filter_map(move |name| refs.and_then(|refs| refs.text_at(name)));
        let texts = payment.child("RmtInf").into_iter().flat_map(|info| info.all("Ustrd"));
        refs.chain(texts.map(|text| text.text.as_str()))
    });
    let of_entry = ["AcctSvcrRef", "NtryRef"].into_iter().filter_map(|name| entry.text_at(name));
    let mut references: Vec<String> = Vec::new();
    for reference in of_payments.chain(of_entry) {
        if reference != "NOTPROVIDED" && !references.iter().any(|known| known == reference) {
            references.push(reference.to_owned());
        }
    }
    let end_to_end =
        |payment: &&&Node| payment.text_at("Refs/EndToEndId").is_some_and(|id| id != "NOTPROVIDED");
    let end_to_end_id = payments.iter().find(end_to_end).filter(|_| payments.len() == 1);
    let end_to_end_id = end_to_end_id.and_then(|payment| payment.text_at("Refs/EndToEndId"));
    StatementEntry { amount, booked_at, end_to_end_id: end_to_end_id.map(str::to_owned), references }
}

#[cfg(test)]
mod tests;
