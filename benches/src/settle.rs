//! Orders of tokens for money, of tokens for tokens and of money for money, from their submission over REST to their
//! anchored receipt: the sandbox with one relayer account and one block a second, beside the orders that its blocks
//! have gas for.

pub mod signer;

use std::ops::Range;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, bail, ensure};
use dvp_core::context::now;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::signer::Signer;
pub use self::signer::SignerKind;
use crate::crash::check::count;
use crate::crash::process::{Process, text};
use crate::crash::rest::{Wallet, deliver_token, fiat_order, pay_with_token};
use crate::drill::{until, with_log};
use crate::figure::{Figure, per_second};
use crate::harness::ACCOUNT;
use crate::http::Keys;
use crate::proc;
use crate::progress;
use crate::rpc::{Blocks, Rpc};

/// Of the input token, in its units.
const AMOUNT: u64 = 10_000_000;
/// Requests on their way at any time.
const CALLERS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Size {
    /// Orders of as many wallets.
    #[arg(long, default_value_t = 3_000)]
    pub orders: usize,
    /// Orders of wallets that have ordered before: `--orders` at most.
    #[arg(long, default_value_t = 2_000)]
    pub again: usize,
    /// Orders of one wallet, one after the other in its nonces.
    #[arg(long, default_value_t = 300)]
    pub of_one: usize,
    /// Orders of tokens for tokens, by wallets that have ordered before and hold the token that they get: `--orders` at
    /// most.
    #[arg(long, default_value_t = 2_000)]
    pub token_to_token: usize,
    /// Orders of money for money: nothing of them but their receipts is on the chain.
    #[arg(long, default_value_t = 5_000)]
    pub fiat: usize,
    /// Anchors that wait while a token order is locked.
    #[arg(long, default_value_t = 20_000)]
    pub anchors: i64,
}

struct MeasuredSandbox {
    process: Process,
    ready: Value,
    rpc: Rpc,
    client: reqwest::Client,
}

/// The limits on an order's use of the chain.
#[derive(Clone, Copy)]
struct Goal {
    gas: u64,
    /// Of 1,000 orders.
    transactions: u64,
}

const TOKEN_TO_FIAT: Goal = Goal { gas: 130_000, transactions: 350 };
const TOKEN_TO_TOKEN: Goal = Goal { gas: 120_000, transactions: 350 };
/// An anchor of a full batch.
const FIAT: Goal = Goal { gas: 3_400, transactions: 32 };

struct Lot {
    orders: usize,
    completed: Duration,
    anchored: Duration,
    blocks: Blocks,
    /// Processor time from the first submission until all were completed: this process's, then that of [`PROCESSES`].
    worked: Vec<Duration>,
}

/// Beside the callers, which are this process.
const PROCESSES: [&str; 3] = ["dvp", "postgres", "anvil"];

/// Measures one order alone, orders of many wallets, orders of one wallet, orders of tokens for tokens, orders of money
/// for money, and an order behind a backlog of anchors.
pub async fn measure(binary: &Path, size: Size, signer: SignerKind) -> anyhow::Result<Vec<Figure>> {
    progress::expect(7);
    let (mut place, _files) = MeasuredSandbox::start(binary, signer).await?;
    let outcome = place.figures(size).await;
    let outcome = with_log(outcome, || place.process.log_tail());
    place.process.stop().await?;
    outcome
}

impl MeasuredSandbox {
    /// Beside it what it needs for as long as it runs.
    async fn start(binary: &Path, signer: SignerKind) -> anyhow::Result<(Self, (TempDir, Signer))> {
        let dir = tempfile::tempdir()?;
        let signer = Signer::start(signer, dir.path()).await?;
        let mut process = Process::start_with(binary, dir.path(), signer.args())?;
        let ready = process.ready_within(Duration::from_secs(120)).await?;
        signer.allow(&process.data_dir().join("deployment.json"))?;
        let rpc = Rpc::new(text(&ready, "/chain/rpcUrl")?);
        Ok((Self { process, ready, rpc, client: reqwest::Client::new() }, (dir, signer)))
    }

    async fn figures(&self, size: Size) -> anyhow::Result<Vec<Figure>> {
        let wallets = self.wallets(size).await?;
        let (alone, rest) = wallets.split_at(2);
        let (one, many) = rest.split_at(1);
        let single = self.lot(to_fiat(&alone[..1], 0..1)?, CALLERS).await?.completed;
        let of_many = self.lot(to_fiat(many, 0..1)?, CALLERS).await?;
        let of_one = self.lot(to_fiat(one, 0..u64::try_from(size.of_one)?)?, 1).await?;
        let of_known = self.lot(to_fiat(&many[..size.again.min(many.len())], 1..2)?, CALLERS).await?;
        let again = &many[..size.token_to_token.min(many.len())];
        let swapped = self.lot(self.to_token(again, 2)?, CALLERS).await?;
        let bodies = (0..size.fiat).map(|_| Ok(fiat_order(ACCOUNT)?.to_string()));
        let fiat = self.lot(bodies.collect::<anyhow::Result<_>>()?, CALLERS).await?;
        let behind = self.behind_anchors(&alone[1..], size.anchors).await?;
        progress::done("behind anchors");
        let single = u64::try_from(single.as_millis())?;
        let mut figures = vec![Figure::new("one token order alone, to completed", single, "ms", 1000)];
        figures.extend(of_many.figures("of many wallets", TOKEN_TO_FIAT));
        figures.extend(of_known.figures("of many wallets again", TOKEN_TO_FIAT));
        figures.extend(of_known.processor_time());
        figures.extend(of_one.figures("of one wallet", TOKEN_TO_FIAT));
        figures.extend(swapped.figures("tokens for tokens", TOKEN_TO_TOKEN));
        figures.extend(fiat.figures("money for money", FIAT));
        let name = "blocks until a lock, behind waiting anchors and alone";
        figures.push(Figure::new(name, behind.0, "blocks", behind.1));
        Ok(figures)
    }

    /// Wallets that nobody has used, with tokens for all their orders: two for single orders, one for many, and the
    /// rest for one each.
    async fn wallets(&self, size: Size) -> anyhow::Result<Vec<Wallet>> {
        let (started, count) = (now().unix_secs(), size.orders + 3);
        let mut wallets = Vec::with_capacity(count);
        let mut owners = Vec::with_capacity(count);
        for n in 0..count {
            let key = alloy::primitives::keccak256(format!("{started} {n}"));
            let signer = PrivateKeySigner::from_bytes(&B256::from(key))?;
            owners.push(signer.address());
            wallets.push(Wallet::with_signer(&self.ready, signer)?);
        }
        let [pays, gets] =
            ["/chain/tokens/0/address", "/chain/tokens/1/address"].map(|at| text(&self.ready, at));
        let permit = Address::from_str(text(&self.ready, "/chain/contracts/permit")?)?;
        let amount = u128::from(AMOUNT) * u128::try_from(size.of_one.max(3))?;
        self.rpc.furnish(Address::from_str(pays?)?, permit, &owners, amount).await?;
        // The first units of a token cost the chain another word.
        self.rpc.furnish(Address::from_str(gets?)?, permit, &owners, 1).await?;
        Ok(wallets)
    }

    fn to_token(&self, wallets: &[Wallet], nonce: u64) -> anyhow::Result<Vec<String>> {
        let token = text(&self.ready, "/chain/tokens/1/address")?;
        let order = |wallet: &Wallet| {
            let mut order = fiat_order(ACCOUNT)?;
            pay_with_token(&mut order, wallet, &wallet.permit_with(nonce, AMOUNT)?)?;
            deliver_token(&mut order, token)?;
            Ok(order.to_string())
        };
        wallets.iter().map(order).collect()
    }

    async fn database(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(text(&self.ready, "/databaseUrl")?).await?)
    }

    async fn lot(&self, bodies: Vec<String>, callers: usize) -> anyhow::Result<Lot> {
        let mut database = self.database().await?;
        let (from, before) = (self.rpc.head().await?, count(&mut database, COMPLETED).await?);
        let (orders, began, worked) = (bodies.len(), Instant::now(), proc::worked(&PROCESSES));
        let due = before + i64::try_from(orders)?;
        let submitting = self.submit(bodies, callers);
        let following = async {
            counted(&mut database, COMPLETED, due).await?;
            let (completed, until_completed) = (began.elapsed(), proc::worked(&PROCESSES));
            counted(&mut database, ANCHORED, due).await?;
            anyhow::Ok((completed, began.elapsed(), until_completed))
        };
        let ((), (completed, anchored, until_completed)) = tokio::try_join!(submitting, following)?;
        let worked = until_completed.iter().zip(&worked).map(|(after, before)| after.saturating_sub(*before));
        let blocks = self.rpc.blocks(from, self.rpc.head().await?).await?;
        progress::done(format!("{orders} orders"));
        Ok(Lot { orders, completed, anchored, blocks, worked: worked.collect() })
    }

    /// So many callers send the orders; one caller sends them in their order.
    async fn submit(&self, bodies: Vec<String>, callers: usize) -> anyhow::Result<()> {
        let places = Arc::new(Semaphore::new(callers));
        let mut sent = JoinSet::new();
        for body in bodies {
            let place = Arc::clone(&places).acquire_owned().await?;
            let request = self.request(&body)?;
            sent.spawn(async move {
                let response = request.send().await?;
                let status = response.status();
                let answer = response.text().await?;
                ensure!(status.as_u16() == 202, "an order was answered with {status}: {answer}");
                drop(place);
                anyhow::Ok(())
            });
        }
        while let Some(done) = sent.join_next().await {
            done??;
        }
        Ok(())
    }

    fn request(&self, body: &str) -> anyhow::Result<reqwest::RequestBuilder> {
        let (place, key) = ((text(&self.ready, "/http")?, "/v1/intents"), uuid::Uuid::new_v4().to_string());
        Keys::of(&self.ready["partner"])?.post(&self.client, place, &key, body)
    }

    /// In how many blocks an order is locked: behind a backlog of anchors, and alone.
    async fn behind_anchors(&self, wallets: &[Wallet], anchors: i64) -> anyhow::Result<(u64, u64)> {
        let [wallet] = wallets else { bail!("one wallet") };
        let alone = self.blocks_to_lock(wallet, 0).await?;
        let mut database = self.database().await?;
        let chain_id = self.ready.pointer("/chain/chainId").and_then(Value::as_i64).context("chainId")?;
        let escrow = text(&self.ready, "/chain/contracts/escrow")?;
        sqlx::query(ADD_ANCHORS).bind(anchors).bind(chain_id).bind(escrow).execute(&mut database).await?;
        // The relayer is at it.
        let waiting = "select count(*) from chain_command where kind = 'anchor' and state = 'sent'";
        counted(&mut database, waiting, 1).await?;
        Ok((self.blocks_to_lock(wallet, 1).await?, alone))
    }

    async fn blocks_to_lock(&self, wallet: &Wallet, nonce: u64) -> anyhow::Result<u64> {
        let orders = to_fiat(std::slice::from_ref(wallet), nonce..nonce + 1)?;
        let mut database = self.database().await?;
        let locks = count(&mut database, LOCKS).await?;
        let from = self.rpc.head().await?;
        self.submit(orders, 1).await?;
        counted(&mut database, LOCKS, locks + 1).await?;
        let (number,): (i64,) =
            sqlx::query_as("select max(block_number) from chain_log where event = 'Created' and canonical")
                .fetch_one(&mut database)
                .await?;
        Ok(u64::try_from(number)?.saturating_sub(from))
    }
}

/// Orders of tokens for money, one of each wallet and nonce, in their order.
fn to_fiat(wallets: &[Wallet], nonces: Range<u64>) -> anyhow::Result<Vec<String>> {
    let order = |(wallet, nonce): (&Wallet, u64)| {
        let mut order = fiat_order(ACCOUNT)?;
        pay_with_token(&mut order, wallet, &wallet.permit_with(nonce, AMOUNT)?)?;
        Ok(order.to_string())
    };
    wallets.iter().flat_map(|wallet| nonces.clone().map(move |nonce| (wallet, nonce))).map(order).collect()
}

const COMPLETED: &str = "select count(*) from execution where state_name = 'completed'";
const ANCHORED: &str = "select count(*) from execution where state_name = 'completed' \
                        and jsonb_typeof(state -> 'finality') = 'object'";
const LOCKS: &str = "select count(*) from chain_log where event = 'Created' and canonical";
/// Receipts without an execution.
const ADD_ANCHORS: &str = "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload) \
                           select $2, 'backlog ' || n, 'backlog ' || n, hash, decode(substr($3, 3), 'hex'), 'anchor', jsonb_build_object( \
                               'kind', 'anchor', 'content_hash', '0x' || encode(hash, 'hex')) \
                           from generate_series(1, $1) n, lateral (select sha256(n::text::bytea) as hash) h";

async fn counted(database: &mut PgConnection, sql: &'static str, due: i64) -> anyhow::Result<()> {
    until(PATIENCE, sql, async || Ok((count(database, sql).await? >= due).then_some(()))).await
}

impl Lot {
    /// The processor time of an order, beside the available time while the orders were completed.
    fn processor_time(&self) -> Vec<Figure> {
        let names = [
            "processors, callers",
            "processors, the service",
            "processors, PostgreSQL",
            "processors, the node",
        ];
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let each = |time: Duration| {
            u64::try_from(time.as_micros() / u128::try_from(self.orders).unwrap_or(1).max(1))
                .unwrap_or(u64::MAX)
        };
        let had = each(self.completed.saturating_mul(u32::try_from(processors).unwrap_or(1)));
        let all = names.into_iter().zip(&self.worked);
        all.map(|(name, worked)| Figure::new(name, each(*worked), "us/order", had)).collect()
    }

    /// Rates beside the orders a second that the blocks of this time had gas for; gas and transactions beside what is
    /// allowed an order.
    fn figures(&self, of: &str, goal: Goal) -> [Figure; 4] {
        let Self { orders, completed, anchored, blocks, worked: _ } = self;
        let each = |sum: u64| sum / u64::try_from(*orders).unwrap_or(u64::MAX).max(1);
        let gas = each(blocks.gas_used);
        let room = blocks.gas_limit.saturating_mul(blocks.count) / gas.max(1);
        let limit = per_second(usize::try_from(room).unwrap_or(usize::MAX), *anchored);
        let rate =
            |what, time| Figure::new(format!("{of}, {what}"), per_second(*orders, time), "orders/s", limit);
        let transactions = each(blocks.transactions.saturating_mul(1000));
        [
            rate("completed", *completed),
            rate("anchored", *anchored),
            Figure::new(format!("gas, {of}"), gas, "gas/order", goal.gas),
            Figure::new(
                format!("transactions, {of}"),
                transactions,
                "transactions/1000 orders",
                goal.transactions,
            ),
        ]
    }
}
