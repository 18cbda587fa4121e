//! The indexer's cursor, blocks and events.
//!
//! Invariant: the cursor moves only in the transaction that writes the blocks it moves over, and only from the version
//! that the writer read.

use super::{address, bigint, block, bulk, facts, hash, relay, unsigned};
use crate::reconcile::forget_above;
use crate::{StoreError, known, statement};
use alloy::primitives::{Address, B256};
use chrono::{DateTime, Utc};
use dvp_domain::chain::{BlockNumber, ChainFact};
use dvp_domain::names::names;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, PgTransaction, Postgres, Row};
use std::collections::HashMap;

/// The position of the indexer on a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub chain_id: u64,
    pub head_number: BlockNumber,
    pub head_hash: B256,
    pub final_number: BlockNumber,
    /// Facts were published up to this block.
    pub facts_number: BlockNumber,
    pub version: u64,
    /// Set when the chain violated its own finality; from then on the cursor does not move.
    pub halted: Option<Halted>,
}

/// Why a chain is not followed until an operator resumes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halted {
    pub reason: HaltReason,
    /// Text for operators.
    pub detail: String,
}

names! {
    pub enum HaltReason {
        /// A block at or below the final one is no longer canonical.
        FinalBlockChanged = "final_block_changed",
    }
}

/// A block that was read, and the proof that none of its events is missing.
#[derive(Debug, Clone)]
pub struct BlockRow {
    pub number: BlockNumber,
    pub hash: B256,
    pub parent: B256,
    /// Unix seconds.
    pub timestamp: u64,
    pub verified_by: &'static str,
}

/// One event of the service's contracts.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRow {
    pub block_hash: B256,
    pub log_index: u64,
    pub block_number: BlockNumber,
    /// Unix seconds.
    pub timestamp: u64,
    pub tx_hash: B256,
    pub contract: Address,
    pub event: &'static str,
    pub entity: B256,
    pub seq: u64,
    pub fact: Option<serde_json::Value>,
    /// What a deposit of the coin leaves after the event ([`Deposit`](dvp_domain::chain::Deposit)).
    pub deposit: Option<serde_json::Value>,
}

pub async fn find_cursor(conn: &mut PgConnection, chain_id: u64) -> Result<Option<Cursor>, StoreError> {
    let sql = "select head_number, head_hash, final_number, facts_number, version, halted, halted_detail
         from chain_cursor
         where chain_id = $1";
    let row = statement::find_row(conn, sql, (bigint(chain_id),)).await?;
    let Some(row) = row else { return Ok(None) };
    let table = "chain_cursor";
    let reason: Option<&str> = row.try_get("halted")?;
    let detail: Option<String> = row.try_get("halted_detail")?;
    let halted = reason
        .map(|reason| {
            Ok::<_, StoreError>(Halted {
                reason: known(table, reason, HaltReason::parse)?,
                detail: detail.unwrap_or_default(),
            })
        })
        .transpose()?;
    Ok(Some(Cursor {
        chain_id,
        head_number: block(table, row.try_get("head_number")?)?,
        head_hash: hash(table, row.try_get("head_hash")?)?,
        final_number: block(table, row.try_get("final_number")?)?,
        facts_number: block(table, row.try_get("facts_number")?)?,
        version: unsigned(table, row.try_get("version")?)?,
        halted,
    }))
}

/// Locks the cursor until the end of the transaction: the indexer waits with its next blocks.
pub async fn lock_cursor(tx: &mut PgTransaction<'_>, chain_id: u64) -> Result<Option<Cursor>, StoreError> {
    statement::execute(tx, "select from chain_cursor where chain_id = $1 for update", (bigint(chain_id),))
        .await?;
    find_cursor(tx, chain_id).await
}

/// Of events that are not stored as canonical, those that contradict what is stored: their place or their contract's
/// number belongs to another event, or their block to another branch.
pub async fn list_contradicted(
    conn: &mut PgConnection,
    chain_id: u64,
    logs: &[LogRow],
) -> Result<Vec<(BlockNumber, u64)>, StoreError> {
    let contradicted = of_logs(
        "select block_number, log_index
         from unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::text[], $8::bytea[],
                     $9::bigint[], $10::jsonb[])
              as new (block_hash, log_index, block_number, tx_hash, contract, event, entity, seq, fact)
         where exists (select from chain_log l
                       where l.chain_id = $1 and l.contract = new.contract and l.seq = new.seq and l.canonical)
            or exists (select from chain_log l
                       where l.chain_id = $1 and l.block_number = new.block_number
                         and case when l.canonical
                                  then l.block_hash <> new.block_hash or l.log_index = new.log_index
                                  else l.block_hash = new.block_hash and l.log_index = new.log_index
                                       and (l.tx_hash, l.contract, l.event, l.entity, l.seq, l.fact)
                                           is distinct from
                                           (new.tx_hash, new.contract, new.event, new.entity, new.seq, new.fact) end)
            or exists (select from chain_block b
                       where b.chain_id = $1 and b.number = new.block_number and b.canonical
                         and b.hash <> new.block_hash)",
        chain_id,
        logs,
    );
    let rows = contradicted.fetch_all(conn).await?;
    rows.iter()
        .map(|row| {
            let table = "chain_log";
            Ok((block(table, row.try_get("block_number")?)?, unsigned(table, row.try_get("log_index")?)?))
        })
        .collect()
}

pub async fn list_halted(conn: &mut PgConnection) -> Result<Vec<i64>, StoreError> {
    statement::list_values(conn, "select chain_id from chain_cursor where halted is not null", ()).await
}

/// Whether a chain has events of an entity. A deposit is none: it is the user's until it is claimed.
pub async fn has_events(conn: &mut PgConnection, chain_id: i64, entity: &[u8]) -> Result<bool, StoreError> {
    let sql = "select exists (select from chain_log \
                        where chain_id + 0 = $1 and entity = $2 and canonical and fact is not null)";
    statement::load_value(conn, sql, (chain_id, entity)).await
}

/// The events of an entity on all chains, in the order of each chain's, with the times of their blocks.
pub async fn list_events(
    conn: &mut PgConnection,
    entity: &[u8],
) -> Result<Vec<(ChainFact, DateTime<Utc>)>, StoreError> {
    let sql = "select fact, block_time from chain_log where entity = $1 and canonical and fact is not null \
         order by chain_id, block_number, log_index";
    let rows: Vec<(Json<ChainFact>, DateTime<Utc>)> = statement::list(conn, sql, (entity,)).await?;
    Ok(rows.into_iter().map(|(Json(fact), at)| (fact, at)).collect())
}

/// Whether the facts of a chain are there up to a time, or of all blocks that its node has shown since. A chain that
/// nobody follows has none.
pub async fn has_facts_since(
    conn: &mut PgConnection,
    chain_id: i64,
    since: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let is_behind = sqlx::query_scalar(
        "select exists (
             select from chain_cursor cursor
             join chain_block block on block.chain_id = cursor.chain_id and block.number = cursor.facts_number
                                       and block.canonical
             left join chain_status status on status.chain_id = cursor.chain_id
             where cursor.chain_id = $1 and block.block_time < $2
               and not coalesce(status.updated_at >= $2 and cursor.facts_number >= status.node_head, false))",
    );
    let is_behind: bool = is_behind.bind(chain_id).bind(since).fetch_one(conn).await?;
    Ok(!is_behind)
}

/// Inserts the first cursor of a chain, at `block`; an existing one stays.
pub async fn insert_cursor(
    tx: &mut PgTransaction<'_>,
    cursor: &Cursor,
    block: &BlockRow,
) -> Result<(), StoreError> {
    let sql = "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number)
         values ($1, $2, $3, $4, $5)
         on conflict on constraint chain_cursor_pkey do nothing";
    let parameters = (
        bigint(cursor.chain_id),
        bigint(cursor.head_number.0),
        cursor.head_hash.as_slice(),
        bigint(cursor.final_number.0),
        bigint(cursor.facts_number.0),
    );
    statement::execute(tx, sql, parameters).await?;
    insert_blocks(tx, cursor.chain_id, std::slice::from_ref(block)).await
}

/// Halts the chain at its cursor; [`StoreError::Stale`] when the cursor moved concurrently.
pub async fn halt(conn: &mut PgConnection, cursor: &Cursor, halted: &Halted) -> Result<(), StoreError> {
    let sql = "update chain_cursor
         set halted = $3, halted_detail = $4, halted_at = clock_timestamp(), version = version + 1
         where chain_id = $1 and version = $2 and halted is null";
    let parameters =
        (bigint(cursor.chain_id), bigint(cursor.version), halted.reason.as_str(), &halted.detail);
    let done = statement::affected(conn, sql, parameters).await?;
    if done == 1 { Ok(()) } else { Err(StoreError::Stale { what: "chain_cursor" }) }
}

/// Records an operator's decision to resume a halted chain: the indexer goes back to the newest block it shares with
/// the chain above `shared_with`, the final block from now on. With `halted_at` only a halt of that time is ended.
/// `false`: it was not halted, or not then, or has no such block.
pub async fn resume(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    shared_with: BlockNumber,
    halted_at: Option<DateTime<Utc>>,
) -> Result<bool, StoreError> {
    let sql = "update chain_cursor
         set halted = null, halted_detail = null, halted_at = null,
             final_number = least(final_number, $2), version = version + 1
         where chain_id = $1 and halted is not null and ($3::timestamptz is null or halted_at = $3)
           and exists (select from chain_block where chain_id = $1 and number = $2 and canonical)";
    let done = statement::affected(tx, sql, (bigint(chain_id), bigint(shared_with.0), halted_at)).await?;
    if done == 0 {
        return Ok(false);
    }
    relay::reopen_above(tx, chain_id, shared_with).await?;
    Ok(true)
}

/// Moves the cursor from the version `from` to `to`; [`StoreError::Stale`] when it moved concurrently.
async fn move_cursor(conn: &mut PgConnection, from: &Cursor, to: &Cursor) -> Result<(), StoreError> {
    let sql = "update chain_cursor
         set head_number = $3, head_hash = $4, final_number = $5, facts_number = $6,
             version = version + 1, updated_at = now()
         where chain_id = $1 and version = $2 and halted is null";
    let parameters = (
        bigint(from.chain_id),
        bigint(from.version),
        bigint(to.head_number.0),
        to.head_hash.as_slice(),
        bigint(to.final_number.0),
        bigint(to.facts_number.0),
    );
    let moved = statement::affected(conn, sql, parameters).await?;
    if moved == 1 { Ok(()) } else { Err(StoreError::Stale { what: "chain_cursor" }) }
}

/// Writes blocks with their events and moves the cursor over them to `to`. An orphaned block that is included again
/// becomes canonical.
pub async fn record_blocks(
    tx: &mut PgTransaction<'_>,
    from: &Cursor,
    to: &Cursor,
    blocks: &[BlockRow],
    logs: &[LogRow],
) -> Result<(), StoreError> {
    move_cursor(tx, from, to).await?;
    insert_blocks(tx, from.chain_id, blocks).await?;
    if logs.is_empty() {
        return Ok(());
    }
    if let Some(lowest) = logs.iter().map(|log| log.block_number).min().filter(|at| *at <= from.head_number) {
        forget_above(tx, bigint(from.chain_id), bigint(lowest.0).saturating_sub(1)).await?;
    }
    let several = blocks.len() > 1 && logs.iter().all(|log| log.block_number > from.head_number);
    if several && !has_orphans_above(tx, from).await? {
        return bulk::copy_logs(tx, from.chain_id, logs).await;
    }
    insert_logs(tx, from.chain_id, logs).await
}

/// Commits without waiting for the disk (`synchronous_commit`), for rows that lead to no report: a crash loses the last
/// such transactions with their cursor, and their blocks are read again. A later commit that waits for the disk makes
/// them durable, too.
pub async fn commit_without_waiting(tx: &mut PgTransaction<'_>) -> Result<(), StoreError> {
    statement::execute(tx, "set local synchronous_commit = off", ()).await
}

/// Whether orphaned events exist above the cursor, where no other rows can be. They may become canonical again.
async fn has_orphans_above(conn: &mut PgConnection, cursor: &Cursor) -> Result<bool, StoreError> {
    let sql = "select exists (select from chain_log where chain_id = $1 and block_number > $2)";
    let there =
        statement::load_value(conn, sql, (bigint(cursor.chain_id), bigint(cursor.head_number.0))).await?;
    Ok(there)
}

async fn insert_blocks(
    conn: &mut PgConnection,
    chain_id: u64,
    blocks: &[BlockRow],
) -> Result<(), StoreError> {
    let sql = "insert into chain_block (chain_id, hash, number, parent, block_time, verified_by)
         select $1, hash, number, parent, to_timestamp(seconds), verified_by
         from unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[])
              as block (hash, number, parent, seconds, verified_by)
         on conflict on constraint chain_block_pkey do update set canonical = true";
    let parameters = (
        bigint(chain_id),
        blocks.iter().map(|block| block.hash.to_vec()).collect::<Vec<_>>(),
        blocks.iter().map(|block| bigint(block.number.0)).collect::<Vec<_>>(),
        blocks.iter().map(|block| block.parent.to_vec()).collect::<Vec<_>>(),
        blocks.iter().map(|block| bigint(block.timestamp)).collect::<Vec<_>>(),
        blocks.iter().map(|block| block.verified_by.to_owned()).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

async fn insert_logs(conn: &mut PgConnection, chain_id: u64, logs: &[LogRow]) -> Result<(), StoreError> {
    let insert = of_logs(
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract,
                                event, entity, seq, fact, deposit)
         select $1, block_hash, log_index, block_number, to_timestamp(seconds), tx_hash, contract, event, entity,
                seq, fact, deposit
         from unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::text[], $8::bytea[],
                     $9::bigint[], $10::jsonb[], $11::bigint[], $12::jsonb[])
              as log (block_hash, log_index, block_number, tx_hash, contract, event, entity, seq, fact, seconds,
                      deposit)
         on conflict on constraint chain_log_pkey do update set canonical = true",
        chain_id,
        logs,
    );
    let times = logs.iter().map(|log| bigint(log.timestamp)).collect::<Vec<_>>();
    let deposits = logs.iter().map(|log| log.deposit.clone()).collect::<Vec<_>>();
    insert.bind(times).bind(deposits).execute(conn).await?;
    Ok(())
}

/// A statement whose first parameters are a chain and the columns of its events.
fn of_logs(sql: &'static str, chain_id: u64, logs: &[LogRow]) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(sql)
        .bind(bigint(chain_id))
        .bind(logs.iter().map(|log| log.block_hash.to_vec()).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| bigint(log.log_index)).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| bigint(log.block_number.0)).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| log.tx_hash.to_vec()).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| log.contract.to_vec()).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| log.event.to_owned()).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| log.entity.to_vec()).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| bigint(log.seq)).collect::<Vec<_>>())
        .bind(logs.iter().map(|log| log.fact.clone()).collect::<Vec<_>>())
}

/// The last number of each contract's canonical events; contracts without events are missing.
pub async fn last_seqs(
    conn: &mut PgConnection,
    chain_id: u64,
    contracts: &[Address],
) -> Result<HashMap<Address, u64>, StoreError> {
    let sql = "select requested.contract, newest.seq
         from unnest($2::bytea[]) as requested (contract)
         cross join lateral (
             select seq from chain_log log
             where log.chain_id = $1 and log.contract = requested.contract and log.canonical
             order by seq desc
             limit 1
         ) newest";
    let parameters =
        (bigint(chain_id), contracts.iter().map(|contract| contract.to_vec()).collect::<Vec<_>>());
    let rows = statement::list_rows(conn, sql, parameters).await?;
    rows.iter()
        .map(|row| {
            let contract = address("chain_log", row.try_get("contract")?)?;
            Ok((contract, unsigned("chain_log", row.try_get("seq")?)?))
        })
        .collect()
}

/// The block of a contract's last canonical event.
pub async fn find_last_block(
    conn: &mut PgConnection,
    chain_id: u64,
    contract: Address,
) -> Result<Option<BlockNumber>, StoreError> {
    let sql = "select block_number from chain_log
         where chain_id = $1 and contract = $2 and canonical
         order by seq desc
         limit 1";
    let row = statement::find_row(conn, sql, (bigint(chain_id), contract.as_slice())).await?;
    row.map(|row| block("chain_log", row.try_get("block_number")?)).transpose()
}

/// The hash of the canonical block with a number.
pub async fn find_known_hash(
    conn: &mut PgConnection,
    chain_id: u64,
    number: BlockNumber,
) -> Result<Option<B256>, StoreError> {
    let sql = "select hash from chain_block where chain_id = $1 and number = $2 and canonical";
    let row = statement::find_row(conn, sql, (bigint(chain_id), bigint(number.0))).await?;
    row.map(|row| hash("chain_block", row.try_get("hash")?)).transpose()
}

/// The canonical blocks below a number, newest first, at most `limit`.
pub async fn known_hashes_below(
    conn: &mut PgConnection,
    chain_id: u64,
    number: BlockNumber,
    limit: i64,
) -> Result<Vec<(BlockNumber, B256)>, StoreError> {
    let sql = "select number, hash
         from chain_block
         where chain_id = $1 and number < $2 and canonical
         order by number desc
         limit $3";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id), bigint(number.0), limit)).await?;
    rows.iter()
        .map(|row| {
            let number = block("chain_block", row.try_get("number")?)?;
            Ok((number, hash("chain_block", row.try_get("hash")?)?))
        })
        .collect()
}

/// Goes back to a block that is still canonical: later blocks and events become orphans, their facts are retracted
/// (consumed ones are marked as retracted), consumed locks are reported as lost, and commands completed by an orphaned
/// event are open again. Returns the number of orphaned blocks and events.
pub async fn unwind_to(
    tx: &mut PgTransaction<'_>,
    from: &Cursor,
    number: BlockNumber,
    block_hash: B256,
) -> Result<(u64, u64), StoreError> {
    let to = Cursor {
        head_number: number,
        head_hash: block_hash,
        facts_number: from.facts_number.min(number),
        ..from.clone()
    };
    move_cursor(tx, from, &to).await?;
    let chain_id = bigint(from.chain_id);
    relay::reopen_above(tx, from.chain_id, number).await?;
    facts::retract_above(tx, from.chain_id, number).await?;
    forget_above(tx, chain_id, bigint(number.0)).await?;
    let sql =
        "update chain_log set canonical = false where chain_id = $1 and canonical and block_number > $2";
    let logs = statement::affected(tx, sql, (chain_id, bigint(number.0))).await?;
    let sql = "update chain_block set canonical = false where chain_id = $1 and canonical and number > $2";
    let blocks = statement::affected(tx, sql, (chain_id, bigint(number.0))).await?;
    Ok((blocks, logs))
}

/// Deletes canonical blocks below a number; events are kept.
pub async fn prune_blocks(
    conn: &mut PgConnection,
    chain_id: u64,
    below: BlockNumber,
) -> Result<(), StoreError> {
    let sql = "delete from chain_block where chain_id = $1 and canonical and number < $2";
    statement::execute(conn, sql, (bigint(chain_id), bigint(below.0))).await
}
