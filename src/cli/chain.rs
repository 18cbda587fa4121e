//! `dvp chain …` and `dvp reconcile`

use std::path::PathBuf;

use alloy::primitives::Address;
use clap::{Args, Subcommand, ValueEnum};
use dvp_chain_indexer::KeySource;
use dvp_chain_indexer::deploy::{CapSpec, TokenSpec};

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ChainCommand {
    /// Deploy the contracts to a chain, or deploy missing ones.
    ///
    /// FILE records their addresses; contracts in it are not deployed again. The account that deploys becomes
    /// the contracts' administrator and must not be one of the relayer's.
    #[command(
        after_help = "Example:\n  dvp chain deploy --rpc-url http://127.0.0.1:8545 --admin env:ADMIN_KEY --relayer 0x… --solver 0x… --cap 0x…:0x…:1000000000000 --deployment deployment.json"
    )]
    Deploy(ChainDeploy),
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
        after_help = "Example:\n  dvp chain rescan --from-block 21000000 --config dvp.toml --json\n  dvp chain rescan --restore --operator jo --reason 'INC-17: rows were deleted' --config dvp.toml"
    )]
    Rescan(ChainRescan),
    /// Follow a halted chain again, from its newest block that was read before.
    ///
    /// Blocks read after that one are reverted. First query several independent nodes for the real branch.
    #[command(
        after_help = "Example:\n  dvp chain resume --chain-id 1 --shared-block 21000000 --config dvp.toml"
    )]
    Resume(ChainResume),
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
    /// Look at a waiting command now, or try one again that was given up while its order still waits for it.
    #[command(
        after_help = "Example:\n  dvp chain command retry --id 17 --operator jo --reason 'the role is back' --config dvp.toml"
    )]
    Retry(RelayRetry),
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
pub(crate) struct RelayRetry {
    /// The command's number, as `list` prints it.
    #[arg(long, value_name = "ID")]
    pub id: i64,
    /// The operator, recorded with the decision.
    #[arg(long, visible_alias = "as", value_name = "NAME")]
    pub operator: String,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
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
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub relayer: Vec<Address>,
    /// A wallet that released funds may go to; several are several of these.
    #[arg(long, value_name = "ADDRESS")]
    pub solver: Vec<Address>,
    /// An account that decides with another one whether a filled order's funds go back before the timelock; several
    /// are several of these, and none of them a relayer's.
    #[arg(long, value_name = "ADDRESS")]
    pub operator: Vec<Address>,
    /// An account that may pause new locks and payouts; only the administrator ends a pause.
    #[arg(long, value_name = "ADDRESS")]
    pub pauser: Vec<Address>,
    /// A solver's daily payment cap, as SOLVER:TOKEN:UNITS; a solver without a cap pays nothing. The token may be
    /// "wrapped-coin".
    #[arg(long, value_name = "CAP", value_parser = cap)]
    pub cap: Vec<CapSpec>,
    /// The chain's wrapped coin (WETH9, or a contract that behaves like it); used when the contracts are created. Without
    /// it they never deal in the chain's coin.
    #[arg(long, value_name = "ADDRESS")]
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
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn token(text: &str) -> Result<TokenSpec, String> {
    let (symbol, decimals) = text.split_once(':').ok_or("a token is SYMBOL:DECIMALS")?;
    let decimals = decimals.parse().map_err(|_| "decimals are a number up to 255".to_owned())?;
    Ok(TokenSpec { symbol: symbol.to_owned(), name: symbol.to_owned(), decimals })
}

fn cap(text: &str) -> Result<CapSpec, String> {
    let mut parts = text.splitn(3, ':');
    let (Some(payer), Some(token), Some(units)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a cap is SOLVER:TOKEN:UNITS".into());
    };
    let payer = payer.parse().map_err(|_| format!("{payer} is not an address"))?;
    let per_day = units.parse().map_err(|_| "units are a number below 2^112".to_owned())?;
    Ok(CapSpec { payer, token: token.to_owned(), per_day })
}

#[derive(Debug, Args)]
pub(crate) struct ChainResume {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The halted chain.
    #[arg(long, value_name = "ID")]
    pub chain_id: u64,
    /// The newest block that both have; it counts as final from then on.
    #[arg(long, value_name = "NUMBER")]
    pub shared_block: u64,
}

/// A service and one of its chains.
#[derive(Debug, Args)]
pub(crate) struct ChainPlace {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The chain's name in the configuration, if it has several.
    #[arg(long, value_name = "NAME", conflicts_with = "rpc_url")]
    pub chain: Option<String>,
    /// A node of the chain; several are several of these, the first one by preference.
    #[arg(long, value_name = "URL", requires = "deployment")]
    pub rpc_url: Vec<String>,
    /// The record that `dvp chain deploy` wrote.
    #[arg(long, value_name = "FILE", requires = "rpc_url")]
    pub deployment: Option<PathBuf>,
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
    #[arg(long, requires = "operator", requires = "reason")]
    pub restore: bool,
    /// The operator, recorded with what was restored.
    #[arg(long, visible_alias = "as", value_name = "NAME", requires = "restore")]
    pub operator: Option<String>,
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
