//! `dvp maker …`

use clap::{Args, Subcommand};
use dvp_domain::money::Minor;

use super::PlaceArgs;
use super::partner::amount;

#[derive(Debug, Subcommand)]
pub(crate) enum MakerCommand {
    /// Request that a partner may place resting orders of a provider; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp maker set --partner acme --provider quorum --wallet 0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc --operator jo --reason 'agreement' --evidence 'contract 4' --dir .dvp"
    )]
    Set(MakerSet),
    /// Request that a partner may do so no more; another operator approves it. Its orders stay until they are
    /// cancelled.
    #[command(
        after_help = "Example:\n  dvp maker end --partner acme --operator jo --reason 'agreement ended' --evidence 'letter 9' --dir .dvp"
    )]
    End(MakerEnd),
    /// Show the makers.
    #[command(after_help = "Example:\n  dvp maker list --dir .dvp --json")]
    List(PlaceArgs),
    /// Place a resting order: the provider's balance is offered at a rate. The same id again changes nothing.
    #[command(
        after_help = "Example:\n  dvp maker place --partner acme --id R-1 --pair USDC/USD --rate 0.9991 --amount-minor 5000000 --dir .dvp"
    )]
    Place(MakerPlace),
    /// Cancel the remainder of a resting order. Amounts that takers return later stay with the provider.
    #[command(after_help = "Example:\n  dvp maker cancel --partner acme --order 17 --dir .dvp")]
    Cancel(MakerCancel),
    /// Show a maker's resting orders, newest first.
    #[command(after_help = "Example:\n  dvp maker orders --partner acme --open --dir .dvp --json")]
    Orders(MakerOrders),
}

#[derive(Debug, Args)]
pub(crate) struct MakerSet {
    /// The provider whose balance its orders offer.
    #[arg(long)]
    pub provider: String,
    /// The wallet that funds of its fills are released to, on the escrow's allow-list.
    #[arg(long)]
    pub wallet: String,
    #[command(flatten)]
    pub who: MakerWho,
}

#[derive(Debug, Args)]
pub(crate) struct MakerEnd {
    #[command(flatten)]
    pub who: MakerWho,
}

#[derive(Debug, Args)]
pub(crate) struct MakerWho {
    /// The partner's name.
    #[arg(long)]
    pub partner: String,
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

#[derive(Debug, Args)]
pub(crate) struct MakerPlace {
    /// The maker's name.
    #[arg(long)]
    pub partner: String,
    /// The maker's own id of the order.
    #[arg(long)]
    pub id: String,
    /// INPUT/OUTPUT, as takers pay and get.
    #[arg(long)]
    pub pair: String,
    /// Output per one input.
    #[arg(long)]
    pub rate: String,
    /// The most that is given, in the output's minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MakerCancel {
    /// The maker's name.
    #[arg(long)]
    pub partner: String,
    /// The order's number, as `place` and `orders` print it.
    #[arg(long)]
    pub order: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MakerOrders {
    /// The maker's name.
    #[arg(long)]
    pub partner: String,
    /// Only those with a remaining amount.
    #[arg(long)]
    pub open: bool,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}
