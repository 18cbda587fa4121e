//! Faults of a sandbox, one after the other, and the alerts that they raise.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::alert_causes::{self, Cause};
use crate::alert_faults::{Fault, run as run_faults};

#[derive(Args)]
pub(crate) struct AlertsArgs {
    /// One JSON object at the end instead of sentences.
    #[arg(long)]
    json: bool,
    /// The causes of the other alerts instead: each must raise its own, and others may fire beside them.
    #[arg(long)]
    causes: bool,
    /// Only these of the causes.
    #[arg(long, value_name = "CAUSE", requires = "causes", value_parser = cause)]
    only: Vec<Cause>,
}

fn cause(name: &str) -> Result<Cause, String> {
    let names = || Cause::all().map(|cause| format!("{cause:?}"));
    Cause::all()
        .find(|cause| format!("{cause:?}").eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("one of {}", names().collect::<Vec<_>>().join(", ")))
}

pub(crate) async fn run(args: AlertsArgs) -> anyhow::Result<bool> {
    let ended = if args.causes {
        let causes = if args.only.is_empty() { Cause::all().collect() } else { args.only };
        tokio::spawn(async move { alert_causes::run(&causes).await }).await
    } else {
        tokio::spawn(run_faults(&Fault::ALL)).await
    };
    let kept = ended.is_ok();
    let said = ended.unwrap_or_else(|broken| format!("{broken}\n"));
    let mut out = std::io::stdout().lock();
    if args.json {
        let faults: Vec<&str> = said.lines().collect();
        writeln!(out, "{}", json!({"drill": "alerts", "kept": kept, "faults": faults}))?;
    } else {
        write!(out, "{said}")?;
    }
    Ok(kept)
}
