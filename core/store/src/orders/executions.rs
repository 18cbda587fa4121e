//! Accepted intents in settlement: terms, state and version.

use std::collections::{HashMap, HashSet};

use alloy::primitives::Address;
use chrono::{DateTime, Utc};
use dvp_domain::settlement::State;
use dvp_domain::status::Recorded;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::orders::events;
use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

/// An execution as stored. `version` guards every change.
#[derive(Debug, Clone)]
pub struct Execution {
    pub terms: Terms,
    pub state: State,
    pub version: i64,
    pub last_sequence: i64,
    pub last_occurred_at: Timestamp,
}

/// How a caller names an execution (contract section 4, rule 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefType {
    ClientReference,
    ExecutionId,
}

type Row = (Value, Value, i64, i64, Option<DateTime<Utc>>);

fn execution(row: Row) -> Result<Execution, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::corrupt("execution", error);
    let terms: Terms = serde_json::from_value(row.0).map_err(corrupt)?;
    Ok(Execution {
        state: serde_json::from_value(row.1).map_err(corrupt)?,
        version: row.2,
        last_sequence: row.3,
        // Null until the first event after the acceptance.
        last_occurred_at: row.4.map_or(terms.accepted_at, Timestamp::from),
        terms,
    })
}

pub(crate) fn bytes32(text: &str) -> Result<Vec<u8>, StoreError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    hex::decode(digits).map_err(|error| StoreError::corrupt("execution", error))
}

/// The bytes of an address.
pub(crate) fn bytes20(text: &str) -> Result<Vec<u8>, StoreError> {
    let address: Address = text
        .parse()
        .map_err(|error| StoreError::corrupt("chain_command", format_args!("{text}: {error}")))?;
    Ok(address.to_vec())
}

/// A change of an execution from a known version to the next.
#[derive(Debug, Clone)]
pub struct StateChange<'a> {
    pub reference: &'a str,
    pub version: i64,
    pub state: &'a State,
    pub last_sequence: i64,
    pub last_occurred_at: Timestamp,
    /// Id and fence of the due work that the change is decided by, where a decision of operators takes the claim away.
    pub claim: Option<(i64, i64)>,
}

/// Updates executions; returns the references whose version, and claim, was unchanged. The others were changed concurrently.
/// The claimed work is locked, so that no decision of operators takes the claim away before the transaction ends; after the
/// executions, as whoever ends an order with its due work does.
pub async fn update(conn: &mut PgConnection, changes: &[StateChange<'_>]) -> Result<Vec<String>, StoreError> {
    let sql = "with locked as materialized ( \
             select reference from execution where reference = any($1) order by reference for no key update), \
         claimed as materialized ( \
             select id, fence, reference from effect \
             where id = any($8) and (select count(*) from locked) > 0 order by id for update) \
         update execution e set state_name = c.state_name, state = c.state, version = e.version + 1, \
                last_sequence = c.last_sequence, last_occurred_at = c.last_occurred_at, \
                terminal_at = case when c.terminal then coalesce(e.terminal_at, now()) end \
         from unnest($1::text[], $2::int8[], $3::text[], $4::jsonb[], $5::int8[], $6::bool[], $7::timestamptz[], \
                     $8::int8[], $9::int8[]) \
              as c (reference, version, state_name, state, last_sequence, terminal, last_occurred_at, effect, fence) \
         where e.reference = c.reference and e.version = c.version \
           and (c.effect is null or exists (select from claimed f \
               where f.id = c.effect and f.fence = c.fence and f.reference = e.reference)) \
         returning e.reference";
    let parameters = (
        changes.iter().map(|c| c.reference).collect::<Vec<_>>(),
        changes.iter().map(|c| c.version).collect::<Vec<_>>(),
        changes.iter().map(|c| c.state.name()).collect::<Vec<_>>(),
        changes.iter().map(|c| Json(c.state)).collect::<Vec<_>>(),
        changes.iter().map(|c| c.last_sequence).collect::<Vec<_>>(),
        changes.iter().map(|c| c.state.is_terminal()).collect::<Vec<_>>(),
        changes.iter().map(|c| c.last_occurred_at.to_utc()).collect::<Vec<_>>(),
        changes.iter().map(|c| c.claim.map(|(effect, _)| effect)).collect::<Vec<_>>(),
        changes.iter().map(|c| c.claim.map(|(_, fence)| fence)).collect::<Vec<_>>(),
    );
    statement::list_values(conn, sql, parameters).await
}

/// A resting order that was filled: its terms are final from here on.
#[derive(Debug, Clone)]
pub struct MatchedExecution {
    pub terms: Terms,
    /// Of the resting order.
    pub version: i64,
    pub state: State,
}

/// Replaces the terms of locked executions that were filled.
pub async fn update_matched(conn: &mut PgConnection, matched: &[MatchedExecution]) -> Result<(), StoreError> {
    let sql = "update execution e set terms = m.terms::json, state_name = m.state_name, state = m.state, \
                version = e.version + 1 \
         from unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::jsonb[]) \
              as m (reference, version, terms, state_name, state) \
         where e.reference = m.reference and e.version = m.version";
    let parameters = (
        matched.iter().map(|one| one.terms.reference.as_str()).collect::<Vec<_>>(),
        matched.iter().map(|one| one.version).collect::<Vec<_>>(),
        matched
            .iter()
            .map(|one| serde_json::to_string(&one.terms))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| StoreError::corrupt("execution", error))?,
        matched.iter().map(|one| one.state.name()).collect::<Vec<_>>(),
        matched.iter().map(|one| Json(&one.state)).collect::<Vec<_>>(),
    );
    let rows = statement::affected(conn, sql, parameters).await?;
    if rows == u64::try_from(matched.len()).unwrap_or(u64::MAX) {
        Ok(())
    } else {
        Err(StoreError::Stale { what: "resting order" })
    }
}

pub async fn list_by_references(
    conn: &mut PgConnection,
    references: &[&str],
) -> Result<Vec<Execution>, StoreError> {
    let sql = "select terms, state, version, last_sequence, last_occurred_at from execution \
         where reference = any($1::text[])";
    let rows: Vec<Row> = statement::list(conn, sql, (references,)).await?;
    rows.into_iter().map(execution).collect()
}

pub async fn find_by_reference(
    conn: &mut PgConnection,
    reference: &str,
) -> Result<Option<Execution>, StoreError> {
    let sql =
        "select terms, state, version, last_sequence, last_occurred_at from execution where reference = $1";
    let row: Option<Row> = statement::find(conn, sql, (reference,)).await?;
    row.map(execution).transpose()
}

/// The traces of the requests that placed these orders, of those that belong to one.
pub async fn list_traces(
    conn: &mut PgConnection,
    references: &[&str],
) -> Result<HashMap<String, String>, StoreError> {
    let sql = "select reference, terms ->> 'trace' from execution \
         where reference = any($1) and terms ->> 'trace' is not null";
    let rows: Vec<(String, String)> = statement::list(conn, sql, (references,)).await?;
    Ok(rows.into_iter().collect())
}

/// The execution of an id on the chain, a settlement's or a receipt's content hash: the one with a command about it.
pub async fn find_by_entity(conn: &mut PgConnection, entity: &[u8]) -> Result<Option<Execution>, StoreError> {
    let sql = "select terms, state, version, last_sequence, last_occurred_at from execution \
         where reference = (select reference from chain_command where entity = $1 limit 1)";
    let row: Option<Row> = statement::find(conn, sql, (entity,)).await?;
    row.map(execution).transpose()
}

/// The identifiers of an execution. The text becomes part of each statement that looks one up.
macro_rules! named {
    ($select:literal, $named:expr) => {
        match $named {
            RefType::ClientReference => concat!(
                $select,
                " where e.reference = (select reference from intent where partner_id = $1 and livemode = $2 \
                                         and client_reference = $3 and reference is not null)"
            ),
            RefType::ExecutionId => {
                concat!($select, " where e.partner_id = $1 and e.livemode = $2 and e.reference = $3")
            }
        }
    };
}

/// Which of these references are executions of a tenant's.
pub async fn list_owned(
    conn: &mut PgConnection,
    tenant: &Tenant,
    references: &[&str],
) -> Result<HashSet<String>, StoreError> {
    let sql =
        "select reference from execution where reference = any($1) and partner_id = $2 and livemode = $3";
    let own: Vec<(String,)> =
        statement::list(conn, sql, (references, &tenant.partner_id, tenant.livemode)).await?;
    Ok(own.into_iter().map(|(reference,)| reference).collect())
}

/// A tenant's execution. Another tenant's is reported as not found.
pub async fn find_for_tenant(
    conn: &mut PgConnection,
    tenant: &Tenant,
    named: RefType,
    reference: &str,
) -> Result<Option<Execution>, StoreError> {
    let sql = named!(
        "select e.terms, e.state, e.version, e.last_sequence, e.last_occurred_at from execution e",
        named
    );
    let row: Option<Row> =
        statement::find(conn, sql, (&tenant.partner_id, tenant.livemode, reference)).await?;
    row.map(execution).transpose()
}

/// A tenant's execution with all its events, oldest first: one statement, so that the two are consistent.
pub async fn find_with_events(
    conn: &mut PgConnection,
    tenant: &Tenant,
    named: RefType,
    reference: &str,
) -> Result<Option<(Execution, Vec<Recorded>)>, StoreError> {
    type Times = Vec<DateTime<Utc>>;
    type Whole = (Value, Value, i64, i64, Option<DateTime<Utc>>, Vec<String>, Times, Times);
    let sql = named!(
        "select e.terms, e.state, e.version, e.last_sequence, e.last_occurred_at, r.types, r.occurred, r.observed \
         from execution e cross join lateral \
              (select coalesce(array_agg(type order by sequence), '{}') as types, \
                      coalesce(array_agg(occurred_at order by sequence), '{}') as occurred, \
                      coalesce(array_agg(observed_at order by sequence), '{}') as observed \
               from event_record where reference = e.reference) r",
        named
    );
    let row: Option<Whole> =
        statement::find(conn, sql, (&tenant.partner_id, tenant.livemode, reference)).await?;
    let Some((terms, state, version, sequence, last_at, types, occurred, observed)) = row else {
        return Ok(None);
    };
    let recorded = types.iter().zip(occurred).zip(observed).map(|((kind, occurred), observed)| {
        let kind = events::kind(kind)?;
        Ok(Recorded { kind, occurred_at: occurred.into(), observed_at: observed.into() })
    });
    let recorded = recorded.collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Some((execution((terms, state, version, sequence, last_at))?, recorded)))
}
