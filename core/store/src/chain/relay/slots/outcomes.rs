//! The outcomes of a transaction: mined, reverted by a reorganization, abandoned, final.

use alloy::primitives::{Address, B256};
use dvp_domain::chain::BlockNumber;
use sqlx::{PgConnection, PgTransaction};

use super::SlotState;
use crate::chain::bigint;
use crate::{StoreError, statement};

/// How long a command waits after a transaction that did not carry it out, by the number of earlier ones in a block.
macro_rules! wait_after_failures {
    () => {
        "interval '1 second'
                 * least(case when command.kind in ('fill', 'settle', 'cancel', 'return_filled', 'refund')
                              then 60 else 600 end,
                         power(2, least(10, (
                             select count(*) from slot_command failed
                             join nonce_slot earlier using (chain_id, signer, nonce)
                             where failed.command_id = command.id and not failed.live and failed.dropped_at is null
                               and earlier.state in ('mined', 'final')))))"
    };
}

/// In how many blocks a transaction did not carry a command out.
pub async fn count_failures(conn: &mut PgConnection, command: i64) -> Result<i64, StoreError> {
    let sql =
        "select count(*) from slot_command failed join nonce_slot earlier using (chain_id, signer, nonce)
         where failed.command_id = $1 and not failed.live and failed.dropped_at is null
           and earlier.state in ('mined', 'final')";
    statement::load_value(conn, sql, (command,)).await
}

/// One of the slot's attempts is in a block; `is_final`: in a final block, unless another block of its number is
/// indexed, because a node may still report an abandoned fork. When it failed, its commands are open again; anchors
/// wait for [`judge_slots`].
///
/// Commands that a transaction did not carry out are due after a second, doubled with each such transaction, up to ten
/// minutes: each costs gas, and a contract that is called may succeed in every simulation and fail in the block. Those
/// about a lock, whose timelock approaches, wait for a minute at most. Earlier refusals cost no gas and do not count.
pub async fn mark_mined(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
    block: (BlockNumber, B256),
    succeeded: bool,
    is_final: bool,
) -> Result<(), StoreError> {
    let sql = concat!(
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
             troubled_at = clock_timestamp(),
             not_before = clock_timestamp() + ",
        wait_after_failures!(),
        "
         from undone
         where command.id = undone.command_id and command.state = 'sent'",
    );
    let parameters = (
        bigint(chain_id),
        signer.as_slice(),
        bigint(nonce),
        bigint(block.0.0),
        block.1.as_slice(),
        succeeded,
        is_final,
    );
    statement::execute(conn, sql, parameters).await
}

/// The slot's block was reverted, and its transaction must be broadcast again.
pub async fn mark_unmined(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<(), StoreError> {
    let sql = "update nonce_slot
         set state = 'broadcast', block_number = null, block_hash = null, succeeded = null, judged = false
         where chain_id = $1 and signer = $2 and nonce = $3 and state = 'mined'";
    statement::execute(conn, sql, (bigint(chain_id), signer.as_slice(), bigint(nonce))).await
}

/// The blocks above a number are about to be reverted: their transactions wait for a block again.
pub(in crate::chain) async fn unmine_above(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    number: BlockNumber,
) -> Result<(), StoreError> {
    let sql = "update nonce_slot
         set state = 'broadcast', block_number = null, block_hash = null, succeeded = null, judged = false
         where chain_id = $1 and state in ('mined', 'final') and block_number > $2";
    statement::execute(tx, sql, (bigint(chain_id), bigint(number.0))).await
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
    let sql = "with slot as (
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
         where command.id = undone.command_id and command.state = 'sent'";
    statement::affected(conn, sql, (bigint(chain_id), signer.as_slice(), nonce.map(bigint), state.as_str()))
        .await
}

/// Takes the later half of the commands out of a transaction that waits for a block: they are open again. Returns their
/// number, none of a transaction with one command. Anchors among them wait until the nonce's transaction is final
/// (`list_ready_commands`), because an earlier attempt may carry them still, and a hash can be anchored twice.
pub async fn halve_slot(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    nonce: u64,
) -> Result<u64, StoreError> {
    let sql = "with slot as (
             select nonce from nonce_slot
             where chain_id = $1 and signer = $2 and nonce = $3 and state in ('signed', 'broadcast')
             for update
         ), live as (
             select command_id, row_number() over (order by command_id) as place, count(*) over () as commands
             from slot_command join slot using (nonce)
             where chain_id = $1 and signer = $2 and live
         ), undone as (
             update slot_command carried set live = false
             from live
             where carried.chain_id = $1 and carried.signer = $2 and carried.nonce = $3
               and carried.command_id = live.command_id and live.commands > 1 and live.place * 2 > live.commands
             returning carried.command_id
         )
         update chain_command command
         set state = 'pending'
         from undone
         where command.id = undone.command_id and command.state = 'sent'";
    statement::affected(tx, sql, (bigint(chain_id), signer.as_slice(), bigint(nonce))).await
}

/// For successful transactions in blocks that the indexer has passed: commands that a batch skipped because they failed
/// are open again. Returns their number.
///
/// One that has failed in the transaction (`ItemFailed`) is due after a while; one that the batch had no gas for is due at
/// once, because another one used it.
///
/// A command whose event waits for the other endpoints was not skipped. Its transaction is judged again once that event
/// is believed, or retracted.
///
/// The contracts refuse to execute any other call twice; a hash can be anchored twice. An anchor that is missing, or
/// whose transaction failed, is therefore open again only once that transaction is final: in another fork it could
/// still be anchored.
pub async fn judge_slots(conn: &mut PgConnection, chain_id: u64, signer: Address) -> Result<u64, StoreError> {
    let sql = concat!(
        "with passed as (
             select slot.nonce, slot.block_hash, slot.succeeded
             from nonce_slot slot, chain_cursor cursor
             where slot.chain_id = $1 and slot.signer = $2 and slot.state in ('mined', 'final')
               and not slot.judged and (slot.succeeded or slot.kind = 'anchor')
               and (slot.state = 'final' or slot.kind is distinct from 'anchor')
               and cursor.chain_id = $1 and slot.block_number <= cursor.facts_number
               and (slot.state = 'final' or exists (
                   select from chain_block block
                   where block.chain_id = $1 and block.hash = slot.block_hash and block.canonical))
             for update of slot
         ), missing as (
             select carried.nonce, carried.command_id, exists (
                 select from chain_fact waiting
                 where waiting.chain_id = $1 and waiting.entity = command.entity and waiting.gate is not null
                   and waiting.kind in ('settled', 'cancelled', 'refunded')
                   and waiting.consumed_at is null and waiting.retracted_at is null
                   and chain_goal_reached(command.kind, waiting.kind)) as waits,
                 not passed.succeeded
                 or (select count(*) from slot_command beside
                     where beside.chain_id = $1 and beside.signer = $2 and beside.nonce = passed.nonce) = 1
                 or exists (select from chain_log failure
                            where failure.entity = command.entity and failure.chain_id + 0 = $1
                              and failure.block_hash = passed.block_hash and failure.event = 'ItemFailed')
                 as failed
             from passed
             join slot_command carried on carried.chain_id = $1 and carried.signer = $2
               and carried.nonce = passed.nonce and carried.live
             join chain_command command on command.id = carried.command_id and command.state = 'sent'
         ), judged as (
             update nonce_slot slot set judged = true
             from passed
             where slot.chain_id = $1 and slot.signer = $2 and slot.nonce = passed.nonce
               and not exists (select from missing where missing.nonce = slot.nonce and missing.waits)
         ), undone as (
             update slot_command carried set live = false
             from missing
             where carried.chain_id = $1 and carried.signer = $2 and carried.nonce = missing.nonce
               and carried.command_id = missing.command_id and carried.live and not missing.waits
             returning carried.command_id, missing.failed
         )
         update chain_command command
         set state = 'pending', tries = tries + undone.failed::int,
             trouble = case when undone.failed then 'its transaction left it out' end,
             troubled_at = case when undone.failed then clock_timestamp() end,
             not_before = clock_timestamp() + case when undone.failed then ",
        wait_after_failures!(),
        " else interval '0' end
         from undone
         where command.id = undone.command_id and command.state = 'sent'",
    );
    statement::affected(conn, sql, (bigint(chain_id), signer.as_slice())).await
}

/// Marks slots mined in final canonical blocks as final.
pub async fn finalize_slots(conn: &mut PgConnection, chain_id: u64) -> Result<u64, StoreError> {
    let sql = "update nonce_slot slot
         set state = 'final'
         from chain_cursor cursor, chain_block block
         where slot.chain_id = $1 and slot.state = 'mined' and cursor.chain_id = $1
           and slot.block_number <= cursor.final_number
           and block.chain_id = $1 and block.hash = slot.block_hash and block.canonical";
    statement::affected(conn, sql, (bigint(chain_id),)).await
}

/// Abandons an account's transactions without a block: any account may execute their commands. A transaction that is
/// mined later does no harm, because the contracts execute each call once. Returns the number of reopened commands.
pub async fn abandon_slots(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<u64, StoreError> {
    give_up(conn, (chain_id, signer, None), SlotState::Abandoned).await
}
