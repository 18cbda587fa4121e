//! Balances and entries of accounts within a time range, for statements and reports.
//!
//! The database computes sums and running balances exactly; nothing here rounds. An amount is the text of a number of
//! minor units; accounts of providers' debts and of residuals have up to eighteen decimal places.
//!
//! How many entries an account has within a range depends on the account and the range, and so does the index to read:
//! these statements are planned for each use (`persistent(false)`), and not once for every account. The few entries of a
//! single order are compared by an expression of their time, as those of [closings] are.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use futures_util::Stream;
use sqlx::PgConnection;

pub use super::StatementAccount;
use super::closings;
use crate::StoreError;

/// From a time on, and before another.
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
        // A wallet has no closing of its own. The index leads from one asset of an account to the next.
        None => {
            "with recursive had (asset) as ( \
                 (select asset from ledger_entry \
                  where owner_kind = $1 and owner = $2 and owner not like 'exe\\_%' order by asset limit 1) \
                 union all \
                 select (select l.asset from ledger_entry l \
                         where l.owner_kind = $1 and l.owner = $2 and l.owner not like 'exe\\_%' \
                           and l.asset > had.asset order by l.asset limit 1) \
                 from had where had.asset is not null) \
             select asset from ledger_closing where owner_kind = $1 and owner = $2 and part = $3 \
             union select asset from had \
             where exists (select from ledger_entry l \
                           where l.owner_kind = $1 and l.owner = $2 and l.part = $3 and l.asset = had.asset \
                             and l.owner not like 'exe\\_%' \
                             and l.recorded_at >= (select case when ledger_account($1, $2) <> $2 then '-infinity' \
                                 else coalesce((select until from ledger_closed), '-infinity') end)) \
             order by asset"
        }
        Some(_) => {
            "select distinct asset from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and reference = $2 order by asset"
        }
    };
    let assets = sqlx::query_scalar(sql).bind(&account.kind).bind(&account.owner).bind(&account.part);
    Ok(assets.persistent(false).fetch_all(conn).await?)
}

/// The balance of an account before a time.
pub async fn load_balance_before(
    conn: &mut PgConnection,
    account: &StatementAccount,
    asset: &str,
    at: DateTime<Utc>,
) -> Result<String, StoreError> {
    if account.reference().is_none() {
        return closings::load_balance_before(conn, account, asset, at).await;
    }
    let sum = sqlx::query_scalar(
        "select trim_scale(coalesce(sum(amount), 0))::text from ledger_entry \
         where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and reference = $2 \
           and recorded_at + interval '0 seconds' < $5",
    );
    let sum = sum.bind(&account.kind).bind(&account.owner).bind(&account.part);
    Ok(sum.bind(asset).bind(at).persistent(false).fetch_one(conn).await?)
}

/// The place of an entry among an account's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPlace {
    pub recorded_at: DateTime<Utc>,
    pub reference: String,
    pub step: i64,
    pub line: i32,
}

/// The balance after an entry: the balance at the beginning of its hour, and the entries from there up to this one.
pub async fn load_balance_after(
    conn: &mut PgConnection,
    account: &StatementAccount,
    asset: &str,
    place: &EntryPlace,
) -> Result<String, StoreError> {
    let from = place.recorded_at.duration_trunc(TimeDelta::hours(1)).unwrap_or(place.recorded_at);
    let opening = load_balance_before(conn, account, asset, from).await?;
    let sql = match account.reference() {
        None => {
            "select trim_scale($5::numeric + coalesce(sum(amount), 0))::text from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and recorded_at >= $6 \
               and (recorded_at, reference, step, line) <= ($7, $8, $9, $10) and owner not like 'exe\\_%'"
        }
        Some(_) => {
            "select trim_scale($5::numeric + coalesce(sum(amount), 0))::text from ledger_entry \
             where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and recorded_at + interval '0 seconds' >= $6 \
               and (recorded_at, reference, step, line) <= ($7, $8, $9, $10) and reference = $2"
        }
    };
    let sum = sqlx::query_scalar(sql)
        .bind(&account.kind)
        .bind(&account.owner)
        .bind(&account.part)
        .bind(asset)
        .bind(opening)
        .bind(from)
        .bind(place.recorded_at)
        .bind(&place.reference)
        .bind(place.step)
        .bind(place.line)
        .persistent(false);
    Ok(sum.fetch_one(conn).await?)
}

/// A page of an account's entries within a time range, after a given entry and its balance.
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
                     and recorded_at + interval '0 seconds' >= $5 \
                     and recorded_at + interval '0 seconds' < $6 \
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
        .bind(limit)
        .persistent(false);
    Ok(entries.fetch_all(conn).await?)
}

/// An entry of the whole ledger.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct JournalEntry {
    pub recorded_at: DateTime<Utc>,
    pub reference: String,
    pub step: i64,
    pub reason: String,
    pub owner_kind: String,
    pub owner: String,
    pub part: String,
    pub asset: String,
    pub amount: String,
}

/// All entries within a time range, posting by posting, as the database gives them.
pub fn stream_journal(
    conn: &mut PgConnection,
    range: TimeRange,
) -> impl Stream<Item = sqlx::Result<JournalEntry>> {
    let entries = sqlx::query_as(
        "select recorded_at, reference, step, reason, owner_kind, owner, part, asset, trim_scale(amount)::text as amount \
         from ledger_entry where recorded_at >= $1 and recorded_at < $2 \
         order by recorded_at, reference, step, line",
    );
    entries.bind(range.from).bind(range.to).persistent(false).fetch(conn)
}

/// The sum of an asset's fees on a day (UTC), by reason.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FeeSum {
    pub day: chrono::NaiveDate,
    pub asset: String,
    pub reason: String,
    /// The gains of the account of fees less its losses.
    pub earned: String,
    /// The fees that the house bore instead of the customer, and those of its bank.
    pub absorbed: String,
    pub entries: i64,
}

/// Fees by day, asset and reason, within a time range. What is closed has sums by day; of what is not, and of parts of a
/// day at the range's ends, the entries are added up, asset by asset, as their index has them.
pub async fn list_fees(conn: &mut PgConnection, range: TimeRange) -> Result<Vec<FeeSum>, StoreError> {
    let sums = sqlx::query_as(
        "with recursive had (kind, asset) as ( \
             select k.kind, (select l.asset from ledger_entry l \
                             where l.owner_kind = k.kind and l.owner = '' and l.owner not like 'exe\\_%' \
                             order by l.asset limit 1) \
             from (values ('fees'), ('house')) k (kind) \
             union all \
             select had.kind, (select l.asset from ledger_entry l \
                               where l.owner_kind = had.kind and l.owner = '' and l.owner not like 'exe\\_%' \
                                 and l.asset > had.asset order by l.asset limit 1) \
             from had where had.asset is not null), \
         begins as ( \
             select case when date_trunc('day', $1, 'UTC') = $1 then $1 \
                         else date_trunc('day', $1, 'UTC') + interval '24 hours' end as at), \
         whole as ( \
             select at as since, greatest(at, case when $2 >= c.until then c.until \
                                                   else date_trunc('day', $2, 'UTC') end) as until \
             from begins, ledger_closed c \
             union all \
             select at, at from begins where not exists (select from ledger_closed)), \
         parts as ( \
             select $1 as since, least(w.since, $2) as until from whole w \
             union all select w.until, $2 from whole w), \
         sums as ( \
             select day, asset, reason, earned, absorbed, entries from ledger_fee_day, whole w \
             where day >= (w.since at time zone 'UTC')::date and day < w.until at time zone 'UTC' \
             union all \
             select (e.recorded_at at time zone 'UTC')::date, h.asset, e.reason, \
                    case h.kind when 'fees' then e.amount else 0 end, \
                    case h.kind when 'house' then -e.amount else 0 end, 1 \
             from parts p cross join had h cross join lateral ( \
                 select recorded_at, part, reason, amount from ledger_entry l \
                 where l.owner_kind = h.kind and l.owner = '' and l.asset = h.asset and l.owner not like 'exe\\_%' \
                   and l.recorded_at >= p.since and l.recorded_at < p.until offset 0) e \
             where h.kind = 'fees' or (e.part = 'total' and e.reason in ('settle', 'charge'))) \
         select day, asset, reason, trim_scale(sum(earned))::text as earned, \
                trim_scale(sum(absorbed))::text as absorbed, sum(entries)::int8 as entries \
         from sums group by 1, 2, 3 order by 1, 2, 3",
    );
    Ok(sums.bind(range.from).bind(range.to).persistent(false).fetch_all(conn).await?)
}
