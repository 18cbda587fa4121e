//! `dvp pause …`: what operators stop and let go on.

use anyhow::ensure;
use dvp_domain::pause::Scope;
use dvp_domain::settlement::leg::LegKind;
use dvp_store::pauses::{self, Decided};
use serde_json::json;
use sqlx::Connection as _;

use super::named_partner;
use crate::access::Access;
use crate::cli::{PauseChange, PauseCommand, PlaceArgs};
use crate::output::print;

pub(crate) async fn run(command: PauseCommand) -> anyhow::Result<()> {
    match command {
        PauseCommand::Add(args) => change(args, Change::Add).await,
        PauseCommand::Remove(args) => change(args, Change::Remove).await,
        PauseCommand::List(place) => list(place).await,
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Add,
    Remove,
}

async fn change(args: PauseChange, change: Change) -> anyhow::Result<()> {
    let PauseChange { scope, target, operator, reason, place } = args;
    ensure!(
        !operator.trim().is_empty() && !reason.trim().is_empty(),
        "--operator and --reason cannot be empty"
    );
    let mut access = Access::open(&place).await?;
    let target = match scope {
        Scope::Partner => named_partner(&mut access.conn, &target).await?.id,
        Scope::Everything => {
            ensure!(target.is_empty(), "--scope everything has no --target");
            target
        }
        Scope::Pair => {
            let is_pair =
                target.split_once('/').is_some_and(|(input, output)| !input.is_empty() && !output.is_empty());
            ensure!(is_pair, "--target of a pair is INPUT/OUTPUT");
            target
        }
        Scope::Rail => {
            let is_rail = LegKind::ALL.iter().any(|leg| leg.as_str() == target);
            ensure!(is_rail, "--target of a rail is offramp or payout");
            target
        }
        Scope::Provider | Scope::Chain => {
            ensure!(!target.is_empty(), "--scope {} needs a --target", scope.as_str());
            target
        }
    };
    let by = Decided { operator: &operator, reason: &reason };
    let mut tx = access.conn.begin().await?;
    let (is_changed, is_paused) = match change {
        Change::Add => (pauses::insert(&mut tx, scope, &target, by).await?, true),
        Change::Remove => (pauses::delete(&mut tx, scope, &target, by).await?, false),
    };
    tx.commit().await?;
    let value =
        json!({"scope": scope.as_str(), "target": target, "paused": is_paused, "changed": is_changed});
    print(place.json, &value, || {
        let what = [scope.as_str(), &target].join(" ");
        let state = if is_paused { "paused" } else { "not paused" };
        let already = if is_changed { "" } else { " already" };
        vec![format!("{} is {state}{already}", what.trim_end())]
    })
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = pauses::list(&mut access.conn).await?;
    let all: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({"scope": row.scope, "target": row.target, "operator": row.operator, "reason": row.reason,
                   "pausedAt": row.paused_at})
        })
        .collect();
    print(place.json, &json!({ "pauses": all }), || {
        rows.iter()
            .map(|row| {
                format!(
                    "{} {}  since {} by {}: {}",
                    row.scope, row.target, row.paused_at, row.operator, row.reason
                )
            })
            .collect()
    })
}
