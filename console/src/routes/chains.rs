//! Chains: how they are followed, the relayer's accounts, and commands that wait; operators resume a halted chain and have
//! a command tried again.

use dvp_store::chain::{
    self, ChainFees, CommandFilter, CommandView, RelayerAccount, StateName, StatusRow, WaitingFill,
};
use dvp_store::database::changes::Subject;

use crate::blocks::{self, Block, Cell};
use crate::offers::Offer;
use crate::operator::Operator;
use crate::request::{Reply, Visit};
use crate::state::ChainLoad;
use crate::view;

/// Commands of each list.
const ROWS: i64 = 50;

/// The decimals of a chain's own currency.
const WEI: u8 = 18;

pub(crate) async fn show(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.reading().await?;
    let chains = chain::list_statuses(&mut conn).await?;
    let accounts = chain::list_accounts(&mut conn).await?;
    let troubled = chain::list_commands(&mut conn, CommandFilter::Troubled, ROWS).await?;
    let open = chain::list_commands(&mut conn, CommandFilter::Open, ROWS).await?;
    let failed = chain::list_commands(&mut conn, CommandFilter::Failed, ROWS).await?;
    let fills = chain::list_waiting_fills(&mut conn, ROWS).await?;
    let fees = chain::list_fees(&mut conn).await?;
    drop(conn);
    let mut load = Vec::new();
    for row in &chains {
        let fees = fees.iter().find(|(chain, ..)| *chain == row.chain_id);
        load.push(load_row(row, fees.map(|(_, fees, _)| fees), *console.chain_load(row.chain_id).await?));
    }
    let headings = [
        "Chain",
        "State",
        "#For",
        "#Head",
        "#Behind",
        "#Final",
        "#Reported",
        "#Fills at the gate",
        "#Facts taken back",
        "Reason",
        "Change",
    ];
    let rows = chains.iter().map(|row| chain_row(row, &operator));
    let followed = Block::table("Followed", &headings, "No chain is followed yet.", rows);
    let headings = [
        "Chain",
        "#Base fee (gwei)",
        "#Tip (gwei)",
        "#Fee cap (gwei)",
        "#Locks and swaps that wait",
        "#Other commands that wait",
        "#Expected wait of a lock",
    ];
    let load = Block::table("Fees and backlog", &headings, "No chain is followed yet.", load);
    let headings = ["Chain", "Order", "#Block", "Waits for", "Since (UTC)"];
    let fills =
        Block::table("Fills at the payout gate", &headings, "No fill waits.", fills.iter().map(fill_row));
    let headings = ["Chain", "Account", "#Gas balance", "Gas", "State", "#Next nonce", "#Nonces not mined"];
    let accounts = Block::table(
        "Relayer accounts",
        &headings,
        "No account has signed yet.",
        accounts.iter().map(account_row),
    );
    let headings =
        ["#Command", "Kind", "Order", "State", "#Tries", "Trouble", "Created (UTC)", "Transaction", "Change"];
    let list = |title, empty, rows: &[CommandView]| {
        let retries: Vec<Offer> = rows.iter().filter_map(retry).collect();
        let table = Block::table(title, &headings, empty, rows.iter().map(|row| command_row(row, &operator)));
        table.with_offers(operator.offers(Offer::all(&retries)))
    };
    let blocks = vec![
        followed,
        load,
        fills,
        accounts,
        list("Commands in trouble", "No waiting command was rejected.", &troubled),
        list("Open commands, the oldest", "No command waits or is in a transaction.", &open),
        list("Failed commands, the latest", "No command failed for good.", &failed),
    ];
    blocks::render(operator.page("Chains", "Chains").live(&[Subject::Chains, Subject::Feed]), None, blocks)
}

fn number(number: u64) -> Cell {
    Cell::count(i64::try_from(number).unwrap_or(i64::MAX))
}

fn seconds(seconds: u64) -> Cell {
    Cell::number(view::span(i64::try_from(seconds).unwrap_or(i64::MAX)))
}

fn chain_row(row: &StatusRow, operator: &Operator) -> Vec<Cell> {
    let halted_at = row.halted_at.filter(|_| row.state == StateName::Halted);
    let resume = halted_at.map(|at| {
        Offer::new("chain resume", "Follow again")
            .about("chain-id", row.chain_id.to_string())
            .seen("halted-at", at)
            .dangerous()
    });
    vec![
        Cell::text(format!("{} {}", row.name, row.chain_id)),
        Cell::state(row.state.as_str()),
        seconds(row.state_seconds),
        number(row.node_head.0),
        number(row.node_head.blocks_above(row.indexed_head)),
        number(row.indexed_final.0),
        seconds(row.silent_seconds),
        number(row.fills_waiting),
        number(row.retracted_facts),
        Cell::text(row.reason.clone().unwrap_or_default()),
        Cell::offers(operator.offers(resume)),
    ]
}

fn load_row(row: &StatusRow, fees: Option<&ChainFees>, load: ChainLoad) -> Vec<Cell> {
    let gwei = |wei: Option<u128>| {
        Cell::number(
            wei.map_or_else(|| "not read yet".to_owned(), |wei| view::amount(&wei.to_string(), view::GWEI)),
        )
    };
    let wait = load.wait.as_secs();
    vec![
        Cell::text(format!("{} {}", row.name, row.chain_id)),
        gwei(fees.map(|fees| fees.base_fee)),
        gwei(fees.map(|fees| fees.tip)),
        gwei(fees.map(|fees| fees.cap)),
        number(load.open.locks.saturating_add(load.open.swaps)),
        number(load.open.urgent),
        if wait == 0 { Cell::number("below 1 s") } else { seconds(wait) },
    ]
}

fn fill_row(row: &WaitingFill) -> Vec<Cell> {
    let waits_for = match &row.gate {
        None => "its order's amount".to_owned(),
        Some((finality, block)) => {
            format!("{finality} block {}", view::count(i64::try_from(block.0).unwrap_or(i64::MAX)))
        }
    };
    vec![
        Cell::text(row.chain_id.to_string()),
        Cell::found(row.reference.clone().unwrap_or_default()),
        number(row.block_number.0),
        Cell::text(waits_for),
        Cell::time(row.observed_at),
    ]
}

fn account_row(row: &RelayerAccount) -> Vec<Cell> {
    let balance = row.balance.map(|wei| view::amount(&wei.to_string(), WEI));
    vec![
        Cell::text(row.chain_id.to_string()),
        Cell::id(row.signer.to_string()),
        Cell::number(balance.unwrap_or_else(|| "not read yet".to_owned())),
        if row.lacks_gas() { Cell::toned("low", "bad") } else { Cell::toned("enough", "good") },
        Cell::state(row.state.as_str()),
        Cell::number(row.next_nonce.to_string()),
        number(row.waiting),
    ]
}

fn retry(row: &CommandView) -> Option<Offer> {
    let can_retry = row.trouble.is_some() || row.state.as_str() == "failed";
    can_retry.then(|| Offer::new("chain command retry", "Try again").about("id", row.id.to_string()))
}

fn command_row(row: &CommandView, operator: &Operator) -> Vec<Cell> {
    vec![
        Cell::number(row.id.to_string()),
        Cell::text(view::words(&row.kind)),
        Cell::found(&row.reference),
        Cell::state(row.state.as_str()),
        Cell::number(row.tries.to_string()),
        Cell::text(row.trouble.clone().unwrap_or_default()),
        Cell::time(row.created_at),
        Cell::found(row.tx_hash.clone().unwrap_or_default()),
        Cell::offers(operator.offers(retry(row))),
    ]
}
