//! `dvp chain list`: the sets of contracts of each chain, and what is open in them.

use std::process::ExitCode;

use dvp_chain_indexer::deploy::Deployment;
use dvp_store::chain::{OpenInSet, list_open_sets};
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::chains;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetState {
    /// New orders name it.
    Taking,
    /// Orders or commands are open in it.
    Ending,
    /// Nothing is.
    Ended,
    /// Something is, and the record does not name it.
    Unnamed,
}

impl SetState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Taking => "taking",
            Self::Ending => "ending",
            Self::Ended => "ended",
            Self::Unnamed => "unnamed",
        }
    }
}

/// A set of contracts, with its record if there is one.
struct Listed<'a> {
    state: SetState,
    open: OpenInSet,
    record: Option<&'a Deployment>,
}

pub(super) async fn list(args: PlaceArgs) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.dir.as_deref(), args.config.as_deref())?;
    let mut conn = place.connect().await?;
    let (mut views, mut lines, mut all_named) = (Vec::new(), Vec::new(), true);
    for chain in chains::all(&place)? {
        let open = list_open_sets(&mut conn, chain.chain_id).await?;
        let sets = listed(&chain.deployment, &open);
        all_named &= sets.iter().all(|set| set.state != SetState::Unnamed);
        lines.push(format!("{} ({})", chain.name, chain.chain_id));
        lines.extend(sets.iter().map(line));
        let sets: Vec<Value> = sets.iter().map(view).collect();
        views.push(json!({"name": chain.name, "chainId": chain.chain_id, "sets": sets}));
    }
    print(args.json, &json!({"ok": all_named, "chains": views}), || lines)?;
    Ok(if all_named { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn listed<'a>(deployment: &'a Deployment, open: &[OpenInSet]) -> Vec<Listed<'a>> {
    let named = deployment.sets().map(|set| {
        let found = open.iter().find(|one| one.escrow == set.escrow).copied();
        let state = match found {
            _ if set.escrow == deployment.escrow => SetState::Taking,
            Some(_) => SetState::Ending,
            None => SetState::Ended,
        };
        Listed { state, open: found.unwrap_or(OpenInSet::nothing(set.escrow)), record: Some(set) }
    });
    let unnamed = open.iter().filter(|one| deployment.of_escrow(one.escrow).is_none());
    named.chain(unnamed.map(|open| Listed { state: SetState::Unnamed, open: *open, record: None })).collect()
}

fn view(Listed { state, open, record }: &Listed<'_>) -> Value {
    json!({
        "escrow": open.escrow, "state": state.as_str(), "firstBlock": record.map(|set| set.deployed_block),
        "settler": record.map(|set| set.settler), "payouts": record.map(|set| set.payouts),
        "openOrders": open.orders, "openCommands": open.commands,
    })
}

fn line(Listed { state, open, record }: &Listed<'_>) -> String {
    let OpenInSet { escrow, orders, commands } = open;
    let since = record.map(|set| format!(", first block {}", set.deployed_block)).unwrap_or_default();
    format!("  escrow {escrow}: {}, {orders} orders open, {commands} commands open{since}", state.as_str())
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;

    use super::*;

    #[test]
    fn the_newest_takes_orders_and_the_others_end_with_what_is_open_in_them() {
        let [new, ending, ended, unnamed] = [4, 3, 2, 9].map(Address::repeat_byte);
        let set = |escrow| Deployment { escrow, ..Deployment::default() };
        let deployment = Deployment { earlier: vec![set(ending), set(ended)], ..set(new) };
        let open = [new, ending, unnamed].map(|escrow| OpenInSet { escrow, orders: 2, commands: 1 });
        let states: Vec<_> =
            listed(&deployment, &open).iter().map(|one| (one.open.escrow, one.state)).collect();
        assert_eq!(
            states,
            [
                (new, SetState::Taking),
                (ending, SetState::Ending),
                (ended, SetState::Ended),
                (unnamed, SetState::Unnamed)
            ]
        );
    }
}
