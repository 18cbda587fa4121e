//! How far prices may be from the middle of their pair.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_core::operators::bands::{BandChange, request};
use rust_decimal::Decimal;

use crate::actions::Why;
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum BandAction {
    /// Request a price band of a pair; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp band set --pair WETH/USDC --bps 200 --reason 'thin market' --evidence 'risk memo 8' --config dvp.toml"
    )]
    Set(Band),
    /// Request that a pair's band is taken away, so that the configured one holds; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp band remove --pair WETH/USDC --reason 'calm again' --evidence 'risk memo 9' --config dvp.toml"
    )]
    Remove(Which),
}

#[derive(Debug, Args)]
pub(crate) struct Band {
    #[command(flatten)]
    which: Which,
    /// How far a price may be from the middle, in basis points.
    #[arg(long)]
    bps: u32,
    /// The middle, output per one input; without it the reference price is the middle.
    #[arg(long)]
    middle: Option<Decimal>,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// INPUT/OUTPUT: the band holds in this direction.
    #[arg(long)]
    pair: String,
    #[command(flatten)]
    why: Why,
}

impl BandAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let (Which { pair, why }, deviation_bps, middle) = match self {
            Self::Set(Band { which, bps, middle }) => (which, Some(bps), middle),
            Self::Remove(which) => (which, None, None),
        };
        let (input, output) = pair.split_once('/').context("--pair: a pair is INPUT/OUTPUT")?;
        let change = BandChange { input: input.to_owned(), output: output.to_owned(), deviation_bps, middle };
        let maker = desk.maker(&why.reason, &why.evidence);
        Ok(Outcome::requested(&request(desk.conn, &desk.house.targets, &change, maker).await?))
    }
}
