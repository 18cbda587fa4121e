//! Several accounts, gaps between nonces, and accounts without funds.

use crate::support::{Chain, FUNDS, Order, Running, Scene, eventually, key, raw, vault};
use alloy::primitives::{B256, TxKind, U256};
use alloy::providers::Provider;
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::contracts::token::TestToken;
use dvp_chain_indexer::relayer::Relayer;
use dvp_chain_indexer::{rpc, run_indexer, run_relayers};
use dvp_domain::chain::ChainCommand;
use dvp_store::chain::{self as store, AccountState};
use serde_json::json;
use tokio_util::sync::CancellationToken;

fn anchor(byte: u8) -> ChainCommand {
    ChainCommand::Anchor { content_hash: B256::repeat_byte(byte).to_string() }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_accounts_share_the_commands_and_do_each_once() {
    let chain = Chain::new(Scene::new().await).await;
    let shutdown = CancellationToken::new();
    let (first, second) = (chain.scene.relayer.clone(), chain.scene.other_relayer.clone());
    let (at_first, at_second) = (first.address(), second.address());
    let relaying = run_relayers(
        chain.pool(),
        chain.config.clone(),
        vec![first.into(), second.into()],
        vault(),
        shutdown.clone(),
    );
    let indexing = run_indexer(chain.pool(), chain.config.clone(), shutdown.clone());
    let tasks =
        [tokio::spawn(async { relaying.await.unwrap() }), tokio::spawn(async { indexing.await.unwrap() })];
    // Both are in service before there are commands.
    let pool = chain.pool();
    eventually("both accounts are able", async || {
        let able = "select count(*) from relayer_account where able_at is not null";
        let count: i64 = sqlx::query_scalar(able).fetch_one(&pool).await.unwrap();
        (count == 2).then_some(())
    })
    .await;
    // The account that checked just before the other was in service may take the first command: the rest is shared.
    for receipts in [1..=1, 2..=13] {
        for byte in receipts.clone() {
            chain.command(&format!("receipt {byte}"), anchor(byte)).await;
        }
        for byte in receipts {
            chain.state(&format!("receipt {byte}"), "anchor", "done").await;
        }
    }
    let carried: i64 =
        sqlx::query_scalar("select count(*) from slot_command").fetch_one(&pool).await.unwrap();
    assert_eq!(carried, 13, "each is in one transaction");
    let provider = &chain.scene.provider;
    let sent = [
        provider.get_transaction_count(at_first).await.unwrap(),
        provider.get_transaction_count(at_second).await.unwrap(),
    ];
    assert!(sent.iter().all(|count| *count > 0), "one account did it all: {sent:?}");
    shutdown.cancel();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_that_a_reorg_released_is_filled() {
    let chain = Chain::new(Scene::new().await).await;
    let scene = &chain.scene;
    // The contract's first anchor costs more than later ones: the present estimate must suffice after the
    // reorganization.
    let first = ReceiptAnchor::anchorCall { contentHash: B256::repeat_byte(0x0e) };
    assert!(scene.succeeds(&scene.admin, scene.deployment.anchor, &first).await);
    let snapshot: String = raw(&scene.provider, "evm_snapshot", json!([])).await;
    // A foreign transaction uses the account's first nonce, and a reorganization removes it once the second was signed.
    let call = ReceiptAnchor::anchorCall { contentHash: B256::repeat_byte(0x0f) };
    let foreign = scene.send(&scene.relayer, TxKind::Call(scene.deployment.anchor), call.abi_encode()).await;
    assert!(foreign.status());
    chain.command("one", anchor(1)).await;
    let relayer = Relayer::new(chain.pool(), chain.config.clone(), scene.relayer.clone(), vault()).unwrap();
    let lease = chain.lease("signer").await;
    let head = rpc::head(&scene.provider).await.unwrap();
    relayer.sign_ready(&lease, &head).await.unwrap();
    assert!(raw::<bool>(&scene.provider, "evm_revert", json!([snapshot])).await);
    assert_eq!(scene.provider.get_transaction_count(scene.relayer.address()).await.unwrap(), 0);

    let running = Running::start(&chain);
    chain.state("one", "anchor", "done").await;
    assert_eq!(scene.provider.get_transaction_count(scene.relayer.address()).await.unwrap(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_funds_is_reported() {
    let chain = Chain::new(Scene::new().await).await;
    let relayer = chain.scene.relayer.address();
    let _: () = raw(&chain.scene.provider, "anvil_setBalance", json!([relayer, "0x2386f26fc10000"])).await;
    let running = Running::start(&chain);
    let pool = chain.pool();
    let account = eventually("the account is reported low", async || {
        let accounts = store::list_accounts(&mut pool.acquire().await.unwrap()).await.unwrap();
        accounts.into_iter().find(|account| account.signer == relayer && account.balance_low)
    })
    .await;
    assert_eq!(account.balance, Some(10_000_000_000_000_000));
    // It is reported, and continues to work.
    chain.command("one", anchor(1)).await;
    chain.state("one", "anchor", "done").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anchor_by_an_account_that_is_newer_than_the_record_is_ours() {
    let mut chain = Chain::new(Scene::new().await).await;
    // As in a process that started before the account was added to the deployment's record.
    chain.config.deployment.relayers = vec![chain.scene.relayer.address()];
    chain.mined(2).await;
    let shutdown = CancellationToken::new();
    let indexing = tokio::spawn(run_indexer(chain.pool(), chain.config.clone(), shutdown.clone()));
    let pool = chain.pool();
    eventually("the chain is read", async || {
        let head: Option<i64> =
            sqlx::query_scalar("select head_number from chain_cursor").fetch_optional(&pool).await.unwrap();
        head.filter(|head| *head > 2)
    })
    .await;
    let newer = vec![chain.scene.other_relayer.clone().into()];
    let relaying =
        tokio::spawn(run_relayers(chain.pool(), chain.config.clone(), newer, vault(), shutdown.clone()));
    for byte in 1..4 {
        chain.command(&format!("receipt {byte}"), anchor(byte)).await;
    }
    for byte in 1..4 {
        chain.state(&format!("receipt {byte}"), "anchor", "done").await;
    }
    assert_eq!(chain.logs("Anchored").await.len(), 3, "each is anchored once");
    shutdown.cancel();
    indexing.await.unwrap().unwrap();
    relaying.await.unwrap().unwrap();
    // Its share is free at once: the others need not wait for it to expire.
    let able: i64 = sqlx::query_scalar("select count(*) from relayer_account where able_at is not null")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(able, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_accounts_transaction_is_judged_until_the_account_is_drained() {
    let chain = Chain::new(Scene::new().await).await;
    let template = chain.scene.order(1).await;
    let mut orders = Vec::new();
    for id in 0x60..0x63 {
        let maker = chain.scene.wallet(B256::repeat_byte(id), FUNDS).await;
        let order = Order { id: B256::repeat_byte(id), maker, nonce: U256::ZERO, ..template.clone() };
        chain.command(&order.id.to_string(), chain.scene.create_command(&order)).await;
        orders.push(order);
    }
    let left_out = &orders[1];
    let retired =
        Relayer::new(chain.pool(), chain.config.clone(), chain.scene.other_relayer.clone(), vault()).unwrap();
    let lease = chain.lease("retired").await;
    let head = rpc::head(&chain.scene.provider).await.unwrap();
    retired.sign_ready(&lease, &head).await.unwrap();
    drop(retired);
    // The batch skips one order: it can never succeed.
    let away = TestToken::transferCall { to: key(0xee).address(), value: U256::from(FUNDS) };
    assert!(chain.scene.succeeds(&left_out.maker, chain.scene.token, &away).await);
    let running = Running::start(&chain);
    for order in orders.iter().filter(|order| order.id != left_out.id) {
        chain.fact(order.id, "created").await;
    }
    chain.fact(left_out.id, "command_failed").await;
    let (pool, signer) = (chain.pool(), chain.scene.other_relayer.address());
    let state = async || {
        let accounts = store::list_accounts(&mut pool.acquire().await.unwrap()).await.unwrap();
        accounts.into_iter().find(|account| account.signer == signer).unwrap().state
    };
    eventually("its transaction is final", async || {
        chain.mined(1).await;
        (state().await == AccountState::Drained).then_some(())
    })
    .await;
    // While a process has the account, it is in service.
    let name = format!("relayer:{}:{signer}", chain.config.chain_id);
    let lease = chain.lease(&name).await;
    assert_eq!(state().await, AccountState::InService);
    lease.release(&pool).await.unwrap();
    running.stop().await;
}
