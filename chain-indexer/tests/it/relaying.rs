//! Commands in batches: commands that fail alone, that are retried, and that must not be carried out any more.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

use crate::support::{Chain, FUNDS, Order, Running, Scene, eventually, key, raw, vault};
use alloy::primitives::{B256, U256, keccak256};
use alloy::providers::Provider;
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_chain_indexer::contracts::token::TestToken;
use dvp_chain_indexer::relayer::Relayer;
use dvp_chain_indexer::rpc;
use dvp_domain::chain::{BlockNumber, ChainCommand, ChainFact, TransferCommand};
use dvp_store::chain as store;
use dvp_store::chain::commands;
use dvp_store::orders::operations;
use serde_json::json;

fn anchor(number: u32) -> ChainCommand {
    ChainCommand::Anchor { content_hash: keccak256(number.to_be_bytes()).to_string() }
}

/// Orders of distinct wallets, with ids from `from` on.
async fn orders(scene: &Scene, from: u8, count: u8) -> Vec<Order> {
    let template = scene.order(1).await;
    let mut orders = Vec::new();
    for id in from..from + count {
        let maker = scene.wallet(B256::repeat_byte(id), FUNDS).await;
        orders.push(Order { id: B256::repeat_byte(id), maker, nonce: U256::ZERO, ..template.clone() });
    }
    orders
}

/// One turn of a relayer that signs waiting commands: nothing is sent.
async fn signed(chain: &Chain, name: &str) {
    let relayer =
        Relayer::new(chain.pool(), chain.config.clone(), chain.scene.relayer.clone(), vault()).unwrap();
    let lease = chain.lease(name).await;
    let head = rpc::head(&chain.scene.provider).await.unwrap();
    relayer.sign_ready(&lease, &head).await.unwrap();
    lease.release(&chain.pool()).await.unwrap();
}

async fn spend_all(scene: &Scene, maker: &PrivateKeySigner) {
    let value = U256::from(scene.balance(maker.address()).await);
    let away = TestToken::transferCall { to: key(0xee).address(), value };
    assert!(scene.succeeds(maker, scene.token, &away).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_commands_share_a_transaction_in_the_order_of_deadlines() {
    let chain = Chain::new(Scene::new().await).await;
    let orders = orders(&chain.scene, 0x10, 12).await;
    for number in 0..20 {
        chain.command(&format!("receipt {number}"), anchor(number)).await;
    }
    for order in &orders {
        chain.command(&order.id.to_string(), chain.scene.create_command(order)).await;
    }
    signed(&chain, "one turn").await;
    let slots: Vec<(String, i64)> = sqlx::query_as(
        "select kind, count(*) from nonce_slot join slot_command using (chain_id, signer, nonce)
         group by nonce, kind order by nonce",
    )
    .fetch_all(&chain.pool())
    .await
    .unwrap();
    assert_eq!(slots, [("create".to_owned(), 12), ("anchor".to_owned(), 20)]);

    let running = Running::start(&chain);
    for order in &orders {
        chain.fact(order.id, "created").await;
    }
    assert_eq!(chain.scene.balance(chain.scene.deployment.escrow).await, 1_200);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_item_changes_nothing_for_the_others_and_is_judged_alone() {
    let chain = Chain::new(Scene::new().await).await;
    let orders = orders(&chain.scene, 0x20, 5).await;
    for order in &orders {
        chain.command(&order.id.to_string(), chain.scene.create_command(order)).await;
    }
    signed(&chain, "one turn").await;
    // Between signature and block one wallet is emptied: the batch skips its order.
    spend_all(&chain.scene, &orders[2].maker).await;
    let running = Running::start(&chain);
    for order in orders.iter().filter(|order| order.id != orders[2].id) {
        chain.fact(order.id, "created").await;
    }
    chain.fact(orders[2].id, "command_failed").await;
    chain.state(&orders[2].id.to_string(), "create", "failed").await;
    assert_eq!(chain.attempts().await.len(), 1, "the failed one was asked, not sent");
    assert_eq!(chain.scene.balance(chain.scene.deployment.escrow).await, 400);
    running.stop().await;
}

/// As after a reorganization that removed locks whose commitments were requested.
#[tokio::test(flavor = "multi_thread")]
async fn commands_on_an_abandoned_lock_are_abandoned_unless_the_engine_used_it() {
    let chain = Chain::new(Scene::new().await).await;
    let orders = orders(&chain.scene, 0x28, 3).await;
    for order in &orders {
        spend_all(&chain.scene, &order.maker).await;
        chain.command(&order.id.to_string(), chain.scene.create_command(order)).await;
        let (entity, payout_ref) = (order.id.to_string(), B256::repeat_byte(0x99).to_string());
        chain.command(&order.id.to_string(), ChainCommand::Fill { entity, payout_ref }).await;
    }
    let acted_on = orders[2].id;
    sqlx::query(
        "insert into chain_fact (chain_id, entity, kind, payload, consumed_at)
         values ($1, $2, 'filled', '{\"kind\": \"filled\", \"payout_ref\": \"\"}', now())",
    )
    .bind(chain.config.chain_id.cast_signed())
    .bind(acted_on.as_slice())
    .execute(&chain.pool())
    .await
    .unwrap();
    signed(&chain, "the locks are given up").await;
    signed(&chain, "what needs them is looked at").await;
    let commands: Vec<(Vec<u8>, String, String)> =
        sqlx::query_as("select entity, kind, state from chain_command order by kind, id")
            .fetch_all(&chain.pool())
            .await
            .unwrap();
    let reported: Vec<_> =
        commands.iter().map(|(id, kind, state)| (id[0], kind.as_str(), state.as_str())).collect();
    assert_eq!(
        reported,
        [
            (0x28, "create", "failed"),
            (0x29, "create", "failed"),
            (0x2a, "create", "failed"),
            (0x28, "fill", "failed"),
            (0x29, "fill", "failed"),
            (0x2a, "fill", "pending"),
        ]
    );
    let facts = chain.facts(orders[0].id).await;
    let rejected = |fact: &ChainFact| {
        matches!(fact, ChainFact::CommandFailed { command, code, .. }
        if command == "fill" && code == "fill_rejected")
    };
    assert!(facts.iter().any(rejected), "{facts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_command_is_not_carried_out_after_a_reorg() {
    let chain = Chain::new(Scene::new().await).await;
    let scene = &chain.scene;
    let orders = orders(scene, 0x30, 3).await;
    for order in &orders {
        chain.command(&order.id.to_string(), scene.create_command(order)).await;
    }
    signed(&chain, "one turn").await;
    let funded = scene.provider.get_block_number().await.unwrap();
    spend_all(scene, &orders[1].maker).await;
    let running = Running::start(&chain);
    chain.state(&orders[1].id.to_string(), "create", "failed").await;
    chain.fact(orders[0].id, "created").await;
    // The blocks with the spending and with the batch are replaced by empty ones: the wallet has its funds again.
    let depth = scene.provider.get_block_number().await.unwrap() - funded;
    let _: serde_json::Value = raw(&scene.provider, "anvil_reorg", json!([depth, []])).await;
    for order in [&orders[0], &orders[2]] {
        chain.state_on_chain(order.id, 1).await;
        chain.state(&order.id.to_string(), "create", "done").await;
    }
    chain.state_on_chain(orders[1].id, 0).await;
    assert_eq!(scene.balance(orders[1].maker.address()).await, FUNDS);
    chain.state(&orders[1].id.to_string(), "create", "failed").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_refusal_is_retried_and_shown_to_operators() {
    let chain = Chain::new(Scene::new().await).await;
    let scene = &chain.scene;
    let order = scene.order(1).await;
    chain.command("one", scene.create_command(&order)).await;
    assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &IntentSettler::pauseCall {}).await);
    let running = Running::start(&chain);
    let why = chain.troubled("one", "create").await;
    assert_eq!(why, "the contract is paused");
    let mut conn = chain.pool().acquire().await.unwrap();
    let listed = store::list_commands(&mut conn, store::CommandFilter::Troubled, 10).await.unwrap();
    let [command] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((command.kind.as_str(), command.trouble.as_deref()), ("create", Some(why.as_str())));
    assert!(command.not_before > command.created_at);
    assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &IntentSettler::unpauseCall {}).await);
    let mut tx = chain.pool().begin().await.unwrap();
    let retried = store::retry_command(&mut tx, command.id, "jo", "it is open again").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(retried, store::Retried::Now);
    chain.state("one", "create", "done").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_anchors_leaves_room_for_a_lock_in_the_next_block() {
    let chain = Chain::new(Scene::new().await).await;
    let scene = &chain.scene;
    let _: serde_json::Value = raw(&scene.provider, "evm_setAutomine", json!([false])).await;
    let hashes: Vec<Vec<u8>> =
        (0..20_000_u32).map(|number| keccak256(number.to_be_bytes()).to_vec()).collect();
    sqlx::query(
        "insert into chain_command (chain_id, reference, intent_id, entity, kind, payload)
         select $1, encode(hash, 'hex'), 'i', hash, 'anchor',
                jsonb_build_object('kind', 'anchor', 'content_hash', '0x' || encode(hash, 'hex'))
         from unnest($2::bytea[]) as hash",
    )
    .bind(chain.config.chain_id.cast_signed())
    .bind(&hashes)
    .execute(&chain.pool())
    .await
    .unwrap();
    let running = Running::start(&chain);
    let pool = chain.pool();
    let under_way = async |kind: &str| -> i64 {
        let count = "select count(*) from nonce_slot where kind = $1 and state = 'broadcast'";
        sqlx::query_scalar(count).bind(kind).fetch_one(&pool).await.unwrap()
    };
    eventually("anchors are under way", async || (under_way("anchor").await > 0).then_some(())).await;
    let order = scene.order(1).await;
    chain.command("one", scene.create_command(&order)).await;
    eventually("the lock is under way", async || (under_way("create").await > 0).then_some(())).await;
    chain.mined(1).await;
    chain.state_on_chain(order.id, 1).await;
    let waiting: i64 =
        sqlx::query_scalar("select count(*) from chain_command where kind = 'anchor' and state = 'pending'")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!(waiting > 10_000, "{waiting} anchors wait still");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_a_retired_account_are_broadcast_again() {
    let chain = Chain::new(Scene::new().await).await;
    let scene = &chain.scene;
    chain.command("one", anchor(1)).await;
    let retired =
        Relayer::new(chain.pool(), chain.config.clone(), scene.other_relayer.clone(), vault()).unwrap();
    let lease = chain.lease("retired").await;
    let head = rpc::head(&scene.provider).await.unwrap();
    retired.sign_ready(&lease, &head).await.unwrap();
    drop(retired);
    let running = Running::start(&chain);
    chain.state("one", "anchor", "done").await;
    assert_eq!(chain.attempts().await.len(), 1, "its own bytes were sent");
    let used = scene.provider.get_transaction_count(scene.other_relayer.address()).await.unwrap();
    assert_eq!(used, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_nonce_that_cannot_be_repriced_is_used_by_its_old_bytes() {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.fees.cap_wei = rpc::head(&chain.scene.provider).await.unwrap().base_fee.into();
    let automine = async |on: bool| {
        let _: serde_json::Value = raw(&chain.scene.provider, "evm_setAutomine", json!([on])).await;
    };
    automine(false).await;
    chain.command("one", anchor(1)).await;
    signed(&chain, "signed").await;
    let lease = chain.lease("abandoned").await;
    let account = chain.scene.relayer.clone();
    let mut relayer = Relayer::new(chain.pool(), chain.config.clone(), account.clone(), vault()).unwrap();
    let mut fillers = Vec::new();
    for _ in 0..3 {
        let mut conn = chain.pool().acquire().await.unwrap();
        store::abandon_slots(&mut conn, chain.config.chain_id, account.address()).await.unwrap();
        drop(conn);
        relayer.turn(&lease).await.unwrap();
        let (state, hash): (String, Vec<u8>) = sqlx::query_as(
            "select state, hash from nonce_slot join tx_attempt using (chain_id, signer, nonce)
             where nonce = 0 order by attempt desc limit 1",
        )
        .fetch_one(&chain.pool())
        .await
        .unwrap();
        assert_eq!(state, "broadcast");
        fillers.push(hash);
    }
    assert_eq!((&fillers[0], &fillers[1]), (&fillers[1], &fillers[2]), "nothing may be paid more");
    lease.release(&chain.pool()).await.unwrap();
    automine(true).await;
    let running = Running::start(&chain);
    chain.state("one", "anchor", "done").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_fill_is_taken_out_of_its_transaction_and_the_lock_is_cancelled() {
    let chain = Chain::new(Scene::new().await).await;
    let order = chain.scene.order(1).await;
    let entity = order.id.to_string();
    let automine = async |on: bool| {
        let _: serde_json::Value = raw(&chain.scene.provider, "evm_setAutomine", json!([on])).await;
    };
    let running = Running::start(&chain);
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.state("one", "create", "done").await;
    automine(false).await;
    chain.command("one", ChainCommand::Fill { entity: entity.clone(), payout_ref: entity.clone() }).await;
    chain.state("one", "fill", "sent").await;
    let mut conn = chain.pool().acquire().await.unwrap();
    commands::withdraw_fills(&mut conn, &["one"]).await.unwrap();
    drop(conn);
    chain.command("one", ChainCommand::Cancel { entity }).await;
    // The lock, the fill, the same nonce without it, and the cancel.
    chain.until_attempts(4).await;
    automine(true).await;
    chain.mined(1).await;
    chain.state_on_chain(order.id, 4).await;
    chain.state("one", "cancel", "done").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reverted_final_transaction_is_sent_again_once_the_chain_is_resumed() {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.finality_margin = 0;
    chain.mined(3).await;
    let shared = chain.scene.provider.get_block_number().await.unwrap();
    let running = Running::start(&chain);
    let pool = chain.pool();
    // The shared block is indexed by then, and stays.
    eventually("the head is read", async || {
        let cursor =
            store::find_cursor(&mut pool.acquire().await.unwrap(), chain.config.chain_id).await.unwrap();
        cursor.filter(|cursor| cursor.head_number.0 >= shared)
    })
    .await;
    let order = chain.scene.order(1).await;
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.state("one", "create", "done").await;
    chain.mined(20).await;
    eventually("the transaction is final", async || {
        let count = "select count(*) from nonce_slot where state = 'final'";
        let slots: i64 = sqlx::query_scalar(count).fetch_one(&pool).await.unwrap();
        (slots == 1).then_some(())
    })
    .await;
    let head = chain.scene.provider.get_block_number().await.unwrap();
    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_reorg", json!([head - shared, []])).await;
    eventually("the chain is halted", async || {
        let cursor =
            store::find_cursor(&mut pool.acquire().await.unwrap(), chain.config.chain_id).await.unwrap();
        cursor.and_then(|cursor| cursor.halted)
    })
    .await;
    chain.state_on_chain(order.id, 0).await;
    let mut tx = pool.begin().await.unwrap();
    assert!(store::resume(&mut tx, chain.config.chain_id, BlockNumber(shared), None).await.unwrap());
    tx.commit().await.unwrap();
    chain.state_on_chain(order.id, 1).await;
    chain.state("one", "create", "done").await;
    assert_eq!(chain.attempts().await.len(), 1, "the same transaction");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fees_are_recorded_at_new_blocks_and_age_while_there_is_none() {
    let chain = Chain::new(Scene::new().await).await;
    let mut relayer =
        Relayer::new(chain.pool(), chain.config.clone(), chain.scene.relayer.clone(), vault()).unwrap();
    let lease = chain.lease("fees").await;
    let recorded = async || {
        let fees = store::list_fees(&mut chain.pool().acquire().await.unwrap()).await.unwrap();
        fees.into_iter().next().unwrap()
    };
    relayer.turn(&lease).await.unwrap();
    let (chain_id, first, seen_at) = recorded().await;
    assert_eq!((chain_id, first.cap), (chain.config.chain_id, chain.config.fees.cap_wei));
    // Turns without a new block, past the shortest interval between two records.
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_millis(1_200) {
        relayer.turn(&lease).await.unwrap();
    }
    assert_eq!(recorded().await.2, seen_at);
    // The same fee in a new block is a new record.
    let base_fee = json!([U256::from(first.base_fee)]);
    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_setNextBlockBaseFeePerGas", base_fee).await;
    chain.scene.mine().await;
    relayer.turn(&lease).await.unwrap();
    assert!(recorded().await.2 > seen_at);
    lease.release(&chain.pool()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_in_an_earlier_attempt_of_a_rebuilt_transaction_may_still_be_included() {
    let chain = Chain::new(Scene::new().await).await;
    chain.scene.fund_solver(100).await;
    let receiver = key(0xbb).address();
    let payment = TransferCommand {
        entity: B256::repeat_byte(0x71).to_string(),
        payer: chain.scene.solver.address().to_string(),
        receiver: receiver.to_string(),
        token: chain.scene.token.to_string(),
        amount: "40".into(),
        not_after: u64::MAX,
    };
    chain.command("one", ChainCommand::Transfer(Box::new(payment))).await;
    signed(&chain, "signed").await;
    let pool = chain.pool();
    let sealed: Vec<u8> = sqlx::query_scalar("select sealed from tx_attempt").fetch_one(&pool).await.unwrap();
    let [payment] = chain.attempts().await.try_into().unwrap();

    // The account is taken out, its transaction is given up, and it comes back.
    let account = chain.scene.relayer.clone();
    let mut conn = pool.acquire().await.unwrap();
    store::abandon_slots(&mut conn, chain.config.chain_id, account.address()).await.unwrap();
    sqlx::query("update chain_command set not_before = now() + interval '1 hour'")
        .execute(&mut *conn)
        .await
        .unwrap();
    let automine = async |on: bool| {
        let _: serde_json::Value = raw(&chain.scene.provider, "evm_setAutomine", json!([on])).await;
    };
    automine(false).await;
    let mut relayer = Relayer::new(chain.pool(), chain.config.clone(), account, vault()).unwrap();
    let lease = chain.lease("back").await;
    relayer.turn(&lease).await.unwrap();
    let [_, empty] = chain.attempts().await.try_into().unwrap();
    assert!(store::commands::may_transfer_be_included(&mut conn, "one").await.unwrap());
    // The order's history has the transaction with the payment, and not the empty one.
    let history = operations::load_history(&mut conn, "one").await.unwrap();
    let hashes: Vec<&str> =
        history["transactions"].as_array().unwrap().iter().map(|tx| tx["txHash"].as_str().unwrap()).collect();
    assert_eq!(hashes, [payment.hash.to_string()]);
    drop(conn);

    // A node that does not have the empty transaction includes the payment.
    let bytes = vault().open(&format!("tx:{}", payment.hash), &sealed).unwrap();
    let _: serde_json::Value = raw(&chain.scene.provider, "anvil_dropTransaction", json!([empty.hash])).await;
    drop(chain.scene.provider.send_raw_transaction(&bytes).await.unwrap());
    automine(true).await;
    chain.mined(1).await;
    assert_eq!(chain.scene.balance(receiver).await, 40);
    lease.release(&pool).await.unwrap();
    let running = Running::start(&chain);
    chain.state("one", "transfer", "done").await;
    running.stop().await;
}
