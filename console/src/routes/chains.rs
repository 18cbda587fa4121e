//! Chains: how they are followed, the relayer's accounts, and commands that wait; operators resume a halted chain and have
//! a command tried again.

use chrono::{DateTime, Utc};
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{
    self, ChainFees, CommandFilter, CommandView, RelayerAccount, Retried, StateName, StatusRow, WaitingFill,
};
use dvp_store::database::changes::Subject;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::{Acquire as _, StoreError};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::PageError;
use crate::navigation::OPERATION;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::state::ChainLoad;
use crate::view::{self};

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
    ];
    let followed =
        Block::table("Followed", &headings, "No chain is followed yet.", chains.iter().map(chain_row));
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
    let headings = ["Chain", "Account", "#Gas balance", "State", "#Next nonce", "#Nonces not mined"];
    let accounts = Block::table(
        "Relayer accounts",
        &headings,
        "No account has signed yet.",
        accounts.iter().map(account_row),
    );
    let headings =
        ["#Command", "Kind", "Order", "State", "#Tries", "Trouble", "Created (UTC)", "Transaction"];
    let list = |title, empty, rows: &[CommandView]| {
        Block::table(title, &headings, empty, rows.iter().map(command_row))
    };
    let may_act = operator.may(OPERATION);
    let halted = chains.iter().filter(|row| may_act && row.state == StateName::Halted);
    let resume = halted.filter_map(|row| Some(resume_form(row, row.halted_at?)));
    let followed = followed.with_forms(resume);
    let retry = (may_act && !(troubled.is_empty() && failed.is_empty())).then(retry_form);
    let blocks = vec![
        followed,
        load,
        fills,
        accounts,
        list("Commands in trouble", "No waiting command was rejected.", &troubled).with_forms(retry),
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

fn chain_row(row: &StatusRow) -> Vec<Cell> {
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
        if row.balance_low { Cell::toned("low", "bad") } else { Cell::toned("enough", "good") },
        Cell::number(row.next_nonce.to_string()),
        number(row.waiting),
    ]
}

fn command_row(row: &CommandView) -> Vec<Cell> {
    vec![
        Cell::number(row.id.to_string()),
        Cell::text(view::words(&row.kind)),
        Cell::found(&row.reference),
        Cell::state(row.state.as_str()),
        Cell::number(row.tries.to_string()),
        Cell::text(row.trouble.clone().unwrap_or_default()),
        Cell::time(row.created_at),
        Cell::found(row.tx_hash.clone().unwrap_or_default()),
    ]
}

fn resume_form(chain: &StatusRow, halted_at: DateTime<Utc>) -> FormBlock {
    let fields = vec![
        Field::hidden("chain", chain.chain_id.to_string()),
        Field::seen("halted_at", halted_at),
        Field::text("shared_block", "Newest block that is right"),
        Field::text("reason", "Reason"),
    ];
    FormBlock::new("/chains/resume", "Follow the chain again", fields).dangerous()
}

fn retry_form() -> FormBlock {
    let fields = vec![Field::text("command", "Command"), Field::text("reason", "Reason")];
    FormBlock::new("/chains/retry", "Try the command again", fields)
}

#[derive(Debug, Deserialize)]
pub(crate) struct ResumeForm {
    chain: String,
    /// When the chain was halted, as the operator saw it.
    halted_at: DateTime<Utc>,
    /// Blocks read after this one are reverted.
    shared_block: String,
    reason: String,
}

fn whole(text: &str) -> Result<u64, PageError> {
    let text = text.trim();
    text.parse().map_err(|_| PageError::Invalid(format!("{text} is no whole number.")))
}

fn given(reason: &str) -> Result<&str, PageError> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(PageError::Conflict("A reason is needed.".to_owned()));
    }
    Ok(reason)
}

/// Follows a halted chain again, from its newest block that was read before and is right.
pub(crate) async fn resume(Visit { console, operator }: Visit, Sent(form): Sent<ResumeForm>) -> Reply {
    const ROUTE: &str = "POST /chains/resume";
    let (chain, block) = (whole(&form.chain)?, whole(&form.shared_block)?);
    let mut conn = console.acting().await?;
    let subject = format!("{chain}: from block {block}: {}", form.reason.trim());
    let done = match given(&form.reason) {
        Ok(_) => {
            let mut tx = conn.begin().await.map_err(StoreError::from)?;
            let resumed = chain::resume(&mut tx, chain, BlockNumber(block), Some(form.halted_at)).await?;
            if resumed {
                operator.record(&mut tx, ConsoleAction::Acted, ROUTE, &subject).await?;
                tx.commit().await.map_err(StoreError::from)?;
                return lead_to("/chains");
            }
            tx.rollback().await.map_err(StoreError::from)?;
            PageError::Conflict(format!(
                "Chain {chain} is not halted, or was halted again since you opened the page, or block {block} was not \
                 read."
            ))
        }
        Err(error) => error,
    };
    operator.refuse(&mut conn, ROUTE, &subject, done).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct RetryForm {
    command: String,
    reason: String,
}

/// Looks at a waiting command now, or tries one again that was given up.
pub(crate) async fn retry(Visit { console, operator }: Visit, Sent(form): Sent<RetryForm>) -> Reply {
    const ROUTE: &str = "POST /chains/retry";
    let id = i64::try_from(whole(&form.command)?).unwrap_or(i64::MAX);
    let mut conn = console.acting().await?;
    let error = match given(&form.reason) {
        Ok(reason) => {
            let mut tx = conn.begin().await.map_err(StoreError::from)?;
            let why = match chain::retry_command(&mut tx, id, &operator.name, reason).await? {
                Retried::Now => {
                    tx.commit().await.map_err(StoreError::from)?;
                    return lead_to("/chains");
                }
                Retried::Unknown => "does not exist",
                Retried::Sent => "is in a transaction: nothing to do",
                Retried::Done => "is done",
                Retried::OrderGoneOn => "was given up, and its order has ended or gone on without it",
            };
            tx.rollback().await.map_err(StoreError::from)?;
            PageError::Conflict(format!("Chain command {id} {why}."))
        }
        Err(error) => error,
    };
    operator.refuse(&mut conn, ROUTE, &id.to_string(), error).await
}
