//! End-to-end figures, each beside its floor in the same run: one JSON line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::ensure;
use clap::{Parser, Subcommand};
use dvp_benches::drill::Program;
use dvp_benches::figure::Figures;
use dvp_benches::progress;
use dvp_benches::settle::{SignerKind, Size};

/// The service's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: LoadCommand,
    /// How long each part is measured.
    #[arg(long, default_value_t = 5, global = true)]
    seconds: u64,
    /// How many callers wait for an answer at any time.
    #[arg(long, default_value_t = 64, global = true)]
    concurrency: usize,
}

#[derive(Subcommand)]
enum LoadCommand {
    /// Durable submissions through the engine, beside durable single-row INSERTs.
    Submit,
    /// `POST /v1/intents` over loopback, signed and idempotent, beside submissions through the engine.
    Http,
    /// `GET /v1/executions/{reference}` over loopback, beside a bare route that returns the same bytes.
    Reads,
    /// The FIX echo acceptor over loopback, beside a bare echo of bytes.
    Fix {
        /// A command that starts another engine's echo acceptor, to be measured in the same run; it prints
        /// `listening HOST:PORT` and has sessions FIX.4.4 DVP with CLNT0 to CLNT7.
        #[arg(long, value_name = "COMMAND")]
        peer: Option<String>,
    },
    /// NewOrderSingle over loopback to its committed ExecutionReport, beside the engine with the same orders.
    FixOrders {
        /// Archive no messages.
        #[arg(long)]
        without_archive: bool,
    },
    /// Contract events from anvil into PostgreSQL, beside fetching and decoding them and keeping nothing; then how far
    /// behind ten events a block are, and the memory that a million take.
    Backfill {
        #[arg(long, default_value_t = 100_000)]
        events: u64,
        /// Events of the run whose memory is looked at; none: it is left out.
        #[arg(long, default_value_t = 1_000_000)]
        many: u64,
    },
    /// Orders of tokens for money, of tokens for tokens and of money for money over REST to their anchored receipts in
    /// the sandbox, one relayer account and one block a second, beside what its blocks have gas for.
    Settle {
        #[command(flatten)]
        size: Size,
        #[command(flatten)]
        program: Program,
        /// Where the relayer's key is: in the process, in a token of SoftHSM2, or in a remote signer over TLS.
        #[arg(long, value_name = "SIGNER", default_value = "local")]
        signer: SignerKind,
    },
    /// Orders of money for money over FIX to Filled and over REST to `payout.completed`, with settlement in the same
    /// process: by the simulated rails, whose books are in the database, beside a rail in memory. The processor time of
    /// an order by process, and the statements it takes.
    SettleFiat,
    /// Webhook deliveries to a TLS receiver, beside the same HTTP client in a bare loop.
    Webhooks,
    /// Events to readers of `GET /v1/events/stream`, beside a bare route that passes the same bytes; how late each comes,
    /// and the memory that the readers take.
    Stream {
        #[arg(long, default_value_t = 1_000)]
        readers: usize,
    },
    /// Resting range orders: accepted a second, loaded by a restart beside rows read, memory of an order, the time of a
    /// price change that reaches none, and the orders that a price change looks at beside those that it fills.
    Auctions {
        #[arg(long, default_value_t = 100_000)]
        orders: usize,
    },
    /// Orders, statuses, jobs and every screen of the console over a history of few orders, and over one of this number
    /// of orders.
    Grow {
        #[arg(long, default_value_t = 1_000_000)]
        orders: i64,
        /// Keep the histories here, for the next time.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// The floor of `fix`: echoes its input.
    #[command(hide = true)]
    BareEcho,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let LoadCommand::BareEcho = cli.what {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(dvp_benches::fix::server::bare_echo());
    }
    if let LoadCommand::Settle { signer: SignerKind::Pkcs11, .. } = cli.what
        && dvp_benches::settle::signer::needs_token()
    {
        return dvp_benches::settle::signer::again_with_token();
    }
    progress::show("load");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Figures { lines, missed } = runtime.block_on(measured(cli))?;
    for line in lines {
        writeln!(std::io::stdout(), "{line}")?;
    }
    ensure!(missed.is_empty(), "{missed}");
    Ok(())
}

async fn measured(Cli { what, seconds, concurrency, .. }: Cli) -> anyhow::Result<Figures> {
    Ok(match what {
        LoadCommand::Submit => dvp_benches::submit::measure(seconds, concurrency).await?.into(),
        LoadCommand::Http => dvp_benches::http::measure(seconds, concurrency).await?.into(),
        LoadCommand::Reads => dvp_benches::http::measure_reads(seconds, concurrency).await?.into(),
        LoadCommand::Fix { peer } => {
            let measure = move || dvp_benches::fix::measure(seconds, peer.as_deref());
            tokio::task::spawn_blocking(measure).await??.into()
        }
        LoadCommand::FixOrders { without_archive } => {
            dvp_benches::fix_orders::measure(seconds, !without_archive).await?.into()
        }
        LoadCommand::Backfill { events, many } => {
            dvp_benches::backfill::measure(events, many, seconds).await?.into()
        }
        LoadCommand::Settle { size, program, signer } => {
            dvp_benches::settle::measure(&program.path()?, size, signer).await?.into()
        }
        LoadCommand::SettleFiat => dvp_benches::settle_fiat::measure(seconds).await?.into(),
        LoadCommand::Webhooks => dvp_benches::webhooks::measure(seconds, concurrency).await?.into(),
        LoadCommand::Stream { readers } => dvp_benches::stream::measure(seconds, readers).await?,
        LoadCommand::Auctions { orders } => dvp_benches::auctions::measure(orders, concurrency).await?.into(),
        LoadCommand::Grow { orders, dir } => dvp_benches::grow::measure(dir.as_deref(), orders).await?,
        // It has a runtime of one thread, and never ends.
        LoadCommand::BareEcho => Figures::default(),
    })
}
