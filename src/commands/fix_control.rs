//! `dvp fix-session disable|enable|logout|disconnect|test-request|reset|set-seq|history`: operators' commands for sessions.

use clap::Args;
use dvp_core::operators::credentials::sessions;
use dvp_core::operators::fix_sessions;
use dvp_fix_gateway::stale_types;
use dvp_store::fix::commands::{self as fix_commands, ListedCommand, SessionAction};
use serde_json::{Value, json};

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::{MakerArgs, PlaceArgs};
use crate::output::print;

/// Rows of a history.
const HISTORY_MAX: i64 = 1000;

#[derive(Debug, Args)]
pub(crate) struct SessionEnable {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionSwitch {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    /// The operator.
    #[arg(long, visible_alias = "as", default_value_t = login())]
    pub operator: String,
    /// Why.
    #[arg(long, default_value = "not given")]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionCommand {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionId {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The account logged in at this machine, for the record.
pub(crate) fn login() -> String {
    let names = ["USER", "LOGNAME"].map(|name| std::env::var(name).ok());
    names.into_iter().flatten().find(|name| !name.trim().is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

pub(super) async fn disable(args: SessionSwitch) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = &args.session_id;
    let command = fix_sessions::command(id, SessionAction::Disable, &args.operator, &args.reason)?;
    let outcome = fix_sessions::carry_out(&mut access.conn, &command, &stale_types()).await?;
    let value = json!({"sessionId": id, "enabled": false, "ended": outcome == "disabled"});
    print(args.place.json, &value, || vec![format!("{id} is {outcome}")])
}

/// Lets a disabled session log on again, or requests it.
pub(super) async fn enable(args: SessionEnable) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = &args.session_id;
    if let Some(maker) = args.maker.maker(access.environment)? {
        let requested = sessions::request_enabling(&mut access.conn, id, maker).await?;
        return print_requested(args.place.json, &requested);
    }
    let command = fix_sessions::command(id, SessionAction::Enable, &login(), "not given")?;
    let outcome = fix_sessions::carry_out(&mut access.conn, &command, &stale_types()).await?;
    let value = json!({"sessionId": id, "enabled": true, "ended": true});
    print(args.place.json, &value, || vec![format!("{id} is {outcome}")])
}

pub(super) async fn carry_out(args: SessionCommand, action: SessionAction) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = &args.session_id;
    let command = fix_sessions::command(id, action, &args.operator, &args.reason)?;
    let outcome = fix_sessions::carry_out(&mut access.conn, &command, &stale_types()).await?;
    let value = json!({"sessionId": id, "action": action.name(), "outcome": outcome});
    print(args.place.json, &value, || vec![format!("{id}: {outcome}")])
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
        "requestedAt": command.requested_at, "outcome": command.outcome, "failed": command.failed, "doneAt": command.done_at,
    })
}

fn line(command: &ListedCommand) -> String {
    let outcome = command.outcome.as_deref().unwrap_or("not answered");
    let word = if command.failed { "failed: " } else { "" };
    format!(
        "{}  {}  {} ({})  {word}{outcome}",
        command.requested_at.to_rfc3339(),
        command.action,
        command.operator,
        command.reason
    )
}
