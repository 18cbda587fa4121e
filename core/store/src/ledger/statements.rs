//! What accounts held and what moved them, within a time: for statements and reports.
//!
//! Sums and running balances are the database's, of its own numbers: nothing here rounds. An amount is the text of a
//! number of minor units; accounts of providers' debts and of residuals have up to eighteen decimal places.

use chrono::{DateTime, Utc};
use dvp_domain::ledger::Account;
use sqlx::PgConnection;

use crate::StoreError;

/// Whose entries a statement shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementAccount {
    pub kind: String,
    pub owner: String,
    pub part: String,
}

impl From<&Account> for StatementAccount {
    fn from(account: &Account) -> Self {
        let (kind, owner, part) = account.columns();
        Self { kind: kind.to_owned(), owner, part: part.to_owned() }
    }
}

impl StatementAccount {
    /// Recipients and debts of single orders are read by the order's reference.
    fn reference(&self) -> Option<&str> {
        self.owner.starts_with("exe_").then_some(self.owner.as_str())
    }
}

/// From a time on, and before another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

/// An entry of an account, and the balance after it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StatementEntry {
    pub recorded_at: DateTime<Utc>,
    pub reference: String,
    pub step: i64,
    pub line: i32,
    pub reason: String,
    pub amount: String,
    pub balance: String,
}

/// The assets that an account ever had, in order.
pub async fn list_assets(
    conn: &mut PgConnection,
    account: &StatementAccount,
) -> Result<Vec<String>, StoreError> {
    let sql = match account.reference() {
        None => {
            "select distinct asset from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and owner not like 'exe\\_%' order by asset"
        }
        Some(_) => {
            "select distinct asset from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and reference = $2 order by asset"
        }
    };
    let assets = sqlx::query_scalar(sql).bind(&account.kind).bind(&account.owner).bind(&account.part);
    Ok(assets.fetch_all(conn).await?)
}

/// What an account held before a time.
pub async fn load_balance_before(
    conn: &mut PgConnection,
    account: &StatementAccount,
    asset: &str,
    at: DateTime<Utc>,
) -> Result<String, StoreError> {
    let sql = match account.reference() {
        None => {
            "select trim_scale(coalesce(sum(amount), 0))::text from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and recorded_at < $5 \
               and owner not like 'exe\\_%'"
        }
        Some(_) => {
            "select trim_scale(coalesce(sum(amount), 0))::text from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and recorded_at < $5 \
               and reference = $2"
        }
    };
    let sum = sqlx::query_scalar(sql).bind(&account.kind).bind(&account.owner).bind(&account.part);
    Ok(sum.bind(asset).bind(at).fetch_one(conn).await?)
}

/// A page of an account's entries within a time, after an entry and the balance it left.
pub async fn list_entries(
    conn: &mut PgConnection,
    account: &StatementAccount,
    asset: &str,
    range: TimeRange,
    (after, balance): (Option<&StatementEntry>, &str),
    limit: i64,
) -> Result<Vec<StatementEntry>, StoreError> {
    let sql = match account.reference() {
        None => {
            "select recorded_at, reference, step, line, reason, trim_scale(amount)::text as amount, \
                    trim_scale($10::numeric + sum(amount) over (order by recorded_at, reference, step, line))::text \
                    as balance \
             from (select recorded_at, reference, step, line, reason, amount from ledger_entry \
                   where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 \
                     and recorded_at >= $5 and recorded_at < $6 \
                     and (recorded_at, reference, step, line) > ($5, $7, $8, $9) \
                     and owner not like 'exe\\_%' \
                   order by recorded_at, reference, step, line limit $11) page \
             order by recorded_at, reference, step, line"
        }
        Some(_) => {
            "select recorded_at, reference, step, line, reason, trim_scale(amount)::text as amount, \
                    trim_scale($10::numeric + sum(amount) over (order by recorded_at, reference, step, line))::text \
                    as balance \
             from (select recorded_at, reference, step, line, reason, amount from ledger_entry \
                   where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 \
                     and recorded_at >= $5 and recorded_at < $6 \
                     and (recorded_at, reference, step, line) > ($5, $7, $8, $9) \
                     and reference = $2 \
                   order by recorded_at, reference, step, line limit $11) page \
             order by recorded_at, reference, step, line"
        }
    };
    let entries = sqlx::query_as(sql)
        .bind(&account.kind)
        .bind(&account.owner)
        .bind(&account.part)
        .bind(asset)
        .bind(after.map_or(range.from, |after| after.recorded_at))
        .bind(range.to)
        .bind(after.map_or("", |after| after.reference.as_str()))
        .bind(after.map_or(0, |after| after.step))
        .bind(after.map_or(0, |after| after.line))
        .bind(balance)
        .bind(limit);
    Ok(entries.fetch_all(conn).await?)
}

/// What fees of an asset came to on a day (UTC), by reason.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FeeSum {
    pub day: chrono::NaiveDate,
    pub asset: String,
    pub reason: String,
    /// What the account of fees gained, less what it lost.
    pub earned: String,
    /// What the house bore instead of the customer.
    pub absorbed: String,
    pub entries: i64,
}

/// Fees by day, asset and reason, within a time.
pub async fn list_fees(conn: &mut PgConnection, range: TimeRange) -> Result<Vec<FeeSum>, StoreError> {
    let sums = sqlx::query_as(
        "select (recorded_at at time zone 'UTC')::date as day, asset, reason, \
                trim_scale(coalesce(sum(amount) filter (where owner_kind = 'fees'), 0))::text as earned, \
                trim_scale(coalesce(sum(-amount) filter (where owner_kind = 'house'), 0))::text as absorbed, \
                count(*) as entries \
         from ledger_entry \
         where recorded_at >= $1 and recorded_at < $2 and owner not like 'exe\\_%' \
           and ((owner_kind = 'fees' and owner = '') \
                or (owner_kind = 'house' and owner = '' and part = 'total' and reason = 'settle')) \
         group by 1, 2, 3 order by 1, 2, 3",
    );
    Ok(sums.bind(range.from).bind(range.to).fetch_all(conn).await?)
}

/// An account's balance at a time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BalanceAt {
    pub owner_kind: String,
    pub owner: String,
    pub part: String,
    pub asset: String,
    pub amount: String,
    /// Accounts of single orders that are summed up here; 1 for every other.
    pub accounts: i64,
}

/// Every account's balance before a time. Recipients and debts of single orders are summed up as `recipients` and
/// `executions`. Reads the whole ledger up to that time.
pub async fn list_balances_before(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<Vec<BalanceAt>, StoreError> {
    let sums = sqlx::query_as(
        "select owner_kind, owner, part, asset, trim_scale(sum(amount))::text as amount, count(*) as accounts \
         from (select owner_kind, case when owner not like 'exe\\_%' then owner \
                                       when owner_kind = 'debt' then 'executions' else 'recipients' end as owner, \
                      part, asset, sum(amount) as amount \
               from ledger_entry where recorded_at < $1 \
               group by owner_kind, ledger_entry.owner, part, asset having sum(amount) <> 0) each \
         group by 1, 2, 3, 4 having sum(amount) <> 0 order by asset, owner_kind, owner, part",
    );
    Ok(sums.bind(at).fetch_all(conn).await?)
}
