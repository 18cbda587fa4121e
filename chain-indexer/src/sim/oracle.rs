//! The conditions on the rows, checked against the simulated chain.

use super::Broken;
use super::chain::SimChain;
use super::node::Sim;
use crate::gate::Wait;
use alloy::primitives::{Address, B256, U256};
use alloy::rpc::types::Log;
use dvp_store::PgPool;
use dvp_store::chain::open_facts;
use dvp_store::chain::{self as store, Cursor};
use parking_lot::Mutex;
use sqlx::{PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use uuid::Uuid;

/// A canonical event as it must be stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ExpectedLog {
    number: u64,
    log_index: u64,
    block_hash: B256,
    tx_hash: B256,
    contract: Address,
    seq: u64,
}

type EventPosition = (B256, u64);

#[derive(Debug, Default)]
pub(super) struct Consumed {
    /// The positions of the facts' events, by id.
    places: BTreeMap<i64, EventPosition>,
    /// The lock and the fill that the workflow relies on, by entity.
    locks: HashMap<B256, EventPosition>,
    fills: HashMap<B256, EventPosition>,
}

pub(super) async fn cursor(pool: &PgPool, chain_id: u64) -> Result<Option<Cursor>, Broken> {
    let mut conn = pool.acquire().await?;
    Ok(store::find_cursor(&mut conn, chain_id).await?)
}

/// Cursor, canonical blocks and canonical events at one moment: a dropped step may still be committing.
pub(super) struct Snapshot {
    pub(super) cursor: Cursor,
    blocks: Vec<B256>,
    kept: BTreeSet<ExpectedLog>,
}

/// `None` before anything was read.
pub(super) async fn snapshot(pool: &PgPool, chain_id: u64) -> Result<Option<Snapshot>, Broken> {
    let begin = "begin isolation level repeatable read read only";
    let mut tx = pool.begin_with(begin).await?;
    let cursor = store::find_cursor(&mut tx, chain_id).await?;
    let blocks: Vec<Vec<u8>> =
        sqlx::query_scalar("select hash from chain_block where chain_id = $1 and canonical")
            .bind(chain_id.cast_signed())
            .fetch_all(&mut *tx)
            .await?;
    let blocks = blocks.iter().map(|hash| B256::from_slice(hash)).collect();
    let kept = kept(&mut tx, chain_id).await?;
    tx.rollback().await?;
    Ok(cursor.map(|cursor| Snapshot { cursor, blocks, kept }))
}

/// Holds at any moment: the stored rows are those of one branch of the chain, from the beginning, without a gap.
/// `whole`: and they are complete.
pub(super) fn rows_are_of_one_branch(
    sim: &Mutex<Sim>,
    snapshot: &Snapshot,
    whole: bool,
) -> Result<(), Broken> {
    let Snapshot { cursor, blocks, kept } = snapshot;
    let expected = expected(&sim.lock().chain, cursor.head_hash)?;
    blocks_are_of_one_branch(&sim.lock().chain, cursor.head_hash, blocks)?;
    if *kept == expected {
        return Ok(());
    }
    if whole {
        let missing: Vec<_> = expected.difference(kept).take(3).collect();
        let false_ones: Vec<_> = kept.difference(&expected).take(3).collect();
        return Err(
            format!("rows differ from the chain: missing {missing:?}, not there {false_ones:?}").into()
        );
    }
    let mut next: HashMap<Address, u64> = HashMap::new();
    for row in kept {
        if !expected.contains(row) {
            return Err(format!("a row that the chain does not have: {row:?}").into());
        }
        let next = next.entry(row.contract).or_insert(1);
        if row.seq != *next {
            return Err(format!("event {next} of {} is missing before {row:?}", row.contract).into());
        }
        *next += 1;
    }
    Ok(())
}

fn blocks_are_of_one_branch(chain: &SimChain, head: B256, blocks: &[B256]) -> Result<(), Broken> {
    let path = chain.path_to(head).unwrap_or_default();
    let path: HashSet<B256> = path.iter().map(|block| block.head.hash).collect();
    match blocks.iter().find(|hash| !path.contains(*hash)) {
        Some(other) => Err(format!("block {other} is canonical, and not of the branch of {head}").into()),
        None => Ok(()),
    }
}

fn expected(chain: &SimChain, head: B256) -> Result<BTreeSet<ExpectedLog>, Broken> {
    let logs =
        chain.logs_up_to(head).ok_or_else(|| format!("the cursor is at a block that never was: {head}"))?;
    Ok(logs.into_iter().map(keep).collect())
}

fn keep(log: &Log) -> ExpectedLog {
    ExpectedLog {
        number: log.block_number.unwrap_or_default(),
        log_index: log.log_index.unwrap_or_default(),
        block_hash: log.block_hash.unwrap_or_default(),
        tx_hash: log.transaction_hash.unwrap_or_default(),
        contract: log.address(),
        seq: seq(log),
    }
}

/// An independent derivation of the event's number: the last word of its data.
fn seq(log: &Log) -> u64 {
    let data = &log.data().data;
    U256::from_be_slice(&data[data.len().saturating_sub(32)..]).saturating_to()
}

async fn kept(conn: &mut PgConnection, chain_id: u64) -> Result<BTreeSet<ExpectedLog>, Broken> {
    let rows = sqlx::query(
        "select block_number, log_index, block_hash, tx_hash, contract, seq
         from chain_log where chain_id = $1 and canonical",
    )
    .bind(chain_id.cast_signed())
    .fetch_all(conn)
    .await?;
    Ok(rows
        .iter()
        .map(|row| ExpectedLog {
            number: row.get::<i64, _>("block_number").cast_unsigned(),
            log_index: row.get::<i64, _>("log_index").cast_unsigned(),
            block_hash: B256::from_slice(row.get("block_hash")),
            tx_hash: B256::from_slice(row.get("tx_hash")),
            contract: Address::from_slice(row.get("contract")),
            seq: row.get::<i64, _>("seq").cast_unsigned(),
        })
        .collect())
}

/// The cursor's final block is final on the chain.
pub(super) fn final_is_final(chain: &SimChain, cursor: &Cursor) -> Result<(), Broken> {
    let (number, finalized) = (cursor.final_number.0, chain.now().finalized);
    if chain.violated || number < super::chain::DEPLOYED_BLOCK {
        return Ok(());
    }
    if number > finalized {
        return Err(format!("block {number} counts as final, the chain is at {finalized}").into());
    }
    if final_is_gone(chain, cursor) {
        return Err(format!("block {number} counts as final and is not the chain's").into());
    }
    Ok(())
}

/// Whether the cursor's final block is no longer on the chain.
pub(super) fn final_is_gone(chain: &SimChain, cursor: &Cursor) -> bool {
    let path = chain.path_to(cursor.head_hash).unwrap_or_default();
    let ours = path.iter().find(|block| block.head.number == cursor.final_number);
    let now = chain.now();
    let theirs = now.at(cursor.final_number.0);
    ours.map(|block| block.head.hash) != theirs.map(|block| block.head.hash) || ours.is_none()
}

/// Another branch reported the same of the fact's entity after it.
const REPLACED: &str = "exists (
    select from chain_fact other
    where other.chain_id = $1 and other.entity = chain_fact.entity and other.kind = chain_fact.kind
      and other.id > chain_fact.id and other.consumed_at is not null) as replaced";

/// Acts as the workflow: consumes open facts, in turn. The loss of a lock or a fill must be reported before it, or
/// another one, is reported again; a fill must be final where its gate requires that.
pub(super) async fn consume(
    pool: &PgPool,
    sim: &Mutex<Sim>,
    (chain_id, wait): (u64, Wait),
    consumed: &mut Consumed,
) -> Result<(), Broken> {
    let mut conn = pool.acquire().await?;
    let open = open_facts::claim(&mut conn, Uuid::nil(), Duration::ZERO, 0, 10_000).await?;
    let ids: Vec<i64> = open.iter().map(|fact| fact.id).collect();
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
        "select id, entity, kind, block_hash, block_number, log_index, {REPLACED}
         from chain_fact where chain_id = $1 and id = any($2) order by turn"
    )))
    .bind(chain_id.cast_signed())
    .bind(&ids)
    .fetch_all(&mut *conn)
    .await?;
    open_facts::consume(&mut conn, &ids).await?;
    for row in &rows {
        let (id, kind): (i64, &str) = (row.get("id"), row.get("kind"));
        let entity = B256::from_slice(row.get("entity"));
        if let "lock_lost" | "fill_lost" = kind {
            let believed = if kind == "lock_lost" { &mut consumed.locks } else { &mut consumed.fills };
            if believed.remove(&entity).is_none() {
                return Err(format!("{kind} of {entity} was reported without an earlier report").into());
            }
            continue;
        }
        let place = (B256::from_slice(row.get("block_hash")), row.get::<i64, _>("log_index").cast_unsigned());
        if let "created" | "filled" = kind {
            let believed = if kind == "created" { &mut consumed.locks } else { &mut consumed.fills };
            if let Some(before) = believed.insert(entity, place) {
                return Err(format!(
                    "{kind} of {entity} was reported at {place:?} without a loss at {before:?}"
                )
                .into());
            }
        } else {
            let replaced: bool = row.get("replaced");
            if consumed.places.iter().any(|(before, there)| *there == place && !(*before == id && replaced)) {
                return Err(format!("a fact was given twice: {place:?}").into());
            }
        }
        if kind == "filled" && wait == Wait::Finalized {
            fill_is_final(&sim.lock().chain, place.0, row.get::<i64, _>("block_number").cast_unsigned())?;
        }
        consumed.places.insert(id, place);
    }
    Ok(())
}

fn fill_is_final(chain: &SimChain, block: B256, number: u64) -> Result<(), Broken> {
    let now = chain.now();
    let stands = now.at(number).is_some_and(|ours| ours.head.hash == block);
    if chain.violated || stands && number <= now.finalized {
        return Ok(());
    }
    Err(format!("a fill in block {number} was handed over, and the chain is final up to {}", now.finalized)
        .into())
}

/// At the end: no fill that may pass waits at the gate.
pub(super) async fn gates_are_lifted(pool: &PgPool, cursor: &Cursor, wait: Wait) -> Result<(), Broken> {
    let waiting: Vec<i64> = sqlx::query_scalar(
        "select block_number from chain_fact
         where chain_id = $1 and gate is not null and consumed_at is null and retracted_at is null",
    )
    .bind(cursor.chain_id.cast_signed())
    .fetch_all(pool)
    .await?;
    let may_pass = |number: u64| match wait {
        Wait::Depth(depth) => number + depth - 1 <= cursor.head_number.0,
        // The simulated chain's safe block is its final one.
        Wait::Safe | Wait::Finalized => number <= cursor.final_number.0,
    };
    match waiting.into_iter().map(i64::cast_unsigned).find(|number| may_pass(*number)) {
        Some(number) => {
            Err(format!("a fill in block {number} still waits at the gate, at {cursor:?}").into())
        }
        None => Ok(()),
    }
}

/// At the end: every valid fact is of a canonical event, every event of an entity with a command has its fact, and
/// every consumed fact whose event was reverted is marked; the workflow relies on the existing locks and fills.
pub(super) async fn facts_are_final_or_retracted(
    pool: &PgPool,
    sim: &Mutex<Sim>,
    cursor: &Cursor,
    consumed: &Consumed,
    ours: &HashSet<B256>,
) -> Result<(), Broken> {
    let due = due(&sim.lock().chain, cursor, ours)?;
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
        "select id, entity, kind, block_hash, log_index, retracted_at is not null as retracted,
                consumed_at is not null as consumed, {REPLACED}
         from chain_fact where chain_id = $1 and kind not in ('lock_lost', 'fill_lost')"
    )))
    .bind(cursor.chain_id.cast_signed())
    .fetch_all(pool)
    .await?;
    let mut canonical = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let (mut locks, mut fills) = (HashMap::new(), HashMap::new());
    for row in &rows {
        let place = (B256::from_slice(row.get("block_hash")), row.get::<i64, _>("log_index").cast_unsigned());
        let retracted: bool = row.get("retracted");
        if retracted == due.contains(&place) {
            return Err(format!("fact at {place:?}: retracted {retracted}, due {retracted}").into());
        }
        if !retracted && !canonical.insert(place) {
            return Err(format!("two facts at {place:?}").into());
        }
        let (kind, entity): (&str, _) = (row.get("kind"), B256::from_slice(row.get("entity")));
        let (open, replaced): (bool, bool) = (!row.get::<bool, _>("consumed"), row.get("replaced"));
        match kind {
            "created" if !retracted => drop(locks.insert(entity, place)),
            // A fill at the gate was not reported.
            "filled" if !retracted && !open => drop(fills.insert(entity, place)),
            _ => {}
        }
        ids.insert(row.get::<i64, _>("id"));
        // A lock or a fill is published again after its loss was reported, and can be lost again before it is consumed.
        let reported_again = replaced || matches!(kind, "created" | "filled");
        if open && !reported_again && consumed.places.contains_key(&row.get::<i64, _>("id")) {
            return Err(format!("a consumed fact at {place:?} is open again").into());
        }
    }
    if canonical != due {
        let missing: Vec<_> = due.difference(&canonical).take(3).collect();
        return Err(format!("facts not given: {missing:?}").into());
    }
    if (&locks, &fills) != (&consumed.locks, &consumed.fills) {
        let Consumed { locks: believed, fills: committed, .. } = consumed;
        return Err(format!(
            "the workflow believes in the locks {believed:?}, and there are {locks:?}; in the fills {committed:?}, \
             and there are {fills:?}"
        ).into());
    }
    match consumed.places.keys().find(|id| !ids.contains(id)) {
        Some(id) => Err(format!("fact {id} was consumed and is gone without a word").into()),
        None => Ok(()),
    }
}

/// The positions of the events that must have been reported: those of entities with a command.
fn due(chain: &SimChain, cursor: &Cursor, ours: &HashSet<B256>) -> Result<BTreeSet<(B256, u64)>, Broken> {
    let path = chain.path_to(cursor.head_hash).ok_or("no path to the cursor")?;
    let reported = path.iter().filter(|block| block.head.number.0 <= cursor.facts_number.0);
    Ok(reported
        .flat_map(|block| block.reported.iter().map(|reported| (block.head.hash, reported)))
        .filter(|(_, (_, entity))| ours.contains(entity))
        .map(|(hash, (index, _))| (hash, *index))
        .collect())
}

/// Commands are done exactly if their event is on the chain, at the depth at which it is reported.
pub(super) async fn commands_follow_events(pool: &PgPool, cursor: &Cursor) -> Result<(), Broken> {
    let wrong: Vec<String> = sqlx::query_scalar(
        "select command.kind || ' of ' || command.reference || ' is ' || command.state
         from chain_command command
         where command.chain_id = $1
           and (command.state = 'done') <> exists (
               select from chain_log log
               where log.chain_id = $1 and log.canonical and log.entity = command.entity
                 and log.block_number <= $2 and log.fact is not null
                 and log.event = case command.kind when 'create' then 'Created' when 'fill' then 'Filled'
                                                   when 'settle' then 'Settled' when 'transfer' then 'Paid'
                                                   when 'anchor' then 'Anchored' end)",
    )
    .bind(cursor.chain_id.cast_signed())
    .bind(cursor.facts_number.0.cast_signed())
    .fetch_all(pool)
    .await?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ").into()) }
}
