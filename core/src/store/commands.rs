//! The engine's end of the rows it shares with the chain side: commands out, facts in.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

use super::StoreError;
use super::executions::bytes32;
use crate::chain::{ChainCommand, ChainFact};

/// A command to hand to the relayer.
#[derive(Debug, Clone)]
pub struct NewCommand {
    pub chain_id: i64,
    pub reference: String,
    pub intent_id: String,
    /// What the chain knows the subject by: the settlement's id, or a receipt's content hash.
    pub entity: String,
    pub command: ChainCommand,
}

/// A fact nobody has consumed yet.
#[derive(Debug, Clone)]
pub struct OpenFact {
    pub id: i64,
    pub chain_id: i64,
    pub entity: Vec<u8>,
    pub fact: ChainFact,
    pub block_time: Option<DateTime<Utc>>,
    /// `0x` and 64 hex digits; empty for a fact that has no transaction.
    pub tx_hash: String,
}

/// Inserts commands and wakes the relayer when the transaction commits.
pub async fn insert(conn: &mut PgConnection, commands: &[NewCommand]) -> Result<(), StoreError> {
    let mut columns: (Vec<Vec<u8>>, Vec<Value>, Vec<String>) = Default::default();
    for new in commands {
        let payload =
            serde_json::to_value(&new.command).map_err(|e| StoreError::corrupt("chain_command", e))?;
        columns.0.push(bytes32(&new.entity)?);
        columns.2.push(payload.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned());
        columns.1.push(payload);
    }
    sqlx::query(
        "insert into chain_command (chain_id, reference, intent_id, entity, kind, payload) \
         select * from unnest($1::int8[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::jsonb[])",
    )
    .bind(commands.iter().map(|c| c.chain_id).collect::<Vec<_>>())
    .bind(commands.iter().map(|c| c.reference.as_str()).collect::<Vec<_>>())
    .bind(commands.iter().map(|c| c.intent_id.as_str()).collect::<Vec<_>>())
    .bind(columns.0)
    .bind(columns.2)
    .bind(columns.1)
    .execute(&mut *conn)
    .await?;
    sqlx::query("select pg_notify('dvp_commands', '')").execute(conn).await?;
    Ok(())
}

/// Open facts after `after`, oldest first.
pub async fn list_open_facts(
    conn: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<OpenFact>, StoreError> {
    type Row = (i64, i64, Vec<u8>, Value, Option<DateTime<Utc>>, Option<Vec<u8>>);
    let rows: Vec<Row> = sqlx::query_as(
        "select id, chain_id, entity, payload, block_time, tx_hash from chain_fact \
         where consumed_at is null and retracted_at is null and id > $1 order by id limit $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(id, chain_id, entity, payload, block_time, tx_hash)| {
            let fact = serde_json::from_value(payload).map_err(|e| StoreError::corrupt("chain_fact", e))?;
            let tx_hash = tx_hash.map(|hash| format!("0x{}", hex::encode(hash))).unwrap_or_default();
            Ok(OpenFact { id, chain_id, entity, fact, block_time, tx_hash })
        })
        .collect()
}

/// The fill deadline of an execution's lock as it was sent, in Unix seconds.
pub async fn find_fill_deadline(conn: &mut PgConnection, reference: &str) -> Result<Option<u64>, StoreError> {
    let row: Option<(Value,)> = sqlx::query_as(
        "select payload -> 'fill_deadline' from chain_command where reference = $1 and kind = 'create'",
    )
    .bind(reference)
    .fetch_optional(conn)
    .await?;
    Ok(row.and_then(|(deadline,)| deadline.as_u64()))
}

/// Marks facts as consumed.
pub async fn consume_facts(conn: &mut PgConnection, ids: &[i64]) -> Result<(), StoreError> {
    sqlx::query(
        "update chain_fact set consumed_at = now() where id = any($1::int8[]) and consumed_at is null",
    )
    .bind(ids)
    .execute(conn)
    .await?;
    Ok(())
}
