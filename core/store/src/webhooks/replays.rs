//! Ranges of the feed that are delivered again.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use crate::StoreError;
use crate::orders::feed::{Routed, RoutedRow};

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
    let row: (i64,) = sqlx::query_as(
        "insert into webhook_replay (endpoint_id, position, until, from_time, to_time, types) \
         values ($1, $2, $3, $4, $5, $6) returning id",
    )
    .bind(&replay.endpoint_id)
    .bind(replay.position)
    .bind(replay.until)
    .bind(replay.from_time)
    .bind(replay.to_time)
    .bind(&replay.types)
    .fetch_one(conn)
    .await?;
    Ok(row.0)
}

/// The oldest replay that no process works on, locked until the transaction ends.
pub async fn lock_oldest(tx: &mut PgTransaction<'_>) -> Result<Option<Replay>, StoreError> {
    let row = sqlx::query_as(
        "select id, endpoint_id, position, until, from_time, to_time, types from webhook_replay \
         order by id limit 1 for update skip locked",
    )
    .fetch_optional(&mut **tx)
    .await?;
    Ok(row)
}

pub async fn update_position(conn: &mut PgConnection, id: i64, position: i64) -> Result<(), StoreError> {
    sqlx::query("update webhook_replay set position = $2 where id = $1")
        .bind(id)
        .bind(position)
        .execute(conn)
        .await?;
    Ok(())
}

pub async fn delete(conn: &mut PgConnection, id: i64) -> Result<(), StoreError> {
    sqlx::query("delete from webhook_replay where id = $1").bind(id).execute(conn).await?;
    Ok(())
}

/// Events of one endpoint's tenant within positions and times, for a replay.
pub async fn list_routed(
    conn: &mut PgConnection,
    replay: &Replay,
    until: i64,
) -> Result<Vec<Routed>, StoreError> {
    let rows: Vec<RoutedRow> = sqlx::query_as(
        "select w.id as endpoint_id, w.api_version as endpoint_version, e.* \
         from webhook_endpoint w join event e on e.partner_id = w.partner_id and e.livemode = w.livemode \
         where w.id = $1 and e.position > $2 and e.position <= $3 \
           and e.observed_at >= $4 and e.observed_at < $5 and e.type = any(coalesce($6, w.subscribed_types)) \
         order by e.position",
    )
    .bind(&replay.endpoint_id)
    .bind(replay.position)
    .bind(until)
    .bind(replay.from_time)
    .bind(replay.to_time)
    .bind(&replay.types)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(RoutedRow::into_routed).collect()
}
