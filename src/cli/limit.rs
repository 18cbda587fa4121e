//! `dvp limit …`

use clap::{Args, Subcommand};
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;

use super::PlaceArgs;
use super::partner::amount;

#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Request a limit; another operator approves it with `dvp approval approve`.
    #[command(
        after_help = "Example:\n  dvp limit set --scope partner --target acme --asset USDC --per day --amount-minor 5000000000 --operator jo --reason 'new partner' --evidence 'risk memo 7' --dir .dvp"
    )]
    Set(LimitSet),
    /// Request that a limit is taken away; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp limit remove --scope partner --target acme --asset USDC --per day --operator jo --reason 'a year without a break' --evidence 'risk memo 9' --dir .dvp"
    )]
    Remove(LimitRemove),
    /// Show the limits in force, with today's accepted and open amounts.
    #[command(after_help = "Example:\n  dvp limit list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LimitSet {
    #[command(flatten)]
    pub which: LimitWhich,
    /// The most that is accepted, in the asset's minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
}

#[derive(Debug, Args)]
pub(crate) struct LimitRemove {
    #[command(flatten)]
    pub which: LimitWhich,
}

#[derive(Debug, Args)]
pub(crate) struct LimitWhich {
    /// everything, partner, pair, provider, rail or chain.
    #[arg(long, value_parser = scope)]
    pub scope: LimitScope,
    /// A partner's name, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; nothing for everything.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub target: String,
    /// The input of orders, or the output of the provider.
    #[arg(long)]
    pub asset: String,
    /// order, day (of UTC), or open (accepted and not ended).
    #[arg(long, value_parser = period)]
    pub per: Period,
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

fn scope(text: &str) -> Result<LimitScope, String> {
    let all = || LimitScope::ALL.map(LimitScope::as_str).join(", ");
    LimitScope::parse(text).ok_or_else(|| format!("the scopes are {}", all()))
}

fn period(text: &str) -> Result<Period, String> {
    Period::parse(text)
        .ok_or_else(|| format!("a limit is per one of {}", Period::ALL.map(Period::as_str).join(", ")))
}
