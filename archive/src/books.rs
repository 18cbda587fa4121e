//! Receipts and statements from the archive's files, and whether a day's files agree with each other and with their
//! neighbours. Every file that is read is compared with its manifest first.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, Days, NaiveDate, Utc};
use dvp_domain::receipt;
use serde_json::Value;

use crate::ArchiveError;
use crate::amount::Amount;
use crate::manifest::{Manifest, days, folder};
use crate::schema::{EVENTS, OPENINGS, ORDERS, POSTINGS, RECEIPTS};
use crate::table::{Cell, Table, read};

/// An account and an asset.
type Key = (String, String, String, String);

/// A row with its columns by name.
struct Row<'a> {
    table: Table,
    cells: &'a [Cell],
}

impl Row<'_> {
    fn cell(&self, column: &str) -> Option<&Cell> {
        self.cells.get(self.table.place(column)?)
    }

    fn text(&self, column: &str) -> String {
        match self.cell(column) {
            Some(Cell::Text(Some(text))) => text.clone(),
            Some(Cell::Text(None) | Cell::Number(_)) | None => String::new(),
        }
    }

    fn number(&self, column: &str) -> i64 {
        match self.cell(column) {
            Some(Cell::Number(number)) => *number,
            Some(Cell::Text(_)) | None => 0,
        }
    }

    fn amount(&self, folder: &Path) -> Result<Amount, ArchiveError> {
        let text = self.text("amount");
        Amount::parse(&text).ok_or_else(|| ArchiveError::changed(folder, format_args!("amount {text}")))
    }

    /// The account that is summed up in openings.
    fn key(&self) -> Key {
        let (kind, owner) = (self.text("owner_kind"), self.text("owner"));
        let owner = summed(&kind, &owner).map_or(owner, str::to_owned);
        (kind, owner, self.text("part"), self.text("asset"))
    }
}

/// The sum that an account is a part of, as the ledger's closings have it.
fn summed(kind: &str, owner: &str) -> Option<&'static str> {
    match (kind, owner) {
        ("debt" | "position", owner) if owner.starts_with("exe_") => Some("executions"),
        (_, owner) if owner.starts_with("exe_") => Some("recipients"),
        ("external", owner) if owner.starts_with("0x") => Some("wallets"),
        _ => None,
    }
}

fn add(
    sums: &mut BTreeMap<Key, Amount>,
    key: Key,
    amount: Amount,
    folder: &Path,
) -> Result<(), ArchiveError> {
    let sum = sums.entry(key).or_default();
    *sum = sum.checked_add(amount).ok_or_else(|| ArchiveError::changed(folder, "a sum is too large"))?;
    Ok(())
}

/// Adds up a table's amounts by account.
fn add_up(folder: &Path, table: Table, held: &mut BTreeMap<Key, Amount>) -> Result<(), ArchiveError> {
    read(folder, table, |cells| {
        let row = Row { table, cells: &cells };
        add(held, row.key(), row.amount(folder)?, folder)
    })
    .map(drop)
}

fn openings(folder: &Path) -> Result<BTreeMap<Key, Amount>, ArchiveError> {
    let mut held = BTreeMap::new();
    add_up(folder, OPENINGS, &mut held)?;
    Ok(held)
}

/// What accounts held at the end of a day.
fn closings(folder: &Path) -> Result<BTreeMap<Key, Amount>, ArchiveError> {
    let mut held = openings(folder)?;
    add_up(folder, POSTINGS, &mut held)?;
    held.retain(|_, amount| !amount.is_zero());
    Ok(held)
}

/// Checks a day's files: as many rows as the manifest says, receipts with their hashes, postings that balance.
pub(crate) fn check_day(folder: &Path, manifest: &Manifest) -> Result<(), ArchiveError> {
    let mut balance: BTreeMap<Key, Amount> = BTreeMap::new();
    let mut wrong = None;
    for table in [ORDERS, EVENTS, RECEIPTS, POSTINGS, OPENINGS] {
        let rows = read(folder, table, |cells| {
            let row = Row { table, cells: &cells };
            if table.name == RECEIPTS.name {
                let body: Value = serde_json::from_str(&row.text("body"))
                    .map_err(|error| ArchiveError::changed(folder, error))?;
                if receipt::anchored_hash(&body) != row.text("content_hash") {
                    wrong = Some(format!("the receipt of {} has another hash", row.text("reference")));
                }
            }
            if table.name == POSTINGS.name {
                let step = row.number("step").to_string();
                let key = (row.text("reference"), step, String::new(), row.text("asset"));
                add(&mut balance, key, row.amount(folder)?, folder)?;
            }
            Ok(())
        })?;
        if rows != manifest.rows(table.name) {
            wrong = Some(format!("{} has {rows} rows", table.name));
        }
    }
    if let Some(((reference, ..), _)) = balance.iter().find(|(_, amount)| !amount.is_zero()) {
        wrong = Some(format!("the posting {reference} does not balance"));
    }
    wrong.map_or(Ok(()), |why| Err(ArchiveError::changed(folder, why)))
}

/// A valid archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifiedArchive {
    pub days: usize,
    pub orders: u64,
    pub postings: u64,
    /// Days after which one is missing.
    pub gaps: Vec<NaiveDate>,
}

/// Checks every day, and that each begins with what the one before it ended with.
pub fn verify(archive: &Path) -> Result<VerifiedArchive, ArchiveError> {
    let mut verified = VerifiedArchive::default();
    let mut before: Option<(NaiveDate, BTreeMap<Key, Amount>)> = None;
    for day in days(archive)? {
        let Some(manifest) = Manifest::find(archive, day)? else { continue };
        let folder = folder(archive, day);
        check_day(&folder, &manifest)?;
        if let Some((last, held)) = before {
            if last + Days::new(1) == day {
                let mut opened = openings(&folder)?;
                opened.retain(|_, amount| !amount.is_zero());
                if opened != held {
                    return Err(ArchiveError::changed(
                        &folder,
                        "it does not begin with what the day before ended with",
                    ));
                }
            } else {
                verified.gaps.push(last);
            }
        }
        before = Some((day, closings(&folder)?));
        verified.days = verified.days.saturating_add(1);
        verified.orders = verified.orders.saturating_add(manifest.rows(ORDERS.name));
        verified.postings = verified.postings.saturating_add(manifest.rows(POSTINGS.name));
    }
    Ok(verified)
}

/// The receipt of an order, as it was issued.
pub fn find_receipt(archive: &Path, reference: &str) -> Result<Value, ArchiveError> {
    for day in days(archive)? {
        if Manifest::find(archive, day)?.is_none_or(|manifest| manifest.rows(RECEIPTS.name) == 0) {
            continue;
        }
        let folder = folder(archive, day);
        let mut found = None;
        read(&folder, RECEIPTS, |cells| {
            let row = Row { table: RECEIPTS, cells: &cells };
            if row.text("reference") == reference {
                found = Some((row.text("body"), row.text("content_hash")));
            }
            Ok(())
        })?;
        if let Some((body, content_hash)) = found {
            let body: Value =
                serde_json::from_str(&body).map_err(|error| ArchiveError::changed(&folder, error))?;
            return if receipt::anchored_hash(&body) == content_hash {
                Ok(body)
            } else {
                Err(ArchiveError::changed(
                    &folder,
                    format_args!("the receipt of {reference} has another hash"),
                ))
            };
        }
    }
    Err(ArchiveError::Missing(format!("receipt of {reference}")))
}

/// An account's entry, and the balance after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub recorded_at: DateTime<Utc>,
    pub reference: String,
    pub step: i64,
    pub line: i64,
    pub reason: String,
    pub amount: String,
    pub balance: String,
}

/// A statement of an account: opening balance, entries, closing balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedStatement {
    pub opening: String,
    pub lines: Vec<Line>,
    pub closing: String,
}

/// The account of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    pub kind: &'a str,
    pub owner: &'a str,
    pub part: &'a str,
    pub asset: &'a str,
}

/// The statement of an account from the beginning of a day to the end of another.
pub fn statement(
    archive: &Path,
    of: Of<'_>,
    (first, last): (NaiveDate, NaiveDate),
) -> Result<ArchivedStatement, ArchiveError> {
    if summed(of.kind, of.owner).is_some() {
        return Err(ArchiveError::SummedUp);
    }
    let key: Key = (of.kind.into(), of.owner.into(), of.part.into(), of.asset.into());
    let (mut opening, mut balance, mut lines) = (None, Amount::default(), Vec::new());
    for day in first.iter_days().take_while(|day| *day <= last) {
        Manifest::find(archive, day)?.ok_or_else(|| ArchiveError::Missing(format!("day {day}")))?;
        let folder = folder(archive, day);
        let opened = openings(&folder)?.remove(&key).unwrap_or_default();
        if opening.is_some() && opened != balance {
            return Err(ArchiveError::changed(
                &folder,
                "it does not begin with what the day before ended with",
            ));
        }
        opening.get_or_insert(opened);
        balance = opened;
        let mut of_day = Vec::new();
        read(&folder, POSTINGS, |cells| {
            let row = Row { table: POSTINGS, cells: &cells };
            if row.key() == key {
                let at = row.number("recorded_at");
                of_day.push((
                    at,
                    row.text("reference"),
                    row.number("step"),
                    row.number("line"),
                    row.text("reason"),
                    row.amount(&folder)?,
                ));
            }
            Ok(())
        })?;
        of_day.sort_by(|a, b| (a.0, &a.1, a.2, a.3).cmp(&(b.0, &b.1, b.2, b.3)));
        for (at, reference, step, line, reason, amount) in of_day {
            let sum = balance.checked_add(amount);
            balance = sum.ok_or_else(|| ArchiveError::changed(&folder, "a sum is too large"))?;
            let recorded_at = DateTime::from_timestamp_micros(at);
            let recorded_at = recorded_at.ok_or_else(|| ArchiveError::changed(&folder, "a time"))?;
            let (amount, balance) = (amount.to_string(), balance.to_string());
            lines.push(Line { recorded_at, reference, step, line, reason, amount, balance });
        }
    }
    let opening = opening.unwrap_or_default().to_string();
    Ok(ArchivedStatement { opening, lines, closing: balance.to_string() })
}
