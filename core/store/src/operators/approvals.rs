//! Requests of one operator that another one approves.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;

/// A new request. It expires after a day.
#[derive(Debug, Clone)]
pub struct NewApproval<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    pub subject: &'a str,
    pub action: &'a str,
    /// The action that is carried out once it is approved.
    pub details: &'a Value,
    /// Accounts whose operations change the request's version.
    pub touches: &'a [String],
    pub version: i64,
    pub maker: &'a str,
    pub reason: &'a str,
    pub evidence: &'a str,
}

/// A request with its state.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Approval {
    pub id: String,
    pub kind: String,
    pub subject: String,
    pub action: String,
    pub details: Value,
    pub touches: Vec<String>,
    pub version: i64,
    pub maker: String,
    pub reason: String,
    pub evidence: String,
    pub requested_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub state: String,
    pub checker: Option<String>,
    pub note: Option<String>,
    pub decided_at: Option<DateTime<Utc>>,
    /// By the database's clock.
    pub is_expired: bool,
}

/// How a request ends.
#[derive(Debug, Clone, Copy)]
pub enum Decision<'a> {
    Approved {
        checker: &'a str,
        note: &'a str,
    },
    Denied {
        checker: &'a str,
        note: &'a str,
    },
    /// Its subject has changed, or it was not approved in time.
    Lapsed,
}

/// Serializes requests and approvals until the transaction ends, so that versions are counted correctly.
pub async fn lock(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("lock table approval in share row exclusive mode").execute(conn).await?;
    Ok(())
}

pub async fn insert(conn: &mut PgConnection, new: &NewApproval<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "insert into approval (id, kind, subject, action, details, touches, version, maker, reason, evidence, expires_at) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + interval '1 day')",
    )
    .bind(new.id)
    .bind(new.kind)
    .bind(new.subject)
    .bind(new.action)
    .bind(new.details)
    .bind(new.touches)
    .bind(new.version)
    .bind(new.maker)
    .bind(new.reason)
    .bind(new.evidence)
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn find(conn: &mut PgConnection, id: &str) -> Result<Option<Approval>, StoreError> {
    let found =
        sqlx::query_as("select *, expires_at < clock_timestamp() as is_expired from approval where id = $1");
    Ok(found.bind(id).fetch_optional(conn).await?)
}

/// The newest request about a subject that has not expired and was not denied.
pub async fn find_standing(
    conn: &mut PgConnection,
    kind: &str,
    subject: &str,
) -> Result<Option<Approval>, StoreError> {
    let found = sqlx::query_as(
        "select *, expires_at < clock_timestamp() as is_expired from approval \
         where kind = $1 and subject = $2 and state in ('pending', 'approved') \
         order by requested_at desc, id desc limit 1",
    );
    Ok(found.bind(kind).bind(subject).fetch_optional(conn).await?)
}

/// The newest request about a subject, in any state.
pub async fn find_newest(
    conn: &mut PgConnection,
    kind: &str,
    subject: &str,
) -> Result<Option<Approval>, StoreError> {
    let found = sqlx::query_as(
        "select *, expires_at < clock_timestamp() as is_expired from approval \
         where kind = $1 and subject = $2 order by requested_at desc, id desc limit 1",
    );
    Ok(found.bind(kind).bind(subject).fetch_optional(conn).await?)
}

/// Ends a request. `false`: it had ended before.
pub async fn decide(conn: &mut PgConnection, id: &str, decision: Decision<'_>) -> Result<bool, StoreError> {
    let (state, by) = match decision {
        Decision::Approved { checker, note } => ("approved", Some((checker, note))),
        Decision::Denied { checker, note } => ("denied", Some((checker, note))),
        Decision::Lapsed => ("lapsed", None),
    };
    let done = sqlx::query(
        "update approval set state = $2, checker = $3, note = $4, decided_at = clock_timestamp() \
         where id = $1 and state = 'pending'",
    )
    .bind(id)
    .bind(state)
    .bind(by.map(|by| by.0))
    .bind(by.map(|by| by.1))
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The number of approved requests that changed any of these accounts.
pub async fn count_touching(conn: &mut PgConnection, touches: &[String]) -> Result<i64, StoreError> {
    let count =
        sqlx::query_scalar("select count(*) from approval where state = 'approved' and touches && $1");
    Ok(count.bind(touches).fetch_one(conn).await?)
}

/// The filter of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct Filter<'a> {
    pub state: Option<&'a str>,
    pub kind: Option<&'a str>,
    /// Before this one.
    pub before: Option<(DateTime<Utc>, &'a str)>,
    pub limit: i64,
}

pub async fn list(conn: &mut PgConnection, filter: &Filter<'_>) -> Result<Vec<Approval>, StoreError> {
    let rows = sqlx::query_as(
        "select *, expires_at < clock_timestamp() as is_expired from approval \
         where ($1::text is null or state = $1) and ($2::text is null or kind = $2) \
           and ($3::timestamptz is null or (requested_at, id) < ($3, $4)) \
         order by requested_at desc, id desc limit $5",
    )
    .bind(filter.state)
    .bind(filter.kind)
    .bind(filter.before.map(|before| before.0))
    .bind(filter.before.map(|before| before.1))
    .bind(filter.limit)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
