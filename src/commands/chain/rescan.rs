//! `dvp chain rescan`: what a chain says when it is read again, beside what is stored, and missing events restored.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::ensure;
use dvp_chain_indexer::indexer::{Difference, Rescan, RestoredBy, rescan};
use dvp_domain::chain::BlockNumber;
use serde_json::{Value, json};
use tracing::info;

use super::REPORT_EVERY;
use crate::access::{ServiceLocation, account};
use crate::chains;
use crate::commands::chain::ChainRescan;
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
    if let (Some(from), Some(to)) = range {
        ensure!(from <= to, "--from-block {from} is after --to-block {to}");
    }
    let operator = account();
    let by = match &args.reason {
        Some(reason) if args.restore => {
            ensure!(!reason.trim().is_empty(), "--reason is not empty");
            Some(RestoredBy { operator: &operator, reason })
        }
        _ => None,
    };
    let found = rescan(&pool, &config, range, by, tell).await?;
    print(place.json, &view(&config.name, &found), || lines(&config.name, &found))?;
    Ok(if left(&found) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The differences that remain.
fn left(found: &Rescan) -> u64 {
    found.count.saturating_sub(u64::try_from(found.restored.len()).unwrap_or(u64::MAX))
}

fn is_restored(found: &Rescan, one: &Difference) -> bool {
    found.restored.contains(&(one.block, one.log_index))
}

fn view(chain: &str, found: &Rescan) -> Value {
    let difference = |one: &Difference| {
        json!({"kind": one.kind.as_str(), "block": one.block, "logIndex": one.log_index,
               "txHash": one.tx_hash, "detail": one.detail, "restored": is_restored(found, one)})
    };
    let differences: Vec<Value> = found.differences.iter().map(difference).collect();
    let to = (found.to >= found.from).then_some(found.to);
    json!({
        "chain": chain, "fromBlock": found.from, "toBlock": to, "lastFinal": found.last_final,
        "events": found.events, "strangersAnchors": found.strangers, "endpoints": found.endpoints,
        "differenceCount": found.count, "restoredCount": found.restored.len(), "differences": differences,
        "ok": left(found) == 0,
    })
}

fn lines(chain: &str, found: &Rescan) -> Vec<String> {
    let Rescan { from, to, last_final, events, count, .. } = found;
    if to < from {
        return vec![match last_final {
            None => format!("{chain}: nothing is final yet, so nothing was compared"),
            Some(last) => {
                format!("{chain}: no block from {from} on was compared, the last final one is {last}")
            }
        }];
    }
    let mut lines: Vec<String> = found
        .differences
        .iter()
        .map(|one| {
            let Difference { block, log_index, kind, tx_hash, detail } = one;
            let end = if is_restored(found, one) { " (restored)" } else { "" };
            let kind = kind.as_str();
            format!("{kind} in block {block}, log {log_index} of transaction {tx_hash}: {detail}{end}")
        })
        .collect();
    let restored = match found.restored.len() {
        0 => String::new(),
        number => format!(", {number} restored"),
    };
    lines.push(format!("{chain}: blocks {from} to {to}, {events} events, {count} differences{restored}"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_before_anything_is_final_says_so() {
        let mut found = Rescan { from: BlockNumber(2), to: BlockNumber(1), ..Rescan::default() };
        assert_eq!(lines("local", &found), ["local: nothing is final yet, so nothing was compared"]);
        let json = view("local", &found);
        assert_eq!((&json["toBlock"], &json["ok"]), (&Value::Null, &json!(true)));
        found.last_final = Some(BlockNumber(1));
        let line = "local: no block from 2 on was compared, the last final one is 1";
        assert_eq!(lines("local", &found), [line]);
        (found.to, found.last_final) = (BlockNumber(7), Some(BlockNumber(7)));
        assert_eq!(lines("local", &found), ["local: blocks 2 to 7, 0 events, 0 differences"]);
    }
}
