//! From commands to facts: indexer and relayer on a real node and a real database.

use crate::support::node::{Node, Reader};
use crate::support::{Chain, FUNDS, Order, Running, Scene, anchor, key, raw};
use alloy::primitives::{B256, U256};
use alloy::providers::Provider;
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::ChainWallets;
use dvp_chain_indexer::indexer::{IndexError, Step};
use dvp_core::chain::{WalletFacts, WalletKey, WalletReader};
use dvp_core::secrets::{MasterKey, Vault};
use dvp_domain::chain::{ChainCommand, ChainFact};
use serde_json::json;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_created_filled_settled_and_anchored() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    let hash = B256::repeat_byte(0x5e);
    chain.create_and_fill("one", &order).await;
    chain.command("one", chain.scene.settle_command(&order)).await;
    chain.command("one", anchor(0x5e)).await;

    chain.fact(hash, "anchored").await;
    chain.fact(order.id, "settled").await;
    let facts = chain.facts(order.id).await;
    let created = chain.scene.created(&order);
    let filled = ChainFact::Filled { payout_ref: order.id.to_string() };
    assert_eq!(facts, [created, filled, ChainFact::Settled { swap: None }], "in this order, each once");
    assert_eq!(chain.scene.balance(chain.scene.solver.address()).await, 100);
    assert_eq!(chain.scene.balance(chain.scene.maker.address()).await, FUNDS - 100);
    for kind in ["create", "fill", "settle", "anchor"] {
        chain.state("one", kind, "done").await;
    }
    assert_eq!(chain.attempts().await.len(), 4, "one transaction a command");
}

fn master_key(id: &str, byte: u8) -> MasterKey {
    MasterKey { id: id.to_owned(), key: [byte; 32] }
}

/// The number of rows, by table, that contain these bytes.
async fn rows_with(chain: &Chain, bytes: &[u8]) -> Vec<(String, i64)> {
    let tables = "select tablename::text from pg_tables where schemaname = 'public'";
    let mut found = Vec::new();
    for (table,) in chain.rows::<(String,)>(tables).await {
        // The names are the schema's own.
        let count = sqlx::AssertSqlSafe(format!(
            "select count(*) from {table} t where t::text ilike '%' || $1 || '%'"
        ));
        let rows: i64 =
            sqlx::query_scalar(count).bind(alloy::hex::encode(bytes)).fetch_one(&chain.pool()).await.unwrap();
        if rows > 0 {
            found.push((table, rows));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preimage_is_in_no_row_before_it_is_revealed_even_over_a_rotation() {
    let chain = Chain::new().await;
    let before = Vault::with_keys(vec![master_key("2025", 1)]).unwrap();
    let preimage = before.preimage("one", &before.hashlock("one")).unwrap();
    let order = Order { preimage: preimage.into(), ..chain.scene.order(1).await };
    let running = Running::start_with(&chain, Arc::new(before));
    chain.create_and_fill("one", &order).await;
    chain.state("one", "fill", "done").await;
    running.stop().await;
    chain.command("one", ChainCommand::Settle { entity: order.id.to_string(), preimage: None }).await;

    // Without the order's key nothing can be sent.
    let without =
        Running::start_with(&chain, Arc::new(Vault::with_keys(vec![master_key("2026", 2)]).unwrap()));
    chain.troubled("one", "settle").await;
    without.stop().await;
    assert_eq!(rows_with(&chain, &preimage).await, []);

    let rotated = Vault::with_keys(vec![master_key("2026", 2), master_key("2025", 1)]).unwrap();
    let running = Running::start_with(&chain, Arc::new(rotated));
    chain.fact(order.id, "settled").await;
    chain.state("one", "settle", "done").await;
    running.stop().await;
    assert_eq!(chain.scene.balance(chain.scene.solver.address()).await, 100);
    // Commands and signed bytes do not contain it even now.
    for table in rows_with(&chain, &preimage).await {
        assert_eq!(table.0, "chain_log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_in_tokens_is_made_once_and_reported() {
    let (chain, _running) = Chain::running().await;
    let (id, receiver) = (B256::repeat_byte(0x77), key(0xbb).address());
    let transfer = ChainCommand::Transfer(Box::new(chain.scene.transfer(id, receiver, 40)));
    chain.scene.fund_solver(100).await;
    chain.command("one", transfer.clone()).await;
    chain.fact(id, "transferred").await;
    chain.command("again", transfer.clone()).await;
    chain.state("again", "transfer", "done").await;
    assert_eq!(chain.scene.balance(receiver).await, 40);
    assert_eq!(chain.facts(id).await, [dvp_core::chain::expected::goal(&transfer)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_orders_of_one_wallet_share_the_window_and_each_is_locked_once() {
    let (chain, _running) = Chain::running().await;
    let first = chain.scene.order(1).await;
    // Against the order of their permits.
    for id in (1..=40_u8).rev() {
        let nonce = first.nonce + U256::from(id - 1);
        let order = Order { id: B256::repeat_byte(id), nonce, ..first.clone() };
        chain.command(&format!("order-{id}"), chain.scene.create_command(&order)).await;
        chain.command(&format!("order-{id}"), anchor(100 + id)).await;
    }
    for id in 1..=40_u8 {
        chain.fact(B256::repeat_byte(100 + id), "anchored").await;
        chain.fact(B256::repeat_byte(id), "created").await;
    }
    assert_eq!(chain.scene.balance(chain.scene.deployment.escrow).await, 4_000);
    let attempts = chain.attempts().await.len();
    assert!(attempts < 40, "{attempts} transactions for 80 commands");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_can_never_succeed_fails_with_its_stable_code() {
    let (chain, _running) = Chain::running().await;
    let scene = &chain.scene;
    let mut expired = scene.order(1).await;
    expired.permit_deadline = scene.now().await - 1;
    let mut used = scene.order(2).await;
    let spent = scene.order(9).await;
    let create = scene.create_call(&spent, scene.signed(&spent));
    assert!(scene.succeeds(&scene.other_relayer, scene.deployment.settler, &create).await);
    used.nonce = spent.nonce;
    let mut poor = scene.order(3).await;
    (poor.amount, poor.permitted) = (U256::from(FUNDS * 2), U256::from(FUNDS * 2));
    let mut forged = scene.order(4).await;
    forged.permitted = U256::from(1);

    for (name, order, code) in [
        ("expired", &expired, "permit_expired"),
        ("used", &used, "permit_nonce_used"),
        ("poor", &poor, "insufficient_funds"),
        ("forged", &forged, "lock_rejected"),
    ] {
        chain.command(name, scene.create_command(order)).await;
        chain.fact(order.id, "command_failed").await;
        let facts = chain.facts(order.id).await;
        let [ChainFact::CommandFailed { command, code: reported, message }] = facts.as_slice() else {
            panic!("{name}: {facts:?}")
        };
        assert_eq!((command.as_str(), reported.as_str()), ("create", code), "{message}");
        chain.state(name, "create", "failed").await;
    }
    assert!(chain.attempts().await.is_empty(), "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goal_reached_by_another_account_needs_no_transaction() {
    let chain = Chain::new().await;
    let (scene, order) = (&chain.scene, chain.scene.order(1).await);
    let call = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.other_relayer, scene.deployment.settler, &call).await);
    chain.command("one", scene.create_command(&order)).await;
    let _running = Running::start(&chain);
    chain.state("one", "create", "done").await;
    assert!(chain.attempts().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reorg_marks_the_orphans_and_the_same_transaction_is_mined_again() {
    let (chain, _running) = Chain::running().await;
    let order = chain.scene.order(1).await;
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.fact(order.id, "created").await;
    chain.state("one", "create", "done").await;
    let before = chain.logs("Created").await;
    chain.mined(1).await;

    chain.reorg(2).await;
    chain.until_canonical_elsewhere(&before[0]).await;
    let after = chain.logs("Created").await;
    assert_eq!(after.len(), 2, "the orphan stays");
    assert!(!after.iter().find(|log| log.block_hash == before[0].block_hash).is_none_or(|log| log.canonical));
    assert!(after.iter().all(|log| log.tx_hash == before[0].tx_hash), "the same transaction");
    assert_eq!(chain.attempts().await.len(), 1);
    chain.state("one", "create", "done").await;
    assert_eq!(chain.scene.state(order.id).await, 1);

    // The order continues.
    chain.command("one", chain.scene.fill_command(&order)).await;
    chain.fact(order.id, "filled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_newest_blocks_gets_the_same_transactions_again() {
    let (chain, _running) = Chain::running().await;
    let (first, second) = (chain.scene.order(1).await, chain.scene.order(2).await);
    let snapshot: String = raw(&chain.scene.provider, "evm_snapshot", json!([])).await;
    chain.command("one", chain.scene.create_command(&first)).await;
    chain.fact(first.id, "created").await;
    chain.command("one", chain.scene.fill_command(&first)).await;
    chain.fact(first.id, "filled").await;
    chain.mined(2).await;

    assert!(raw::<bool>(&chain.scene.provider, "evm_revert", json!([snapshot])).await);
    assert_eq!(chain.scene.state(first.id).await, 0, "the tail is lost");

    let mut second = second;
    second.nonce = first.nonce + U256::from(1);
    chain.command("two", chain.scene.create_command(&second)).await;
    chain.fact(second.id, "created").await;
    chain.state("one", "fill", "done").await;
    chain.state_on_chain(first.id, 2).await;
    assert_eq!(chain.attempts().await.len(), 3);
    let nonce = chain.scene.provider.get_transaction_count(chain.scene.relayer.address()).await.unwrap();
    assert_eq!(nonce, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_signed_before_a_crash_are_sent_after_it() {
    let chain = Chain::new().await;
    let order = chain.scene.order(1).await;
    chain.command("one", chain.scene.create_command(&order)).await;

    for _ in 0..2 {
        chain.sign_as(&chain.scene.relayer).await;
    }
    let kept = chain.attempts().await;
    assert_eq!(kept.len(), 1, "signed once");
    let provider = &chain.scene.provider;
    let sent = provider.get_transaction_count(chain.scene.relayer.address()).await.unwrap();
    assert_eq!(sent, 0);

    let _running = Running::start(&chain);
    chain.fact(order.id, "created").await;
    assert_eq!(chain.attempts().await, kept);
    assert!(provider.get_transaction_receipt(kept[0].hash).await.unwrap().unwrap().status());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_underpriced_transaction_is_replaced_for_at_least_an_eighth_more() {
    let chain = Chain::new().await;
    let provider = chain.scene.provider.clone();
    let order = chain.scene.order(1).await;
    chain.automine(false).await;
    let _running = Running::start(&chain);
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.until_attempts(1).await;
    // The next blocks require more than it offers.
    let dear = 10_000_000_000_u64;
    let _: serde_json::Value = raw(&provider, "anvil_setNextBlockBaseFeePerGas", json!([dear])).await;
    chain.mined(3).await;
    let attempts = chain.until_attempts(2).await;
    assert!(attempts[1].max_fee >= attempts[0].max_fee + attempts[0].max_fee / 8);
    assert!(attempts[1].priority_fee >= attempts[0].priority_fee + attempts[0].priority_fee / 8);
    chain.automine(true).await;
    chain.mined(1).await;
    chain.fact(order.id, "created").await;
    assert_eq!(provider.get_transaction_count(chain.scene.relayer.address()).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_blocks_are_read_in_ranges_and_give_the_same_facts() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.config.range_margin = 0;
    let scene = &chain.scene;
    let order = scene.order(1).await;
    chain.command("one", scene.create_command(&order)).await;
    scene.lock(&order).await;
    chain.mined(200).await;
    scene.next_block_at(order.fill_deadline + 1_000).await;
    let cancel = scene.cancel_call(&order);
    assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &cancel).await);

    let steps = Reader::new(&chain).await.read_to_the_head().await.len();
    assert!(steps < 30, "{steps} steps for over 200 blocks");
    let facts = chain.facts(order.id).await;
    let created = chain.scene.created(&order);
    assert_eq!(facts, [created, ChainFact::Cancelled]);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_wait_for_the_confirmation_depth() {
    let mut chain = Chain::new().await;
    chain.config.confirmations = 3;
    let scene = &chain.scene;
    let order = scene.order(1).await;
    chain.command("one", scene.create_command(&order)).await;
    scene.lock(&order).await;
    let mut reader = Reader::new(&chain).await;
    for blocks_above in 0..3 {
        reader.read_to_the_head().await;
        assert_eq!(chain.facts(order.id).await.len(), usize::from(blocks_above == 2));
        chain.mined(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_reverts_final_blocks_is_halted() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.mined(10).await;
    let mut reader = Reader::new(&chain).await;
    reader.read_to_the_head().await;
    chain.reorg(6).await;
    let mut refused = reader.step().await;
    while matches!(refused, Err(IndexError::FinalityDoubted { .. })) {
        refused = reader.step().await;
    }
    assert!(matches!(refused, Err(IndexError::Halted(_))), "{refused:?}");
    let refused = Reader::new(&chain).await.step().await;
    assert!(matches!(refused, Err(IndexError::Halted(_))), "a restart forgets it: {refused:?}");
}

/// Some chains make blocks only on demand.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_become_final_without_a_new_one() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.mined(20).await;
    let head = chain.scene.provider.get_block_number().await.unwrap();
    let node = Node::of(&chain);
    node.wrong().finalized = head - 10;
    let mut reader = Reader::over(&chain, std::slice::from_ref(&node)).await;
    let mut last = 0;
    for finalized in [head - 10, head - 4, head] {
        node.wrong().finalized = finalized;
        reader.read_to_the_head().await;
        let now: i64 = chain.one("select final_number from chain_cursor").await;
        assert_eq!(now.cast_unsigned(), finalized, "after {last}");
        last = finalized;
    }
}

/// With an endpoint that takes a tenth of a second for an answer it would otherwise outlast the indexer's lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_deep_reorganization_takes_few_queries() {
    for depth in [1, 64, 150, 299] {
        let mut chain = Chain::new().await;
        (chain.config.finality_margin, chain.config.range_margin) = (0, 0);
        chain.mined(400).await;
        let head = chain.scene.provider.get_block_number().await.unwrap();
        let node = Node::of(&chain);
        (node.wrong().head, node.wrong().finalized) = (head - 1, head - 300);
        let mut reader = Reader::over(&chain, std::slice::from_ref(&node)).await;
        reader.read_to_the_head().await;
        (node.wrong().head, node.wrong().forked, node.wrong().branch) = (head, head - depth, 1);
        let before = node.wrong().asked;
        assert!(matches!(reader.step().await, Ok(Step::Unwound)), "{depth}");
        let now: i64 = chain.one("select head_number from chain_cursor").await;
        assert_eq!(now.cast_unsigned(), head - depth - 1);
        let asked = node.wrong().asked - before;
        assert!(asked <= 16, "{depth} blocks: {asked} queries");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wallets_are_read_from_the_chain_or_reported_unavailable() {
    let scene = Scene::new().await;
    let order = scene.order(1).await;
    let rpc_url = scene.node.rpc_url();
    let permit = scene.deployment.permit;
    let wallets = ChainWallets::over([rpc_url.as_str()], permit).unwrap();
    let wallet = |owner: &PrivateKeySigner| WalletKey {
        chain_id: 31337,
        owner: format!("{:#x}", owner.address()),
        token: format!("{:#x}", scene.token),
    };
    let requested = [wallet(&scene.maker), wallet(&scene.admin)];
    let before = wallets.read(&requested).await.unwrap();
    assert_eq!(before.head, wallets.head().await.unwrap());
    let funded = WalletFacts { nonce: 0, balance: u128::from(FUNDS), allowance: u128::MAX };
    assert_eq!(
        before.facts[0], funded,
        "the maker has funds, and approved the permit contract without limit"
    );
    assert_eq!(before.facts[1].allowance, 0);
    scene.lock(&order).await;
    let after = wallets.read(&requested).await.unwrap();
    assert!(after.head.number > before.head.number);
    let locked = WalletFacts { nonce: 1, balance: u128::from(FUNDS) - 100, ..funded };
    assert_eq!(after.facts[0], locked);

    let spare = ChainWallets::over(["http://127.0.0.1:1", &rpc_url], permit).unwrap();
    for _ in 0..2 {
        assert_eq!(spare.read(&requested).await.unwrap().facts[0], locked);
    }
    let nowhere = ChainWallets::over(["http://127.0.0.1:1"], permit).unwrap();
    assert!(nowhere.read(&requested).await.is_err());
    assert!(nowhere.head().await.is_err());
    let no_contract = ChainWallets::over([rpc_url.as_str()], key(1).address()).unwrap();
    assert!(no_contract.read(&requested).await.is_err());
    let no_address = WalletKey { chain_id: 31337, owner: "0x12".to_owned(), token: String::new() };
    assert!(wallets.read(&[no_address]).await.is_err());
}
