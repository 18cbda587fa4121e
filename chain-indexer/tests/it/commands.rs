//! Swaps and returned funds: commands that end an order without settling its lock.

use crate::support::{Chain, FUNDS, OPERATORS, Order, Running, Scene, key, swap_command};
use alloy::primitives::{Bytes, U256};
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_core::chain::expected::difference;
use dvp_domain::chain::{ChainCommand, ChainFact};

fn cancel(order: &Order) -> ChainCommand {
    ChainCommand::Cancel { entity: order.id.to_string() }
}

/// The operators' signatures in descending order of their addresses, which is not the contract's order.
fn return_filled(scene: &Scene, order: &Order, by: [u8; 2], deadline: u64) -> ChainCommand {
    let IntentSettler::returnFilledCall { first, second, .. } = scene.return_call(order, by, deadline);
    let text = |signature: Bytes| signature.to_string();
    let (entity, signatures) = (order.id.to_string(), [text(second), text(first)]);
    ChainCommand::ReturnFilled { entity, deadline, signatures }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_is_one_transaction_and_done_once_it_is_settled() {
    let chain = Chain::new().await;
    chain.scene.fund_solver(1_000).await;
    let _running = Running::start(&chain);
    let (order, receiver) = (chain.scene.order(1).await, key(0xcc).address());
    let swap = swap_command(&chain.scene, &order, receiver, 40);
    chain.command("one", swap.clone()).await;
    chain.state("one", "swap", "done").await;
    let facts = chain.facts(order.id).await;
    assert!(facts.contains(&dvp_core::chain::expected::goal(&swap)), "{facts:?}");
    for fact in facts {
        assert_eq!(difference(&fact, std::slice::from_ref(&swap)), None, "{fact:?}");
    }
    assert_eq!(chain.scene.balance(receiver).await, 40);
    assert_eq!(chain.scene.balance(chain.scene.maker.address()).await, FUNDS - 100);
    assert_eq!(chain.attempts().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_with_other_terms_is_reported_with_its_own_terms() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    scene.fund_solver(1_000).await;
    let (order, receiver) = (scene.order(1).await, key(0xcc).address());
    let requested = swap_command(scene, &order, receiver, 40);
    let less = Order { amount: U256::from(99), permitted: U256::from(99), ..order.clone() };
    let other = IntentSettler::swapCall { params: scene.swap_params(&less, scene.output(receiver, 40)) };
    assert!(scene.succeeds(&scene.other_relayer, scene.deployment.settler, &other).await);
    chain.command("one", requested.clone()).await;
    let _running = Running::start(&chain);
    chain.fact(order.id, "settled").await;
    let facts = chain.facts(order.id).await;
    let settled = facts.iter().find(|fact| matches!(fact, ChainFact::Settled { .. })).unwrap();
    let found = difference(settled, &[requested]).unwrap();
    assert_eq!((found.field, found.reported.as_str(), found.requested.as_str()), ("amount", "99", "100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfilled_lock_is_returned() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.command("one", cancel(&order)).await;
    chain.state("one", "cancel", "done").await;
    assert_eq!(chain.scene.balance(chain.scene.maker.address()).await, FUNDS);
    assert_eq!(chain.facts(order.id).await.last(), Some(&ChainFact::Cancelled));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filled_lock_is_returned_by_two_operators_and_never_by_a_cancel() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    chain.create_and_fill("one", &order).await;
    chain.command("one", cancel(&order)).await;
    chain.state("one", "cancel", "failed").await;
    let refused = chain.facts(order.id).await;
    assert!(matches!(refused.last(), Some(ChainFact::CommandFailed { command, code, .. })
        if command == "cancel" && code == "cancel_rejected"));
    let deadline = chain.scene.now().await + 600;
    chain.command("one", return_filled(&chain.scene, &order, OPERATORS, deadline)).await;
    chain.state("one", "return_filled", "done").await;
    assert_eq!(chain.scene.balance(chain.scene.maker.address()).await, FUNDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_that_was_not_executed_in_time_fails() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    chain.create_and_fill("one", &order).await;
    chain.fact(order.id, "filled").await;
    let deadline = chain.scene.now().await - 1;
    chain.command("one", return_filled(&chain.scene, &order, OPERATORS, deadline)).await;
    chain.state("one", "return_filled", "failed").await;
    assert_eq!(chain.scene.balance(chain.scene.deployment.escrow).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filled_lock_is_refunded_after_its_timelock() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    chain.create_and_fill("one", &order).await;
    chain.state("one", "fill", "done").await;
    chain.command("one", ChainCommand::Refund { entity: order.id.to_string() }).await;
    chain.scene.mine_at(order.timelock).await;
    chain.state("one", "refund", "done").await;
    assert_eq!(chain.scene.balance(chain.scene.maker.address()).await, FUNDS);
    assert_eq!(chain.facts(order.id).await.last(), Some(&ChainFact::Refunded));
}
