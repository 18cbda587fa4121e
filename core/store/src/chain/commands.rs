//! Chain commands as the engine inserts and reads them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

use crate::orders::executions::{bytes20, bytes32};
use crate::{StoreError, statement};
use dvp_domain::chain::ChainCommand;
use dvp_domain::trace::TraceContext;

#[derive(Debug, Clone)]
pub struct NewChainCommand {
    pub chain_id: i64,
    pub reference: String,
    pub intent_id: String,
    /// The subject's id on the chain: the settlement's id, or a receipt's content hash.
    pub entity: String,
    /// Of the contracts that it is for: its order's.
    pub escrow: String,
    pub command: ChainCommand,
    pub trace: Option<TraceContext>,
}

/// Inserts a command, or replaces the order's earlier one that failed or was refused. `false`: the earlier one is
/// waiting, in a transaction or done, and stays.
pub async fn insert_again(conn: &mut PgConnection, new: &NewChainCommand) -> Result<bool, StoreError> {
    let sql = "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload, trace) \
         values ($1, $2, $3, $4, $5, $6, $7, $8) \
         on conflict (reference, kind) do update \
         set payload = excluded.payload, state = 'pending', done_at = null, not_before = now(), tries = 0, \
             trouble = null, troubled_at = null \
         where chain_command.state = 'failed' \
               or chain_command.state = 'pending' and chain_command.trouble is not null";
    let parameters = (
        new.chain_id,
        &new.reference,
        &new.intent_id,
        bytes32(&new.entity)?,
        bytes20(&new.escrow)?,
        new.command.kind().as_str(),
        payload(new)?,
        new.trace.map(String::from),
    );
    let done = statement::affected(conn, sql, parameters).await?;
    statement::execute(conn, "select pg_notify('dvp_commands', '')", ()).await?;
    Ok(done == 1)
}

pub(crate) fn payload(new: &NewChainCommand) -> Result<Value, StoreError> {
    serde_json::to_value(&new.command).map_err(|error| StoreError::corrupt("chain_command", error))
}

/// The commands of an entity on a chain that request a lock, a fill or a payment, oldest first.
pub async fn list_requested(
    conn: &mut PgConnection,
    chain_id: i64,
    entity: &[u8],
) -> Result<Vec<ChainCommand>, StoreError> {
    let sql = "select payload from chain_command \
         where entity = $1 and chain_id + 0 = $2 and kind in ('create', 'fill', 'transfer', 'swap') order by id";
    let rows: Vec<Value> = statement::list_values(conn, sql, (entity, chain_id)).await?;
    let command = |payload| {
        serde_json::from_value(payload).map_err(|error| StoreError::corrupt("chain_command", error))
    };
    rows.into_iter().map(command).collect()
}

/// Takes the times of a lock or a swap into its command, which later calls repeat, when the chain had it before the command
/// was written: it was requested before, and a restore has forgotten that. `false`: the command is older.
pub async fn adopt_times(
    conn: &mut PgConnection,
    chain_id: i64,
    entity: &[u8],
    block_time: DateTime<Utc>,
    times: &Value,
) -> Result<bool, StoreError> {
    let sql = "update chain_command set payload = payload || $4 \
         where entity = $1 and chain_id + 0 = $2 and kind in ('create', 'swap') and created_at > $3";
    Ok(statement::affected(conn, sql, (entity, chain_id, block_time, times)).await? > 0)
}

/// The open commands, without anchors, and the number completed lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenCommands {
    /// Commands of higher priority than a lock.
    pub urgent: u64,
    pub locks: u64,
    pub swaps: u64,
    /// Completed within the requested time.
    pub done: u64,
}

/// Counts open commands by priority, without those that wait for a deposit of the user, and those completed in the last `window`.
pub async fn count_open(
    conn: &mut PgConnection,
    chain_id: i64,
    window: Duration,
) -> Result<OpenCommands, StoreError> {
    let sql = "select count(*) filter (where kind not in ('create', 'swap')), count(*) filter (where kind = \
                'create'), count(*) filter (where kind = 'swap'), \
                (select count(*) from chain_command \
                 where chain_id = $1 and state = 'done' and kind <> 'anchor' \
                   and done_at > now() - make_interval(secs => $2)) \
         from chain_command \
         where chain_id = $1 and state in ('pending', 'sent') and kind <> 'anchor' and deposit_until is null";
    let (urgent, locks, swaps, done): (i64, i64, i64, i64) =
        statement::load(conn, sql, (chain_id, window.as_secs_f64())).await?;
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(OpenCommands {
        urgent: number(urgent),
        locks: number(locks),
        swaps: number(swaps),
        done: number(done),
    })
}

/// The state of an execution's payment in tokens, if it was requested.
pub async fn find_transfer_state(
    conn: &mut PgConnection,
    reference: &str,
) -> Result<Option<String>, StoreError> {
    let sql =
        "select state from chain_command where reference = $1 and kind = 'transfer' order by id limit 1";
    statement::find_value(conn, sql, (reference,)).await
}

/// Whether a transaction with an order's payment in tokens may still be included, or was without its event having been
/// read: it was signed, and no final block that was read has its nonce. A transaction that the relayer has given up may be
/// included all the same. The command stays locked until the transaction ends: no transaction is signed meanwhile.
pub async fn may_transfer_be_included(conn: &mut PgConnection, reference: &str) -> Result<bool, StoreError> {
    let sql = "select from chain_command where reference = $1 and kind = 'transfer' order by id for update";
    statement::execute(conn, sql, (reference,)).await?;
    let sql = "select exists (select from chain_command c join slot_command s on s.command_id = c.id \
                             join nonce_slot n on (n.chain_id, n.signer, n.nonce) = (s.chain_id, s.signer, s.nonce) \
                        where c.reference = $1 and c.kind = 'transfer' \
                          and (n.state in ('signed', 'broadcast', 'mined', 'abandoned') \
                               or (n.state = 'final' and not n.judged)))";
    statement::load_value(conn, sql, (reference,)).await
}

/// Withdraws a payment in tokens of which no transaction was made.
pub async fn withdraw_transfer(conn: &mut PgConnection, reference: &str) -> Result<(), StoreError> {
    let sql = "update chain_command set state = 'failed', done_at = now() \
         where reference = $1 and kind = 'transfer' and state = 'pending'";
    statement::execute(conn, sql, (reference,)).await
}

/// Condition of a lock or swap that is in no transaction and can be withdrawn: nobody waits for the deposit of a coin.
macro_rules! unsigned_lock {
    () => {
        "c.kind in ('create', 'swap') and c.state = 'pending' and c.deposit_until is null \
         and not exists (select from slot_command s where s.command_id = c.id)"
    };
}

pub(crate) use unsigned_lock;

/// Whether an order's lock can be withdrawn: it is in no transaction, and no later permit of its wallet waits behind it.
pub async fn can_withdraw_lock(conn: &mut PgConnection, reference: &str) -> Result<bool, StoreError> {
    let sql = concat!(
        "select exists (select from chain_command c where c.reference = $1 and ",
        unsigned_lock!(),
        " and not exists (select from permit_use later \
                          where later.chain_id = c.chain_id and later.owner = c.wallet \
                            and later.nonce > c.permit_nonce and later.locked_at is null))"
    );
    statement::load_value(conn, sql, (reference,)).await
}

/// Withdraws the locks of orders. [`StoreError::Stale`]: one is part of a transaction by now.
pub async fn withdraw_locks(conn: &mut PgConnection, references: &[&str]) -> Result<(), StoreError> {
    let sql = concat!(
        "update chain_command c set state = 'failed', done_at = now(), trouble = null \
         where c.reference = any($1) and ",
        unsigned_lock!()
    );
    let withdrawn = statement::affected(conn, sql, (references,)).await?;
    let all = u64::try_from(references.len()).unwrap_or(u64::MAX);
    if withdrawn == all { Ok(()) } else { Err(StoreError::Stale { what: "chain_command" }) }
}

/// Withdraws the commitments of orders. A transaction with one that waits for a block is rebuilt without it.
pub async fn withdraw_fills(conn: &mut PgConnection, references: &[&str]) -> Result<(), StoreError> {
    withdraw(conn, references, &["fill"]).await
}

/// Withdraws what returns an order's committed funds, in the same way.
pub async fn withdraw_returns(conn: &mut PgConnection, reference: &str) -> Result<(), StoreError> {
    withdraw(conn, &[reference], &["refund", "return_filled"]).await
}

async fn withdraw(conn: &mut PgConnection, references: &[&str], kinds: &[&str]) -> Result<(), StoreError> {
    let sql = "update chain_command set state = 'failed', done_at = now(), trouble = null \
         where reference = any($1) and kind = any($2) and state in ('pending', 'sent') returning id";
    let withdrawn: Vec<i64> = statement::list_values(conn, sql, (references, kinds)).await?;
    // A statement of its own: it sees the transaction that the first one may have waited for.
    let sql = "update slot_command set live = false where live and command_id = any($1)";
    statement::execute(conn, sql, (withdrawn,)).await
}

/// The chain of an order's lock, and the escrow that has it.
pub async fn find_lock_place(conn: &mut PgConnection, reference: &str) -> Result<(i64, String), StoreError> {
    let sql = "select chain_id, '0x' || encode(escrow, 'hex') from chain_command \
         where reference = $1 and kind = 'create' order by id limit 1";
    let place: Option<(i64, String)> = statement::find(conn, sql, (reference,)).await?;
    place.ok_or_else(|| StoreError::corrupt("chain_command", "a lock without a command"))
}

/// Orders whose input is due to be refunded `$1` seconds after their timelock: failed ones whose funds are still locked,
/// and others whose settle has missed it and whose recipient was provably not paid: an owed payout that has failed, or one
/// that has come back.
macro_rules! held {
    () => {
        "with held as ( \
             select reference from execution \
             where held_until < (extract(epoch from now())::int8 - $1) * 1000 and state ->> 'debt_returned' is null \
             union all \
             select e.reference from execution e \
             where e.terminal_at is null and e.state_name in ('owing', 'releasing') and e.state ->> 'settle_tx' is null \
               and e.state #>> '{lock,refunded}' = 'false' and e.state #>> '{lock,lost}' = 'false' \
               and (e.state #>> '{lock,timelock_expires_at}')::int8 < (extract(epoch from now())::int8 - $1) * 1000 \
               and (e.state_name = 'owing' and e.state #>> '{failure,code}' <> 'chain_lost' \
                    or e.state_name = 'releasing' \
                       and exists (select from bank_payment b where b.execution = e.reference \
                                     and b.returned_at is not null \
                                     and not coalesce(b.taken_back_at >= b.returned_at, false)))) "
    };
}

/// Of these, those without a refund. While the bank contradicts that the payout has failed nothing is returned; a refund
/// that was withdrawn because of it is requested again when operators have closed that.
macro_rules! due_refunds {
    () => {
        " from held join chain_command lock on lock.reference = held.reference and lock.kind = 'create' \
          where not exists (select from bank_payment b where b.execution = held.reference and b.closed_at is null \
                              and (b.contradicting is not null or b.status = 'paid')) \
            and not exists (select from chain_command requested \
                            where requested.reference = held.reference and requested.kind = 'refund' \
                              and not (requested.state = 'failed' \
                                       and exists (select from bank_payment b where b.execution = held.reference \
                                                     and b.closed_at > requested.done_at))) "
    };
}

/// Orders whose refund is due `over_secs` after their timelock and not requested, in the order of their references.
pub async fn list_due_refunds(
    conn: &mut PgConnection,
    over_secs: i64,
    after: &str,
    limit: i64,
) -> Result<Vec<String>, StoreError> {
    let sql = concat!(
        held!(),
        "select held.reference",
        due_refunds!(),
        "and held.reference > $2 order by held.reference limit $3"
    );
    statement::list_values(conn, sql, (over_secs, after, limit)).await
}

/// Inserts the `refund` of an order if it is due. `false`: it is not, or was requested before.
pub async fn insert_refund(
    conn: &mut PgConnection,
    over_secs: i64,
    reference: &str,
) -> Result<bool, StoreError> {
    let sql = concat!(
        held!(),
        "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload) \
         select lock.chain_id, held.reference, lock.intent_id, lock.entity, lock.escrow, 'refund', \
                jsonb_build_object('kind', 'refund', 'entity', '0x' || encode(lock.entity, 'hex'))",
        due_refunds!(),
        "and held.reference = $2 on conflict (reference, kind) do update \
         set state = 'pending', done_at = null, not_before = now(), tries = 0, trouble = null, troubled_at = null \
         where chain_command.state = 'failed'"
    );
    let inserted = statement::affected(conn, sql, (over_secs, reference)).await?;
    if inserted > 0 {
        statement::execute(conn, "select pg_notify('dvp_commands', '')", ()).await?;
    }
    Ok(inserted > 0)
}
