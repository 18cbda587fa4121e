//! Missing events, stored as the indexer stores those that a range was read without: its rows, facts and completed
//! commands in one transaction, with the operator who asked for it.
//!
//! An event whose place or number another stored event has is not restored: what is stored is never overwritten. The
//! fact of an event that had led to one is not inserted again, so that nothing is acted upon twice.

use std::collections::BTreeSet;

use dvp_domain::chain::BlockNumber;
use dvp_store::PgPool;
use dvp_store::chain::{self as store, Emitted, LogRow};
use dvp_store::orders::operations::{NewAction, insert_action};
use serde_json::{Value, json};
use sqlx::PgTransaction;

use super::super::{IndexError, tell};
use crate::config::ChainConfig;

/// The operator who has events restored.
#[derive(Debug, Clone, Copy)]
pub struct RestoredBy<'a> {
    pub operator: &'a str,
    pub reason: &'a str,
}

/// Restores the events of final blocks that nothing stored contradicts. Returns their places.
pub(super) async fn restore(
    pool: &PgPool,
    config: &ChainConfig,
    missing: &[LogRow],
    by: RestoredBy<'_>,
) -> Result<Vec<(BlockNumber, u64)>, IndexError> {
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = pool.begin().await?;
    let restored = restore_in(&mut tx, config.chain_id, missing, by).await;
    // Immediately: a transaction that is only dropped keeps its locks until the connection is used again.
    if restored.as_ref().is_ok_and(|(rows, _)| !rows.is_empty()) {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    let (rows, facts) = restored?;
    if !rows.is_empty() {
        let (operator, events, count) = (by.operator, rows.len(), facts.len());
        tracing::warn!(chain = config.name, operator, events, facts = count, "missing events were restored");
    }
    facts.iter().for_each(tell);
    Ok(rows.iter().map(place).collect())
}

async fn restore_in(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    missing: &[LogRow],
    RestoredBy { operator, reason }: RestoredBy<'_>,
) -> Result<(Vec<LogRow>, Vec<Emitted>), IndexError> {
    let nothing = (Vec::new(), Vec::new());
    let Some(cursor) = store::lock_cursor(tx, chain_id).await? else { return Ok(nothing) };
    if let Some(halted) = cursor.halted {
        return Err(IndexError::Halted(halted));
    }
    let up_to = cursor.final_number.min(cursor.facts_number);
    let contradicted = store::list_contradicted(tx, chain_id, missing).await?;
    let rows: Vec<LogRow> = missing
        .iter()
        .filter(|row| row.block_number <= up_to && !contradicted.contains(&place(row)))
        .cloned()
        .collect();
    if rows.is_empty() {
        return Ok(nothing);
    }
    store::record_blocks(tx, &cursor, &cursor, &[], &rows).await?;
    store::retract_refunds_of_cancels(tx, chain_id).await?;
    let blocks: BTreeSet<BlockNumber> = rows.iter().map(|row| row.block_number).collect();
    let mut facts = Vec::new();
    for number in blocks {
        let derived = store::publish_events(tx, chain_id, number.saturating_sub(1), number).await?;
        facts.extend(derived.facts);
    }
    let events: Vec<Value> = rows.iter().map(view).collect();
    let kept = json!({"chainId": chain_id, "events": events, "facts": facts.len()});
    let new = NewAction {
        reference: &format!("chain:{chain_id}"),
        action: "restore_events",
        operator,
        reason,
        evidence: &kept,
        version: cursor.version.cast_signed(),
    };
    insert_action(tx, &new).await?;
    Ok((rows, facts))
}

const fn place(row: &LogRow) -> (BlockNumber, u64) {
    (row.block_number, row.log_index)
}

fn view(row: &LogRow) -> Value {
    json!({"event": row.event, "entity": row.entity, "block": row.block_number, "blockHash": row.block_hash,
           "logIndex": row.log_index, "txHash": row.tx_hash})
}
