//! Operators' view of commands, and their requests to retry one.

use super::super::unsigned;
use crate::orders::operations::{NewAction, insert_action};
use crate::{StoreError, known, statement};
use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use serde_json::json;
use sqlx::{PgConnection, PgTransaction, Row};

names! {
    /// The state of a command.
    pub enum CommandState {
        /// Waiting for a transaction.
        Pending = "pending",
        /// In a live transaction.
        Sent = "sent",
        /// Its event is in a canonical block.
        Done = "done",
        /// Given up permanently.
        Failed = "failed",
    }
}

/// A command and its state.
#[derive(Debug, Clone)]
pub struct CommandView {
    pub id: i64,
    pub chain_id: u64,
    pub reference: String,
    pub intent_id: String,
    pub kind: String,
    pub state: CommandState,
    pub tries: i32,
    /// The reason of its last rejection that was not final, or of its transaction's.
    pub trouble: Option<String>,
    pub troubled_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    /// When it is simulated next, while it waits.
    pub not_before: DateTime<Utc>,
    /// The latest transaction that contains it.
    pub tx_hash: Option<String>,
}

/// The filter of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFilter {
    /// Rejected for a reason that is not final, and waiting; or in a transaction that the node refuses.
    Troubled,
    /// Waiting or in a transaction.
    Open,
    /// Failed permanently.
    Failed,
}

/// The oldest commands first; failed ones newest first.
pub async fn list_commands(
    conn: &mut PgConnection,
    filter: CommandFilter,
    limit: i64,
) -> Result<Vec<CommandView>, StoreError> {
    // Each is read by an index of its own.
    let (condition, direction) = match filter {
        CommandFilter::Troubled => (
            "command.id in (
                 select id from chain_command where state = 'pending' and trouble is not null
                 union all
                 select carried.command_id
                 from nonce_slot slot
                 join slot_command carried using (chain_id, signer, nonce)
                 where slot.state in ('signed', 'broadcast') and carried.live
                   and (select last_error from tx_attempt attempt
                        where (attempt.chain_id, attempt.signer, attempt.nonce)
                            = (slot.chain_id, slot.signer, slot.nonce)
                        order by attempt.attempt desc limit 1) is not null)",
            "asc",
        ),
        CommandFilter::Open => ("state in ('pending', 'sent')", "asc"),
        CommandFilter::Failed => ("state = 'failed'", "desc"),
    };
    // The texts are constants of this function.
    let sql = sqlx::AssertSqlSafe(format!(
        "select command.id, chain_id, reference, intent_id, kind, state, tries, troubled_at, created_at, not_before,
                case when state = 'sent' then
                    (select attempt.last_error
                     from slot_command carried
                     join tx_attempt attempt using (chain_id, signer, nonce)
                     where carried.command_id = command.id and carried.live
                     order by attempt.attempt desc limit 1) else trouble end as trouble,
                (select '0x' || encode(attempt.hash, 'hex')
                 from slot_command carried
                 join tx_attempt attempt using (chain_id, signer, nonce)
                 where carried.command_id = command.id and carried.live
                 order by attempt.attempt desc limit 1) as tx_hash
         from chain_command command where {condition} order by command.id {direction} limit $1"
    ));
    let rows = statement::list_rows(conn, sql, (limit,)).await?;
    rows.iter()
        .map(|row| {
            Ok(CommandView {
                id: row.try_get("id")?,
                chain_id: unsigned("chain_command", row.try_get("chain_id")?)?,
                reference: row.try_get("reference")?,
                intent_id: row.try_get("intent_id")?,
                kind: row.try_get("kind")?,
                state: known("chain_command", row.try_get("state")?, CommandState::parse)?,
                tries: row.try_get("tries")?,
                trouble: row.try_get("trouble")?,
                troubled_at: row.try_get("troubled_at")?,
                created_at: row.try_get("created_at")?,
                not_before: row.try_get("not_before")?,
                tx_hash: row.try_get("tx_hash")?,
            })
        })
        .collect()
}

/// The result of an operator's request to retry a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// It is due now.
    Now,
    Unknown,
    /// It is in a transaction already.
    Sent,
    /// It is done.
    Done,
    /// It failed, and its order has ended or continued without it: executing it could pay a closed order.
    OrderGoneOn,
}

/// Makes a waiting command due, or a failed one whose order still waits for it. The operator and the reason are stored
/// for ever.
pub async fn retry_command(
    tx: &mut PgTransaction<'_>,
    id: i64,
    operator: &str,
    reason: &str,
) -> Result<Retried, StoreError> {
    let sql = "select chain_id, reference, kind, state from chain_command where id = $1 for update";
    let row = statement::find_row(tx, sql, (id,)).await?;
    let Some(row) = row else { return Ok(Retried::Unknown) };
    let reference: String = row.try_get("reference")?;
    let state = known("chain_command", row.try_get("state")?, CommandState::parse)?;
    match state {
        CommandState::Sent => return Ok(Retried::Sent),
        CommandState::Done => return Ok(Retried::Done),
        CommandState::Failed if has_gone_on(tx, id, &reference).await? => return Ok(Retried::OrderGoneOn),
        CommandState::Failed | CommandState::Pending => {}
    }
    let sql = "update chain_command
         set state = 'pending', done_at = null, not_before = clock_timestamp(), tries = greatest(tries, 1)
         where id = $1";
    statement::execute(tx, sql, (id,)).await?;
    let (chain, kind): (i64, String) = (row.try_get("chain_id")?, row.try_get("kind")?);
    let evidence = json!({"command": id, "kind": kind, "chainId": chain, "was": state.as_str()});
    insert_action(
        tx,
        &NewAction {
            reference: &reference,
            action: "retry-chain-command",
            operator,
            reason,
            evidence: &evidence,
            version: 0,
        },
    )
    .await?;
    super::wake(tx, 1).await?;
    Ok(Retried::Now)
}

/// Whether the command's order has ended, or has a later command for the same purpose, or will end when it learns of the
/// failure.
async fn has_gone_on(tx: &mut PgTransaction<'_>, id: i64, reference: &str) -> Result<bool, StoreError> {
    let sql = "select not exists (select from execution where reference = $2 and terminal_at is null)
             or exists (select from chain_command command
                        join chain_command later on later.entity = command.entity and later.id > command.id
                        where command.id = $1)
             or exists (select from chain_command command
                        join chain_fact failure on failure.entity = command.entity
                        where command.id = $1 and failure.payload ->> 'kind' = 'command_failed'
                          and failure.payload ->> 'command' = command.kind
                          and failure.consumed_at is null and failure.retracted_at is null)";
    statement::load_value(tx, sql, (id, reference)).await
}
