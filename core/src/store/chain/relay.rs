//! What the relayer sends: commands, nonces, signed bytes.
//!
//! Invariants: a nonce is given out under its lane's row lock; the bytes of a slot's attempt are committed before
//! anybody sends them; a slot becomes `final` only at a block that may not change any more.

use super::{address, bigint, facts, hash, unsigned};
use crate::chain::ChainFact;
use crate::store::StoreError;
use alloy::primitives::{Address, B256, Bytes};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgTransaction, Row};

/// A command that waits for its transaction.
#[derive(Debug, Clone)]
pub struct CommandRow {
    pub id: i64,
    pub reference: String,
    pub intent_id: String,
    pub entity: B256,
    pub kind: String,
    pub payload: serde_json::Value,
    /// Since it was left here, by the database's clock.
    pub age_ms: i64,
}

/// A nonce in use whose outcome is open.
#[derive(Debug, Clone)]
pub struct SlotRow {
    pub nonce: u64,
    /// `None`: it only fills a gap, and the texts are empty.
    pub command_id: Option<i64>,
    pub reference: String,
    pub intent_id: String,
    pub state: String,
    pub block_hash: Option<B256>,
    /// Oldest first; never empty.
    pub attempts: Vec<AttemptRow>,
}

/// One signed transaction of a slot.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub nonce: u64,
    pub attempt: u64,
    pub hash: B256,
    pub raw: Bytes,
    /// Wei per gas.
    pub max_fee: u128,
    /// Wei per gas.
    pub priority_fee: u128,
    /// By the database's clock.
    pub age_ms: i64,
    /// `None` before the first broadcast.
    pub last_broadcast_age_ms: Option<i64>,
}

/// A signed transaction to keep.
#[derive(Debug, Clone)]
pub struct NewAttempt {
    pub nonce: u64,
    pub attempt: u64,
    pub hash: B256,
    pub raw: Bytes,
    /// Wei per gas.
    pub max_fee: u128,
    /// Wei per gas.
    pub priority_fee: u128,
}

/// Completes commands whose event is in a canonical block at the confirmation depth, and wakes the relayer: the next
/// command of the same entity may go.
pub async fn complete_commands(conn: &mut PgConnection, chain_id: u64) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "update chain_command command
         set state = 'done', done_at = now()
         from chain_log log, chain_cursor cursor
         where command.chain_id = $1 and command.state in ('pending', 'sent')
           and cursor.chain_id = $1 and log.chain_id = $1 and log.canonical
           and log.entity = command.entity and log.block_number <= cursor.facts_number
           and log.fact ->> 'kind' = case command.kind
               when 'create' then 'created' when 'fill' then 'filled'
               when 'settle' then 'settled' when 'anchor' then 'anchored'
               when 'transfer' then 'transferred' end",
    )
    .bind(bigint(chain_id))
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() > 0 {
        sqlx::query("select pg_notify('dvp_commands', '')").execute(conn).await?;
    }
    Ok(done.rows_affected())
}

/// Due commands without a transaction under way or mined: of one entity only the oldest open one, and of one wallet's
/// creates only the one with the lowest permit nonce, for the others cannot succeed before it. Those that were
/// deferred come after those that were not, so that many that wait do not hide the rest.
pub async fn list_ready_commands(
    conn: &mut PgConnection,
    chain_id: u64,
    limit: i64,
) -> Result<Vec<CommandRow>, StoreError> {
    let rows = sqlx::query(
        "with open as (
             select id, reference, intent_id, entity, kind, payload, not_before, created_at,
                    rank() over (
                        partition by kind, coalesce(payload ->> 'maker', id::text)
                        order by case when payload #>> '{permit,nonce}' ~ '^[0-9]{1,78}$'
                                      then (payload #>> '{permit,nonce}')::numeric end nulls first) as turn
             from chain_command command
             where chain_id = $1 and state in ('pending', 'sent')
               and not exists (
                   select from chain_command earlier
                   where earlier.entity = command.entity and earlier.chain_id = $1 and earlier.id < command.id
                     and earlier.state in ('pending', 'sent'))
               and not exists (
                   select from nonce_slot slot
                   where slot.command_id = command.id
                     and (slot.state in ('signed', 'broadcast')
                          or (slot.state in ('mined', 'final') and slot.succeeded)))
         )
         select id, reference, intent_id, entity, kind, payload,
                (extract(epoch from clock_timestamp() - created_at) * 1000)::bigint as age_ms
         from open
         where turn = 1 and not_before <= clock_timestamp()
         order by not_before, id
         limit $2",
    )
    .bind(bigint(chain_id))
    .bind(limit)
    .fetch_all(conn)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(CommandRow {
                id: row.try_get("id")?,
                reference: row.try_get("reference")?,
                intent_id: row.try_get("intent_id")?,
                entity: hash("chain_command", row.try_get("entity")?)?,
                kind: row.try_get("kind")?,
                payload: row.try_get("payload")?,
                age_ms: row.try_get("age_ms")?,
            })
        })
        .collect()
}

/// Looks at a command again only after some time.
pub async fn defer_command(conn: &mut PgConnection, id: i64, delay_ms: i64) -> Result<(), StoreError> {
    sqlx::query(
        "update chain_command
         set not_before = clock_timestamp() + $2 * interval '1 millisecond'
         where id = $1 and state in ('pending', 'sent')",
    )
    .bind(id)
    .bind(delay_ms)
    .execute(conn)
    .await?;
    Ok(())
}

/// Gives a command up for good and tells the engine. `false`: it was not open any more.
pub async fn fail_command(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    command: &CommandRow,
    fact: &ChainFact,
) -> Result<bool, StoreError> {
    let failed = sqlx::query(
        "update chain_command
         set state = 'failed', done_at = now()
         where id = $1 and state in ('pending', 'sent')",
    )
    .bind(command.id)
    .execute(&mut **tx)
    .await?;
    if failed.rows_affected() == 0 {
        return Ok(false);
    }
    facts::insert_fact(tx, chain_id, command.entity, fact).await?;
    Ok(true)
}

/// Nonces of a lane that are not mined.
pub async fn count_in_flight(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "select count(*) as open
         from nonce_slot
         where chain_id = $1 and signer = $2 and state in ('signed', 'broadcast')",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .fetch_one(conn)
    .await?;
    unsigned("nonce_slot", row.try_get("open")?)
}

/// Locks the lane and takes its lowest free nonce: one that was skipped, if any at or above the chain's own count
/// `mined`, otherwise the next. The lock is held until the transaction ends.
pub async fn reserve_nonce(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    mined: u64,
) -> Result<u64, StoreError> {
    sqlx::query(
        "insert into signer_lane (chain_id, signer, next_nonce)
         values ($1, $2, $3)
         on conflict on constraint signer_lane_pkey do nothing",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(mined))
    .execute(&mut **tx)
    .await?;
    sqlx::query("select from signer_lane where chain_id = $1 and signer = $2 for update")
        .bind(bigint(chain_id))
        .bind(signer.as_slice())
        .execute(&mut **tx)
        .await?;
    let row = sqlx::query(
        "select coalesce(
             (select min(nonce)
              from generate_series($3::bigint, lane.next_nonce - 1) as skipped (nonce)
              where not exists (
                  select from nonce_slot slot
                  where slot.chain_id = $1 and slot.signer = $2 and slot.nonce = skipped.nonce)),
             greatest(lane.next_nonce, $3::bigint)) as nonce
         from signer_lane lane
         where lane.chain_id = $1 and lane.signer = $2",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(mined))
    .fetch_one(&mut **tx)
    .await?;
    let nonce = unsigned("signer_lane", row.try_get("nonce")?)?;
    sqlx::query(
        "update signer_lane
         set next_nonce = greatest(next_nonce, $3)
         where chain_id = $1 and signer = $2",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce + 1))
    .execute(&mut **tx)
    .await?;
    Ok(nonce)
}

/// Takes a command for a transaction of one's own; held until the transaction ends. `false`: another lane has one
/// under way or mined for it, or it is not open any more.
pub async fn claim_command(tx: &mut PgTransaction<'_>, id: i64) -> Result<bool, StoreError> {
    let open =
        sqlx::query("select from chain_command where id = $1 and state in ('pending', 'sent') for update")
            .bind(id)
            .fetch_optional(&mut **tx)
            .await?;
    if open.is_none() {
        return Ok(false);
    }
    // A statement of its own: what another lane committed while we waited for the row must be seen.
    let taken = sqlx::query(
        "select from nonce_slot
         where command_id = $1
           and (state in ('signed', 'broadcast') or (state in ('mined', 'final') and succeeded))
         limit 1",
    )
    .bind(id)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(taken.is_none())
}

/// Uses a nonce that was passed over, for no command: higher ones wait for it. `false`: it is in use.
pub async fn insert_filler_slot(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "insert into nonce_slot (chain_id, signer, nonce) values ($1, $2, $3)
         on conflict on constraint nonce_slot_pkey do nothing",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The lowest nonce whose transaction waits for a block.
pub async fn lowest_waiting(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<Option<u64>, StoreError> {
    let lowest: Option<i64> = sqlx::query_scalar(
        "select min(nonce) from nonce_slot
         where chain_id = $1 and signer = $2 and state in ('signed', 'broadcast')",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .fetch_one(conn)
    .await?;
    lowest.map(|nonce| unsigned("nonce_slot", nonce)).transpose()
}

/// Notes what an account holds, in wei. `true`: it has just become low, or stopped being so.
pub async fn note_balance(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    balance: u128,
    low: bool,
) -> Result<bool, StoreError> {
    let before: Option<bool> = sqlx::query_scalar(
        "with before as (
             select balance_low from signer_lane where chain_id = $1 and signer = $2)
         insert into signer_lane (chain_id, signer, next_nonce, balance_wei, balance_low, balance_at)
         select $1, $2, 0, $3::text::numeric, $4, clock_timestamp()
         on conflict on constraint signer_lane_pkey do update
         set balance_wei = excluded.balance_wei, balance_low = excluded.balance_low,
             balance_at = excluded.balance_at
         returning (select balance_low from before)",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(balance.to_string())
    .bind(low)
    .fetch_one(conn)
    .await?;
    Ok(before.unwrap_or(false) != low)
}

/// A signer's account as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    pub chain_id: u64,
    pub signer: Address,
    /// Wei; `None` before it was asked for.
    pub balance: Option<u128>,
    pub balance_low: bool,
    /// Nonces signed and not mined.
    pub waiting: u64,
}

/// Every lane, by chain and signer.
pub async fn list_lanes(conn: &mut PgConnection) -> Result<Vec<LaneRow>, StoreError> {
    let rows = sqlx::query(
        "select lane.chain_id, lane.signer, lane.balance_wei::text as balance_wei, lane.balance_low,
                (select count(*) from nonce_slot slot
                 where slot.chain_id = lane.chain_id and slot.signer = lane.signer
                   and slot.state in ('signed', 'broadcast')) as waiting
         from signer_lane lane
         order by lane.chain_id, lane.signer",
    )
    .fetch_all(conn)
    .await?;
    let table = "signer_lane";
    rows.iter()
        .map(|row| {
            let balance: Option<&str> = row.try_get("balance_wei")?;
            let balance = balance.map(|text| text.parse().map_err(|error| StoreError::corrupt(table, error)));
            Ok(LaneRow {
                chain_id: unsigned(table, row.try_get("chain_id")?)?,
                signer: address(table, row.try_get("signer")?)?,
                balance: balance.transpose()?,
                balance_low: row.try_get("balance_low")?,
                waiting: unsigned(table, row.try_get("waiting")?)?,
            })
        })
        .collect()
}

/// Uses a nonce for a command, which counts as sent from now on.
pub async fn insert_slot(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    nonce: u64,
    command_id: i64,
) -> Result<(), StoreError> {
    sqlx::query("insert into nonce_slot (chain_id, signer, nonce, command_id) values ($1, $2, $3, $4)")
        .bind(bigint(chain_id))
        .bind(signer.as_slice())
        .bind(bigint(nonce))
        .bind(command_id)
        .execute(&mut **tx)
        .await?;
    let sent = sqlx::query(
        "update chain_command
         set state = 'sent'
         where id = $1 and state in ('pending', 'sent')",
    )
    .bind(command_id)
    .execute(&mut **tx)
    .await?;
    if sent.rows_affected() == 1 { Ok(()) } else { Err(StoreError::Stale { what: "chain_command" }) }
}

/// Keeps signed bytes. Nothing may be sent before this is committed.
pub async fn insert_attempt(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    attempt: &NewAttempt,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into tx_attempt (chain_id, signer, nonce, attempt, hash, raw, max_fee, priority_fee)
         values ($1, $2, $3, $4, $5, $6, $7::text::numeric, $8::text::numeric)",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(attempt.nonce))
    .bind(bigint(attempt.attempt))
    .bind(attempt.hash.as_slice())
    .bind(attempt.raw.as_ref())
    .bind(attempt.max_fee.to_string())
    .bind(attempt.priority_fee.to_string())
    .execute(conn)
    .await?;
    Ok(())
}

/// Slots that are not mined, or were, in a block that is gone: the chain's own count `mined` of the account does not
/// reach them any more, or the indexer has passed the block without finding it canonical. Lowest nonce first.
pub async fn list_unsettled_slots(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    mined: u64,
) -> Result<Vec<SlotRow>, StoreError> {
    let rows = sqlx::query(
        "select slot.nonce, slot.command_id, slot.state, slot.block_hash,
                coalesce(command.reference, '') as reference, coalesce(command.intent_id, '') as intent_id
         from nonce_slot slot
         left join chain_command command on command.id = slot.command_id
         left join chain_cursor cursor on cursor.chain_id = slot.chain_id
         where slot.chain_id = $1 and slot.signer = $2
           and (slot.state in ('signed', 'broadcast')
                or (slot.state = 'mined' and slot.nonce >= $3)
                or (slot.state = 'mined' and slot.block_number <= cursor.head_number
                    and not exists (
                        select from chain_block block
                        where block.chain_id = slot.chain_id and block.hash = slot.block_hash and block.canonical)))
         order by slot.nonce",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(mined))
    .fetch_all(&mut *conn)
    .await?;
    let mut slots = rows.iter().map(slot_row).collect::<Result<Vec<_>, _>>()?;
    let nonces: Vec<i64> = slots.iter().map(|slot| bigint(slot.nonce)).collect();
    for attempt in list_attempts(conn, chain_id, signer, &nonces).await? {
        if let Some(slot) = slots.iter_mut().find(|slot| slot.nonce == attempt.nonce) {
            slot.attempts.push(attempt);
        }
    }
    Ok(slots)
}

fn slot_row(row: &PgRow) -> Result<SlotRow, StoreError> {
    let table = "nonce_slot";
    let block_hash: Option<&[u8]> = row.try_get("block_hash")?;
    Ok(SlotRow {
        nonce: unsigned(table, row.try_get("nonce")?)?,
        command_id: row.try_get("command_id")?,
        reference: row.try_get("reference")?,
        intent_id: row.try_get("intent_id")?,
        state: row.try_get("state")?,
        block_hash: block_hash.map(|bytes| hash(table, bytes)).transpose()?,
        attempts: Vec::new(),
    })
}

/// The attempts of some nonces, by nonce and attempt.
pub async fn list_attempts(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonces: &[i64],
) -> Result<Vec<AttemptRow>, StoreError> {
    let rows = sqlx::query(
        "select nonce, attempt, hash, raw, max_fee::text as max_fee, priority_fee::text as priority_fee,
                (extract(epoch from clock_timestamp() - created_at) * 1000)::bigint as age_ms,
                (extract(epoch from clock_timestamp() - last_broadcast_at) * 1000)::bigint as broadcast_age_ms
         from tx_attempt
         where chain_id = $1 and signer = $2 and nonce = any($3)
         order by nonce, attempt",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(nonces)
    .fetch_all(conn)
    .await?;
    rows.iter().map(attempt_row).collect()
}

fn attempt_row(row: &PgRow) -> Result<AttemptRow, StoreError> {
    let table = "tx_attempt";
    let fee = |column: &str| -> Result<u128, StoreError> {
        let text: &str = row.try_get(column)?;
        text.parse().map_err(|error| StoreError::corrupt(table, error))
    };
    Ok(AttemptRow {
        nonce: unsigned(table, row.try_get("nonce")?)?,
        attempt: unsigned(table, row.try_get("attempt")?)?,
        hash: hash(table, row.try_get("hash")?)?,
        raw: Bytes::copy_from_slice(row.try_get("raw")?),
        max_fee: fee("max_fee")?,
        priority_fee: fee("priority_fee")?,
        age_ms: row.try_get("age_ms")?,
        last_broadcast_age_ms: row.try_get("broadcast_age_ms")?,
    })
}

/// The node took the attempt's bytes.
pub async fn mark_broadcast(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    attempt: &AttemptRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "with sent as (
             update tx_attempt
             set last_broadcast_at = clock_timestamp(), last_error = null
             where chain_id = $1 and signer = $2 and nonce = $3 and attempt = $4)
         update nonce_slot
         set state = 'broadcast'
         where chain_id = $1 and signer = $2 and nonce = $3 and state = 'signed'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(attempt.nonce))
    .bind(bigint(attempt.attempt))
    .execute(conn)
    .await?;
    Ok(())
}

/// The node refused the attempt's bytes, or was not reached: they may have got there all the same.
pub async fn note_send_error(
    conn: &mut PgConnection,
    chain_id: u64,
    attempt_hash: B256,
    error: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "update tx_attempt
         set last_broadcast_at = clock_timestamp(), last_error = $3
         where chain_id = $1 and hash = $2",
    )
    .bind(bigint(chain_id))
    .bind(attempt_hash.as_slice())
    .bind(error)
    .execute(conn)
    .await?;
    Ok(())
}

/// One of the slot's attempts is in a block; `is_final`: one that may not change any more.
pub async fn mark_mined(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
    block: (u64, B256),
    succeeded: bool,
    is_final: bool,
) -> Result<(), StoreError> {
    sqlx::query(
        "update nonce_slot
         set state = case when $7 then 'final' else 'mined' end, block_number = $4, block_hash = $5, succeeded = $6
         where chain_id = $1 and signer = $2 and nonce = $3 and state <> 'final'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .bind(bigint(block.0))
    .bind(block.1.as_slice())
    .bind(succeeded)
    .bind(is_final)
    .execute(conn)
    .await?;
    Ok(())
}

/// The slot's block is gone, and its transaction with it: it is to be sent again.
pub async fn mark_unmined(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update nonce_slot
         set state = 'broadcast', block_number = null, block_hash = null, succeeded = null
         where chain_id = $1 and signer = $2 and nonce = $3 and state = 'mined'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .execute(conn)
    .await?;
    Ok(())
}

/// A transaction that we did not sign has used the nonce.
pub async fn mark_foreign(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update nonce_slot
         set state = 'foreign'
         where chain_id = $1 and signer = $2 and nonce = $3 and state in ('signed', 'broadcast')",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .execute(conn)
    .await?;
    Ok(())
}

/// Slots mined in a canonical block that may not change any more are final.
pub async fn finalize_slots(conn: &mut PgConnection, chain_id: u64) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "update nonce_slot slot
         set state = 'final'
         from chain_cursor cursor, chain_block block
         where slot.chain_id = $1 and slot.state = 'mined' and cursor.chain_id = $1
           and slot.block_number <= cursor.final_number
           and block.chain_id = $1 and block.hash = slot.block_hash and block.canonical",
    )
    .bind(bigint(chain_id))
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
