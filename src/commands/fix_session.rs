//! `dvp fix-session list|history|dictionary|certify|certificate`: sessions as they are, and as their peers test them.

mod certify;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use dvp_fix_gateway::dictionaries;
use dvp_store::fix::admin::{self as fix_admin, ListedSession};
use dvp_store::fix::commands::{self as fix_commands, ListedCommand};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{all_pages, print, print_list};

use self::certify::{Certificate, Certify};

#[derive(Debug, Subcommand)]
pub(crate) enum FixSessionCommand {
    /// List the sessions with their numbers.
    #[command(after_help = "Example:\n  dvp fix-session list --dir .dvp --json")]
    List(PlaceArgs),
    /// List operators' commands for a session, newest first.
    #[command(
        after_help = "Example:\n  dvp fix-session history --session-id 'FIX.4.4:DVP->ACME' --dir .dvp --json"
    )]
    History(SessionId),
    /// Print the data dictionary that a FIX engine of an institution reads. FIX 5.0 SP2 needs FIXT.1.1's, too.
    ///
    /// As a FIX Orchestra file it also says which fields are ignored and which are rejected; FIXT.1.1 and FIX.5.0SP2 are
    /// one file.
    #[command(
        after_help = "Example:\n  dvp fix-session dictionary --version FIX.4.4 > FIX44.xml\n  dvp fix-session dictionary --version FIX.4.4 --format orchestra"
    )]
    Dictionary(FixDictionary),
    /// Follow a counterparty through its test session, and write a signed report of it.
    ///
    /// Prints each step of the script with what is expected of the peer, and waits for it by reading the message archive.
    /// Exit code 1 when a step was not seen in time; the report says which.
    #[command(
        after_help = "Example:\n  dvp fix-session certify --session-id 'FIX.4.4:DVP->ACME' --report acme.json --config dvp.toml"
    )]
    Certify(Certify),
    /// Verify the report of a test session by its signature. Exit code 1 when it is not what the service signed.
    #[command(
        after_help = "Example:\n  dvp fix-session certificate --file acme.json --public-key 3b6a…\n  dvp fix-session certificate --file acme.json --dir .dvp"
    )]
    Certificate(Certificate),
}

#[derive(Debug, Args)]
pub(crate) struct FixDictionary {
    /// FIX.4.2, FIX.4.4, FIXT.1.1 or FIX.5.0SP2.
    #[arg(long, value_parser = ["FIX.4.2", "FIX.4.4", "FIXT.1.1", "FIX.5.0SP2"])]
    pub version: String,
    #[arg(long, value_enum, default_value_t)]
    pub format: DictionaryFormat,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum DictionaryFormat {
    /// QuickFIX's, which most engines read.
    #[default]
    Quickfix,
    /// FIX Orchestra 1.0.
    Orchestra,
}

#[derive(Debug, Args)]
pub(crate) struct SessionId {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

const PAGE: i64 = 500;
/// Rows of a history.
const HISTORY_MAX: i64 = 1000;

pub(crate) async fn run(command: FixSessionCommand) -> anyhow::Result<ExitCode> {
    match command {
        FixSessionCommand::List(place) => list(place).await?,
        FixSessionCommand::History(args) => history(args).await?,
        FixSessionCommand::Dictionary(args) => dictionary(&args)?,
        FixSessionCommand::Certify(args) => return certify::certify(args).await,
        FixSessionCommand::Certificate(args) => return certify::certificate(&args),
    }
    Ok(ExitCode::SUCCESS)
}

fn dictionary(args: &FixDictionary) -> anyhow::Result<()> {
    let text = match args.format {
        DictionaryFormat::Quickfix => dictionaries::find(&args.version.replace('.', "")),
        DictionaryFormat::Orchestra => dictionaries::orchestra(&args.version),
    };
    let text = text.with_context(|| format!("no dictionary of {}", args.version))?;
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let page = async |after: &str| fix_admin::list(&mut access.conn, after, PAGE).await;
    let all = all_pages(|row: &ListedSession| &row.session_id, page).await?;
    let line = |row: &ListedSession| {
        let state = if row.enabled { "enabled" } else { "disabled" };
        let copy = if row.drop_copy { "  drop copy" } else { "" };
        format!(
            "{}  {}  {state}  in {}  out {}{copy}",
            row.session_id, row.partner, row.next_in, row.next_out
        )
    };
    print_list(place.json, "sessions", &all, view, line)
}

fn view(row: &ListedSession) -> Value {
    json!({
        "sessionId": row.session_id, "partner": row.partner, "env": if row.livemode { "live" } else { "test" },
        "username": row.username, "enabled": row.enabled, "nextIn": row.next_in, "nextOut": row.next_out,
        "dropCopy": row.drop_copy, "cancelOnDisconnectSecs": row.cancel_on_disconnect_secs,
        "maxSlippageBps": row.max_slippage_bps,
    })
}

async fn history(args: SessionId) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let commands = fix_commands::list_commands(&mut access.conn, &args.session_id, HISTORY_MAX).await?;
    let value = json!({"sessionId": args.session_id, "commands": commands.iter().map(command_view).collect::<Vec<_>>()});
    print(args.place.json, &value, || commands.iter().map(command_line).collect())
}

fn command_view(command: &ListedCommand) -> Value {
    json!({
        "id": command.id, "action": command.action, "nextIn": command.next_in, "nextOut": command.next_out,
        "withReset": command.with_reset, "operator": command.operator, "reason": command.reason,
        "requestedAt": command.requested_at, "outcome": command.outcome, "failed": command.failed, "doneAt": command.done_at,
    })
}

fn command_line(command: &ListedCommand) -> String {
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
