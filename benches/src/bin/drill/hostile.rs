//! Hostile FIX and REST clients beside one partner that behaves well.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use dvp_benches::hostile::{HostilePlan, HostileReport, Interface, Load, PeerKind, Summary, run as run_one};
use serde_json::{Value, json};

use crate::Seeds;

/// The time limit of a client.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const RATIO_MAX: u32 = 3;

#[derive(Args)]
pub(crate) struct HostileArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// How long the well-behaved partner is alone, and then among hostile peers.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Orders a second of the well-behaved partner at each interface.
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// Stretches the pauses of hostile peers: for a build without optimisation.
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    slower: u32,
    /// Only these kinds of hostile peers take part.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    only: Vec<PeerKind>,
    /// The program that is drilled; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) async fn run(args: HostileArgs) -> anyhow::Result<bool> {
    let beside = std::env::current_exe()?.with_file_name("dvp");
    let binary = args.binary.unwrap_or(beside);
    ensure!(binary.exists(), "{} is not there: build it with `cargo build -p dvp`", binary.display());
    let mut is_kept = true;
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        let plan = HostilePlan {
            binary: binary.clone(),
            seed,
            quiet: Duration::from_secs(args.seconds),
            hostile: Duration::from_secs(args.seconds),
            rate: args.rate,
            load: Load {
                slower: args.slower.max(1),
                volley: 200,
                burst: 30,
                long_polls: 200,
                half_open: 100,
            },
            only: args.only.clone(),
            ratio_max: Some(RATIO_MAX),
            answer_max: ANSWER_MAX,
        };
        let report = run_one(&plan).await?;
        is_kept &= report.broken.is_empty();
        let mut out = std::io::stdout().lock();
        if args.seeds.json {
            writeln!(out, "{}", as_json(seed, &report))?;
        } else {
            write!(out, "{}", as_text(seed, &report))?;
        }
    }
    Ok(is_kept)
}

/// The latencies of a interface in both phases.
fn phases(report: &HostileReport, interface: Interface) -> [Summary; 2] {
    [&report.quiet, &report.hostile].map(|phase| phase.get(&interface).copied().unwrap_or_default())
}

fn as_json(seed: u64, report: &HostileReport) -> Value {
    let summary = |of: Summary| {
        json!({"count": of.count, "medianMicros": of.median.as_micros(), "p99Micros": of.p99.as_micros(),
               "worstMicros": of.worst.as_micros()})
    };
    let interfaces: Vec<Value> = Interface::ALL
        .iter()
        .map(|interface| {
            let [quiet, hostile] = phases(report, *interface).map(summary);
            json!({"interface": interface.name(), "quiet": quiet, "hostile": hostile})
        })
        .collect();
    let resident = report.vitals.map(|vitals| vitals.resident_bytes);
    json!({"drill": "hostile", "seed": seed, "interfaces": interfaces, "residentBytes": resident, "done": report.done,
           "broken": report.broken})
}

fn as_text(seed: u64, report: &HostileReport) -> String {
    let millis = |of: Duration| format!("{}.{:01} ms", of.as_millis(), of.as_micros() / 100 % 10);
    let mut lines = vec![format!("seed {seed}: {} promises broken", report.broken.len())];
    for interface in Interface::ALL {
        let [quiet, hostile] = phases(report, interface)
            .map(|of| format!("{} times, p99 {}, worst {}", of.count, millis(of.p99), millis(of.worst)));
        lines.push(format!("{}: alone {quiet}; among hostile peers {hostile}", interface.name()));
    }
    let [warm, end, after] = report.vitals.map(|vitals| vitals.resident_bytes / (1024 * 1024));
    lines.push(format!("memory: {warm} MiB after a third, {end} MiB at the end, {after} MiB afterwards"));
    lines.push(format!("hostile peers: {:?}", report.done));
    lines.extend(report.broken.iter().map(|line| format!("broken: {line}")));
    lines.join("\n") + "\n"
}
