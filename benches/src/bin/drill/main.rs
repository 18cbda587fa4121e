//! Bad days with a seed: each drill makes one happen and asks whether every promise was kept. It ends with a failure
//! and the seed when one was not.

mod chain_sim;
mod feed;
mod webhooks;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

/// What every drill takes.
#[derive(Args)]
pub(crate) struct Seeds {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// One JSON object at the end instead of sentences.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Chains that fork, nodes that lose, lag and lie, a database that fails: does the indexer keep the chain?
    ChainSim(Seeds),
    /// A reader pages while sixteen writers commit, some slowly, in one process and in two.
    Feed(Seeds),
    /// Hostile webhook receivers beside a healthy one.
    Webhooks(Seeds),
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let kept = runtime.block_on(async {
        match cli.what {
            What::ChainSim(seeds) => chain_sim::run(seeds).await,
            What::Feed(seeds) => feed::run(seeds).await,
            What::Webhooks(seeds) => webhooks::run(seeds).await,
        }
    })?;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
