//! `dvp cell …` and `dvp partner move …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dvp_domain::cell::CellId;

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum CellCommand {
    /// Write the maps by which a proxy finds the cell of partners that moved and of FIX sessions.
    ///
    /// From the databases of all cells, so give every configuration. A file is replaced as a whole. With --socket the
    /// running proxy takes the maps over at once, each as a whole. What two cells have keeps its line and is named, and the
    /// command ends with an error then.
    #[command(
        after_help = "Example:\n  dvp cell map --config a.toml --config b.toml --dir /etc/haproxy --socket /run/haproxy/dvp.sock"
    )]
    Map(CellMap),
}

#[derive(Debug, Args)]
pub(crate) struct CellMap {
    /// The configuration of a cell, once for each cell.
    #[arg(long = "config", value_name = "FILE", required = true)]
    pub configs: Vec<PathBuf>,
    /// Where dvp-keys.map and dvp-sessions.map are.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// The socket of a proxy that runs.
    #[arg(long = "socket", value_name = "FILE")]
    pub sockets: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MoveCommand {
    /// Request that a partner moves to another cell. Another operator approves it (`dvp approval approve`).
    #[command(
        after_help = "Example:\n  dvp partner move request --name acme --to 00b --operator jo --reason 'cell 00a is full' --evidence 'ticket 7' --config a.toml"
    )]
    Request(MoveRequest),
    /// Move a partner as far as it can be moved now; run it again to continue it.
    ///
    /// Its new orders are refused (503 PARTNER_MOVING) from the moment that it is closed here until it is open there.
    #[command(
        after_help = "Example:\n  dvp partner move run --name acme --operator jo --config a.toml --to-config b.toml"
    )]
    Run(MoveRun),
    /// Show how far a move is, and what keeps it from going on.
    #[command(
        after_help = "Example:\n  dvp partner move status --name acme --config a.toml --to-config b.toml"
    )]
    Status(MoveStatus),
    /// End a move of which nothing was copied yet: the partner stays.
    #[command(
        after_help = "Example:\n  dvp partner move cancel --name acme --operator jo --config a.toml --to-config b.toml"
    )]
    Cancel(MoveCancel),
    /// Request that this cell, which was restored to before a partner left it, records the move that has taken it to the
    /// other cell. Another operator approves it (`dvp approval approve`); then run the move.
    #[command(
        after_help = "Example:\n  dvp partner move record --name acme --operator jo --reason 'restored to 12:00' --evidence 'entry 1200' --config a.toml --to-config b.toml"
    )]
    Record(MoveRecord),
}

#[derive(Debug, Args)]
pub(crate) struct MoveRequest {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    /// The cell that it moves to.
    #[arg(long, value_name = "CELL")]
    pub to: CellId,
    /// The requesting operator: another one approves the move.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// A partner, the configuration of its cell, and that of the cell that it moves to.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    /// The configuration of the target.
    #[arg(long, value_name = "FILE")]
    pub to_config: PathBuf,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MoveRun {
    #[command(flatten)]
    pub moving: Moving,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Change nothing, and show what would keep the partner from being moved.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MoveStatus {
    #[command(flatten)]
    pub moving: Moving,
}

#[derive(Debug, Args)]
pub(crate) struct MoveRecord {
    #[command(flatten)]
    pub moving: Moving,
    /// The requesting operator: another one approves it.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
}

#[derive(Debug, Args)]
pub(crate) struct MoveCancel {
    #[command(flatten)]
    pub moving: Moving,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
}
