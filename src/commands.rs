//! The command line: each command with its arguments and help. Most do one thing beside a running service and end.

pub(crate) mod approval;
#[cfg(feature = "archive")]
pub(crate) mod archive;
pub(crate) mod audit;
pub(crate) mod band;
pub(crate) mod bank;
pub(crate) mod beneficiary;
pub(crate) mod cell;
pub(crate) mod chain;
pub(crate) mod doctor;
pub(crate) mod execution;
pub(crate) mod fix_session;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod limit;
pub(crate) mod maker;
pub(crate) mod migrate;
pub(crate) mod operator;
pub(crate) mod partner;
pub(crate) mod pause;
pub(crate) mod personal_data;
pub(crate) mod provider;
pub(crate) mod quote;
pub(crate) mod recall;
pub(crate) mod receipt;
pub(crate) mod reconcile;
pub(crate) mod secrets;
pub(crate) mod statement;
pub(crate) mod webhook;
pub(crate) mod work;

use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use dvp_core::operators::targets;
use dvp_store::partners::registry::PartnerRow;
use sqlx::PgConnection;

use self::approval::ApprovalCommand;
#[cfg(feature = "archive")]
use self::archive::ArchiveCommand;
use self::audit::AuditCommand;
use self::band::BandCommand;
use self::bank::BankCommand;
use self::beneficiary::BeneficiaryCommand;
use self::cell::CellCommand;
use self::chain::{ChainCommand, ReconcileArgs};
use self::execution::ExecutionCommand;
use self::fix_session::FixSessionCommand;
use self::key::KeyCommand;
use self::ledger::LedgerCommand;
use self::limit::LimitCommand;
use self::maker::MakerCommand;
use self::operator::OperatorCommand;
use self::partner::PartnerCommand;
use self::pause::PauseCommand;
use self::personal_data::PersonalDataCommand;
use self::provider::ProviderCommand;
use self::quote::QuoteCommand;
use self::recall::RecallCommand;
use self::receipt::ReceiptCommand;
use self::secrets::SecretsCommand;
use self::statement::{ReportCommand, StatementArgs};
use self::webhook::WebhookCommand;
use self::work::WorkCommand;
use crate::cli::{DoctorArgs, PlaceArgs, SandboxArgs, ServeArgs};
use crate::logging::LogFormat;

/// What was built: the version, the commit if the build names one, and the features.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("sandbox", cfg!(feature = "sandbox")),
        ("archive", cfg!(feature = "archive")),
        ("oidc", cfg!(feature = "oidc")),
        ("aws-kms", cfg!(feature = "aws-kms")),
        ("gcp-kms", cfg!(feature = "gcp-kms")),
    ];
    let built: Vec<&str> = features.iter().filter(|(_, is_built)| *is_built).map(|(name, _)| *name).collect();
    let commit = option_env!("DVP_COMMIT").unwrap_or("unknown");
    format!("{} (commit {commit}; features: {})", env!("CARGO_PKG_VERSION"), built.join(", "))
});

/// Quotes, intents and their settlement, over REST and FIX.
#[derive(Debug, Parser)]
#[command(name = "dvp", version = VERSION.as_str())]
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

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: database, chain, contracts, simulated bank, REST, FIX and the console.
    ///
    /// Writes DIR/sandbox.json when it is ready: addresses, keys, wallets. Ctrl-C stops all it started; started again
    /// in the same DIR it goes on with the same data.
    #[command(after_help = "Example:\n  dvp sandbox --dir /tmp/dvp --http 127.0.0.1:0 --fix 127.0.0.1:0")]
    Sandbox(Box<SandboxArgs>),
    /// Run the service as configured, or the parts of it that are named.
    ///
    /// Over a database that `dvp migrate` has prepared and chains with our contracts. Ends on SIGTERM or Ctrl-C after
    /// the work in hand; several may run at once, each with the roles it is given.
    #[command(after_help = "Example:\n  dvp serve --config dvp.toml --roles api,worker")]
    Serve(ServeArgs),
    /// Bring the database's schema up to this program's.
    #[command(after_help = "Example:\n  dvp migrate --config dvp.toml")]
    Migrate(PlaceArgs),
    /// Print a script that completes commands and options in a shell.
    #[command(after_help = "Example:\n  dvp completions bash > /etc/bash_completion.d/dvp")]
    Completions(CompletionsArgs),
    /// Log in as an operator: a page of the console makes this machine's token yours for an hour.
    #[command(after_help = "Example:\n  dvp login --config dvp.toml")]
    Login(PlaceArgs),
    /// Operators: roles, sign-in links, tokens.
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
    /// Statements of accounts: opening balance, entries, closing balance.
    ///
    /// In minor units, with the asset and its decimals. The closing balance is the opening one and the entries.
    #[command(
        after_help = "Example:\n  dvp statement --provider northwind --day 2026-11-22 --format csv --config dvp.toml"
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
    /// Work that failed and is tried again later.
    #[command(subcommand)]
    Work(WorkCommand),
    /// Look whether everything the service needs is there.
    ///
    /// Without DIR or FILE: whether this machine can run a sandbox. Exit code 1 when something is missing.
    #[command(after_help = "Example:\n  dvp doctor --dir .dvp --json")]
    Doctor(DoctorArgs),
}

/// The partner with the given name.
async fn named_partner(conn: &mut PgConnection, name: &str) -> anyhow::Result<PartnerRow> {
    Ok(targets::partner(conn, name).await?)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use clap::Command;
    use clap::error::ErrorKind;

    use crate::actions::command;

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

    fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                found.push(path);
            }
        }
    }

    /// The words of a line as a shell splits it, up to a redirection, a pipe or a comment.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for letter in line.chars().chain([' ']) {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => {
                    if ["|", ">", "<", "&", "&&", "#"].contains(&word.as_str()) {
                        return words;
                    }
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                }
                letter => word.push(letter),
            }
        }
        words
    }

    /// Commands that somebody is told to type exist, with the options that they need.
    #[test]
    fn the_commands_of_the_docs_parse() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
        pages(&root.join("docs"), &mut found);
        let (mut commands, mut wrong) = (0, Vec::new());
        for path in found {
            let text = std::fs::read_to_string(&path).unwrap().replace("\\\n", " ");
            for block in text.split("```sh\n").skip(1) {
                let lines = block.split("```").next().unwrap_or_default().lines().map(str::trim_start);
                for line in lines.filter(|line| line.starts_with("dvp ")) {
                    let parsed = command().try_get_matches_from(words(line));
                    // The value that a reader puts in is none yet.
                    let is_known = parsed.as_ref().err().is_none_or(|error| {
                        matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue)
                    });
                    if let Some(error) = parsed.err().filter(|_| !is_known) {
                        wrong.push(format!("{}: {line}\n{error}", path.display()));
                    }
                    commands += 1;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(commands > 150, "{commands}");
    }

    #[test]
    fn every_command_is_valid_and_its_help_has_an_example() {
        let root = command();
        root.clone().debug_assert();
        let mut found = Vec::new();
        leaves("dvp", &root, &mut found);
        for (path, command) in found {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains(&format!("Example:\n  {path}")), "{path}:\n{help}");
            // Who acts is who was authenticated. The operator of a contract is an address.
            let names_operator = command.get_arguments().any(|argument| argument.get_id() == "operator");
            assert!(!names_operator || path == "dvp chain deploy", "{path} takes an operator's name");
        }
    }
}
