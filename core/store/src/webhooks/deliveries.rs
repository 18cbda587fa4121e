//! Deliveries: queued from the feed, read by the owner of their endpoint's lease, ended in batches; and the log of
//! ended deliveries, in partitions of a day.
//!
//! A delivery in flight is in its owner's memory only: reading writes nothing. The row leaves the queue in the
//! transaction that writes its log, which requires that the fence of the lease is unchanged
//! ([`leases`](super::leases)). So a delivery that its owner loses is still in the queue.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::envelope::BODY_BYTES_MAX;
use dvp_domain::names::names;
use sqlx::PgConnection;

use crate::database::partitions::{self, DayTable};
use crate::orders::events::RETENTION_DAYS;
use crate::webhooks::leases::EndpointLease;
use crate::{StoreError, statement};

names! {
    /// Why a delivery exists.
    pub enum Origin {
        Feed = "feed",
        Resend = "resend",
        Replay = "replay",
        Test = "test",
    }
}

/// An event to send to an endpoint.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub endpoint_id: String,
    pub partner_id: String,
    pub event_id: String,
    pub kind: String,
    pub origin: Origin,
    pub body: String,
    /// The order's trace, as a `traceparent`.
    pub trace: Option<String>,
}

/// Queues deliveries that are due immediately, and wakes the senders. One that is too large is recorded as failed.
pub async fn insert(conn: &mut PgConnection, new: &[NewDelivery]) -> Result<(), StoreError> {
    let text = |of: fn(&NewDelivery) -> &str| new.iter().map(of).collect::<Vec<_>>();
    let sql = "with new as ( \
             select *, octet_length(body) <= $7 as fits \
             from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $8::text[]) \
                  as u (endpoint, partner, event, type, origin, body, trace) \
         ), queued as ( \
             insert into webhook_queue (endpoint_id, partner_id, event_id, type, origin, body, trace) \
             select endpoint, partner, event, type, origin, body, trace from new where fits \
         ) \
         insert into webhook_delivery_log (id, endpoint_id, partner_id, event_id, type, origin, state, created_at, ended_at) \
         select nextval('webhook_delivery_number'), endpoint, partner, event, type, origin, 'failed', \
                clock_timestamp(), clock_timestamp() \
         from new where not fits";
    let parameters = (
        text(|d| &d.endpoint_id),
        text(|d| &d.partner_id),
        text(|d| &d.event_id),
        text(|d| &d.kind),
        text(|d| d.origin.as_str()),
        text(|d| &d.body),
        i32::try_from(BODY_BYTES_MAX).unwrap_or(i32::MAX),
        new.iter().map(|d| d.trace.as_deref()).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await?;
    statement::execute(conn, "select pg_notify('dvp_webhook', '')", ()).await
}

/// Whether more than `count` deliveries to an endpoint wait. It reads no more of them.
pub async fn waits_more_than(
    conn: &mut PgConnection,
    endpoint_id: &str,
    count: i64,
) -> Result<bool, StoreError> {
    let sql = "select exists (select from webhook_queue where endpoint_id = $1 \
         order by due_at, id offset $2 limit 1)";
    statement::load_value(conn, sql, (endpoint_id, count)).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    pub due_at: DateTime<Utc>,
    pub id: i64,
}

/// A request to read one endpoint's queue.
#[derive(Debug, Clone)]
pub struct Ask {
    pub endpoint_id: String,
    /// Only deliveries after this position.
    pub after: Option<QueuePosition>,
    /// At most this many.
    pub room: i64,
}

/// A delivery that is due.
#[derive(Debug, Clone)]
pub struct Due {
    /// The index of its lease among the requested ones.
    pub lease: usize,
    pub place: QueuePosition,
    /// It has been due long enough that every delivery before it is visible, except one of a longer transaction.
    pub settled: bool,
    pub event_id: String,
    /// Attempts already made.
    pub attempts: u32,
    pub body: String,
    pub trace: Option<String>,
}

/// The columns lease (counted from one), id, due, settled, event, attempts, body, trace. They are read by position, because sqlx
/// looks names up for each row.
type DueRow = (i64, i64, DateTime<Utc>, bool, String, i32, String, Option<String>);

fn into_due((n, id, due_at, settled, event_id, attempts, body, trace): DueRow) -> Result<Due, StoreError> {
    let corrupt = |reason: &str| StoreError::corrupt("webhook_queue", reason);
    Ok(Due {
        lease: usize::try_from(n).ok().and_then(|n| n.checked_sub(1)).ok_or_else(|| corrupt("lease"))?,
        place: QueuePosition { due_at, id },
        settled,
        event_id,
        attempts: u32::try_from(attempts).map_err(|_| corrupt("attempts"))?,
        body,
        trace,
    })
}

/// How long a delivery may have been due before its insert is visible.
const SETTLES_SECS: i32 = 1;

/// Reads due deliveries of active endpoints of enabled partners, by lease and due time: at most `limit`, without those of
/// `in_hand`. The caller must hold the leases.
pub async fn list_due(
    conn: &mut PgConnection,
    requested: &[Ask],
    in_hand: &[i64],
    limit: i64,
) -> Result<Vec<Due>, StoreError> {
    let sql = "select a.n, q.id, q.due_at, q.due_at <= statement_timestamp() - make_interval(secs => $7), \
                q.event_id, q.attempts, q.body, q.trace \
         from unnest($1::text[], $2::timestamptz[], $3::int8[], $4::int8[]) with ordinality \
                  as a (endpoint_id, after_due, after_id, room, n) \
              join webhook_endpoint w on w.id = a.endpoint_id and w.is_active \
              join partner p on p.id = w.partner_id and p.disabled_at is null \
              cross join lateral ( \
                  select id, due_at, event_id, attempts, body, trace from webhook_queue \
                  where endpoint_id = a.endpoint_id and due_at <= statement_timestamp() \
                    and (due_at, id) > (coalesce(a.after_due, '-infinity'), coalesce(a.after_id, 0)) \
                    and id <> all($5::int8[]) \
                  order by due_at, id limit a.room \
              ) q \
         order by a.n, q.due_at, q.id limit $6";
    let parameters = (
        requested.iter().map(|ask| ask.endpoint_id.as_str()).collect::<Vec<_>>(),
        requested.iter().map(|ask| ask.after.map(|place| place.due_at)).collect::<Vec<_>>(),
        requested.iter().map(|ask| ask.after.map(|place| place.id)).collect::<Vec<_>>(),
        requested.iter().map(|ask| ask.room).collect::<Vec<_>>(),
        in_hand,
        limit,
        f64::from(SETTLES_SECS),
    );
    let rows: Vec<DueRow> = statement::list(conn, sql, parameters).await?;
    rows.into_iter().map(into_due).collect()
}

/// The state of a delivery after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Delivered,
    /// Due again after this time.
    Again(Duration),
    /// No attempts are left.
    Failed,
}

/// An attempt that was made, or could not be made.
#[derive(Debug, Clone)]
pub struct Ended {
    pub id: i64,
    pub fence: i64,
    pub next: Next,
    /// `None`: no request was sent to the endpoint, and no attempt is used up.
    pub attempt: Option<Attempt>,
}

#[derive(Debug, Clone, Default)]
pub struct Attempt {
    pub number: u32,
    pub at: DateTime<Utc>,
    pub status: Option<u16>,
    pub latency_ms: i64,
    pub error: Option<&'static str>,
    pub body_prefix: Option<String>,
}

/// The endpoint leases whose fences are unchanged, locked until the transaction ends.
macro_rules! held_leases {
    ($rest:literal) => {
        concat!(
            "with held as materialized ( \
                 select l.endpoint_id, l.fence from endpoint_lease l \
                        join unnest($1::text[], $2::int8[]) as h (endpoint_id, fence) \
                        on l.endpoint_id = h.endpoint_id and l.fence = h.fence \
                 order by l.endpoint_id for share of l \
             ), u as ( \
                 select * from unnest($3::int8[], $4::int8[], $5::text[], $6::float8[], $7::int4[], \
                                      $8::timestamptz[], $9::int4[], $10::int8[], $11::text[], $12::text[]) \
                      as u (id, fence, state, pause, number, at, status, latency_ms, error, body_prefix) \
             ), ",
            $rest
        )
    };
}

/// Moves delivered and failed deliveries from the queue to the log. A success resets the endpoint's failures.
const CLOSE: &str = held_leases!(
    "gone as ( \
         delete from webhook_queue q using u, held s \
         where q.id = u.id and s.endpoint_id = q.endpoint_id and s.fence = u.fence \
         returning q.id, q.endpoint_id, q.partner_id, q.event_id, q.type, q.origin, q.created_at, \
                   u.state, u.number, u.at, u.status, u.latency_ms, u.error, u.body_prefix \
     ), well as ( \
         update webhook_endpoint set failing_since = null, noticed_at = null \
         where failing_since is not null and id in (select endpoint_id from gone where state = 'delivered') \
     ), logged as ( \
         insert into webhook_delivery_log (id, endpoint_id, partner_id, event_id, type, origin, created_at, ended_at, \
                                       state, number, at, status, latency_ms, error, body_prefix) \
         select id, endpoint_id, partner_id, event_id, type, origin, created_at, clock_timestamp(), \
                state, number, at, status, latency_ms, error, body_prefix \
         from gone returning id \
     ) \
     select coalesce(array_agg(id), '{}') from logged"
);

/// Postpones deliveries that are to be retried, and logs the attempt.
const PUT_OFF: &str = held_leases!(
    "kept as ( \
         update webhook_queue q \
         set attempts = coalesce(u.number, q.attempts), \
             due_at = clock_timestamp() + make_interval(secs => u.pause) \
         from u, held s where q.id = u.id and s.endpoint_id = q.endpoint_id and s.fence = u.fence \
         returning q.id \
     ), made as ( \
         insert into webhook_attempt_log (delivery_id, number, at, status, latency_ms, error, body_prefix) \
         select id, number, at, status, latency_ms, error, body_prefix from u join kept using (id) \
         where number is not null \
     ) \
     select coalesce(array_agg(id), '{}') from kept"
);

/// Writes outcomes of deliveries of these leases: one statement for ended deliveries, one for those to be retried.
/// Returns the ids that were written; deliveries whose lease another process has taken are left out.
pub async fn end(
    conn: &mut PgConnection,
    leases: &[EndpointLease],
    ended: &[Ended],
) -> Result<Vec<i64>, StoreError> {
    let (again, closed): (Vec<&Ended>, Vec<&Ended>) =
        ended.iter().partition(|end| matches!(end.next, Next::Again(_)));
    let mut counted = Vec::with_capacity(ended.len());
    for (statement, ended) in [(CLOSE, closed), (PUT_OFF, again)] {
        if !ended.is_empty() {
            counted.extend(write(conn, statement, leases, &ended).await?);
        }
    }
    Ok(counted)
}

async fn write(
    conn: &mut PgConnection,
    sql: &'static str,
    leases: &[EndpointLease],
    ended: &[&Ended],
) -> Result<Vec<i64>, StoreError> {
    let state = |end: &&Ended| if end.next == Next::Delivered { "delivered" } else { "failed" };
    let pause = |end: &&Ended| match end.next {
        Next::Again(pause) => pause.as_secs_f64(),
        Next::Delivered | Next::Failed => 0.0,
    };
    fn of<'a, T>(ended: &[&'a Ended], of: impl Fn(&'a Attempt) -> T) -> Vec<Option<T>> {
        ended.iter().map(|end| end.attempt.as_ref().map(&of)).collect()
    }
    let parameters = (
        leases.iter().map(|lease| lease.endpoint_id.as_str()).collect::<Vec<_>>(),
        leases.iter().map(|lease| lease.fence).collect::<Vec<_>>(),
        ended.iter().map(|end| end.id).collect::<Vec<_>>(),
        ended.iter().map(|end| end.fence).collect::<Vec<_>>(),
        ended.iter().map(state).collect::<Vec<_>>(),
        ended.iter().map(pause).collect::<Vec<_>>(),
        of(ended, |made| i32::try_from(made.number).unwrap_or(i32::MAX)),
        of(ended, |made| made.at),
        ended.iter().map(|end| end.attempt.as_ref()?.status.map(i32::from)).collect::<Vec<_>>(),
        of(ended, |made| made.latency_ms),
        ended.iter().map(|end| end.attempt.as_ref()?.error).collect::<Vec<_>>(),
        ended.iter().map(|end| end.attempt.as_ref()?.body_prefix.as_deref()).collect::<Vec<_>>(),
    );
    statement::load_value(conn, sql, parameters).await
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Logged {
    pub id: i64,
    pub event_id: String,
    #[sqlx(rename = "type")]
    pub kind: String,
    pub origin: String,
    pub state: String,
    /// Set while it waits.
    pub due_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct LoggedAttempt {
    pub delivery_id: i64,
    pub number: i32,
    pub at: DateTime<Utc>,
    pub status: Option<i32>,
    pub latency_ms: i64,
    pub error: Option<String>,
    pub body_prefix: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Deliveries older than this one.
    pub before: Option<i64>,
    pub event_id: Option<String>,
    pub state: Option<String>,
    pub limit: i64,
}

/// An endpoint's deliveries, latest first.
pub async fn list_log(
    conn: &mut PgConnection,
    endpoint_id: &str,
    filter: &LogFilter,
) -> Result<Vec<Logged>, StoreError> {
    let sql = "select * from ( \
             (select id, event_id, type, origin, 'pending' as state, due_at, created_at, \
                     null::timestamptz as ended_at \
              from webhook_queue \
              where endpoint_id = $1 and id < coalesce($2, 9223372036854775807) \
                and ($3::text is null or event_id = $3) and coalesce($4, 'pending') = 'pending' \
              order by id desc limit $5) \
             union all \
             (select id, event_id, type, origin, state, null, created_at, ended_at \
              from webhook_delivery_log \
              where endpoint_id = $1 and id < coalesce($2, 9223372036854775807) \
                and ($3::text is null or event_id = $3) and ($4::text is null or state = $4) \
              order by id desc limit $5) \
         ) as both_ends order by id desc limit $5";
    statement::list(conn, sql, (endpoint_id, filter.before, &filter.event_id, &filter.state, filter.limit))
        .await
}

/// The attempts of an endpoint's deliveries, in order. The log is read from the day before the first was queued to the day
/// after the last has ended: the times of attempts are by the processes' own clocks.
pub async fn list_attempts(
    conn: &mut PgConnection,
    endpoint_id: &str,
    deliveries: &[Logged],
) -> Result<Vec<LoggedAttempt>, StoreError> {
    let ids: Vec<i64> = deliveries.iter().map(|one| one.id).collect();
    let first = deliveries.iter().map(|one| one.created_at).min();
    let is_waiting = deliveries.iter().any(|one| one.ended_at.is_none());
    let last = deliveries.iter().filter_map(|one| one.ended_at).max().filter(|_| !is_waiting);
    let sql = "select delivery_id, number, at, status, latency_ms, error, body_prefix from webhook_attempt_log \
         where delivery_id = any($2) and at > $3::timestamptz - interval '1 day' \
           and at < coalesce($4::timestamptz, now()) + interval '1 day' \
         union all \
         select id, number, at, status, latency_ms, error, body_prefix from webhook_delivery_log \
         where endpoint_id = $1 and id = any($2) and number is not null \
           and ended_at > $3::timestamptz - interval '1 day' \
           and ended_at < coalesce($4::timestamptz, now()) + interval '1 day' \
         order by 1, 2";
    statement::list(conn, sql, (endpoint_id, ids, first, last)).await
}

/// Deletes waiting deliveries older than the feed's retention, at most `limit`. Returns their number.
pub async fn trim(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let sql = "delete from webhook_queue q \
         using (select id, created_at from webhook_queue order by id limit $1) o \
         where q.id = o.id and o.created_at <= now() - make_interval(days => $2)";
    statement::affected(conn, sql, (limit, RETENTION_DAYS)).await
}

/// Drops the oldest day of the log whose rows are all older than the feed's retention. Returns how many rows it had.
pub async fn drop_old_day(conn: &mut PgConnection) -> Result<u64, StoreError> {
    let age = Duration::from_secs(u64::from(RETENTION_DAYS.unsigned_abs()) * 86_400);
    let mut rows = 0_u64;
    for table in DayTable::WEBHOOK_LOG {
        rows = rows.saturating_add(partitions::drop_old_day(conn, table, age).await?);
    }
    Ok(rows)
}

/// Creates the log's partitions of this day and the next `days`.
pub async fn create_log(conn: &mut PgConnection, days: i32) -> Result<(), StoreError> {
    for table in DayTable::WEBHOOK_LOG {
        partitions::create_ahead(conn, table, days).await?;
    }
    Ok(())
}
