//! `dvp band …`: how far prices may be from the middle of their pair. Two operators change it.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_core::operators::bands::{BandChange, request};
use dvp_core::operators::requests::Maker;
use dvp_store::operators::bands::{self, BandRow};
use serde_json::json;

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum BandCommand {
    /// Request a price band of a pair; another operator approves it with `dvp approval approve`.
    #[command(
        after_help = "Example:\n  dvp band set --pair WETH/USDC --bps 200 --operator jo --reason 'thin market' --evidence 'risk memo 8' --dir .dvp"
    )]
    Set(BandSet),
    /// Request that a pair's band is taken away, so that the configured one holds; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp band remove --pair WETH/USDC --operator jo --reason 'calm again' --evidence 'risk memo 9' --dir .dvp"
    )]
    Remove(BandWhich),
    /// Show the bands that operators have set.
    #[command(after_help = "Example:\n  dvp band list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BandSet {
    #[command(flatten)]
    pub which: BandWhich,
    /// How far a price may be from the middle, in basis points.
    #[arg(long)]
    pub bps: u32,
    /// The middle, output per one input; without it the reference price is the middle.
    #[arg(long)]
    pub middle: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BandWhich {
    /// INPUT/OUTPUT: the band holds in this direction.
    #[arg(long)]
    pub pair: String,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: BandCommand) -> anyhow::Result<()> {
    match command {
        BandCommand::Set(BandSet { which, bps, middle }) => make(which, Some((bps, middle))).await,
        BandCommand::Remove(which) => make(which, None).await,
        BandCommand::List(place) => list(place).await,
    }
}

async fn make(which: BandWhich, band: Option<(u32, Option<String>)>) -> anyhow::Result<()> {
    let BandWhich { pair, operator, reason, evidence, place } = which;
    let (input, output) = pair.split_once('/').context("--pair: a pair is INPUT/OUTPUT")?;
    let mut access = Access::open(&place).await?;
    let (deviation_bps, middle) = band.unzip();
    let middle = middle.flatten().map(|middle| middle.parse()).transpose().context("--middle")?;
    let change = BandChange { input: input.to_owned(), output: output.to_owned(), deviation_bps, middle };
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &request(&mut access.conn, &access.targets, &change, maker).await?)
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
