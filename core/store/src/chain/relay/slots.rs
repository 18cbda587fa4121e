//! Nonces in use, and the commands of their transactions.
//!
//! Invariant: a slot becomes `final` only at a final block; commands whose event did not come although the indexer has
//! passed their transaction's block are open again.

use super::super::{address, bigint, hash, unsigned};
use super::attempts::{AttemptRow, list_attempts};
use crate::StoreError;
use alloy::primitives::{Address, B256};
use dvp_domain::chain::BlockNumber;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgTransaction, Row};

/// The state of a nonce in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Signed and stored; it may have reached a node.
    Signed,
    Broadcast,
    /// In a block that can still be reverted.
    Mined,
    Final,
    /// Another transaction has used the nonce.
    Foreign,
    /// An operator gave the transaction up.
    Abandoned,
}

impl SlotState {
    const ALL: [Self; 6] =
        [Self::Signed, Self::Broadcast, Self::Mined, Self::Final, Self::Foreign, Self::Abandoned];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Broadcast => "broadcast",
            Self::Mined => "mined",
            Self::Final => "final",
            Self::Foreign => "foreign",
            Self::Abandoned => "abandoned",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| StoreError::corrupt("nonce_slot", format_args!("state {text}")))
    }
}

/// A nonce in use whose outcome is open.
#[derive(Debug, Clone)]
pub struct SlotRow {
    pub nonce: u64,
    /// `None`: the transaction only uses the nonce.
    pub kind: Option<String>,
    pub gas: u64,
    pub state: SlotState,
    pub block_hash: Option<B256>,
    /// The transaction contains commands that it must no longer execute.
    pub stale: bool,
    /// Commands that it must execute.
    pub commands: u64,
    /// Of one of them; empty without any.
    pub reference: String,
    pub intent_id: String,
    /// Oldest first; never empty.
    pub attempts: Vec<AttemptRow>,
}

/// A nonce to use.
#[derive(Debug, Clone, Copy)]
pub struct NewSlot<'a> {
    pub nonce: u64,
    /// The kind of commands of its transaction; `None`: the transaction only uses the nonce.
    pub kind: Option<&'a str>,
    /// The transaction's gas limit.
    pub gas: u64,
    pub commands: &'a [i64],
}

/// Uses a nonce for commands, which are `sent` from now on, or for none. `false`: the nonce is in use.
pub async fn insert_slot(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    slot: NewSlot<'_>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "insert into nonce_slot (chain_id, signer, nonce, kind, gas) values ($1, $2, $3, $4, $5)
         on conflict on constraint nonce_slot_pkey do nothing",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(slot.nonce))
    .bind(slot.kind)
    .bind(bigint(slot.gas))
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    if slot.commands.is_empty() {
        return Ok(true);
    }
    sqlx::query(
        "insert into slot_command (chain_id, signer, nonce, command_id) select $1, $2, $3, unnest($4::bigint[])",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(slot.nonce))
    .bind(slot.commands)
    .execute(&mut **tx)
    .await?;
    let sent =
        sqlx::query("update chain_command set state = 'sent' where id = any($1) and state = 'pending'")
            .bind(slot.commands)
            .execute(&mut **tx)
            .await?;
    let all = u64::try_from(slot.commands.len()).unwrap_or(u64::MAX);
    if sent.rows_affected() == all { Ok(true) } else { Err(StoreError::Stale { what: "chain_command" }) }
}

/// Rebuilds a slot's transaction with the remaining commands: the others are removed, and the slot waits for a block.
pub async fn remake_slot(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    nonce: u64,
    gas: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "with dropped as (
             delete from slot_command
             where chain_id = $1 and signer = $2 and nonce = $3 and not live)
         update nonce_slot
         set state = 'signed', gas = $4, block_number = null, block_hash = null, succeeded = null, judged = false,
             kind = case when exists (
                 select from slot_command where chain_id = $1 and signer = $2 and nonce = $3 and live
             ) then kind end
         where chain_id = $1 and signer = $2 and nonce = $3 and state <> 'final'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .bind(bigint(gas))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The transactions of one kind that wait for a block on a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// `None`: transactions that only use a nonce.
    pub kind: Option<String>,
    /// Transactions of the requested account.
    pub own: u64,
    /// The gas limits of all accounts' transactions.
    pub gas: u64,
}

pub async fn find_load(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<Vec<Load>, StoreError> {
    let rows = sqlx::query(
        "select kind, count(*) filter (where signer = $2) as own, sum(gas)::bigint as gas
         from nonce_slot
         where chain_id = $1 and state in ('signed', 'broadcast')
         group by kind",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .fetch_all(conn)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Load {
                kind: row.try_get("kind")?,
                own: unsigned("nonce_slot", row.try_get("own")?)?,
                gas: unsigned("nonce_slot", row.try_get("gas")?)?,
            })
        })
        .collect()
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

/// Slots that wait for a block, or whose block is gone: the chain's count `mined` of the account no longer reaches
/// them, or the indexer has passed the block without finding it canonical. Also abandoned nonces, once the chain no
/// longer counts them. Lowest nonce first.
pub async fn list_unsettled_slots(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    mined: u64,
) -> Result<Vec<SlotRow>, StoreError> {
    let rows = sqlx::query(
        "select slot.nonce, slot.kind, slot.gas, slot.state, slot.block_hash, carried.stale, carried.commands,
                coalesce(command.reference, '') as reference, coalesce(command.intent_id, '') as intent_id
         from nonce_slot slot
         cross join lateral (
             select coalesce(bool_or(not live), false) as stale, count(*) filter (where live) as commands,
                    min(command_id) filter (where live) as first
             from slot_command
             where chain_id = slot.chain_id and signer = slot.signer and nonce = slot.nonce
         ) carried
         left join chain_command command on command.id = carried.first
         left join chain_cursor cursor on cursor.chain_id = slot.chain_id
         where slot.chain_id = $1 and slot.signer = $2
           and (slot.state in ('signed', 'broadcast')
                or (slot.state = 'mined' and slot.nonce >= $3)
                or (slot.state = 'mined' and slot.block_number <= cursor.head_number
                    and not exists (
                        select from chain_block block
                        where block.chain_id = slot.chain_id and block.hash = slot.block_hash and block.canonical))
                or (slot.state in ('foreign', 'abandoned') and slot.nonce >= $3))
         order by slot.nonce",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(mined))
    .fetch_all(&mut *conn)
    .await?;
    let slots = rows.iter().map(slot_row).collect::<Result<Vec<_>, _>>()?;
    with_attempts(conn, chain_id, signer, slots).await
}

async fn with_attempts(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    mut slots: Vec<SlotRow>,
) -> Result<Vec<SlotRow>, StoreError> {
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
        kind: row.try_get("kind")?,
        gas: unsigned(table, row.try_get("gas")?)?,
        state: SlotState::parse(row.try_get("state")?)?,
        block_hash: block_hash.map(|bytes| hash(table, bytes)).transpose()?,
        stale: row.try_get("stale")?,
        commands: unsigned(table, row.try_get("commands")?)?,
        reference: row.try_get("reference")?,
        intent_id: row.try_get("intent_id")?,
        attempts: Vec::new(),
    })
}

/// One of the slot's attempts is in a block; `is_final`: in a final block, unless we know another block of its number,
/// because a node may still report an abandoned fork. When it failed, its commands are open again; anchors wait for
/// [`judge_slots`].
pub async fn mark_mined(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
    block: (BlockNumber, B256),
    succeeded: bool,
    is_final: bool,
) -> Result<(), StoreError> {
    sqlx::query(
        "with known as (
             select $7 and not exists (
                 select from chain_block block
                 where block.chain_id = $1 and block.number = $4 and block.canonical and block.hash <> $5
             ) as is_final
         ), slot as (
             update nonce_slot
             set state = case when known.is_final then 'final' else 'mined' end, block_number = $4, block_hash = $5,
                 succeeded = $6,
                 judged = (not $6 and (known.is_final or kind is distinct from 'anchor')) or (judged and block_hash = $5)
             from known
             where chain_id = $1 and signer = $2 and nonce = $3 and state <> 'final'
             returning nonce, judged
         ), undone as (
             update slot_command carried set live = false
             from slot
             where not $6 and slot.judged and carried.chain_id = $1 and carried.signer = $2 and carried.nonce = slot.nonce
               and carried.live
             returning carried.command_id
         )
         update chain_command command
         set state = 'pending', tries = tries + 1, trouble = 'its transaction reverted',
             troubled_at = clock_timestamp()
         from undone
         where command.id = undone.command_id and command.state = 'sent'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .bind(bigint(block.0.0))
    .bind(block.1.as_slice())
    .bind(succeeded)
    .bind(is_final)
    .execute(conn)
    .await?;
    Ok(())
}

/// The slot's block is gone, and its transaction must be broadcast again.
pub async fn mark_unmined(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update nonce_slot
         set state = 'broadcast', block_number = null, block_hash = null, succeeded = null, judged = false
         where chain_id = $1 and signer = $2 and nonce = $3 and state = 'mined'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(bigint(nonce))
    .execute(conn)
    .await?;
    Ok(())
}

/// The blocks above a number are about to be reverted: their transactions wait for a block again.
pub(in crate::chain) async fn unmine_above(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    number: BlockNumber,
) -> Result<(), StoreError> {
    sqlx::query(
        "update nonce_slot
         set state = 'broadcast', block_number = null, block_hash = null, succeeded = null, judged = false
         where chain_id = $1 and state in ('mined', 'final') and block_number > $2",
    )
    .bind(bigint(chain_id))
    .bind(bigint(number.0))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// A foreign transaction has used the nonce: the commands of ours are open again.
pub async fn mark_foreign(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<(), StoreError> {
    give_up(conn, (chain_id, signer, Some(nonce)), SlotState::Foreign).await.map(drop)
}

/// Abandons transactions of an account that wait for a block, all of them or that of one nonce. Their commands are open
/// again. Returns their number.
async fn give_up(
    conn: &mut PgConnection,
    (chain_id, signer, nonce): (u64, Address, Option<u64>),
    state: SlotState,
) -> Result<u64, StoreError> {
    let opened = sqlx::query(
        "with slot as (
             update nonce_slot
             set state = $4
             where chain_id = $1 and signer = $2 and nonce = coalesce($3, nonce) and state in ('signed', 'broadcast')
             returning nonce
         ), undone as (
             update slot_command carried set live = false
             from slot
             where carried.chain_id = $1 and carried.signer = $2 and carried.nonce = slot.nonce and carried.live
             returning carried.command_id
         )
         update chain_command command
         set state = 'pending'
         from undone
         where command.id = undone.command_id and command.state = 'sent'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .bind(nonce.map(bigint))
    .bind(state.as_str())
    .execute(conn)
    .await?;
    Ok(opened.rows_affected())
}

/// For successful transactions in blocks that the indexer has passed: commands that a batch skipped because they failed
/// are open again. Returns their number.
///
/// The contracts refuse to execute any other call twice; a hash can be anchored twice. An anchor that is missing, or
/// whose transaction failed, is therefore open again only once that transaction is final: in another fork it could
/// still be anchored.
pub async fn judge_slots(conn: &mut PgConnection, chain_id: u64, signer: Address) -> Result<u64, StoreError> {
    let reopened = sqlx::query(
        "with passed as (
             update nonce_slot slot
             set judged = true
             from chain_cursor cursor
             where slot.chain_id = $1 and slot.signer = $2 and slot.state in ('mined', 'final')
               and not slot.judged and (slot.succeeded or slot.kind = 'anchor')
               and (slot.state = 'final' or slot.kind is distinct from 'anchor')
               and cursor.chain_id = $1 and slot.block_number <= cursor.facts_number
               and (slot.state = 'final' or exists (
                   select from chain_block block
                   where block.chain_id = $1 and block.hash = slot.block_hash and block.canonical))
             returning slot.nonce
         ), undone as (
             update slot_command carried set live = false
             from passed, chain_command command
             where carried.chain_id = $1 and carried.signer = $2 and carried.nonce = passed.nonce
               and carried.live and command.id = carried.command_id and command.state = 'sent'
             returning carried.command_id
         )
         update chain_command command
         set state = 'pending', tries = tries + 1, trouble = 'its transaction left it out',
             troubled_at = clock_timestamp()
         from undone
         where command.id = undone.command_id and command.state = 'sent'",
    )
    .bind(bigint(chain_id))
    .bind(signer.as_slice())
    .execute(conn)
    .await?;
    Ok(reopened.rows_affected())
}

/// Marks slots mined in final canonical blocks as final.
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

/// The transactions without a block of accounts that no process runs any more.
pub async fn list_retired(
    conn: &mut PgConnection,
    chain_id: u64,
) -> Result<Vec<(Address, Vec<SlotRow>)>, StoreError> {
    let rows = sqlx::query(
        "select distinct slot.signer
         from nonce_slot slot
         where slot.chain_id = $1 and slot.state in ('signed', 'broadcast')
           and not exists (
               select from lease
               where lower(lease.name) = 'relayer:' || $1::text || ':0x' || encode(slot.signer, 'hex')
                 and lease.expires_at > clock_timestamp() - interval '30 seconds')",
    )
    .bind(bigint(chain_id))
    .fetch_all(&mut *conn)
    .await?;
    let mut left = Vec::with_capacity(rows.len());
    for row in &rows {
        let signer = address("nonce_slot", row.try_get("signer")?)?;
        left.push((signer, list_unsettled_slots(conn, chain_id, signer, u64::MAX >> 1).await?));
    }
    Ok(left)
}

/// Abandons an account's transactions without a block: any account may execute their commands. A transaction that is
/// mined all the same does no harm, because the contracts execute each call once. Returns the number of reopened
/// commands.
pub async fn abandon_slots(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<u64, StoreError> {
    give_up(conn, (chain_id, signer, None), SlotState::Abandoned).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_are_those_of_the_schema() {
        let schema = include_str!("../../../../../migrations/0009_relayer.sql");
        let named: Vec<String> = SlotState::ALL.iter().map(|state| format!("'{}'", state.as_str())).collect();
        assert!(schema.contains(&format!("check (state in ({}))", named.join(", "))));
        for state in SlotState::ALL {
            assert_eq!(SlotState::parse(state.as_str()).unwrap(), state);
        }
        assert!(SlotState::parse("lost").is_err());
    }
}
