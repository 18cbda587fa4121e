//! Money received for a partner or a provider: recorded once by its id, even if it is reported repeatedly.

use anyhow::{bail, ensure};
use clap::Args;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_store::ledger::Deposited;
use dvp_store::ledger::balances;
use dvp_store::orders::operations::{self, NewAction};
use serde_json::json;
use sqlx::Connection as _;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

/// Money received for a partner or a provider.
#[derive(Debug, Args)]
pub(crate) struct DepositArgs {
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    /// The unique id of the deposit: the bank's reference.
    #[arg(long)]
    pub id: String,
    /// The recording operator.
    #[arg(long, visible_alias = "as", env = "USER", default_value = "cli")]
    pub operator: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Posts the deposit for `owner`, whom the answer calls by the name and the value of `shown`.
pub(super) async fn post(
    access: &mut Access,
    args: &DepositArgs,
    owner: &Owner,
    shown: (&str, &str),
) -> anyhow::Result<()> {
    access.check_known(owner, &args.asset).await?;
    let operator = args.operator.trim();
    ensure!(!operator.is_empty(), "--operator is not empty");
    let mut tx = access.conn.begin().await?;
    let noted = balances::deposit(&mut tx, &args.id, owner, &args.asset, args.amount_minor).await?;
    if noted == Deposited::Posted {
        let kept = json!({"owner": owner, "asset": args.asset, "amountMinor": args.amount_minor});
        let new = NewAction {
            reference: &format!("deposit:{}", args.id),
            action: "deposit",
            operator,
            reason: "money came in",
            evidence: &kept,
            version: 1,
        };
        operations::insert_action(&mut tx, &new).await?;
    }
    tx.commit().await?;
    let word = match noted {
        Deposited::Posted => "posted",
        Deposited::Repeated => "known already",
        Deposited::Conflict => bail!("{} stands for another deposit", args.id),
    };
    let (name, value) = shown;
    let value = json!({"depositId": args.id, name: value, "asset": args.asset,
                       "amountMinor": args.amount_minor, "repeated": noted == Deposited::Repeated});
    print(args.place.json, &value, || vec![format!("{}: {word}", args.id)])
}

pub(super) fn amount(text: &str) -> Result<Minor, String> {
    match Minor::parse(text) {
        Ok(amount) if amount.is_zero() => Err("must be above zero".to_owned()),
        Ok(amount) => Ok(amount),
        Err(error) => Err(error.to_string()),
    }
}
