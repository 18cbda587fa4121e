//! The primary of a replicated database fails under orders through both interfaces.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use dvp_benches::failover::{FailoverPlan, FailoverReport, run as run_one};
use serde_json::json;

use crate::Seeds;

#[derive(Args)]
pub(crate) struct FailoverArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// How often the primary fails with each seed.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Let commits not wait for a standby: the drill must then find lost orders.
    #[arg(long)]
    asynchronous: bool,
    /// The program under fire; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) async fn run(args: FailoverArgs) -> anyhow::Result<bool> {
    let beside = std::env::current_exe()?.with_file_name("dvp");
    let binary = args.binary.unwrap_or(beside);
    ensure!(binary.exists(), "{} is not there: build it with `cargo build -p dvp`", binary.display());
    let (started, mut broken, mut sum) = (Instant::now(), Vec::new(), FailoverReport::default());
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        let (binary, rounds, asynchronous) = (binary.clone(), args.rounds, args.asynchronous);
        match run_one(&FailoverPlan { binary, seed, rounds, asynchronous }).await {
            Ok(report) => sum.add(&report),
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    print("failover", &args.seeds, &sum, &broken, started)?;
    Ok(broken.is_empty())
}

/// What a drill of a fail-over found.
pub(crate) fn print(
    drill: &str,
    seeds: &Seeds,
    sum: &FailoverReport,
    broken: &[String],
    started: Instant,
) -> anyhow::Result<()> {
    let FailoverReport { rounds, orders, completed, fix_messages, resent, .. } = sum;
    let (payments, delivered, outage) = (sum.payments, sum.events_delivered, sum.longest_outage);
    let mut out = std::io::stdout().lock();
    if seeds.json {
        let value = json!({
            "drill": drill, "seeds": seeds.count, "rounds": rounds, "orders": orders,
            "completed": completed, "fixMessages": fix_messages, "resent": resent, "payments": payments,
            "eventsDelivered": delivered, "longestOutageMs": outage.as_millis(), "broken": broken,
            "seconds": started.elapsed().as_secs(),
        });
        writeln!(out, "{value}")?;
    } else {
        writeln!(
            out,
            "rounds {rounds:?}, {orders} orders, {completed} completed, {fix_messages} FIX messages ({resent} sent \
             again), {payments} payments at the bank, {delivered} events delivered, longest outage {outage:?}; {} \
             promises broken",
            broken.len()
        )?;
        for line in broken {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
