//! The dvp binary: parses the command line, runs the command, waits for a signal. It decides nothing.

mod access;
mod actions;
mod chains;
mod checkup;
mod cli;
mod commands;
mod config;
mod logging;
mod metrics;
mod output;
mod readiness;
#[cfg(feature = "sandbox")]
mod sandbox;
mod sandbox_dir;
mod serve;
mod service;
mod stop;
mod traces;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches as _};
use tokio_rustls::rustls;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The answer of a server's build to `dvp sandbox`.
#[cfg(not(feature = "sandbox"))]
const NO_SANDBOX: &str =
    "this build has no sandbox: it was made without the feature `sandbox` (cargo build has it by default)";

fn main() -> ExitCode {
    // HTTP and RPC clients use the installed TLS provider, and panic when there is none.
    // An error says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let matches = actions::command().get_matches();
    run(&matches).unwrap_or_else(|error| {
        // One line: the failed action and its causes.
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(asked) = actions::find(matches)? {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(actions::run(asked));
    }
    let commands::Cli { log_format, otlp_endpoint, command } = commands::Cli::from_arg_matches(matches)?;
    let (log, traces) = match &command {
        commands::Command::Serve(args) => {
            let config = config::Config::read(&args.config)?;
            (config.log, config.traces)
        }
        _ => Default::default(),
    };
    // The commands that only ask something have no spans.
    let is_service = matches!(command, commands::Command::Serve(_) | commands::Command::Sandbox(_));
    let endpoint = otlp_endpoint.or(traces.endpoint).filter(|_| is_service);
    let (recorder, exporter) = endpoint.as_ref().map(traces::to).transpose()?.unzip();
    logging::start(log_format.unwrap_or(log.format), recorder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let export = exporter.map(traces::Exporter::start).transpose()?;
        let carried = Box::pin(carry_out(command)).await;
        if let Some(export) = export {
            export.end().await;
        }
        carried
    })
}

/// A check that was carried out and failed is an exit code, not an error.
async fn carry_out(command: commands::Command) -> anyhow::Result<ExitCode> {
    use commands::Command;
    match command {
        #[cfg(feature = "sandbox")]
        Command::Sandbox(args) => sandbox::run(*args).await?,
        #[cfg(not(feature = "sandbox"))]
        Command::Sandbox(_) => anyhow::bail!(NO_SANDBOX),
        Command::Serve(args) => Box::pin(serve::run(args)).await?,
        Command::Migrate(args) => commands::migrate::run(args).await?,
        Command::Completions(args) => {
            clap_complete::generate(args.shell, &mut actions::command(), "dvp", &mut std::io::stdout());
            return Ok(ExitCode::SUCCESS);
        }
        Command::Login(place) => return actions::login(place).await,
        Command::Operator(command) => commands::operator::run(command).await?,
        Command::Partner(command) => commands::partner::run(command).await?,
        Command::Cell(command) => commands::cell::run(command).await?,
        Command::Approval(command) => commands::approval::run(command).await?,
        #[cfg(feature = "archive")]
        Command::Archive(command) => return commands::archive::run(command).await,
        Command::Audit(command) => return commands::audit::run(command).await,
        Command::Ledger(command) => return commands::ledger::run(command).await,
        Command::Statement(args) => commands::statement::run(args).await?,
        Command::Report(command) => commands::statement::report(command).await?,
        Command::Limit(command) => commands::limit::run(command).await?,
        Command::Band(command) => commands::band::run(command).await?,
        Command::Maker(command) => commands::maker::run(command).await?,
        Command::Pause(command) => commands::pause::run(command).await?,
        Command::Bank(command) => commands::bank::run(command).await?,
        Command::PersonalData(command) => commands::personal_data::run(command).await?,
        Command::Recall(command) => commands::recall::run(command).await?,
        Command::Beneficiary(command) => commands::beneficiary::run(command).await?,
        Command::Provider(command) => commands::provider::run(command).await?,
        Command::Key(command) => commands::key::run(command).await?,
        Command::Secrets(command) => commands::secrets::run(command).await?,
        Command::Execution(command) => commands::execution::run(command).await?,
        Command::FixSession(command) => return commands::fix_session::run(command).await,
        Command::Quote(command) => return commands::quote::run(command).await,
        Command::Receipt(command) => return commands::receipt::run(command).await,
        Command::Webhook(command) => return commands::webhook::run(command).await,
        Command::Chain(command) => return commands::chain::run(command).await,
        Command::Reconcile(args) => return commands::reconcile::run(args).await,
        Command::Work(command) => return commands::work::run(command).await,
        Command::Doctor(args) => return commands::doctor::run(args).await,
    }
    Ok(ExitCode::SUCCESS)
}
