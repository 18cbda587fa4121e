//! Operators' pauses: read with every batch of orders and every claim of legs.

use chrono::{DateTime, Utc};
use dvp_domain::pause::{Pauses, Scope};
use sqlx::PgConnection;

use crate::StoreError;

/// The operator and the reason of a change.
#[derive(Debug, Clone, Copy)]
pub struct Decided<'a> {
    pub operator: &'a str,
    pub reason: &'a str,
}

/// A pause as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PauseRow {
    pub scope: String,
    pub target: String,
    pub operator: String,
    pub reason: String,
    pub paused_at: DateTime<Utc>,
}

/// The present pauses, and the disabled ones among some partners: one query for each batch of orders.
pub async fn load_with_disabled(
    conn: &mut PgConnection,
    partner_ids: &[&str],
) -> Result<(Pauses, Vec<String>), StoreError> {
    let rows: Vec<(Option<String>, String)> = sqlx::query_as(
        "select scope, target from pause \
         union all select null, id from partner where id = any($1) and disabled_at is not null",
    )
    .bind(partner_ids)
    .fetch_all(conn)
    .await?;
    let (pauses, disabled): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(scope, _)| scope.is_some());
    let pauses = pauses.into_iter().filter_map(|(scope, target)| Some((scope?, target)));
    Ok((read(pauses)?, disabled.into_iter().map(|(_, id)| id).collect()))
}

fn read(rows: impl Iterator<Item = (String, String)>) -> Result<Pauses, StoreError> {
    rows.map(|(scope, target)| {
        let corrupt = || StoreError::corrupt("pause", format_args!("scope {scope}"));
        Ok((Scope::parse(&scope).ok_or_else(corrupt)?, target))
    })
    .collect()
}

/// The present pauses.
pub async fn load(conn: &mut PgConnection) -> Result<Pauses, StoreError> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("select scope, target from pause").fetch_all(conn).await?;
    read(rows.into_iter())
}

pub async fn list(conn: &mut PgConnection) -> Result<Vec<PauseRow>, StoreError> {
    let rows =
        sqlx::query_as("select scope, target, operator, reason, paused_at from pause order by paused_at");
    Ok(rows.fetch_all(conn).await?)
}

/// Pauses within the caller's transaction. `false`: it was paused already.
pub async fn insert(
    conn: &mut PgConnection,
    scope: Scope,
    target: &str,
    by: Decided<'_>,
) -> Result<bool, StoreError> {
    let inserted = sqlx::query(
        "insert into pause (scope, target, operator, reason) values ($1, $2, $3, $4) on conflict do nothing",
    )
    .bind(scope.as_str())
    .bind(target)
    .bind(by.operator)
    .bind(by.reason)
    .execute(&mut *conn)
    .await?;
    note(conn, "pause", scope, target, by, inserted.rows_affected()).await
}

/// Resumes within the caller's transaction. `false`: it was not paused.
pub async fn delete(
    conn: &mut PgConnection,
    scope: Scope,
    target: &str,
    by: Decided<'_>,
) -> Result<bool, StoreError> {
    let deleted = sqlx::query("delete from pause where scope = $1 and target = $2")
        .bind(scope.as_str())
        .bind(target)
        .execute(&mut *conn)
        .await?;
    note(conn, "resume", scope, target, by, deleted.rows_affected()).await
}

async fn note(
    conn: &mut PgConnection,
    action: &str,
    scope: Scope,
    target: &str,
    by: Decided<'_>,
    changed: u64,
) -> Result<bool, StoreError> {
    if changed == 0 {
        return Ok(false);
    }
    sqlx::query(
        "insert into pause_change (action, scope, target, operator, reason) values ($1, $2, $3, $4, $5)",
    )
    .bind(action)
    .bind(scope.as_str())
    .bind(target)
    .bind(by.operator)
    .bind(by.reason)
    .execute(conn)
    .await?;
    Ok(true)
}
