//! A scene with a database: commands in, facts out, and the rows of the two services in between.

use super::{Order, Scene, eventually, raw, until};
use alloy::primitives::{Address, B256};
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::relayer::Relayer;
use dvp_chain_indexer::signing::Account;
use dvp_chain_indexer::sim::entity_of;
use dvp_chain_indexer::{ChainConfig, rpc, run_indexer, run_relayers};
use dvp_core::secrets::Vault;
use dvp_domain::chain::{ChainCommand, ChainFact, CreateCommand, OutputArgs, SwapCommand};
use dvp_sandbox::embedded::TestDatabase;
use dvp_store::PgPool;
use dvp_store::chain::commands::NewChainCommand;
use dvp_store::chain::{self as store, Cursor};
use dvp_store::database::lease::Lease;
use dvp_store::insert_batch::{self, InsertBatch};
use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Chain {
    pub(crate) scene: Scene,
    pub(crate) config: ChainConfig,
    pool: PgPool,
    _database: Option<TestDatabase>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) hash: B256,
    pub(crate) max_fee: u128,
    pub(crate) priority_fee: u128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptLog {
    pub(crate) block_hash: B256,
    pub(crate) tx_hash: B256,
    pub(crate) canonical: bool,
}

impl Chain {
    pub(crate) async fn new() -> Self {
        Self::of(Scene::new().await).await
    }

    /// One that is indexed and relayed.
    pub(crate) async fn running() -> (Self, Running) {
        let chain = Self::new().await;
        let running = Running::start(&chain);
        (chain, running)
    }

    pub(crate) async fn of(scene: Scene) -> Self {
        let database = TestDatabase::create().await;
        let mut config = ChainConfig::development(&scene.node.rpc_url(), scene.deployment.clone());
        config.poll_interval = Duration::from_millis(50);
        Self { scene, config, pool: database.pool().clone(), _database: Some(database) }
    }

    /// A second chain in the same database.
    pub(crate) fn beside(&self, scene: Scene) -> Self {
        let mut config = ChainConfig::development(&scene.node.rpc_url(), scene.deployment.clone());
        config.poll_interval = self.config.poll_interval;
        Self { scene, config, pool: self.pool(), _database: None }
    }

    pub(crate) fn pool(&self) -> PgPool {
        self.pool.clone()
    }

    pub(crate) async fn lease(&self, name: &str) -> Lease {
        let ttl = Duration::from_secs(60);
        Lease::acquire(&self.pool(), name, uuid::Uuid::new_v4(), ttl).await.unwrap().unwrap()
    }

    /// A relayer of the scene's account.
    pub(crate) fn relayer(&self) -> Relayer {
        self.relayer_of(self.scene.relayer.clone())
    }

    pub(crate) fn relayer_of(&self, account: impl Into<Account>) -> Relayer {
        Relayer::new(self.pool(), self.config.clone(), account, vault()).unwrap()
    }

    /// The account signs the waiting commands, and sends nothing.
    pub(crate) async fn sign_as(&self, account: &PrivateKeySigner) {
        let lease = self.lease("signer").await;
        let head = rpc::head(&self.scene.provider).await.unwrap();
        self.relayer_of(account.clone()).sign_ready(&lease, &head).await.unwrap();
        lease.release(&self.pool()).await.unwrap();
    }

    pub(crate) async fn cursor(&self) -> Option<Cursor> {
        let mut conn = self.pool.acquire().await.unwrap();
        store::find_cursor(&mut conn, self.config.chain_id).await.unwrap()
    }

    pub(crate) async fn rows<T>(&self, sql: &'static str) -> Vec<T>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        sqlx::query_as(sql).fetch_all(&self.pool).await.unwrap()
    }

    pub(crate) async fn one<T>(&self, sql: &'static str) -> T
    where
        (T,): for<'r> FromRow<'r, PgRow>,
        T: Send + Unpin,
    {
        self.rows::<(T,)>(sql).await.remove(0).0
    }

    /// Runs a statement; returns how many rows it has changed.
    pub(crate) async fn run(&self, sql: &'static str) -> u64 {
        sqlx::query(sql).execute(&self.pool).await.unwrap().rows_affected()
    }

    pub(crate) async fn command(&self, reference: &str, command: ChainCommand) {
        self.command_at(self.config.deployment.escrow, reference, command).await;
    }

    /// Inserts a command for the contracts with this escrow.
    pub(crate) async fn command_at(&self, escrow: Address, reference: &str, command: ChainCommand) {
        let new = NewChainCommand {
            chain_id: self.config.chain_id.cast_signed(),
            reference: reference.to_owned(),
            intent_id: format!("intent-{reference}"),
            entity: entity_of(&command).to_owned(),
            escrow: escrow.to_string(),
            command,
            trace: None,
        };
        let mut tx = self.pool().begin().await.unwrap();
        insert_batch::insert(&mut tx, &InsertBatch { commands: &[new], ..InsertBatch::default() })
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Inserts the commands that lock these orders, each under its id.
    pub(crate) async fn create_all<'a>(&self, orders: impl IntoIterator<Item = &'a Order>) {
        for order in orders {
            self.command(&order.id.to_string(), self.scene.create_command(order)).await;
        }
    }

    /// Inserts the commands that lock and fill an order.
    pub(crate) async fn create_and_fill(&self, reference: &str, order: &Order) {
        self.command(reference, self.scene.create_command(order)).await;
        self.command(reference, self.scene.fill_command(order)).await;
    }

    /// Waits until each of these orders is reported as locked.
    pub(crate) async fn all_created<'a>(&self, orders: impl IntoIterator<Item = &'a Order>) {
        for order in orders {
            self.fact(order.id, "created").await;
        }
    }

    pub(crate) async fn facts(&self, entity: B256) -> Vec<ChainFact> {
        sqlx::query("select payload from chain_fact where entity = $1 order by id")
            .bind(entity.as_slice())
            .fetch_all(&self.pool())
            .await
            .unwrap()
            .iter()
            .map(|row| serde_json::from_value(row.get("payload")).unwrap())
            .collect()
    }

    /// Inserts the commands to anchor these receipts, and waits until they are done.
    pub(crate) async fn anchors(&self, bytes: impl Iterator<Item = u8> + Clone) {
        for byte in bytes.clone() {
            self.command(&format!("receipt {byte}"), anchor(byte)).await;
        }
        for byte in bytes {
            self.state(&format!("receipt {byte}"), "anchor", "done").await;
        }
    }

    pub(crate) async fn fact(&self, entity: B256, kind: &str) {
        eventually(&format!("fact {kind}"), async || {
            let sql = "select 1 from chain_fact where entity = $1 and kind = $2";
            let found = sqlx::query(sql).bind(entity.as_slice()).bind(kind);
            found.fetch_optional(&self.pool()).await.unwrap()
        })
        .await;
    }

    pub(crate) async fn state(&self, reference: &str, kind: &str, state: &str) {
        eventually(&format!("{kind} of {reference} {state}"), async || {
            let sql = "select 1 from chain_command where reference = $1 and kind = $2 and state = $3";
            let found = sqlx::query(sql).bind(reference).bind(kind).bind(state);
            found.fetch_optional(&self.pool()).await.unwrap()
        })
        .await;
    }

    /// Waits for a refusal of a command that is not final; returns the reason.
    pub(crate) async fn troubled(&self, reference: &str, kind: &str) -> String {
        eventually(&format!("{kind} of {reference} in trouble"), async || {
            let sql = "select trouble from chain_command
                       where reference = $1 and kind = $2 and state = 'pending' and trouble is not null";
            let found = sqlx::query_scalar(sql).bind(reference).bind(kind);
            found.fetch_optional(&self.pool()).await.unwrap()
        })
        .await
    }

    pub(crate) async fn state_on_chain(&self, entity: B256, state: u8) {
        let what = format!("settlement state {state}");
        until(&what, async || self.scene.state(entity).await == state).await;
    }

    pub(crate) async fn attempts(&self) -> Vec<Attempt> {
        let sql = "select hash, max_fee::text, priority_fee::text from tx_attempt order by nonce, attempt";
        sqlx::query(sql)
            .fetch_all(&self.pool())
            .await
            .unwrap()
            .iter()
            .map(|row| Attempt {
                hash: B256::from_slice(row.get("hash")),
                max_fee: row.get::<&str, _>("max_fee").parse().unwrap(),
                priority_fee: row.get::<&str, _>("priority_fee").parse().unwrap(),
            })
            .collect()
    }

    pub(crate) async fn until_attempts(&self, count: usize) -> Vec<Attempt> {
        eventually("more attempts", async || {
            Some(self.attempts().await).filter(|attempts| attempts.len() >= count)
        })
        .await
    }

    pub(crate) async fn logs(&self, event: &str) -> Vec<KeptLog> {
        let sql =
            "select block_hash, tx_hash, canonical from chain_log where event = $1 order by observed_at";
        sqlx::query(sql)
            .bind(event)
            .fetch_all(&self.pool())
            .await
            .unwrap()
            .iter()
            .map(|row| KeptLog {
                block_hash: B256::from_slice(row.get("block_hash")),
                tx_hash: B256::from_slice(row.get("tx_hash")),
                canonical: row.get("canonical"),
            })
            .collect()
    }

    /// Waits until the transaction's event is canonical in another block than before.
    pub(crate) async fn until_canonical_elsewhere(&self, before: &KeptLog) {
        eventually("the event is in another block", async || {
            let sql = "select 1 from chain_log
                       where tx_hash = $1 and block_hash <> $2 and canonical and event = 'Created'";
            let found = sqlx::query(sql).bind(before.tx_hash.as_slice()).bind(before.block_hash.as_slice());
            found.fetch_optional(&self.pool()).await.unwrap()
        })
        .await;
    }

    pub(crate) async fn mined(&self, blocks: u64) {
        let _: Value = raw(&self.scene.provider, "anvil_mine", json!([blocks])).await;
    }

    /// Waits until it is so, while a block comes every second: that a block is final is noticed with a later one.
    pub(crate) async fn mined_until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let mut mined = Instant::now();
        until(what, async || {
            if mined.elapsed() > Duration::from_secs(1) {
                mined = Instant::now();
                self.mined(1).await;
            }
            is_so().await
        })
        .await;
    }

    /// Replaces the newest blocks by empty ones; the node forgets their transactions.
    pub(crate) async fn reorg(&self, depth: u64) {
        let _: Value = raw(&self.scene.provider, "anvil_reorg", json!([depth, []])).await;
    }

    /// Whether the node makes a block for each transaction.
    pub(crate) async fn automine(&self, on: bool) {
        let _: Value = raw(&self.scene.provider, "evm_setAutomine", json!([on])).await;
    }
}

/// The order as a swap, as the engine inserts it.
pub(crate) fn swap_command(scene: &Scene, order: &Order, receiver: Address, amount: u64) -> ChainCommand {
    let ChainCommand::Create(create) = scene.create_command(order) else { unreachable!() };
    let CreateCommand { entity, maker, solver, token, amount: input, lock_by, terms, permit, .. } = *create;
    let output = OutputArgs {
        token: scene.token.to_string(),
        receiver: receiver.to_string(),
        amount: amount.to_string(),
    };
    let swap = SwapCommand { entity, maker, solver, token, amount: input, lock_by, terms, output, permit };
    ChainCommand::Swap(Box::new(swap))
}

pub(crate) fn anchor(byte: u8) -> ChainCommand {
    ChainCommand::Anchor { content_hash: B256::repeat_byte(byte).to_string() }
}

/// Master keys that no order of these tests needs: their commands contain their own preimages.
pub(crate) fn vault() -> Arc<Vault> {
    Arc::new(Vault::new([7; 32]))
}

/// Indexer and relayers, running until they are stopped or dropped.
pub(crate) struct Running {
    shutdown: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Running {
    pub(crate) fn start(chain: &Chain) -> Self {
        Self::start_with(chain, vault())
    }

    /// With the test's own master keys.
    pub(crate) fn start_with(chain: &Chain, vault: Arc<Vault>) -> Self {
        Self::of(chain, vec![chain.scene.relayer.clone().into()], vault)
    }

    /// With these accounts of the relayer.
    pub(crate) fn of(chain: &Chain, accounts: Vec<Account>, vault: Arc<Vault>) -> Self {
        let shutdown = CancellationToken::new();
        let indexer = run_indexer(chain.pool(), chain.config.clone(), shutdown.clone());
        let relayers = run_relayers(chain.pool(), chain.config.clone(), accounts, vault, shutdown.clone());
        let tasks =
            [tokio::spawn(async { indexer.await.unwrap() }), tokio::spawn(async { relayers.await.unwrap() })];
        Self { shutdown, tasks }
    }

    pub(crate) fn indexer(chain: &Chain) -> Self {
        Self::of(chain, Vec::new(), vault())
    }

    /// Waits until they have ended by themselves.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        for task in &mut self.tasks {
            task.await.unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
