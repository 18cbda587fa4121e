//! The relayer's commands, until their events were indexed.
//!
//! Invariants: a command is `sent` while it is in a live transaction, and in one at most; it is `done` when the indexer
//! has stored its event, and open again when that event is reverted or did not come.
//!
//! A `create` or `swap` that takes a deposit of the chain's coin is hidden from the relayer, the backlog and the
//! alarms until enough of one by its maker is stored at the confirmation depth, or its lock-by has passed. Nobody
//! else waits for a user's deposit.
//!
//! Kept by
//! `chain-indexer/tests/it/deposits.rs::an_order_is_locked_once_its_maker_has_deposited_enough_and_is_no_backlog_before`
//! and `chain-indexer/tests/it/relaying.rs::an_abandoned_command_is_not_carried_out_after_a_reorg`.

mod accounts;
mod attempts;
mod fees;
mod operators;
mod slots;

pub use accounts::{
    AccountState, RelayerAccount, Share, find_next_nonce, find_share, find_stored_nonce, list_accounts,
    list_signers, note_balance, note_unable, reserve_nonce,
};
pub use attempts::{TxAttempt, insert_attempt, list_attempts, mark_broadcast, note_send_error};
pub use fees::{ChainFees, list_fees, note_fees};
pub use operators::{CommandFilter, CommandState, CommandView, Retried, list_commands, retry_command};
pub use slots::{
    Load, NewSlot, SlotRow, SlotState, abandon_slots, count_failures, finalize_slots, find_load, halve_slot,
    insert_slot, judge_slots, list_retired, list_unsettled_slots, lowest_waiting, mark_foreign, mark_mined,
    mark_unmined, remake_slot,
};

use super::{address, bigint, hash};
use crate::{StoreError, known, statement};
use alloy::primitives::{Address, B256};
use dvp_domain::chain::{BlockNumber, CommandKind};
use dvp_domain::text::{TEXT_MAX, clean};
use dvp_domain::trace::TraceContext;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgTransaction, Row};
use std::time::Duration;

/// A command that waits for its transaction.
#[derive(Debug, Clone)]
pub struct CommandRow {
    pub id: i64,
    pub reference: String,
    pub intent_id: String,
    pub entity: B256,
    /// Of the contracts that it is for.
    pub escrow: Address,
    pub kind: CommandKind,
    pub payload: serde_json::Value,
    /// The payload of the `create` of the same settlement, with the terms that later calls repeat.
    pub lock: Option<serde_json::Value>,
    /// Seconds since its insertion, by the database's clock.
    pub age_ms: i64,
    /// Transactions and simulations that failed.
    pub tries: u32,
    /// The lock that it is about failed permanently. Never set where the engine has acted on the lock's commitment,
    /// which must be restored together with the lock.
    pub lock_given_up: bool,
    /// A payment for a lock on another chain.
    pub is_locked_elsewhere: bool,
    /// A payment of which a transaction was signed: whatever became of that one, it may still be included.
    pub was_signed: bool,
    /// The order's trace. One that cannot be read is none.
    pub trace: Option<TraceContext>,
}

/// Completes commands whose event is in a canonical block above `after` up to `up_to`, and notifies the relayer: the
/// entity's next command is due. One whose goal is the end of a lock that waits at the gate stays open until that is
/// lifted, and one that was committed since the facts were inserted until it has its own. It computes with the chain and the state, so that the planner can only use the entity's index.
pub(super) async fn complete_commands(
    conn: &mut PgConnection,
    chain_id: u64,
    after: BlockNumber,
    up_to: BlockNumber,
) -> Result<u64, StoreError> {
    let sql = "update chain_command command
         set state = 'done', done_at = now(), trouble = null
         from chain_log log
         where log.chain_id = $1 and log.canonical and log.fact is not null
           and log.block_number > $2 and log.block_number <= $3
           and command.chain_id + 0 = $1 and command.entity = log.entity and command.state || '' in ('pending', 'sent')
           and chain_goal_reached(command.kind, log.fact ->> 'kind')
           and exists (
               select from chain_fact fact
               where fact.chain_id = $1 and fact.block_hash = log.block_hash and fact.log_index = log.log_index)
           and not exists (
               select from chain_fact waiting
               where waiting.chain_id = $1 and waiting.block_hash = log.block_hash
                 and waiting.log_index = log.log_index and waiting.gate is not null
                 and waiting.kind in ('settled', 'cancelled', 'refunded')
                 and waiting.consumed_at is null and waiting.retracted_at is null)";
    let done = statement::affected(conn, sql, (bigint(chain_id), bigint(after.0), bigint(up_to.0))).await?;
    wake(conn, done).await
}

/// Completes the commands of facts whose gates were lifted.
pub(super) async fn complete_lifted(conn: &mut PgConnection, facts: &[i64]) -> Result<u64, StoreError> {
    let sql = "update chain_command command
         set state = 'done', done_at = now(), trouble = null
         from chain_fact fact
         where fact.id = any($1) and fact.gate is null and fact.retracted_at is null
           and command.entity = fact.entity and command.chain_id + 0 = fact.chain_id
           and command.state || '' in ('pending', 'sent') and chain_goal_reached(command.kind, fact.kind)";
    let done = statement::affected(conn, sql, (facts,)).await?;
    wake(conn, done).await
}

/// Whether an event that reaches the command's goal is in a canonical block, at whatever depth and gate.
pub async fn has_goal_event(conn: &mut PgConnection, chain_id: u64, id: i64) -> Result<bool, StoreError> {
    let sql = "select exists (
             select from chain_command command
             join chain_log log on log.chain_id = $1 and log.entity = command.entity and log.canonical
             where command.id = $2 and chain_goal_reached(command.kind, log.fact ->> 'kind'))";
    statement::load_value(conn, sql, (bigint(chain_id), id)).await
}

/// As [`complete_command`](super::complete_command): for all open commands, or for one.
pub(super) async fn complete_late_commands(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    id: Option<i64>,
) -> Result<u64, StoreError> {
    hold_cursor(tx, chain_id).await?;
    let sql = "update chain_command command
         set state = 'done', done_at = now(), trouble = null
         from chain_log log, chain_cursor cursor
         where command.chain_id = $1 and command.state in ('pending', 'sent')
           and ($2::bigint is null or command.id = $2)
           and cursor.chain_id = $1 and log.chain_id = $1 and log.canonical
           and log.entity = command.entity and log.block_number <= cursor.facts_number
           and chain_goal_reached(command.kind, log.fact ->> 'kind')
           and exists (
               select from chain_fact fact
               where fact.chain_id = $1 and fact.block_hash = log.block_hash and fact.log_index = log.log_index)
           and not exists (
               select from chain_fact waiting
               where waiting.chain_id = $1 and waiting.block_hash = log.block_hash
                 and waiting.log_index = log.log_index and waiting.gate is not null
                 and waiting.kind in ('settled', 'cancelled', 'refunded')
                 and waiting.consumed_at is null and waiting.retracted_at is null)";
    let done = statement::affected(tx, sql, (bigint(chain_id), id)).await?;
    wake(tx, done).await
}

/// Keeps the indexer from retracting events between the following reads and the commit.
pub(super) async fn hold_cursor(tx: &mut PgTransaction<'_>, chain_id: u64) -> Result<(), StoreError> {
    statement::execute(tx, "select from chain_cursor where chain_id = $1 for share", (bigint(chain_id),))
        .await
}

async fn wake(conn: &mut PgConnection, changed: u64) -> Result<u64, StoreError> {
    if changed > 0 {
        statement::execute(conn, "select pg_notify('dvp_commands', '')", ()).await?;
    }
    Ok(changed)
}

/// Reopens commands completed by events above a block, which are about to be reverted. Commands in a live transaction
/// without an earlier block, or whose block was reverted already, are broadcast again unchanged, the others are
/// simulated again. Transactions of blocks above wait for a block again.
pub(super) async fn reopen_above(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    number: BlockNumber,
) -> Result<(), StoreError> {
    let sql = "with undone as (
             select distinct command.id
             from chain_log log
             join chain_command command on command.chain_id = $1 and command.entity = log.entity
             where log.chain_id = $1 and log.canonical and log.block_number > $2 and log.fact is not null
               and command.state = 'done' and chain_goal_reached(command.kind, log.fact ->> 'kind')
         ), under_way as (
             select carried.command_id as id
             from undone
             join slot_command carried on carried.command_id = undone.id and carried.live
             join nonce_slot slot using (chain_id, signer, nonce)
             where slot.state in ('signed', 'broadcast')
                or (slot.state in ('mined', 'final') and slot.block_number > $2)
                or (slot.state = 'mined' and exists (
                    select from chain_block other
                    where other.chain_id = $1 and other.number = slot.block_number and other.canonical
                      and other.hash <> slot.block_hash))
         ), dropped as (
             update slot_command set live = false
             where live and command_id in (select id from undone except select id from under_way)
         )
         update chain_command command
         set state = case when id in (select id from under_way) then 'sent' else 'pending' end, done_at = null
         where id in (select id from undone)";
    statement::execute(tx, sql, (bigint(chain_id), bigint(number.0))).await?;
    slots::unmine_above(tx, chain_id, number).await
}

/// The kinds of which commands of an account's share may be due: one look instead of one for each kind, of which most have
/// none.
pub async fn list_due_kinds(
    conn: &mut PgConnection,
    chain_id: u64,
    share: Share,
) -> Result<Vec<CommandKind>, StoreError> {
    let sql = "select kind from unnest($4::text[]) as kinds (kind)
         where exists (select from chain_command command
                       where chain_id = $1 and command.kind = kinds.kind and state = 'pending'
                         and not_before <= now() and share % $2 = $3
                         and (deposit_until is null or deposit_until < now()))";
    let kinds = CommandKind::ALL.map(CommandKind::as_str);
    let due: Vec<(String,)> =
        statement::list(conn, sql, (bigint(chain_id), share.count, share.index, &kinds[..])).await?;
    due.iter().map(|(kind,)| known("chain_command", kind, CommandKind::parse)).collect()
}

/// Due commands of one kind without a live transaction, oldest first, of one account's share. Only the oldest open
/// command of an entity on the chain is due, and no command of a wallet whose earlier nonces wait for a block, because
/// it could not succeed. A payment on another chain that stands still does not hold up the release of its lock, and it
/// waits while the chain of its lock is halted. A command that takes a deposit is due once the deposit is there, or once
/// it is too late for it. An anchor is due once each transaction that ever carried it is final and judged, or given up.
///
/// The subquery on the entity computes with the chain and the state, so that the planner can only use the entity's index,
/// whatever its statistics: by an index of open commands it would read all of them for each. That on an anchor's
/// transactions is an aggregate, so that they are not read for all anchors at once.
pub async fn list_ready_commands(
    conn: &mut PgConnection,
    chain_id: u64,
    kind: CommandKind,
    share: Share,
    limit: usize,
) -> Result<Vec<CommandRow>, StoreError> {
    let sql = "select id, reference, intent_id, entity, escrow, kind, payload, tries, trace,
                case when kind not in ('create', 'swap', 'anchor') then
                    (select locking.payload from chain_command locking
                     where locking.chain_id = $1 and locking.entity = command.entity and locking.kind = 'create'
                     order by locking.id limit 1) end as lock,
                case when kind not in ('create', 'swap', 'anchor') then
                    exists (select from chain_command locking
                            where locking.chain_id = $1 and locking.entity = command.entity
                              and locking.kind = 'create' and locking.state = 'failed')
                    and not exists (select from chain_fact reported
                                    where reported.chain_id = $1 and reported.entity = command.entity and reported.kind = 'filled'
                                      and reported.consumed_at is not null)
                    else false end as lock_given_up,
                kind = 'transfer' and chain_is_gated(chain_id, entity, 'transferred') as is_locked_elsewhere,
                case when kind = 'transfer' then
                    (select count(*) from slot_command carried where carried.command_id = command.id) > 0
                    else false end as was_signed,
                (extract(epoch from now() - created_at) * 1000)::bigint as age_ms
         from chain_command command
         where chain_id = $1 and kind = $2 and state = 'pending' and not_before <= now() and share % $3 = $4
           and (deposit_until is null or deposit_until < now())
           and (select bool_or(earlier.state in ('pending', 'sent')) from chain_command earlier
                where earlier.entity = command.entity and earlier.id < command.id and earlier.chain_id + 0 = $1) is not true
           and (kind <> 'transfer' or not exists (
               select from chain_command locking join chain_cursor on chain_cursor.chain_id = locking.chain_id
               where locking.entity = command.entity and locking.kind = 'create' and locking.chain_id + 0 <> $1
                 and halted is not null))
           and (wallet is null or not exists (
               select from chain_command before
               join slot_command carried on carried.command_id = before.id and carried.live
               join nonce_slot slot on (slot.chain_id, slot.signer, slot.nonce)
                                     = (carried.chain_id, carried.signer, carried.nonce)
               where before.chain_id = $1 and before.wallet = command.wallet and before.state = 'sent'
                 and before.permit_nonce < command.permit_nonce and slot.state in ('signed', 'broadcast')))
           and (kind <> 'anchor' or (
               select bool_or(slot.state in ('signed', 'broadcast', 'mined') or slot.state = 'final' and not slot.judged)
               from slot_command carried join nonce_slot slot using (chain_id, signer, nonce)
               where carried.command_id = command.id) is not true)
         order by not_before, id
         limit $5";
    let parameters =
        (bigint(chain_id), kind.as_str(), share.count, share.index, i64::try_from(limit).unwrap_or(i64::MAX));
    let rows = statement::list_rows(conn, sql, parameters).await?;
    rows.iter().map(command_row).collect()
}

/// The live commands of a nonce's transaction, in the order of their permits.
pub async fn list_live_commands(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: alloy::primitives::Address,
    nonce: u64,
) -> Result<Vec<CommandRow>, StoreError> {
    let sql = "select id, reference, intent_id, entity, escrow, kind, payload, tries, trace,
                (select locking.payload from chain_command locking
                 where locking.chain_id = $1 and locking.entity = command.entity and locking.kind = 'create'
                   and command.kind not in ('create', 'swap', 'anchor')
                 order by locking.id limit 1) as lock,
                false as lock_given_up,
                false as is_locked_elsewhere,
                kind = 'transfer' as was_signed,
                (extract(epoch from now() - created_at) * 1000)::bigint as age_ms
         from slot_command carried
         join chain_command command on command.id = carried.command_id
         where carried.chain_id = $1 and carried.signer = $2 and carried.nonce = $3 and carried.live
         order by permit_nonce nulls first, id";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id), signer.as_slice(), bigint(nonce))).await?;
    rows.iter().map(command_row).collect()
}

fn command_row(row: &PgRow) -> Result<CommandRow, StoreError> {
    let tries: i32 = row.try_get("tries")?;
    Ok(CommandRow {
        id: row.try_get("id")?,
        reference: row.try_get("reference")?,
        intent_id: row.try_get("intent_id")?,
        entity: hash("chain_command", row.try_get("entity")?)?,
        escrow: address("chain_command", row.try_get("escrow")?)?,
        kind: known("chain_command", row.try_get("kind")?, CommandKind::parse)?,
        payload: row.try_get("payload")?,
        lock: row.try_get("lock")?,
        age_ms: row.try_get("age_ms")?,
        tries: u32::try_from(tries).unwrap_or(0),
        lock_given_up: row.try_get("lock_given_up")?,
        is_locked_elsewhere: row.try_get("is_locked_elsewhere")?,
        was_signed: row.try_get("was_signed")?,
        trace: row.try_get::<Option<&str>, _>("trace")?.and_then(|text| text.parse().ok()),
    })
}

/// Makes those commands due whose deposit is there, at the confirmation depth: what the maker's last event of the gate
/// leaves under the entity covers the amount. `gates`: of each set of contracts, its escrow and its gate. Returns their
/// number.
pub async fn release_deposited(
    conn: &mut PgConnection,
    chain_id: u64,
    gates: &[(Address, Address)],
) -> Result<u64, StoreError> {
    let (escrows, gates): (Vec<_>, Vec<_>) =
        gates.iter().map(|(escrow, gate)| (escrow.as_slice(), gate.as_slice())).unzip();
    let sql = "update chain_command command
         set deposit_until = null
         from (
             select waiting.id, (
                 select log.deposit ->> 'total' from chain_log log
                 where log.entity = waiting.entity and log.chain_id + 0 = $1 and log.canonical
                   and log.deposit ->> 'depositor' = waiting.wallet and log.contract = own.gate
                   and log.block_number <= cursor.facts_number
                 order by log.block_number desc, log.log_index desc
                 limit 1
             )::numeric as total
             from chain_command waiting join chain_cursor cursor on cursor.chain_id = waiting.chain_id
             join unnest($2::bytea[], $3::bytea[]) as own (escrow, gate) on own.escrow = waiting.escrow
             where waiting.chain_id = $1 and waiting.state = 'pending' and waiting.deposit_until is not null
               and waiting.not_before <= now()
         ) deposited
         where command.id = deposited.id and command.state = 'pending'
           and deposited.total >= (command.payload ->> 'amount')::numeric";
    statement::affected(conn, sql, (bigint(chain_id), escrows, gates)).await
}

/// Lets a command wait for its deposit again, of which the chain had too little: it was taken back, or a reorganization
/// has removed it. It is looked at again after `delay_ms` at the earliest.
pub async fn await_deposit(
    conn: &mut PgConnection,
    id: i64,
    until: u64,
    delay_ms: i64,
) -> Result<(), StoreError> {
    let sql = "update chain_command
         set deposit_until = to_timestamp($2), not_before = clock_timestamp() + $3 * interval '1 millisecond'
         where id = $1 and state = 'pending'";
    statement::execute(conn, sql, (id, bigint(until), delay_ms)).await
}

/// Postpones commands that are not due yet.
pub async fn defer_commands(conn: &mut PgConnection, ids: &[i64], delay_ms: i64) -> Result<(), StoreError> {
    let sql = "update chain_command
         set not_before = clock_timestamp() + $2 * interval '1 millisecond'
         where id = any($1) and state = 'pending'";
    statement::execute(conn, sql, (ids, delay_ms)).await
}

/// Records a rejection that is not final: the command is simulated again after `wait`. A row that is locked stays as it
/// is: the others do not wait for it.
pub async fn trouble_command(
    conn: &mut PgConnection,
    id: i64,
    reason: &str,
    wait: Duration,
) -> Result<(), StoreError> {
    let sql = "update chain_command
         set tries = tries + 1, trouble = $2, troubled_at = clock_timestamp(),
             not_before = clock_timestamp() + make_interval(secs => $3)
         where id in (select id from chain_command where id = $1 and state = 'pending' for update skip locked)";
    statement::execute(conn, sql, (id, clean(reason, TEXT_MAX), wait.as_secs_f64())).await
}

/// Locks commands for a new transaction until the database transaction ends. `false`: one of them is not waiting any
/// more, or another account is processing it.
pub async fn lock_commands(tx: &mut PgTransaction<'_>, ids: &[i64]) -> Result<bool, StoreError> {
    let sql = "select id from chain_command
         where id = any($1) and state = 'pending'
         order by id
         for update skip locked";
    let rows = statement::list_rows(tx, sql, (ids,)).await?;
    Ok(rows.len() == ids.len())
}

/// The number of waiting commands of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRow {
    pub kind: CommandKind,
    pub waiting: i64,
    /// Of them, those that were rejected for a reason that is not final.
    pub troubled: i64,
    pub oldest_seconds: i64,
}

/// The commands that wait for a transaction on a chain, by kind. One that waits for a deposit of the user does not.
pub async fn count_waiting(conn: &mut PgConnection, chain_id: u64) -> Result<Vec<WaitingRow>, StoreError> {
    let sql = "select kind, count(*) as waiting, count(trouble) as troubled,
                extract(epoch from now() - min(created_at))::bigint as oldest_seconds
         from chain_command
         where chain_id = $1 and state = 'pending' and deposit_until is null
         group by kind";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id),)).await?;
    rows.iter()
        .map(|row| {
            Ok(WaitingRow {
                kind: known("chain_command", row.try_get("kind")?, CommandKind::parse)?,
                waiting: row.try_get("waiting")?,
                troubled: row.try_get("troubled")?,
                oldest_seconds: row.try_get("oldest_seconds")?,
            })
        })
        .collect()
}
