//! Closings: what each account held at the end of each hour, in UTC, and the fees of each day so far.
//!
//! A posting belongs to the hour in which its transaction began. A closed hour takes no more postings, so its closings
//! are final; `migrations/0009_ledger.sql` describes how a time is closed. Recipients and debts of single orders, and
//! wallets outside, are one account each, which counts how many of them hold anything.
//!
//! Kept by `core/tests/it/statements.rs::an_hour_is_closed_once_nobody_can_post_to_it_any_more`.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use sqlx::PgConnection;

use super::StatementAccount;
use crate::{StoreError, statement};

/// Transactions end within ten minutes: an hour is closed that long after its end at the earliest.
const MARGIN_SECS: f64 = 900.0;

/// Until when the ledger is closed: no entry of an earlier time is added any more.
pub async fn find_closed_until(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, StoreError> {
    statement::find_value(conn, "select until from ledger_closed", ()).await
}

/// Announces the hours that have ended, unless some are announced and not closed yet: up to the end of the day that has
/// the next posting. Hours without postings are closed with the others. Not within a transaction: the announcement is
/// committed before its time is noted.
pub async fn announce(conn: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "with open as (select (select until from ledger_closed) as since, \
                              date_trunc('hour', now() - make_interval(secs => $1), 'UTC') as ended), \
              first as (select min(e.recorded_at) as at from ledger_entry e \
                        where (select since is null or since < ended from open) \
                          and e.recorded_at >= coalesce((select since from open), '-infinity')), \
              next as (select coalesce(open.since, date_trunc('hour', first.at, 'UTC')) as until, \
                              least(date_trunc('day', first.at, 'UTC') + interval '24 hours', open.ended) as announced \
                       from open, first) \
         insert into ledger_closed as c (until, announced) \
         select until, announced from next where announced > until \
         on conflict on constraint ledger_closed_pkey do update \
         set announced = excluded.announced, announced_at = null where c.announced = c.until";
    statement::execute(conn, sql, (MARGIN_SECS,)).await?;
    // Later than the announcement's commit: who began before may not have seen it.
    let sql = "update ledger_closed set announced_at = pg_snapshot_xmax(pg_current_snapshot()) \
         where announced > until and announced_at is null";
    statement::execute(conn, sql, ()).await
}

/// What an account of a sum held before a time, as a scalar of `$of` (owner_kind, owner, part, asset): an order's by the
/// order's reference, a wallet's by its owner. Null for every account that is no part of a sum. An order's few entries
/// are compared by an expression of their time, which no index has: the index of all times would be read beside theirs.
macro_rules! held_before {
    ($of:literal, $at:literal) => {
        concat!(
            "case when ",
            $of,
            ".owner like 'exe\\_%' then \
                 (select coalesce(sum(e.amount), 0) from ledger_entry e \
                  where e.reference = ",
            $of,
            ".owner and e.owner = ",
            $of,
            ".owner \
                    and e.owner_kind = ",
            $of,
            ".owner_kind and e.part = ",
            $of,
            ".part and e.asset = ",
            $of,
            ".asset \
                    and e.recorded_at + interval '0 seconds' < ",
            $at,
            ") \
             when ledger_account(",
            $of,
            ".owner_kind, ",
            $of,
            ".owner) <> ",
            $of,
            ".owner then \
                 (select coalesce(sum(e.amount), 0) from ledger_entry e \
                  where e.owner not like 'exe\\_%' and e.owner = ",
            $of,
            ".owner \
                    and e.owner_kind = ",
            $of,
            ".owner_kind and e.part = ",
            $of,
            ".part and e.asset = ",
            $of,
            ".asset \
                    and e.recorded_at < ",
            $at,
            ") end"
        )
    };
}

/// Sums up the announced hours, once nobody can post to them any more. Returns their end. `None`: none are announced, or
/// a transaction that may post to them has not ended.
pub async fn close(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, StoreError> {
    let sql = concat!(
        "with span as ( \
             select until, announced from ledger_closed \
             where announced > until and pg_snapshot_xmin(pg_current_snapshot()) >= announced_at for update), \
         moved as ( \
             select e.owner_kind, e.owner, e.part, e.asset, span.until as since, \
                    date_trunc('hour', e.recorded_at, 'UTC') + interval '1 hour' as until, sum(e.amount) as amount \
             from span join ledger_entry e on e.recorded_at >= span.until and e.recorded_at < span.announced \
             group by 1, 2, 3, 4, 5, 6), \
         held as ( \
             select m.*, h.held + sum(m.amount) over hours as after \
             from moved m cross join lateral (select ",
        held_before!("m", "m.since"),
        " as held offset 0) h \
             window hours as (partition by m.owner_kind, m.owner, m.part, m.asset order by m.until)), \
         sums as ( \
             select owner_kind, ledger_account(owner_kind, owner) as owner, part, asset, until, \
                    sum(amount) as amount, sum((after <> 0)::int - (after - amount <> 0)::int) as opened \
             from held group by 1, 2, 3, 4, 5), \
         running as ( \
             select owner_kind, owner, part, asset, until, sum(amount) over hours as amount, \
                    sum(opened) over hours as opened \
             from sums window hours as (partition by owner_kind, owner, part, asset order by until)), \
         closings as ( \
             insert into ledger_closing (owner_kind, owner, part, asset, until, amount, accounts) \
             select r.owner_kind, r.owner, r.part, r.asset, r.until, r.amount + coalesce(before.amount, 0), \
                    coalesce(r.opened + coalesce(before.accounts, 0), 1) \
             from running r \
             left join lateral (select c.amount, c.accounts from ledger_closing c \
                                where c.owner_kind = r.owner_kind and c.owner = r.owner and c.part = r.part \
                                  and c.asset = r.asset and c.until < r.until \
                                order by c.until desc limit 1) before on true), \
         fees as ( \
             insert into ledger_fee_day as d (day, asset, reason, earned, absorbed, entries) \
             select (e.recorded_at at time zone 'UTC')::date, e.asset, e.reason, \
                    coalesce(sum(e.amount) filter (where e.owner_kind = 'fees'), 0), \
                    coalesce(sum(-e.amount) filter (where e.owner_kind = 'house'), 0), count(*) \
             from span join ledger_entry e on e.recorded_at >= span.until and e.recorded_at < span.announced \
             where e.owner not like 'exe\\_%' \
               and ((e.owner_kind = 'fees' and e.owner = '') \
                    or (e.owner_kind = 'house' and e.owner = '' and e.part = 'total' \
                        and e.reason in ('settle', 'charge'))) \
             group by 1, 2, 3 \
             on conflict on constraint ledger_fee_day_pkey do update \
             set earned = d.earned + excluded.earned, absorbed = d.absorbed + excluded.absorbed, \
                 entries = d.entries + excluded.entries) \
         update ledger_closed set until = span.announced, announced_at = null from span returning span.announced",
    );
    statement::find_value(conn, sql, ()).await
}

/// Keeps everybody else from announcing and closing until the end of the transaction. Postings read the announcement and
/// are not held up.
pub async fn lock(conn: &mut PgConnection) -> Result<(), StoreError> {
    statement::execute(conn, "lock table ledger_closed in share row exclusive mode", ()).await
}

/// Sums up everything that is closed again, a day at a time as [`close`] does, in a transaction that holds the [`lock`].
/// What is closed and announced stays the same.
pub async fn close_again(conn: &mut PgConnection) -> Result<(), StoreError> {
    statement::execute(conn, "delete from ledger_closing", ()).await?;
    statement::execute(conn, "delete from ledger_fee_day", ()).await?;
    let sql = "select until, announced, announced_at::text from ledger_closed";
    let last: Option<(DateTime<Utc>, DateTime<Utc>, Option<String>)> = statement::find(conn, sql, ()).await?;
    let Some((until, announced, announced_at)) = last else { return Ok(()) };
    let first = sqlx::query_scalar(
        "select date_trunc('day', min(recorded_at), 'UTC') from ledger_entry where recorded_at < $1",
    );
    let first: Option<DateTime<Utc>> = first.bind(until).fetch_one(&mut *conn).await?;
    let mut since = first.unwrap_or(until);
    while since < until {
        // Nobody can post to what was closed: no transaction has to be waited for.
        let sql = "update ledger_closed set until = $1, announced = least($1 + interval '24 hours', $2), \
             announced_at = '0' returning announced";
        since = statement::load_value(conn, sql, (since, until)).await?;
        close(conn).await?;
    }
    let sql = "update ledger_closed set until = $1, announced = $2, announced_at = $3::text::xid8";
    statement::execute(conn, sql, (until, announced, announced_at)).await
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BalanceAt {
    pub owner_kind: String,
    pub owner: String,
    pub part: String,
    pub asset: String,
    pub amount: String,
    /// The number of accounts in this sum that hold anything; 1 for an account that is no sum.
    pub accounts: i64,
}

/// The beginning of a statement: the last closing of every account, as the subquery `closed`.
macro_rules! last_closings {
    ($among:literal) => {
        concat!(
            "with recursive known as ( \
                 (select owner_kind, owner, part, asset from ledger_closing order by 1, 2, 3, 4 limit 1) \
                 union all \
                 select next.* from known k cross join lateral ( \
                     select c.owner_kind, c.owner, c.part, c.asset from ledger_closing c \
                     where (c.owner_kind, c.owner, c.part, c.asset) > (k.owner_kind, k.owner, k.part, k.asset) \
                     order by 1, 2, 3, 4 limit 1) next), \
             closed as ( \
                 select k.*, last.amount, last.accounts from known k cross join lateral ( \
                     select c.amount, c.accounts from ledger_closing c \
                     where c.owner_kind = k.owner_kind and c.owner = k.owner and c.part = k.part and c.asset = k.asset ",
            $among,
            " order by c.until desc limit 1) last)"
        )
    };
}
pub(super) use last_closings;

/// Whether an account is part of the exposure, or all accounts are asked for.
macro_rules! is_asked_for {
    ($all:literal) => {
        concat!(
            "(",
            $all,
            " or part in ('reserved', 'claim', 'owed') or owner_kind in ('escrow', 'clearing', 'debt', 'position'))"
        )
    };
}

/// Every account's balance before a time. Recipients, debts and positions of single orders are summed up as `recipients` and
/// `executions`, wallets outside as `wallets`. Reads the last closings and the entries since.
pub async fn list_balances_before(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<Vec<BalanceAt>, StoreError> {
    list_before(conn, at, true).await
}

/// The same of what is reserved, in progress or owed: reserved balances, claims, debts of providers, funds in the escrow
/// and in clearing, debts and positions of orders, and what went to other cells less what came from them. Recipients of single orders
/// are not among them, so that their entries are not looked up.
pub async fn list_exposure_before(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<Vec<BalanceAt>, StoreError> {
    list_before(conn, at, false).await
}

async fn list_before(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
    all: bool,
) -> Result<Vec<BalanceAt>, StoreError> {
    let sums = sqlx::query_as(concat!(
        last_closings!("and c.until <= $2"),
        ", moved as ( \
             select e.owner_kind, e.owner, e.part, e.asset, sum(e.amount) as amount from ledger_entry e \
             where e.recorded_at < $1 and e.recorded_at >= $2 and ",
        is_asked_for!("$3"),
        " group by 1, 2, 3, 4), \
         since as ( \
             select m.owner_kind, ledger_account(m.owner_kind, m.owner) as owner, m.part, m.asset, \
                    sum(m.amount) as amount, sum((h.held + m.amount <> 0)::int - (h.held <> 0)::int) as opened \
             from moved m cross join lateral (select ",
        held_before!("m", "$2"),
        " as held offset 0) h \
             group by 1, 2, 3, 4) \
         select owner_kind, owner, part, asset, \
                trim_scale(coalesce(c.amount, 0) + coalesce(s.amount, 0))::text as amount, \
                case when (owner_kind, owner) in (('external', 'recipients'), ('external', 'wallets'), \
                                                  ('debt', 'executions'), ('position', 'executions')) \
                     then coalesce(c.accounts, 0) + coalesce(s.opened, 0) else 1 end as accounts \
         from closed c full join since s using (owner_kind, owner, part, asset) \
         where coalesce(c.amount, 0) + coalesce(s.amount, 0) <> 0 and ",
        is_asked_for!("$3"),
        " order by asset, owner_kind, owner, part",
    ));
    let since = find_closed_before(conn, at).await?;
    Ok(sums.bind(at).bind(since).bind(all).persistent(false).fetch_all(conn).await?)
}

/// A time up to which every account's entries are in its closings, before a given time: the last closed hour. The
/// beginning of time when nothing is closed.
async fn find_closed_before(conn: &mut PgConnection, at: DateTime<Utc>) -> Result<DateTime<Utc>, StoreError> {
    let Some(until) = find_closed_until(conn).await? else { return Ok(DateTime::UNIX_EPOCH) };
    Ok(until.min(at.duration_trunc(TimeDelta::hours(1)).unwrap_or(DateTime::UNIX_EPOCH)))
}

/// What an account held before a time: its last closing, and its entries since. A single order or wallet has no closing
/// of its own.
pub async fn load_balance_before(
    conn: &mut PgConnection,
    account: &StatementAccount,
    asset: &str,
    at: DateTime<Utc>,
) -> Result<String, StoreError> {
    let sum = sqlx::query_scalar(
        "with last as (select until, amount from ledger_closing \
                       where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and until <= $5 \
                       order by until desc limit 1) \
         select trim_scale(coalesce((select amount from last), 0) + coalesce(sum(amount), 0))::text \
         from ledger_entry \
         where owner_kind = $1 and owner = $2 and part = $3 and asset = $4 and recorded_at < $5 \
           and recorded_at >= coalesce((select until from last), '-infinity') and owner not like 'exe\\_%'",
    );
    let sum = sum.bind(&account.kind).bind(&account.owner).bind(&account.part).bind(asset).bind(at);
    Ok(sum.persistent(false).fetch_one(conn).await?)
}

/// What the ledger has outside in a currency, as the bank's balance: the sum of what partners, providers, recipients and
/// others outside gave, less what they were given.
pub async fn load_bank_balance(conn: &mut PgConnection, currency: &str) -> Result<String, StoreError> {
    let sql = "with recursive known (owner) as ( \
             (select owner from ledger_closing where owner_kind = 'external' order by owner limit 1) \
             union all \
             select (select c.owner from ledger_closing c \
                     where c.owner_kind = 'external' and c.owner > known.owner order by c.owner limit 1) \
             from known where known.owner is not null), \
         last as ( \
             select c.amount from known cross join lateral ( \
                 select amount from ledger_closing \
                 where owner_kind = 'external' and owner = known.owner and part = 'total' and asset = $1 \
                 order by until desc limit 1) c \
             where known.owner not in ('network', 'wallets')) \
         select (-(coalesce((select sum(amount) from last), 0) + coalesce(sum(amount), 0)))::numeric(39, 0)::text \
         from ledger_entry \
         where owner_kind = 'external' and owner <> 'network' and owner not like '0x%' and asset = $1 \
           and recorded_at >= coalesce((select until from ledger_closed), '-infinity')";
    statement::load_value(conn, sql, (currency,)).await
}
