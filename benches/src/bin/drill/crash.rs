//! The service is killed and started again under orders through both interfaces.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use dvp_benches::crash::{CrashPlan, run as run_one};
use serde_json::json;

use crate::Seeds;

#[derive(Args)]
pub(crate) struct CrashArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// How often the service is killed with each seed.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// The program under fire; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) async fn run(args: CrashArgs) -> anyhow::Result<bool> {
    let beside = std::env::current_exe()?.with_file_name("dvp");
    let binary = args.binary.unwrap_or(beside);
    ensure!(binary.exists(), "{} is not there: build it with `cargo build -p dvp`", binary.display());
    let (started, mut broken) = (Instant::now(), Vec::new());
    let (mut kills, mut cut_short, mut orders, mut completed, mut messages) = (0, 0, 0, 0, 0);
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        match run_one(&CrashPlan { binary: binary.clone(), seed, kills: args.kills }).await {
            Ok(report) => {
                kills += report.kills;
                cut_short += report.starts_cut_short;
                orders += report.orders;
                completed += report.completed;
                messages += report.fix_messages;
            }
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    let mut out = std::io::stdout().lock();
    if args.seeds.json {
        let value = json!({
            "drill": "crash", "seeds": args.seeds.count, "kills": kills, "startsCutShort": cut_short,
            "orders": orders, "completed": completed, "fixMessages": messages, "broken": broken,
            "seconds": started.elapsed().as_secs(),
        });
        writeln!(out, "{value}")?;
    } else {
        writeln!(
            out,
            "{kills} kills ({cut_short} during a start), {orders} orders, {completed} completed, {messages} FIX \
             messages; {} promises broken",
            broken.len()
        )?;
        for line in &broken {
            writeln!(out, "{line}")?;
        }
    }
    Ok(broken.is_empty())
}
