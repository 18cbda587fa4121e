//! `dvp provider …`

use clap::{Args, Subcommand};

use super::PlaceArgs;
use super::partner::DepositArgs;

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
