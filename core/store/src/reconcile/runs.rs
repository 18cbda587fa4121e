//! The stored runs, and their breaks.

use chrono::{DateTime, Utc};
use dvp_domain::reconcile::Break;
use sqlx::{PgConnection, PgTransaction};

use crate::{StoreError, statement};

/// The final block that a run compares with.
#[derive(Debug, Clone)]
pub struct AtBlock {
    pub chain_id: i64,
    pub number: i64,
    pub hash: Vec<u8>,
    /// Unix seconds.
    pub secs: i64,
}

#[derive(Debug, Clone)]
pub struct NewRun {
    /// `None`: the accounts at the bank were compared.
    pub at: Option<AtBlock>,
    /// The number of compared ids, and of those that the contracts were queried about.
    pub subjects: i64,
    pub queries: i64,
    pub started_at: DateTime<Utc>,
    pub breaks: Vec<Break>,
}

/// Stores a run with its breaks. Returns its id. A break that the run before has found too is as old as it was there.
pub async fn insert_run(tx: &mut PgTransaction<'_>, run: &NewRun) -> Result<i64, StoreError> {
    let at = run.at.as_ref();
    let sql = "insert into reconciliation_run (chain_id, block_number, block_hash, block_time, subjects, queries, \
         started_at) values ($1, $2, $3, to_timestamp($4), $5, $6, $7) returning id";
    let parameters = (
        at.map(|at| at.chain_id),
        at.map(|at| at.number),
        at.map(|at| at.hash.as_slice()),
        at.map(|at| at.secs),
        run.subjects,
        run.queries,
        run.started_at,
    );
    let id: i64 = statement::load_value(tx, sql, parameters).await?;
    let breaks = &run.breaks;
    let difference = |found: &Break| found.difference.clone();
    let sql = "insert into reconciliation_break (run_id, ordinal, kind, reference, entity, detail, action, \
                                           account, asset, difference, first_seen_at) \
         select $1, ordinal, kind, reference, entity, detail, action, account, asset, difference::numeric, \
                coalesce((select min(b.first_seen_at) from reconciliation_break b \
                          where b.run_id = (select max(r.id) from reconciliation_run r \
                                            where r.id < $1 and r.chain_id is not distinct from $2) \
                            and b.kind = found.kind and b.reference is not distinct from found.reference \
                            and b.entity is not distinct from found.entity \
                            and b.account is not distinct from found.account \
                            and b.asset is not distinct from found.asset \
                            and (b.detail = found.detail or found.reference is not null or found.entity is not null \
                                 or found.kind = 'balance_differs')), \
                         now()) \
         from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) \
              with ordinality as found (kind, reference, entity, detail, action, account, asset, difference, ordinal)";
    let parameters = (
        id,
        at.map(|at| at.chain_id),
        breaks.iter().map(|found| found.kind.as_str()).collect::<Vec<_>>(),
        breaks.iter().map(|found| found.reference.as_deref()).collect::<Vec<_>>(),
        breaks.iter().map(|found| found.entity.as_deref()).collect::<Vec<_>>(),
        breaks.iter().map(|found| found.detail.as_str()).collect::<Vec<_>>(),
        breaks.iter().map(|found| found.action.as_str()).collect::<Vec<_>>(),
        breaks.iter().map(|found| difference(found).map(|one| one.account)).collect::<Vec<_>>(),
        breaks.iter().map(|found| difference(found).map(|one| one.asset)).collect::<Vec<_>>(),
        breaks.iter().map(|found| difference(found).map(|one| one.minor.to_string())).collect::<Vec<_>>(),
    );
    statement::execute(tx, sql, parameters).await?;
    Ok(id)
}

/// Keeps these breaks of a run open in a later one that could not compare everything, unless it has found them, too.
pub async fn keep_breaks(
    conn: &mut PgConnection,
    from: i64,
    to: i64,
    ordinals: &[i64],
) -> Result<(), StoreError> {
    let sql = "insert into reconciliation_break (run_id, ordinal, kind, reference, entity, detail, action, \
                                           account, asset, difference, first_seen_at) \
         select $2, (select coalesce(max(ordinal), 0) from reconciliation_break where run_id = $2) \
                    + row_number() over (order by b.ordinal), \
                kind, reference, entity, detail, action, account, asset, difference, first_seen_at \
         from reconciliation_break b \
         where b.run_id = $1 and b.ordinal = any($3) \
           and not exists (select from reconciliation_break found \
                           where found.run_id = $2 and found.kind = b.kind \
                             and found.reference is not distinct from b.reference \
                             and found.entity is not distinct from b.entity \
                             and found.account is not distinct from b.account \
                             and found.asset is not distinct from b.asset)";
    statement::execute(conn, sql, (from, to, ordinals)).await
}

/// Deletes all but the last `keep` runs of a chain, or of the bank's accounts.
pub async fn delete_old_runs(
    conn: &mut PgConnection,
    chain_id: Option<i64>,
    keep: i64,
) -> Result<(), StoreError> {
    let sql = "delete from reconciliation_run where chain_id is not distinct from $1 and id not in \
             (select id from reconciliation_run where chain_id is not distinct from $1 order by id desc limit $2)";
    statement::execute(conn, sql, (chain_id, keep)).await
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct KeptRun {
    pub id: i64,
    /// `None`: the accounts at the bank were compared.
    pub chain_id: Option<i64>,
    pub block_number: Option<i64>,
    pub subjects: i64,
    pub queries: i64,
    pub started_at: DateTime<Utc>,
    pub finished_at: DateTime<Utc>,
    pub breaks: i64,
}

/// The last runs of all chains, newest first.
pub async fn list_runs(conn: &mut PgConnection, limit: i64) -> Result<Vec<KeptRun>, StoreError> {
    let sql = "select r.id, r.chain_id, r.block_number, r.subjects, r.queries, r.started_at, r.finished_at, \
                (select count(*) from reconciliation_break b where b.run_id = r.id) as breaks \
         from reconciliation_run r order by r.id desc limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// The newest run of a chain, or of the bank's accounts.
pub async fn find_last_run(
    conn: &mut PgConnection,
    chain_id: Option<i64>,
) -> Result<Option<KeptRun>, StoreError> {
    let sql = "select r.id, r.chain_id, r.block_number, r.subjects, r.queries, r.started_at, r.finished_at, \
                (select count(*) from reconciliation_break b where b.run_id = r.id) as breaks \
         from reconciliation_run r where r.chain_id is not distinct from $1 order by r.id desc limit 1";
    statement::find(conn, sql, (chain_id,)).await
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct KeptBreak {
    pub run_id: i64,
    /// Its place among the run's breaks.
    pub ordinal: i64,
    pub kind: String,
    pub reference: Option<String>,
    pub entity: Option<String>,
    pub detail: String,
    pub action: String,
    pub account: Option<String>,
    pub asset: Option<String>,
    /// Minor units that the account outside has more than the ledger.
    pub difference: Option<String>,
    pub first_seen_at: DateTime<Utc>,
}

/// A run's breaks, in order.
pub async fn list_breaks(conn: &mut PgConnection, run_id: i64) -> Result<Vec<KeptBreak>, StoreError> {
    let sql = "select run_id, ordinal, kind, reference, entity, detail, action, account, asset, difference::text \
                as difference, first_seen_at \
         from reconciliation_break where run_id = $1 order by ordinal";
    statement::list(conn, sql, (run_id,)).await
}

pub async fn find_break(
    conn: &mut PgConnection,
    run_id: i64,
    ordinal: i64,
) -> Result<Option<KeptBreak>, StoreError> {
    let sql = "select run_id, ordinal, kind, reference, entity, detail, action, account, asset, difference::text \
                as difference, first_seen_at \
         from reconciliation_break where run_id = $1 and ordinal = $2";
    statement::find(conn, sql, (run_id, ordinal)).await
}

/// The breaks of the last run of each chain and of the bank, the oldest first.
pub async fn list_open_breaks(conn: &mut PgConnection) -> Result<Vec<KeptBreak>, StoreError> {
    let sql = "select run_id, ordinal, kind, reference, entity, detail, action, account, asset, difference::text \
                as difference, first_seen_at \
         from reconciliation_break where run_id in (select max(id) from reconciliation_run group by chain_id) \
         order by first_seen_at, run_id, ordinal";
    statement::list(conn, sql, ()).await
}
