//! Commands in batches: commands that fail alone, that are retried, and that must not be carried out any more.

use crate::support::odd::{IS_INVALID, NONE};
use crate::support::{Chain, FUNDS, Order, Running, Scene, key, raw, until, vault};
use alloy::primitives::{B256, U256, keccak256};
use alloy::providers::Provider;
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::contracts::{settler::IntentSettler, token::TestToken};
use dvp_chain_indexer::rpc;
use dvp_domain::chain::{BlockNumber, ChainCommand, ChainFact};
use dvp_store::chain as store;
use dvp_store::chain::commands;
use dvp_store::orders::operations;
use serde_json::json;

fn anchor(number: u32) -> ChainCommand {
    ChainCommand::Anchor { content_hash: keccak256(number.to_be_bytes()).to_string() }
}

async fn spend_all(scene: &Scene, maker: &PrivateKeySigner) {
    let value = U256::from(scene.balance(maker.address()).await);
    let away = TestToken::transferCall { to: key(0xee).address(), value };
    assert!(scene.succeeds(maker, scene.token, &away).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_commands_share_a_transaction_in_the_order_of_deadlines() {
    let chain = Chain::new().await;
    let orders = chain.scene.orders(0x10, 12).await;
    for number in 0..20 {
        chain.command(&format!("receipt {number}"), anchor(number)).await;
    }
    chain.create_all(&orders).await;
    chain.sign_as(&chain.scene.relayer).await;
    let slots = "select kind, count(*) from nonce_slot join slot_command using (chain_id, signer, nonce)
                 group by nonce, kind order by nonce";
    let slots: Vec<(String, i64)> = chain.rows(slots).await;
    assert_eq!(slots, [("create".to_owned(), 12), ("anchor".to_owned(), 20)]);

    let _running = Running::start(&chain);
    chain.all_created(&orders).await;
    assert_eq!(chain.scene.balance(chain.scene.deployment.escrow).await, 1_200);
}

/// Its token burns the gas of its items from the signature on: whole batches must neither revert nor fall apart.
#[tokio::test(flavor = "multi_thread")]
async fn items_that_burn_their_gas_cost_their_own_orders_only() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    let first = scene.odd_order(1).await;
    let burning: Vec<Order> = (0..3_u8)
        .map(|index| Order {
            id: B256::repeat_byte(0x50 + index),
            nonce: first.nonce + U256::from(index),
            ..first.clone()
        })
        .collect();
    let others = scene.orders(0x60, 9).await;
    chain.create_all(burning.iter().chain(&others)).await;
    chain.sign_as(&chain.scene.relayer).await;
    assert_eq!(chain.attempts().await.len(), 1, "all in one transaction");
    scene.turn(first.token, IS_INVALID).await;
    let _running = Running::start(&chain);
    chain.all_created(&others).await;
    assert!(chain.attempts().await.len() <= 3, "the others share transactions");
    let blamed = "select count(*) from chain_command where state = 'done' and tries > 0";
    assert_eq!(chain.one::<i64>(blamed).await, 0, "none of the others is blamed");
    // Its wallet's later permits wait for the first one.
    chain.troubled(&burning[0].id.to_string(), "create").await;
    scene.turn(first.token, NONE).await;
    for order in &burning {
        chain.run("update chain_command set not_before = now() where state = 'pending'").await;
        chain.fact(order.id, "created").await;
    }
}

/// As after a reorganization that removed locks whose commitments were requested.
#[tokio::test(flavor = "multi_thread")]
async fn commands_on_an_abandoned_lock_are_abandoned_unless_the_engine_used_it() {
    let chain = Chain::new().await;
    let orders = chain.scene.orders(0x28, 3).await;
    for order in &orders {
        spend_all(&chain.scene, &order.maker).await;
        chain.command(&order.id.to_string(), chain.scene.create_command(order)).await;
        chain.command(&order.id.to_string(), chain.scene.fill_command(order)).await;
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
    chain.sign_as(&chain.scene.relayer).await;
    chain.sign_as(&chain.scene.relayer).await;
    let commands: Vec<(Vec<u8>, String, String)> =
        chain.rows("select entity, kind, state from chain_command order by kind, id").await;
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
    let chain = Chain::new().await;
    let scene = &chain.scene;
    let orders = scene.orders(0x30, 3).await;
    chain.create_all(&orders).await;
    chain.sign_as(&chain.scene.relayer).await;
    let funded = scene.provider.get_block_number().await.unwrap();
    spend_all(scene, &orders[1].maker).await;
    let _running = Running::start(&chain);
    chain.state(&orders[1].id.to_string(), "create", "failed").await;
    chain.all_created([&orders[0], &orders[2]]).await;
    assert_eq!(chain.attempts().await.len(), 1, "the failed one was asked, not sent");
    // The blocks with the spending and with the batch are replaced by empty ones: the wallet has its funds again.
    let depth = scene.provider.get_block_number().await.unwrap() - funded;
    chain.reorg(depth).await;
    for order in [&orders[0], &orders[2]] {
        chain.state_on_chain(order.id, 1).await;
        chain.state(&order.id.to_string(), "create", "done").await;
    }
    chain.state_on_chain(orders[1].id, 0).await;
    assert_eq!(scene.balance(orders[1].maker.address()).await, FUNDS);
    chain.state(&orders[1].id.to_string(), "create", "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_refusal_is_retried_and_shown_to_operators() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    let order = scene.order(1).await;
    chain.command("one", scene.create_command(&order)).await;
    assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &IntentSettler::pauseCall {}).await);
    let _running = Running::start(&chain);
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_anchors_leaves_room_for_a_lock_in_the_next_block() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    chain.automine(false).await;
    let hashes: Vec<Vec<u8>> =
        (0..20_000_u32).map(|number| keccak256(number.to_be_bytes()).to_vec()).collect();
    sqlx::query(
        "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload)
         select $1, encode(hash, 'hex'), 'i', hash, $3, 'anchor',
                jsonb_build_object('kind', 'anchor', 'content_hash', '0x' || encode(hash, 'hex'))
         from unnest($2::bytea[]) as hash",
    )
    .bind(chain.config.chain_id.cast_signed())
    .bind(&hashes)
    .bind(scene.deployment.escrow.as_slice())
    .execute(&chain.pool())
    .await
    .unwrap();
    let _running = Running::start(&chain);
    let pool = chain.pool();
    let under_way = async |kind: &str| -> i64 {
        let count = "select count(*) from nonce_slot where kind = $1 and state = 'broadcast'";
        sqlx::query_scalar(count).bind(kind).fetch_one(&pool).await.unwrap()
    };
    until("anchors are under way", async || under_way("anchor").await > 0).await;
    let order = scene.order(1).await;
    chain.command("one", scene.create_command(&order)).await;
    until("the lock is under way", async || under_way("create").await > 0).await;
    chain.mined(1).await;
    chain.state_on_chain(order.id, 1).await;
    let waiting: i64 =
        chain.one("select count(*) from chain_command where kind = 'anchor' and state = 'pending'").await;
    assert!(waiting > 10_000, "{waiting} anchors wait still");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_nonce_that_cannot_be_repriced_is_used_by_its_old_bytes() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.config.fees.cap_wei = rpc::head(&chain.scene.provider).await.unwrap().base_fee.into();
    chain.automine(false).await;
    chain.command("one", anchor(1)).await;
    chain.sign_as(&chain.scene.relayer).await;
    let lease = chain.lease("abandoned").await;
    let mut relayer = chain.relayer();
    let mut fillers = Vec::new();
    for _ in 0..3 {
        let mut conn = chain.pool().acquire().await.unwrap();
        let signer = chain.scene.relayer.address();
        store::abandon_slots(&mut conn, chain.config.chain_id, signer).await.unwrap();
        drop(conn);
        relayer.turn(&lease).await.unwrap();
        let newest = "select state, hash from nonce_slot join tx_attempt using (chain_id, signer, nonce)
                      where nonce = 0 order by attempt desc limit 1";
        let (state, hash): (String, Vec<u8>) = chain.rows(newest).await.remove(0);
        assert_eq!(state, "broadcast");
        fillers.push(hash);
    }
    assert_eq!((&fillers[0], &fillers[1]), (&fillers[1], &fillers[2]), "nothing may be paid more");
    lease.release(&chain.pool()).await.unwrap();
    chain.automine(true).await;
    let _running = Running::start(&chain);
    // The anchor may be in a block by its first bytes, until the nonce's transaction is final.
    let open = "select count(*) from chain_command where state <> 'done'";
    chain.mined_until("the anchor is done", async || chain.one::<i64>(open).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_fill_is_taken_out_of_its_transaction_and_the_lock_is_cancelled() {
    let chain = Chain::new().await;
    let order = chain.scene.order(1).await;
    let _running = Running::start(&chain);
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.state("one", "create", "done").await;
    chain.automine(false).await;
    chain.command("one", chain.scene.fill_command(&order)).await;
    chain.state("one", "fill", "sent").await;
    let mut conn = chain.pool().acquire().await.unwrap();
    commands::withdraw_fills(&mut conn, &["one"]).await.unwrap();
    drop(conn);
    chain.command("one", ChainCommand::Cancel { entity: order.id.to_string() }).await;
    // The lock, the fill, the same nonce without it, and the cancel.
    chain.until_attempts(4).await;
    chain.automine(true).await;
    chain.mined(1).await;
    chain.state_on_chain(order.id, 4).await;
    chain.state("one", "cancel", "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reverted_final_transaction_is_sent_again_once_the_chain_is_resumed() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.mined(3).await;
    let shared = chain.scene.provider.get_block_number().await.unwrap();
    let _running = Running::start(&chain);
    let pool = chain.pool();
    // The shared block is indexed by then, and stays.
    let is_read = async || chain.cursor().await.is_some_and(|cursor| cursor.head_number.0 >= shared);
    until("the head is read", is_read).await;
    let order = chain.scene.order(1).await;
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.state("one", "create", "done").await;
    chain.mined(20).await;
    let count = "select count(*) from nonce_slot where state = 'final'";
    chain.mined_until("the transaction is final", async || chain.one::<i64>(count).await == 1).await;
    let head = chain.scene.provider.get_block_number().await.unwrap();
    chain.reorg(head - shared).await;
    until("the chain is halted", async || chain.cursor().await.unwrap().halted.is_some()).await;
    chain.state_on_chain(order.id, 0).await;
    let mut tx = pool.begin().await.unwrap();
    assert!(store::resume(&mut tx, chain.config.chain_id, BlockNumber(shared), None).await.unwrap());
    tx.commit().await.unwrap();
    chain.state_on_chain(order.id, 1).await;
    chain.state("one", "create", "done").await;
    assert_eq!(chain.attempts().await.len(), 1, "the same transaction");
}

#[tokio::test(flavor = "multi_thread")]
async fn fees_are_recorded_at_new_blocks_and_age_while_there_is_none() {
    let chain = Chain::new().await;
    let mut relayer = chain.relayer();
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
    let chain = Chain::new().await;
    chain.scene.fund_solver(100).await;
    let receiver = key(0xbb).address();
    let payment = chain.scene.transfer(B256::repeat_byte(0x71), receiver, 40);
    chain.command("one", ChainCommand::Transfer(Box::new(payment))).await;
    chain.sign_as(&chain.scene.relayer).await;
    let pool = chain.pool();
    let sealed: Vec<u8> = chain.one("select sealed from tx_attempt").await;
    let [payment] = chain.attempts().await.try_into().unwrap();

    // The account is taken out, its transaction is given up, and it comes back.
    let mut conn = pool.acquire().await.unwrap();
    store::abandon_slots(&mut conn, chain.config.chain_id, chain.scene.relayer.address()).await.unwrap();
    chain.run("update chain_command set not_before = now() + interval '1 hour'").await;
    chain.automine(false).await;
    let mut relayer = chain.relayer();
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
    chain.automine(true).await;
    chain.mined(1).await;
    assert_eq!(chain.scene.balance(receiver).await, 40);
    lease.release(&pool).await.unwrap();
    let _running = Running::start(&chain);
    chain.state("one", "transfer", "done").await;
}

/// The code of an oracle that answers every call with a number; `is_old`: but not one of a few bytes.
fn oracle(answer: u64, is_old: bool) -> String {
    let refusing = if is_old { "6101003611600b575f5ffd5b" } else { "" };
    format!("0x{refusing}7f{answer:064x}5f5260205ff3")
}

/// The fee of 8,192 bytes, from before the upgrade Fjord and from after it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_byte_costs_on_the_l1_of_a_rollup_is_recorded_with_its_fees() {
    let mut chain = Chain::new().await;
    let at = alloy::primitives::address!("0x420000000000000000000000000000000000000F");
    chain.config.l1_fee_oracle = Some(at);
    let lease = chain.lease("relayer").await;
    for (fee, is_old, expected) in [(8_192 * 7, false, "7"), (8_192 * 9 + 1, true, "10")] {
        let code = json!([at, oracle(fee, is_old)]);
        raw::<Option<bool>>(&chain.scene.provider, "anvil_setCode", code).await;
        chain.mined(1).await;
        chain.relayer().turn(&lease).await.unwrap();
        assert_eq!(chain.one::<String>("select data::text from chain_fees").await, expected);
    }
}
