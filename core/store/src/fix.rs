//! FIX sessions: credentials, numbers, stored messages, orders.

pub mod admin;
pub mod commands;
pub mod parked;
pub mod reports;
pub mod rows;
pub mod settings;

use std::collections::{BTreeMap, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, FromRow as _, PgConnection, Row as _};

use super::StoreError;
use crate::fix::parked as fix_parked;
use crate::fix::rows::{FixNumbers, FixOrder, FixOutbound, FixReset, FixRows, Renumber};
use crate::fix::settings::FixSessionSettings;
use crate::orders::events::StoredEvent;

/// A session's configuration, with its numbers.
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
    /// The session is enabled, and so is its partner.
    pub enabled: bool,
    pub reset_on_logon: bool,
    pub reset_allowed: bool,
    pub max_slippage_bps: i32,
    pub next_in: i64,
    pub next_out: i64,
    pub feed_position: i64,
}

/// A new session.
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
    /// Id of the master key of the hash.
    pub password_key: String,
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

/// Adds a session, or replaces the credentials of an existing one; its numbers stay. Reports begin with the next event.
pub async fn upsert_session(conn: &mut PgConnection, session: &NewFixSession) -> Result<(), StoreError> {
    sqlx::query(
        "insert into fix_session (session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
                                  default_appl_ver_id, username, password_hash, password_key, feed_position) \
         select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, position from feed_counter \
         on conflict on constraint fix_session_pkey do update \
         set username = excluded.username, password_hash = excluded.password_hash, \
             password_key = excluded.password_key",
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
    .bind(&session.password_key)
    .execute(conn)
    .await?;
    Ok(())
}

const COLUMNS: &str = "session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
    default_appl_ver_id, username, password_hash, \
    enabled and (select p.disabled_at is null from partner p where p.id = partner_id) as enabled, reset_on_logon, reset_allowed, max_slippage_bps, next_in, \
    next_out, feed_position";

/// A session as a gateway reads it.
#[derive(Debug, Clone)]
pub struct ConfiguredSession {
    pub session: FixSessionRow,
    pub settings: FixSessionSettings,
    /// The owner of the lease `fix:` and the session's id.
    pub holder: Option<uuid::Uuid>,
}

/// An unreadable row; the other rows are readable.
#[derive(Debug)]
pub struct UnreadableSession {
    pub session_id: String,
    pub error: sqlx::Error,
}

/// Sessions after `after`, by id, disabled ones included. An unreadable one does not prevent reading the others.
pub async fn list_configured(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<Result<ConfiguredSession, UnreadableSession>>, StoreError> {
    // The columns are constants of these modules; their names are unique across the joined tables.
    let statement = sqlx::AssertSqlSafe(format!(
        "select {COLUMNS}, {}, l.owner as holder from fix_session \
         left join lease l on l.name = 'fix:' || session_id and l.expires_at > clock_timestamp() \
         where session_id > $1 order by session_id limit $2",
        crate::fix::settings::COLUMNS
    ));
    let rows: Vec<PgRow> = sqlx::query(statement).bind(after).bind(limit).fetch_all(conn).await?;
    rows.iter().map(configured).collect()
}

fn configured(row: &PgRow) -> Result<Result<ConfiguredSession, UnreadableSession>, StoreError> {
    let session_id: String = row.try_get("session_id")?;
    let read = || {
        let session = FixSessionRow::from_row(row)?;
        let settings = FixSessionSettings::from_row(row)?;
        Ok(ConfiguredSession { session, settings, holder: row.try_get("holder")? })
    };
    Ok(read().map_err(|error| UnreadableSession { session_id, error }))
}

/// Stores a session's password under the hash of the current master key.
pub async fn rehash_password(
    conn: &mut PgConnection,
    session_id: &str,
    password_hash: &[u8; 32],
    master_key: &str,
) -> Result<(), StoreError> {
    sqlx::query("update fix_session set password_hash = $2, password_key = $3 where session_id = $1")
        .bind(session_id)
        .bind(password_hash.as_slice())
        .bind(master_key)
        .execute(conn)
        .await?;
    Ok(())
}

/// A session by its id.
pub async fn find_session(conn: &mut PgConnection, id: &str) -> Result<Option<FixSessionRow>, StoreError> {
    // The columns are a constant of this module.
    let statement = sqlx::AssertSqlSafe(format!("select {COLUMNS} from fix_session where session_id = $1"));
    Ok(sqlx::query_as(statement).bind(id).fetch_optional(conn).await?)
}

/// The schedule window of a session's numbers; `None` when it was never recorded.
pub async fn find_epoch(conn: &mut PgConnection, id: &str) -> Result<Option<i64>, StoreError> {
    let row: Option<(Option<i64>,)> = sqlx::query_as("select epoch from fix_session where session_id = $1")
        .bind(id)
        .fetch_optional(conn)
        .await?;
    Ok(row.and_then(|(epoch,)| epoch))
}

/// Records the window of a session's numbers. A later one stays.
pub async fn update_epoch(conn: &mut PgConnection, id: &str, epoch: i64) -> Result<(), StoreError> {
    sqlx::query("update fix_session set epoch = greatest(coalesce(epoch, $2), $2) where session_id = $1")
        .bind(id)
        .bind(epoch)
        .execute(conn)
        .await?;
    Ok(())
}

/// The numbers of our messages that a session's peer has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct FixReach {
    /// The peer has received our messages up to this number, as far as is known.
    pub seen_out: i64,
    /// Messages beyond this number have never been written to a socket.
    pub written_out: i64,
    /// The highest number of a stored message, 0 without any.
    pub stored_out: i64,
}

/// The received numbers of the session's peer; `None` without such a session.
pub async fn find_reach(conn: &mut PgConnection, id: &str) -> Result<Option<FixReach>, StoreError> {
    let row = sqlx::query_as(
        "select s.seen_out, s.written_out, \
                coalesce((select max(seq) from fix_outbound o where o.session_id = s.session_id), 0) as stored_out \
         from fix_session s where s.session_id = $1",
    );
    Ok(row.bind(id).fetch_optional(conn).await?)
}

/// The number of stored messages that a reset keeps: those after `seen_out` of types that are not stale.
pub async fn count_kept(
    conn: &mut PgConnection,
    session_id: &str,
    seen_out: u64,
    stale_types: &[String],
) -> Result<u64, StoreError> {
    let row: (i64,) = sqlx::query_as(
        "select count(*) from fix_outbound where session_id = $1 and seq > $2 and msg_type <> all($3)",
    )
    .bind(session_id)
    .bind(number(seen_out)?)
    .bind(stale_types)
    .fetch_one(conn)
    .await?;
    unsigned(row.0)
}

/// The next outbound number of each existing session.
pub async fn list_next_out(
    conn: &mut PgConnection,
    session_ids: &[&str],
) -> Result<HashMap<String, u64>, StoreError> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("select session_id, next_out from fix_session where session_id = any($1::text[])")
            .bind(session_ids)
            .fetch_all(conn)
            .await?;
    rows.into_iter()
        .map(|(id, next_out)| match u64::try_from(next_out) {
            Ok(next_out) => Ok((id, next_out)),
            Err(_) => Err(StoreError::corrupt("fix_session", "negative next_out")),
        })
        .collect()
}

/// The numbers of one session before and after all its parts of a batch.
struct Span {
    before: i64,
    after: i64,
    next_in: i64,
    seen_out: i64,
    written_out: i64,
    feed_position: Option<i64>,
    /// The inbound number is set, and may decrease.
    is_set: bool,
}

/// Writes the FIX parts of a batch, in the order given.
///
/// A part whose number before differs from the session's number (another owner wrote, or an earlier part failed) makes
/// the whole call [`StoreError::Stale`]; [`list_next_out`] shows which parts are invalid.
pub async fn apply_parts(
    conn: &mut PgConnection,
    parts: &[(&FixNumbers, FixRows)],
) -> Result<(), StoreError> {
    if parts.is_empty() {
        return Ok(());
    }
    update_numbers(conn, &spans(parts)?).await?;
    let mut from = 0;
    for (at, (part, _)) in parts.iter().enumerate() {
        if let Some(Renumber::Reset(reset)) = &part.renumber {
            // A reset also covers the messages before it in the batch.
            insert_outbound(conn, parts.get(from..at).unwrap_or_default()).await?;
            move_kept(conn, &part.session_id, reset).await?;
            from = at;
        }
    }
    insert_outbound(conn, parts.get(from..).unwrap_or_default()).await?;
    fix_parked::apply(conn, parts).await?;
    insert_orders(conn, parts).await?;
    update_orders(conn, parts).await
}

fn spans<'a>(parts: &[(&'a FixNumbers, FixRows)]) -> Result<BTreeMap<&'a str, Span>, StoreError> {
    let mut spans: BTreeMap<&str, Span> = BTreeMap::new();
    for (part, _) in parts {
        let (before, after, next_in) =
            (number(part.next_out_before)?, number(part.next_out)?, number(part.next_in)?);
        let span = spans.entry(&part.session_id).or_insert(Span {
            before,
            after: before,
            next_in,
            seen_out: 0,
            written_out: 0,
            feed_position: None,
            is_set: false,
        });
        if span.after != before {
            return Err(StoreError::Stale { what: "fix session" });
        }
        span.after = after;
        let is_set = part.renumber.is_some();
        span.next_in = if is_set { next_in } else { span.next_in.max(next_in) };
        (span.seen_out, span.written_out) = (number(part.seen_out)?, number(part.written_out)?);
        span.feed_position = part.feed_position.or(span.feed_position);
        span.is_set |= is_set;
    }
    Ok(spans)
}

/// A reset, or an operator, sets the numbers; otherwise the inbound number only increases.
async fn update_numbers(conn: &mut PgConnection, spans: &BTreeMap<&str, Span>) -> Result<(), StoreError> {
    let done = sqlx::query(
        "update fix_session s \
         set next_out = u.after, \
             next_in = case when u.is_set then u.next_in else greatest(s.next_in, u.next_in) end, \
             seen_out = u.seen_out, written_out = u.written_out, \
             feed_position = coalesce(u.feed_position, s.feed_position) \
         from unnest($1::text[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bool[]) \
              as u (session_id, before, after, next_in, seen_out, written_out, feed_position, is_set) \
         where s.session_id = u.session_id and s.next_out = u.before",
    )
    .bind(spans.keys().copied().collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.before).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.after).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.next_in).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.seen_out).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.written_out).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.feed_position).collect::<Vec<_>>())
    .bind(spans.values().map(|span| span.is_set).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    if usize::try_from(done.rows_affected()) == Ok(spans.len()) {
        Ok(())
    } else {
        Err(StoreError::Stale { what: "fix session" })
    }
}

/// Deletes the stored messages of a session, and renumbers those that the peer may not have received.
///
/// A BusinessMessageReject loses its RefSeqNum(45): after the reset the number could be mistaken for that of another
/// message. BusinessRejectRefID(379) still identifies the rejected message.
pub(super) async fn move_kept(
    conn: &mut PgConnection,
    session_id: &str,
    reset: &FixReset,
) -> Result<(), StoreError> {
    // The window function reads every deleted row before the first one is inserted, so that numbers do not collide.
    let done = sqlx::query(
        "with gone as (delete from fix_outbound where session_id = $1 returning seq, msg_type, body, sending_time), \
              kept as (select seq, row_number() over (order by seq) - 1 + $4 as new_seq, msg_type, sending_time, \
                              case when msg_type = 'j' and found > 0 \
                                   then substring(body from 1 for found - 1) \
                                        || substring(rest from position($8 in rest) + 1) \
                                   else body end as body \
                       from gone, position($7 in $8 || body) found, substring(body from found) rest \
                       where seq > $2 and msg_type <> all($5)) \
         insert into fix_outbound (session_id, seq, msg_type, body, sending_time) \
         select $1, new_seq, msg_type, \
                case when seq <= $3 and substring(body from 1 for 5) <> $6 then $6 || body else body end, sending_time \
         from kept",
    )
    .bind(session_id)
    .bind(number(reset.seen_out)?)
    .bind(number(reset.written_out)?)
    .bind(number(reset.first_kept)?)
    .bind(&reset.stale_types)
    .bind(&POSS_RESEND[..])
    .bind(&REF_SEQ_NUM[..])
    .bind(&SOH[..])
    .execute(conn)
    .await?;
    if done.rows_affected() == reset.kept { Ok(()) } else { Err(StoreError::Stale { what: "fix session" }) }
}

/// PossResend(97)=Y before a body, from where it is moved into the header.
const POSS_RESEND: [u8; 5] = *b"97=Y\x01";
/// RefSeqNum(45) after the end of the field before it. No field of a BusinessMessageReject contains an SOH.
const REF_SEQ_NUM: [u8; 4] = *b"\x0145=";
const SOH: [u8; 1] = *b"\x01";

async fn insert_outbound(
    conn: &mut PgConnection,
    parts: &[(&FixNumbers, FixRows)],
) -> Result<(), StoreError> {
    let messages: Vec<(&str, &FixOutbound)> = parts
        .iter()
        .flat_map(|(part, rows)| rows.outbound.iter().map(|message| (part.session_id.as_str(), message)))
        .collect();
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

/// A ClOrdID that was used before stops the whole batch by its key: who has not looked then does.
async fn insert_orders(conn: &mut PgConnection, parts: &[(&FixNumbers, FixRows)]) -> Result<(), StoreError> {
    let orders = orders_of(parts, |rows| &rows.orders);
    if orders.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into fix_order (session_id, cl_ord_id, reference, intent_id, details) \
         select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[])",
    )
    .bind(orders.iter().map(|(session, _)| *session).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.cl_ord_id.as_str()).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.reference.as_deref()).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.intent_id.as_str()).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.details.clone()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// An accepted order's identity never changes.
async fn update_orders(conn: &mut PgConnection, parts: &[(&FixNumbers, FixRows)]) -> Result<(), StoreError> {
    let orders = orders_of(parts, |rows| &rows.updates);
    if orders.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "update fix_order o set details = u.details, reference = u.reference \
         from unnest($1::text[], $2::text[], $3::jsonb[], $4::text[]) \
              as u (session_id, cl_ord_id, details, reference) \
         where o.session_id = u.session_id and o.cl_ord_id = u.cl_ord_id \
           and (o.reference is null or o.reference = u.reference)",
    )
    .bind(orders.iter().map(|(session, _)| *session).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.cl_ord_id.as_str()).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.details.clone()).collect::<Vec<_>>())
    .bind(orders.iter().map(|(_, order)| order.reference.as_deref()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

fn orders_of<'a>(
    parts: &'a [(&'a FixNumbers, FixRows)],
    of: impl Fn(&'a FixRows) -> &'a Vec<FixOrder>,
) -> Vec<(&'a str, &'a FixOrder)> {
    let of_part = |(part, rows): &'a (&'a FixNumbers, FixRows)| {
        of(rows).iter().map(|order| (part.session_id.as_str(), order))
    };
    parts.iter().flat_map(of_part).collect()
}

/// The ClOrdIDs among these, each with its session, that were used before.
pub async fn list_used_cl_ord_ids(
    conn: &mut PgConnection,
    asked: &[(&str, &str)],
) -> Result<Vec<(String, String)>, StoreError> {
    let (sessions, cl_ord_ids): (Vec<&str>, Vec<&str>) = asked.iter().copied().unzip();
    let rows = sqlx::query_as(
        "select o.session_id, o.cl_ord_id from unnest($1::text[], $2::text[]) as u (session_id, cl_ord_id) \
         join fix_order o on o.session_id = u.session_id and o.cl_ord_id = u.cl_ord_id",
    );
    Ok(rows.bind(sessions).bind(cl_ord_ids).fetch_all(conn).await?)
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

/// The session's orders of these events, by intentId.
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
    let ids: Vec<&str> = events.iter().map(|stored| stored.event.intent_id.as_str()).collect();
    let orders = list_orders_of(&mut tx, &session.session_id, &ids).await?;
    tx.commit().await?;
    let position = events.last().map_or(after, |last| last.position);
    let events = events
        .into_iter()
        .filter_map(|stored| orders.get(&stored.event.intent_id).cloned().map(|order| (stored, order)))
        .collect();
    Ok(Reportable { events, position })
}

fn unsigned(value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| StoreError::corrupt("fix_session", "a negative number"))
}

fn number(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| beyond_bigint())
}

fn beyond_bigint() -> StoreError {
    StoreError::corrupt("fix_session", "a number beyond bigint")
}
