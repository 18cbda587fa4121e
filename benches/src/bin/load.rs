//! End-to-end figures, each beside its floor in the same run: one JSON line.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::{Parser, Subcommand};
use dvp_benches::fix_orders::Subject;
use dvp_benches::settle::{Rate, Ratio, SignerKind, Size};

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
    /// Kept for scripts: the output is JSON in any case.
    #[arg(long, global = true)]
    json: bool,
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
    /// NewOrderSingle over loopback to its committed ExecutionReport, beside `POST /v1/intents` and the engine with the
    /// same orders; then to Filled, with settlement in the same process.
    FixOrders {
        /// Archive no messages.
        #[arg(long)]
        without_archive: bool,
        /// Acceptance only.
        #[arg(long)]
        without_settlement: bool,
    },
    /// Metrics of an order over REST, over FIX and to Filled, beside the service's processor time for the order.
    Metrics,
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
        /// The program whose sandbox is measured; that beside this one unless another is named.
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        /// Where the relayer's key is: in the process, in a token of SoftHSM2, or in a remote signer over TLS.
        #[arg(long, value_name = "SIGNER", default_value = "local")]
        signer: SignerKind,
        /// Tokens for money with each signer in turn, this number of rounds: fails when the median of a signer's rates
        /// over the local key's is below 0.8.
        #[arg(long, value_name = "ROUNDS", conflicts_with = "signer")]
        compare_signers: Option<usize>,
    },
    /// Orders of money for money over FIX to Filled and over REST to `payout.completed`, with settlement in the same
    /// process: by the simulated rails, whose books are in the database, beside a rail in memory. The processor time of
    /// an order by process, and the statements it takes.
    SettleFiat,
    /// Webhook deliveries to a TLS receiver, beside the same HTTP client in a bare loop.
    Webhooks,
    /// Resting range orders: accepted a second, loaded by a restart beside rows read, memory of an order, the time of a
    /// price change that reaches none, and the orders that a price change looks at beside those that it fills.
    Auctions {
        #[arg(long, default_value_t = 100_000)]
        orders: usize,
    },
    /// Pages of a feed of this number of events, compared with pages of one of ten thousand.
    FeedPages {
        #[arg(long, default_value_t = 10_000_000)]
        events: i64,
        /// Keep the feeds here, filled, for the next time.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Every screen of the console over a history of this number of orders: the time of each page at the server.
    Console {
        #[arg(long, default_value_t = 1_000_000)]
        orders: i64,
        /// How often each page is read.
        #[arg(long, default_value_t = 20)]
        rounds: usize,
        /// Keep the history here, for the next time.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Orders, statuses, pages and jobs over a history of few orders, and over one of this number of orders.
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
    let figures = match &cli.what {
        LoadCommand::Submit => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            vec![runtime.block_on(dvp_benches::submit::measure(cli.seconds, cli.concurrency))?]
        }
        LoadCommand::Http => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            vec![runtime.block_on(dvp_benches::http::measure(cli.seconds, cli.concurrency))?]
        }
        LoadCommand::Reads => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            vec![runtime.block_on(dvp_benches::reads::measure(cli.seconds, cli.concurrency))?]
        }
        LoadCommand::Backfill { events, many } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(dvp_benches::backfill::measure_all(*events, *many, cli.seconds))?
        }
        LoadCommand::Settle { size, binary, signer, compare_signers } => {
            let in_token = *signer == SignerKind::Pkcs11 || compare_signers.is_some();
            if in_token && dvp_benches::settle::signer::needs_token() {
                return dvp_benches::settle::signer::again_with_token();
            }
            let beside = std::env::current_exe()?.with_file_name("dvp");
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let binary = binary.as_deref().unwrap_or(&beside);
            if let Some(rounds) = compare_signers {
                return runtime.block_on(compare_signers_of(binary, size.orders, *rounds));
            }
            runtime.block_on(dvp_benches::settle::measure(binary, *size, *signer))?
        }
        LoadCommand::SettleFiat => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let (figures, statements) = runtime.block_on(dvp_benches::settle_fiat::measure(cli.seconds))?;
            for statement in statements {
                writeln!(std::io::stdout(), "{}", statement.json())?;
            }
            figures
        }
        LoadCommand::Webhooks => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            vec![runtime.block_on(dvp_benches::webhooks::measure(cli.seconds, cli.concurrency))?]
        }
        LoadCommand::Auctions { orders } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(dvp_benches::auctions::measure(*orders, cli.concurrency))?
        }
        LoadCommand::FeedPages { events, dir } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            vec![runtime.block_on(dvp_benches::feed_pages::measure(*events, dir.as_deref()))?]
        }
        LoadCommand::Console { orders, rounds, dir } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let rendered =
                runtime.block_on(dvp_benches::screens::measure(dir.as_deref(), *orders, *rounds))?;
            for one in &rendered {
                writeln!(std::io::stdout(), "{}", one.json())?;
            }
            let slow = dvp_benches::screens::slow(&rendered);
            anyhow::ensure!(
                slow.is_empty(),
                "{} of {} pages take longer than {} ms: {}",
                slow.len(),
                rendered.len(),
                dvp_benches::screens::GOAL.as_millis(),
                slow.join(" ")
            );
            return Ok(());
        }
        LoadCommand::Grow { orders, dir } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let grown = runtime.block_on(dvp_benches::grow::measure(dir.as_deref(), *orders))?;
            for one in &grown {
                writeln!(std::io::stdout(), "{}", one.json())?;
            }
            let long: Vec<_> =
                grown.iter().filter(|one| one.is_too_long()).map(|one| one.name.as_str()).collect();
            anyhow::ensure!(
                long.is_empty(),
                "{} of {} kinds of work take longer than {} % of their time over the small history: {}",
                long.len(),
                grown.len(),
                dvp_benches::grow::BOUND,
                long.join("; ")
            );
            return Ok(());
        }
        LoadCommand::FixOrders { without_archive, without_settlement } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let subject = Subject { archives: !without_archive, settles: !without_settlement };
            runtime.block_on(dvp_benches::fix_orders::measure(cli.seconds, subject))?
        }
        LoadCommand::Metrics => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(dvp_benches::metrics::measure(cli.seconds))?
        }
        LoadCommand::Fix { peer } => dvp_benches::fix::measure(cli.seconds, peer.as_deref())?,
        LoadCommand::BareEcho => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            return runtime.block_on(dvp_benches::fix::server::bare_echo());
        }
    };
    for figure in figures {
        writeln!(std::io::stdout(), "{}", figure.json())?;
    }
    Ok(())
}

async fn compare_signers_of(binary: &Path, orders: usize, rounds: usize) -> anyhow::Result<()> {
    let print = |rate: &Rate| Ok(writeln!(std::io::stdout(), "{}", rate.json())?);
    let ratios = dvp_benches::settle::compare(binary, orders, rounds, print).await?;
    for ratio in &ratios {
        writeln!(std::io::stdout(), "{}", ratio.json())?;
    }
    ensure!(ratios.iter().all(Ratio::reached), "a signer is too slow");
    Ok(())
}
