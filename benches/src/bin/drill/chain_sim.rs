//! Simulated chains under the indexer, and simulated nodes under the relayer.

use std::sync::{Mutex, PoisonError};

use dvp_benches::drill::{Drill, Report};
use dvp_chain_indexer::sim::{SimDatabase, run_relay_seed, run_seed};

/// Databases that no seed uses.
#[derive(Default)]
pub(crate) struct ChainSim(Mutex<Vec<SimDatabase>>);

impl Drill for ChainSim {
    const NAME: &'static str = "chain-sim";
    const AT_ONCE: usize = 3;

    async fn run(&self, seed: u64) -> anyhow::Result<Report> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let database = match free {
            Some(database) => database,
            None => SimDatabase::create().await?,
        };
        let mut report = Report::default();
        match run_seed(&database, seed).await {
            Ok(of) => {
                report.count("blocks", of.blocks);
                report.count("events", u64::try_from(of.events)?);
                report.count("reorgs", of.reorgs);
                report.count("steps", of.steps);
                report.count("calls", of.calls);
                report.count("errors", of.errors);
                report.count("disturbed", of.disturbed);
                report.count("unwound", of.unwound);
                report.count("repaired", of.repaired);
                report.count("halts", of.halted);
            }
            Err(broken) => report.broken.push(broken),
        }
        match run_relay_seed(&database, seed).await {
            Ok(of) => {
                report.kind("relayer", "commands", of.commands);
                report.kind("relayer", "transactions", of.transactions);
                report.kind("relayer", "reorgs", of.reorgs.into());
                report.kind("relayer", "steps", of.steps.into());
                report.kind("relayer", "calls", of.calls);
                report.kind("relayer", "errors", of.errors.into());
                report.kind("relayer", "disturbed", of.disturbed.into());
            }
            Err(broken) => report.broken.push(format!("relayer: {broken}")),
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(database);
        Ok(report)
    }
}
