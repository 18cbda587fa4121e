//! Fills, payments for locks on other chains, and the ends of locks with a fill, at the payout gate.
//!
//! Such a fact at the confirmation depth is a fact like any other, with a gate: it is not open until the gate is lifted.
//! A new one's gate is `new`; once its order is known the gate names the required finality of its block. All are called
//! fills here: upon the first money is paid, upon the second the lock is released. The end of a lock also completes its
//! command only when the gate is lifted.

use super::super::{bigint, block, hash, relay, unsigned};
use super::notify_facts;
use crate::{StoreError, statement};
use alloy::primitives::B256;
use chrono::{DateTime, Utc};
use dvp_domain::chain::BlockNumber;
use sqlx::{PgConnection, PgTransaction, Row};

/// What follows from a fact at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatedKind {
    /// Value leaves upon it: its finality depends on the order.
    Fill,
    /// The lock was settled, cancelled or refunded: it waits for the endpoints' agreement only.
    LockEnd,
}

/// A fill without a gate condition, with the token and amount that its order locks, or pays.
#[derive(Debug, Clone)]
pub struct NewFill {
    pub id: i64,
    pub kind: GatedKind,
    pub block_number: BlockNumber,
    pub token: Option<String>,
    pub amount: Option<String>,
}

/// The required finality of a fill's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// A block of this number is the head.
    Head(BlockNumber),
    /// The `safe` block has this number.
    Safe(BlockNumber),
    Finalized(BlockNumber),
}

impl Gate {
    const fn columns(self) -> (&'static str, BlockNumber) {
        match self {
            Self::Head(number) => ("head", number),
            Self::Safe(number) => ("safe", number),
            Self::Finalized(number) => ("finalized", number),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heights {
    pub head: BlockNumber,
    pub safe: Option<BlockNumber>,
    pub finalized: BlockNumber,
}

/// A fill whose block has the required finality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassableFill {
    pub id: i64,
    pub intent_id: Option<String>,
    /// The blocks of the fill and of the lock that it commits, if that is on this chain; of a lock's end, its block.
    pub blocks: Vec<(BlockNumber, B256)>,
}

/// Resets the gates of all waiting fills, because the configured steps may have changed.
pub async fn reset_gates(conn: &mut PgConnection, chain_id: u64) -> Result<u64, StoreError> {
    let sql = "update chain_fact set gate = 'new', gate_number = null
         where chain_id = $1 and gate is not null and consumed_at is null";
    statement::affected(conn, sql, (bigint(chain_id),)).await
}

/// Fills without a gate condition, oldest first.
pub async fn list_new_fills(
    conn: &mut PgConnection,
    chain_id: u64,
    limit: i64,
) -> Result<Vec<NewFill>, StoreError> {
    let sql =
        "select fact.id, fact.block_number, requested.payload ->> 'token' as token, requested.payload ->> 'amount' as amount,
                fact.kind in ('settled', 'cancelled', 'refunded') as is_end
         from chain_fact fact
         left join lateral (
             select payload from chain_command
             where entity = fact.entity and kind = case fact.kind when 'transferred' then 'transfer' else 'create' end
             order by id limit 1
         ) requested on true
         where fact.chain_id = $1 and fact.gate = 'new' and fact.consumed_at is null
           and fact.retracted_at is null
         order by fact.id
         limit $2";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id), limit)).await?;
    rows.iter()
        .map(|row| {
            Ok(NewFill {
                id: row.try_get("id")?,
                kind: if row.try_get("is_end")? { GatedKind::LockEnd } else { GatedKind::Fill },
                block_number: block("chain_fact", row.try_get("block_number")?)?,
                token: row.try_get("token")?,
                amount: row.try_get("amount")?,
            })
        })
        .collect()
}

pub async fn set_gates(conn: &mut PgConnection, gates: &[(i64, Gate)]) -> Result<(), StoreError> {
    let columns = || gates.iter().map(|(_, gate)| gate.columns());
    let sql = "update chain_fact fact set gate = given.gate, gate_number = given.number
         from unnest($1::bigint[], $2::text[], $3::bigint[]) as given (id, gate, number)
         where fact.id = given.id and fact.gate = 'new'";
    let parameters = (
        gates.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        columns().map(|(gate, _)| gate).collect::<Vec<_>>(),
        columns().map(|(_, number)| bigint(number.0)).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingFills {
    pub all: u64,
    /// Those without a gate condition.
    pub new: u64,
    /// Those that wait for the `safe` block.
    pub safe: u64,
}

pub async fn count_waiting_fills(conn: &mut PgConnection, chain_id: u64) -> Result<WaitingFills, StoreError> {
    let sql = "select count(*), count(*) filter (where gate = 'new'), count(*) filter (where gate = 'safe')
         from chain_fact
         where chain_id = $1 and gate is not null and consumed_at is null and retracted_at is null";
    let (all, new, safe): (i64, i64, i64) = statement::load(conn, sql, (bigint(chain_id),)).await?;
    let count = |number: i64| unsigned("chain_fact", number);
    Ok(WaitingFills { all: count(all)?, new: count(new)?, safe: count(safe)? })
}

/// A fill at the payout gate, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingFill {
    pub chain_id: u64,
    pub reference: Option<String>,
    pub block_number: BlockNumber,
    /// What the block waits for: `head`, `safe` or `finalized`, and its number; `None`: not decided yet.
    pub gate: Option<(String, BlockNumber)>,
    pub observed_at: DateTime<Utc>,
}

/// The fills at the payout gates of all chains, the oldest first.
pub async fn list_waiting_fills(conn: &mut PgConnection, limit: i64) -> Result<Vec<WaitingFill>, StoreError> {
    let sql =
        "select fact.chain_id, fact.block_number, fact.gate, fact.gate_number, fact.observed_at, requested.reference
         from chain_status chain
         cross join lateral (
             select * from chain_fact
             where chain_id = chain.chain_id and gate is not null and consumed_at is null and retracted_at is null
             order by id limit $1
         ) fact
         left join lateral (
             select reference from chain_command where entity = fact.entity and kind = 'create' order by id limit 1
         ) requested on true
         order by fact.observed_at, fact.id
         limit $1";
    let rows = statement::list_rows(conn, sql, (limit,)).await?;
    let table = "chain_fact";
    rows.iter()
        .map(|row| {
            let (gate, number): (String, Option<i64>) = (row.try_get("gate")?, row.try_get("gate_number")?);
            let number = number.map(|number| block(table, number)).transpose()?;
            Ok(WaitingFill {
                chain_id: unsigned(table, row.try_get("chain_id")?)?,
                reference: row.try_get("reference")?,
                block_number: block(table, row.try_get("block_number")?)?,
                gate: number.map(|number| (gate, number)),
                observed_at: row.try_get("observed_at")?,
            })
        })
        .collect()
}

/// Fills whose block has the required finality, after `after` by id.
pub async fn list_passable_fills(
    conn: &mut PgConnection,
    chain_id: u64,
    heights: Heights,
    after: i64,
    limit: i64,
) -> Result<Vec<PassableFill>, StoreError> {
    let sql = "select fact.id, fact.block_number, fact.block_hash, lock.block_number as lock_number,
                lock.block_hash as lock_hash, command.intent_id
         from chain_fact fact
         left join lateral (
             select block_number, block_hash from chain_fact
             where entity = fact.entity and chain_id = $1 and kind = 'created' and retracted_at is null
               and fact.kind in ('filled', 'transferred')
             order by id desc limit 1
         ) lock on true
         left join lateral (
             select intent_id from chain_command where entity = fact.entity order by id limit 1
         ) command on true
         where fact.chain_id = $1 and fact.id > $5 and fact.consumed_at is null and fact.retracted_at is null
           and (fact.gate = 'head' and fact.gate_number <= $2
                or fact.gate = 'safe' and fact.gate_number <= $3
                or fact.gate = 'finalized' and fact.gate_number <= $4)
         order by fact.id
         limit $6";
    let parameters = (
        bigint(chain_id),
        bigint(heights.head.0),
        heights.safe.map(|safe| bigint(safe.0)),
        bigint(heights.finalized.0),
        after,
        limit,
    );
    let rows = statement::list_rows(conn, sql, parameters).await?;
    let table = "chain_fact";
    rows.iter()
        .map(|row| {
            let mut blocks =
                vec![(block(table, row.try_get("block_number")?)?, hash(table, row.try_get("block_hash")?)?)];
            let lock: (Option<i64>, Option<&[u8]>) = (row.try_get("lock_number")?, row.try_get("lock_hash")?);
            if let (Some(number), Some(bytes)) = lock {
                blocks.push((block(table, number)?, hash(table, bytes)?));
            }
            blocks.dedup();
            Ok(PassableFill { id: row.try_get("id")?, intent_id: row.try_get("intent_id")?, blocks })
        })
        .collect()
}

/// Lifts the gates of fills whose block is still canonical, completes their commands, and notifies the engine.
pub async fn lift_gates(tx: &mut PgTransaction<'_>, ids: &[i64]) -> Result<u64, StoreError> {
    let sql = "update chain_fact set gate = null, gate_number = null
         where id = any($1) and gate is not null and retracted_at is null and consumed_at is null";
    let done = statement::affected(tx, sql, (ids,)).await?;
    if done > 0 {
        relay::complete_lifted(tx, ids).await?;
        notify_facts(tx).await?;
    }
    Ok(done)
}
