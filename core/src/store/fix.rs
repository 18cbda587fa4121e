//! FIX sessions: credentials, numbers, stored messages, orders.

use std::collections::BTreeMap;

use sqlx::{Connection as _, PgConnection};

use super::StoreError;
use super::events::StoredEvent;
use crate::fix::{FixOrder, FixOutbound, FixPart, FixRows};

/// A session as it is configured, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FixSessionRow {
    /// `FIX.4.4:DVP->ACME`.
    pub session_id: String,
    pub partner_id: String,
    pub livemode: bool,
    pub begin_string: String,
    /// The client's SenderCompID.
    pub client_comp_id: String,
    /// Ours.
    pub service_comp_id: String,
    /// DefaultApplVerID(1137) of a FIXT session.
    pub default_appl_ver_id: Option<String>,
    pub username: String,
    /// `Secrets::fix_password_hash` of session id and password.
    pub password_hash: Vec<u8>,
    pub enabled: bool,
    pub reset_on_logon: bool,
    pub reset_allowed: bool,
    pub max_slippage_bps: i32,
    pub next_in: i64,
    pub next_out: i64,
    pub feed_position: i64,
}

/// What makes a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFixSession {
    pub partner_id: String,
    pub livemode: bool,
    pub begin_string: String,
    pub client_comp_id: String,
    pub service_comp_id: String,
    pub default_appl_ver_id: Option<String>,
    pub username: String,
    pub password_hash: [u8; 32],
}

impl NewFixSession {
    /// `FIX.4.4:DVP->ACME`.
    pub fn session_id(&self) -> String {
        session_id(&self.begin_string, &self.service_comp_id, &self.client_comp_id)
    }
}

/// A session's id from its BeginString and CompIDs.
pub fn session_id(begin_string: &str, service_comp_id: &str, client_comp_id: &str) -> String {
    format!("{begin_string}:{service_comp_id}->{client_comp_id}")
}

/// Adds a session, or gives an existing one new credentials; its numbers stay. Reports begin with the next event.
pub async fn upsert_session(conn: &mut PgConnection, session: &NewFixSession) -> Result<(), StoreError> {
    sqlx::query(
        "insert into fix_session (session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
                                  default_appl_ver_id, username, password_hash, feed_position) \
         select $1, $2, $3, $4, $5, $6, $7, $8, $9, position from feed_counter \
         on conflict on constraint fix_session_pkey do update \
         set username = excluded.username, password_hash = excluded.password_hash",
    )
    .bind(session.session_id())
    .bind(&session.partner_id)
    .bind(session.livemode)
    .bind(&session.begin_string)
    .bind(&session.client_comp_id)
    .bind(&session.service_comp_id)
    .bind(session.default_appl_ver_id.as_deref())
    .bind(&session.username)
    .bind(&session.password_hash[..])
    .execute(conn)
    .await?;
    Ok(())
}

const COLUMNS: &str = "session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
    default_appl_ver_id, username, password_hash, enabled, reset_on_logon, reset_allowed, max_slippage_bps, next_in, \
    next_out, feed_position";

/// Enabled sessions after `after`, by id.
pub async fn list_sessions(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<FixSessionRow>, StoreError> {
    // The columns are a constant of this module.
    let statement = sqlx::AssertSqlSafe(format!(
        "select {COLUMNS} from fix_session where enabled and session_id > $1 order by session_id limit $2"
    ));
    Ok(sqlx::query_as(statement).bind(after).bind(limit).fetch_all(conn).await?)
}

/// A session by its id.
pub async fn find_session(conn: &mut PgConnection, id: &str) -> Result<Option<FixSessionRow>, StoreError> {
    // The columns are a constant of this module.
    let statement = sqlx::AssertSqlSafe(format!("select {COLUMNS} from fix_session where session_id = $1"));
    Ok(sqlx::query_as(statement).bind(id).fetch_optional(conn).await?)
}

/// The window of the schedule that a session's numbers belong to; `None` when it was never recorded.
pub async fn find_epoch(conn: &mut PgConnection, id: &str) -> Result<Option<i64>, StoreError> {
    let row: Option<(Option<i64>,)> = sqlx::query_as("select epoch from fix_session where session_id = $1")
        .bind(id)
        .fetch_optional(conn)
        .await?;
    Ok(row.and_then(|(epoch,)| epoch))
}

/// Records the window that a session's numbers belong to from now on. A later one stays.
pub async fn update_epoch(conn: &mut PgConnection, id: &str, epoch: i64) -> Result<(), StoreError> {
    sqlx::query("update fix_session set epoch = greatest(coalesce(epoch, $2), $2) where session_id = $1")
        .bind(id)
        .bind(epoch)
        .execute(conn)
        .await?;
    Ok(())
}

/// The numbers of one session before and after all its parts of a batch.
struct Span {
    before: i64,
    after: i64,
    next_in: i64,
    feed_position: Option<i64>,
    reset: bool,
}

/// Writes the FIX parts of a batch, in the order given.
///
/// A part whose number before is not the session's number (another owner wrote, or an earlier part failed) makes the
/// whole call [`StoreError::Stale`]: the batch is then tried unit by unit, and the parts that do not follow fail alone.
pub async fn apply_parts(conn: &mut PgConnection, parts: &[(&FixPart, FixRows)]) -> Result<(), StoreError> {
    if parts.is_empty() {
        return Ok(());
    }
    let spans = spans(parts)?;
    update_numbers(conn, &spans).await?;
    let reset: Vec<&str> = spans.iter().filter(|(_, span)| span.reset).map(|(id, _)| *id).collect();
    if !reset.is_empty() {
        sqlx::query("delete from fix_outbound where session_id = any($1)")
            .bind(reset)
            .execute(&mut *conn)
            .await?;
    }
    insert_outbound(conn, parts).await?;
    insert_orders(conn, parts).await
}

fn spans<'a>(parts: &[(&'a FixPart, FixRows)]) -> Result<BTreeMap<&'a str, Span>, StoreError> {
    let mut spans: BTreeMap<&str, Span> = BTreeMap::new();
    for (part, _) in parts {
        let (before, after, next_in) =
            (number(part.next_out_before)?, number(part.next_out)?, number(part.next_in)?);
        let span = spans.entry(&part.session_id).or_insert(Span {
            before,
            after: before,
            next_in,
            feed_position: None,
            reset: false,
        });
        if span.after != before {
            return Err(StoreError::Stale { what: "fix session" });
        }
        span.after = after;
        span.next_in = if part.reset { next_in } else { span.next_in.max(next_in) };
        span.feed_position = part.feed_position.or(span.feed_position);
        span.reset |= part.reset;
    }
    Ok(spans)
}

/// A reset sets the numbers; otherwise the inbound number only grows.
async fn update_numbers(conn: &mut PgConnection, spans: &BTreeMap<&str, Span>) -> Result<(), StoreError> {
    let done = sqlx::query(
        "update fix_session s \
         set next_out = u.after, \
             next_in = case when u.reset then u.next_in else greatest(s.next_in, u.next_in) end, \
             feed_position = coalesce(u.feed_position, s.feed_position) \
         from unnest($1::text[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bool[]) \
              as u (session_id, before, after, next_in, feed_position, reset) \
         where s.session_id = u.session_id and s.next_out = u.before",
    )
    .bind(spans.keys().copied().collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.before).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.after).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.next_in).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.feed_position).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.reset).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    if usize::try_from(done.rows_affected()) == Ok(spans.len()) {
        Ok(())
    } else {
        Err(StoreError::Stale { what: "fix session" })
    }
}

/// Messages of a session's numbers before a reset in the same batch are not kept: nobody can ask for them.
fn kept<'a>(parts: &'a [(&'a FixPart, FixRows)]) -> impl Iterator<Item = (&'a str, &'a FixOutbound)> {
    parts
        .iter()
        .enumerate()
        .filter_map(move |(at, (part, rows))| {
            let is_reset_later =
                parts[at + 1..].iter().any(|(later, _)| later.reset && later.session_id == part.session_id);
            (!is_reset_later)
                .then_some(rows.outbound.iter().map(|message| (part.session_id.as_str(), message)))
        })
        .flatten()
}

async fn insert_outbound(conn: &mut PgConnection, parts: &[(&FixPart, FixRows)]) -> Result<(), StoreError> {
    let messages: Vec<(&str, &FixOutbound)> = kept(parts).collect();
    if messages.is_empty() {
        return Ok(());
    }
    let seqs: Result<Vec<i64>, StoreError> =
        messages.iter().map(|(_, message)| number(message.seq)).collect();
    sqlx::query(
        "insert into fix_outbound (session_id, seq, msg_type, body, sending_time) \
         select * from unnest($1::text[], $2::int8[], $3::text[], $4::bytea[], $5::int8[])",
    )
    .bind(messages.iter().map(|(session, _)| *session).collect::<Vec<_>>())
    .bind(seqs?)
    .bind(messages.iter().map(|(_, message)| message.msg_type.as_str()).collect::<Vec<_>>())
    .bind(messages.iter().map(|(_, message)| message.body.as_slice()).collect::<Vec<_>>())
    .bind(messages.iter().map(|(_, message)| message.sending_time).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// An order that is known already gets new details; an accepted one never becomes another.
async fn insert_orders(conn: &mut PgConnection, parts: &[(&FixPart, FixRows)]) -> Result<(), StoreError> {
    // The last word about each order.
    let orders: BTreeMap<(&str, &str), &FixOrder> = parts
        .iter()
        .flat_map(|(part, rows)| {
            rows.orders.iter().map(|o| ((part.session_id.as_str(), o.cl_ord_id.as_str()), o))
        })
        .collect();
    if orders.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into fix_order (session_id, cl_ord_id, reference, intent_id, details) \
         select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[]) \
         on conflict on constraint fix_order_pkey do update \
         set reference = excluded.reference, details = excluded.details \
         where fix_order.reference is null or fix_order.reference = excluded.reference",
    )
    .bind(orders.keys().map(|(session, _)| *session).collect::<Vec<_>>())
    .bind(orders.keys().map(|(_, cl_ord_id)| *cl_ord_id).collect::<Vec<_>>())
    .bind(orders.values().map(|order| order.reference.as_deref()).collect::<Vec<_>>())
    .bind(orders.values().map(|order| order.intent_id.as_str()).collect::<Vec<_>>())
    .bind(orders.values().map(|order| order.details.clone()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// The stored messages of a range of numbers, ascending.
pub async fn list_outbound(
    conn: &mut PgConnection,
    session_id: &str,
    from: u64,
    to: u64,
) -> Result<Vec<FixOutbound>, StoreError> {
    let rows: Vec<(i64, String, Vec<u8>, i64)> = sqlx::query_as(
        "select seq, msg_type, body, sending_time from fix_outbound \
         where session_id = $1 and seq between $2 and $3 order by seq",
    )
    .bind(session_id)
    .bind(number(from)?)
    .bind(number(to)?)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(seq, msg_type, body, sending_time)| {
            let seq = u64::try_from(seq).map_err(|_| StoreError::corrupt("fix_outbound", "negative seq"))?;
            Ok(FixOutbound { seq, msg_type, body, sending_time })
        })
        .collect()
}

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

/// ClOrdIDs of orders that were refused before the engine saw them, which only the session knows of.
pub async fn list_refused(
    conn: &mut PgConnection,
    session_id: &str,
    limit: i64,
) -> Result<Vec<String>, StoreError> {
    let rows: Vec<(String,)> = sqlx::query_as(
        "select cl_ord_id from fix_order \
         where session_id = $1 and reference is null and details @> '{\"refused_at_the_door\": true}' \
         order by created_at desc limit $2",
    )
    .bind(session_id)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(cl_ord_id,)| cl_ord_id).collect())
}

/// The session's orders that these events are about, by intentId.
async fn list_orders_of(
    conn: &mut PgConnection,
    session_id: &str,
    intent_ids: &[&str],
) -> Result<BTreeMap<String, FixOrder>, StoreError> {
    let rows: Vec<OrderRow> = sqlx::query_as(
        "select cl_ord_id, reference, intent_id, details from fix_order \
         where session_id = $1 and intent_id = any($2)",
    )
    .bind(session_id)
    .bind(intent_ids)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.2.clone(), order(row))).collect())
}

/// What a session has to report: events about its orders, and how far the feed was read.
#[derive(Debug, Clone)]
pub struct Reportable {
    pub events: Vec<(StoredEvent, FixOrder)>,
    /// The position read up to, `after` when there was nothing.
    pub position: i64,
}

/// Reads one page of the partner's feed and keeps what is about the session's orders.
pub async fn list_reportable(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    after: i64,
    limit: i64,
) -> Result<Reportable, StoreError> {
    // One snapshot: an order is never missing that an event of the page is about.
    let mut tx = conn.begin().await?;
    sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *tx).await?;
    let events = super::events::list_after(&mut tx, &session.partner_id, after, limit).await?;
    let ids: Vec<&str> = events.iter().map(|stored| stored.event.intent_id.as_str()).collect();
    let orders = list_orders_of(&mut tx, &session.session_id, &ids).await?;
    tx.commit().await?;
    let position = events.last().map_or(after, |last| last.position);
    let events = events
        .into_iter()
        .filter(|stored| stored.event.tenant.livemode == session.livemode)
        .filter_map(|stored| orders.get(&stored.event.intent_id).cloned().map(|order| (stored, order)))
        .collect();
    Ok(Reportable { events, position })
}

fn number(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::corrupt("fix_session", "a number beyond bigint"))
}
