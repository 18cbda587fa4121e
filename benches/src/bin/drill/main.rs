//! Bad days with a seed: each drill makes one happen and asks whether every promise was kept. It ends with a failure
//! and the seed when one was not.

#[path = "../../../../tests/e2e/alert_causes.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_causes;
#[path = "../../../../tests/e2e/alert_faults.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_faults;
#[path = "../../../../tests/e2e/alert_inject.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_inject;
#[path = "../../../../tests/e2e/alert_pages.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_pages;
#[path = "../../../../tests/e2e/alert_prometheus.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_prometheus;
#[path = "../../../../tests/e2e/alert_remedy.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_remedy;
#[path = "../../../../tests/e2e/alert_scene.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed")]
mod alert_scene;
#[path = "../../../../tests/e2e/alert_table.rs"]
#[expect(dead_code, reason = "shared with the tests of the deployment's files")]
mod alert_table;
mod alerts;
#[path = "../../../../tests/e2e/chain_faults.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed; the seed is reported")]
mod chain_faults;
#[path = "../../../../tests/e2e/chain_isolation.rs"]
#[expect(clippy::unwrap_used, reason = "a scenario that cannot go on has failed; the seed is reported")]
mod chain_isolation;
mod chain_sim;
#[path = "../../../../tests/e2e/chain_verdict.rs"]
mod chain_verdict;
mod crash;
mod failover;
mod feed;
#[path = "../../../../tests/e2e/fix.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "shared with the end-to-end tests, which use more of it")]
mod fix;
mod hostile;
mod month;
#[path = "../../../../tests/e2e/partner.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "shared with the end-to-end tests, which use more of it")]
mod partner;
mod patroni;
mod processes;
#[path = "../../../../tests/e2e/sandbox.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "shared with the end-to-end tests, which use more of it")]
mod sandbox;
mod webhooks;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: DrillCommand,
}

/// The arguments of every drill.
#[derive(Args)]
pub(crate) struct Seeds {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// One JSON object at the end instead of sentences.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum DrillCommand {
    /// What raises each alert, one cause after the other: does it fire in a real Prometheus, and no other that does not
    /// follow from it? Are the commands of its runbook carried out, and does the alert end by its remedy? Needs
    /// `prometheus` and the `dvp` binary beside this one.
    Alerts(alerts::AlertsArgs),
    /// Chains that fork, nodes that lose, lag and lie, a database that fails: does the indexer keep the chain?
    ChainSim(Seeds),
    /// Orders through a sandbox whose node fails, lags and loses while the chain forks: do all end once? Needs the
    /// `dvp` binary beside this one.
    ChainFaults(Seeds),
    /// Orders on two chains and across them while one of them is frozen, halted, reorganized, out of gas, or has an
    /// endpoint that lies: do the other's take as long as without a fault, and are all paid once? Needs the `dvp` binary
    /// beside this one.
    Chains(Seeds),
    /// Orders through both interfaces while the service is killed with SIGKILL and started again.
    Crash(crash::CrashArgs),
    /// Orders through both interfaces while the primary of a replicated database is killed, frozen or cut off, a standby
    /// is promoted, and the former primary returns. Needs the `dvp` binary beside this one.
    Failover(failover::FailoverArgs),
    /// A reader pages while sixteen writers commit, some slowly, in one process and in two.
    Feed(Seeds),
    /// Hostile FIX and REST clients beside one partner that behaves well.
    Hostile(hostile::HostileArgs),
    /// A month of business in virtual time, at whose end statements, ledger, chain and bank agree.
    Month(month::MonthArgs),
    /// The same with three servers under Patroni and etcd, set up by the files in `deploy/`. Needs etcd, pgBackRest and
    /// Patroni, and the `dvp` binary beside this one.
    Patroni(patroni::PatroniArgs),
    /// Orders through two to four processes on one database while these are killed, frozen and restarted in turn. Needs
    /// the `dvp` binary beside this one.
    Processes(processes::ProcessesArgs),
    /// Hostile webhook receivers beside a healthy one.
    Webhooks(Seeds),
}

/// Each fault twice. The other chain's orders may take twice their usual time: the faults share its two processors.
async fn isolated(seed: u64) -> String {
    chain_isolation::run(seed, chain_isolation::Scale { faults: 14, orders: 5, percent_max: 200 }).await
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let kept = runtime.block_on(async {
        match cli.what {
            DrillCommand::Alerts(args) => alerts::run(args).await,
            DrillCommand::ChainSim(seeds) => chain_sim::run(seeds).await,
            DrillCommand::ChainFaults(seeds) => {
                let scale = chain_faults::Scale { wallets: 7, orders_of_each: 4, reorgs: 15 };
                each_seed("chain-faults", seeds, |seed| chain_faults::run(seed, scale)).await
            }
            DrillCommand::Chains(seeds) => each_seed("chains", seeds, isolated).await,
            DrillCommand::Crash(args) => crash::run(args).await,
            DrillCommand::Failover(args) => failover::run(args).await,
            DrillCommand::Feed(seeds) => feed::run(seeds).await,
            DrillCommand::Hostile(args) => hostile::run(args).await,
            DrillCommand::Month(args) => month::run(args).await,
            DrillCommand::Patroni(args) => patroni::run(args).await,
            DrillCommand::Processes(args) => processes::run(args).await,
            DrillCommand::Webhooks(seeds) => webhooks::run(seeds).await,
        }
    })?;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One sandbox after the other. A run that breaks a promise panics.
async fn each_seed<F>(drill: &str, seeds: Seeds, run: impl Fn(u64) -> F) -> anyhow::Result<bool>
where
    F: Future<Output = String> + Send + 'static,
{
    let mut failed = Vec::new();
    for seed in seeds.seed..seeds.seed.saturating_add(seeds.count) {
        let ended = tokio::spawn(run(seed)).await;
        let mut err = std::io::stderr().lock();
        match ended {
            Ok(said) => writeln!(err, "seed {seed}: {said}")?,
            Err(broken) => {
                writeln!(err, "seed {seed}: {broken}")?;
                failed.push(seed);
            }
        }
    }
    let (count, kept) = (seeds.count, failed.is_empty());
    let mut out = std::io::stdout().lock();
    if seeds.json {
        writeln!(out, "{}", serde_json::json!({"drill": drill, "seeds": count, "failed": failed}))?;
    } else {
        writeln!(out, "{count} seeds, {} failed", failed.len())?;
    }
    Ok(kept)
}
