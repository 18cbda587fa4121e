//! `dvp chain command list`: the relayer's commands, and the reasons for their delay.

use std::process::ExitCode;

use dvp_store::chain::{self as store, CommandFilter, CommandState, CommandView};
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::commands::chain::{RelayCommand, RelayList, RelayState};
use crate::output::print_list;

pub(super) async fn run(command: RelayCommand) -> anyhow::Result<ExitCode> {
    match command {
        RelayCommand::List(args) => list(args).await,
    }
}

async fn list(args: RelayList) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.place.dir.as_deref(), args.place.config.as_deref())?;
    let mut conn = place.connect().await?;
    let filter = match args.state {
        RelayState::Troubled => CommandFilter::Troubled,
        RelayState::Open => CommandFilter::Open,
        RelayState::Failed => CommandFilter::Failed,
    };
    let found = store::list_commands(&mut conn, filter, args.limit).await?;
    print_list(args.place.json, "commands", &found, view, line)?;
    let in_trouble = filter == CommandFilter::Troubled && !found.is_empty();
    Ok(if in_trouble { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn view(row: &CommandView) -> Value {
    json!({
        "id": row.id, "chainId": row.chain_id, "reference": row.reference, "intentId": row.intent_id,
        "kind": row.kind, "state": row.state.as_str(), "tries": row.tries, "trouble": row.trouble,
        "troubledAt": row.troubled_at.map(|at| at.to_rfc3339()), "createdAt": row.created_at.to_rfc3339(),
        "nextLookAt": (row.state == CommandState::Pending).then(|| row.not_before.to_rfc3339()), "txHash": row.tx_hash,
    })
}

fn line(row: &CommandView) -> String {
    let CommandView { id, chain_id, reference, kind, state, tries, .. } = row;
    let (created, state) = (row.created_at.to_rfc3339(), state.as_str());
    let trouble = row.trouble.as_deref().map(|why| format!("  {tries} tries: {why}")).unwrap_or_default();
    let tx = row.tx_hash.as_deref().map(|hash| format!("  {hash}")).unwrap_or_default();
    format!("{id}  chain {chain_id}  {created}  {reference}  {kind}  {state}{trouble}{tx}")
}
