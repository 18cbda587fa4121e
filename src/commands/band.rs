//! `dvp band list`: how far prices may be from the middle of their pair.

use clap::Subcommand;
use dvp_store::operators::bands::{self, BandRow};
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum BandCommand {
    /// Show the bands that operators have set.
    #[command(after_help = "Example:\n  dvp band list --dir .dvp --json")]
    List(PlaceArgs),
}

pub(crate) async fn run(command: BandCommand) -> anyhow::Result<()> {
    match command {
        BandCommand::List(place) => list(place).await,
    }
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = bands::list(&mut access.conn).await?;
    let view = |row: &BandRow| {
        json!({"pair": format!("{}/{}", row.input, row.output), "deviationBps": row.deviation_bps,
               "middle": row.middle, "approval": row.approval, "setAt": row.set_at.to_rfc3339()})
    };
    let line = |row: &BandRow| {
        let middle = row.middle.as_deref().unwrap_or("the reference price");
        let (input, output, bps) = (&row.input, &row.output, row.deviation_bps);
        format!("{input}/{output}  {bps} bps around {middle}  by {}", row.approval)
    };
    print_list(place.json, "bands", &rows, view, line)
}
