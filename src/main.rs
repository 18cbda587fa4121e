//! The dvp binary: parses the command line, starts what was asked for, waits for a signal. It decides nothing.

mod cli;
mod logging;
mod sandbox;
mod service;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let cli = cli::Cli::parse();
    logging::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command {
        cli::Command::Sandbox(args) => runtime.block_on(sandbox::run(args)),
    }
}
