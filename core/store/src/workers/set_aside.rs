//! Items of worker loops that failed and are tried again later: the table of those without columns of their own for it,
//! and one list of all.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::text::{TEXT_MAX, clean};
use sqlx::{PgConnection, PgTransaction};

use super::{Worker, set_aside_for};
use crate::{StoreError, statement};

/// Rows read at a time.
const ROWS: i64 = 10_000;

/// A failure to write down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSetAside {
    pub about: String,
    pub error: String,
    /// Failed attempts, as the process that failed counts them.
    pub attempts: u32,
    /// The time to the next attempt.
    pub wait: Duration,
}

/// A row of one loop, for the process that works through it.
#[derive(Debug, Clone)]
pub(crate) struct WaitingItem {
    pub item: String,
    pub attempts: u32,
    pub wait: Duration,
}

/// An item that is set aside, in whichever table.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SetAside {
    /// The name of its loop.
    pub worker: String,
    pub item: String,
    /// What it is about: an order, an account, a file.
    pub about: String,
    pub error: String,
    pub attempts: i32,
    pub first_failed_at: Option<DateTime<Utc>>,
    pub last_failed_at: Option<DateTime<Utc>>,
    pub next_attempt_at: DateTime<Utc>,
}

pub(crate) async fn upsert(
    conn: &mut PgConnection,
    worker: Worker,
    item: &str,
    new: &NewSetAside,
) -> Result<(), StoreError> {
    let sql = "insert into set_aside as s (loop, item, about, error, attempts, next_attempt_at) \
         values ($1, $2, $3, $4, $5, now() + make_interval(secs => $6)) \
         on conflict on constraint set_aside_pkey do update \
         set about = excluded.about, error = excluded.error, attempts = greatest(excluded.attempts, s.attempts + 1), \
             last_failed_at = now(), next_attempt_at = excluded.next_attempt_at";
    let parameters = (
        worker.as_str(),
        item,
        &new.about,
        &new.error,
        i32::try_from(new.attempts).unwrap_or(i32::MAX),
        new.wait.as_secs_f64(),
    );
    statement::execute(conn, sql, parameters).await
}

pub(crate) async fn delete(conn: &mut PgConnection, worker: Worker, item: &str) -> Result<(), StoreError> {
    statement::execute(conn, "delete from set_aside where loop = $1 and item = $2", (worker.as_str(), item))
        .await
}

pub(crate) async fn list_waits(
    conn: &mut PgConnection,
    worker: Worker,
) -> Result<Vec<WaitingItem>, StoreError> {
    let sql = "select item, attempts, greatest(extract(epoch from next_attempt_at - now()), 0)::float8 from \
         set_aside where loop = $1 limit $2";
    let rows: Vec<(String, i32, f64)> = statement::list(conn, sql, (worker.as_str(), ROWS)).await?;
    let row = |(item, attempts, secs)| WaitingItem {
        item,
        attempts: u32::try_from(attempts).unwrap_or(0),
        wait: Duration::try_from_secs_f64(secs).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(row).collect())
}

/// An event of which no delivery could be made, for one endpoint or for all. The dispatcher has passed it: its row is all
/// that is left to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSetAside {
    pub position: i64,
    pub endpoint_id: Option<String>,
    pub attempts: u32,
}

impl EventSetAside {
    /// What identifies it in the list.
    pub fn item(&self) -> String {
        match &self.endpoint_id {
            Some(endpoint) => format!("{} {endpoint}", self.position),
            None => self.position.to_string(),
        }
    }

    fn parse(item: &str, attempts: i32) -> Result<Self, StoreError> {
        let (position, endpoint) = match item.split_once(' ') {
            Some((position, endpoint)) => (position, Some(endpoint.to_owned())),
            None => (item, None),
        };
        let position = position.parse().map_err(|error| StoreError::corrupt("set_aside", error))?;
        Ok(Self { position, endpoint_id: endpoint, attempts: u32::try_from(attempts).unwrap_or(0) })
    }
}

/// Sets an event aside, in the transaction in which the dispatcher passes it or fails at it again.
pub async fn insert_event(
    conn: &mut PgConnection,
    event: &EventSetAside,
    why: &str,
) -> Result<(), StoreError> {
    let (item, attempts) = (event.item(), event.attempts.saturating_add(1));
    let about = event.endpoint_id.as_deref().unwrap_or("every endpoint");
    let wait = set_aside_for(Worker::Dispatcher, &item, about, why, attempts);
    let new = NewSetAside { about: about.to_owned(), error: clean(why, TEXT_MAX), attempts, wait };
    upsert(conn, Worker::Dispatcher, &item, &new).await
}

/// An event that is due again, locked until the transaction ends.
pub async fn lock_due_event(tx: &mut PgTransaction<'_>) -> Result<Option<EventSetAside>, StoreError> {
    let sql = "select item, attempts from set_aside where loop = $1 and next_attempt_at <= now() \
         order by next_attempt_at limit 1 for update skip locked";
    let row: Option<(String, i32)> = statement::find(tx, sql, (Worker::Dispatcher.as_str(),)).await?;
    row.map(|(item, attempts)| EventSetAside::parse(&item, attempts)).transpose()
}

/// Deliveries of the event were made, or there is nothing to deliver any more.
pub async fn delete_event(conn: &mut PgConnection, event: &EventSetAside) -> Result<(), StoreError> {
    delete(conn, Worker::Dispatcher, &event.item()).await
}

/// Deletes rows of items that were not attempted for an hour after their time: they no longer exist. An event that was not
/// dispatched exists as its row only, and stays.
pub async fn delete_abandoned(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let sql = "delete from set_aside where ctid = any(array( \
             select ctid from set_aside where next_attempt_at < now() - interval '1 hour' and loop <> 'dispatcher' \
             order by next_attempt_at limit $1))";
    statement::affected(conn, sql, (limit,)).await
}

/// Everything that is set aside, as one relation.
macro_rules! all {
    () => {
        "select loop as worker, item, about, error, attempts, first_failed_at, last_failed_at, next_attempt_at \
         from set_aside \
         union all \
         select 'effects', id::text, reference, coalesce(last_result, ''), unwritten, failing_since, null, run_at \
         from effect where unwritten > 0 \
         union all \
         select 'facts', id::text, \
                coalesce((select reference from chain_command c where c.entity = chain_fact.entity limit 1), \
                         '0x' || encode(entity, 'hex')), \
                coalesce(last_error, ''), unwritten, failing_since, null, coalesce(retry_at, now()) \
         from chain_fact where unwritten > 0 and consumed_at is null and retracted_at is null \
         union all \
         select 'relayer', id::text, reference, trouble, greatest(tries, 1), troubled_at, troubled_at, not_before \
         from chain_command where state = 'pending' and trouble is not null \
         union all \
         select 'endpoints', id, partner_id, 'every delivery fails', 1, failing_since, null, now() \
         from webhook_endpoint where is_active and failing_since is not null"
    };
}

pub(crate) use all;

/// What is set aside, the oldest first.
pub async fn list(conn: &mut PgConnection, limit: i64) -> Result<Vec<SetAside>, StoreError> {
    let sql = concat!(
        "select * from (",
        all!(),
        ") items order by first_failed_at nulls last, worker, item limit $1"
    );
    statement::list(conn, sql, (limit,)).await
}

/// The number of items that are set aside, by loop.
pub async fn count(conn: &mut PgConnection) -> Result<Vec<(String, i64)>, StoreError> {
    let sql = concat!("select worker, count(*) from (", all!(), ") items group by worker order by worker");
    statement::list(conn, sql, ()).await
}
