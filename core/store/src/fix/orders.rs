//! Orders by ClOrdID, and the events that are reported for them.

use chrono::{DateTime, Utc};
use dvp_domain::event::EventType;
use sqlx::{FromRow as _, PgConnection, Row as _};

use super::sessions::FixSessionRow;
use crate::fix::rows::{ClOrdId, FixOrder};
use crate::orders::events::StoredEvent;
use crate::{StoreError, statement};

/// An order, and when it was written.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct KnownOrder {
    #[sqlx(flatten)]
    pub order: FixOrder,
    pub created_at: DateTime<Utc>,
}

/// Of the orders and requests with a ClOrdID the one with this reference, or else the newest.
pub async fn find_order(
    conn: &mut PgConnection,
    session_id: &str,
    cl_ord_id: &str,
    reference: Option<&str>,
) -> Result<Option<KnownOrder>, StoreError> {
    let sql = "select cl_ord_id, trading_day, reference, intent_id, details, created_at from fix_order \
         where session_id = $1 and cl_ord_id = $2 \
         order by coalesce(reference = $3, false) desc, trading_day desc limit 1";
    statement::find(conn, sql, (session_id, cl_ord_id, reference)).await
}

/// The newest order with a ClOrdID and this content.
pub async fn find_same_order(
    conn: &mut PgConnection,
    session_id: &str,
    cl_ord_id: &str,
    fingerprint: &str,
) -> Result<Option<KnownOrder>, StoreError> {
    let sql = "select cl_ord_id, trading_day, reference, intent_id, details, created_at from fix_order \
         where session_id = $1 and cl_ord_id = $2 and details ->> 'fingerprint' = $3 \
         order by trading_day desc limit 1";
    statement::find(conn, sql, (session_id, cl_ord_id, fingerprint)).await
}

/// The ClOrdIDs among these, each with its session, that were used before.
pub async fn list_used_cl_ord_ids(
    conn: &mut PgConnection,
    requested: &[&(String, ClOrdId)],
) -> Result<Vec<(String, ClOrdId)>, StoreError> {
    let parameters = (
        requested.iter().map(|(session_id, _)| session_id.as_str()).collect::<Vec<_>>(),
        requested.iter().map(|(_, used)| used.id.as_str()).collect::<Vec<_>>(),
        requested.iter().map(|(_, used)| used.trading_day).collect::<Vec<_>>(),
    );
    let sql = "select o.session_id, o.cl_ord_id, o.trading_day \
         from unnest($1::text[], $2::text[], $3::int4[]) as u (session_id, cl_ord_id, trading_day) \
         join fix_order o on o.session_id = u.session_id and o.cl_ord_id = u.cl_ord_id \
                         and o.trading_day = u.trading_day";
    let rows: Vec<(String, String, i32)> = statement::list(conn, sql, parameters).await?;
    Ok(rows
        .into_iter()
        .map(|(session_id, id, trading_day)| (session_id, ClOrdId { id, trading_day }))
        .collect())
}

/// A session's new events of its orders, and the position of the feed up to which it has read.
#[derive(Debug, Clone)]
pub struct Reportable {
    pub events: Vec<(StoredEvent, FixOrder)>,
    /// The position read up to, `after` without new events.
    pub position: i64,
    /// The page was full: more events may follow.
    pub has_more: bool,
}

/// Reads one page of the partner's events and returns those of the session's orders, in one statement, so that the order
/// of every event of the page is visible. Of the events of other orders only the positions are read. A session that was
/// disabled for long finds events that have left the feed.
pub async fn list_reportable(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    after: i64,
    limit: i64,
) -> Result<Reportable, StoreError> {
    // Rows are compared as in `list_recorded_after`. One look-up by the whole key for each event: with a plain join the
    // planner may read every order of the session.
    let sql = "with page as materialized ( \
             select e.*, o.cl_ord_id, o.trading_day, o.reference as order_reference, o.details \
             from (select * from event_record \
                   where (partner_id, livemode, position) > ($2, $3, $4) \
                     and (partner_id, livemode, position) <= ($2, $3, 9223372036854775807) \
                   order by partner_id, livemode, position limit $5) e \
             left join lateral (select f.cl_ord_id, f.trading_day, f.reference, f.details from fix_order f \
                                where f.session_id = $1 and f.intent_id = e.intent_id offset 0) o on true) \
         select whole.last, whole.size, own.* \
         from (select max(position) as last, count(*) as size from page) whole \
         left join page own on own.cl_ord_id is not null order by own.position";
    let parameters = (&session.session_id, &session.partner_id, session.livemode, after, limit);
    let rows = statement::list_rows(conn, sql, parameters).await?;
    let mut found = Reportable { events: Vec::new(), position: after, has_more: false };
    for row in &rows {
        let last: Option<i64> = row.try_get("last")?;
        (found.position, found.has_more) = (last.unwrap_or(after), row.try_get::<i64, _>("size")? >= limit);
        if let Some(cl_ord_id) = row.try_get("cl_ord_id")? {
            let stored = StoredEvent::from_row(row)?;
            let (reference, intent_id) = (row.try_get("order_reference")?, stored.event.intent_id.clone());
            let (trading_day, details) = (row.try_get("trading_day")?, row.try_get("details")?);
            let order = FixOrder { cl_ord_id, trading_day, reference, intent_id, details };
            found.events.push((stored, order));
        }
    }
    Ok(found)
}

/// A new event of the feed, as the follower of a process routes it.
#[derive(Debug, Clone)]
pub struct RoutedEvent {
    pub position: i64,
    pub partner_id: String,
    pub livemode: bool,
    /// With its order, where that came from a FIX session; not for an acceptance, which is reported when it is committed.
    pub own: Option<OwnEvent>,
    /// The session of an event that cannot be read, and why.
    pub unreadable: Option<(String, String)>,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OwnEvent {
    pub session_id: String,
    #[sqlx(flatten)]
    pub event: StoredEvent,
    #[sqlx(flatten)]
    pub order: FixOrder,
}

/// The events after a position, ascending, with the orders of sessions.
pub async fn list_routed(
    conn: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<RoutedEvent>, StoreError> {
    // Of an event that is no session's, its document is not read.
    let sql = "select e.position, e.event_id, e.partner_id, e.livemode, e.reference, e.intent_id, \
                e.client_reference, e.sequence, e.type, e.occurred_at, e.observed_at, \
                case when o.session_id is null then 'null' else e.object end as object, \
                o.session_id, o.cl_ord_id, o.trading_day, o.details \
         from (select * from event where position > $1 order by position limit $2) e \
         left join lateral (select f.session_id, f.cl_ord_id, f.trading_day, f.details from fix_order f \
                            where f.intent_id = e.intent_id and f.reference = e.reference limit 1) o \
              on e.type <> $3 \
         order by e.position";
    let rows = statement::list_rows(conn, sql, (after, limit, EventType::IntentAccepted.as_str())).await?;
    rows.iter()
        .map(|row| {
            let (own, unreadable) = match row.try_get("session_id")? {
                Some(session_id) => match OwnEvent::from_row(row).map_err(StoreError::from) {
                    Ok(own) => (Some(own), None),
                    // It concerns its own session only.
                    Err(error) => (None, Some((session_id, error.to_string()))),
                },
                None => (None, None),
            };
            let (position, partner_id) = (row.try_get("position")?, row.try_get("partner_id")?);
            Ok(RoutedEvent { position, partner_id, livemode: row.try_get("livemode")?, own, unreadable })
        })
        .collect()
}
