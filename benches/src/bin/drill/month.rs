//! A month of business in virtual time: do statements, ledger, chain and bank agree at its end?

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use clap::Args;
use dvp_testing::month::{MonthPlan, run as run_month};
use futures_util::FutureExt as _;
use serde_json::{Map, json};

use crate::Seeds;

#[derive(Args)]
pub(crate) struct MonthArgs {
    #[command(flatten)]
    seeds: Seeds,
    /// So many orders.
    #[arg(long, default_value_t = 20_000)]
    orders: u64,
    /// Days on which orders come.
    #[arg(long, default_value_t = 31)]
    days: u64,
}

pub(crate) async fn run(args: MonthArgs) -> anyhow::Result<bool> {
    let mut broken = Vec::new();
    for seed in args.seeds.seed..args.seeds.seed.saturating_add(args.seeds.count) {
        let started = Instant::now();
        let plan = MonthPlan { seed, orders: args.orders, days: args.days };
        let ended = AssertUnwindSafe(run_month(plan)).catch_unwind().await;
        let seconds = started.elapsed().as_secs();
        let mut out = std::io::stdout().lock();
        let report = match ended {
            Ok(report) => report,
            // The broken promises are on standard error already.
            Err(_) => {
                writeln!(std::io::stderr(), "seed {seed}: broken")?;
                broken.push(seed);
                continue;
            }
        };
        if args.seeds.json {
            let ended: Map<_, _> =
                report.ended.iter().map(|(state, count)| (state.clone(), json!(count))).collect();
            let line = json!({
                "drill": "month", "seed": seed, "seconds": seconds, "orders": report.orders,
                "rejected": report.rejected, "ended": ended, "split": report.split,
                "operations": report.operations, "bankEntries": report.bank_entries,
                "chainCommands": report.chain_commands, "balancesCompared": report.balances_compared,
                "ledgerEntries": report.ledger_entries, "days": report.days,
                "statements": report.statements, "statementEntries": report.statement_entries,
            });
            writeln!(out, "{line}")?;
        } else {
            let ended: Vec<String> =
                report.ended.iter().map(|(state, count)| format!("{count} {state}")).collect();
            writeln!(
                out,
                "seed {seed}: {} orders of {} days in {seconds} s, {} rejected, {}; {} filled by several; {} \
                 operations, {} bank entries, {} chain commands, {} balances of wallets, {} ledger entries, {} \
                 statements with {} entries: all agree",
                report.orders,
                report.days,
                report.rejected,
                ended.join(", "),
                report.split,
                report.operations,
                report.bank_entries,
                report.chain_commands,
                report.balances_compared,
                report.ledger_entries,
                report.statements,
                report.statement_entries
            )?;
        }
    }
    Ok(broken.is_empty())
}
