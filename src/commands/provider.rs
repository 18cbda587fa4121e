//! `dvp provider …`: balances that liquidity providers hold with the service.

use clap::{Args, Subcommand};
use dvp_domain::ledger::Owner;
use dvp_store::ledger::balances;
use serde_json::json;

use super::deposit;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::commands::deposit::DepositArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Record a deposit of a liquidity provider. A repeated id changes nothing.
    #[command(
        after_help = "Example:\n  dvp provider deposit --provider northwind --asset USD --amount-minor 1000000 --id wire-7 --config dvp.toml"
    )]
    Deposit(ProviderDeposit),
    /// Show a liquidity provider's balance of an asset, and the reserved part.
    #[command(
        after_help = "Example:\n  dvp provider balance --provider northwind --asset USD --dir .dvp --json"
    )]
    Balance(ProviderBalance),
}

#[derive(Debug, Args)]
pub(crate) struct ProviderDeposit {
    /// The provider's id, as the configuration has it.
    #[arg(long)]
    pub provider: String,
    #[command(flatten)]
    pub deposit: DepositArgs,
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
        ProviderCommand::Deposit(args) => deposit(args).await,
        ProviderCommand::Balance(args) => balance(args).await,
    }
}

async fn deposit(args: ProviderDeposit) -> anyhow::Result<()> {
    let mut access = Access::open(&args.deposit.place).await?;
    let owner = Owner::Provider(args.provider.clone());
    deposit::post(&mut access, &args.deposit, &owner, ("provider", &args.provider)).await
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
