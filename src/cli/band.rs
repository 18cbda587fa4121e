//! `dvp band …`

use clap::{Args, Subcommand};

use super::PlaceArgs;

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
    Remove(BandRemove),
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
pub(crate) struct BandRemove {
    #[command(flatten)]
    pub which: BandWhich,
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
