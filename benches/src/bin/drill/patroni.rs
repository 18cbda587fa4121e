//! The leader of a database under Patroni fails under orders through both interfaces.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use dvp_benches::failover::FailoverReport;
use dvp_benches::patroni::{PatroniPlan, run as run_one};

use crate::{Seeds, failover};

#[derive(Args)]
pub(crate) struct PatroniArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// How often the leader fails with each seed.
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// The program under fire; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) async fn run(args: PatroniArgs) -> anyhow::Result<bool> {
    let beside = std::env::current_exe()?.with_file_name("dvp");
    let binary = args.binary.unwrap_or(beside);
    ensure!(binary.exists(), "{} is not there: build it with `cargo build -p dvp`", binary.display());
    let (started, mut broken, mut sum) = (Instant::now(), Vec::new(), FailoverReport::default());
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        match run_one(&PatroniPlan { binary: binary.clone(), seed, rounds: args.rounds }).await {
            Ok(report) => sum.add(&report),
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    failover::print("patroni", &args.seeds, &sum, &broken, started)?;
    Ok(broken.is_empty())
}
