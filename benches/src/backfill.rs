//! Backfilling a chain into PostgreSQL, beside fetching and decoding the same blocks and keeping nothing.
//!
//! The chain is anvil's, with a contract in the anchor's place that emits many numbered events in a transaction. Both
//! sides read the same blocks from the same node, in turns, several times; the best of each counts.

mod distant;

use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::providers::{DynProvider, Provider};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use anyhow::{Context as _, ensure};
use dvp_chain_indexer::ChainConfig;
use dvp_chain_indexer::contracts::storm::AnchorStorm;
use dvp_chain_indexer::deploy::{DeployPlan, Deployment, deploy};
use dvp_chain_indexer::indexer::{Progress, backfill, run_indexer, scan};
use dvp_chain_indexer::reader::HttpReader;
use dvp_chain_indexer::rpc;
use dvp_sandbox::anvil::{Anvil, AnvilOptions};
use dvp_sandbox::embedded::{Options, Postgres};
use dvp_store::database::pool::pool_options;
use dvp_store::{MIGRATOR, PgPool};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, per_second};
use crate::proc::{Vitals, worked};
use crate::progress;

/// Events in a block: ten transactions of five.
const IN_A_BLOCK: u64 = 50;
const IN_A_TRANSACTION: u64 = 5;
const SIZE: u64 = 80;
const ROUNDS: u32 = 3;
const WORKERS: [&str; 2] = ["postgres", "anvil"];
const SENDER: Address = Address::repeat_byte(0x5e);

/// A chain with a contract that emits bursts of anchor events on request.
pub struct Storm {
    pub node: Anvil,
    pub deployment: Deployment,
    pub provider: DynProvider,
}

impl Storm {
    pub async fn start() -> anyhow::Result<Self> {
        let options = AnvilOptions { slots_in_an_epoch: 1, ..AnvilOptions::default() };
        let node = Anvil::start(options).await.context("anvil")?;
        let provider = rpc::connect(&node.rpc_url())?;
        let key = &node.accounts().first().context("an account")?.private_key;
        let admin = PrivateKeySigner::from_bytes(key)?;
        let mut deployment = deploy(&node.rpc_url(), &admin, &DeployPlan::default(), None).await?;
        // Its anchors count. A granted role would be an event, too.
        deployment.relayers.push(SENDER);
        let storm = Self { node, deployment, provider };
        let code = storm.code().await?;
        storm.ask("anvil_setCode", json!([storm.deployment.anchor, code])).await?;
        storm.ask("anvil_impersonateAccount", json!([SENDER])).await?;
        storm.ask("anvil_setBalance", json!([SENDER, U256::from(10).pow(U256::from(24))])).await?;
        storm.ask("evm_setAutomine", json!([false])).await?;
        Ok(storm)
    }

    async fn ask(
        &self,
        method: &'static str,
        params: serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        Ok(self.provider.raw_request(method.into(), params).await?)
    }

    /// The runtime code of the contract, which its constructor returns.
    async fn code(&self) -> anyhow::Result<Bytes> {
        let request = json!({"from": SENDER, "data": AnchorStorm::BYTECODE});
        Ok(self.provider.raw_request("eth_call".into(), json!([request, "latest"])).await?)
    }

    /// A block with a number of events of one account, so many in a transaction.
    pub async fn block(&self, events: u64, in_a_transaction: u64) -> anyhow::Result<()> {
        let count = U256::from(in_a_transaction);
        let data: Bytes = AnchorStorm::stormCall { count }.abi_encode().into();
        for _ in 0..events / in_a_transaction {
            let call =
                json!([{"from": SENDER, "to": self.deployment.anchor, "data": data, "gas": "0xb71b00"}]);
            let _: B256 = self.provider.raw_request("eth_sendTransaction".into(), call).await?;
        }
        self.ask("anvil_mine", json!(["0x1"])).await?;
        Ok(())
    }

    /// Empty blocks, so that earlier blocks are final, with room for those read one by one.
    pub async fn settle(&self) -> anyhow::Result<()> {
        self.ask("anvil_mine", json!(["0x4"])).await?;
        Ok(())
    }

    /// As a service reads it, with nothing kept off that is final.
    pub fn config(&self) -> ChainConfig {
        let config = ChainConfig::public("storm", &self.node.rpc_url(), self.deployment.clone());
        ChainConfig { range_margin: 0, ..config }
    }
}

pub async fn database() -> anyhow::Result<(tempfile::TempDir, Postgres, PgPool)> {
    let dir = tempfile::tempdir()?;
    let postgres = Postgres::start(dir.path(), Options::default()).await?;
    let pool = pool_options().max_connections(4).connect_with(postgres.connect_options()).await?;
    MIGRATOR.run(&pool).await?;
    Ok((dir, postgres, pool))
}

/// The best of some rounds, with the best of as many beside it that keep nothing.
async fn measure_rounds(
    name: &'static str,
    storm: &Storm,
    pool: &PgPool,
    (events, ours): (u64, u64),
) -> anyhow::Result<Figure> {
    let node = HttpReader::new(&storm.node.rpc_url())?;
    let head = rpc::head(&storm.provider).await?.number;
    let (mut best, mut floor) = (Duration::MAX, Duration::MAX);
    let count = usize::try_from(events)?;
    for round in 0..ROUNDS {
        let from = storm.deployment.deployed_block;
        let before = worked(&WORKERS);
        let started = Instant::now();
        let scanned = scan(&node, &storm.deployment, (from, head), SIZE).await?;
        let scanning = started.elapsed();
        ensure!(scanned == events, "scanned {scanned} events of {events}");
        tell(name, round, "scanned", per_second(count, scanning), &before);
        floor = floor.min(scanning);
        sqlx::query("truncate chain_cursor, chain_block, chain_log, chain_fact, chain_status, lease cascade")
            .execute(pool)
            .await?;
        let before = worked(&WORKERS);
        let started = Instant::now();
        let done = backfill(pool.clone(), storm.config(), |_| {}, CancellationToken::new()).await?;
        let filling = started.elapsed();
        tell(name, round, "kept", per_second(count, filling), &before);
        best = best.min(filling);
        let (kept, facts): (i64, i64) = sqlx::query_as(
            "select (select count(*) from chain_log where canonical), (select count(*) from chain_fact)",
        )
        .fetch_one(pool)
        .await?;
        ensure!(
            u64::try_from(kept)? == events && done.events == events,
            "{kept} events were kept of {events}"
        );
        ensure!(u64::try_from(facts)? == ours, "{facts} facts were recorded of {ours}");
    }
    Ok(Figure::new(name, per_second(count, best), "events/s", per_second(count, floor)))
}

/// A command for every event of the storm, carried out long ago.
async fn expect(storm: &Storm, pool: &PgPool, events: u64) -> anyhow::Result<()> {
    let hashes: Vec<Vec<u8>> =
        (1..=events).map(|seq| keccak256(U256::from(seq).to_be_bytes::<32>()).to_vec()).collect();
    sqlx::query(
        "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload, state, done_at)
         select $1, encode(entity, 'hex'), '', entity, $3, 'anchor', '{}', 'done', now()
         from unnest($2::bytea[]) as hash (entity)",
    )
    .bind(storm.deployment.chain_id.cast_signed())
    .bind(hashes)
    .bind(storm.deployment.escrow.as_slice())
    .execute(pool)
    .await?;
    sqlx::query("analyze chain_command").execute(pool).await?;
    Ok(())
}

fn tell(name: &str, round: u32, what: &str, pace: u64, before: &[Duration]) {
    let after = worked(&WORKERS);
    let worked: Vec<_> =
        after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect();
    progress::done(format!(
        "{name}, round {round}: {pace} events/s {what}, we, PostgreSQL and anvil worked {worked:?}"
    ));
}

/// So many events from a node into PostgreSQL: when nobody here waits for them, and when each has a command, so that
/// a fact is given for it too. Then how far behind an indexer is, and its memory.
pub async fn measure(events: u64, many: u64, seconds: u64) -> anyhow::Result<Vec<Figure>> {
    progress::expect(4 * u64::from(ROUNDS) + 2 + u64::from(many > 0));
    let storm = Storm::start().await?;
    for _ in 0..events / IN_A_BLOCK {
        storm.block(IN_A_BLOCK, IN_A_TRANSACTION).await?;
    }
    storm.settle().await?;
    let (_dir, postgres, pool) = database().await?;
    let mut figures = vec![measure_rounds("backfill", &storm, &pool, (events, 0)).await?];
    expect(&storm, &pool, events).await?;
    figures.push(measure_rounds("backfill_of_ours", &storm, &pool, (events, events)).await?);
    pool.close().await;
    postgres.stop().await?;
    figures.push(lag(seconds).await?);
    progress::done("how far behind it is");
    figures.push(distant::lag(seconds.max(20)).await?);
    progress::done("how far behind it is over a distant endpoint");
    if many > 0 {
        figures.push(memory(many).await?);
        progress::done("its memory");
    }
    Ok(figures)
}

const BLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// How long after a block is there its ten events are in the database: the worst of several blocks, in milliseconds.
/// The floor is the time between blocks.
pub async fn lag(seconds: u64) -> anyhow::Result<Figure> {
    let storm = Storm::start().await?;
    storm.settle().await?;
    let (_dir, postgres, pool) = database().await?;
    let config = ChainConfig {
        poll_interval: Duration::from_millis(200),
        ws_url: Some(storm.node.ws_url()),
        finality_margin: 64,
        ..storm.config()
    };
    let shutdown = CancellationToken::new();
    let indexing = tokio::spawn(run_indexer(pool.clone(), config, shutdown.clone()));
    let mut ticks = tokio::time::interval(BLOCK_INTERVAL);
    let (mut worst, mut expected) = (Duration::ZERO, 0_i64);
    for round in 0..seconds.saturating_add(2) {
        ticks.tick().await;
        storm.block(10, IN_A_TRANSACTION).await?;
        expected = expected.saturating_add(10);
        let mined = Instant::now();
        while kept(&pool).await? < expected {
            ensure!(mined.elapsed() < Duration::from_secs(60), "events do not arrive");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // The first ones wait for the lease and for earlier blocks.
        if round >= 2 {
            worst = worst.max(mined.elapsed());
        }
    }
    shutdown.cancel();
    indexing.await??;
    pool.close().await;
    postgres.stop().await?;
    let [worst, interval] = [worst, BLOCK_INTERVAL].map(|time| u64::try_from(time.as_millis()));
    Ok(Figure::new("hot_zone_lag", worst?, "ms", interval?))
}

async fn kept(pool: &PgPool) -> anyhow::Result<i64> {
    let (kept,) = sqlx::query_as("select count(*) from chain_log where canonical").fetch_one(pool).await?;
    Ok(kept)
}

/// The most memory of this process while so many events are read, in KiB. The floor is the most after the first
/// tenth of them, or after the first step, which may be more.
pub async fn memory(events: u64) -> anyhow::Result<Figure> {
    let storm = Storm::start().await?;
    let blocks = events / IN_A_FULL_BLOCK;
    for _ in 0..blocks {
        storm.block(IN_A_FULL_BLOCK, IN_A_FULL_BLOCK / 2).await?;
    }
    storm.settle().await?;
    let (_dir, postgres, pool) = database().await?;
    let (mut early, mut most) = (0, 0);
    let tell = |progress: &Progress| {
        let now = Vitals::of(std::process::id()).map_or(0, |vitals| vitals.resident_bytes / 1024);
        most = most.max(now);
        if early == 0 || progress.events <= events / 10 {
            early = early.max(now);
        }
    };
    let done = backfill(pool.clone(), storm.config(), tell, CancellationToken::new()).await?;
    ensure!(done.events == events, "{} events were kept of {events}", done.events);
    pool.close().await;
    postgres.stop().await?;
    Ok(Figure::new("backfill_memory", most, "KiB", early))
}

/// Two transactions of five hundred.
const IN_A_FULL_BLOCK: u64 = 1_000;
