//! `dvp provider …`

use clap::{Args, Subcommand};
use dvp_domain::money::Minor;

use super::PlaceArgs;
use super::partner::amount;

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
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    /// What the deposit is called, once and for all: the bank's reference.
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
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
