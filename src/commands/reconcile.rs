//! `dvp reconcile`: compares our books with the chain's and the bank's once, or shows the last runs.

use std::process::ExitCode;
use std::time::Duration;

use dvp_chain_indexer::reconcile::{Options, Report, reconcile};
use dvp_core::context::now;
use dvp_core::ledger::reconciliation::{self, BankReport, compare_bank};
use dvp_domain::reconcile::{Break, Patience};
use dvp_domain::time::Timestamp;
use dvp_store::reconcile as store;
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::chains;
use crate::commands::chain::ReconcileArgs;
use crate::output::print;

pub(crate) async fn run(args: ReconcileArgs) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.chain.place.dir.as_deref(), args.chain.place.config.as_deref())?;
    let json = args.chain.place.json;
    if let Some(count) = args.runs {
        return runs(&place, count, json).await;
    }
    if args.open {
        return open(&place, json).await;
    }
    let config = chains::find(&args.chain, &place)?;
    let pool = place.pool(2).await?;
    let ended_within = Duration::from_secs(args.hours.saturating_mul(3_600));
    let (patience, books_patience) = match &place {
        ServiceLocation::Configured(config) => (config.patience(), config.books_patience()),
        ServiceLocation::Sandbox { .. } => (Patience::default(), reconciliation::PATIENCE),
    };
    let report = reconcile(&pool, &config, &Options { patience, ended_within, full: args.full }).await?;
    let bank = compare_bank(&pool, now(), books_patience).await?;
    if let Some((account, why)) = bank.iter().flat_map(|bank| &bank.failed).next() {
        anyhow::bail!("the bank account {account} could not be compared: {why}");
    }
    if let Some((what, why)) = report.unread.first() {
        anyhow::bail!("{what} could not be read: {why}");
    }
    let breaks: Vec<&Break> = report.breaks.iter().chain(bank.iter().flat_map(|bank| &bank.breaks)).collect();
    print(json, &view(&report, bank.as_ref(), &breaks), || lines(&report, bank.as_ref(), &breaks))?;
    Ok(if breaks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn view(report: &Report, bank: Option<&BankReport>, breaks: &[&Break]) -> Value {
    let Report { run_id, chain_id, block_number, block_hash, since, subjects, queries, .. } = report;
    let bank = bank.map(|bank| {
        let BankReport { run_id, accounts, pairs, in_transit, .. } = bank;
        json!({"runId": run_id, "accounts": accounts, "newPairs": pairs, "inTransit": in_transit})
    });
    json!({
        "runId": run_id, "chainId": chain_id, "blockNumber": block_number, "blockHash": block_hash.to_string(),
        "since": since, "compared": subjects, "queries": queries, "bank": bank, "breaks": breaks,
    })
}

fn lines(report: &Report, bank: Option<&BankReport>, breaks: &[&Break]) -> Vec<String> {
    let Report { chain_id, block_number, subjects, queries, .. } = report;
    let mut lines: Vec<String> = breaks
        .iter()
        .map(|found| {
            let (kind, action) = (found.kind.as_str(), found.action.as_str());
            let account = found.difference.as_ref().map(|difference| difference.account.as_str());
            let about = found.reference.as_deref().or(found.entity.as_deref()).or(account).unwrap_or("-");
            format!("{kind:<24} {action:<8} {about:<32} {}", found.detail)
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, format!("{:<24} {:<8} {:<32} what", "break", "do", "about"));
    }
    lines.push(format!(
        "{}: {subjects} settlements compared at block {block_number} of chain {chain_id}, {queries} of them with \
         the contracts",
        counted(breaks.len())
    ));
    lines.push(bank.map_or_else(
        || "the bank has sent no statement".to_owned(),
        |bank| {
            let BankReport { accounts, pairs, in_transit, .. } = bank;
            format!("bank accounts compared: {accounts}, new pairs: {pairs}, in transit: {in_transit}")
        },
    ));
    lines
}

fn counted(breaks: usize) -> String {
    match breaks {
        0 => "no breaks".to_owned(),
        1 => "1 break".to_owned(),
        count => format!("{count} breaks"),
    }
}

/// The breaks of the last run of each chain and of the bank.
async fn open(place: &ServiceLocation, json: bool) -> anyhow::Result<ExitCode> {
    let mut conn = place.connect().await?;
    let breaks = store::list_open_breaks(&mut conn).await?;
    let at = |time| Timestamp::from(time).iso8601();
    let views: Vec<Value> = breaks
        .iter()
        .map(|one| {
            json!({"type": one.kind, "reference": one.reference, "entity": one.entity, "detail": one.detail,
                   "action": one.action, "account": one.account, "asset": one.asset,
                   "differenceMinor": one.difference, "firstSeenAt": at(one.first_seen_at)})
        })
        .collect();
    print(json, &json!({"breaks": views}), || {
        let line = |one: &store::KeptBreak| {
            let about = one.reference.as_deref().or(one.entity.as_deref()).or(one.account.as_deref());
            let (since, about) = (at(one.first_seen_at), about.unwrap_or("-"));
            format!("{since}  {:<24} {:<8} {about:<32} {}", one.kind, one.action, one.detail)
        };
        let mut lines: Vec<String> = breaks.iter().map(line).collect();
        lines.push(counted(breaks.len()));
        lines
    })?;
    Ok(if breaks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn runs(place: &ServiceLocation, count: u32, json: bool) -> anyhow::Result<ExitCode> {
    let mut conn = place.connect().await?;
    let runs = store::list_runs(&mut conn, i64::from(count)).await?;
    let at = |time| Timestamp::from(time).iso8601();
    let views: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({"runId": run.id, "chainId": run.chain_id, "blockNumber": run.block_number,
                   "compared": run.subjects, "queries": run.queries, "breaks": run.breaks,
                   "startedAt": at(run.started_at), "finishedAt": at(run.finished_at)})
        })
        .collect();
    print(json, &json!({"runs": views}), || {
        let line = |run: &store::KeptRun| {
            let (finished, compared, breaks) = (at(run.finished_at), run.subjects, run.breaks);
            let what = match (run.chain_id, run.block_number) {
                (Some(chain), Some(block)) => format!("chain {chain} block {block}"),
                _ => "bank".to_owned(),
            };
            let (id, breaks) = (run.id, counted(usize::try_from(breaks).unwrap_or_default()));
            format!("{id:>6}  {finished}  {what}: {compared} compared, {breaks}")
        };
        runs.iter().map(line).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
