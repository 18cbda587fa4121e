//! Ranges of the feed that are delivered again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use crate::orders::events;
use crate::orders::feed::Routed;
use crate::{StoreError, statement};

/// A replay in progress: events after `position` up to `until`, observed within the times.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Replay {
    pub id: i64,
    pub endpoint_id: String,
    pub position: i64,
    pub until: i64,
    pub from_time: DateTime<Utc>,
    pub to_time: DateTime<Utc>,
    /// `None`: the types that the endpoint subscribes to.
    pub types: Option<Vec<String>>,
}

/// Stores a replay; its `id` is given by the database.
pub async fn insert(conn: &mut PgConnection, replay: &Replay) -> Result<i64, StoreError> {
    let sql = "insert into webhook_replay (endpoint_id, position, until, from_time, to_time, types) \
         values ($1, $2, $3, $4, $5, $6) returning id";
    let parameters =
        (&replay.endpoint_id, replay.position, replay.until, replay.from_time, replay.to_time, &replay.types);
    statement::load_value(conn, sql, parameters).await
}

/// The endpoint's replay in progress.
pub async fn find_open(conn: &mut PgConnection, endpoint_id: &str) -> Result<Option<Replay>, StoreError> {
    let sql = "select id, endpoint_id, position, until, from_time, to_time, types from webhook_replay \
         where endpoint_id = $1 order by id limit 1";
    statement::find(conn, sql, (endpoint_id,)).await
}

/// The due replays with their endpoints, the one that was served least recently first.
pub async fn list_due(conn: &mut PgConnection, limit: i64) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "select id, endpoint_id from webhook_replay where due_at <= clock_timestamp() \
         order by due_at, id limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// A due replay that no process works on, locked until the transaction ends.
pub async fn lock_due(tx: &mut PgTransaction<'_>, id: i64) -> Result<Option<Replay>, StoreError> {
    let sql = "select id, endpoint_id, position, until, from_time, to_time, types from webhook_replay \
         where id = $1 and due_at <= clock_timestamp() for update skip locked";
    statement::find(tx, sql, (id,)).await
}

/// Ends a turn of a replay: the others that are due come first.
pub async fn update_position(conn: &mut PgConnection, id: i64, position: i64) -> Result<(), StoreError> {
    let sql = "update webhook_replay set position = $2, due_at = clock_timestamp() where id = $1";
    statement::execute(conn, sql, (id, position)).await
}

/// Lets a replay wait.
pub async fn put_off(conn: &mut PgConnection, id: i64, pause: Duration) -> Result<(), StoreError> {
    let sql =
        "update webhook_replay set due_at = clock_timestamp() + make_interval(secs => $2) where id = $1";
    statement::execute(conn, sql, (id, pause.as_secs_f64())).await
}

pub async fn delete(conn: &mut PgConnection, id: i64) -> Result<(), StoreError> {
    statement::execute(conn, "delete from webhook_replay where id = $1", (id,)).await
}

/// Events of one endpoint's tenant within positions and times, for a replay.
pub async fn list_routed(
    conn: &mut PgConnection,
    replay: &Replay,
    until: i64,
) -> Result<Vec<Routed>, StoreError> {
    let sql = "select w.id as endpoint_id, w.api_version as endpoint_version, e.* \
         from webhook_endpoint w join event e on e.partner_id = w.partner_id and e.livemode = w.livemode \
         where w.id = $1 and e.position > $2 and e.position <= $3 \
           and e.observed_at >= $4 and e.observed_at < $5 and e.type = any(coalesce($6, w.subscribed_types)) \
         order by e.position";
    let parameters =
        (&replay.endpoint_id, replay.position, until, replay.from_time, replay.to_time, &replay.types);
    let mut routed: Vec<Routed> = statement::list(conn, sql, parameters).await?;
    events::show_receipts(conn, routed.iter_mut().map(|one| &mut one.stored)).await?;
    Ok(routed)
}
