//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Quotes, intents and their settlement, over REST and FIX.
#[derive(Debug, Parser)]
#[command(name = "dvp", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: database, chain, contracts, simulated bank, REST and FIX.
    ///
    /// Writes DIR/sandbox.json when it is ready: addresses, keys, wallets. Ctrl-C stops all it started; started again
    /// in the same DIR it goes on with the same data.
    #[command(after_help = "Example:\n  dvp sandbox --dir /tmp/dvp --http 127.0.0.1:0 --fix 127.0.0.1:0")]
    Sandbox(SandboxArgs),
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
}
