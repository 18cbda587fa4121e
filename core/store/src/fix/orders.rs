//! Orders by ClOrdID, and the events that are reported for them.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{Connection as _, PgConnection};

use super::sessions::FixSessionRow;
use crate::StoreError;
use crate::fix::rows::FixOrder;
use crate::orders::events::StoredEvent;

pub(super) type OrderRow = (String, Option<String>, String, serde_json::Value);

pub(super) fn order((cl_ord_id, reference, intent_id, details): OrderRow) -> FixOrder {
    FixOrder { cl_ord_id, reference, intent_id, details }
}

/// An order by its ClOrdID.
pub async fn find_order(
    conn: &mut PgConnection,
    session_id: &str,
    cl_ord_id: &str,
) -> Result<Option<FixOrder>, StoreError> {
    let row: Option<OrderRow> = sqlx::query_as(
        "select cl_ord_id, reference, intent_id, details from fix_order where session_id = $1 and cl_ord_id = $2",
    )
    .bind(session_id)
    .bind(cl_ord_id)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(order))
}

/// The ClOrdIDs among these, each with its session, that were used before.
pub async fn list_used_cl_ord_ids(
    conn: &mut PgConnection,
    requested: &[(&str, &str)],
) -> Result<Vec<(String, String)>, StoreError> {
    let (sessions, cl_ord_ids): (Vec<&str>, Vec<&str>) = requested.iter().copied().unzip();
    let rows = sqlx::query_as(
        "select o.session_id, o.cl_ord_id from unnest($1::text[], $2::text[]) as u (session_id, cl_ord_id) \
         join fix_order o on o.session_id = u.session_id and o.cl_ord_id = u.cl_ord_id",
    );
    Ok(rows.bind(sessions).bind(cl_ord_ids).fetch_all(conn).await?)
}

/// The session's orders of these events, by intentId.
async fn list_orders_of(
    conn: &mut PgConnection,
    session_id: &str,
    intent_ids: &BTreeSet<&str>,
) -> Result<BTreeMap<String, FixOrder>, StoreError> {
    // One look-up by the whole key for each order: with `= any(…)` the planner may read every order of the session.
    let rows: Vec<OrderRow> = sqlx::query_as(
        "select o.cl_ord_id, o.reference, o.intent_id, o.details from unnest($2::text[]) as u (intent_id) \
         cross join lateral (select * from fix_order f \
                             where f.session_id = $1 and f.intent_id = u.intent_id offset 0) o",
    )
    .bind(session_id)
    .bind(intent_ids.iter().collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.2.clone(), order(row))).collect())
}

/// A session's new events of its orders, and the position of the feed up to which it has read.
#[derive(Debug, Clone)]
pub struct Reportable {
    pub events: Vec<(StoredEvent, FixOrder)>,
    /// The position read up to, `after` without new events.
    pub position: i64,
}

/// Reads one page of the partner's feed and returns the events of the session's orders.
pub async fn list_reportable(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    after: i64,
    limit: i64,
) -> Result<Reportable, StoreError> {
    // One snapshot: the order of every event of the page is visible.
    let mut tx = conn.begin().await?;
    sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *tx).await?;
    let events =
        crate::orders::events::list_after(&mut tx, &session.partner_id, session.livemode, after, limit)
            .await?;
    let ids: BTreeSet<&str> = events.iter().map(|stored| stored.event.intent_id.as_str()).collect();
    let orders = list_orders_of(&mut tx, &session.session_id, &ids).await?;
    tx.commit().await?;
    let position = events.last().map_or(after, |last| last.position);
    let events = events
        .into_iter()
        .filter_map(|stored| orders.get(&stored.event.intent_id).cloned().map(|order| (stored, order)))
        .collect();
    Ok(Reportable { events, position })
}
