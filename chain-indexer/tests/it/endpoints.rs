//! Endpoints that lag, stall, omit or change events: none halts the chain, delays it, or has a fill paid or a lock end
//! that the others do not have.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use crate::support::{Chain, Order, Scene, raw, vault};
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::SolEvent as _;
use alloy::transports::TransportError;
use dvp_chain_indexer::contracts::escrow::Escrow;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_chain_indexer::gate::{GateStep, PayoutGate, Wait};
use dvp_chain_indexer::indexer::{IndexError, Indexer, Step};
use dvp_chain_indexer::reader::{ChainReader, HttpReader};
use dvp_chain_indexer::reconcile::{Options, ReconcileError, reconcile_from};
use dvp_chain_indexer::relayer::Relayer;
use dvp_chain_indexer::rpc::BlockHead;
use dvp_chain_indexer::{run_indexer, run_relayer};
use dvp_domain::chain::BlockNumber;
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_store::chain as store;
use dvp_store::chain::open_facts;
use dvp_store::lease::Lease;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The faults of a node.
#[derive(Default)]
struct Wrong {
    /// Its head stays at this block.
    head: AtomicU64,
    /// Its `finalized` is this many blocks below the real one, in fifteen of sixteen answers.
    final_lag: AtomicU64,
    requested: AtomicU64,
    /// From this block on, if it is not zero, its blocks have other hashes, which this number changes.
    forked: AtomicU64,
    branch: AtomicU64,
    /// Its `safe` and its `finalized` block stay at these, when they are not zero.
    safe: AtomicU64,
    finalized: AtomicU64,
    /// It omits every `Filled`.
    blind: AtomicBool,
    /// It omits every `Settled`.
    blind_to_ends: AtomicBool,
    /// It never answers about events.
    hangs: AtomicBool,
    /// Such calls that wait, and the most at a time.
    hanging: AtomicU64,
    most_hanging: AtomicU64,
    lie: OnceLock<Lie>,
}

/// A call that waits for ever, until its caller gives it up.
struct Hanging<'a>(&'a Wrong);

impl<'a> Hanging<'a> {
    fn begin(wrong: &'a Wrong) -> Self {
        let hanging = wrong.hanging.fetch_add(1, Ordering::Relaxed) + 1;
        wrong.most_hanging.fetch_max(hanging, Ordering::Relaxed);
        Self(wrong)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The end of one lock is told as the end of another, under the same number.
#[derive(Debug, Clone, Copy)]
struct Lie {
    of: B256,
    told_of: B256,
    told: Told,
}

#[derive(Debug, Clone, Copy)]
enum Told {
    /// `Released` becomes `Refunded`.
    Refunded,
    /// `Settled` keeps its kind.
    Settled,
}

impl Lie {
    fn change(self, log: &mut Log) {
        match self.told {
            Told::Refunded => {
                let Ok(released) = Escrow::Released::decode_log(&log.inner) else { return };
                if released.id == self.of {
                    let told = Escrow::Refunded { id: self.told_of, seq: released.seq };
                    log.inner.data = told.encode_log_data();
                }
            }
            Told::Settled => {
                let Ok(settled) = IntentSettler::Settled::decode_log(&log.inner) else { return };
                if settled.intentId == self.of {
                    let told = IntentSettler::Settled { intentId: self.told_of, ..settled.data };
                    log.inner.data = told.encode_log_data();
                }
            }
        }
    }
}

impl Wrong {
    /// The block as the node's branch has it.
    fn of_branch(&self, block: BlockHead) -> BlockHead {
        let (forked, branch) = (self.forked.load(Ordering::Relaxed), self.branch.load(Ordering::Relaxed));
        if forked == 0 || block.number.0 < forked {
            return block;
        }
        let other = |hash: B256| hash ^ B256::with_last_byte(u8::try_from(branch).unwrap());
        let parent = if block.number.0 == forked { block.parent } else { other(block.parent) };
        BlockHead { hash: other(block.hash), parent, ..block }
    }
}

#[derive(Clone)]
struct Node {
    inner: HttpReader,
    wrong: Arc<Wrong>,
}

impl Node {
    fn of(chain: &Chain) -> Self {
        let inner = HttpReader::new(&chain.scene.node.rpc_url()).unwrap();
        Self { inner, wrong: Arc::default() }
    }
}

impl ChainReader for Node {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        self.inner.chain_id().await
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        let frozen = self.wrong.head.load(Ordering::Relaxed);
        let id = match id {
            BlockId::Number(BlockNumberOrTag::Latest) if frozen > 0 => BlockId::number(frozen),
            BlockId::Number(BlockNumberOrTag::Safe) if self.wrong.safe.load(Ordering::Relaxed) > 0 => {
                BlockId::number(self.wrong.safe.load(Ordering::Relaxed))
            }
            BlockId::Number(BlockNumberOrTag::Finalized)
                if self.wrong.finalized.load(Ordering::Relaxed) > 0 =>
            {
                BlockId::number(self.wrong.finalized.load(Ordering::Relaxed))
            }
            BlockId::Number(BlockNumberOrTag::Finalized) => {
                let lag = self.wrong.final_lag.load(Ordering::Relaxed);
                let real = self.inner.block(id).await?;
                if lag == 0 || self.wrong.requested.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
                    return Ok(real);
                }
                let number = real.map_or(BlockNumber(0), |block| block.number.saturating_sub(lag));
                BlockId::number(number.0)
            }
            other => other,
        };
        Ok(self.inner.block(id).await?.map(|block| self.wrong.of_branch(block)))
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        let blocks = self.inner.blocks(numbers).await?;
        Ok(blocks.into_iter().map(|block| block.map(|block| self.wrong.of_branch(block))).collect())
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        if self.wrong.hangs.load(Ordering::Relaxed) {
            let _hanging = Hanging::begin(&self.wrong);
            std::future::pending::<()>().await;
        }
        let mut logs = self.inner.logs(filter).await?;
        if self.wrong.blind.load(Ordering::Relaxed) {
            logs.retain(|log| log.topic0() != Some(&IntentSettler::Filled::SIGNATURE_HASH));
        }
        if self.wrong.blind_to_ends.load(Ordering::Relaxed) {
            logs.retain(|log| log.topic0() != Some(&IntentSettler::Settled::SIGNATURE_HASH));
        }
        if let Some(lie) = self.wrong.lie.get() {
            logs.iter_mut().for_each(|log| lie.change(log));
        }
        Ok(logs)
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        self.inner.seq(contract, at).await
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        self.inner.receipts(block).await
    }
}

/// Steps until the indexer is idle, and some more.
pub(crate) async fn rest(indexer: &mut Indexer<impl ChainReader>, lease: &Lease) {
    let mut idle = 0;
    while idle < 20 {
        match indexer.step(lease).await.unwrap() {
            Step::Idle => idle += 1,
            Step::Advanced | Step::Unwound | Step::Repaired => idle = 0,
        }
    }
}

async fn read_up_to(chain: &Chain) -> BlockNumber {
    let mut conn = chain.pool().acquire().await.unwrap();
    store::find_cursor(&mut conn, chain.config.chain_id).await.unwrap().unwrap().head_number
}

/// The facts of an entity that the engine could consume.
async fn open(chain: &Chain, entity: B256) -> Vec<ChainFact> {
    let mut conn = chain.pool().acquire().await.unwrap();
    let facts = open_facts::claim(&mut conn, Uuid::nil(), Duration::ZERO, 0, 100).await.unwrap();
    facts.into_iter().filter(|fact| fact.entity == entity.to_vec()).map(|fact| fact.fact.unwrap()).collect()
}

async fn consume(chain: &Chain) {
    let mut conn = chain.pool().acquire().await.unwrap();
    let facts = open_facts::claim(&mut conn, Uuid::nil(), Duration::ZERO, 0, 100).await.unwrap();
    let ids: Vec<i64> = facts.iter().map(|fact| fact.id).collect();
    open_facts::consume(&mut conn, &ids).await.unwrap();
}

/// An order that is locked and filled, each in a block of its own, with the commands for it.
async fn filled(chain: &Chain) -> (B256, ChainFact, ChainFact) {
    let (call, created, filled) = filled_by(chain).await;
    (call.intentId, created, filled)
}

/// The same with the call that filled it.
async fn filled_by(chain: &Chain) -> (IntentSettler::fillCall, ChainFact, ChainFact) {
    let scene = &chain.scene;
    let order = scene.order(1).await;
    let call = scene.fill_call(&order);
    let payout_ref = call.payoutRef.to_string();
    chain.command("one", scene.create_command(&order)).await;
    chain
        .command("one", ChainCommand::Fill { entity: order.id.to_string(), payout_ref: payout_ref.clone() })
        .await;
    let create = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &create).await);
    assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &call).await);
    (call, scene.created(&order), ChainFact::Filled { payout_ref })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fluctuating_finalized_block_does_not_halt_the_chain() {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.finality_margin = 0;
    chain.mined(200).await;
    let node = Node::of(&chain);
    node.wrong.final_lag.store(20, Ordering::Relaxed);
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![node]).unwrap();
    let lease = chain.lease("reader").await;
    for _ in 0..30 {
        chain.mined(1).await;
        rest(&mut indexer, &lease).await;
    }
}

/// Three endpoints have these branches from a final block on; 0 is the one that we read.
async fn halts(branches: [u64; 3]) -> bool {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.finality_margin = 0;
    chain.mined(200).await;
    let nodes = [(); 3].map(|()| Node::of(&chain));
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), nodes.to_vec()).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    let final_block = async |number: Option<BlockNumber>| {
        let mut conn = chain.pool().acquire().await.unwrap();
        let cursor = store::find_cursor(&mut conn, chain.config.chain_id).await.unwrap().unwrap();
        let number = number.unwrap_or(cursor.final_number);
        let hash = store::find_known_hash(&mut conn, chain.config.chain_id, number).await.unwrap();
        (number, hash, cursor.halted.is_some())
    };
    let (number, hash, _) = final_block(None).await;
    assert!(hash.is_some());
    for (node, branch) in nodes.iter().zip(branches) {
        node.wrong.branch.store(branch, Ordering::Relaxed);
        node.wrong.forked.store(if branch == 0 { 0 } else { number.0 }, Ordering::Relaxed);
    }
    // Each endpoint is asked far more often than the eight times after which it is believed.
    for turn in 0..60 {
        if turn % 4 == 0 {
            chain.mined(1).await;
        }
        if let Err(IndexError::Halted(_)) = indexer.step(&lease).await {
            return true;
        }
    }
    let after = final_block(Some(number)).await;
    assert_eq!(after, (number, hash, false), "a final block is never taken back without a halt");
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn three_endpoints_halt_a_chain_only_when_most_have_the_same_other_block_and_none_has_ours() {
    // Each has another block: whom to believe, nobody knows.
    assert!(!halts([1, 2, 3]).await);
    // Two agree on another block, and one has ours.
    assert!(!halts([1, 1, 0]).await);
    // One lies.
    assert!(!halts([1, 0, 0]).await);
    assert!(!halts([0, 1, 2]).await);
    // Two agree, and the third has yet another one: most have it.
    assert!(halts([1, 1, 2]).await);
    assert!(halts([1, 1, 1]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_endpoint_delays_nothing() {
    let chain = Chain::new(Scene::new().await).await;
    chain.mined(3).await;
    let (frozen, moving) = (Node::of(&chain), Node::of(&chain));
    let mut indexer =
        Indexer::over(chain.pool(), chain.config.clone(), vec![frozen.clone(), moving]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    let before = read_up_to(&chain).await;
    frozen.wrong.head.store(before.0, Ordering::Relaxed);
    chain.mined(5).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(read_up_to(&chain).await, before + 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_waits_for_the_depth_that_its_amount_requires() {
    let mut chain = Chain::new(Scene::new().await).await;
    let token = Some(chain.scene.token);
    let step =
        |below: u64, depth| GateStep { token, below: Some(U256::from(below)), wait: Wait::Depth(depth) };
    // The order locks 100.
    chain.config.payout_gate = PayoutGate::new(vec![step(100, 1), step(101, 4)]);
    let (id, created, fill) = filled(&chain).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    for _ in 0..3 {
        rest(&mut indexer, &lease).await;
        assert_eq!(open(&chain, id).await, std::slice::from_ref(&created));
        chain.mined(1).await;
    }
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created, fill]);
}

/// An order of this amount, created and filled on the chain and by command.
async fn filled_of(chain: &Chain, id: u8, amount: u64) -> (B256, ChainFact, ChainFact) {
    let scene = &chain.scene;
    let mut order = scene.order(id).await;
    (order.amount, order.permitted) = (U256::from(amount), U256::from(amount));
    let reference = format!("order {id}");
    let call = scene.fill_call(&order);
    let payout_ref = call.payoutRef.to_string();
    let entity = order.id.to_string();
    chain.command(&reference, scene.create_command(&order)).await;
    chain.command(&reference, ChainCommand::Fill { entity, payout_ref: payout_ref.clone() }).await;
    let create = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &create).await);
    assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &call).await);
    (order.id, scene.created(&order), ChainFact::Filled { payout_ref })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_safe_fill_pays_the_small_order_and_the_large_one_waits_until_it_is_final() {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.finality_margin = 0;
    let small = GateStep { token: Some(chain.scene.token), below: Some(U256::from(100)), wait: Wait::Safe };
    let rest_of_them = GateStep { token: None, below: None, wait: Wait::Finalized };
    chain.config.payout_gate = PayoutGate::new(vec![small, rest_of_them]);
    chain.mined(3).await;
    let node = Node::of(&chain);
    let before = chain.scene.provider.get_block_number().await.unwrap();
    node.wrong.safe.store(before, Ordering::Relaxed);
    node.wrong.finalized.store(before, Ordering::Relaxed);
    let (small, small_created, small_filled) = filled_of(&chain, 1, 99).await;
    let (large, large_created, large_filled) = filled_of(&chain, 2, 100).await;
    chain.mined(3).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![node.clone()]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, small).await, std::slice::from_ref(&small_created), "neither safe nor final");
    assert_eq!(open(&chain, large).await, std::slice::from_ref(&large_created));

    let after = chain.scene.provider.get_block_number().await.unwrap();
    node.wrong.safe.store(after, Ordering::Relaxed);
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, small).await, [small_created, small_filled], "safe is enough");
    assert_eq!(open(&chain, large).await, std::slice::from_ref(&large_created), "safe is not final");

    node.wrong.finalized.store(after, Ordering::Relaxed);
    chain.mined(1).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, large).await, [large_created, large_filled]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_that_no_step_matches_waits_for_finality() {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.payout_gate = PayoutGate::new(Vec::new());
    chain.config.finality_margin = 0;
    let (id, created, fill) = filled(&chain).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, std::slice::from_ref(&created));
    chain.mined(100).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created, fill]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_that_one_of_two_endpoints_lacks_is_not_published() {
    let chain = Chain::new(Scene::new().await).await;
    let (seeing, blind) = (Node::of(&chain), Node::of(&chain));
    blind.wrong.blind.store(true, Ordering::Relaxed);
    let (id, created, fill) = filled(&chain).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![seeing, blind.clone()]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, std::slice::from_ref(&created));
    blind.wrong.blind.store(false, Ordering::Relaxed);
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created, fill]);
}

/// An order that waits for its release.
pub(crate) async fn releasing(chain: &Chain, id: u8) -> Order {
    let scene = &chain.scene;
    let (order, reference) = (scene.order(id).await, format!("order {id}"));
    let (entity, payout_ref) = (order.id.to_string(), order.id.to_string());
    let settle = ChainCommand::Settle { entity: entity.clone(), preimage: Some(order.preimage.to_string()) };
    chain.command(&reference, scene.create_command(&order)).await;
    chain.command(&reference, ChainCommand::Fill { entity, payout_ref }).await;
    chain.command(&reference, settle).await;
    let (settler, create) = (scene.deployment.settler, scene.create_call(&order, scene.signed(&order)));
    assert!(scene.succeeds(&scene.relayer, settler, &create).await);
    assert!(scene.succeeds(&scene.relayer, settler, &scene.fill_call(&order)).await);
    order
}

/// The first of three endpoints tells another order's release as the end of an order's lock.
async fn an_end_told_by_one_endpoint_is_not_believed(told: Told) {
    let chain = Chain::new(Scene::new().await).await;
    let (scene, settler) = (&chain.scene, chain.scene.deployment.settler);
    let (order, other) = (releasing(&chain, 1).await, releasing(&chain, 2).await);
    let nodes = [(); 3].map(|()| Node::of(&chain));
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), nodes.to_vec()).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, order.id).await.len(), 2, "its lock and its fill");
    consume(&chain).await;

    nodes[0].wrong.lie.set(Lie { of: other.id, told_of: order.id, told }).unwrap();
    assert!(scene.succeeds(&scene.relayer, settler, &scene.settle_call(&other)).await);
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, order.id).await, []);
    chain.state("order 1", "settle", "pending").await;

    // The block about which they disagree does not hold up its release.
    assert!(scene.succeeds(&scene.relayer, settler, &scene.settle_call(&order)).await);
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, order.id).await, [ChainFact::Settled { swap: None }]);
    chain.state("order 1", "settle", "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_another_endpoint_does_not_have_yet_is_not_sent_again() {
    let chain = Chain::new(Scene::new().await).await;
    let order = releasing(&chain, 1).await;
    let (seeing, blind) = (Node::of(&chain), Node::of(&chain));
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![seeing, blind.clone()]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    blind.wrong.blind_to_ends.store(true, Ordering::Relaxed);

    let account = chain.scene.relayer.clone();
    let mut relayer = Relayer::new(chain.pool(), chain.config.clone(), account, vault()).unwrap();
    let relaying = chain.lease("relayer").await;
    relayer.turn(&relaying).await.unwrap();
    chain.mined(1).await;
    relayer.turn(&relaying).await.unwrap();
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, order.id).await.len(), 2, "its lock and its fill");
    relayer.turn(&relaying).await.unwrap();
    let state: (String, i32) = sqlx::query_as("select state, tries from chain_command where kind = 'settle'")
        .fetch_one(&chain.pool())
        .await
        .unwrap();
    assert_eq!(state, ("sent".to_owned(), 0));

    blind.wrong.blind_to_ends.store(false, Ordering::Relaxed);
    chain.mined(1).await;
    rest(&mut indexer, &lease).await;
    chain.state("order 1", "settle", "done").await;
    relayer.turn(&relaying).await.unwrap();
    let judged = "select count(*) from nonce_slot where not judged";
    let waiting: i64 = sqlx::query_scalar(judged).fetch_one(&chain.pool()).await.unwrap();
    assert_eq!(waiting, 0);
}

/// A transaction with two releases: the event of the first is not at the other endpoint yet, that of the second did not
/// come.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_judged_but_for_the_release_that_waits() {
    let chain = Chain::new(Scene::new().await).await;
    let (_, missing) = (releasing(&chain, 1).await, releasing(&chain, 2).await);
    let (seeing, blind) = (Node::of(&chain), Node::of(&chain));
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![seeing, blind.clone()]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    blind.wrong.blind_to_ends.store(true, Ordering::Relaxed);

    let account = chain.scene.relayer.clone();
    let mut relayer = Relayer::new(chain.pool(), chain.config.clone(), account, vault()).unwrap();
    let relaying = chain.lease("relayer").await;
    relayer.turn(&relaying).await.unwrap();
    chain.mined(1).await;
    relayer.turn(&relaying).await.unwrap();
    let slots: i64 =
        sqlx::query_scalar("select count(*) from nonce_slot").fetch_one(&chain.pool()).await.unwrap();
    assert_eq!(slots, 1, "they go in one transaction");
    rest(&mut indexer, &lease).await;
    sqlx::query("update chain_fact set retracted_at = now() where entity = $1 and kind = 'settled'")
        .bind(missing.id.as_slice())
        .execute(&chain.pool())
        .await
        .unwrap();
    relayer.turn(&relaying).await.unwrap();
    let states = "select state, tries from chain_command where kind = 'settle' order by id";
    let states: Vec<(String, i32)> = sqlx::query_as(states).fetch_all(&chain.pool()).await.unwrap();
    assert_eq!(states, [("sent".to_owned(), 0), ("pending".to_owned(), 1)]);

    blind.wrong.blind_to_ends.store(false, Ordering::Relaxed);
    chain.mined(1).await;
    rest(&mut indexer, &lease).await;
    chain.state("order 1", "settle", "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_does_not_delay_each_block() {
    const ORDERS: u8 = 24;
    let mut chain = Chain::new(Scene::new().await).await;
    let mut orders = Vec::new();
    for id in 1..=ORDERS {
        orders.push(releasing(&chain, id).await);
    }
    // All are read, and none passes before the steps of the gate change.
    let gate = std::mem::replace(&mut chain.config.payout_gate, PayoutGate::new(Vec::new()));
    let lease = chain.lease("reader").await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    rest(&mut indexer, &lease).await;

    chain.config.payout_gate = gate;
    let nodes = [(); 3].map(|()| Node::of(&chain));
    nodes[2].wrong.hangs.store(true, Ordering::Relaxed);
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), nodes.to_vec()).unwrap();
    chain.mined(1).await;
    // Two blocks an order: with 0.2 seconds for each, it would be ten seconds.
    tokio::time::timeout(Duration::from_secs(8), indexer.step(&lease)).await.unwrap().unwrap();
    assert!(nodes[2].wrong.most_hanging.load(Ordering::Relaxed) > 1, "blocks are compared together");
    rest(&mut indexer, &lease).await;
    for order in orders {
        assert_eq!(open(&chain, order.id).await.len(), 2, "its lock and its fill");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_one_of_three_endpoints_has_is_not_published() {
    an_end_told_by_one_endpoint_is_not_believed(Told::Refunded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_three_endpoints_has_completes_no_command() {
    an_end_told_by_one_endpoint_is_not_believed(Told::Settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_lock_that_is_reorganised_is_reported_lost_and_then_again() {
    let chain = Chain::new(Scene::new().await).await;
    chain.mined(3).await;
    let (id, created, fill) = filled(&chain).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created.clone(), fill]);
    consume(&chain).await;

    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_reorg", json!([2, []])).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [ChainFact::FillLost, ChainFact::LockLost]);
    consume(&chain).await;

    // The relayer broadcasts it again.
    let order = chain.scene.order(1).await;
    let create = chain.scene.create_call(&order, chain.scene.signed(&order));
    assert!(chain.scene.succeeds(&chain.scene.relayer, chain.scene.deployment.settler, &create).await);
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [chain.scene.created(&order)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unconsumed_lock_is_retracted_without_a_report() {
    let chain = Chain::new(Scene::new().await).await;
    chain.mined(3).await;
    let (id, created, fill) = filled(&chain).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created, fill]);
    let mut conn = chain.pool().acquire().await.unwrap();
    let facts = open_facts::claim(&mut conn, Uuid::nil(), Duration::ZERO, 0, 100).await.unwrap();
    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_reorg", json!([2, []])).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, []);

    // The engine applied it concurrently: its loss is now reported.
    open_facts::consume(&mut conn, &[facts[0].id]).await.unwrap();
    assert_eq!(open(&chain, id).await, [ChainFact::LockLost]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_fill_that_is_reorganised_is_reported_lost_and_then_again() {
    let chain = Chain::new(Scene::new().await).await;
    chain.mined(3).await;
    let (call, created, fill) = filled_by(&chain).await;
    let id = call.intentId;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created, fill.clone()]);
    consume(&chain).await;

    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_reorg", json!([1, []])).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [ChainFact::FillLost]);
    consume(&chain).await;

    // The relayer broadcasts it again.
    assert!(chain.scene.succeeds(&chain.scene.relayer, chain.scene.deployment.settler, &call).await);
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [fill]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unconsumed_fill_is_retracted_without_a_report() {
    let chain = Chain::new(Scene::new().await).await;
    chain.mined(3).await;
    let (id, created, fill) = filled(&chain).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created.clone(), fill]);
    let mut conn = chain.pool().acquire().await.unwrap();
    let facts = open_facts::claim(&mut conn, Uuid::nil(), Duration::ZERO, 0, 100).await.unwrap();
    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_reorg", json!([1, []])).await;
    rest(&mut indexer, &lease).await;
    assert_eq!(open(&chain, id).await, [created]);

    // The engine applied it concurrently: now its loss is reported.
    open_facts::consume(&mut conn, &[facts[0].id, facts[1].id]).await.unwrap();
    assert_eq!(open(&chain, id).await, [ChainFact::FillLost]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_begins_with_the_endpoint_of_its_turn() {
    let mut chain = Chain::new(Scene::new().await).await;
    let other = Scene::on_chain(31_338).await;
    chain.mined(200).await;
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![Node::of(&chain)]).unwrap();
    let lease = chain.lease("reader").await;
    rest(&mut indexer, &lease).await;
    chain.config.further_rpc_urls = vec![other.node.rpc_url()];
    for turn in 0..4 {
        let compared = reconcile_from(&chain.pool(), &chain.config, &Options::default(), turn).await;
        let asked_other = matches!(compared, Err(ReconcileError::WrongChain { found: 31_338, .. }));
        assert_eq!((compared.is_ok(), asked_other), (turn % 2 == 0, turn % 2 == 1), "{compared:?}");
    }
}

/// The first endpoint's chain makes no blocks, and its state stays unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn the_relayer_leaves_a_stalled_endpoint_for_an_active_one() {
    let chain = Chain::new(Scene::new().await).await;
    let frozen = Scene::new().await;
    assert_eq!(frozen.deployment.settler, chain.scene.deployment.settler, "both are the relayer's chain");
    let _: serde_json::Value = raw(&frozen.provider, "evm_setAutomine", json!([false])).await;
    let scene = &chain.scene;
    let order = scene.order(1).await;
    let (create, entity) = (scene.create_call(&order, scene.signed(&order)), order.id.to_string());
    assert!(scene.succeeds(&scene.other_relayer, scene.deployment.settler, &create).await);
    chain.command("one", scene.create_command(&order)).await;
    let shutdown = CancellationToken::new();
    let indexer = tokio::spawn(run_indexer(chain.pool(), chain.config.clone(), shutdown.clone()));
    chain.state("one", "create", "done").await;

    let mut config = chain.config.clone();
    config.rpc_url = frozen.node.rpc_url();
    config.further_rpc_urls = vec![scene.node.rpc_url()];
    config.stale_after = Duration::from_millis(500);
    let relayer =
        tokio::spawn(run_relayer(chain.pool(), config, scene.relayer.clone(), vault(), shutdown.clone()));
    // On the frozen endpoint the order was never created, so that it cannot be filled there.
    chain.command("one", ChainCommand::Fill { entity: entity.clone(), payout_ref: entity }).await;
    chain.state("one", "fill", "done").await;
    chain.state_on_chain(order.id, 2).await;
    let state = IntentSettler::stateOfCall { intentId: order.id };
    assert_eq!(frozen.view(frozen.deployment.settler, state).await, 0);
    shutdown.cancel();
    indexer.await.unwrap().unwrap();
    relayer.await.unwrap().unwrap();
}
