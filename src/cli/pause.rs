//! `dvp pause …`

use clap::{Args, Subcommand};
use dvp_domain::pause::Scope;

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PauseCommand {
    /// Stop new orders, or legs that were never called, from now on and in every process.
    #[command(
        after_help = "Example:\n  dvp pause add --scope pair --target USDC/USD --operator jo --reason 'price feed wrong' --dir .dvp"
    )]
    Add(PauseChange),
    /// Let them go on.
    #[command(
        after_help = "Example:\n  dvp pause remove --scope pair --target USDC/USD --operator kim --reason 'feed is right again' --dir .dvp"
    )]
    Remove(PauseChange),
    /// Show the pauses in force.
    #[command(after_help = "Example:\n  dvp pause list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PauseChange {
    /// everything, partner, pair, provider, rail or chain.
    #[arg(long, value_parser = scope)]
    pub scope: Scope,
    /// A partner's name, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; nothing for everything.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub target: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| format!("the scopes are {}", Scope::ALL.map(Scope::as_str).join(", ")))
}
