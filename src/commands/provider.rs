//! `dvp provider …`: balances that liquidity providers hold with the service.

use anyhow::bail;
use dvp_core::store::balances;
use dvp_core::store::ledger::Deposited;
use dvp_domain::ledger::Owner;
use serde_json::json;
use sqlx::Connection as _;

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
    let mut access = Access::open(&args.place).await?;
    let owner = Owner::Provider(args.provider.clone());
    let mut tx = access.conn.begin().await?;
    let noted = balances::deposit(&mut tx, &args.id, &owner, &args.asset, args.amount_minor).await?;
    tx.commit().await?;
    let word = match noted {
        Deposited::Posted => "posted",
        Deposited::Repeated => "known already",
        Deposited::Conflict => bail!("{} stands for another deposit", args.id),
    };
    let value = json!({"depositId": args.id, "provider": args.provider, "asset": args.asset,
                       "amountMinor": args.amount_minor, "repeated": noted == Deposited::Repeated});
    print(args.place.json, &value, || vec![format!("{}: {word}", args.id)])
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
