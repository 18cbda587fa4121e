//! Nonces in use, and the commands of their transactions.
//!
//! Invariant: a slot becomes `final` only at a final block; commands whose event did not come although the indexer has
//! passed their transaction's block are open again.

mod load;
mod outcomes;

use alloy::primitives::{Address, B256};
use dvp_domain::chain::CommandKind;
use dvp_domain::names::names;
use sqlx::postgres::PgRow;
use sqlx::{PgTransaction, Row};

pub use self::load::{Load, find_load, list_retired, list_unsettled_slots, lowest_waiting};
pub use self::outcomes::{
    abandon_slots, count_failures, finalize_slots, halve_slot, judge_slots, mark_foreign, mark_mined,
    mark_unmined,
};
use super::super::{bigint, hash, unsigned};
use super::attempts::TxAttempt;
use crate::{StoreError, known, statement};

pub(in crate::chain) use self::outcomes::unmine_above;

names! {
    pub enum SlotState {
        /// Signed and stored; it may have reached a node.
        Signed = "signed",
        Broadcast = "broadcast",
        /// In a block that can still be reverted.
        Mined = "mined",
        Final = "final",
        /// Another transaction has used the nonce.
        Foreign = "foreign",
        /// An operator abandoned the transaction.
        Abandoned = "abandoned",
    }
}

/// A nonce in use whose outcome is open.
#[derive(Debug, Clone)]
pub struct SlotRow {
    pub nonce: u64,
    /// `None`: the transaction only uses the nonce.
    pub kind: Option<CommandKind>,
    pub gas: u64,
    pub state: SlotState,
    pub block_hash: Option<B256>,
    /// The newest attempt contains commands that it must no longer execute.
    pub stale: bool,
    pub commands: u64,
    /// Of one of them; empty without any.
    pub reference: String,
    pub intent_id: String,
    /// Oldest first; never empty.
    pub attempts: Vec<TxAttempt>,
}

#[derive(Debug, Clone, Copy)]
pub struct NewSlot<'a> {
    pub nonce: u64,
    /// The kind of commands of its transaction; `None`: the transaction only uses the nonce.
    pub kind: Option<CommandKind>,
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
    let sql = "insert into nonce_slot (chain_id, signer, nonce, kind, gas) values ($1, $2, $3, $4, $5)
         on conflict on constraint nonce_slot_pkey do nothing";
    let parameters = (
        bigint(chain_id),
        signer.as_slice(),
        bigint(slot.nonce),
        slot.kind.map(CommandKind::as_str),
        bigint(slot.gas),
    );
    let done = statement::affected(tx, sql, parameters).await?;
    if done == 0 {
        return Ok(false);
    }
    if slot.commands.is_empty() {
        return Ok(true);
    }
    let sql = "insert into slot_command (chain_id, signer, nonce, command_id) \
         select $1, $2, $3, unnest($4::bigint[])";
    statement::execute(tx, sql, (bigint(chain_id), signer.as_slice(), bigint(slot.nonce), slot.commands))
        .await?;
    let sql = "update chain_command set state = 'sent' where id = any($1) and state = 'pending'";
    let sent = statement::affected(tx, sql, (slot.commands,)).await?;
    let all = u64::try_from(slot.commands.len()).unwrap_or(u64::MAX);
    if sent == all { Ok(true) } else { Err(StoreError::Stale { what: "chain_command" }) }
}

/// Rebuilds a slot's transaction with the remaining commands, as its next `attempt`: the others are dropped from it, and
/// the slot waits for a block. Earlier attempts carry the dropped ones still, and may be included all the same.
pub async fn remake_slot(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    nonce: u64,
    attempt: u64,
    gas: u64,
) -> Result<(), StoreError> {
    let sql = "with dropped as (
             update slot_command set dropped_at = $5
             where chain_id = $1 and signer = $2 and nonce = $3 and not live and dropped_at is null)
         update nonce_slot
         set state = 'signed', gas = $4, block_number = null, block_hash = null, succeeded = null, judged = false,
             kind = case when exists (
                 select from slot_command where chain_id = $1 and signer = $2 and nonce = $3 and live
             ) then kind end
         where chain_id = $1 and signer = $2 and nonce = $3 and state <> 'final'";
    let parameters = (bigint(chain_id), signer.as_slice(), bigint(nonce), bigint(gas), bigint(attempt));
    statement::execute(tx, sql, parameters).await
}

/// The kind of commands of a slot; `None`: its transaction only uses the nonce.
fn optional_kind(row: &PgRow) -> Result<Option<CommandKind>, StoreError> {
    let name: Option<&str> = row.try_get("kind")?;
    name.map(|name| known("nonce_slot", name, CommandKind::parse)).transpose()
}

fn slot_row(row: &PgRow) -> Result<SlotRow, StoreError> {
    let table = "nonce_slot";
    let block_hash: Option<&[u8]> = row.try_get("block_hash")?;
    Ok(SlotRow {
        nonce: unsigned(table, row.try_get("nonce")?)?,
        kind: optional_kind(row)?,
        gas: unsigned(table, row.try_get("gas")?)?,
        state: known(table, row.try_get("state")?, SlotState::parse)?,
        block_hash: block_hash.map(|bytes| hash(table, bytes)).transpose()?,
        stale: row.try_get("stale")?,
        commands: unsigned(table, row.try_get("commands")?)?,
        reference: row.try_get("reference")?,
        intent_id: row.try_get("intent_id")?,
        attempts: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_are_those_of_the_schema() {
        let schema = include_str!("../../../../../migrations/0012_relayer.sql");
        let named: Vec<String> = SlotState::ALL.iter().map(|state| format!("'{}'", state.as_str())).collect();
        assert!(schema.contains(&format!("check (state in ({}))", named.join(", "))));
    }
}
