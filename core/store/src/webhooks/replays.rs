//! Stretches of the feed that are to be delivered again.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use crate::StoreError;

/// A stretch under way: events after `position` up to `until`, observed within the times.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Replay {
    pub id: i64,
    pub endpoint_id: String,
    pub position: i64,
    pub until: i64,
    pub from_time: DateTime<Utc>,
    pub to_time: DateTime<Utc>,
    /// Without: what the endpoint subscribes to.
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

/// The oldest replay nobody works on, locked until the transaction ends.
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
