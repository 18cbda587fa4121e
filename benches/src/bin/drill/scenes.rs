//! Drills whose scenes tests share: a run that breaks a promise panics, and a run that keeps all says what it did. And
//! simulated chains under the indexer, and simulated nodes under the relayer.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use clap::Args;
use dvp_benches::drill::{Drill, Report};
use dvp_benches::scenes::alert_table::{CAUSES, Cause, SHORT};
use dvp_benches::scenes::{alert_causes, chain_faults, chain_isolation};
use dvp_chain_indexer::sim::{SimDatabase, run_relay_seed, run_seed};
use dvp_testing::banks;
use dvp_testing::month::{self, MonthPlan};
use dvp_testing::restore::{self, RestorePlan};
use serde_json::json;

fn said(text: &str) -> Report {
    let mut report = Report::default();
    text.lines().for_each(|line| report.list("lines", json!(line)));
    report
}

pub(crate) struct ChainFaults;

impl Drill for ChainFaults {
    const NAME: &'static str = "chain-faults";

    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
        let scale = chain_faults::ReorgScale { wallets: 7, orders_of_each: 4, reorgs: 15 };
        Ok(said(&chain_faults::run(seed, scale).await))
    }
}

pub(crate) struct Chains;

impl Drill for Chains {
    const NAME: &'static str = "chains";

    /// Each fault twice. The other chain's orders may take twice their usual time: the faults share its two processors.
    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
        let scale = chain_isolation::IsolationScale { faults: 14, orders: 5, percent_max: 200 };
        Ok(said(&chain_isolation::run(seed, scale).await))
    }
}

#[derive(Args)]
pub(crate) struct Alerts {
    /// All causes, and not only the first five.
    #[arg(long)]
    causes: bool,
    /// Only these of the causes.
    #[arg(long, value_name = "CAUSE", requires = "causes", value_parser = cause)]
    only: Vec<Cause>,
}

fn cause(name: &str) -> Result<Cause, String> {
    let causes = || CAUSES.iter().map(|one| one.cause);
    causes().find(|cause| format!("{cause:?}").eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<String> = causes().map(|cause| format!("{cause:?}")).collect();
        format!("one of {}", names.join(", "))
    })
}

impl Drill for Alerts {
    const NAME: &'static str = "alerts";

    async fn run_in(&self, _: u64, _: &Path) -> anyhow::Result<Report> {
        let all = CAUSES.iter().map(|one| one.cause);
        let causes: Vec<Cause> = match (self.causes, self.only.is_empty()) {
            (false, _) => all.take(SHORT).collect(),
            (true, true) => all.collect(),
            (true, false) => self.only.clone(),
        };
        Ok(said(&alert_causes::run(&causes).await))
    }
}

#[derive(Args)]
pub(crate) struct Banks {
    /// The bank, or all of them.
    #[arg(long, default_value = "all", value_parser = bank)]
    profile: String,
    /// So many orders to each.
    #[arg(long, default_value_t = 100)]
    orders: u64,
}

fn bank(name: &str) -> Result<String, String> {
    let names = banks::PROFILES.map(|(name, _)| name);
    let is_known = name == "all" || names.contains(&name);
    is_known.then(|| name.to_owned()).ok_or_else(|| format!("all, or one of {}", names.join(", ")))
}

impl Drill for Banks {
    const NAME: &'static str = "banks";

    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for (name, _) in banks::PROFILES.iter().filter(|(name, _)| ["all", name].contains(&&*self.profile)) {
            let profile = banks::profile(name).with_context(|| format!("no profile is called {name}"))?;
            let of = banks::run(profile, seed, self.orders).await;
            of.ended.iter().for_each(|(state, count)| report.kind("ended", state, *count));
            report.kind("files", name, of.files);
            report.count("statements", of.statements);
            report.count("charges", of.charges);
        }
        Ok(report)
    }
}

#[derive(Args)]
pub(crate) struct Month {
    /// So many orders.
    #[arg(long, default_value_t = 20_000)]
    orders: u64,
    /// Days on which orders come.
    #[arg(long, default_value_t = 31)]
    days: u64,
}

impl Drill for Month {
    const NAME: &'static str = "month";

    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
        let of = month::run(MonthPlan { seed, orders: self.orders, days: self.days }).await;
        let mut report = Report::default();
        report.count("orders", of.orders);
        report.count("rejected", of.rejected);
        of.ended.iter().for_each(|(state, count)| report.kind("ended", state, count.unsigned_abs()));
        report.count("split", of.split);
        report.count("operations", of.operations);
        report.count("bankEntries", u64::try_from(of.bank_entries)?);
        report.count("chainCommands", of.chain_commands);
        report.count("balancesCompared", u64::try_from(of.balances_compared)?);
        report.count("ledgerEntries", of.ledger_entries);
        report.count("days", of.days);
        report.count("bankChangedItsWord", u64::try_from(of.fickle)?);
        report.count("bothByTheBank", u64::try_from(of.both_by_the_bank)?);
        report.count("statements", u64::try_from(of.statements)?);
        report.count("statementEntries", of.statement_entries);
        Ok(report)
    }
}

#[derive(Args)]
pub(crate) struct Restore {
    /// So many orders.
    #[arg(long, default_value_t = 40)]
    orders: u64,
}

impl Drill for Restore {
    const NAME: &'static str = "restore";

    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
        let of = restore::run(RestorePlan { seed, orders: self.orders }).await;
        let mut report = Report::default();
        of.restored_as.iter().for_each(|(state, count)| report.kind("restoredAs", state, *count));
        of.ended_as.iter().for_each(|(state, count)| report.kind("endedAs", state, *count));
        report.count("forgotten", of.forgotten);
        report.count("forgottenPayments", of.forgotten_payments);
        report.count("payments", of.payments);
        report.count("paidOnChain", of.paid_on_chain);
        report.count("closed", of.closed);
        report.count("filledAgain", of.filled_again);
        report.count("keptFacts", of.kept);
        Ok(report)
    }
}

/// Databases that no seed uses.
#[derive(Default)]
pub(crate) struct ChainSim(Mutex<Vec<SimDatabase>>);

impl Drill for ChainSim {
    const NAME: &'static str = "chain-sim";
    const AT_ONCE: usize = 3;

    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
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
