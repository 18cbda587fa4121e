//! `dvp maker list|orders`: the makers of providers, and their resting orders.

use clap::{Args, Subcommand};
use dvp_core::operators::makers;
use dvp_ops::actions::makers::{line, view};
use dvp_store::operators::makers as store;
use dvp_store::orders::resting_orders;
use serde_json::json;

use super::named_partner;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum MakerCommand {
    /// Show the makers.
    #[command(after_help = "Example:\n  dvp maker list --dir .dvp --json")]
    List(PlaceArgs),
    /// Show a maker's resting orders, newest first.
    #[command(after_help = "Example:\n  dvp maker orders --partner acme --open --dir .dvp --json")]
    Orders(MakerOrders),
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

pub(crate) async fn run(command: MakerCommand) -> anyhow::Result<()> {
    match command {
        MakerCommand::List(place) => list(place).await,
        MakerCommand::Orders(args) => orders(args).await,
    }
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = store::list(&mut access.conn).await?;
    let view = |row: &store::Maker| {
        json!({"partnerId": row.partner_id, "provider": row.provider_id, "wallet": row.wallet,
               "approval": row.approval, "setAt": row.set_at.to_rfc3339()})
    };
    let line = |row: &store::Maker| {
        format!("{} for {}  to {}  by {}", row.partner_id, row.provider_id, row.wallet, row.approval)
    };
    print_list(place.json, "makers", &rows, view, line)
}

/// The service that a command is for, and the maker of this name.
async fn maker(place: &PlaceArgs, partner: &str) -> anyhow::Result<(Access, store::Maker)> {
    let mut access = Access::open(place).await?;
    let id = named_partner(&mut access.conn, partner).await?.id;
    let maker = makers::find(&mut access.conn, &id).await?;
    Ok((access, maker))
}

async fn orders(args: MakerOrders) -> anyhow::Result<()> {
    let (mut access, maker) = maker(&args.place, &args.partner).await?;
    let rows = resting_orders::list_of(&mut access.conn, maker.placer(), args.open, None, args.limit).await?;
    let vault = &access.vault;
    print_list(args.place.json, "orders", &rows, |row| view(vault, row), |row| line(vault, row))
}
