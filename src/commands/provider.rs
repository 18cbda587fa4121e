//! `dvp provider balance`: balances that liquidity providers hold with the service.

use clap::{Args, Subcommand};
use dvp_domain::ledger::Owner;
use dvp_store::ledger::balances;
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Show a liquidity provider's balance of an asset, and the reserved part.
    #[command(
        after_help = "Example:\n  dvp provider balance --provider northwind --asset USD --dir .dvp --json"
    )]
    Balance(ProviderBalance),
}

#[derive(Debug, Args)]
pub(crate) struct ProviderBalance {
    /// The provider's id, as the configuration has it.
    #[arg(long)]
    pub provider: String,
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: ProviderCommand) -> anyhow::Result<()> {
    match command {
        ProviderCommand::Balance(args) => balance(args).await,
    }
}

async fn balance(args: ProviderBalance) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let held = balances::find(&mut access.conn, &Owner::Provider(args.provider.clone()), &args.asset).await?;
    let value = json!({"provider": args.provider, "asset": args.asset,
                       "availableMinor": held.available, "reservedMinor": held.reserved});
    print(args.place.json, &value, || {
        vec![format!("{}: {} available, {} reserved", args.asset, held.available, held.reserved)]
    })
}
