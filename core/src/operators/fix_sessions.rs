//! Operators' commands for FIX sessions.
//!
//! The process that owns a session counts its numbers in memory, so a row requests the change and receives the answer.
//! A session that no process owns is changed here, under its lease. Either way the row stays, with operator and reason,
//! and so does that of a refused command.
//!
//! Kept by `fix-gateway/tests/it/operators.rs::an_operators_reset_keeps_reports_that_were_not_received`.

use std::time::{Duration, Instant};

use dvp_store::database::lease::Lease;
use dvp_store::fix::admin::{self, NewNumbers, Renumbered};
use dvp_store::fix::commands::{self, NewSessionCommand, SessionAction};
use dvp_store::{PgConnection, StoreError, fix};
use sqlx::Connection as _;
use uuid::Uuid;

use crate::operators::requests::{begin, end};

/// How long the session's owner has to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long a disabled session has to end.
const END_WAIT: Duration = Duration::from_secs(6);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long this command may lease a session without an owner.
const LEASE: Duration = Duration::from_secs(15);

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum SessionCommandError {
    #[error("there is no session {0}")]
    Unknown(String),
    #[error("operator and reason are needed")]
    NoReason,
    #[error(
        "next_out is {0}: a lower number would identify two messages unless the numbers are reset (--with-reset)"
    )]
    TooLow(i64),
    /// The owner's answer.
    #[error("{0}")]
    Refused(String),
    #[error("the session's owner did not take the command within {secs} s; nothing was done", secs = ANSWER_WAIT.as_secs())]
    NotTaken,
    #[error(
        "the session's owner has taken command {0} and not answered within {secs} s; the session's history shows its \
         outcome",
        secs = ANSWER_WAIT.as_secs()
    )]
    NotAnswered(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for SessionCommandError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Checks that operator and reason are given.
pub fn command(
    session_id: &str,
    action: SessionAction,
    operator: &str,
    reason: &str,
) -> Result<NewSessionCommand, SessionCommandError> {
    let (operator, reason) = (operator.trim().to_owned(), reason.trim().to_owned());
    if operator.is_empty() || reason.is_empty() {
        return Err(SessionCommandError::NoReason);
    }
    Ok(NewSessionCommand { session_id: session_id.to_owned(), action, operator, reason })
}

/// Carries out a command and returns its outcome. Messages of `stale_types` are not kept by a reset.
pub async fn carry_out(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
    stale_types: &[String],
) -> Result<String, SessionCommandError> {
    let id = &command.session_id;
    match command.action {
        SessionAction::Enable => return set_enabled(conn, command, true).await,
        SessionAction::Disable => return set_enabled(conn, command, false).await,
        SessionAction::Logout
        | SessionAction::Reset
        | SessionAction::SetSeq { .. }
        | SessionAction::Disconnect
        | SessionAction::TestRequest => {}
    }
    if fix::find_session(conn, id).await?.is_none() {
        return Err(SessionCommandError::Unknown(id.clone()));
    }
    match Lease::acquire(&mut *conn, &lease_name(id), Uuid::new_v4(), LEASE).await? {
        Some(lease) => {
            let done = directly(conn, command, &lease, stale_types).await;
            lease.release(conn).await?;
            done
        }
        None => by_owner(conn, command).await,
    }
}

fn lease_name(id: &str) -> String {
    format!("fix:{id}")
}

async fn set_enabled(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
    enabled: bool,
) -> Result<String, SessionCommandError> {
    let id = &command.session_id;
    let mut tx = begin(conn).await?;
    let written = write_enabled(&mut tx, command, enabled).await;
    let word = end(tx, written).await?;
    if enabled || has_ended(conn, id).await? {
        Ok(word.to_owned())
    } else {
        Ok(format!("{word}; its owner has not let go of it within {} s", END_WAIT.as_secs()))
    }
}

/// Lets a disabled session log on again, in the caller's transaction.
pub(crate) async fn enable(
    tx: &mut PgConnection,
    command: &NewSessionCommand,
) -> Result<(), SessionCommandError> {
    write_enabled(tx, command, true).await.map(|_| ())
}

async fn write_enabled(
    tx: &mut PgConnection,
    command: &NewSessionCommand,
    enabled: bool,
) -> Result<&'static str, SessionCommandError> {
    let word = if enabled { "enabled" } else { "disabled" };
    if !admin::set_enabled(tx, &command.session_id, enabled).await? {
        return Err(SessionCommandError::Unknown(command.session_id.clone()));
    }
    commands::insert_command(tx, command, Some(word)).await?;
    Ok(word)
}

/// Waits until no process has the session.
async fn has_ended(conn: &mut PgConnection, id: &str) -> Result<bool, StoreError> {
    let deadline = Instant::now() + END_WAIT;
    while admin::is_held(conn, &lease_name(id)).await? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(true)
}

/// Changes a session that no process owns.
async fn directly(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
    lease: &Lease,
    stale_types: &[String],
) -> Result<String, SessionCommandError> {
    let numbers = match command.action {
        SessionAction::Reset => Some(NewNumbers { next_in: 1, next_out: 1, with_reset: true }),
        SessionAction::SetSeq { next_in, next_out, with_reset } => {
            Some(NewNumbers { next_in, next_out, with_reset })
        }
        SessionAction::Logout
        | SessionAction::Disconnect
        | SessionAction::TestRequest
        | SessionAction::Enable
        | SessionAction::Disable => None,
    };
    let mut tx = conn.begin().await?;
    lease.guard(&mut tx).await?;
    let outcome = match numbers {
        None => "no process runs the session, no peer is connected".to_owned(),
        Some(numbers) => match admin::renumber(&mut tx, &command.session_id, numbers, stale_types).await? {
            Renumbered::Done { next_out, kept: 0 } => {
                format!("next in {}, next out {next_out}", numbers.next_in)
            }
            Renumbered::Done { next_out, kept } => format!(
                "next in {}, next out {next_out}; {kept} messages that the peer has not seen were kept",
                numbers.next_in
            ),
            Renumbered::TooLow { next_out } => {
                tx.rollback().await?;
                return Err(refused(conn, command, SessionCommandError::TooLow(next_out)).await?);
            }
        },
    };
    commands::insert_command(&mut tx, command, Some(&outcome)).await?;
    tx.commit().await?;
    Ok(outcome)
}

/// Records a refused command, and returns why.
async fn refused(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
    error: SessionCommandError,
) -> Result<SessionCommandError, SessionCommandError> {
    let mut tx = conn.begin().await?;
    let id = commands::insert_command(&mut tx, command, None).await?;
    commands::finish_command(&mut tx, id, &error.to_string(), true).await?;
    tx.commit().await?;
    Ok(error)
}

/// Requests it of the process that owns the session, and waits for its answer.
async fn by_owner(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
) -> Result<String, SessionCommandError> {
    let id = commands::insert_command(conn, command, None).await?;
    let deadline = Instant::now() + ANSWER_WAIT;
    loop {
        let answer = commands::load_answer(conn, id).await?;
        if let Some(outcome) = answer.outcome {
            return if answer.failed { Err(SessionCommandError::Refused(outcome)) } else { Ok(outcome) };
        }
        if Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let is_withdrawn = commands::withdraw_command(conn, id).await?;
    Err(if is_withdrawn { SessionCommandError::NotTaken } else { SessionCommandError::NotAnswered(id) })
}
