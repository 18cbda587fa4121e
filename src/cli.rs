//! The command line's arguments and help.

mod approval;
#[cfg(feature = "archive")]
mod archive;
mod audit;
mod band;
mod bank;
mod beneficiary;
mod cell;
mod chain;
mod execution;
mod fix_options;
mod fix_session;
mod key;
mod ledger;
mod limit;
mod maker;
mod maker_args;
mod operator;
mod partner;
mod pause;
mod personal_data;
mod provider;
mod quote;
mod recall;
mod receipt;
mod secret;
mod secrets;
mod statement;
mod transfer;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use dvp_core::writer::ORDER_PLACES;
use dvp_domain::screening::ScreeningResult;

use crate::config::Role;
use crate::logging::LogFormat;

pub(crate) use self::approval::{
    ApprovalApprove, ApprovalCommand, ApprovalDeny, ApprovalList, ApprovalShow, ApprovalState,
};
#[cfg(feature = "archive")]
pub(crate) use self::archive::{
    ArchiveCommand, ArchiveExport, ArchivePlace, ArchiveReceipt, ArchiveStatement,
};
pub(crate) use self::audit::{AuditAnchor, AuditCommand, AuditList};
pub(crate) use self::band::{BandCommand, BandRemove, BandSet, BandWhich};
pub(crate) use self::bank::{BankAlarms, BankClearAlarm, BankCommand};
pub(crate) use self::beneficiary::{
    BeneficiaryCommand, BeneficiaryCreate, BeneficiaryList, DestinationAdd, DestinationArgs,
    DestinationDisable, DestinationVerify,
};
pub(crate) use self::cell::{
    CellCommand, CellMap, MoveCancel, MoveCommand, MoveRecord, MoveRequest, MoveRun, MoveStatus, Moving,
};
pub(crate) use self::chain::{
    ChainCommand, ChainDeploy, ChainPlace, ChainRescan, ChainResume, ReconcileArgs, RelayCommand, RelayList,
    RelayRetry, RelayState,
};
pub(crate) use self::execution::{
    ActionArg, ExecutionCommand, ExecutionList, ExecutionResolve, ExecutionShow, LegArg,
};
pub(crate) use self::fix_options::{Agreed, SessionOptions};
pub(crate) use self::fix_session::{
    FixDictionary, FixSessionAdd, FixSessionCommand, FixSessionSet, SessionCommand, SessionEnable, SessionId,
    SessionSwitch, login,
};
pub(crate) use self::key::{EnvArg, KeyCommand, KeyIssue, KeyList, KeyRequest, KeyStop};
pub(crate) use self::ledger::{
    AdjustedArg, LedgerApprove, LedgerCommand, LedgerList, LedgerRebuild, LedgerReject, LedgerRequest,
    LedgerShow, OperationArgs, OwnerArgs,
};
pub(crate) use self::limit::{LimitCommand, LimitRemove, LimitSet, LimitWhich};
pub(crate) use self::maker::{
    MakerCancel, MakerCommand, MakerEnd, MakerOrders, MakerPlace, MakerSet, MakerWho,
};
pub(crate) use self::maker_args::MakerArgs;
pub(crate) use self::operator::{
    OperatorAdd, OperatorCommand, OperatorIdentity, OperatorName, OperatorRoles,
};
pub(crate) use self::partner::{
    DepositArgs, PartnerCommand, PartnerCreate, PartnerDeposit, PartnerInstruct, PartnerName, PartnerSwitch,
};
pub(crate) use self::pause::{PauseChange, PauseCommand};
pub(crate) use self::personal_data::{
    PersonArgs, PersonalDataCommand, PersonalDataRequest, PersonalDataShow,
};
pub(crate) use self::provider::{ProviderBalance, ProviderCommand, ProviderDeposit};
pub(crate) use self::quote::{QuoteCommand, QuoteExplain};
pub(crate) use self::recall::{RecallClose, RecallCommand, RecallList, RecallRequest, RecallShow};
pub(crate) use self::receipt::{ReceiptCommand, ReceiptVerify};
pub(crate) use self::secret::GivenSecret;
pub(crate) use self::secrets::SecretsCommand;
pub(crate) use self::statement::{RangeArgs, ReportAt, ReportCommand, ReportFees, StatementArgs};
pub(crate) use self::transfer::{
    TransferApprove, TransferCommand, TransferCompare, TransferConfirm, TransferDocument, TransferExport,
    TransferList, TransferReject, TransferRequest, TransferShow, TransferWhy,
};
pub(crate) use self::webhook::{
    WebhookCommand, WebhookDeliveries, WebhookDisable, WebhookListen, WebhookMove, WebhookTrigger,
    WebhookVerify,
};

/// Quotes, intents and their settlement, over REST and FIX.
#[derive(Debug, Parser)]
#[command(name = "dvp", version)]
pub(crate) struct Cli {
    /// How log lines are written; without it as the configuration says, and as text.
    #[arg(long, global = true, value_name = "FORMAT", env = "DVP_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Where the service sends its spans, as OTLP over HTTP (JSON), such as http://127.0.0.1:4318. Without it, and
    /// without one in the configuration, none are recorded.
    #[arg(long, global = true, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<reqwest::Url>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: database, chain, contracts, simulated bank, REST, FIX and the console.
    ///
    /// Writes DIR/sandbox.json when it is ready: addresses, keys, wallets. Ctrl-C stops all it started; started again
    /// in the same DIR it goes on with the same data.
    #[command(after_help = "Example:\n  dvp sandbox --dir /tmp/dvp --http 127.0.0.1:0 --fix 127.0.0.1:0")]
    Sandbox(SandboxArgs),
    /// Run the service as configured, or the parts of it that are named.
    ///
    /// Over a database that `dvp migrate` has prepared and chains with our contracts. Ends on SIGTERM or Ctrl-C after
    /// the work in hand; several may run at once, each with the roles it is given.
    #[command(after_help = "Example:\n  dvp serve --config dvp.toml --roles api,worker")]
    Serve(ServeArgs),
    /// Bring the database's schema up to this program's.
    #[command(after_help = "Example:\n  dvp migrate --config dvp.toml")]
    Migrate(PlaceArgs),
    /// Operators of the console: roles and sign-in links.
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// Partners: the callers of the service.
    #[command(subcommand)]
    Partner(PartnerCommand),
    /// Cells: the databases among which partners are divided.
    #[command(subcommand)]
    Cell(CellCommand),
    /// Actions that move money: requested by one operator, approved by another.
    #[command(subcommand)]
    Approval(ApprovalCommand),
    /// The archive: ended orders and closed days of the ledger as Parquet files.
    #[cfg(feature = "archive")]
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// The audit log of operators' actions, in a chain of hashes.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// The ledger: operators' postings, with two operators each, and its balances.
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Transfers of inventory to and from other cells: two operators on each side, and signed documents between them.
    #[command(subcommand)]
    Transfer(TransferCommand),
    /// Statements of accounts: opening balance, entries, closing balance.
    ///
    /// In minor units, with the asset and its decimals. The closing balance is the opening one and the entries.
    #[command(
        after_help = "Example:\n  dvp statement --provider northwind --day 2026-11-22 --csv --config dvp.toml"
    )]
    Statement(StatementArgs),
    /// Fees, exposure and balances by the ledger.
    #[command(subcommand)]
    Report(ReportCommand),
    /// How much orders may be, one by one and by day: set by two operators.
    #[command(subcommand)]
    Limit(LimitCommand),
    /// How far prices may be from the middle of their pair: set by two operators.
    #[command(subcommand)]
    Band(BandCommand),
    /// Makers: partners that place resting orders of a provider, and those orders.
    #[command(subcommand)]
    Maker(MakerCommand),
    /// Pauses of parts of the service.
    #[command(subcommand)]
    Pause(PauseCommand),
    /// Alarms about the bank's payments and files.
    #[command(subcommand)]
    Bank(BankCommand),
    /// Personal data: erased from what has ended, by two operators.
    #[command(subcommand)]
    PersonalData(PersonalDataCommand),
    /// Recalls: payments that the bank is asked to give back, by two operators.
    #[command(subcommand)]
    Recall(RecallCommand),
    /// Recipients that a partner's orders name as bene_…:dest_….
    #[command(subcommand)]
    Beneficiary(BeneficiaryCommand),
    /// Liquidity providers: their inventory at the service.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// API keys and their signing secrets.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Master keys: their use, and re-encryption after a rotation.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Executions: list, inspect, and resolve those that are stuck.
    #[command(subcommand)]
    Execution(ExecutionCommand),
    /// FIX sessions: settings, credentials and control.
    #[command(subcommand)]
    FixSession(FixSessionCommand),
    /// Quotes.
    #[command(subcommand)]
    Quote(QuoteCommand),
    /// Receipts.
    #[command(subcommand)]
    Receipt(ReceiptCommand),
    /// Webhooks: receive, trigger, verify, and look after endpoints.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Chains: put the contracts there, read them, see how they are followed.
    #[command(subcommand)]
    Chain(ChainCommand),
    /// Hold the service's books against the chain, at its final block.
    ///
    /// Proposes an action for each break and carries none out. Exit code 1 when there are breaks.
    #[command(after_help = "Example:\n  dvp reconcile --dir .dvp --json")]
    Reconcile(ReconcileArgs),
    /// Look whether everything the service needs is there.
    ///
    /// Without DIR or FILE: whether this machine can run a sandbox. Exit code 1 when something is missing.
    #[command(after_help = "Example:\n  dvp doctor --dir .dvp --json")]
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Where the data lives.
    #[arg(long, value_name = "DIR", default_value = ".dvp")]
    pub dir: PathBuf,
    /// Where REST listens; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub http: SocketAddr,
    /// Where FIX listens; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9880")]
    pub fix: SocketAddr,
    /// Where FIX listens with TLS, if anywhere, with a certificate of the sandbox's own authority.
    #[arg(long, value_name = "ADDR")]
    pub fix_tls: Option<SocketAddr>,
    /// Where the operations console listens [default: 127.0.0.1:8081, or any free port when that one is taken].
    #[arg(long, value_name = "ADDR")]
    pub console: Option<SocketAddr>,
    /// Pay out through ISO 20022 files in DIR/bank, answered by a simulated bank.
    #[arg(long)]
    pub bank_files: bool,
    /// Convert by the desk at this URL in place of the simulated one; its token is `sandbox`.
    #[arg(long, value_name = "URL")]
    pub desk_url: Option<reqwest::Url>,
    /// Where Prometheus finds the service's figures; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub metrics: SocketAddr,
    /// For drills: the servers of a database to use in place of one of the sandbox's own; their commits wait for a
    /// standby.
    #[arg(long = "database-url", value_name = "URL")]
    pub database_urls: Vec<String>,
    /// For drills: use those servers although their commits do not wait for a standby.
    #[arg(long, requires = "database_urls")]
    pub asynchronous_database: bool,
    /// For drills: the only authority that those servers' certificates may be of.
    #[arg(long, value_name = "FILE", requires = "database_urls")]
    pub database_ca: Option<PathBuf>,
    /// For drills: the certificate that those servers are shown, and its key.
    #[arg(long, value_name = "FILE", requires = "database_key")]
    pub database_certificate: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "database_certificate")]
    pub database_key: Option<PathBuf>,
    /// The number of private chains. The second has another block time and finality, and tokens of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub chains: u8,
    /// For drills: put a node that fails, lags and loses between the service and the home chain, with this seed.
    #[arg(long, value_name = "SEED")]
    pub chain_faults: Option<u64>,
    /// A further endpoint of the first chain, such as one that answers wrongly; several are several of these.
    #[arg(long = "chain-endpoint", value_name = "URL")]
    pub chain_endpoints: Vec<reqwest::Url>,
    /// The places of orders in the writer's queue: few of them are soon taken. One partner can fill half.
    #[arg(long, value_name = "N", default_value_t = ORDER_PLACES)]
    pub order_places: usize,
    /// Sign the chain's transactions by the signers of this file, in place of a key of the sandbox's own. It has
    /// `pkcs11_signers` and `remote_signers` as a chain of a configuration has them.
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// For tests: let webhooks lead to any address and port of this machine and its networks.
    #[arg(long)]
    pub webhook_allow_private: bool,
    /// Certificate authorities (PEM) that webhook endpoints may have, beside the system's.
    #[arg(long, value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
    /// A list of names and accounts: an order of a party on it is held before its lock.
    #[arg(long, value_name = "FILE")]
    pub screening_list: Option<PathBuf>,
    /// A service that is queried for every order before its lock.
    #[arg(long, value_name = "URL")]
    pub screening_url: Option<String>,
    /// The result when that service does not answer: hold, fail or pass.
    #[arg(long, value_name = "RESULT", default_value = "hold", value_parser = screening_result)]
    pub screening_on_error: ScreeningResult,
}

fn screening_result(text: &str) -> Result<ScreeningResult, String> {
    ScreeningResult::parse(text)
        .ok_or_else(|| format!("one of {}", ScreeningResult::ALL.map(ScreeningResult::as_str).join(", ")))
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The roles of this process, overriding the configuration.
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub roles: Vec<Role>,
}

/// Which service is meant, and how its answer is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", conflicts_with = "config", required_unless_present = "config")]
    pub dir: Option<PathBuf>,
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser as _};

    use super::Cli;

    /// Every command that does something, with the words that lead to it.
    fn leaves(path: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        if command.has_subcommands() {
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                leaves(&format!("{path} {}", inner.get_name()), inner, found);
            }
        } else {
            found.push((path.to_owned(), command.clone()));
        }
    }

    /// Commands that operators are told to type must exist.
    #[test]
    fn the_commands_of_the_runbooks_parse() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
        let mut commands = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for block in text.split("```sh\n").skip(1) {
                let lines = block.split("```").next().unwrap_or_default().lines();
                for line in lines.filter(|line| line.starts_with("dvp ")) {
                    let parsed = Cli::try_parse_from(line.split_whitespace());
                    assert!(parsed.is_ok(), "{}: {line}\n{}", path.display(), parsed.unwrap_err());
                    commands += 1;
                }
            }
        }
        assert!(commands > 40, "{commands}");
    }

    #[test]
    fn every_command_is_valid_and_its_help_has_an_example() {
        let root = Cli::command();
        root.clone().debug_assert();
        let mut found = Vec::new();
        leaves("dvp", &root, &mut found);
        for (path, command) in found {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains(&format!("Example:\n  {path}")), "{path}:\n{help}");
            // The operator of a contract is an address.
            let named = |argument: &&clap::Arg| argument.get_id() == "operator" && path != "dvp chain deploy";
            let acts_as = command.get_arguments().find(named);
            let aliases = acts_as.map(|argument| argument.get_visible_aliases().unwrap_or_default());
            assert!(aliases.is_none_or(|aliases| aliases == ["as"]), "{path} has --operator without --as");
        }
    }
}
