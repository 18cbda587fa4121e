//! Requests of one operator that another one approves.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

use crate::{StoreError, statement};

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
    statement::execute(conn, "lock table approval in share row exclusive mode", ()).await
}

pub async fn insert(conn: &mut PgConnection, new: &NewApproval<'_>) -> Result<(), StoreError> {
    let sql = "insert into approval (id, kind, subject, action, details, touches, version, maker, reason, \
         evidence, expires_at) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + interval '1 day')";
    let parameters = (
        new.id,
        new.kind,
        new.subject,
        new.action,
        new.details,
        new.touches,
        new.version,
        new.maker,
        new.reason,
        new.evidence,
    );
    statement::execute(conn, sql, parameters).await
}

pub async fn find(conn: &mut PgConnection, id: &str) -> Result<Option<Approval>, StoreError> {
    let sql = "select *, expires_at < clock_timestamp() as is_expired from approval where id = $1";
    statement::find(conn, sql, (id,)).await
}

/// The newest request about a subject that has not expired and was not denied.
pub async fn find_standing(
    conn: &mut PgConnection,
    kind: &str,
    subject: &str,
) -> Result<Option<Approval>, StoreError> {
    let sql = "select *, expires_at < clock_timestamp() as is_expired from approval \
         where kind = $1 and subject = $2 and state in ('pending', 'approved') \
         order by requested_at desc, id desc limit 1";
    statement::find(conn, sql, (kind, subject)).await
}

/// The newest request about a subject, in any state.
pub async fn find_newest(
    conn: &mut PgConnection,
    kind: &str,
    subject: &str,
) -> Result<Option<Approval>, StoreError> {
    let sql = "select *, expires_at < clock_timestamp() as is_expired from approval \
         where kind = $1 and subject = $2 order by requested_at desc, id desc limit 1";
    statement::find(conn, sql, (kind, subject)).await
}

/// Ends a request. `false`: it had ended before.
pub async fn decide(conn: &mut PgConnection, id: &str, decision: Decision<'_>) -> Result<bool, StoreError> {
    let (state, by) = match decision {
        Decision::Approved { checker, note } => ("approved", Some((checker, note))),
        Decision::Denied { checker, note } => ("denied", Some((checker, note))),
        Decision::Lapsed => ("lapsed", None),
    };
    let sql = "update approval set state = $2, checker = $3, note = $4, decided_at = clock_timestamp() \
         where id = $1 and state = 'pending'";
    Ok(statement::affected(conn, sql, (id, state, by.map(|by| by.0), by.map(|by| by.1))).await? > 0)
}

/// The number of approved requests that changed any of these accounts.
pub async fn count_touching(conn: &mut PgConnection, touches: &[String]) -> Result<i64, StoreError> {
    let sql = "select count(*) from approval where state = 'approved' and touches && $1";
    statement::load_value(conn, sql, (touches,)).await
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
    let sql = "select *, expires_at < clock_timestamp() as is_expired from approval \
         where ($1::text is null or state = $1) and ($2::text is null or kind = $2) \
           and ($3::timestamptz is null or (requested_at, id) < ($3, $4)) \
         order by requested_at desc, id desc limit $5";
    let parameters = (
        filter.state,
        filter.kind,
        filter.before.map(|before| before.0),
        filter.before.map(|before| before.1),
        filter.limit,
    );
    statement::list(conn, sql, parameters).await
}
