//! Reads of reports and batch look-ups: a tenant's executions in bulk.
//!
//! Reports are read at a position of the feed: the status and the amounts of an execution are those of its last event up
//! to there, so that consecutive pages, and the totals beside them, are consistent. The terms of a range change at its
//! fill; the fees, which are read from them, count only after the payout. Later additions of the chain (anchors,
//! settlements) are read as they are.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::event::EventType;
use dvp_domain::settlement::State;
use dvp_domain::snapshot::IntentSnapshot;
use dvp_domain::status::{ExecutionStatus, Recorded};
use dvp_domain::terms::Terms;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::orders::events;
use crate::orders::executions::RefType;
use crate::orders::intents::Tenant;
use crate::{StoreError, read, statement};

/// An execution with the requested identifier.
#[derive(Debug, Clone)]
pub struct Named {
    pub name: String,
    pub terms: Terms,
    pub state: State,
}

fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::corrupt("execution", error)
}

pub async fn list_named(
    conn: &mut PgConnection,
    tenant: &Tenant,
    named: RefType,
    names: &[&str],
) -> Result<Vec<Named>, StoreError> {
    let sql = match named {
        RefType::ClientReference => {
            "select i.client_reference, e.terms, e.state from intent i join execution e on e.reference = i.reference \
             where i.partner_id = $1 and i.livemode = $2 and i.client_reference = any($3::text[]) \
               and i.reference is not null"
        }
        RefType::ExecutionId => {
            "select reference, terms, state from execution \
             where partner_id = $1 and livemode = $2 and reference = any($3::text[])"
        }
    };
    let rows: Vec<(String, Value, Value)> =
        statement::list(conn, sql, (&tenant.partner_id, tenant.livemode, names)).await?;
    rows.into_iter()
        .map(|(name, terms, state)| {
            Ok(Named {
                name,
                terms: serde_json::from_value(terms).map_err(corrupt)?,
                state: serde_json::from_value(state).map_err(corrupt)?,
            })
        })
        .collect()
}

/// The events of several executions, each oldest first.
pub async fn list_recorded(
    conn: &mut PgConnection,
    references: &[&str],
) -> Result<HashMap<String, Vec<Recorded>>, StoreError> {
    let sql = "select reference, type, occurred_at, observed_at from event_record where reference = any($1::text[]) \
         order by reference, sequence";
    let rows: Vec<(String, String, DateTime<Utc>, DateTime<Utc>)> =
        statement::list(conn, sql, (references,)).await?;
    let mut recorded: HashMap<String, Vec<Recorded>> = HashMap::new();
    for (reference, kind, occurred, observed) in rows {
        let kind = events::kind(&kind)?;
        let one = Recorded { kind, occurred_at: occurred.into(), observed_at: observed.into() };
        recorded.entry(reference).or_default().push(one);
    }
    Ok(recorded)
}

/// The position of a tenant's newest event; zero when there is none.
pub async fn load_position(conn: &mut PgConnection, tenant: &Tenant) -> Result<i64, StoreError> {
    let sql = "select greatest(0, \
                (select max(position) from event where partner_id = $1 and livemode = $2), \
                (select max(position) from event_history where partner_id = $1 and livemode = $2))";
    statement::load_value(conn, sql, (&tenant.partner_id, tenant.livemode)).await
}

/// The position of a tenant's newest event recorded before `cutoff`; zero when there is none. Events are committed within
/// ten minutes of their time: one that was recorded an hour before another one has a lower position.
pub async fn load_position_at(
    conn: &mut PgConnection,
    tenant: &Tenant,
    cutoff: DateTime<Utc>,
) -> Result<i64, StoreError> {
    let sql = "with latest as (select max(observed_at) as at from event_record \
                         where partner_id = $1 and livemode = $2 and observed_at < $3) \
         select coalesce(max(position), 0) from latest, event_record \
         where partner_id = $1 and livemode = $2 and observed_at < $3 and observed_at >= latest.at - interval '1 hour'";
    statement::load_value(conn, sql, (&tenant.partner_id, tenant.livemode, cutoff)).await
}

/// The executions of a report: accepted from `from` on and before `until`, as known at `position`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    pub tenant: Tenant,
    pub from: DateTime<Utc>,
    pub until: DateTime<Utc>,
    pub position: i64,
}

#[derive(Debug, Clone)]
pub struct ReportedExecution {
    pub terms: Terms,
    /// The state now, which may be past `last`.
    pub state: State,
    pub last: EventType,
    pub last_observed_at: DateTime<Utc>,
    pub snapshot: IntentSnapshot,
    pub receipt_hash: Option<Vec<u8>>,
    /// Canonical events of the chain, oldest first.
    pub chain_events: Vec<String>,
    /// The result of its last comparison with the chain.
    pub breaks: Vec<String>,
}

impl FromRow<'_, PgRow> for ReportedExecution {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let strings = |column| row.try_get::<Option<Vec<String>>, _>(column);
        Ok(Self {
            terms: read(row, ("execution", "terms"), serde_json::from_value)?,
            state: read(row, ("execution", "state"), serde_json::from_value)?,
            last: events::read_kind(row)?,
            last_observed_at: row.try_get("observed_at")?,
            snapshot: read(row, ("event", "object"), serde_json::from_value)?,
            receipt_hash: row.try_get("content_hash")?,
            chain_events: strings("chain_events")?.unwrap_or_default(),
            breaks: strings("breaks")?.unwrap_or_default(),
        })
    }
}

/// A page of a report, by time of acceptance and reference, after `after`.
pub async fn list_range(
    conn: &mut PgConnection,
    range: &Range,
    after: Option<&(DateTime<Utc>, String)>,
    limit: i64,
) -> Result<Vec<ReportedExecution>, StoreError> {
    let sql = "select e.terms, e.state, last.type, last.observed_at, last.object, r.content_hash, \
                (select array_agg(l.event order by l.block_number, l.log_index) from chain_log l \
                 where l.entity = e.entity and l.canonical) as chain_events, \
                (select array_agg(distinct b.kind order by b.kind) from reconciliation_break b \
                 where b.reference = e.reference \
                   and b.run_id in (select max(id) from reconciliation_run group by chain_id)) as breaks \
         from execution e \
         join lateral (select v.type, v.observed_at, v.object from event_record v \
                       where v.reference = e.reference and v.position <= $5 \
                       order by v.sequence desc limit 1) last on true \
         left join receipt r on r.reference = e.reference \
         where e.partner_id = $1 and e.livemode = $2 and e.accepted_at >= $3 and e.accepted_at < $4 \
           and ($6::timestamptz is null or (e.accepted_at, e.reference) > ($6, $7::text)) \
         order by e.accepted_at, e.reference limit $8";
    let parameters = (
        &range.tenant.partner_id,
        range.tenant.livemode,
        range.from,
        range.until,
        range.position,
        after.map(|after| after.0),
        after.map(|after| after.1.as_str()),
        limit,
    );
    statement::list(conn, sql, parameters).await
}

/// The amounts of one currency in one status of a report's executions. Amounts are decimal integers.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct CurrencyTotal {
    pub currency: String,
    pub exponent: i32,
    pub status: String,
    pub inputs: i64,
    pub input: String,
    pub outputs: i64,
    pub output: String,
    pub deducted: String,
    pub absorbed: String,
}

/// The totals of a report, independent of its pages. Fees are those of executions whose payout was carried out.
pub async fn list_totals(conn: &mut PgConnection, range: &Range) -> Result<Vec<CurrencyTotal>, StoreError> {
    let kinds = EventType::ALL;
    let sql = "with reported as ( \
             select last.object -> 'input' as input, last.object -> 'output' as output, rule.status, \
                    case when rule.is_paid then e.terms -> 'plan' -> 'priced' -> 'fees' end as fees \
             from execution e \
             join lateral (select v.type, v.object from event_record v \
                           where v.reference = e.reference and v.position <= $5 \
                           order by v.sequence desc limit 1) last on true \
             left join unnest($6::text[], $7::text[], $8::bool[]) as rule (type, status, is_paid) \
                    on rule.type = last.type \
             where e.partner_id = $1 and e.livemode = $2 and e.accepted_at >= $3 and e.accepted_at < $4), \
         flow as ( \
             select status, 'input' as what, input ->> 'asset' as currency, \
                    (input ->> 'exponent')::int as exponent, (input ->> 'amountMinor')::numeric as amount \
             from reported \
             union all \
             select status, 'output', output ->> 'currency', (output ->> 'exponent')::int, \
                    (output ->> 'amountMinor')::numeric \
             from reported \
             union all \
             select status, fee ->> 'collection', fee ->> 'currency', (fee ->> 'exponent')::int, \
                    (fee ->> 'amountMinor')::numeric \
             from reported, json_array_elements(fees) fee) \
         select currency, exponent, status, \
                count(*) filter (where what = 'input') as inputs, \
                coalesce(sum(amount) filter (where what = 'input'), 0)::text as input, \
                count(*) filter (where what = 'output') as outputs, \
                coalesce(sum(amount) filter (where what = 'output'), 0)::text as output, \
                coalesce(sum(amount) filter (where what = 'deducted'), 0)::text as deducted, \
                coalesce(sum(amount) filter (where what = 'absorbed'), 0)::text as absorbed \
         from flow group by currency, exponent, status order by currency, exponent, status";
    let parameters = (
        &range.tenant.partner_id,
        range.tenant.livemode,
        range.from,
        range.until,
        range.position,
        kinds.map(EventType::as_str),
        kinds.map(|kind| ExecutionStatus::after(kind).as_str()),
        kinds.map(EventType::is_paid),
    );
    statement::list(conn, sql, parameters).await
}
