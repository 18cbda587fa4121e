//! The ledger against itself: every kept balance is the sum of its entries, and the entries of each asset sum to zero.
//! The database's own checks keep both true, so what is found was written past them.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::closings::{find_closed_until, last_closings};
use crate::{StoreError, statement};

/// Takes the lock of the ledger check for the rest of the transaction. `false`: another check is running.
pub async fn begin(conn: &mut PgConnection) -> Result<bool, StoreError> {
    let sql = "select pg_try_advisory_xact_lock(hashtext('dvp_ledger_check'))";
    statement::load_value(conn, sql, ()).await
}

/// What is compared with the kept balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    Whole,
    /// The last closings, and the entries since. Not seen: entries of closed hours that were changed.
    SinceClosing,
}

/// An account whose kept balance is not the sum of its entries.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Disagreement {
    pub owner_kind: String,
    pub owner: String,
    pub asset: String,
    /// Available and reserved as kept, then as the sums of the entries.
    pub kept: String,
    pub posted: String,
}

/// What is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub disagreements: Vec<Disagreement>,
    /// Assets whose entries do not sum to zero, each with its sum.
    pub unbalanced: Vec<(String, String)>,
}

impl Findings {
    pub fn count(&self) -> usize {
        self.disagreements.len().saturating_add(self.unbalanced.len())
    }
}

/// Compares the sums of `held` with the kept balances: a row for each account, and for each asset one without an owner.
macro_rules! compare {
    ($held:expr) => {
        concat!(
            $held,
            "select owner_kind, owner, asset, \
                    coalesce(b.available, 0) || '/' || coalesce(b.reserved, 0) as kept, \
                    coalesce(l.available, 0)::numeric(39, 0) || '/' || coalesce(l.reserved, 0)::numeric(39, 0) as posted \
             from account_balance b full join \
                  (select owner_kind, owner, asset, \
                          sum(amount) filter (where part = 'available') as available, \
                          sum(amount) filter (where part = 'reserved') as reserved \
                   from held where part in ('available', 'reserved') group by owner_kind, owner, asset) l \
                  using (owner_kind, owner, asset) \
             where coalesce(b.available, 0) <> coalesce(l.available, 0) \
                or coalesce(b.reserved, 0) <> coalesce(l.reserved, 0) \
             union all \
             select '', '', asset, '0', trim_scale(sum(amount))::text from held group by asset having sum(amount) <> 0 \
             order by owner_kind, owner, asset limit 100"
        )
    };
}

/// Compares the kept balances with the entries.
pub async fn compare(conn: &mut PgConnection, compared: Compared) -> Result<Findings, StoreError> {
    let sql = match compared {
        Compared::Whole => compare!(
            "/* the whole ledger */ with held as ( \
                 select owner_kind, ledger_account(owner_kind, owner) as owner, part, asset, sum(amount) as amount \
                 from ledger_entry group by 1, 2, 3, 4) "
        ),
        Compared::SinceClosing => compare!(concat!(
            last_closings!(""),
            ", moved as ( \
                 select owner_kind, ledger_account(owner_kind, owner) as owner, part, asset, sum(amount) as amount \
                 from ledger_entry \
                 where recorded_at >= coalesce((select until from ledger_closed), '-infinity') \
                   and recorded_at >= $1 group by 1, 2, 3, 4), \
             held as ( \
                 select owner_kind, owner, part, asset, coalesce(c.amount, 0) + coalesce(m.amount, 0) as amount \
                 from closed c full join moved m using (owner_kind, owner, part, asset)) "
        )),
    };
    // A time that is known when the statement is planned: of one that is not, a third of all entries are expected to be
    // later, and all are read. Hours that are closed in between are left to the statement's own condition.
    let mut rows = sqlx::query_as(sql).persistent(false);
    if compared == Compared::SinceClosing {
        rows = rows.bind(find_closed_until(conn).await?.unwrap_or(DateTime::UNIX_EPOCH));
    }
    let rows: Vec<Disagreement> = rows.fetch_all(conn).await?;
    let (unbalanced, disagreements) = rows.into_iter().partition(|row| row.owner_kind.is_empty());
    let unbalanced: Vec<Disagreement> = unbalanced;
    let unbalanced = unbalanced.into_iter().map(|row| (row.asset, row.posted)).collect();
    Ok(Findings { disagreements, unbalanced })
}

/// The last comparison of the whole ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct WholeCheck {
    pub whole_at: DateTime<Utc>,
    pub is_a_day_old: bool,
    /// Balances and assets that were wrong.
    pub found: i64,
}

/// `None`: there was none.
pub async fn find_whole(conn: &mut PgConnection) -> Result<Option<WholeCheck>, StoreError> {
    let sql =
        "select whole_at, whole_at < now() - interval '24 hours' as is_a_day_old, found from ledger_check";
    statement::find(conn, sql, ()).await
}

pub async fn record_whole(conn: &mut PgConnection, findings: &Findings) -> Result<(), StoreError> {
    let sql = "insert into ledger_check (whole_at, found) values (now(), $1) on conflict on constraint \
         ledger_check_pkey do update set whole_at = excluded.whole_at, found = excluded.found";
    statement::execute(conn, sql, (i64::try_from(findings.count()).unwrap_or(i64::MAX),)).await
}
