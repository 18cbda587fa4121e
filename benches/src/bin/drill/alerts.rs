//! Causes of alerts in a sandbox, one after the other, and the runbooks that end them.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::alert_causes;
use crate::alert_table::{CAUSES, Cause, SHORT};

#[derive(Args)]
pub(crate) struct AlertsArgs {
    /// One JSON object at the end instead of sentences.
    #[arg(long)]
    json: bool,
    /// All causes, and not only the first five.
    #[arg(long)]
    causes: bool,
    /// Only these of the causes.
    #[arg(long, value_name = "CAUSE", requires = "causes", value_parser = cause)]
    only: Vec<Cause>,
}

fn cause(name: &str) -> Result<Cause, String> {
    let causes = || CAUSES.iter().map(|one| one.cause);
    causes().find(|cause| format!("{cause:?}").eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<String> = causes().map(|cause| format!("{cause:?}")).collect();
        format!("one of {}", names.join(", "))
    })
}

pub(crate) async fn run(args: AlertsArgs) -> anyhow::Result<bool> {
    let all = CAUSES.iter().map(|one| one.cause);
    let causes: Vec<Cause> = match (args.causes, args.only.is_empty()) {
        (false, _) => all.take(SHORT).collect(),
        (true, true) => all.collect(),
        (true, false) => args.only,
    };
    let ended = tokio::spawn(async move { alert_causes::run(&causes).await }).await;
    let kept = ended.is_ok();
    let said = ended.unwrap_or_else(|broken| format!("{broken}\n"));
    let mut out = std::io::stdout().lock();
    if args.json {
        let lines: Vec<&str> = said.lines().collect();
        writeln!(out, "{}", json!({"drill": "alerts", "kept": kept, "alerts": lines}))?;
    } else {
        write!(out, "{said}")?;
    }
    Ok(kept)
}
