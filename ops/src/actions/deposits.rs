//! Money that has arrived for a partner or a provider: credited once by its id, even if it is reported repeatedly.

use anyhow::bail;
use clap::{Args, Subcommand};
use dvp_core::operators::deposits::{self, Deposit};
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_store::ledger::Deposited;
use serde_json::json;

use crate::actions::{IfLive, amount};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderAction {
    /// Credit a deposit of a liquidity provider. A repeated id changes nothing.
    ///
    /// One operator credits what a statement of the bank has booked under the id, with the same amount. Without such an
    /// entry a live deployment takes two, with --reason and --evidence.
    #[command(
        after_help = "Example:\n  dvp provider deposit --provider northwind --asset USD --amount-minor 1000000 --id wire-7 --reason 'prefunding' --evidence 'statement 12, line 3' --config dvp.toml"
    )]
    Deposit(ProviderDeposit),
}

#[derive(Debug, Args)]
pub(crate) struct ProviderDeposit {
    /// The provider's id, as the configuration has it.
    #[arg(long)]
    provider: String,
    #[command(flatten)]
    deposit: DepositArgs,
}

/// Money received for a partner or a provider.
#[derive(Debug, Args)]
pub(crate) struct DepositArgs {
    /// The asset's symbol.
    #[arg(long)]
    asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    amount_minor: Minor,
    /// The unique id of the deposit: the bank's reference, or the transaction.
    #[arg(long)]
    id: String,
    #[command(flatten)]
    why: IfLive,
}

impl ProviderAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let Self::Deposit(ProviderDeposit { provider, deposit }) = self;
        desk.house.targets.check_provider(desk.conn, &provider).await?;
        post(desk, deposit, Owner::Provider(provider.clone()), ("provider", &provider)).await
    }
}

/// Credits the deposit to `owner`, whom the answer calls by the name and the value of `shown`, or requests it.
pub(super) async fn post(
    desk: &mut Desk<'_>,
    args: DepositArgs,
    owner: Owner,
    shown: (&str, &str),
) -> anyhow::Result<Outcome> {
    let DepositArgs { asset, amount_minor: amount, id, why } = args;
    desk.house.targets.check_asset(desk.conn, &asset).await?;
    let deposit = Deposit { id, owner, asset, amount };
    let is_booked = why.evidence.is_none() && deposits::lock_booked(desk.conn, &deposit).await?;
    let second = if is_booked { None } else { desk.second(&why)? };
    if let Some(maker) = second {
        return Ok(Outcome::requested(&deposits::request(desk.conn, &deposit, maker).await?));
    }
    let usual = if is_booked { "a statement of the bank has it" } else { "money came in" };
    let reason = why.reason.as_deref().unwrap_or(usual);
    let noted = deposits::credit(desk.conn, &deposit, &desk.by.name, reason).await?;
    let id = &deposit.id;
    let word = match noted {
        Deposited::Posted => "posted",
        Deposited::Repeated => "known already",
        Deposited::Conflict => bail!("{id} stands for another deposit"),
    };
    let (name, value) = shown;
    let value = json!({"depositId": id, name: value, "asset": deposit.asset, "amountMinor": amount,
                       "repeated": noted == Deposited::Repeated});
    Ok(Outcome::done(value, format!("{id}: {word}")))
}
