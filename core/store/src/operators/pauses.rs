//! Operators' pauses: read with every batch of orders ([`crate::operators::controls`]) and every claim of legs.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use dvp_domain::pause::{Pauses, Scope};
use sqlx::PgConnection;

use crate::{StoreError, known, statement};

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

/// The present pauses.
pub async fn load(conn: &mut PgConnection) -> Result<Pauses, StoreError> {
    Ok(load_decisions(conn, &[]).await?.pauses)
}

/// What operators have decided, for work that is about to begin.
#[derive(Debug)]
pub struct Decisions {
    pub pauses: Pauses,
    /// Those of the destinations asked for that are disabled.
    pub disabled: HashSet<String>,
}

/// The present pauses, and which of the destinations are disabled, in one statement.
pub async fn load_decisions(conn: &mut PgConnection, destinations: &[&str]) -> Result<Decisions, StoreError> {
    let sql = "select array(select scope from pause order by scope, target), \
                array(select target from pause order by scope, target), \
                array(select id from destination where id = any($1) and disabled_at is not null), \
                exists (select from bank_outage where seen_at > now() - interval '1 minute')";
    let (scopes, targets, disabled, is_rail_out): (Vec<String>, Vec<String>, Vec<String>, bool) =
        statement::load(conn, sql, (destinations,)).await?;
    let pauses = parse(scopes.into_iter().zip(targets))?.with_rail_out(is_rail_out);
    Ok(Decisions { pauses, disabled: disabled.into_iter().collect() })
}

/// The pauses of rows.
fn parse(rows: impl Iterator<Item = (String, String)>) -> Result<Pauses, StoreError> {
    let pauses = rows.map(|(scope, target)| Ok((known("pause", &scope, Scope::parse)?, target)));
    pauses.collect()
}

pub async fn list(conn: &mut PgConnection) -> Result<Vec<PauseRow>, StoreError> {
    let sql = "select scope, target, operator, reason, paused_at from pause order by paused_at";
    statement::list(conn, sql, ()).await
}

/// Pauses within the caller's transaction. `false`: it was paused already.
pub async fn insert(
    conn: &mut PgConnection,
    scope: Scope,
    target: &str,
    by: Decided<'_>,
) -> Result<bool, StoreError> {
    let sql =
        "insert into pause (scope, target, operator, reason) values ($1, $2, $3, $4) on conflict do nothing";
    let inserted = statement::affected(conn, sql, (scope.as_str(), target, by.operator, by.reason)).await?;
    note(conn, "pause", scope, target, by, inserted).await
}

/// Resumes within the caller's transaction. `false`: it was not paused.
pub async fn delete(
    conn: &mut PgConnection,
    scope: Scope,
    target: &str,
    by: Decided<'_>,
) -> Result<bool, StoreError> {
    remove(conn, scope, target, None, by).await
}

/// Resumes what was paused at `paused_at`. `false`: it is not paused, or was paused again.
pub async fn delete_seen(
    conn: &mut PgConnection,
    scope: Scope,
    target: &str,
    paused_at: DateTime<Utc>,
    by: Decided<'_>,
) -> Result<bool, StoreError> {
    remove(conn, scope, target, Some(paused_at), by).await
}

async fn remove(
    conn: &mut PgConnection,
    scope: Scope,
    target: &str,
    paused_at: Option<DateTime<Utc>>,
    by: Decided<'_>,
) -> Result<bool, StoreError> {
    let sql =
        "delete from pause where scope = $1 and target = $2 and ($3::timestamptz is null or paused_at = $3)";
    let deleted = statement::affected(conn, sql, (scope.as_str(), target, paused_at)).await?;
    note(conn, "resume", scope, target, by, deleted).await
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
    let sql =
        "insert into pause_change (action, scope, target, operator, reason) values ($1, $2, $3, $4, $5)";
    statement::execute(conn, sql, (action, scope.as_str(), target, by.operator, by.reason)).await?;
    Ok(true)
}
