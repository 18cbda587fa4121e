//! `dvp reconcile`: our books against the chain's, once, and what the last runs came to.

use std::process::ExitCode;
use std::time::Duration;

use dvp_chain_indexer::reconcile::{Options, Report, reconcile};
use dvp_domain::time::Timestamp;
use dvp_store::reconcile as store;
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::chains;
use crate::cli::ReconcileArgs;
use crate::output::print;

pub(crate) async fn run(args: ReconcileArgs) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.chain.place.dir.as_deref(), args.chain.place.config.as_deref())?;
    let json = args.chain.place.json;
    if let Some(count) = args.runs {
        return runs(&place, count, json).await;
    }
    let config = chains::find(&args.chain, &place)?;
    let pool = place.pool(2).await?;
    let ended_within = Duration::from_secs(args.hours.saturating_mul(3_600));
    let options = Options { ended_within, ..Options::default() };
    let report = reconcile(&pool, &config, &options).await?;
    print(json, &view(&report), || lines(&report))?;
    Ok(if report.breaks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn view(report: &Report) -> Value {
    let Report { run_id, chain_id, block_number, block_hash, subjects, asked, breaks } = report;
    json!({
        "runId": run_id, "chainId": chain_id, "blockNumber": block_number, "blockHash": block_hash.to_string(),
        "compared": subjects, "asked": asked, "breaks": breaks,
    })
}

fn lines(report: &Report) -> Vec<String> {
    let Report { chain_id, block_number, subjects, asked, breaks, .. } = report;
    let mut lines: Vec<String> = breaks
        .iter()
        .map(|found| {
            let (kind, action) = (found.kind.as_str(), found.action.as_str());
            let about = found.reference.as_deref().or(found.entity.as_deref()).unwrap_or("-");
            format!("{kind:<24} {action:<8} {about:<32} {}", found.detail)
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, format!("{:<24} {:<8} {:<32} what", "break", "do", "execution or id"));
    }
    let found = match breaks.len() {
        0 => "no breaks".to_owned(),
        1 => "1 break".to_owned(),
        count => format!("{count} breaks"),
    };
    lines.push(format!(
        "{found}: {subjects} settlements compared at block {block_number} of chain {chain_id}, {asked} of them with \
         the contracts"
    ));
    lines
}

async fn runs(place: &ServiceLocation, count: u32, json: bool) -> anyhow::Result<ExitCode> {
    let mut conn = place.connect().await?;
    let runs = store::list_runs(&mut conn, i64::from(count)).await?;
    let at = |time| Timestamp::from(time).iso8601();
    let views: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({"runId": run.id, "chainId": run.chain_id, "blockNumber": run.block_number,
                   "compared": run.subjects, "asked": run.asked, "breaks": run.breaks,
                   "startedAt": at(run.started_at), "finishedAt": at(run.finished_at)})
        })
        .collect();
    print(json, &json!({"runs": views}), || {
        let line = |run: &store::KeptRun| {
            let (finished, compared, breaks) = (at(run.finished_at), run.subjects, run.breaks);
            let (id, chain, block) = (run.id, run.chain_id, run.block_number);
            format!("{id:>6}  {finished}  chain {chain} block {block}: {compared} compared, {breaks} breaks")
        };
        runs.iter().map(line).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
