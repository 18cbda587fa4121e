//! Bad days with a seed: each drill makes one happen and asks whether every promise was kept. It ends with a failure
//! and the seed when one was not.

mod scenes;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dvp_benches::crash::CrashDrill;
use dvp_benches::drill::{Seeds, run};
use dvp_benches::failover::FailoverDrill;
use dvp_benches::hostile::HostileDrill;
use dvp_benches::nodes::NodesDrill;
use dvp_benches::oms::OmsDrill;
use dvp_benches::patroni::PatroniDrill;
use dvp_benches::processes::ProcessesDrill;

use crate::scenes::{Alerts, Banks, ChainFaults, ChainSim, Chains, Month, Restore};

/// Bad days with a seed: each drill makes one happen and asks whether every promise was kept.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: DrillCommand,
    #[command(flatten)]
    seeds: Seeds,
}

#[derive(Subcommand)]
enum DrillCommand {
    /// What raises each alert, one cause after the other: does it fire in a real Prometheus, and no other that does not
    /// follow from it? Are the commands of its runbook carried out, and does the alert end by its remedy? Needs
    /// `prometheus` and the `dvp` binary beside this one.
    Alerts(Alerts),
    /// Orders through simulated banks that write their files as real ones do: are all paid once, and do statements and
    /// ledger agree to the minor unit?
    Banks(Banks),
    /// Chains that fork, nodes that lose, lag and lie, a database that fails: does the indexer keep the chain?
    ChainSim,
    /// Orders through a sandbox whose node fails, lags and loses while the chain forks: do all end once? Needs the
    /// `dvp` binary beside this one.
    ChainFaults,
    /// Orders on two chains and across them while one of them is frozen, halted, reorganized, out of gas, or has an
    /// endpoint that lies: do the other's take as long as without a fault, and are all paid once? Needs the `dvp` binary
    /// beside this one.
    Chains,
    /// Orders through both interfaces while the service is killed with SIGKILL and started again.
    Crash(CrashDrill),
    /// Orders through both interfaces while the primary of a replicated database is killed, frozen or cut off, a standby
    /// is promoted, and the former primary returns. Needs the `dvp` binary beside this one.
    Failover(FailoverDrill),
    /// Hostile FIX and REST clients and webhook receivers beside one partner that behaves well.
    Hostile(HostileDrill),
    /// A month of business in virtual time, at whose end statements, ledger, chain and bank agree.
    Month(Month),
    /// Orders of every kind, a burst, a reorganization, dear gas and an endpoint that stands still, on a node that behaves
    /// as those of a profile: do all end, and is all that is refused refused with its reason? Needs the `dvp` binary
    /// beside this one.
    Nodes(NodesDrill),
    /// A day of orders by FIX, with a cut and a morning after, as the order management system of a profile speaks it: do
    /// its books agree with receipts and ledger to the minor unit? Needs the `dvp` binary beside this one.
    Oms(OmsDrill),
    /// The same as `failover` with three servers under Patroni and etcd, set up by the files in `deploy/`. Needs etcd,
    /// pgBackRest and Patroni, and the `dvp` binary beside this one.
    Patroni(PatroniDrill),
    /// Orders through two to four processes on one database while these are killed, frozen and restarted in turn. Needs
    /// the `dvp` binary beside this one.
    Processes(ProcessesDrill),
    /// A restore to an earlier moment of a busy service, while chain and bank have gone on.
    Restore(Restore),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Cli { what, seeds } = Cli::parse();
    let kept = match what {
        DrillCommand::Alerts(drill) => run(drill, &seeds).await,
        DrillCommand::Banks(drill) => run(drill, &seeds).await,
        DrillCommand::ChainSim => run(ChainSim::default(), &seeds).await,
        DrillCommand::ChainFaults => run(ChainFaults, &seeds).await,
        DrillCommand::Chains => run(Chains, &seeds).await,
        DrillCommand::Crash(drill) => run(drill, &seeds).await,
        DrillCommand::Failover(drill) => run(drill, &seeds).await,
        DrillCommand::Hostile(drill) => run(drill, &seeds).await,
        DrillCommand::Month(drill) => run(drill, &seeds).await,
        DrillCommand::Nodes(drill) => run(drill, &seeds).await,
        DrillCommand::Oms(drill) => run(drill, &seeds).await,
        DrillCommand::Patroni(drill) => run(drill, &seeds).await,
        DrillCommand::Processes(drill) => run(drill, &seeds).await,
        DrillCommand::Restore(drill) => run(drill, &seeds).await,
    }?;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
