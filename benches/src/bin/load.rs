//! End-to-end figures, each beside its floor in the same run: one JSON line.

use std::io::Write;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
    /// How long each part is measured.
    #[arg(long, default_value_t = 5, global = true)]
    seconds: u64,
    /// How many callers wait for an answer at any time.
    #[arg(long, default_value_t = 64, global = true)]
    concurrency: usize,
    /// Kept for scripts: the output is JSON in any case.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Durable submissions through the engine, beside durable single-row INSERTs.
    Submit,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figure = runtime.block_on(async {
        match cli.what {
            What::Submit => dvp_benches::submit::measure(cli.seconds, cli.concurrency).await,
        }
    })?;
    writeln!(std::io::stdout(), "{}", figure.json())?;
    Ok(())
}
