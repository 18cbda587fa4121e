//! How much orders may be.

use clap::{Args, Subcommand};
use dvp_core::operators::limits::{LimitChange, request};
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;

use crate::actions::{Why, amount, one_of, pauses};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum LimitAction {
    /// Request a limit; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp limit set --scope partner --target acme --asset USDC --per day --amount-minor 5000000000 --reason 'new partner' --evidence 'risk memo 7' --config dvp.toml"
    )]
    Set(Limit),
    /// Request that a limit is taken away; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp limit remove --scope partner --target acme --asset USDC --per day --reason 'a year without a break' --evidence 'risk memo 9' --config dvp.toml"
    )]
    Remove(Which),
}

#[derive(Debug, Args)]
pub(crate) struct Limit {
    #[command(flatten)]
    which: Which,
    /// The most that is accepted, in the asset's minor units.
    #[arg(long, value_parser = amount)]
    amount_minor: Minor,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// What it is about.
    #[arg(long, value_parser = pauses::scope())]
    scope: LimitScope,
    /// A partner's name, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; nothing for everything.
    #[arg(long, default_value = "", hide_default_value = true)]
    target: String,
    /// The input of orders, or the output of the provider.
    #[arg(long)]
    asset: String,
    /// An order, a day of UTC, or all that is accepted and not ended.
    #[arg(long, value_parser = one_of(Period::ALL.map(Period::as_str), Period::parse))]
    per: Period,
    #[command(flatten)]
    why: Why,
}

impl LimitAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let (Which { scope, target, asset, per: period, why }, amount_minor) = match self {
            Self::Set(Limit { which, amount_minor }) => (which, Some(amount_minor)),
            Self::Remove(which) => (which, None),
        };
        let change = LimitChange { scope, target, asset, period, amount_minor };
        let maker = desk.maker(&why.reason, &why.evidence);
        Ok(Outcome::requested(&request(desk.conn, &desk.house.targets, &change, maker).await?))
    }
}
