//! Simulated chains under the indexer, and simulated nodes under the relayer: many seeds, some at once.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dvp_chain_indexer::sim::{Outcome, RelayOutcome, SimDatabase, run_relay_seed, run_seed};
use futures_util::future::try_join_all;
use serde_json::json;

use crate::Seeds;

/// Seeds under way at once, each with a database of its own.
const AT_ONCE: usize = 3;
const TELL_EVERY: u64 = 500;

/// Whether every promise was kept.
pub(crate) async fn run(seeds: Seeds) -> anyhow::Result<bool> {
    let next = AtomicU64::new(seeds.seed);
    let end = seeds.seed.saturating_add(seeds.count);
    let total = Mutex::new(Total::default());
    let started = Instant::now();
    let workers = (0..AT_ONCE).map(|_| async {
        let database = SimDatabase::create().await?;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return anyhow::Ok(());
            }
            let result = run_seed(&database, seed).await;
            let relayed = run_relay_seed(&database, seed).await;
            if let Ok(mut total) = total.lock() {
                total.add(seed, result, relayed)?;
            }
        }
    });
    try_join_all(workers).await?;
    let total = total.into_inner().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    let seconds = started.elapsed().as_secs();
    if seeds.json {
        writeln!(out, "{}", total.json(seconds))?;
    } else {
        let Total { done, failed, sum, relayed, .. } = &total;
        writeln!(
            out,
            "{done} seeds in {seconds} s, {} failed: {} blocks, {} events, {} reorgs, {} steps, {} errors, {} \
             disturbances, {} halts; relayer: {} commands in {} transactions, {} reorgs, {} steps, {} errors, {} \
             disturbances",
            failed.len(),
            sum.blocks,
            sum.events,
            sum.reorgs,
            sum.steps,
            sum.errors,
            sum.disturbed,
            total.halts,
            relayed.commands,
            relayed.transactions,
            relayed.reorgs,
            relayed.steps,
            relayed.errors,
            relayed.disturbed
        )?;
    }
    Ok(total.failed.is_empty())
}

#[derive(Default)]
struct Total {
    done: u64,
    failed: Vec<u64>,
    halts: u64,
    sum: Outcome,
    relayed: RelayOutcome,
}

impl Total {
    fn add(
        &mut self,
        seed: u64,
        result: Result<Outcome, String>,
        relayed: Result<RelayOutcome, String>,
    ) -> anyhow::Result<()> {
        self.done = self.done.saturating_add(1);
        let mut err = std::io::stderr().lock();
        match result {
            Ok(outcome) => {
                self.halts = self.halts.saturating_add(u64::from(outcome.halted));
                self.sum.add(&outcome);
            }
            Err(broken) => {
                writeln!(err, "seed {seed}: {broken}")?;
                self.failed.push(seed);
            }
        }
        match relayed {
            Ok(outcome) => self.relayed.add(&outcome),
            Err(broken) => {
                writeln!(err, "seed {seed}, relayer: {broken}")?;
                if self.failed.last() != Some(&seed) {
                    self.failed.push(seed);
                }
            }
        }
        if self.done.is_multiple_of(TELL_EVERY) {
            writeln!(err, "{} seeds done, {} failed", self.done, self.failed.len())?;
        }
        Ok(())
    }

    fn json(&self, seconds: u64) -> serde_json::Value {
        json!({
            "drill": "chain-sim", "seeds": self.done, "failed": self.failed, "seconds": seconds,
            "blocks": self.sum.blocks, "events": self.sum.events, "reorgs": self.sum.reorgs,
            "steps": self.sum.steps, "calls": self.sum.calls, "errors": self.sum.errors,
            "disturbed": self.sum.disturbed, "unwound": self.sum.unwound, "repaired": self.sum.repaired,
            "halts": self.halts,
            "relayer": {
                "commands": self.relayed.commands, "transactions": self.relayed.transactions,
                "reorgs": self.relayed.reorgs, "steps": self.relayed.steps, "calls": self.relayed.calls,
                "errors": self.relayed.errors, "disturbed": self.relayed.disturbed,
            },
        })
    }
}
