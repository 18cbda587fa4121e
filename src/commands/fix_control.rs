//! `dvp fix-session disable|enable|logout|reset|set-seq|history`: what operators do to sessions.
//!
//! The process that owns a session counts its numbers in memory, so it is asked by a row and answers in it. A session
//! that no process owns is changed here, under its lease. Either way the row stays, with operator and reason, and so
//! does that of a refused command.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dvp_fix_gateway::stale_types;
use dvp_store::fix;
use dvp_store::fix::admin::{self as fix_admin, NewNumbers, Renumbered};
use dvp_store::fix::commands::{self as fix_commands, ListedCommand, NewSessionCommand, SessionAction};
use dvp_store::lease::Lease;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::access::Access;
use crate::cli::{SessionCommand, SessionId, SessionSwitch};
use crate::output::print;

/// How long the session's owner has to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long a disabled session has to end.
const END_WAIT: Duration = Duration::from_secs(6);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long this command may hold a session that nobody owns.
const LEASE: Duration = Duration::from_secs(15);
/// Rows of a history.
const HISTORY_MAX: i64 = 1000;

pub(super) async fn set_enabled(args: SessionSwitch, enabled: bool) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = &args.session_id;
    let (action, word) =
        if enabled { (SessionAction::Enable, "enabled") } else { (SessionAction::Disable, "disabled") };
    let mut tx = access.conn.begin().await?;
    if !fix_admin::set_enabled(&mut tx, id, enabled).await? {
        bail!("there is no session {id}");
    }
    let command = new_command(id, action, &args.operator, &args.reason)?;
    fix_commands::insert_command(&mut tx, &command, Some(word)).await?;
    tx.commit().await?;
    let has_ended = enabled || has_ended(&mut access.conn, id).await?;
    print(args.place.json, &json!({"sessionId": id, "enabled": enabled, "ended": has_ended}), || {
        if has_ended {
            vec![format!("{id} is {word}")]
        } else {
            vec![format!("{id} is {word}; its owner has not let go of it within {} s", END_WAIT.as_secs())]
        }
    })
}

/// Waits until no process has the session.
async fn has_ended(conn: &mut PgConnection, id: &str) -> anyhow::Result<bool> {
    let deadline = Instant::now() + END_WAIT;
    while fix_admin::is_held(conn, &lease_name(id)).await? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(true)
}

fn lease_name(id: &str) -> String {
    format!("fix:{id}")
}

fn new_command(
    id: &str,
    action: SessionAction,
    operator: &str,
    reason: &str,
) -> anyhow::Result<NewSessionCommand> {
    let (operator, reason) = (operator.trim().to_owned(), reason.trim().to_owned());
    ensure!(!operator.is_empty() && !reason.is_empty(), "--operator and --reason are not empty");
    Ok(NewSessionCommand { session_id: id.to_owned(), action, operator, reason })
}

pub(super) async fn carry_out(args: SessionCommand, action: SessionAction) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = &args.session_id;
    let command = new_command(id, action, &args.operator, &args.reason)?;
    fix::find_session(&mut access.conn, id).await?.with_context(|| format!("there is no session {id}"))?;
    let lease = Lease::acquire(&mut access.conn, &lease_name(id), Uuid::new_v4(), LEASE).await?;
    let outcome = match lease {
        Some(lease) => {
            let done = directly(&mut access.conn, &command, &lease).await;
            lease.release(&mut access.conn).await?;
            done?
        }
        None => ask_owner(&mut access.conn, &command).await?,
    };
    let value = json!({"sessionId": id, "action": action.name(), "outcome": outcome});
    print(args.place.json, &value, || vec![format!("{id}: {outcome}")])
}

/// Changes a session that no process owns.
async fn directly(
    conn: &mut PgConnection,
    command: &NewSessionCommand,
    lease: &Lease,
) -> anyhow::Result<String> {
    let numbers = match command.action {
        SessionAction::Reset => Some(NewNumbers { next_in: 1, next_out: 1, with_reset: true }),
        SessionAction::SetSeq { next_in, next_out, with_reset } => {
            Some(NewNumbers { next_in, next_out, with_reset })
        }
        SessionAction::Logout | SessionAction::Enable | SessionAction::Disable => None,
    };
    let mut tx = conn.begin().await?;
    lease.guard(&mut tx).await?;
    let outcome = match numbers {
        None => "no process runs the session, nobody is logged on".to_owned(),
        Some(numbers) => {
            match fix_admin::renumber(&mut tx, &command.session_id, numbers, &stale_types()).await? {
                Renumbered::Done { next_out, kept: 0 } => {
                    format!("next in {}, next out {next_out}", numbers.next_in)
                }
                Renumbered::Done { next_out, kept } => format!(
                    "next in {}, next out {next_out}; {kept} messages that the peer has not seen were kept",
                    numbers.next_in
                ),
                Renumbered::TooLow { next_out } => {
                    tx.rollback().await?;
                    let refused = format!(
                        "next_out is {next_out}: a lower number would stand for two messages unless --with-reset is given"
                    );
                    let mut tx = conn.begin().await?;
                    let id = fix_commands::insert_command(&mut tx, command, None).await?;
                    fix_commands::finish_command(&mut tx, id, &refused, true).await?;
                    tx.commit().await?;
                    bail!(refused)
                }
            }
        }
    };
    fix_commands::insert_command(&mut tx, command, Some(&outcome)).await?;
    tx.commit().await?;
    Ok(outcome)
}

/// Asks the process that owns the session, and waits for its answer.
async fn ask_owner(conn: &mut PgConnection, command: &NewSessionCommand) -> anyhow::Result<String> {
    let id = fix_commands::insert_command(conn, command, None).await?;
    let deadline = Instant::now() + ANSWER_WAIT;
    loop {
        let answer = fix_commands::load_answer(conn, id).await?;
        if let Some(outcome) = answer.outcome {
            ensure!(!answer.failed, "{outcome}");
            return Ok(outcome);
        }
        if Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    ensure!(
        !fix_commands::withdraw_command(conn, id).await?,
        "the session's owner did not take the command within {} s; nothing was done",
        ANSWER_WAIT.as_secs()
    );
    bail!(
        "the session's owner has taken command {id} and not answered within {} s; `dvp fix-session history` shows its \
         outcome",
        ANSWER_WAIT.as_secs()
    )
}

pub(super) async fn history(args: SessionId) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let commands = fix_commands::list_commands(&mut access.conn, &args.session_id, HISTORY_MAX).await?;
    let value =
        json!({"sessionId": args.session_id, "commands": commands.iter().map(view).collect::<Vec<_>>()});
    print(args.place.json, &value, || commands.iter().map(line).collect())
}

fn view(command: &ListedCommand) -> Value {
    json!({
        "id": command.id, "action": command.action, "nextIn": command.next_in, "nextOut": command.next_out,
        "withReset": command.with_reset, "operator": command.operator, "reason": command.reason,
        "askedAt": command.asked_at, "outcome": command.outcome, "failed": command.failed, "doneAt": command.done_at,
    })
}

fn line(command: &ListedCommand) -> String {
    let outcome = command.outcome.as_deref().unwrap_or("not answered");
    let word = if command.failed { "failed: " } else { "" };
    format!(
        "{}  {}  {} ({})  {word}{outcome}",
        command.asked_at.to_rfc3339(),
        command.action,
        command.operator,
        command.reason
    )
}
