//! Orders that wait for a deposit of the chain's coin: the relayer passes them over until it is there.

use crate::support::{Chain, Order, Running, Scene, until};
use alloy::primitives::{Address, U256};
use dvp_chain_indexer::contracts::coin::CoinGate;
use dvp_domain::chain::{ChainCommand, CommandKind};
use dvp_store::chain as store;
use dvp_store::chain::commands;
use std::time::Duration;

/// An order of 100 wei of the coin, and its command.
async fn order(scene: &Scene, id: u8) -> (Order, ChainCommand) {
    let order = Order { token: scene.coin().wrapped, ..scene.order(id).await };
    let ChainCommand::Create(mut create) = scene.create_command(&order) else { unreachable!() };
    create.permit = None;
    (order, ChainCommand::Create(create))
}

/// Waits until the indexer has stored this many events of the gate.
async fn gate_events(chain: &Chain, count: i64) {
    let sql = "select count(*) from chain_log where deposit is not null and canonical";
    until(&format!("{count} events of the gate"), async || chain.one::<i64>(sql).await == count).await;
}

/// Commands that the backlog and the alarms count.
async fn counted(chain: &Chain) -> (u64, usize) {
    let mut conn = chain.pool().acquire().await.unwrap();
    let chain_id = chain.config.chain_id;
    let open = commands::count_open(&mut conn, chain_id.cast_signed(), Duration::from_secs(1)).await.unwrap();
    let waiting = store::count_waiting(&mut conn, chain_id).await.unwrap();
    (open.locks, waiting.iter().filter(|row| row.kind == CommandKind::Create).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_locked_once_its_maker_has_deposited_enough_and_is_no_backlog_before() {
    let (chain, _running) = Chain::running().await;
    let (order, command) = order(&chain.scene, 1).await;
    let maker = chain.scene.maker.address();
    chain.command("one", command).await;
    assert_eq!(counted(&chain).await, (0, 0), "nobody but the user is waited for");
    assert!(chain.scene.deposits(maker, order.id, 60).await);
    assert!(chain.scene.deposits(chain.scene.admin.address(), order.id, 1_000).await, "a stranger's");
    gate_events(&chain, 2).await;
    // An order with a permit is not held up by it.
    let other = chain.scene.order(2).await;
    chain.command("two", chain.scene.create_command(&other)).await;
    chain.fact(other.id, "created").await;
    assert_eq!(chain.attempts().await.len(), 1, "nothing was tried for the first");
    assert_eq!(counted(&chain).await, (0, 0));

    assert!(chain.scene.deposits(maker, order.id, 60).await);
    chain.fact(order.id, "created").await;
    chain.state("one", "create", "done").await;
    assert_eq!(
        chain.facts(order.id).await,
        [chain.scene.created(&order)],
        "deposits are no facts of the order"
    );
    gate_events(&chain, 4).await;
    let left = CoinGate::depositsCall { id: order.id, depositor: maker };
    assert_eq!(chain.scene.view(chain.scene.coin().gate, left).await, U256::from(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposit_before_the_command_counts_and_a_reclaimed_one_does_not() {
    let (chain, _running) = Chain::running().await;
    let maker = chain.scene.maker.address();
    let (early, early_command) = order(&chain.scene, 1).await;
    let (late, late_command) = order(&chain.scene, 2).await;
    for id in [early.id, late.id] {
        assert!(chain.scene.deposits(maker, id, 100).await);
    }
    let reclaim = CoinGate::reclaimCall { id: late.id, to: maker };
    assert!(chain.scene.succeeds(&chain.scene.maker, chain.scene.coin().gate, &reclaim).await);
    gate_events(&chain, 3).await;
    chain.command("late", late_command).await;
    chain.command("early", early_command).await;
    chain.fact(early.id, "created").await;
    assert_eq!(chain.attempts().await.len(), 1, "nothing was tried for the other");
    assert!(chain.scene.deposits(maker, late.id, 100).await);
    chain.fact(late.id, "created").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_without_its_deposit_fails_after_the_lock_by_and_a_late_deposit_goes_back() {
    let chain = Chain::of(Scene::of_yesterday().await).await;
    let _running = Running::start(&chain);
    let (order, ChainCommand::Create(mut create)) = order(&chain.scene, 1).await else { unreachable!() };
    let maker = chain.scene.maker.address();
    // It has passed by the database's clock and not by the chain's.
    create.lock_by = chain.scene.now().await + 100;
    chain.command("one", ChainCommand::Create(create.clone())).await;
    assert!(chain.scene.deposits(maker, order.id, 99).await, "too little");
    gate_events(&chain, 1).await;
    chain.scene.next_block_at(create.lock_by + 1).await;
    assert!(chain.scene.deposits(maker, order.id, 1).await, "too late");
    chain.state("one", "create", "failed").await;
    let failed = serde_json::to_value(chain.facts(order.id).await).unwrap();
    assert_eq!(failed.as_array().map(Vec::len), Some(1), "{failed}");
    assert_eq!(failed[0]["code"], "lock_rejected", "{failed}");
    assert!(chain.attempts().await.is_empty(), "no transaction was made");
    let before = chain.scene.coin_of(order.maker.address()).await;
    let to = Address::repeat_byte(0x77);
    let reclaim = CoinGate::reclaimCall { id: order.id, to };
    assert!(chain.scene.succeeds(&chain.scene.maker, chain.scene.coin().gate, &reclaim).await);
    assert!(chain.scene.coin_of(order.maker.address()).await <= before);
    assert_eq!(chain.scene.coin_of(to).await, U256::from(100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposit_that_a_reorganization_removes_locks_nothing_until_it_is_there_again() {
    let mut chain = Chain::new().await;
    chain.config.confirmations = 4;
    let _running = Running::start(&chain);
    let (order, command) = order(&chain.scene, 1).await;
    let maker = chain.scene.maker.address();
    chain.command("one", command).await;
    chain.mined(4).await;
    assert!(chain.scene.deposits(maker, order.id, 100).await);
    gate_events(&chain, 1).await;
    chain.reorg(1).await;
    chain.mined(6).await;
    gate_events(&chain, 0).await;
    assert!(chain.attempts().await.is_empty(), "the deposit was not deep enough");
    assert!(chain.scene.deposits(maker, order.id, 100).await);
    chain.mined(6).await;
    chain.state_on_chain(order.id, 1).await;
    chain.mined(6).await;
    chain.fact(order.id, "created").await;
}
