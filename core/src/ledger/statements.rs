//! Statements of accounts, and reports of fees, balances and exposure, read page by page from the ledger.
//!
//! A statement is one snapshot of the database: its opening balance and its entries add up to its closing balance,
//! whatever is posted concurrently. Times are those of the postings' transactions, in UTC; `to` is exclusive.

pub mod bank;
pub mod csv;

use std::io::Write;

use chrono::{DateTime, Utc};
use dvp_domain::ledger::{Account, Claimant, Owner, Part};
pub use dvp_store::ledger::closings::BalanceAt;
use dvp_store::ledger::closings::{list_balances_before, list_exposure_before};
use dvp_store::ledger::statements as store;
pub use dvp_store::ledger::statements::{
    EntryPlace, FeeSum, JournalEntry, StatementAccount, StatementEntry, TimeRange,
};
use dvp_store::{PgConnection, StoreError};
use futures_util::TryStreamExt as _;
use sqlx::Connection as _;

use crate::engine::reads::SNAPSHOT;

/// The number of entries read at once.
const PAGE: i64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    Opening { balance: &'a str },
    Entry(&'a StatementEntry),
    Closing { balance: &'a str, entries: u64 },
}

/// The account and asset of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heading<'a> {
    /// `kind:owner:part`, as [`account_name`] writes it.
    pub account: &'a str,
    pub asset: &'a str,
}

/// Receives the lines of statements, in order.
pub trait Sink {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> std::io::Result<()>;
}

/// Why a statement was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    #[error("the beginning is not before the end")]
    EmptyRange,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("writing the statement: {0}")]
    Write(#[from] std::io::Error),
}

/// `kind:owner:part`; an account without an owner, and one of a single part, leave these out.
pub fn account_name(kind: &str, owner: &str, part: &str) -> String {
    match (owner, part) {
        ("", "total") => kind.to_owned(),
        ("", part) => format!("{kind}:{part}"),
        (owner, "total") => format!("{kind}:{owner}"),
        (owner, part) => format!("{kind}:{owner}:{part}"),
    }
}

/// The account of a name. `None`: no account has this name.
pub fn parse_account(name: &str) -> Option<StatementAccount> {
    let account = |kind: &str, owner: &str, part: &str| {
        Some(StatementAccount { kind: kind.to_owned(), owner: owner.to_owned(), part: part.to_owned() })
    };
    match name.split_once(':') {
        None => match name {
            "escrow" | "clearing" | "desk" | "fees" | "residual" | "house" => account(name, "", "total"),
            _ => None,
        },
        Some(("house", "claim")) => account("house", "", "claim"),
        Some((kind @ ("external" | "debt" | "position"), owner)) if !owner.is_empty() => {
            account(kind, owner, "total")
        }
        Some((kind @ ("provider" | "partner"), rest)) => {
            let (owner, part) = rest.rsplit_once(':')?;
            let is_known = match part {
                "available" | "reserved" => true,
                "owed" | "claim" => kind == "provider",
                _ => false,
            };
            if is_known && !owner.is_empty() { account(kind, owner, part) } else { None }
        }
        Some(_) => None,
    }
}

/// Every account of an owner.
pub fn accounts_of(owner: &Owner) -> Vec<StatementAccount> {
    let mut accounts = vec![
        Account::Balance(owner.clone(), Part::Available),
        Account::Balance(owner.clone(), Part::Reserved),
    ];
    if let Owner::Provider(id) = owner {
        accounts.extend([Account::Owed(id.clone()), Account::Claim(Claimant::Provider(id.clone()))]);
    }
    accounts.iter().map(StatementAccount::from).collect()
}

/// Reads statements of accounts, one asset after the other. Returns their number.
pub async fn write_statements(
    conn: &mut PgConnection,
    accounts: &[StatementAccount],
    asset: Option<&str>,
    range: TimeRange,
    sink: &mut (impl Sink + Send),
) -> Result<usize, StatementError> {
    if range.from >= range.to {
        return Err(StatementError::EmptyRange);
    }
    let mut tx = conn.begin_with(SNAPSHOT).await.map_err(StoreError::from)?;
    let mut count = 0;
    for account in accounts {
        let name = account_name(&account.kind, &account.owner, &account.part);
        let assets = match asset {
            Some(asset) => vec![asset.to_owned()],
            None => store::list_assets(&mut tx, account).await?,
        };
        for asset in &assets {
            let heading = Heading { account: &name, asset };
            write_one(&mut tx, account, heading, range, sink).await?;
            count += 1;
        }
    }
    tx.rollback().await.map_err(StoreError::from)?;
    Ok(count)
}

async fn write_one(
    conn: &mut PgConnection,
    account: &StatementAccount,
    heading: Heading<'_>,
    range: TimeRange,
    sink: &mut (impl Sink + Send),
) -> Result<(), StatementError> {
    let mut balance = store::load_balance_before(conn, account, heading.asset, range.from).await?;
    sink.line(heading, Line::Opening { balance: &balance })?;
    let (mut entries, mut last): (u64, Option<StatementEntry>) = (0, None);
    loop {
        let after = (last.as_ref(), balance.as_str());
        let page = store::list_entries(conn, account, heading.asset, range, after, PAGE).await?;
        let Some(end) = page.last().cloned() else { break };
        for entry in &page {
            sink.line(heading, Line::Entry(entry))?;
            entries += 1;
        }
        balance.clone_from(&end.balance);
        last = Some(end);
    }
    sink.line(heading, Line::Closing { balance: &balance, entries })?;
    Ok(())
}

/// Writes every posting of a time range as a journal of debits and credits (CSV). Returns the number of its lines.
pub async fn write_journal(
    conn: &mut PgConnection,
    range: TimeRange,
    mut out: impl Write + Send,
    decimals: &csv::Decimals,
) -> Result<u64, StatementError> {
    if range.from >= range.to {
        return Err(StatementError::EmptyRange);
    }
    csv::begin_journal(&mut out)?;
    let (mut count, mut entries) = (0, std::pin::pin!(store::stream_journal(conn, range)));
    while let Some(entry) = entries.try_next().await.map_err(StoreError::from)? {
        csv::write_journal_entry(&mut out, &entry, decimals)?;
        count += 1;
    }
    out.flush()?;
    Ok(count)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementPage {
    /// The balances before and after all entries of the range.
    pub opening: String,
    pub closing: String,
    pub entries: Vec<StatementEntry>,
    /// More entries of the range follow.
    pub has_more: bool,
}

/// A page of an account's statement of one asset: the entries of the range after a given one.
pub async fn read_page(
    conn: &mut PgConnection,
    account: &StatementAccount,
    asset: &str,
    range: TimeRange,
    after: Option<&EntryPlace>,
    limit: usize,
) -> Result<StatementPage, StatementError> {
    if range.from >= range.to {
        return Err(StatementError::EmptyRange);
    }
    let mut tx = conn.begin_with(SNAPSHOT).await.map_err(StoreError::from)?;
    let opening = store::load_balance_before(&mut tx, account, asset, range.from).await?;
    let closing = store::load_balance_before(&mut tx, account, asset, range.to).await?;
    let before = match after {
        Some(place) => {
            let balance = store::load_balance_after(&mut tx, account, asset, place).await?;
            let EntryPlace { recorded_at, reference, step, line } = place.clone();
            let (reason, amount) = (String::new(), String::new());
            Some(StatementEntry { recorded_at, reference, step, line, reason, amount, balance })
        }
        None => None,
    };
    let balance = before.as_ref().map_or(opening.as_str(), |entry| entry.balance.as_str());
    let one_more = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let after = (before.as_ref(), balance);
    let mut entries = store::list_entries(&mut tx, account, asset, range, after, one_more).await?;
    tx.rollback().await.map_err(StoreError::from)?;
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    Ok(StatementPage { opening, closing, entries, has_more })
}

/// The assets that an account ever had, in order.
pub async fn list_assets(
    conn: &mut PgConnection,
    account: &StatementAccount,
) -> Result<Vec<String>, StatementError> {
    Ok(store::list_assets(conn, account).await?)
}

/// Fees within a time range, by day, asset and reason.
pub async fn fees(conn: &mut PgConnection, range: TimeRange) -> Result<Vec<FeeSum>, StatementError> {
    if range.from >= range.to {
        return Err(StatementError::EmptyRange);
    }
    Ok(store::list_fees(conn, range).await?)
}

/// Every account's balance before a time.
pub async fn balances(conn: &mut PgConnection, at: DateTime<Utc>) -> Result<Vec<BalanceAt>, StatementError> {
    Ok(list_balances_before(conn, at).await?)
}

/// Funds that are reserved, in progress or owed at a time: reserved balances, claims, debts of providers, funds in the
/// escrow and in clearing, debts of orders, and what went to other cells less what came from them.
pub async fn exposure(conn: &mut PgConnection, at: DateTime<Utc>) -> Result<Vec<BalanceAt>, StatementError> {
    Ok(list_exposure_before(conn, at).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_name_parses_to_its_account() {
        let partner = Owner::Partner { id: "ptn_1".into(), livemode: true };
        let mut all = accounts_of(&partner);
        all.extend(accounts_of(&Owner::Provider("north".into())));
        let others = [
            Account::Claim(Claimant::House),
            Account::External("provider:north".into()),
            Account::Escrow,
            Account::Clearing,
            Account::Debt("exe_1".into()),
            Account::Fees,
            Account::Residual,
            Account::House,
        ];
        all.extend(others.iter().map(StatementAccount::from));
        for account in all {
            let name = account_name(&account.kind, &account.owner, &account.part);
            assert_eq!(parse_account(&name), Some(account), "{name}");
        }
        for name in
            ["", "purse", "provider", "provider:north", "provider::available", "partner:p:live:owed", "debt:"]
        {
            assert_eq!(parse_account(name), None, "{name}");
        }
    }
}
