//! `dvp chain`: contracts onto a chain, a chain into the database, and how both are.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256};
use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use dvp_chain_indexer::KeySource;
use dvp_chain_indexer::deploy::{
    CapSpec, CoinContracts, DeployPlan, Deployment, TokenSpec, WrappedCoin, deploy,
};
use dvp_chain_indexer::indexer::{Progress, backfill};
use dvp_chain_indexer::relayer::returns;
use dvp_domain::address::OwnContracts;
use dvp_store::chain::{self as store, RelayerAccount, StateName, StatusRow};
use dvp_store::durable::{self, Readers};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::access::ServiceLocation;
use crate::chains;
use crate::checkup::unix_secs;
use crate::cli::{ChainPlace, PlaceArgs};
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum ChainCommand {
    /// Deploy the contracts to a chain, or deploy missing ones.
    ///
    /// FILE records their addresses; contracts in it are not deployed again, but with --new, which deploys a set beside
    /// them: it takes new orders, and open ones end in theirs. The account that deploys becomes the contracts'
    /// administrator and must not be one of the relayer's.
    #[command(
        after_help = "Example:\n  dvp chain deploy --rpc-url http://127.0.0.1:8545 --admin env:ADMIN_KEY --relayer 0x… --solver 0x… --cap 0x…:0x…:1000000000000 --deployment deployment.json"
    )]
    Deploy(ChainDeploy),
    /// The sets of contracts of each chain: which takes new orders, and what is open in the others.
    ///
    /// Exit code 1 when orders are open in contracts that no record names.
    #[command(after_help = "Example:\n  dvp chain list --config dvp.toml --json")]
    List(PlaceArgs),
    /// Read a chain up to its head and say how far it is.
    ///
    /// Blocks that were read stay: a stopped backfill continues from there. Refused while a running service reads
    /// the chain, whose `dvp chain status` tells the same.
    #[command(after_help = "Example:\n  dvp chain backfill --config dvp.toml")]
    Backfill(ChainPlace),
    /// Read a chain again and compare its events with the stored ones. Changes nothing without --restore.
    ///
    /// Only blocks are compared that the chain calls final and that were read as final. Runs beside the service. Exit
    /// code 1 when something differs and was not restored.
    #[command(
        after_help = "Example:\n  dvp chain rescan --from-block 21000000 --config dvp.toml --json\n  dvp chain rescan --restore --reason 'INC-17: rows were deleted' --config dvp.toml"
    )]
    Rescan(ChainRescan),
    /// Sign, as one of the two operators, that the funds of a failed payout go back before their timelock.
    ///
    /// Prints the signature for `dvp execution resolve --action return`, and the deadline that both sign.
    #[command(
        after_help = "Example:\n  dvp chain sign-return --deployment deployment.json --intent 0x… --deadline 1790000000 --key file:operator.key"
    )]
    SignReturn(SignReturn),
    /// How the chains are followed: heads, backfills, holds and halts, the relayer's accounts.
    ///
    /// Exit code 1 when a chain is halted or held, or an account of the relayer's runs low.
    #[command(after_help = "Example:\n  dvp chain status --dir .dvp --json")]
    Status(PlaceArgs),
    /// The transactions that the service wants on a chain: list them, have one tried again.
    #[command(subcommand)]
    Command(RelayCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelayCommand {
    /// Commands that were refused and are tried again, that are open, or that were given up.
    ///
    /// Exit code 1 when a command is in trouble.
    #[command(after_help = "Example:\n  dvp chain command list --state troubled --dir .dvp --json")]
    List(RelayList),
}

#[derive(Debug, Args)]
pub(crate) struct RelayList {
    /// Which ones: in trouble (refused, and tried again), open, or failed for good.
    #[arg(long, value_enum, default_value_t = RelayState::Troubled)]
    pub state: RelayState,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RelayState {
    Troubled,
    Open,
    Failed,
}

#[derive(Debug, Args)]
pub(crate) struct SignReturn {
    /// Where the contracts are recorded.
    #[arg(long, value_name = "FILE")]
    pub deployment: PathBuf,
    /// The order's id on the chain: `entity` in `dvp execution show`.
    #[arg(long, value_name = "ID")]
    pub intent: B256,
    /// The escrow that holds the funds: `escrow` in `dvp execution show`. The one that takes new orders when not given.
    #[arg(long, value_name = "ADDRESS", value_parser = account)]
    pub escrow: Option<Address>,
    /// Until when the contract takes the signatures, in Unix seconds; ten minutes from now when not given.
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<u64>,
    /// The operator's key: env:NAME, file:PATH or keystore:PATH#PASSWORD_ENV.
    #[arg(long, value_name = "PLACE")]
    pub key: KeySource,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChainDeploy {
    /// A node of the chain.
    #[arg(long, value_name = "URL")]
    pub rpc_url: String,
    /// The key of the account that deploys: env:NAME, file:PATH or keystore:PATH#PASSWORD_ENV.
    #[arg(long, value_name = "PLACE")]
    pub admin: KeySource,
    /// An account that may create, fill, settle and pay; several are several of these.
    #[arg(long, value_name = "ADDRESS", value_parser = account, required = true)]
    pub relayer: Vec<Address>,
    /// A wallet that released funds may go to; several are several of these.
    #[arg(long, value_name = "ADDRESS", value_parser = account)]
    pub solver: Vec<Address>,
    /// An account that decides with another one whether a filled order's funds go back before the timelock; several
    /// are several of these, and none of them a relayer's.
    #[arg(long, value_name = "ADDRESS", value_parser = account)]
    pub operator: Vec<Address>,
    /// An account that may pause new locks and payouts; only the administrator ends a pause.
    #[arg(long, value_name = "ADDRESS", value_parser = account)]
    pub pauser: Vec<Address>,
    /// A solver's daily payment cap, as SOLVER:TOKEN:UNITS; a solver without a cap pays nothing. The token may be
    /// "wrapped-coin".
    #[arg(long, value_name = "CAP", value_parser = cap)]
    pub cap: Vec<CapSpec>,
    /// The chain's wrapped coin (WETH9, or a contract that behaves like it); used when the contracts are created. Without
    /// it they never deal in the chain's coin.
    #[arg(long, value_name = "ADDRESS", value_parser = account)]
    pub wrapped_coin: Option<Address>,
    /// How long a handover of the administration takes at least; used when the contracts are created.
    #[arg(long, value_name = "HOURS", default_value_t = 48)]
    pub admin_delay: u64,
    /// A test token to deploy, as SYMBOL:DECIMALS; for chains where everything is made up.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub token: Vec<TokenSpec>,
    /// Where the contracts are recorded.
    #[arg(long, value_name = "FILE")]
    pub deployment: PathBuf,
    /// Deploy a new set beside the recorded contracts. The permit contract and the wrapped coin stay theirs.
    #[arg(long)]
    pub new: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn token(text: &str) -> Result<TokenSpec, String> {
    let (symbol, decimals) = text.split_once(':').ok_or("a token is SYMBOL:DECIMALS")?;
    let decimals = decimals.parse().map_err(|_| "decimals are a number up to 255".to_owned())?;
    Ok(TokenSpec { symbol: symbol.to_owned(), name: symbol.to_owned(), decimals })
}

/// An account or a contract that somebody owns, with its checksum if it is of both cases.
fn account(text: &str) -> Result<Address, String> {
    let wrong = |fault: &dyn std::fmt::Display| format!("{text} {fault}");
    OwnContracts::default().check_wallet(text).map_err(|fault| wrong(&fault))?;
    text.parse::<Address>().map_err(|error| wrong(&error))
}

fn cap(text: &str) -> Result<CapSpec, String> {
    let mut parts = text.splitn(3, ':');
    let (Some(payer), Some(token), Some(units)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a cap is SOLVER:TOKEN:UNITS".into());
    };
    let payer = account(payer)?;
    if token.starts_with("0x") {
        account(token).map_err(|problem| format!("the token {problem}"))?;
    }
    let per_day = units.parse().map_err(|_| "units are a number below 2^112".to_owned())?;
    Ok(CapSpec { payer, token: token.to_owned(), per_day })
}

#[derive(Debug, Args)]
pub(crate) struct ChainRescan {
    #[command(flatten)]
    pub chain: ChainPlace,
    /// The first block; the contracts' first one when not given.
    #[arg(long, value_name = "NUMBER")]
    pub from_block: Option<u64>,
    /// The last block; the last final one when not given.
    #[arg(long, value_name = "NUMBER")]
    pub to_block: Option<u64>,
    /// Store the events that are missing. With several endpoints, two have to have each alike.
    #[arg(long, requires = "reason")]
    pub restore: bool,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT", requires = "restore")]
    pub reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    pub chain: ChainPlace,
    /// Compare executions that ended in the last N hours; live ones and open funds are always compared.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub hours: u64,
    /// Read all events of the chain, not those since the last comparison that agreed.
    #[arg(long)]
    pub full: bool,
    /// Show the last N runs instead of comparing.
    #[arg(long, value_name = "COUNT")]
    pub runs: Option<u32>,
    /// Show the breaks that the last runs have found, and since when, instead of comparing.
    #[arg(long, conflicts_with = "runs")]
    pub open: bool,
}

mod relay;
mod rescan;
mod sets;

/// How often a backfill's progress is reported.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(command: ChainCommand) -> anyhow::Result<ExitCode> {
    match command {
        ChainCommand::Deploy(args) => put(args).await,
        ChainCommand::SignReturn(args) => sign_return(&args),
        ChainCommand::List(args) => sets::list(args).await,
        ChainCommand::Backfill(args) => read(args).await,
        ChainCommand::Rescan(args) => rescan::run(args).await,
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
        new_set: args.new,
    };
    let deployment = deploy(&args.rpc_url, &admin, &plan, record).await?;
    let text = serde_json::to_string_pretty(&deployment)?;
    // The only word of where the contracts are: without a file it is in the error.
    durable::write(&args.deployment, text.as_bytes(), Readers::Group)
        .with_context(|| format!("the contracts are deployed; keep this record as {path}:\n{text}"))?;
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
        lines.extend(deployment.earlier.iter().map(|set| format!("earlier  escrow {}", set.escrow)));
        lines
    })?;
    Ok(ExitCode::SUCCESS)
}

/// How long two operators have to sign one after the other.
const SIGNED_FOR: u64 = 600;

fn sign_return(args: &SignReturn) -> anyhow::Result<ExitCode> {
    let path = args.deployment.display().to_string();
    let text = std::fs::read(&args.deployment).with_context(|| path.clone())?;
    let deployment: Deployment = serde_json::from_slice(&text).with_context(|| path.clone())?;
    let set = match args.escrow {
        None => &deployment,
        Some(escrow) => {
            let named = deployment.of_escrow(escrow);
            named.with_context(|| format!("{path} names no contracts with the escrow {escrow}"))?
        }
    };
    let key = args.key.load()?;
    let now = unix_secs();
    let deadline = args.deadline.unwrap_or_else(|| now.saturating_add(SIGNED_FOR));
    anyhow::ensure!(deadline > now, "--deadline {deadline} has passed");
    let signature = returns::sign(set, args.intent, deadline, &key)?;
    let signer = key.address();
    let value =
        json!({"signature": signature, "deadline": deadline, "signer": signer, "intent": args.intent});
    print(args.json, &value, || {
        vec![format!("signature {signature}"), format!("deadline  {deadline}"), format!("signer    {signer}")]
    })?;
    Ok(ExitCode::SUCCESS)
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
