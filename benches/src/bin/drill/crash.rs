//! The service is killed and started again under orders through both interfaces.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use dvp_benches::crash::{CrashPlan, CrashRails, CrashReport, run as run_one};
use serde_json::json;

use crate::Seeds;

#[derive(Args)]
pub(crate) struct CrashArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// How often the service is killed with each seed.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// The rails of conversion and payout; both kinds in turn when not given.
    #[arg(long, value_enum)]
    rails: Option<RailsArg>,
    /// The program under fire; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RailsArg {
    /// The sandbox's own, which move no money.
    Simulated,
    /// A bank by files and a desk over HTTP, both of which behave badly.
    BankAndDesk,
}

pub(crate) async fn run(args: CrashArgs) -> anyhow::Result<bool> {
    let beside = std::env::current_exe()?.with_file_name("dvp");
    let binary = args.binary.unwrap_or(beside);
    ensure!(binary.exists(), "{} is not there: build it with `cargo build -p dvp`", binary.display());
    let (started, mut broken) = (Instant::now(), Vec::new());
    let kinds: &[CrashRails] = match args.rails {
        None => &[CrashRails::Simulated, CrashRails::BankAndDesk],
        Some(RailsArg::Simulated) => &[CrashRails::Simulated],
        Some(RailsArg::BankAndDesk) => &[CrashRails::BankAndDesk],
    };
    let mut sum = CrashReport::default();
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        for rails in kinds {
            let plan = CrashPlan { binary: binary.clone(), seed, kills: args.kills, rails: *rails };
            match run_one(&plan).await {
                Ok(report) => sum.add(&report),
                Err(error) => broken.push(format!("{rails:?}: {error:#}")),
            }
        }
    }
    let CrashReport { kills, starts_cut_short: cut_short, orders, completed, .. } = sum;
    let CrashReport { fix_messages: messages, payments, returned, conversions, .. } = sum;
    let mut out = std::io::stdout().lock();
    if args.seeds.json {
        let value = json!({
            "drill": "crash", "seeds": args.seeds.count, "kills": kills, "startsCutShort": cut_short,
            "orders": orders, "completed": completed, "fixMessages": messages, "payments": payments,
            "returned": returned, "conversions": conversions, "broken": broken,
            "seconds": started.elapsed().as_secs(),
        });
        writeln!(out, "{value}")?;
    } else {
        writeln!(
            out,
            "{kills} kills ({cut_short} during a start), {orders} orders, {completed} completed, {messages} FIX \
             messages, {payments} payments at the bank ({returned} came back), {conversions} orders at the desk; {} promises broken",
            broken.len()
        )?;
        for line in &broken {
            writeln!(out, "{line}")?;
        }
    }
    Ok(broken.is_empty())
}
