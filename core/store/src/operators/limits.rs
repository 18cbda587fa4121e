//! Limits of orders and their use: read, locked and counted with every batch of orders.
//!
//! The sums of a day are counters, locked while orders are decided. The sums of open orders are lists of changes
//! (`open_change`): a batch appends the amounts that it opens and ends, without waiting for other batches; only batches
//! under a limit of open orders are serialized, by the limit's row. One process merges the changes of a sum
//! ([`merge_open`]).

use chrono::{DateTime, NaiveDate, Utc};
use dvp_domain::limit::{LimitKey, LimitScope, Limits, Period};
use dvp_domain::money::Minor;
use sqlx::PgConnection;

use crate::{StoreError, known, statement};

/// A limit as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LimitRow {
    pub scope: String,
    pub target: String,
    pub asset: String,
    pub period: String,
    pub amount: String,
    /// Accepted today.
    pub used: String,
    /// Accepted and not ended.
    pub open: String,
    pub approval: String,
    pub set_at: DateTime<Utc>,
}

/// A key, and the amount of a limit or of its use.
type AmountRow = (String, String, String, String, String);

fn key(scope: &str, target: String, asset: String) -> Result<LimitKey, StoreError> {
    Ok(LimitKey { scope: known("order_limit", scope, LimitScope::parse)?, target, asset })
}

fn amount(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("order_limit", error))
}

/// The limits in force that apply to a partner or a pair of `targets`, a provider, a rail, a chain, or everything.
/// Daily limits have the amount accepted on `day`, limits of open orders the open amount; until the transaction ends,
/// no other one accepts orders under them.
pub async fn load_and_lock(
    conn: &mut PgConnection,
    day: NaiveDate,
    targets: &[&str],
) -> Result<Limits, StoreError> {
    let sql = "select scope, target, asset, period, amount::text from order_limit \
         where amount is not null and (scope not in ('partner', 'pair') or target = any($1))";
    let rows: Vec<AmountRow> = statement::list(conn, sql, (targets,)).await?;
    let rows = rows.into_iter().map(|(scope, target, asset, period, limit)| {
        let period = known("order_limit", &period, Period::parse)?;
        Ok((key(&scope, target, asset)?, period, amount(&limit)?))
    });
    let mut limits: Limits = rows.collect::<Result<Vec<_>, StoreError>>()?.into_iter().collect();
    let keys: Vec<LimitKey> = limits.keys(Period::Day).cloned().collect();
    if !keys.is_empty() {
        limits.set_used(lock(conn, day, &keys).await?);
    }
    let keys: Vec<LimitKey> = limits.keys(Period::Open).cloned().collect();
    if !keys.is_empty() {
        lock_open(conn, &keys).await?;
        // A separate statement: it sees what was committed while this transaction waited for its turn.
        limits.set_open(sum_open(conn, &keys).await?);
    }
    Ok(limits)
}

/// Takes the locks of these limits of open orders, in the order of their keys.
async fn lock_open(conn: &mut PgConnection, keys: &[LimitKey]) -> Result<(), StoreError> {
    let (scopes, targets, assets) = columns(keys.iter());
    let sql = "select from order_limit where period = 'open' \
           and (scope, target, asset) in (select * from unnest($1::text[], $2::text[], $3::text[])) \
         order by scope, target, asset for no key update";
    statement::execute(conn, sql, (scopes, targets, assets)).await
}

async fn sum_open(conn: &mut PgConnection, keys: &[LimitKey]) -> Result<Vec<(LimitKey, Minor)>, StoreError> {
    let (scopes, targets, assets) = columns(keys.iter());
    let sql = "select scope, target, asset, least(sum(amount), \
         340282366920938463463374607431768211455)::numeric(39, 0)::text from open_change \
         where (scope, target, asset) in (select * from unnest($1::text[], $2::text[], $3::text[])) \
         group by scope, target, asset";
    let rows: Vec<(String, String, String, String)> =
        statement::list(conn, sql, (scopes, targets, assets)).await?;
    let rows = rows.into_iter();
    rows.map(|(scope, target, asset, open)| Ok((key(&scope, target, asset)?, amount(&open)?))).collect()
}

/// Merges the changes of sums that have several, at most `limit` sums. Returns the number of rows removed.
pub async fn merge_open(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let sql = "with several as (select scope, target, asset from open_change group by 1, 2, 3 having count(*) > 1 \
         limit $1), old as (delete from open_change c using several s \
                 where (c.scope, c.target, c.asset) = (s.scope, s.target, s.asset) \
                 returning c.scope, c.target, c.asset, c.amount), \
         merged as (insert into open_change (scope, target, asset, amount) \
                    select scope, target, asset, sum(amount) from old group by 1, 2, 3 having sum(amount) <> 0 returning 1) \
         select (select count(*) from old) - (select count(*) from merged)";
    let fewer: i64 = statement::load_value(conn, sql, (limit,)).await?;
    Ok(fewer.unsigned_abs())
}

/// Locks the sums, in the order of their keys.
async fn lock(
    conn: &mut PgConnection,
    day: NaiveDate,
    keys: &[LimitKey],
) -> Result<Vec<(LimitKey, Minor)>, StoreError> {
    let (scopes, targets, assets) = columns(keys.iter());
    let sql = "insert into limit_usage (scope, target, asset, day, amount) \
         select s, t, a, $1, 0 from unnest($2::text[], $3::text[], $4::text[]) as v (s, t, a) order by s, t, a \
         on conflict on constraint limit_usage_pkey do nothing";
    statement::execute(conn, sql, (day, &scopes, &targets, &assets)).await?;
    let sql = "select scope, target, asset, least(amount, 340282366920938463463374607431768211455)::numeric(39, \
         0)::text from limit_usage where day = $1 \
           and (scope, target, asset) in (select * from unnest($2::text[], $3::text[], $4::text[])) \
         order by scope, target, asset for update";
    let rows: Vec<(String, String, String, String)> =
        statement::list(conn, sql, (day, scopes, targets, assets)).await?;
    let rows = rows.into_iter();
    rows.map(|(scope, target, asset, used)| Ok((key(&scope, target, asset)?, amount(&used)?))).collect()
}

pub(crate) fn columns<'a>(
    keys: impl Iterator<Item = &'a LimitKey>,
) -> (Vec<&'static str>, Vec<&'a str>, Vec<&'a str>) {
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for LimitKey { scope, target, asset } in keys {
        columns.0.push(scope.as_str());
        columns.1.push(target.as_str());
        columns.2.push(asset.as_str());
    }
    columns
}

/// Sets or removes a limit, as two operators decided. The time is the database's.
pub async fn set(
    conn: &mut PgConnection,
    key: &LimitKey,
    period: Period,
    amount: Option<Minor>,
    approval: &str,
) -> Result<(), StoreError> {
    let sql = "insert into order_limit (scope, target, asset, period, amount, approval) \
         values ($1, $2, $3, $4, $5::numeric, $6) on conflict on constraint order_limit_pkey do update \
         set amount = excluded.amount, approval = excluded.approval, set_at = clock_timestamp()";
    let parameters = (
        key.scope.as_str(),
        &key.target,
        &key.asset,
        period.as_str(),
        amount.map(|amount| amount.to_string()),
        approval,
    );
    statement::execute(conn, sql, parameters).await
}

/// The limits in force, with what was accepted on the current UTC day by the database's clock.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<LimitRow>, StoreError> {
    let sql = "select l.scope, l.target, l.asset, l.period, l.amount::text as amount, coalesce(u.amount, 0)::text \
                as used, (select coalesce(sum(c.amount), 0)::text from open_change c \
                 where (c.scope, c.target, c.asset) = (l.scope, l.target, l.asset)) as open, \
                l.approval, l.set_at \
         from order_limit l left join limit_usage u \
           on (u.scope, u.target, u.asset) = (l.scope, l.target, l.asset) and u.day = (now() at time zone 'UTC')::date \
         where l.amount is not null order by l.scope, l.target, l.asset, l.period";
    statement::list(conn, sql, ()).await
}
