//! The open slots, and the load of an account.

use alloy::primitives::Address;
use dvp_domain::chain::CommandKind;
use sqlx::{PgConnection, Row};

use super::{SlotRow, optional_kind, slot_row};
use crate::chain::relay::attempts::list_attempts;
use crate::chain::{address, bigint, unsigned};
use crate::{StoreError, statement};

/// The transactions of one kind that wait for a block on a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// `None`: transactions that only use a nonce.
    pub kind: Option<CommandKind>,
    /// Transactions of the requested account.
    pub own: u64,
    /// The gas limits of all accounts' transactions. Those of another account that stands still count for five minutes.
    pub gas: u64,
}

pub async fn find_load(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<Vec<Load>, StoreError> {
    let sql = "select kind, count(*) filter (where signer = $2) as own, 
                coalesce(sum(gas) filter (where signer = $2 or created_at > clock_timestamp() - interval '5 minutes'),
                         0)::bigint as gas
         from nonce_slot
         where chain_id = $1 and state in ('signed', 'broadcast')
         group by kind";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id), signer.as_slice())).await?;
    rows.iter()
        .map(|row| {
            Ok(Load {
                kind: optional_kind(row)?,
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
    let sql = "select min(nonce) from nonce_slot
         where chain_id = $1 and signer = $2 and state in ('signed', 'broadcast')";
    let lowest: Option<i64> = statement::load_value(conn, sql, (bigint(chain_id), signer.as_slice())).await?;
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
    let sql =
        "select slot.nonce, slot.kind, slot.gas, slot.state, slot.block_hash, carried.stale, carried.commands,
                coalesce(command.reference, '') as reference, coalesce(command.intent_id, '') as intent_id
         from nonce_slot slot
         cross join lateral (
             select coalesce(bool_or(not live and dropped_at is null), false) as stale,
                    count(*) filter (where live) as commands, min(command_id) filter (where live) as first
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
         order by slot.nonce";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id), signer.as_slice(), bigint(mined))).await?;
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

/// Accounts that no process uses any more and that have transactions without a block, or in one that was not judged.
/// Returns the former with each.
pub async fn list_retired(
    conn: &mut PgConnection,
    chain_id: u64,
) -> Result<Vec<(Address, Vec<SlotRow>)>, StoreError> {
    let sql = "select signer
         from (select signer from nonce_slot where chain_id = $1 and state in ('signed', 'broadcast')
               union
               select signer from nonce_slot where chain_id = $1 and state in ('mined', 'final') and not judged) left_by
         where not exists (
             select from lease
             where lower(lease.name) = 'relayer:' || $1::text || ':0x' || encode(left_by.signer, 'hex')
               and lease.expires_at > clock_timestamp() - interval '30 seconds')";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id),)).await?;
    let mut left = Vec::with_capacity(rows.len());
    for row in &rows {
        let signer = address("nonce_slot", row.try_get("signer")?)?;
        left.push((signer, list_unsettled_slots(conn, chain_id, signer, u64::MAX >> 1).await?));
    }
    Ok(left)
}
