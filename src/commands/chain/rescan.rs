//! `dvp chain rescan`: what a chain says when it is read again, beside what is stored.

use std::process::ExitCode;
use std::time::Instant;

use dvp_chain_indexer::indexer::{Difference, Rescan, rescan};
use dvp_domain::chain::BlockNumber;
use serde_json::{Value, json};
use tracing::info;

use super::REPORT_EVERY;
use crate::access::ServiceLocation;
use crate::chains;
use crate::cli::ChainRescan;
use crate::output::print;

pub(super) async fn run(args: ChainRescan) -> anyhow::Result<ExitCode> {
    let place = &args.chain.place;
    let location = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?;
    let config = chains::find(&args.chain, &location)?;
    let pool = location.pool(2).await?;
    let mut reported_at = Instant::now();
    let tell = |at: BlockNumber, to: BlockNumber| {
        if reported_at.elapsed() >= REPORT_EVERY {
            reported_at = Instant::now();
            info!(%at, %to, "reading again");
        }
    };
    let range = (args.from_block.map(BlockNumber), args.to_block.map(BlockNumber));
    let found = rescan(&pool, &config, range, tell).await?;
    print(place.json, &view(&config.name, &found), || lines(&config.name, &found))?;
    Ok(if found.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn view(chain: &str, found: &Rescan) -> Value {
    let difference = |one: &Difference| {
        json!({"kind": one.kind.as_str(), "block": one.block, "logIndex": one.log_index,
               "txHash": one.tx_hash, "detail": one.detail})
    };
    let differences: Vec<Value> = found.differences.iter().map(difference).collect();
    json!({
        "chain": chain, "fromBlock": found.from, "toBlock": found.to, "events": found.events,
        "strangersAnchors": found.strangers, "endpoints": found.endpoints, "differenceCount": found.count,
        "differences": differences, "ok": found.count == 0,
    })
}

fn lines(chain: &str, found: &Rescan) -> Vec<String> {
    let mut lines: Vec<String> = found
        .differences
        .iter()
        .map(|one| {
            let Difference { block, log_index, kind, tx_hash, detail } = one;
            format!("{} in block {block}, log {log_index} of transaction {tx_hash}: {detail}", kind.as_str())
        })
        .collect();
    let Rescan { from, to, events, count, .. } = found;
    lines.push(format!("{chain}: blocks {from} to {to}, {events} events, {count} differences"));
    lines
}
