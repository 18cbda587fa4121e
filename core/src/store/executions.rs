//! Accepted intents under settlement: terms, state and version.

use dvp_domain::settlement::{State, Terms};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::StoreError;
use super::intents::Tenant;

/// An execution as stored. `version` guards every change.
#[derive(Debug, Clone)]
pub struct Execution {
    pub terms: Terms,
    pub state: State,
    pub version: i64,
    pub last_sequence: i64,
}

/// How a caller names an execution (contract section 4, rule 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefType {
    ClientReference,
    ExecutionId,
}

type Row = (Value, Value, i64, i64);

fn execution(row: Row) -> Result<Execution, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::corrupt("execution", error);
    Ok(Execution {
        terms: serde_json::from_value(row.0).map_err(corrupt)?,
        state: serde_json::from_value(row.1).map_err(corrupt)?,
        version: row.2,
        last_sequence: row.3,
    })
}

pub(crate) fn bytes32(text: &str) -> Result<Vec<u8>, StoreError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    hex::decode(digits).map_err(|error| StoreError::corrupt("execution", error))
}

/// Inserts new executions at version 1.
pub async fn insert(conn: &mut PgConnection, rows: &[(&Terms, &State, i64)]) -> Result<(), StoreError> {
    let entities: Vec<Vec<u8>> =
        rows.iter().map(|(terms, _, _)| bytes32(&terms.entity)).collect::<Result<_, _>>()?;
    let text = |of: fn(&Terms) -> &str| rows.iter().map(|row| of(row.0)).collect::<Vec<_>>();
    let client: Vec<Option<&str>> =
        rows.iter().map(|row| row.0.request.client_reference.as_deref()).collect();
    sqlx::query(
        "insert into execution (reference, partner_id, livemode, intent_id, client_reference, entity, terms, \
                                state_name, state, last_sequence, accepted_at, version) \
         select u.*, 1 from unnest($1::text[], $2::text[], $3::bool[], $4::text[], $5::text[], $6::bytea[], \
                                   $7::jsonb[], $8::text[], $9::jsonb[], $10::int8[], $11::timestamptz[]) as u",
    )
    .bind(text(|t| t.reference.as_str()))
    .bind(text(|t| t.partner_id.as_str()))
    .bind(rows.iter().map(|row| row.0.livemode).collect::<Vec<_>>())
    .bind(text(|t| &t.request.intent_id))
    .bind(client)
    .bind(entities)
    .bind(rows.iter().map(|row| Json(row.0)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.1.name()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| Json(row.1)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.2).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.0.accepted_at.to_utc()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// A change of an execution from a known version to the next.
#[derive(Debug, Clone)]
pub struct StateChange<'a> {
    pub reference: &'a str,
    pub version: i64,
    pub state: &'a State,
    pub last_sequence: i64,
}

/// Moves executions; returns the references whose version still held. The others were changed by somebody else.
pub async fn update(conn: &mut PgConnection, changes: &[StateChange<'_>]) -> Result<Vec<String>, StoreError> {
    let rows: Vec<(String,)> = sqlx::query_as(
        "update execution e set state_name = c.state_name, state = c.state, version = e.version + 1, \
                last_sequence = c.last_sequence, \
                terminal_at = coalesce(e.terminal_at, case when c.terminal then now() end) \
         from unnest($1::text[], $2::int8[], $3::text[], $4::jsonb[], $5::int8[], $6::bool[]) \
              as c (reference, version, state_name, state, last_sequence, terminal) \
         where e.reference = c.reference and e.version = c.version \
         returning e.reference",
    )
    .bind(changes.iter().map(|c| c.reference).collect::<Vec<_>>())
    .bind(changes.iter().map(|c| c.version).collect::<Vec<_>>())
    .bind(changes.iter().map(|c| c.state.name()).collect::<Vec<_>>())
    .bind(changes.iter().map(|c| Json(c.state)).collect::<Vec<_>>())
    .bind(changes.iter().map(|c| c.last_sequence).collect::<Vec<_>>())
    .bind(changes.iter().map(|c| c.state.is_terminal()).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

pub async fn find_by_reference(
    conn: &mut PgConnection,
    reference: &str,
) -> Result<Option<Execution>, StoreError> {
    let row: Option<Row> =
        sqlx::query_as("select terms, state, version, last_sequence from execution where reference = $1")
            .bind(reference)
            .fetch_optional(conn)
            .await?;
    row.map(execution).transpose()
}

/// The execution a chain id belongs to: a settlement's own, or the one whose receipt has this content hash.
pub async fn find_by_entity(conn: &mut PgConnection, entity: &[u8]) -> Result<Option<Execution>, StoreError> {
    let row: Option<Row> = sqlx::query_as(
        "select terms, state, version, last_sequence from execution \
         where entity = $1 or reference = (select reference from receipt where content_hash = $1)",
    )
    .bind(entity)
    .fetch_optional(conn)
    .await?;
    row.map(execution).transpose()
}

/// A tenant's execution. Another tenant's is as unknown as one that does not exist.
pub async fn find_for_tenant(
    conn: &mut PgConnection,
    tenant: &Tenant,
    named: RefType,
    reference: &str,
) -> Result<Option<Execution>, StoreError> {
    let sql = match named {
        RefType::ClientReference => {
            "select terms, state, version, last_sequence from execution \
             where partner_id = $1 and livemode = $2 and client_reference = $3"
        }
        RefType::ExecutionId => {
            "select terms, state, version, last_sequence from execution \
             where partner_id = $1 and livemode = $2 and reference = $3"
        }
    };
    let row: Option<Row> = sqlx::query_as(sql)
        .bind(&tenant.partner_id)
        .bind(tenant.livemode)
        .bind(reference)
        .fetch_optional(conn)
        .await?;
    row.map(execution).transpose()
}
