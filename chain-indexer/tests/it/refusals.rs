//! Nodes that take less of a transaction than others, or name more gas for a block than any has.

use crate::batches::orders;
use crate::support::answers::{Answers, forward, serve};
use crate::support::{Chain, raw};
use alloy::providers::{DynProvider, Provider as _};
use serde_json::{Value, json};
use std::sync::Arc;

/// Refuses transactions of more bytes, in these words; its blocks name this gas.
struct Strict {
    upstream: DynProvider,
    bytes: usize,
    words: &'static str,
    block_gas: u64,
}

impl Answers for Strict {
    async fn answer(&self, call: &Value) -> Value {
        let raw = call["params"][0].as_str().unwrap_or_default();
        if call["method"] == "eth_sendRawTransaction" && raw.len() / 2 > self.bytes {
            let error = json!({"code": -32000, "message": self.words});
            return json!({"jsonrpc": "2.0", "id": call["id"], "error": error});
        }
        let mut answer = forward(&self.upstream, call).await;
        if call["method"] == "eth_getBlockByNumber" && answer["result"].is_object() {
            answer["result"]["gasLimit"] = json!(format!("{:#x}", self.block_gas));
        }
        answer
    }
}

/// Turns of a relayer over such a node with six locks to make. Returns the number of turns until all are made, and of
/// transactions.
async fn turns_until_locked(words: &'static str, bytes: usize, block_gas: u64) -> (usize, u64) {
    let mut chain = Chain::new().await;
    let upstream = chain.scene.provider.clone();
    chain.config.rpc_url = serve(Arc::new(Strict { upstream, bytes, words, block_gas })).await;
    let orders = orders(&chain.scene, 6).await;
    for order in &orders {
        chain.command(&format!("order-{}", order.id), chain.scene.create_command(order)).await;
    }
    let mut relayer = chain.relayer();
    let lease = chain.lease("relayer").await;
    for turn in 1..=16 {
        relayer.turn(&lease).await.unwrap();
        chain.mined(1).await;
        let mut locked = 0;
        for order in &orders {
            locked += usize::from(chain.scene.state(order.id).await == 1);
        }
        if locked == orders.len() {
            let account = chain.scene.relayer.address();
            return (turn, chain.scene.provider.get_transaction_count(account).await.unwrap());
        }
        chain.run("update chain_command set not_before = now()").await;
        chain.run("update tx_attempt set last_broadcast_at = last_broadcast_at - interval '1 minute'").await;
    }
    panic!("{words}: the locks were not made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_a_node_refuses_is_halved_until_it_takes_it() {
    let (turns, transactions) = turns_until_locked("", usize::MAX, 30_000_000).await;
    assert_eq!(transactions, 1, "in one transaction, in {turns} turns");
    for words in [
        "tx fee (1.16 ether) exceeds the configured cap (1.00 ether)",
        "oversized data: transaction size 115000, limit 95000",
        "MaxTxSizeExceeded",
        "the moon is full",
    ] {
        let (turns, transactions) = turns_until_locked(words, 2_600, 30_000_000).await;
        assert!((2..=6).contains(&transactions), "{words}: {transactions} in {turns} turns");
    }
}

/// Arbitrum names 2^50, zkSync about 2^32.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_made_on_chains_whose_blocks_name_any_gas() {
    for block_gas in [8_000_000, 1_700_000_000, 1 << 32, 1 << 50, u64::MAX] {
        let (turns, transactions) = turns_until_locked("", usize::MAX, block_gas).await;
        assert!(turns <= 3 && transactions == 1, "{block_gas}: {transactions} in {turns} turns");
    }
}

/// Wants the object of EIP-1898 where a block is given by its hash, or does not know it.
struct Formal(DynProvider, bool);

impl Answers for Formal {
    async fn answer(&self, call: &Value) -> Value {
        let is_bare = |given: &Value| given.as_str().is_some_and(|text| text.len() == 66);
        let is_refused = |given: &Value| if self.1 { is_bare(given) } else { given["blockHash"].is_string() };
        let method = call["method"].as_str().unwrap_or_default();
        let by_block =
            ["eth_call", "eth_getTransactionCount", "eth_getBalance", "eth_estimateGas", "eth_getCode"];
        let last = call["params"].as_array().and_then(|params| params.last());
        if by_block.contains(&method) && last.is_some_and(is_refused) {
            let error = json!({"code": -32602, "message": "invalid argument 1: an object is wanted"});
            return json!({"jsonrpc": "2.0", "id": call["id"], "error": error});
        }
        forward(&self.0, call).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_named_as_eip_1898_says_or_as_the_endpoint_takes_it() {
    for wants_object in [true, false] {
        let mut chain = Chain::new().await;
        chain.config.rpc_url = serve(Arc::new(Formal(chain.scene.provider.clone(), wants_object))).await;
        let order = orders(&chain.scene, 1).await.remove(0);
        chain.command("one", chain.scene.create_command(&order)).await;
        let mut relayer = chain.relayer();
        let lease = chain.lease("relayer").await;
        for _ in 0..2 {
            relayer.turn(&lease).await.unwrap();
            chain.mined(1).await;
        }
        assert_eq!(chain.scene.state(order.id).await, 1, "{wants_object}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_cannot_pay_for_a_batch_takes_no_nonce_for_it() {
    let chain = Chain::new().await;
    let orders = orders(&chain.scene, 6).await;
    for order in &orders {
        chain.command(&format!("order-{}", order.id), chain.scene.create_command(order)).await;
    }
    let account = chain.scene.relayer.address();
    let lease = chain.lease("relayer").await;
    let slots = "select count(*) from nonce_slot";
    for (wei, taken) in [("0x38d7ea4c68000", 0), ("0x8ac7230489e80000", 1)] {
        let _: Value = raw(&chain.scene.provider, "anvil_setBalance", json!([account, wei])).await;
        chain.mined(1).await;
        chain.relayer().turn(&lease).await.unwrap();
        assert_eq!(chain.one::<i64>(slots).await, taken, "{wei}");
    }
}

/// What nodes let a transaction cost bounds the fee of a large one. While the market is above that, it is halved.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_may_not_cost_what_the_market_wants_is_halved() {
    let mut chain = Chain::new().await;
    chain.config.fees.tx_fee_max_wei = 2_500_000_000_000_000;
    let orders = orders(&chain.scene, 6).await;
    for order in &orders {
        chain.command(&format!("order-{}", order.id), chain.scene.create_command(order)).await;
    }
    chain.automine(false).await;
    let mut relayer = chain.relayer();
    let lease = chain.lease("relayer").await;
    let provider = chain.scene.provider.clone();
    for _ in 0..40 {
        relayer.turn(&lease).await.unwrap();
        let dear = 10_000_000_000_u64;
        let _: Value = raw(&provider, "anvil_setNextBlockBaseFeePerGas", json!([dear])).await;
        chain.mined(1).await;
        chain.run("update chain_command set not_before = now()").await;
        chain.run("update tx_attempt set last_broadcast_at = last_broadcast_at - interval '1 minute'").await;
        let mut locked = 0;
        for order in &orders {
            locked += usize::from(chain.scene.state(order.id).await == 1);
        }
        if locked == orders.len() {
            let transactions = provider.get_transaction_count(chain.scene.relayer.address()).await.unwrap();
            assert!((2..=6).contains(&transactions), "{transactions} transactions");
            return;
        }
    }
    panic!("the locks were not made");
}
