//! Several processes of the service on one database are killed, frozen and restarted under orders.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use dvp_benches::processes::{ProcessesPlan, ProcessesReport, run as run_one};
use serde_json::json;

use crate::Seeds;

/// After a clean stop, and after the end of a dead process's lease.
const HANDOVER: Duration = Duration::from_secs(2);

/// What is handed over.
const KINDS: [&str; 3] = ["fix", "chain", "webhook"];

#[derive(Args)]
pub(crate) struct ProcessesArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// The number of processes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=4))]
    processes: u8,
    /// How often something happens to them with each seed.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// The program under fire; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) async fn run(args: ProcessesArgs) -> anyhow::Result<bool> {
    let beside = std::env::current_exe()?.with_file_name("dvp");
    let binary = args.binary.unwrap_or(beside);
    ensure!(binary.exists(), "{} is not there: build it with `cargo build -p dvp`", binary.display());
    let (started, mut broken, mut sum) = (Instant::now(), Vec::new(), ProcessesReport::default());
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        let (binary, processes, rounds) = (binary.clone(), usize::from(args.processes), args.rounds);
        match run_one(&ProcessesPlan { binary, seed, processes, rounds, handover: Some(HANDOVER) }).await {
            Ok(report) => sum.add(&report),
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    let ProcessesReport { rounds, orders, completed, fix_messages, resent, .. } = &sum;
    let (forwarded, delivered) = (sum.forwarded, sum.events_delivered);
    let taken = |kind: &str| sum.handovers.get(kind).copied().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    if args.seeds.json {
        let handovers = KINDS.map(|kind| {
            json!({ "kind": kind, "count": taken(kind).count, "longestMs": taken(kind).longest.as_millis() })
        });
        let value = json!({
            "drill": "processes", "seeds": args.seeds.count, "processes": args.processes, "rounds": rounds,
            "orders": orders, "completed": completed, "fixMessages": fix_messages, "resent": resent,
            "forwarded": forwarded, "eventsDelivered": delivered,
            "payments": sum.payments, "returned": sum.returned, "repeatedAnswers": sum.repeated_answers,
            "unnamedFiles": sum.unnamed_files,
            "handovers": handovers,
            "broken": broken,
            "seconds": started.elapsed().as_secs(),
        });
        writeln!(out, "{value}")?;
    } else {
        writeln!(
            out,
            "{} processes, rounds {rounds:?}, {orders} orders, {completed} completed, {fix_messages} FIX messages \
             ({resent} sent again), {forwarded} connections forwarded, {delivered} events delivered; {} promises broken",
            args.processes,
            broken.len()
        )?;
        writeln!(
            out,
            "the bank: {} payments, {} returned, {} answers sent again; {} files staged and never named",
            sum.payments, sum.returned, sum.repeated_answers, sum.unnamed_files
        )?;
        for kind in KINDS {
            let handovers = taken(kind);
            writeln!(
                out,
                "{kind}: {} hand-overs, free for {:?} at most",
                handovers.count, handovers.longest
            )?;
        }
        for line in &broken {
            writeln!(out, "{line}")?;
        }
    }
    Ok(broken.is_empty())
}
