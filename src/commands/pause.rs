//! `dvp pause …`: operators' pauses of parts of the service.

use dvp_core::pauses::{PauseSwitch, Switched, switch};
use dvp_domain::pause::Scope;
use dvp_store::{moves, pauses};
use serde_json::json;

use crate::access::Access;
use crate::cli::{PauseChange, PauseCommand, PlaceArgs};
use crate::output::print;

pub(crate) async fn run(command: PauseCommand) -> anyhow::Result<()> {
    match command {
        PauseCommand::Add(args) => change(args, PauseSwitch::Pause).await,
        PauseCommand::Remove(args) => change(args, PauseSwitch::Resume).await,
        PauseCommand::List(place) => list(place).await,
    }
}

async fn change(args: PauseChange, change: PauseSwitch) -> anyhow::Result<()> {
    let PauseChange { scope, target, operator, reason, place } = args;
    let mut access = Access::open(&place).await?;
    let switched = switch(&mut access.conn, change, scope, &target, &operator, &reason).await?;
    let Switched { target, is_changed } = switched;
    let is_paused = change == PauseSwitch::Pause;
    let mut others = Vec::new();
    let mut value =
        json!({"scope": scope.as_str(), "target": target, "paused": is_paused, "changed": is_changed});
    if scope == Scope::Partner {
        others = moves::list_other_cells(&mut access.conn, &target).await?;
        value["alsoInCells"] = json!(others);
    }
    print(place.json, &value, || {
        let what = [scope.as_str(), &target].join(" ");
        let state = if is_paused { "paused" } else { "not paused" };
        let already = if is_changed { "" } else { " already" };
        let done = format!("{} is {state}{already}", what.trim_end());
        let also = |cell| format!("Cell {cell} has the partner, too: do the same there.");
        std::iter::once(done).chain(others.iter().map(also)).collect()
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
