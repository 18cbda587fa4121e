//! `dvp work list`: what worker loops have set aside.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use dvp_domain::time::Timestamp;
use dvp_store::workers::set_aside::{self, SetAside};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkCommand {
    /// List what failed and is tried again later, the oldest first: due work and facts of orders, commands of chains,
    /// failing webhook endpoints, files of the bank, tables of the retention and items of all other loops.
    ///
    /// Each is retried by itself, at most a minute apart; the others go on. Exit code 1 when anything is set aside.
    #[command(after_help = "Example:\n  dvp work list --config dvp.toml --json")]
    List(WorkList),
}

#[derive(Debug, Args)]
pub(crate) struct WorkList {
    /// So many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: WorkCommand) -> anyhow::Result<ExitCode> {
    match command {
        WorkCommand::List(args) => list(args).await,
    }
}

async fn list(args: WorkList) -> anyhow::Result<ExitCode> {
    let mut access = Access::open(&args.place).await?;
    let found = set_aside::list(&mut access.conn, i64::from(args.limit)).await?;
    print_list(args.place.json, "setAside", &found, view, line)?;
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn view(row: &SetAside) -> Value {
    let at = |time| Timestamp::from(time).iso8601();
    json!({
        "loop": row.worker, "item": row.item, "about": row.about, "error": row.error, "attempts": row.attempts,
        "firstFailedAt": row.first_failed_at.map(at), "lastFailedAt": row.last_failed_at.map(at),
        "nextAttemptAt": at(row.next_attempt_at),
    })
}

fn line(row: &SetAside) -> String {
    let since = row.first_failed_at.map_or_else(|| "-".to_owned(), |at| Timestamp::from(at).iso8601());
    let SetAside { worker, item, about, error, attempts, .. } = row;
    let about = if about == item { String::new() } else { format!("  {about}") };
    format!("{since}  {worker:<16} {item}{about}  {attempts} attempts: {error}")
}
