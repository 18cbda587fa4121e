//! The projections of the ledger, made again from its entries: kept balances, closings and the fees of closed days.
//!
//! All functions run in one transaction of the caller. Its locks have an order in which no poster can wait for it in a
//! circle: first that of the closings, for which no poster waits; then that of the balances, which a poster takes while it holds
//! nothing that is asked for later; last the head of the audit log, which posters that need it take after the balances.

use sqlx::PgConnection;

use super::closings;
use crate::{StoreError, statement};

/// A value of a projection that the entries contradict.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Change {
    /// The table.
    pub projection: String,
    pub owner_kind: String,
    pub owner: String,
    pub part: String,
    pub asset: String,
    /// The end of a closed period, the day of fees; empty for a balance.
    pub at: String,
    /// The changed value: `amount`, or the number of accounts in a sum, or a sum of fees.
    pub field: String,
    /// As stored. `None`: there was no row.
    pub before: Option<String>,
    /// By the entries. `None`: there is no entry.
    pub after: Option<String>,
}

/// A posting whose entries of an asset do not sum to zero.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Unbalanced {
    pub reference: String,
    pub step: i64,
    pub asset: String,
    pub sum: String,
}

/// A limited balance that is below zero by its entries.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Negative {
    pub owner_kind: String,
    pub owner: String,
    pub part: String,
    pub asset: String,
    pub amount: String,
}

/// Which entries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    All,
    /// Those after the last closing.
    Open,
}

/// Waits until no transaction has moved a balance and not ended, and holds up those that would, until the end of the
/// transaction. Readers are not held up.
pub async fn lock_balances(conn: &mut PgConnection) -> Result<(), StoreError> {
    // Not a weaker mode: a poster that has locked rows and waits to change them would be waited for, and wait.
    statement::execute(conn, "lock table account_balance in exclusive mode", ()).await
}

/// The first posting whose entries do not balance.
pub async fn find_unbalanced(
    conn: &mut PgConnection,
    entries: Entries,
) -> Result<Option<Unbalanced>, StoreError> {
    let sql = "select reference, step, asset, trim_scale(sum(amount))::text as sum from ledger_entry \
         where $1 or recorded_at >= coalesce((select until from ledger_closed), '-infinity') \
         group by reference, step, asset having sum(amount) <> 0 order by reference, step, asset limit 1";
    statement::find(conn, sql, (entries == Entries::All,)).await
}

/// Sums up every closed period again, and returns what differs from before.
pub async fn rebuild_closings(conn: &mut PgConnection) -> Result<Vec<Change>, StoreError> {
    closings::lock(conn).await?;
    for sql in [
        "create temporary table closing_before on commit drop as select * from ledger_closing",
        "create temporary table fee_day_before on commit drop as select * from ledger_fee_day",
    ] {
        statement::execute(conn, sql, ()).await?;
    }
    closings::close_again(conn).await?;
    let sql = "select 'ledger_closing' as projection, owner_kind, owner, part, asset, \
                to_char(until at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') as at, field, before, after \
         from closing_before b full join ledger_closing a using (owner_kind, owner, part, asset, until) \
         cross join lateral (values ('amount', trim_scale(b.amount)::text, trim_scale(a.amount)::text), \
                                    ('accounts', b.accounts::text, a.accounts::text)) as v (field, before, after) \
         where before is distinct from after order by owner_kind, owner, part, asset, until, field desc";
    let mut changes: Vec<Change> = statement::list(conn, sql, ()).await?;
    let sql = "select 'ledger_fee_day' as projection, 'fees' as owner_kind, '' as owner, 'total' as part, asset, \
                day::text as at, reason || ' ' || field as field, before, after \
         from fee_day_before b full join ledger_fee_day a using (day, asset, reason) \
         cross join lateral (values ('earned', trim_scale(b.earned)::text, trim_scale(a.earned)::text), \
                                    ('absorbed', trim_scale(b.absorbed)::text, trim_scale(a.absorbed)::text), \
                                    ('entries', b.entries::text, a.entries::text)) as v (field, before, after) \
         where before is distinct from after order by day, asset, reason, field";
    let fees: Vec<Change> = statement::list(conn, sql, ()).await?;
    changes.extend(fees);
    Ok(changes)
}

/// Adds up what the limited balances are, from the closings that were rebuilt and the entries since, beside what is
/// kept, for the functions below. One statement, so that both are of one moment.
pub async fn sum_up_balances(conn: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "create temporary table balance_after on commit drop as \
         with halves as ( \
             (select distinct on (owner_kind, owner, part, asset) owner_kind, owner, part, asset, amount \
              from ledger_closing where part in ('available', 'reserved') \
              order by owner_kind, owner, part, asset, until desc) \
             union all \
             select owner_kind, owner, part, asset, sum(amount) from ledger_entry \
             where part in ('available', 'reserved') \
               and recorded_at >= coalesce((select until from ledger_closed), '-infinity') \
             group by owner_kind, owner, part, asset), \
         posted as ( \
             select owner_kind, owner, asset, \
                    coalesce(sum(amount) filter (where part = 'available'), 0) as available, \
                    coalesce(sum(amount) filter (where part = 'reserved'), 0) as reserved \
             from halves group by owner_kind, owner, asset) \
         select owner_kind, owner, asset, p.available, p.reserved, \
                b.available as kept_available, b.reserved as kept_reserved \
         from posted p full join account_balance b using (owner_kind, owner, asset)";
    statement::execute(conn, sql, ()).await
}

/// The first limited balance that would be below zero.
pub async fn find_negative(conn: &mut PgConnection) -> Result<Option<Negative>, StoreError> {
    let sql = "select owner_kind, owner, part, asset, trim_scale(amount)::text as amount \
         from balance_after cross join lateral (values ('available', available), ('reserved', reserved)) \
              as v (part, amount) \
         where amount < 0 order by owner_kind, owner, asset, part limit 1";
    statement::find(conn, sql, ()).await
}

/// The kept balances that are not what was summed up.
pub async fn list_changed_balances(conn: &mut PgConnection) -> Result<Vec<Change>, StoreError> {
    let sql = "select 'account_balance' as projection, owner_kind, owner, part, asset, '' as at, 'amount' as field, \
                trim_scale(before)::text as before, trim_scale(after)::text as after \
         from balance_after cross join lateral (values ('available', kept_available, available), \
                                                       ('reserved', kept_reserved, reserved)) as v (part, before, after) \
         where before is distinct from after order by owner_kind, owner, asset, part";
    statement::list(conn, sql, ()).await
}

pub async fn replace_balances(conn: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "delete from account_balance b using balance_after a \
         where a.owner_kind = b.owner_kind and a.owner = b.owner and a.asset = b.asset and a.available is null";
    statement::execute(conn, sql, ()).await?;
    let sql = "insert into account_balance (owner_kind, owner, asset, available, reserved) \
         select owner_kind, owner, asset, available, reserved from balance_after \
         where available is not null and (available, reserved) is distinct from (kept_available, kept_reserved) \
         on conflict on constraint account_balance_pkey do update \
         set available = excluded.available, reserved = excluded.reserved";
    statement::execute(conn, sql, ()).await
}
