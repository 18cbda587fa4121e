//! Drills whose scenes tests share: a run that breaks a promise panics, and a run that keeps all says what it did.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use dvp_benches::drill::{Drill, Report};
use dvp_benches::scenes::alert_table::{CAUSES, Cause, SHORT};
use dvp_benches::scenes::{alert_causes, chain_faults, chain_isolation};
use dvp_testing::month::{self, MonthPlan};
use dvp_testing::restore::{self, RestorePlan};
use serde_json::json;

/// A report of what a scene said.
fn said(text: &str) -> Report {
    let mut report = Report::default();
    text.lines().for_each(|line| report.list("lines", json!(line)));
    report
}

pub(crate) struct ChainFaults;

impl Drill for ChainFaults {
    const NAME: &'static str = "chain-faults";

    async fn run(&self, seed: u64) -> anyhow::Result<Report> {
        let scale = chain_faults::ReorgScale { wallets: 7, orders_of_each: 4, reorgs: 15 };
        Ok(said(&chain_faults::run(seed, scale).await))
    }
}

pub(crate) struct Chains;

impl Drill for Chains {
    const NAME: &'static str = "chains";

    /// Each fault twice. The other chain's orders may take twice their usual time: the faults share its two processors.
    async fn run(&self, seed: u64) -> anyhow::Result<Report> {
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

    async fn run(&self, _seed: u64) -> anyhow::Result<Report> {
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

    async fn run(&self, seed: u64) -> anyhow::Result<Report> {
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

    async fn run(&self, seed: u64) -> anyhow::Result<Report> {
        let began = Instant::now();
        let of = restore::run(RestorePlan { seed, orders: self.orders }).await;
        let seconds = began.elapsed().as_secs();
        let listed = |states: &BTreeMap<String, u64>| {
            states.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
        };
        let line = format!(
            "seed {seed}: restored with {}; ended with {} in {seconds} s, {} closed and {} filled again by operators; {} facts \
             were kept, {} payments on chains, {} by the bank, {} of them of {} forgotten orders: none twice",
            listed(&of.restored_as),
            listed(&of.ended_as),
            of.closed,
            of.filled_again,
            of.kept,
            of.paid_on_chain,
            of.payments,
            of.forgotten_payments,
            of.forgotten
        );
        let json = json!({
            "seed": seed, "seconds": seconds, "restoredAs": of.restored_as, "endedAs": of.ended_as,
            "forgotten": of.forgotten, "forgottenPayments": of.forgotten_payments, "payments": of.payments,
            "paidOnChain": of.paid_on_chain, "closed": of.closed, "filledAgain": of.filled_again, "keptFacts": of.kept,
        });
        let mut report = Report::default();
        report.line("runs", line, json);
        Ok(report)
    }
}
