//! Deliveries: made from the feed, claimed in batches with a lease and a fence, ended in batches; and the log of
//! their attempts.
//!
//! A claim is no lock: it holds until `leased_until`, so a claim whose owner died is due again by itself.
//! The fence grows with each claim, and an outcome counts only under the fence it was claimed with.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::envelope::BODY_BYTES_MAX;
use sqlx::PgConnection;

use super::StoreError;
use super::webhooks::SealedSecrets;

/// Why a delivery exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Feed,
    Resend,
    Replay,
    Test,
}

impl Origin {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Feed => "feed",
            Self::Resend => "resend",
            Self::Replay => "replay",
            Self::Test => "test",
        }
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
}

/// Stores deliveries that are due at once, and wakes the workers. One that is too large has failed before it began.
pub async fn insert(conn: &mut PgConnection, new: &[NewDelivery]) -> Result<(), StoreError> {
    let text = |of: fn(&NewDelivery) -> &str| new.iter().map(of).collect::<Vec<_>>();
    sqlx::query(
        "insert into webhook_delivery (endpoint_id, partner_id, event_id, type, origin, body, state, ended_at) \
         select endpoint, partner, event, type, origin, case when fits then body end, \
                case when fits then 'pending' else 'failed' end, \
                case when not fits then clock_timestamp() end \
         from (select *, octet_length(body) <= $7 as fits \
               from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) \
                    as u (endpoint, partner, event, type, origin, body)) as new",
    )
    .bind(text(|d| &d.endpoint_id))
    .bind(text(|d| &d.partner_id))
    .bind(text(|d| &d.event_id))
    .bind(text(|d| &d.kind))
    .bind(text(|d| d.origin.as_str()))
    .bind(text(|d| &d.body))
    .bind(i32::try_from(BODY_BYTES_MAX).unwrap_or(i32::MAX))
    .execute(&mut *conn)
    .await?;
    sqlx::query("select pg_notify('dvp_webhook', '')").execute(conn).await?;
    Ok(())
}

/// A delivery in hand until its lease ends.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: i64,
    pub fence: i64,
    pub endpoint_id: String,
    pub event_id: String,
    /// Attempts already made.
    pub attempts: u32,
    pub body: String,
    pub url: String,
    pub secrets: SealedSecrets,
}

/// How much of an endpoint's work may be claimed, where it is not as much as of any.
#[derive(Debug, Clone)]
pub struct Room {
    pub endpoint_id: String,
    pub deliveries: i64,
}

#[derive(sqlx::FromRow)]
struct ClaimedRow {
    id: i64,
    fence: i64,
    endpoint_id: String,
    event_id: String,
    attempts: i32,
    body: Option<String>,
    url: String,
    sealed_secret: Vec<u8>,
    sealed_next: Option<Vec<u8>>,
    grace_expires_at: Option<DateTime<Utc>>,
}

/// Claims what is due at active endpoints: of each at most its `rooms` entry, or else `room`; `limit` in all.
pub async fn claim(
    conn: &mut PgConnection,
    rooms: &[Room],
    room: i64,
    limit: i64,
    lease: Duration,
) -> Result<Vec<Claimed>, StoreError> {
    let rows: Vec<ClaimedRow> = sqlx::query_as(
        "with due as ( \
             select d.id from webhook_endpoint w \
             left join unnest($1::text[], $2::int8[]) as r (endpoint_id, room) on r.endpoint_id = w.id \
             cross join lateral ( \
                 select id from webhook_delivery \
                 where endpoint_id = w.id and state = 'pending' and due_at <= clock_timestamp() \
                   and leased_until <= clock_timestamp() \
                 order by due_at limit coalesce(r.room, $3) for update skip locked \
             ) d \
             where w.is_active limit $4 \
         ) \
         update webhook_delivery d \
         set leased_until = clock_timestamp() + make_interval(secs => $5), claimed = true, fence = d.fence + 1 \
         from due, webhook_endpoint w where d.id = due.id and w.id = d.endpoint_id \
         returning d.id, d.fence, d.endpoint_id, d.event_id, d.attempts, d.body, w.url, w.sealed_secret, \
                   w.sealed_next, w.grace_expires_at",
    )
    .bind(rooms.iter().map(|room| room.endpoint_id.as_str()).collect::<Vec<_>>())
    .bind(rooms.iter().map(|room| room.deliveries).collect::<Vec<_>>())
    .bind(room)
    .bind(limit)
    .bind(lease.as_secs_f64())
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(ClaimedRow::into_claimed).collect()
}

impl ClaimedRow {
    fn into_claimed(self) -> Result<Claimed, StoreError> {
        let corrupt = |reason: &str| StoreError::corrupt("webhook_delivery", reason);
        Ok(Claimed {
            id: self.id,
            fence: self.fence,
            endpoint_id: self.endpoint_id,
            event_id: self.event_id,
            attempts: u32::try_from(self.attempts).map_err(|_| corrupt("attempts"))?,
            body: self.body.ok_or_else(|| corrupt("pending without a body"))?,
            url: self.url,
            secrets: SealedSecrets {
                current: self.sealed_secret,
                next: self.sealed_next.zip(self.grace_expires_at),
            },
        })
    }
}

/// What becomes of a delivery after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Delivered,
    /// Due again after so long.
    Again(Duration),
    /// No attempts are left.
    Failed,
}

/// An attempt that was made, or could not be.
#[derive(Debug, Clone)]
pub struct Ended {
    pub id: i64,
    pub fence: i64,
    pub next: Next,
    /// `None`: nothing was asked of the endpoint, and no attempt is used up.
    pub attempt: Option<Attempt>,
}

/// An attempt as the log keeps it.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    pub number: u32,
    pub at: DateTime<Utc>,
    pub status: Option<u16>,
    pub latency_ms: i64,
    pub error: Option<&'static str>,
    /// How the answer's body begins.
    pub body_prefix: Option<String>,
}

/// Writes outcomes and their attempts. Returns the ids whose claim still stood; of the others nothing is written.
pub async fn end(conn: &mut PgConnection, ended: &[Ended]) -> Result<Vec<i64>, StoreError> {
    let state = |end: &Ended| match end.next {
        Next::Delivered => "delivered",
        Next::Again(_) => "pending",
        Next::Failed => "failed",
    };
    let pause = |end: &Ended| match end.next {
        Next::Again(pause) => pause.as_secs_f64(),
        Next::Delivered | Next::Failed => 0.0,
    };
    let made = |end: &Ended| end.attempt.clone().unwrap_or_default();
    let rows: Vec<(i64,)> = sqlx::query_as(
        "with u as ( \
             select * from unnest($1::int8[], $2::int8[], $3::text[], $4::float8[], $5::bool[], $6::int4[], \
                                  $7::timestamptz[], $8::int4[], $9::int8[], $10::text[], $11::text[]) \
                  as u (id, fence, state, pause, used, number, at, status, latency_ms, error, body_prefix) \
         ), held as ( \
             update webhook_delivery d \
             set state = u.state, claimed = false, leased_until = '-infinity', \
                 attempts = d.attempts + u.used::int4, \
                 due_at = clock_timestamp() + make_interval(secs => u.pause), \
                 ended_at = case when u.state = 'pending' then null else clock_timestamp() end, \
                 body = case when u.state = 'pending' then d.body end \
             from u where d.id = u.id and d.fence = u.fence and d.claimed and d.state = 'pending' returning d.id \
         ), made as ( \
             insert into webhook_attempt (delivery_id, number, at, status, latency_ms, error, body_prefix) \
             select id, number, at, status, latency_ms, error, body_prefix from u join held using (id) where used \
         ) \
         select id from held",
    )
    .bind(ended.iter().map(|end| end.id).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| end.fence).collect::<Vec<_>>())
    .bind(ended.iter().map(state).collect::<Vec<_>>())
    .bind(ended.iter().map(pause).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| end.attempt.is_some()).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| i32::try_from(made(end).number).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| made(end).at).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| made(end).status.map(i32::from)).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| made(end).latency_ms).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| made(end).error).collect::<Vec<_>>())
    .bind(ended.iter().map(|end| made(end).body_prefix).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Makes every claimed delivery due: the private database's only user has just started.
pub async fn free_all_claims(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("update webhook_delivery set claimed = false, leased_until = '-infinity' where claimed and state = 'pending'")
        .execute(conn)
        .await?;
    Ok(())
}

/// A delivery as the log shows it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Logged {
    pub id: i64,
    pub event_id: String,
    #[sqlx(rename = "type")]
    pub kind: String,
    pub origin: String,
    pub state: String,
    pub due_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// An attempt as the log shows it.
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

/// What the log is asked for.
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
    let rows = sqlx::query_as(
        "select id, event_id, type, origin, state, due_at, created_at, ended_at from webhook_delivery \
         where endpoint_id = $1 and id < coalesce($2, 9223372036854775807) \
           and ($3::text is null or event_id = $3) and ($4::text is null or state = $4) \
         order by id desc limit $5",
    )
    .bind(endpoint_id)
    .bind(filter.before)
    .bind(&filter.event_id)
    .bind(&filter.state)
    .bind(filter.limit)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// The attempts of deliveries, in order.
pub async fn list_attempts(
    conn: &mut PgConnection,
    deliveries: &[i64],
) -> Result<Vec<LoggedAttempt>, StoreError> {
    let rows = sqlx::query_as(
        "select delivery_id, number, at, status, latency_ms, error, body_prefix from webhook_attempt \
         where delivery_id = any($1) order by delivery_id, number",
    )
    .bind(deliveries)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Forgets deliveries as old as an event gets, with their attempts, at most `limit`; pending ones too, whose event has
/// left the feed. Returns how many went.
pub async fn trim(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "with old as ( \
             delete from webhook_delivery d \
             using (select id, created_at from webhook_delivery order by id limit $1) o \
             where d.id = o.id and o.created_at <= now() - make_interval(days => $2) returning d.id \
         ), attempts as (delete from webhook_attempt a using old where a.delivery_id = old.id) \
         select id from old",
    )
    .bind(limit)
    .bind(super::events::RETENTION_DAYS)
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
