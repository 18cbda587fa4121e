//! Several accounts, gaps between nonces, and accounts without funds.

use crate::support::{Chain, FUNDS, Running, anchor, eventually, key, raw, until, vault};
use alloy::primitives::U256;
use alloy::providers::Provider;
use dvp_chain_indexer::contracts::token::TestToken;
use dvp_chain_indexer::run_relayers;
use dvp_store::chain::{self as store, AccountState};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn two_accounts_share_the_commands_and_do_each_once() {
    let chain = Chain::new().await;
    let (first, second) = (chain.scene.relayer.clone(), chain.scene.other_relayer.clone());
    let (at_first, at_second) = (first.address(), second.address());
    let _running = Running::of(&chain, vec![first.into(), second.into()], vault());
    // Both are in service before there are commands.
    let able = "select count(*) from relayer_account where able_at is not null";
    until("both accounts are able", async || chain.one::<i64>(able).await == 2).await;
    // The account that checked just before the other was in service may take the first command: the rest is shared.
    chain.anchors(1..=1).await;
    chain.anchors(2..=13).await;
    let carried: i64 = chain.one("select count(*) from slot_command").await;
    assert_eq!(carried, 13, "each is in one transaction");
    let provider = &chain.scene.provider;
    let sent = [
        provider.get_transaction_count(at_first).await.unwrap(),
        provider.get_transaction_count(at_second).await.unwrap(),
    ];
    assert!(sent.iter().all(|count| *count > 0), "one account did it all: {sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_that_a_reorg_released_is_filled() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    // The contract's first anchor costs more than later ones: the present estimate must suffice after the
    // reorganization.
    scene.anchor(&scene.admin, 0x0e).await;
    let snapshot: String = raw(&scene.provider, "evm_snapshot", json!([])).await;
    // A foreign transaction uses the account's first nonce, and a reorganization removes it once the second was signed.
    scene.anchor(&scene.relayer, 0x0f).await;
    chain.command("one", anchor(1)).await;
    chain.sign_as(&scene.relayer).await;
    assert!(raw::<bool>(&scene.provider, "evm_revert", json!([snapshot])).await);
    assert_eq!(scene.provider.get_transaction_count(scene.relayer.address()).await.unwrap(), 0);

    let _running = Running::start(&chain);
    chain.state("one", "anchor", "done").await;
    assert_eq!(scene.provider.get_transaction_count(scene.relayer.address()).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_funds_is_reported() {
    let chain = Chain::new().await;
    let relayer = chain.scene.relayer.address();
    let _: () = raw(&chain.scene.provider, "anvil_setBalance", json!([relayer, "0x2386f26fc10000"])).await;
    let _running = Running::start(&chain);
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
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anchor_by_an_account_that_is_newer_than_the_record_is_ours() {
    let mut chain = Chain::new().await;
    // As in a process that started before the account was added to the deployment's record.
    chain.config.deployment.relayers = vec![chain.scene.relayer.address()];
    chain.mined(2).await;
    let indexing = Running::indexer(&chain);
    let is_read = async || chain.cursor().await.is_some_and(|cursor| cursor.head_number.0 > 2);
    until("the chain is read", is_read).await;
    let (newer, shutdown) = (vec![chain.scene.other_relayer.clone().into()], CancellationToken::new());
    let relaying =
        tokio::spawn(run_relayers(chain.pool(), chain.config.clone(), newer, vault(), shutdown.clone()));
    chain.anchors(1..=3).await;
    assert_eq!(chain.logs("Anchored").await.len(), 3, "each is anchored once");
    shutdown.cancel();
    relaying.await.unwrap().unwrap();
    indexing.stop().await;
    // Its share is free at once: the others need not wait for it to expire.
    let able = "select count(*) from relayer_account where able_at is not null";
    assert_eq!(chain.one::<i64>(able).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_accounts_transaction_is_judged_until_the_account_is_drained() {
    let chain = Chain::new().await;
    let orders = chain.scene.orders(0x60, 3).await;
    chain.create_all(&orders).await;
    let left_out = &orders[1];
    chain.sign_as(&chain.scene.other_relayer).await;
    // The batch skips one order: it can never succeed.
    let away = TestToken::transferCall { to: key(0xee).address(), value: U256::from(FUNDS) };
    assert!(chain.scene.succeeds(&left_out.maker, chain.scene.token, &away).await);
    let _running = Running::start(&chain);
    chain.all_created(orders.iter().filter(|order| order.id != left_out.id)).await;
    chain.fact(left_out.id, "command_failed").await;
    assert_eq!(chain.attempts().await.len(), 1, "its own bytes were sent");
    let (pool, signer) = (chain.pool(), chain.scene.other_relayer.address());
    let state = async || {
        let accounts = store::list_accounts(&mut pool.acquire().await.unwrap()).await.unwrap();
        accounts.into_iter().find(|account| account.signer == signer).unwrap().state
    };
    until("its transaction is final", async || {
        chain.mined(1).await;
        state().await == AccountState::Drained
    })
    .await;
    // While a process has the account, it is in service.
    let name = format!("relayer:{}:{signer}", chain.config.chain_id);
    let lease = chain.lease(&name).await;
    assert_eq!(state().await, AccountState::InService);
    lease.release(&pool).await.unwrap();
}
