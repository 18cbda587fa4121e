//! `dvp provider …`: balances that liquidity providers hold with the service.

use dvp_domain::ledger::Owner;
use dvp_store::ledger::balances;
use serde_json::json;

use super::deposit;
use crate::access::Access;
use crate::cli::{ProviderBalance, ProviderCommand, ProviderDeposit};
use crate::output::print;

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
