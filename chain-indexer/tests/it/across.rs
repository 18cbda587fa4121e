//! Payments for locks on another chain: neither chain waits for the other, what is reported is final, and so is that a
//! payment was never made.

use crate::support::{Chain, Order, Running, anchor, key, until};
use dvp_chain_indexer::gate::{PayoutGate, Wait};
use dvp_core::context::now;
use dvp_domain::chain::{ChainCommand, ChainFact, TransferCommand};
use dvp_store::chain::commands::NewChainCommand;
use dvp_store::insert_batch::{self, InsertBatch};
use std::time::Duration;

/// A chain of which there is no node here.
const ELSEWHERE: i64 = 77;

async fn elsewhere(chain: &Chain, order: &Order, command: ChainCommand) {
    let new = NewChainCommand {
        chain_id: ELSEWHERE,
        reference: "one".into(),
        intent_id: "intent-one".into(),
        entity: order.id.to_string(),
        escrow: chain.config.deployment.escrow.to_string(),
        command,
        trace: None,
    };
    let mut conn = chain.pool().acquire().await.unwrap();
    insert_batch::insert(&mut conn, &InsertBatch { commands: &[new], ..InsertBatch::default() })
        .await
        .unwrap();
}

fn transfer(chain: &Chain, order: &Order, not_after: u64) -> ChainCommand {
    let transfer = chain.scene.transfer(order.id, key(0xbb).address(), 40);
    ChainCommand::Transfer(Box::new(TransferCommand { not_after, ..transfer }))
}

/// A chain that pays for a lock elsewhere. What is final is 64 blocks deep.
async fn paying_chain() -> (Chain, Order) {
    let mut chain = Chain::new().await;
    chain.config.payout_gate = PayoutGate::new(Vec::new());
    chain.config.finality_margin = 0;
    chain.scene.fund_solver(100).await;
    let order = chain.scene.order(1).await;
    elsewhere(&chain, &order, chain.scene.create_command(&order)).await;
    (chain, order)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_on_a_chain_that_stands_still_does_not_hold_up_the_release_of_its_lock() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    chain.create_and_fill("one", &order).await;
    chain.state("one", "fill", "done").await;
    elsewhere(&chain, &order, transfer(&chain, &order, u64::MAX)).await;
    chain.command("one", chain.scene.settle_command(&order)).await;
    chain.state("one", "settle", "done").await;
    chain.state("one", "transfer", "pending").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_for_a_lock_elsewhere_is_reported_when_it_is_final() {
    let (chain, order) = paying_chain().await;
    let _running = Running::start(&chain);
    chain.command("one", transfer(&chain, &order, u64::MAX)).await;
    chain.state("one", "transfer", "done").await;
    let gated = "select exists (select from chain_fact where kind = 'transferred' and gate is not null)";
    assert!(chain.one::<bool>(gated).await, "it is not final yet");
    chain.mined(100).await;
    until("the payment is reported", async || !chain.one::<bool>(gated).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_reported_payment_for_a_lock_elsewhere_is_reported() {
    let (mut chain, order) = paying_chain().await;
    chain.mined(3).await;
    // A gate that is too shallow.
    chain.config.payout_gate = PayoutGate::always(Wait::Depth(1));
    let _running = Running::start(&chain);
    chain.command("one", transfer(&chain, &order, u64::MAX)).await;
    let open = "select exists (select from chain_fact where kind = 'transferred' and gate is null)";
    until("the payment is reported", async || chain.one(open).await).await;
    chain.run("update chain_fact set consumed_at = now() where kind = 'transferred'").await;
    chain.reorg(2).await;
    chain.fact(order.id, "transfer_lost").await;
    // It is sent again.
    chain.state("one", "transfer", "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_a_payment_was_never_made_is_proved_by_a_final_block() {
    let (chain, order) = paying_chain().await;
    // Only the newest block is after the payment's last second.
    chain.scene.pass(600).await;
    let late = chain.scene.now().await - 1;
    let _running = Running::start(&chain);
    chain.command("one", transfer(&chain, &order, late)).await;
    let judged =
        "select exists (select from chain_command where kind = 'transfer' and not_before > created_at)";
    until("the relayer has judged it", async || chain.one(judged).await).await;
    let state: String = chain.one("select state from chain_command where kind = 'transfer'").await;
    assert_eq!(state, "pending");
    chain.mined(100).await;
    chain.state("one", "transfer", "failed").await;
    let facts = chain.facts(order.id).await;
    assert!(
        matches!(&facts[..], [ChainFact::CommandFailed { command, code, .. }]
        if command == "transfer" && code == "transfer_rejected"),
        "{facts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_not_sent_after_its_last_second_when_the_chains_clock_is_behind() {
    let (chain, order) = paying_chain().await;
    // Its time goes on by a second a block, and so it falls behind the clock.
    chain.scene.second_a_block().await;
    let last = now().unix_secs() + 2;
    tokio::time::sleep(Duration::from_secs(4)).await;
    chain.command("one", transfer(&chain, &order, last)).await;
    assert!(chain.scene.now().await < last, "the chain would pay");
    let _running = Running::start(&chain);
    let judged =
        "select exists (select from chain_command where kind = 'transfer' and not_before > created_at)";
    until("the relayer has judged it", async || chain.one(judged).await).await;
    chain.mined(100).await;
    chain.state("one", "transfer", "failed").await;
    assert_eq!(chain.one::<i64>("select count(*) from slot_command").await, 0, "it was never signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_waits_while_the_chain_of_its_lock_is_halted() {
    let (chain, order) = paying_chain().await;
    chain
        .run(
            "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number, halted, \
                                       halted_detail, halted_at) \
             values (77, 1, sha256('h'), 1, 1, 'final_block_changed', 'by the test', now())",
        )
        .await;
    chain.command("one", transfer(&chain, &order, u64::MAX)).await;
    chain.command("two", anchor(0x5e)).await;
    let _running = Running::start(&chain);
    // Of lower priority than a payment.
    chain.state("two", "anchor", "done").await;
    chain.state("one", "transfer", "pending").await;
    chain.run("update chain_cursor set halted = null, halted_detail = null, halted_at = null").await;
    chain.state("one", "transfer", "done").await;
}
