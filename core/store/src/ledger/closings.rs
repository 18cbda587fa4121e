//! Closings: what each account held at the end of each day, in UTC, and the fees of the day.
//!
//! A posting belongs to the day in which its transaction began. A closed day takes no more postings, so its closings
//! are final; the migration describes how a day is closed. Recipients and debts of single orders, and wallets outside,
//! are one account each, which counts how many of them hold anything.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::statements::StatementAccount;
use crate::StoreError;

/// Transactions end within ten minutes: a day is closed that long after its end at the earliest.
const MARGIN_SECS: f64 = 900.0;

/// Announces the next day with postings that has ended, unless one is announced and not closed yet. Days without postings
/// before it are closed with it. Not within a transaction: the announcement is committed before its time is noted.
pub async fn announce(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query(
        "with open as (select since, coalesce(since + interval '24 hours' + make_interval(secs => $1) <= now(), true) \
                              as is_due from (select (select until from ledger_closed) as since) last), \
              first as (select date_trunc('day', min(e.recorded_at), 'UTC') as day from ledger_entry e \
                        where (select is_due from open) \
                          and e.recorded_at >= coalesce((select since from open), '-infinity')) \
         insert into ledger_closed as c (until, announced) \
         select coalesce(open.since, first.day), first.day + interval '24 hours' from open, first \
         where first.day + interval '24 hours' + make_interval(secs => $1) <= now() \
         on conflict on constraint ledger_closed_pkey do update \
         set announced = excluded.announced, announced_at = null where c.announced = c.until",
    )
    .bind(MARGIN_SECS)
    .execute(&mut *conn)
    .await?;
    // Later than the announcement's commit: who began before may not have seen it.
    sqlx::query(
        "update ledger_closed set announced_at = pg_snapshot_xmax(pg_current_snapshot()) \
         where announced > until and announced_at is null",
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What an account of a sum held before a time, as a scalar of `$of` (owner_kind, owner, part, asset): an order's by the
/// order's reference, a wallet's by its owner. Null for every account that is no part of a sum.
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
                    and e.recorded_at < ",
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

/// Sums up the announced day, once nobody can post to it any more. Returns its end. `None`: no day is announced, or a
/// transaction that may post to it has not ended.
pub async fn close(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, StoreError> {
    let closed = sqlx::query_scalar(concat!(
        "with day as ( \
             select until, announced from ledger_closed \
             where announced > until and pg_snapshot_xmin(pg_current_snapshot()) >= announced_at for update), \
         moved as ( \
             select e.owner_kind, e.owner, e.part, e.asset, day.until as since, day.announced as until, \
                    sum(e.amount) as amount \
             from day join ledger_entry e on e.recorded_at >= day.until and e.recorded_at < day.announced \
             group by 1, 2, 3, 4, 5, 6), \
         sums as ( \
             select m.owner_kind, ledger_account(m.owner_kind, m.owner) as owner, m.part, m.asset, m.until, \
                    sum(m.amount) as amount, sum((h.held + m.amount <> 0)::int - (h.held <> 0)::int) as opened \
             from moved m cross join lateral (select ",
        held_before!("m", "m.since"),
        " as held offset 0) h \
             group by 1, 2, 3, 4, 5), \
         closings as ( \
             insert into ledger_closing (owner_kind, owner, part, asset, until, amount, accounts) \
             select s.owner_kind, s.owner, s.part, s.asset, s.until, s.amount + coalesce(before.amount, 0), \
                    coalesce(s.opened + coalesce(before.accounts, 0), 1) \
             from sums s \
             left join lateral (select c.amount, c.accounts from ledger_closing c \
                                where c.owner_kind = s.owner_kind and c.owner = s.owner and c.part = s.part \
                                  and c.asset = s.asset and c.until < s.until \
                                order by c.until desc limit 1) before on true), \
         fees as ( \
             insert into ledger_fee_day (day, asset, reason, earned, absorbed, entries) \
             select (e.recorded_at at time zone 'UTC')::date, e.asset, e.reason, \
                    coalesce(sum(e.amount) filter (where e.owner_kind = 'fees'), 0), \
                    coalesce(sum(-e.amount) filter (where e.owner_kind = 'house'), 0), count(*) \
             from day join ledger_entry e on e.recorded_at >= day.until and e.recorded_at < day.announced \
             where e.owner not like 'exe\\_%' \
               and ((e.owner_kind = 'fees' and e.owner = '') \
                    or (e.owner_kind = 'house' and e.owner = '' and e.part = 'total' \
                        and e.reason in ('settle', 'charge'))) \
             group by 1, 2, 3) \
         update ledger_closed set until = day.announced, announced_at = null from day returning day.announced",
    ));
    Ok(closed.fetch_optional(conn).await?)
}

/// An account's balance at a time.
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

/// Every account's balance before a time. Recipients and debts of single orders are summed up as `recipients` and
/// `executions`, wallets outside as `wallets`. Reads the last closings and the entries since.
pub async fn list_balances_before(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<Vec<BalanceAt>, StoreError> {
    let sums = sqlx::query_as(concat!(
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
                 where c.owner_kind = k.owner_kind and c.owner = k.owner and c.part = k.part and c.asset = k.asset \
                   and c.until <= $2 order by c.until desc limit 1) last), \
         moved as ( \
             select e.owner_kind, e.owner, e.part, e.asset, sum(e.amount) as amount from ledger_entry e \
             where e.recorded_at < $1 and e.recorded_at >= $2 group by 1, 2, 3, 4), \
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
                                                  ('debt', 'executions')) \
                     then coalesce(c.accounts, 0) + coalesce(s.opened, 0) else 1 end as accounts \
         from closed c full join since s using (owner_kind, owner, part, asset) \
         where coalesce(c.amount, 0) + coalesce(s.amount, 0) <> 0 order by asset, owner_kind, owner, part",
    ));
    let since = find_closed_before(conn, at).await?;
    Ok(sums.bind(at).bind(since).fetch_all(conn).await?)
}

/// The end of the last closed day before a time; the beginning of time when there is none.
async fn find_closed_before(conn: &mut PgConnection, at: DateTime<Utc>) -> Result<DateTime<Utc>, StoreError> {
    let closed: Option<DateTime<Utc>> =
        sqlx::query_scalar("select until from ledger_closed").fetch_optional(conn).await?;
    let midnight = at.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
    Ok(closed.map_or(DateTime::UNIX_EPOCH, |until| until.min(midnight)))
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
    Ok(sum.fetch_one(conn).await?)
}

/// What the ledger has outside in a currency, as the bank's balance: the sum of what partners, providers, recipients and
/// others outside gave, less what they were given.
pub async fn load_bank_balance(conn: &mut PgConnection, currency: &str) -> Result<String, StoreError> {
    let sum = sqlx::query_scalar(
        "with last as (select distinct on (owner) amount from ledger_closing \
                       where owner_kind = 'external' and asset = $1 and owner not in ('network', 'wallets') \
                       order by owner, until desc) \
         select (-(coalesce((select sum(amount) from last), 0) + coalesce(sum(amount), 0)))::numeric(39, 0)::text \
         from ledger_entry \
         where owner_kind = 'external' and owner <> 'network' and owner not like '0x%' and asset = $1 \
           and recorded_at >= coalesce((select until from ledger_closed), '-infinity')",
    );
    Ok(sum.bind(currency).fetch_one(conn).await?)
}
