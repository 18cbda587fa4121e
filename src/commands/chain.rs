//! `dvp chain`: contracts onto a chain, a chain into the database, and how both are.

use dvp_domain::chain::BlockNumber;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_chain_indexer::deploy::{CoinContracts, DeployPlan, Deployment, WrappedCoin, deploy};
use dvp_chain_indexer::indexer::{Progress, backfill};
use dvp_store::chain::{self as store, RelayerAccount, StateName, StatusRow};
use serde_json::{Value, json};
use sqlx::Connection as _;
use tokio_util::sync::CancellationToken;

use crate::access::ServiceLocation;
use crate::chains;
use crate::cli::{ChainCommand, ChainDeploy, ChainPlace, ChainResume, PlaceArgs};
use crate::output::print;

mod relay;
mod rescan;

/// How often a backfill's progress is reported.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(command: ChainCommand) -> anyhow::Result<ExitCode> {
    match command {
        ChainCommand::Deploy(args) => put(args).await,
        ChainCommand::Backfill(args) => read(args).await,
        ChainCommand::Rescan(args) => rescan::run(args).await,
        ChainCommand::Resume(args) => resume(args).await,
        ChainCommand::Status(args) => status(args).await,
        ChainCommand::Command(command) => relay::run(command).await,
    }
}

async fn put(args: ChainDeploy) -> anyhow::Result<ExitCode> {
    let path = args.deployment.display().to_string();
    let record: Option<Deployment> = match std::fs::read(&args.deployment) {
        Ok(text) => Some(serde_json::from_slice(&text).with_context(|| path.clone())?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(path),
    };
    let admin = args.admin.load()?;
    let plan = DeployPlan {
        tokens: args.token,
        coin: args.wrapped_coin.map(WrappedCoin::At),
        solvers: args.solver,
        relayers: args.relayer,
        operators: args.operator,
        pausers: args.pauser,
        caps: args.cap,
        admin_delay: Duration::from_secs(args.admin_delay.saturating_mul(3_600)),
    };
    let deployment = deploy(&args.rpc_url, &admin, &plan, record).await?;
    write_whole(&args.deployment, &serde_json::to_vec_pretty(&deployment)?).context(path)?;
    print(args.json, &serde_json::to_value(&deployment)?, || {
        let Deployment { chain_id, permit, escrow, settler, anchor, payouts, deployed_block, .. } =
            &deployment;
        let mut lines = vec![
            format!("chain {chain_id}, first block {deployed_block}"),
            format!("permit   {permit}"),
            format!("escrow   {escrow}"),
            format!("settler  {settler}"),
            format!("anchor   {anchor}"),
            format!("payouts  {payouts}"),
        ];
        if let Some(CoinContracts { gate, wrapped }) = &deployment.coin {
            lines.push(format!("gate     {gate} (wrapped coin {wrapped})"));
        }
        lines
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The old record or the new one, never half of one: it is the only word of where the contracts are.
fn write_whole(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let half = path.with_extension("half");
    let mut file = std::fs::File::create(&half)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(half, path)
}

async fn read(args: ChainPlace) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.place.dir.as_deref(), args.place.config.as_deref())?;
    let config = chains::find(&args, &place)?;
    let pool = place.pool(4).await?;
    let json = args.place.json;
    let mut reported_at = Instant::now();
    let tell = |progress: &Progress| {
        if reported_at.elapsed() >= REPORT_EVERY {
            reported_at = Instant::now();
            // A closed output is no reason to stop.
            let _written = print(json, &view(progress), || vec![line(progress)]);
        }
    };
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    let progress = backfill(pool, config, tell, shutdown).await?;
    print(json, &view(&progress), || vec![line(&progress)])?;
    Ok(ExitCode::SUCCESS)
}

fn view(progress: &Progress) -> Value {
    json!({
        "from": progress.from, "at": progress.at, "to": progress.to, "events": progress.events,
        "eventsPerSecond": progress.events_per_second(), "secondsLeft": progress.seconds_left(),
    })
}

fn line(progress: &Progress) -> String {
    let Progress { from, at, to, events, .. } = progress;
    let left = progress.seconds_left().map_or_else(|| "?".to_owned(), |seconds| seconds.to_string());
    format!(
        "block {at} of {to} (from {from}): {events} events, {} a second, {left} s left",
        progress.events_per_second()
    )
}

async fn resume(args: ChainResume) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.place.dir.as_deref(), args.place.config.as_deref())?;
    let (chain, block) = (args.chain_id, args.shared_block);
    let mut conn = place.connect().await?;
    let mut tx = conn.begin().await?;
    let resumed = store::resume(&mut tx, chain, BlockNumber(block), None).await?;
    ensure!(resumed, "chain {chain} is not halted, or block {block} was not read");
    tx.commit().await?;
    print(args.place.json, &json!({"chainId": chain, "sharedBlock": block}), || {
        vec![format!("chain {chain} is followed again, from block {block}")]
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn status(args: PlaceArgs) -> anyhow::Result<ExitCode> {
    let place = ServiceLocation::find(args.dir.as_deref(), args.config.as_deref())?;
    let mut conn = place.connect().await?;
    let chains = store::list_statuses(&mut conn).await?;
    let accounts = store::list_accounts(&mut conn).await?;
    let healthy = chains.iter().all(is_well) && !accounts.iter().any(RelayerAccount::lacks_gas);
    let views: Vec<Value> = chains.iter().map(|chain| chain_view(chain, &accounts)).collect();
    print(args.json, &json!({"ok": healthy, "chains": views}), || {
        chains.iter().flat_map(|chain| chain_lines(chain, &accounts)).collect()
    })?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_well(chain: &StatusRow) -> bool {
    matches!(chain.state, StateName::Following | StateName::Backfilling)
}

fn accounts_of<'a>(
    chain: &'a StatusRow,
    accounts: &'a [RelayerAccount],
) -> impl Iterator<Item = &'a RelayerAccount> {
    accounts.iter().filter(|account| account.chain_id == chain.chain_id)
}

fn chain_view(chain: &StatusRow, accounts: &[RelayerAccount]) -> Value {
    let backfill = chain.backfill.as_ref().map(|backfill| {
        json!({"from": backfill.from, "to": backfill.to, "events": backfill.events,
               "eventsPerSecond": chain.events_per_second(), "secondsLeft": chain.seconds_left()})
    });
    let accounts: Vec<Value> = accounts_of(chain, accounts)
        .map(|account| {
            json!({"address": account.signer.to_string(), "balanceWei": account.balance.map(|wei| wei.to_string()),
                   "low": account.lacks_gas(), "state": account.state.as_str(), "nextNonce": account.next_nonce,
                   "waiting": account.waiting})
        })
        .collect();
    json!({
        "chainId": chain.chain_id, "name": chain.name, "state": chain.state.as_str(), "reason": chain.reason,
        "stateSeconds": chain.state_seconds, "silentSeconds": chain.silent_seconds,
        "nodeHead": chain.node_head, "nodeFinal": chain.node_final, "indexedHead": chain.indexed_head,
        "indexedFinal": chain.indexed_final, "retractedFacts": chain.retracted_facts, "fillsWaiting": chain.fills_waiting,
        "backfill": backfill,
        "accounts": accounts,
    })
}

fn chain_lines(chain: &StatusRow, accounts: &[RelayerAccount]) -> Vec<String> {
    let StatusRow { chain_id, name, state, state_seconds, indexed_head, node_head, indexed_final, .. } =
        chain;
    let mut lines = vec![format!(
        "{name} ({chain_id}): {} for {state_seconds} s, read up to block {indexed_head} of {node_head}, \
         final {indexed_final}",
        state.as_str()
    )];
    lines.extend(chain.reason.iter().map(|reason| format!("  {reason}")));
    if let Some(backfill) = &chain.backfill {
        let rate = chain.events_per_second().unwrap_or_default();
        let left = chain.seconds_left().map_or_else(|| "?".to_owned(), |seconds| seconds.to_string());
        lines.push(format!("  {} events, {rate} a second, {left} s left", backfill.events));
    }
    if chain.fills_waiting > 0 {
        lines.push(format!("  {} fills wait at the payout gate", chain.fills_waiting));
    }
    if chain.retracted_facts > 0 {
        lines.push(format!("  {} facts were taken back after they were used", chain.retracted_facts));
    }
    lines.extend(accounts_of(chain, accounts).map(|account| {
        let balance = account.balance.map_or_else(|| "unknown".to_owned(), |wei| wei.to_string());
        let low = if account.lacks_gas() { ", LOW" } else { "" };
        let RelayerAccount { signer, state, next_nonce, waiting, .. } = account;
        let state = state.as_str();
        format!("  account {signer}: {state}, {balance} wei{low}, next nonce {next_nonce}, {waiting} waiting")
    }));
    lines
}
