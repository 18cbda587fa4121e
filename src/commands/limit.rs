//! `dvp limit …`: how much orders may be. Two operators change it.

use dvp_core::limits::{LimitChange, request};
use dvp_core::requests::Maker;
use dvp_domain::ledger::Owner;
use dvp_domain::limit::LimitScope;
use dvp_domain::money::Minor;
use dvp_store::limits;
use serde_json::{Value, json};

use super::approval::print_requested;
use super::named_partner;
use crate::access::Access;
use crate::cli::{LimitCommand, LimitRemove, LimitSet, LimitWhich, PlaceArgs};
use crate::output::print;

pub(crate) async fn run(command: LimitCommand) -> anyhow::Result<()> {
    match command {
        LimitCommand::Set(LimitSet { which, amount_minor }) => make(which, Some(amount_minor)).await,
        LimitCommand::Remove(LimitRemove { which }) => make(which, None).await,
        LimitCommand::List(place) => list(place).await,
    }
}

async fn make(which: LimitWhich, amount_minor: Option<Minor>) -> anyhow::Result<()> {
    let LimitWhich { scope, target, asset, per: period, operator, reason, evidence, place } = which;
    let mut access = Access::open(&place).await?;
    let target = match scope {
        LimitScope::Partner => named_partner(&mut access.conn, &target).await?.id,
        LimitScope::Provider => {
            access.check_known(&Owner::Provider(target.clone()), &asset).await?;
            target
        }
        LimitScope::Everything | LimitScope::Pair | LimitScope::Rail | LimitScope::Chain => {
            access.check_asset(&asset).await?;
            target
        }
    };
    let change = LimitChange { scope, target, asset, period, amount_minor };
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &request(&mut access.conn, &change, maker).await?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = limits::list(&mut access.conn).await?;
    let all: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({"scope": row.scope, "target": row.target, "asset": row.asset, "per": row.period,
                   "amountMinor": row.amount, "usedTodayMinor": row.used, "openMinor": row.open,
                   "approval": row.approval,
                   "setAt": row.set_at.to_rfc3339()})
        })
        .collect();
    print(place.json, &json!({ "limits": all }), || {
        rows.iter()
            .map(|row| {
                format!(
                    "{} {} {}  {} per {}, {} accepted today, {} open  by {}",
                    row.scope,
                    row.target,
                    row.asset,
                    row.amount,
                    row.period,
                    row.used,
                    row.open,
                    row.approval
                )
            })
            .collect()
    })
}
