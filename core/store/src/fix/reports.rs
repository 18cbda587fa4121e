//! Reports of FIX sessions beside their new events: open orders, and copies of other sessions' orders.

use std::collections::HashMap;

use dvp_domain::event::EventType;
use sqlx::{Connection as _, PgConnection};

use super::FixSessionRow;
use super::orders::{OrderRow, order};
use crate::StoreError;
use crate::fix::rows::FixOrder;
use crate::orders::events::{self, StoredEvent};

/// An order that may still change, and its latest event.
#[derive(Debug, Clone)]
pub struct OpenOrder {
    pub order: FixOrder,
    pub kind: EventType,
    pub sequence: i64,
    /// The Intent snapshot after the event.
    pub object: serde_json::Value,
}

#[derive(sqlx::FromRow)]
struct OpenRow {
    cl_ord_id: String,
    reference: Option<String>,
    intent_id: String,
    details: serde_json::Value,
    #[sqlx(rename = "type")]
    kind: String,
    sequence: i64,
    object: serde_json::Value,
}

/// A session's orders that have not ended, the oldest first; only those of `symbol` where it is given.
pub async fn list_open(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    symbol: Option<&str>,
    limit: i64,
) -> Result<Vec<OpenOrder>, StoreError> {
    let rows: Vec<OpenRow> = sqlx::query_as(
        "select o.cl_ord_id, o.reference, o.intent_id, o.details, e.type, e.sequence, e.object \
         from execution x \
         join fix_order o on o.session_id = $1 and o.intent_id = x.intent_id and o.reference = x.reference \
         cross join lateral (select type, sequence, object from event_record r where r.reference = x.reference \
                             order by sequence desc limit 1) e \
         where x.terminal_at is null and x.partner_id = $2 and x.livemode = $3 \
           and ($4::text is null or o.details ->> 'symbol' = $4) \
         order by x.accepted_at, x.reference limit $5",
    )
    .bind(&session.session_id)
    .bind(&session.partner_id)
    .bind(session.livemode)
    .bind(symbol)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(OpenRow::into_open).collect()
}

impl OpenRow {
    fn into_open(self) -> Result<OpenOrder, StoreError> {
        let kind = EventType::parse(&self.kind)
            .ok_or_else(|| StoreError::corrupt("event", format_args!("type {}", self.kind)))?;
        let order = order((self.cl_ord_id, self.reference, self.intent_id, self.details));
        Ok(OpenOrder { order, kind, sequence: self.sequence, object: self.object })
    }
}

/// The latest event about an execution.
#[derive(Debug, Clone)]
pub struct Latest {
    pub kind: EventType,
    pub sequence: i64,
    /// The Intent snapshot after the event.
    pub object: serde_json::Value,
}

/// The latest event of an execution, however old: events that have left the feed are in the history, and those of orders
/// that another cell accepted came with their session.
pub async fn find_latest(conn: &mut PgConnection, reference: &str) -> Result<Option<Latest>, StoreError> {
    let row: Option<(String, i64, serde_json::Value)> = sqlx::query_as(
        "select type, sequence, object from event_record where reference = $1 \
         union all select type, sequence, object from moved_event where reference = $1 \
         order by sequence desc limit 1",
    )
    .bind(reference)
    .fetch_optional(conn)
    .await?;
    row.map(|(kind, sequence, object)| Ok(Latest { kind: events::kind(&kind)?, sequence, object }))
        .transpose()
}

/// References of a session's orders that are accepted and not locking yet, the oldest first.
pub async fn list_resting(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    limit: i64,
) -> Result<Vec<String>, StoreError> {
    let rows: Vec<(String,)> = sqlx::query_as(
        "select x.reference from execution x \
         join fix_order o on o.session_id = $1 and o.intent_id = x.intent_id and o.reference = x.reference \
         where x.terminal_at is null and x.state_name in ('resting', 'accepted') and x.partner_id = $2 and x.livemode = $3 \
         order by x.accepted_at, x.reference limit $4",
    )
    .bind(&session.session_id)
    .bind(&session.partner_id)
    .bind(session.livemode)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(reference,)| reference).collect())
}

/// Events of a page, each with its FIX order if there is one, and the position read up to.
#[derive(Debug, Clone)]
pub struct Copied {
    pub events: Vec<(StoredEvent, Option<FixOrder>)>,
    /// The position read up to, `after` without new events.
    pub position: i64,
}

/// Reads one page of the partner's events, with the orders of all its sessions. Events that have left the feed are copied,
/// too.
pub async fn list_copied(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    after: i64,
    limit: i64,
) -> Result<Copied, StoreError> {
    // One snapshot: the order of every event of the page is visible.
    let mut tx = conn.begin().await?;
    sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *tx).await?;
    let events =
        events::list_recorded_after(&mut tx, &session.partner_id, session.livemode, after, limit).await?;
    let ids: Vec<&str> = events.iter().map(|stored| stored.event.intent_id.as_str()).collect();
    let rows: Vec<OrderRow> = sqlx::query_as(
        "select o.cl_ord_id, o.reference, o.intent_id, o.details from fix_session s \
         join fix_order o on o.session_id = s.session_id and o.intent_id = any($3) \
         where s.partner_id = $1 and s.livemode = $2 and o.reference is not null",
    )
    .bind(&session.partner_id)
    .bind(session.livemode)
    .bind(ids)
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    let orders: HashMap<String, FixOrder> = rows.into_iter().map(|row| (row.2.clone(), order(row))).collect();
    let position = events.last().map_or(after, |last| last.position);
    let events = events
        .into_iter()
        .map(|stored| {
            let order = orders.get(&stored.event.intent_id).cloned();
            (stored, order)
        })
        .collect();
    Ok(Copied { events, position })
}
