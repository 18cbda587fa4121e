//! `dvp provider …`

use clap::{Args, Subcommand};

use super::PlaceArgs;
use super::partner::DepositArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Note what a liquidity provider has put at the service's disposal. The same id again changes nothing.
    #[command(
        after_help = "Example:\n  dvp provider deposit --provider northwind --asset USD --amount-minor 1000000 --id wire-7 --config dvp.toml"
    )]
    Deposit(ProviderDeposit),
    /// Show what a liquidity provider has of an asset, and how much of it is promised.
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
