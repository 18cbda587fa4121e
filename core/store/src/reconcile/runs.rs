//! The stored runs, and their breaks.

use chrono::{DateTime, Utc};
use dvp_domain::reconcile::Break;
use sqlx::{PgConnection, PgTransaction};

use crate::StoreError;

/// A completed run.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub chain_id: i64,
    pub block_number: i64,
    pub block_hash: Vec<u8>,
    /// Unix seconds.
    pub block_secs: i64,
    /// The number of compared ids, and of those that the contracts were queried about.
    pub subjects: i64,
    pub asked: i64,
    pub started_at: DateTime<Utc>,
    pub breaks: Vec<Break>,
}

/// Stores a run with its breaks. Returns its id.
pub async fn insert_run(tx: &mut PgTransaction<'_>, run: &NewRun) -> Result<i64, StoreError> {
    let (id,): (i64,) = sqlx::query_as(
        "insert into reconciliation_run (chain_id, block_number, block_hash, block_time, subjects, asked, started_at) \
         values ($1, $2, $3, to_timestamp($4), $5, $6, $7) returning id",
    )
    .bind(run.chain_id)
    .bind(run.block_number)
    .bind(&run.block_hash)
    .bind(run.block_secs)
    .bind(run.subjects)
    .bind(run.asked)
    .bind(run.started_at)
    .fetch_one(&mut **tx)
    .await?;
    let breaks = &run.breaks;
    sqlx::query(
        "insert into reconciliation_break (run_id, ordinal, kind, reference, entity, detail, action) \
         select $1, ordinal, kind, reference, entity, detail, action \
         from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) with ordinality \
              as found (kind, reference, entity, detail, action, ordinal)",
    )
    .bind(id)
    .bind(breaks.iter().map(|found| found.kind.as_str()).collect::<Vec<_>>())
    .bind(breaks.iter().map(|found| found.reference.as_deref()).collect::<Vec<_>>())
    .bind(breaks.iter().map(|found| found.entity.as_deref()).collect::<Vec<_>>())
    .bind(breaks.iter().map(|found| found.detail.as_str()).collect::<Vec<_>>())
    .bind(breaks.iter().map(|found| found.action.as_str()).collect::<Vec<_>>())
    .execute(&mut **tx)
    .await?;
    Ok(id)
}

/// Deletes all but the last `keep` runs of a chain.
pub async fn delete_old_runs(conn: &mut PgConnection, chain_id: i64, keep: i64) -> Result<(), StoreError> {
    sqlx::query(
        "delete from reconciliation_run where chain_id = $1 and id not in \
             (select id from reconciliation_run where chain_id = $1 order by id desc limit $2)",
    )
    .bind(chain_id)
    .bind(keep)
    .execute(conn)
    .await?;
    Ok(())
}

/// A stored run.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct KeptRun {
    pub id: i64,
    pub chain_id: i64,
    pub block_number: i64,
    pub subjects: i64,
    pub asked: i64,
    pub started_at: DateTime<Utc>,
    pub finished_at: DateTime<Utc>,
    pub breaks: i64,
}

/// The last runs of all chains, newest first.
pub async fn list_runs(conn: &mut PgConnection, limit: i64) -> Result<Vec<KeptRun>, StoreError> {
    let rows = sqlx::query_as(
        "select r.id, r.chain_id, r.block_number, r.subjects, r.asked, r.started_at, r.finished_at, \
                (select count(*) from reconciliation_break b where b.run_id = r.id) as breaks \
         from reconciliation_run r order by r.id desc limit $1",
    )
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// A chain's newest run.
pub async fn find_last_run(conn: &mut PgConnection, chain_id: i64) -> Result<Option<KeptRun>, StoreError> {
    let row = sqlx::query_as(
        "select r.id, r.chain_id, r.block_number, r.subjects, r.asked, r.started_at, r.finished_at, \
                (select count(*) from reconciliation_break b where b.run_id = r.id) as breaks \
         from reconciliation_run r where r.chain_id = $1 order by r.id desc limit 1",
    )
    .bind(chain_id)
    .fetch_optional(conn)
    .await?;
    Ok(row)
}

/// A run's breaks by kind, reference and entity, as `(kind, reference, entity, detail, action)`.
pub async fn list_breaks(
    conn: &mut PgConnection,
    run_id: i64,
) -> Result<Vec<(String, Option<String>, Option<String>, String, String)>, StoreError> {
    let rows = sqlx::query_as(
        "select kind, reference, entity, detail, action from reconciliation_break \
         where run_id = $1 order by ordinal",
    )
    .bind(run_id)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
