//! Chain facts as the engine consumes them: each once, in turn.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::chain::ChainFact;
use dvp_domain::text::{TEXT_MAX, clean};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{StoreError, statement};

#[derive(Debug, Clone)]
pub struct OpenFact {
    pub id: i64,
    /// Its position in the order of delivery.
    pub turn: i64,
    pub chain_id: i64,
    pub entity: Vec<u8>,
    /// The fact, or why it cannot be decoded.
    pub fact: Result<ChainFact, String>,
    /// Consecutive attempts to apply it that could not be written.
    pub unwritten: u32,
    pub block_time: Option<DateTime<Utc>>,
    /// `0x` and 64 hex digits; empty for a fact that has no transaction.
    pub tx_hash: String,
}

/// Claims open facts after the turn `after` for a worker, in the order of turns. A postponed fact holds back the later
/// facts of its entity, and so does one that another worker has; a fact at the payout gate is not open yet, and one that
/// came too early not before its settlement has changed. A worker's own facts are claimed again.
pub async fn claim(
    conn: &mut PgConnection,
    worker: Uuid,
    claim: Duration,
    after: i64,
    limit: i64,
) -> Result<Vec<OpenFact>, StoreError> {
    type Row = (i64, i64, i64, Vec<u8>, Value, i32, Option<DateTime<Utc>>, Option<Vec<u8>>);
    let sql = "update chain_fact f set claimed_by = $1, claimed_until = now() + make_interval(secs => $2) \
         from (select id from chain_fact fact \
               where consumed_at is null and retracted_at is null and gate is null and turn > $3 \
                 and (claimed_by = $1 or claimed_until is null or claimed_until < now()) \
                 and (early_at is null or early_at is distinct from \
                      (select e.version from execution e \
                       where e.reference = (select reference from chain_command c where c.entity = fact.entity limit 1))) \
                 and not exists (select from chain_fact earlier \
                                 where earlier.entity = fact.entity and earlier.turn <= fact.turn \
                                   and earlier.unwritten > 0 and earlier.retry_at > now() \
                                   and earlier.consumed_at is null and earlier.retracted_at is null) \
                 and not exists (select from chain_fact earlier \
                                 where earlier.entity = fact.entity and earlier.turn < fact.turn \
                                   and earlier.claimed_by <> $1 and earlier.claimed_until >= now() \
                                   and earlier.consumed_at is null and earlier.retracted_at is null) \
               order by turn limit $4 for update skip locked) due \
         where f.id = due.id \
         returning f.id, f.turn, f.chain_id, f.entity, f.payload, f.unwritten, f.block_time, f.tx_hash";
    let mut rows: Vec<Row> = statement::list(conn, sql, (worker, claim.as_secs_f64(), after, limit)).await?;
    rows.sort_by_key(|row| row.1);
    let fact = |(id, turn, chain_id, entity, payload, unwritten, block_time, tx_hash): Row| OpenFact {
        id,
        turn,
        chain_id,
        entity,
        fact: serde_json::from_value(payload).map_err(|error| format!("the fact cannot be read: {error}")),
        unwritten: u32::try_from(unwritten).unwrap_or(0),
        block_time,
        tx_hash: tx_hash.map(|hash| format!("0x{}", hex::encode(hash))).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(fact).collect())
}

/// Postpones a fact that could not be applied, and stores the reason.
pub async fn put_off(conn: &mut PgConnection, id: i64, wait: Duration, why: &str) -> Result<(), StoreError> {
    let sql = "update chain_fact set unwritten = unwritten + 1, failing_since = coalesce(failing_since, now()), \
                retry_at = now() + make_interval(secs => $2), last_error = $3 \
         where id = $1 and consumed_at is null";
    statement::execute(conn, sql, (id, wait.as_secs_f64(), clean(why, TEXT_MAX))).await
}

/// Whether a fact is still open, and no earlier fact of its entity is that the settlement may take in this version.
pub async fn is_next(conn: &mut PgConnection, id: i64, version: i64) -> Result<bool, StoreError> {
    let sql = "select exists ( \
             select from chain_fact fact \
             where id = $1 and consumed_at is null and retracted_at is null and gate is null \
               and not exists (select from chain_fact earlier \
                               where earlier.entity = fact.entity and earlier.turn < fact.turn \
                                 and earlier.consumed_at is null and earlier.retracted_at is null \
                                 and earlier.early_at is distinct from $2 \
                                 and earlier.gate is null))";
    let next = statement::load_value(conn, sql, (id, version)).await?;
    Ok(next)
}

/// Keeps a fact that its settlement cannot take in this version and may take later. It is claimed again when the
/// settlement has changed.
pub async fn keep(conn: &mut PgConnection, id: i64, version: i64) -> Result<(), StoreError> {
    let sql = "update chain_fact set early_at = $2 where id = $1 and consumed_at is null";
    statement::execute(conn, sql, (id, version)).await
}

/// Whether facts of an entity wait to be offered to its settlement, or are kept for it.
pub async fn has_open(conn: &mut PgConnection, entity: &[u8]) -> Result<bool, StoreError> {
    let sql = "select exists (select from chain_fact where entity = $1 and consumed_at is null \
         and retracted_at is null)";
    statement::load_value(conn, sql, (entity,)).await
}

/// Sets a fact aside that differs from its command. It is not applied to its settlement; reconciliation reports it.
/// `false`: the fact was consumed before.
pub async fn set_aside(conn: &mut PgConnection, id: i64, differs: &str) -> Result<bool, StoreError> {
    let sql = "update chain_fact set consumed_at = now(), differs = $2 where id = $1 and consumed_at is null";
    Ok(statement::affected(conn, sql, (id, clean(differs, TEXT_MAX))).await? == 1)
}

/// Marks facts as consumed. For a lock or a fill that was retracted while its settlement applied it, the fact of its
/// loss is inserted here: the indexer inserts it for consumed facts only. It gets the turn of the retracted fact, which
/// precedes all later facts.
pub async fn consume(conn: &mut PgConnection, ids: &[i64]) -> Result<(), StoreError> {
    let sql = "with consumed as ( \
             update chain_fact set consumed_at = now() where id = any($1::int8[]) and consumed_at is null \
             returning chain_id, entity, kind, tx_hash, turn, retracted_at) \
         insert into chain_fact (chain_id, entity, kind, payload, tx_hash, turn) \
         select chain_id, entity, lost.kind, jsonb_build_object('kind', lost.kind), tx_hash, turn \
         from consumed join (values ('filled', 'fill_lost'), ('created', 'lock_lost'), \
                                    ('transferred', 'transfer_lost')) lost (reported, kind) \
              on lost.reported = consumed.kind \
         where retracted_at is not null \
           and (consumed.kind <> 'transferred' or chain_is_gated(chain_id, entity, consumed.kind))";
    statement::execute(conn, sql, (ids,)).await
}
