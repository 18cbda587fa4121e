//! Endpoints that lag, stall, omit or change events: none halts the chain, delays it, or has a fill paid or a lock end
//! that the others do not have.

use crate::support::node::{Node, Reader};
use crate::support::{Chain, Order, Running, Scene, vault};
use alloy::primitives::U256;
use alloy::providers::Provider as _;
use alloy::rpc::types::Log;
use alloy::sol_types::SolEvent as _;
use dvp_chain_indexer::contracts::{escrow::Escrow, settler::IntentSettler};
use dvp_chain_indexer::gate::{GateStep, PayoutGate, Wait};
use dvp_chain_indexer::indexer::IndexError;
use dvp_chain_indexer::reconcile::{Options, ReconcileError, reconcile_from};
use dvp_chain_indexer::run_relayers;
use dvp_domain::chain::{BlockNumber, ChainFact};
use dvp_store::chain as store;
use dvp_store::chain::open_facts::{self, OpenFact};
use std::slice::from_ref;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

async fn claim(chain: &Chain) -> Vec<OpenFact> {
    let mut conn = chain.pool().acquire().await.unwrap();
    open_facts::claim(&mut conn, Uuid::nil(), Duration::ZERO, 0, 100).await.unwrap()
}

async fn consume(chain: &Chain, facts: &[OpenFact]) {
    let ids: Vec<i64> = facts.iter().map(|fact| fact.id).collect();
    open_facts::consume(&mut chain.pool().acquire().await.unwrap(), &ids).await.unwrap();
}

/// The facts of an order that the engine could consume.
async fn open(chain: &Chain, order: &Order) -> Vec<ChainFact> {
    let of_order = claim(chain).await.into_iter().filter(|fact| fact.entity == order.id.to_vec());
    of_order.map(|fact| fact.fact.unwrap()).collect()
}

/// An order of this amount that is locked and filled, each in a block of its own, with the commands for it and what is
/// reported of it.
async fn filled_of(chain: &Chain, id: u8, amount: u64) -> (Order, [ChainFact; 2]) {
    let scene = &chain.scene;
    let mut order = scene.order(id).await;
    (order.amount, order.permitted) = (U256::from(amount), U256::from(amount));
    let reference = format!("order {id}");
    chain.command(&reference, scene.create_command(&order)).await;
    chain.command(&reference, scene.fill_command(&order)).await;
    scene.lock(&order).await;
    scene.fill(&order).await;
    let filled = ChainFact::Filled { payout_ref: scene.fill_call(&order).payoutRef.to_string() };
    let created = scene.created(&order);
    (order, [created, filled])
}

async fn filled(chain: &Chain) -> (Order, [ChainFact; 2]) {
    filled_of(chain, 1, 100).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fluctuating_finalized_block_does_not_halt_the_chain() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.mined(200).await;
    let node = Node::of(&chain);
    node.wrong().final_lag = 20;
    let mut reader = Reader::over(&chain, &[node]).await;
    for _ in 0..30 {
        chain.mined(1).await;
        reader.rest().await;
    }
}

/// Three endpoints have these branches from a final block on; 0 is the one that we read.
async fn halts(branches: [u8; 3]) -> bool {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.mined(200).await;
    let nodes = [(); 3].map(|()| Node::of(&chain));
    let mut reader = Reader::over(&chain, &nodes).await;
    reader.rest().await;
    let final_block = async |number: Option<BlockNumber>| {
        let cursor = chain.cursor().await.unwrap();
        let number = number.unwrap_or(cursor.final_number);
        let mut conn = chain.pool().acquire().await.unwrap();
        let hash = store::find_known_hash(&mut conn, chain.config.chain_id, number).await.unwrap();
        (number, hash, cursor.halted.is_some())
    };
    let (number, hash, _) = final_block(None).await;
    assert!(hash.is_some());
    for (node, branch) in nodes.iter().zip(branches) {
        node.wrong().branch = branch;
        node.wrong().forked = if branch == 0 { 0 } else { number.0 };
    }
    // Each endpoint is asked far more often than the eight times after which it is believed.
    for turn in 0..60 {
        if turn % 4 == 0 {
            chain.mined(1).await;
        }
        if let Err(IndexError::Halted(_)) = reader.step().await {
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
    let chain = Chain::new().await;
    chain.mined(3).await;
    let nodes = [(); 2].map(|()| Node::of(&chain));
    let mut reader = Reader::over(&chain, &nodes).await;
    reader.rest().await;
    let before = chain.cursor().await.unwrap().head_number;
    nodes[0].wrong().head = before.0;
    chain.mined(5).await;
    reader.rest().await;
    assert_eq!(chain.cursor().await.unwrap().head_number, before + 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_waits_for_the_depth_that_its_amount_requires() {
    let mut chain = Chain::new().await;
    let token = Some(chain.scene.token);
    let step =
        |below: u64, depth| GateStep { token, below: Some(U256::from(below)), wait: Wait::Depth(depth) };
    // The order locks 100.
    chain.config.payout_gate = PayoutGate::new(vec![step(100, 1), step(101, 4)]);
    let (order, facts) = filled(&chain).await;
    let mut reader = Reader::new(&chain).await;
    for _ in 0..3 {
        reader.rest().await;
        assert_eq!(open(&chain, &order).await, facts[..1]);
        chain.mined(1).await;
    }
    reader.rest().await;
    assert_eq!(open(&chain, &order).await, facts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_safe_fill_pays_the_small_order_and_the_large_one_waits_until_it_is_final() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    let small = GateStep { token: Some(chain.scene.token), below: Some(U256::from(100)), wait: Wait::Safe };
    let rest_of_them = GateStep { token: None, below: None, wait: Wait::Finalized };
    chain.config.payout_gate = PayoutGate::new(vec![small, rest_of_them]);
    chain.mined(3).await;
    let node = Node::of(&chain);
    let before = chain.scene.provider.get_block_number().await.unwrap();
    (node.wrong().safe, node.wrong().finalized) = (before, before);
    let (small, of_small) = filled_of(&chain, 1, 99).await;
    let (large, of_large) = filled_of(&chain, 2, 100).await;
    chain.mined(3).await;
    let mut reader = Reader::over(&chain, from_ref(&node)).await;
    reader.rest().await;
    assert_eq!(open(&chain, &small).await, of_small[..1], "neither safe nor final");
    assert_eq!(open(&chain, &large).await, of_large[..1]);

    let after = chain.scene.provider.get_block_number().await.unwrap();
    node.wrong().safe = after;
    reader.rest().await;
    assert_eq!(open(&chain, &small).await, of_small, "safe is enough");
    assert_eq!(open(&chain, &large).await, of_large[..1], "safe is not final");

    node.wrong().finalized = after;
    chain.mined(1).await;
    reader.rest().await;
    assert_eq!(open(&chain, &large).await, of_large);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_that_one_of_two_endpoints_lacks_is_not_published() {
    let chain = Chain::new().await;
    let nodes = [(); 2].map(|()| Node::of(&chain));
    nodes[1].omit(IntentSettler::Filled::SIGNATURE_HASH);
    let (order, facts) = filled(&chain).await;
    let mut reader = Reader::over(&chain, &nodes).await;
    reader.rest().await;
    assert_eq!(open(&chain, &order).await, facts[..1]);
    nodes[1].correct();
    reader.rest().await;
    assert_eq!(open(&chain, &order).await, facts);
}

/// An order that waits for its release.
pub(crate) async fn releasing(chain: &Chain, id: u8) -> Order {
    let (order, _) = filled_of(chain, id, 100).await;
    chain.command(&format!("order {id}"), chain.scene.settle_command(&order)).await;
    order
}

/// The first of three endpoints tells another order's release as the end of an order's lock.
async fn an_end_told_by_one_endpoint_is_not_believed(told: fn(&mut Log, [&Order; 2])) {
    let chain = Chain::new().await;
    let (order, other) = (releasing(&chain, 1).await, releasing(&chain, 2).await);
    let nodes = [(); 3].map(|()| Node::of(&chain));
    let mut reader = Reader::over(&chain, &nodes).await;
    reader.rest().await;
    assert_eq!(open(&chain, &order).await.len(), 2, "its lock and its fill");
    consume(&chain, &claim(&chain).await).await;

    let both = (other.clone(), order.clone());
    nodes[0].edit(move |logs| logs.iter_mut().for_each(|log| told(log, [&both.0, &both.1])));
    chain.scene.settle(&other).await;
    reader.rest().await;
    assert_eq!(open(&chain, &order).await, []);
    chain.state("order 1", "settle", "pending").await;

    // The block about which they disagree does not hold up its release.
    chain.scene.settle(&order).await;
    reader.rest().await;
    assert_eq!(open(&chain, &order).await, [ChainFact::Settled { swap: None }]);
    chain.state("order 1", "settle", "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_one_of_three_endpoints_has_is_not_published() {
    an_end_told_by_one_endpoint_is_not_believed(|log, [of, told_of]| {
        let Ok(released) = Escrow::Released::decode_log(&log.inner) else { return };
        if released.id == of.id {
            log.inner.data = Escrow::Refunded { id: told_of.id, seq: released.seq }.encode_log_data();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_three_endpoints_has_completes_no_command() {
    an_end_told_by_one_endpoint_is_not_believed(|log, [of, told_of]| {
        let Ok(settled) = IntentSettler::Settled::decode_log(&log.inner) else { return };
        if settled.intentId == of.id {
            let told = IntentSettler::Settled { intentId: told_of.id, ..settled.data };
            log.inner.data = told.encode_log_data();
        }
    })
    .await;
}

/// A transaction with two releases: the event of the first is not at the other endpoint yet, and it is not sent again;
/// that of the second did not come.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_judged_but_for_the_release_that_waits() {
    let chain = Chain::new().await;
    let (_, missing) = (releasing(&chain, 1).await, releasing(&chain, 2).await);
    let nodes = [(); 2].map(|()| Node::of(&chain));
    let mut reader = Reader::over(&chain, &nodes).await;
    reader.rest().await;
    nodes[1].omit(IntentSettler::Settled::SIGNATURE_HASH);

    let mut relayer = chain.relayer();
    let relaying = chain.lease("relayer").await;
    relayer.turn(&relaying).await.unwrap();
    chain.mined(1).await;
    relayer.turn(&relaying).await.unwrap();
    let slots: i64 = chain.one("select count(*) from nonce_slot").await;
    assert_eq!(slots, 1, "they go in one transaction");
    reader.rest().await;
    sqlx::query("update chain_fact set retracted_at = now() where entity = $1 and kind = 'settled'")
        .bind(missing.id.as_slice())
        .execute(&chain.pool())
        .await
        .unwrap();
    relayer.turn(&relaying).await.unwrap();
    let states = "select state, tries from chain_command where kind = 'settle' order by id";
    let states: Vec<(String, i32)> = chain.rows(states).await;
    // The one that the batch is thought to have left out goes again at once: the contract has reached its goal.
    assert_eq!(states, [("sent".to_owned(), 0), ("done".to_owned(), 0)]);

    nodes[1].correct();
    chain.mined(1).await;
    reader.rest().await;
    chain.state("order 1", "settle", "done").await;
    relayer.turn(&relaying).await.unwrap();
    assert_eq!(chain.one::<i64>("select count(*) from nonce_slot where not judged").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_does_not_delay_each_block() {
    const ORDERS: u8 = 24;
    let mut chain = Chain::new().await;
    let mut orders = Vec::new();
    for id in 1..=ORDERS {
        orders.push(releasing(&chain, id).await);
    }
    // All are read, and none passes before the steps of the gate change.
    let gate = std::mem::replace(&mut chain.config.payout_gate, PayoutGate::new(Vec::new()));
    Reader::new(&chain).await.rest().await;

    chain.config.payout_gate = gate;
    let nodes = [(); 3].map(|()| Node::of(&chain));
    nodes[2].wrong().hangs = true;
    let mut reader = Reader::over(&chain, &nodes).await;
    chain.mined(1).await;
    // Two blocks an order: with 0.2 seconds for each, it would be ten seconds.
    tokio::time::timeout(Duration::from_secs(8), reader.step()).await.unwrap().unwrap();
    assert!(nodes[2].wrong().most_hanging > 1, "blocks are compared together");
    reader.rest().await;
    for order in &orders {
        assert_eq!(open(&chain, order).await.len(), 2, "its lock and its fill");
    }
}

/// The block of the fill is replaced, or that of the lock with it. The relayer broadcasts the newest lost one again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_reported_and_is_reorganised_is_reported_lost_and_then_again() {
    for depth in [1, 2] {
        let chain = Chain::new().await;
        chain.mined(3).await;
        let (order, facts) = filled(&chain).await;
        let mut reader = Reader::new(&chain).await;
        reader.rest().await;
        assert_eq!(open(&chain, &order).await, facts);
        consume(&chain, &claim(&chain).await).await;

        chain.reorg(depth).await;
        reader.rest().await;
        let lost = [ChainFact::FillLost, ChainFact::LockLost];
        assert_eq!(open(&chain, &order).await, lost[..usize::try_from(depth).unwrap()]);
        consume(&chain, &claim(&chain).await).await;

        let again = if depth == 1 {
            chain.scene.fill(&order).await;
            facts[1].clone()
        } else {
            let order = chain.scene.order(1).await;
            chain.scene.lock(&order).await;
            chain.scene.created(&order)
        };
        reader.rest().await;
        assert_eq!(open(&chain, &order).await, [again]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_consumed_is_retracted_without_a_report() {
    for (depth, left, lost) in [(1, 1, ChainFact::FillLost), (2, 0, ChainFact::LockLost)] {
        let chain = Chain::new().await;
        chain.mined(3).await;
        let (order, facts) = filled(&chain).await;
        let mut reader = Reader::new(&chain).await;
        reader.rest().await;
        assert_eq!(open(&chain, &order).await, facts);
        let claimed = claim(&chain).await;
        chain.reorg(depth).await;
        reader.rest().await;
        assert_eq!(open(&chain, &order).await, facts[..left]);

        // The engine applied the lock, and the fill where that alone is gone, meanwhile: the loss is now reported.
        consume(&chain, &claimed[..=left]).await;
        assert_eq!(open(&chain, &order).await, [lost]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_begins_with_the_endpoint_of_its_turn() {
    let mut chain = Chain::new().await;
    let other = Scene::on_chain(31_338).await;
    chain.mined(200).await;
    Reader::new(&chain).await.rest().await;
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
    let chain = Chain::new().await;
    let frozen = Chain::new().await;
    let scene = &chain.scene;
    assert_eq!(frozen.scene.deployment.settler, scene.deployment.settler, "both are the relayer's chain");
    frozen.automine(false).await;
    let order = scene.order(1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.other_relayer, scene.deployment.settler, &create).await);
    chain.command("one", scene.create_command(&order)).await;
    let _indexing = Running::indexer(&chain);
    chain.state("one", "create", "done").await;

    let mut config = chain.config.clone();
    config.rpc_url = frozen.scene.node.rpc_url();
    config.further_rpc_urls = vec![scene.node.rpc_url()];
    config.stale_after = Duration::from_millis(500);
    let shutdown = CancellationToken::new();
    let accounts = vec![scene.relayer.clone().into()];
    let relayer = tokio::spawn(run_relayers(chain.pool(), config, accounts, vault(), shutdown.clone()));
    // On the frozen endpoint the order was never created, so that it cannot be filled there.
    chain.command("one", scene.fill_command(&order)).await;
    chain.state("one", "fill", "done").await;
    chain.state_on_chain(order.id, 2).await;
    assert_eq!(frozen.scene.state(order.id).await, 0);
    shutdown.cancel();
    relayer.await.unwrap().unwrap();
}
