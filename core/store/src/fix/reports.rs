//! Reports of FIX sessions beside their new events: open orders, and copies of other sessions' orders.

use std::collections::HashMap;

use dvp_domain::event::EventType;
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, FromRow, PgConnection, Row as _};

use super::FixSessionRow;
use crate::chain::commands::unsigned_lock;
use crate::fix::rows::FixOrder;
use crate::orders::events::{self, StoredEvent};
use crate::{StoreError, statement};

/// An order that may still change, and its latest event.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OpenOrder {
    #[sqlx(flatten)]
    pub order: FixOrder,
    #[sqlx(flatten)]
    pub latest: Latest,
}

/// A session's orders that have not ended, the oldest first; only those of `symbol` where it is given.
pub async fn list_open(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    symbol: Option<&str>,
    limit: i64,
) -> Result<Vec<OpenOrder>, StoreError> {
    let sql = "select o.cl_ord_id, o.trading_day, o.reference, o.intent_id, o.details, e.type, e.sequence, e.object \
         from execution x \
         join fix_order o on o.session_id = $1 and o.intent_id = x.intent_id and o.reference = x.reference \
         cross join lateral (select type, sequence, object from event_record r where r.reference = x.reference \
                             order by sequence desc limit 1) e \
         where x.terminal_at is null and x.partner_id = $2 and x.livemode = $3 \
           and ($4::text is null or o.details ->> 'symbol' = $4) \
         order by x.accepted_at, x.reference limit $5";
    statement::list(conn, sql, (&session.session_id, &session.partner_id, session.livemode, symbol, limit))
        .await
}

/// The latest event about an execution.
#[derive(Debug, Clone)]
pub struct Latest {
    pub kind: EventType,
    pub sequence: i64,
    /// The Intent snapshot after the event.
    pub object: serde_json::Value,
}

impl FromRow<'_, PgRow> for Latest {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            kind: events::read_kind(row)?,
            sequence: row.try_get("sequence")?,
            object: row.try_get("object")?,
        })
    }
}

/// The latest event of an execution, however old: events that have left the feed are in the history.
pub async fn find_latest(conn: &mut PgConnection, reference: &str) -> Result<Option<Latest>, StoreError> {
    let sql = "select type, sequence, object from event_record where reference = $1 \
         order by sequence desc limit 1";
    statement::find(conn, sql, (reference,)).await
}

/// References of a session's orders that may still be cancelled, the oldest first; only those of `symbol` where it is
/// given.
pub async fn list_cancellable(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    symbol: Option<&str>,
    limit: i64,
) -> Result<Vec<String>, StoreError> {
    let sql = concat!(
        "select x.reference from execution x \
         join fix_order o on o.session_id = $1 and o.intent_id = x.intent_id and o.reference = x.reference \
         where x.terminal_at is null and x.partner_id = $2 and x.livemode = $3 \
           and ($5::text is null or o.details ->> 'symbol' = $5) \
           and (x.state_name in ('resting', 'accepted') \
                or x.state_name = 'locking' \
                   and exists (select from chain_command c where c.reference = x.reference and ",
        unsigned_lock!(),
        ")) order by x.accepted_at, x.reference limit $4"
    );
    let of = (&session.session_id, &session.partner_id, session.livemode);
    statement::list_values(conn, sql, (of.0, of.1, of.2, limit, symbol)).await
}

/// An event, its FIX order if there is one, and else the fees of an order that was paid out.
pub type CopiedEvent = (StoredEvent, Option<FixOrder>, serde_json::Value);

/// Events of a page, and the position read up to.
#[derive(Debug, Clone)]
pub struct Copied {
    pub events: Vec<CopiedEvent>,
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
    statement::execute(&mut tx, "set transaction isolation level repeatable read, read only", ()).await?;
    let events =
        events::list_recorded_after(&mut tx, &session.partner_id, session.livemode, after, limit).await?;
    let ids: Vec<&str> = events.iter().map(|stored| stored.event.intent_id.as_str()).collect();
    let sql = "select o.cl_ord_id, o.trading_day, o.reference, o.intent_id, o.details from fix_session s \
         join fix_order o on o.session_id = s.session_id and o.intent_id = any($3) \
         where s.partner_id = $1 and s.livemode = $2 and o.reference is not null";
    let orders: Vec<FixOrder> =
        statement::list(&mut tx, sql, (&session.partner_id, session.livemode, ids)).await?;
    let orders: HashMap<_, _> = orders.iter().map(|order| (&order.intent_id, order)).collect();
    let is_without = |stored: &&StoredEvent| {
        stored.event.kind == EventType::PayoutCompleted && !orders.contains_key(&stored.event.intent_id)
    };
    let others: Vec<&str> =
        events.iter().filter(is_without).map(|stored| stored.event.reference.as_str()).collect();
    let sql = "select reference, terms #> '{plan,priced,fees}' from execution where reference = any($1)";
    let fees: Vec<(String, serde_json::Value)> = statement::list(&mut tx, sql, (others,)).await?;
    let mut fees: HashMap<_, _> = fees.into_iter().collect();
    tx.commit().await?;
    let position = events.last().map_or(after, |last| last.position);
    let events = events
        .into_iter()
        .map(|stored| {
            let order = orders.get(&stored.event.intent_id).copied().cloned();
            let fees = fees.remove(&stored.event.reference).unwrap_or_default();
            (stored, order, fees)
        })
        .collect();
    Ok(Copied { events, position })
}
