//! `dvp pause list`: operators' pauses of parts of the service.

use clap::Subcommand;
use dvp_store::operators::pauses::{self, PauseRow};
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum PauseCommand {
    /// Show the pauses in force.
    #[command(after_help = "Example:\n  dvp pause list --dir .dvp --json")]
    List(PlaceArgs),
}

pub(crate) async fn run(command: PauseCommand) -> anyhow::Result<()> {
    match command {
        PauseCommand::List(place) => list(place).await,
    }
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = pauses::list(&mut access.conn).await?;
    let view = |row: &PauseRow| {
        json!({"scope": row.scope, "target": row.target, "operator": row.operator, "reason": row.reason,
               "pausedAt": row.paused_at})
    };
    let line = |row: &PauseRow| {
        format!("{} {}  since {} by {}: {}", row.scope, row.target, row.paused_at, row.operator, row.reason)
    };
    print_list(place.json, "pauses", &rows, view, line)
}
