//! Operators' commands for FIX sessions: rows that the session's owner executes once and answers, and which are kept as
//! a record.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};
use uuid::Uuid;

use super::number;
use crate::{StoreError, read, statement};

/// A command that was not claimed within this time expires.
pub const GOOD_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAction {
    Logout,
    Reset,
    SetSeq {
        next_in: u64,
        next_out: u64,
        with_reset: bool,
    },
    /// Close the connection without a Logout.
    Disconnect,
    /// Send a TestRequest, which the peer answers with a Heartbeat.
    TestRequest,
    Enable,
    Disable,
}

impl SessionAction {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logout => "logout",
            Self::Reset => "reset",
            Self::SetSeq { .. } => "set_seq",
            Self::Disconnect => "disconnect",
            Self::TestRequest => "test_request",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

#[derive(Debug, Clone)]
pub struct NewSessionCommand {
    pub session_id: String,
    pub action: SessionAction,
    pub operator: String,
    pub reason: String,
}

/// A command that waits for the session's owner.
#[derive(Debug, Clone)]
pub struct OpenCommand {
    pub id: i64,
    pub session_id: String,
    pub action: SessionAction,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Answer {
    pub outcome: Option<String>,
    pub failed: bool,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ListedCommand {
    pub id: i64,
    pub action: String,
    pub next_in: Option<i64>,
    pub next_out: Option<i64>,
    pub with_reset: bool,
    pub operator: String,
    pub reason: String,
    pub requested_at: DateTime<Utc>,
    pub outcome: Option<String>,
    pub failed: bool,
    pub done_at: Option<DateTime<Utc>>,
}

/// Records a command. With an outcome it is already done.
pub async fn insert_command(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
    outcome: Option<&str>,
) -> Result<i64, StoreError> {
    let (numbers, with_reset) = match command.action {
        SessionAction::SetSeq { next_in, next_out, with_reset } => (Some((next_in, next_out)), with_reset),
        SessionAction::Logout
        | SessionAction::Reset
        | SessionAction::Disconnect
        | SessionAction::TestRequest
        | SessionAction::Enable
        | SessionAction::Disable => (None, false),
    };
    let sql = "insert into fix_session_command (session_id, action, next_in, next_out, with_reset, operator, reason, \
                                          outcome, done_at) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, case when $8::text is null then null else now() end) returning id";
    let parameters = (
        &command.session_id,
        command.action.name(),
        numbers.map(|(next_in, _)| number(next_in)).transpose()?,
        numbers.map(|(_, next_out)| number(next_out)).transpose()?,
        with_reset,
        &command.operator,
        &command.reason,
        outcome,
    );
    statement::load_value(conn, sql, parameters).await
}

impl FromRow<'_, PgRow> for OpenCommand {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let number = |column| {
            let positive = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
            read(row, ("fix_session_command", column), |value| {
                positive(value).ok_or("set_seq without numbers")
            })
        };
        let plain = |action: &str| match action {
            "logout" => Ok(SessionAction::Logout),
            "reset" => Ok(SessionAction::Reset),
            "disconnect" => Ok(SessionAction::Disconnect),
            "test_request" => Ok(SessionAction::TestRequest),
            other => Err(format!("{other} is unknown")),
        };
        let action = if row.try_get::<&str, _>("action")? == "set_seq" {
            let (next_in, next_out) = (number("next_in")?, number("next_out")?);
            SessionAction::SetSeq { next_in, next_out, with_reset: row.try_get("with_reset")? }
        } else {
            read(row, ("fix_session_command", "action"), plain)?
        };
        Ok(Self { id: row.try_get("id")?, session_id: row.try_get("session_id")?, action })
    }
}

/// Unclaimed commands for these sessions, the oldest first.
pub async fn list_open(
    conn: &mut PgConnection,
    session_ids: &[&str],
    limit: i64,
) -> Result<Vec<OpenCommand>, StoreError> {
    let sql = "select id, session_id, action, next_in, next_out, with_reset from fix_session_command \
         where outcome is null and claimed_by is null and session_id = any($1) \
           and requested_at > now() - make_interval(secs => $3) \
         order by id limit $2";
    statement::list(conn, sql, (session_ids, limit, GOOD_FOR.as_secs_f64())).await
}

/// Claims a command. `false`: it was claimed or withdrawn before, or has expired.
pub async fn take_command(conn: &mut PgConnection, id: i64, owner: Uuid) -> Result<bool, StoreError> {
    let sql = "update fix_session_command set claimed_by = $2, claimed_at = now() \
         where id = $1 and claimed_by is null and outcome is null and requested_at > now() - make_interval(secs => $3)";
    Ok(statement::affected(conn, sql, (id, owner, GOOD_FOR.as_secs_f64())).await? == 1)
}

pub async fn finish_command(
    conn: &mut PgConnection,
    id: i64,
    outcome: &str,
    failed: bool,
) -> Result<(), StoreError> {
    let sql = "update fix_session_command set outcome = $2, failed = $3, done_at = now() \
         where id = $1 and outcome is null";
    statement::execute(conn, sql, (id, outcome, failed)).await
}

/// Withdraws an unclaimed command. `false`: it was claimed.
pub async fn withdraw_command(conn: &mut PgConnection, id: i64) -> Result<bool, StoreError> {
    let sql = "update fix_session_command set outcome = 'withdrawn: no process took it', failed = true, done_at = \
         now() where id = $1 and claimed_by is null and outcome is null";
    Ok(statement::affected(conn, sql, (id,)).await? == 1)
}

/// The present result of a command.
pub async fn load_answer(conn: &mut PgConnection, id: i64) -> Result<Answer, StoreError> {
    let sql = "select outcome, failed from fix_session_command where id = $1";
    statement::load(conn, sql, (id,)).await
}

/// A session's commands, the newest first.
pub async fn list_commands(
    conn: &mut PgConnection,
    session_id: &str,
    limit: i64,
) -> Result<Vec<ListedCommand>, StoreError> {
    let sql = "select id, action, next_in, next_out, with_reset, operator, reason, requested_at, outcome, failed, \
         done_at from fix_session_command where session_id = $1 order by id desc limit $2";
    statement::list(conn, sql, (session_id, limit)).await
}
