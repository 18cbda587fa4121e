//! Nodes that take less of a transaction than others, or name more gas for a block than any has.

use crate::batches::orders;
use crate::support::answers::{Answers, forward, serve};
use crate::support::{Chain, Order, Running, Scene, anchor, raw, until};
use alloy::primitives::{Address, B256, U256};
use alloy::providers::{DynProvider, Provider as _};
use dvp_chain_indexer::reader::{ChainReader as _, HttpReader};
use dvp_domain::chain::{BlockNumber, ChainCommand, TransferCommand};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Refuses transactions of more bytes, in these words, although it may take them; its blocks name this gas.
struct Strict {
    upstream: DynProvider,
    bytes: usize,
    words: &'static str,
    block_gas: u64,
    takes_all: bool,
}

impl Answers for Strict {
    async fn answer(&self, call: &Value) -> Value {
        let raw = call["params"][0].as_str().unwrap_or_default();
        if call["method"] == "eth_sendRawTransaction" && raw.len() / 2 > self.bytes {
            if self.takes_all {
                forward(&self.upstream, call).await;
            }
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
    chain.config.rpc_url =
        serve(Arc::new(Strict { upstream, bytes, words, block_gas, takes_all: false })).await;
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
pub(crate) struct Formal(pub(crate) DynProvider, pub(crate) bool);

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

/// The node takes none of the large transactions, or one that it says to refuse.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_batch_of_anchors_is_halved_and_no_hash_is_anchored_twice() {
    for takes_all in [false, true] {
        let mut chain = Chain::new().await;
        chain.config.finality_margin = 0;
        let (upstream, words) =
            (chain.scene.provider.clone(), "oversized data: transaction size 376, limit 300");
        let strict = Strict { upstream, bytes: 300, words, block_gas: 30_000_000, takes_all };
        chain.config.rpc_url = serve(Arc::new(strict)).await;
        for byte in 1..=6 {
            chain.command(&format!("receipt {byte}"), anchor(byte)).await;
        }
        let _running = Running::start(&chain);
        let open = "select count(*) from chain_command where state <> 'done'";
        let all_done = async || {
            chain
                .run("update tx_attempt set last_broadcast_at = last_broadcast_at - interval '1 minute'")
                .await;
            chain.one::<i64>(open).await == 0
        };
        chain.mined_until("all are anchored", all_done).await;
        let anchored =
            "select count(*), count(distinct entity) from chain_log where event = 'Anchored' and canonical";
        assert_eq!(chain.rows::<(i64, i64)>(anchored).await, [(6, 6)], "{takes_all}");
        let transactions =
            chain.one::<i64>("select count(distinct tx_hash) from chain_log where event = 'Anchored'");
        assert_eq!(transactions.await > 1, !takes_all);
    }
}

/// Leaves out of its answers what other nodes have in them.
struct Sparse(DynProvider);

impl Answers for Sparse {
    async fn answer(&self, call: &Value) -> Value {
        let mut answer = forward(&self.0, call).await;
        let absent: &[&str] = match call["method"].as_str().unwrap_or_default() {
            "eth_getBlockByNumber" | "eth_getBlockByHash" => &["mixHash", "nonce", "gasLimit", "sha3Uncles"],
            "eth_getTransactionReceipt" => {
                &["logsBloom", "cumulativeGasUsed", "effectiveGasPrice", "type", "from"]
            }
            "eth_feeHistory" => {
                let unknown =
                    answer["result"]["reward"].as_array().map(|blocks| vec![Value::Null; blocks.len()]);
                answer["result"]["gasUsedRatio"] = unknown.into();
                &[]
            }
            _ => &[],
        };
        if let Some(fields) = answer["result"].as_object_mut() {
            fields.retain(|name, _| !absent.contains(&name.as_str()));
        }
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_a_node_leaves_out_stops_neither_the_index_nor_the_relayer() {
    let mut chain = Chain::new().await;
    chain.config.rpc_url = serve(Arc::new(Sparse(chain.scene.provider.clone()))).await;
    let orders = orders(&chain.scene, 3).await;
    chain.create_all(&orders).await;
    let _running = Running::start(&chain);
    chain.all_created(&orders).await;
    until("the market's tip is known", async || {
        chain.one::<bool>("select exists (select from chain_fees where tip > 0)").await
    })
    .await;
}

/// Takes three calls as one request, and no more.
struct Few(DynProvider);

impl Answers for Few {
    async fn answer(&self, call: &Value) -> Value {
        forward(&self.0, call).await
    }

    fn batch_max(&self) -> usize {
        3
    }
}

#[tokio::test]
async fn calls_go_in_requests_as_small_as_an_endpoint_takes() {
    let scene = Scene::new().await;
    for _ in 0..8 {
        scene.mine().await;
    }
    let reader = HttpReader::new(&serve(Arc::new(Few(scene.provider.clone()))).await).unwrap();
    let numbers: Vec<BlockNumber> = (1..=8).map(BlockNumber).collect();
    for _ in 0..2 {
        let blocks = reader.blocks(&numbers).await.unwrap();
        let read: Vec<BlockNumber> = blocks.into_iter().flatten().map(|block| block.number).collect();
        assert_eq!(read, numbers);
    }
}

/// Says that a call reverts, and never why.
struct Mute(DynProvider);

impl Answers for Mute {
    async fn answer(&self, call: &Value) -> Value {
        let mut answer = forward(&self.0, call).await;
        if answer["error"].is_object() {
            answer["error"] = json!({"code": -32015, "message": "VM execution error."});
        }
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_fails_after_its_last_second_where_a_node_does_not_say_why_it_is_refused() {
    let mut chain = Chain::new().await;
    chain.config.rpc_url = serve(Arc::new(Mute(chain.scene.provider.clone()))).await;
    let order = orders(&chain.scene, 1).await.remove(0);
    let late = Order { permitted: U256::ONE, ..order.clone() };
    chain.command("lock", chain.scene.create_command(&late)).await;
    let payment = chain.scene.transfer(B256::repeat_byte(9), Address::repeat_byte(9), u64::MAX);
    let payment = TransferCommand { not_after: order.lock_by, ..payment };
    chain.command("payment", ChainCommand::Transfer(Box::new(payment))).await;
    let mut relayer = chain.relayer();
    let lease = chain.lease("relayer").await;
    let states = "select distinct state from chain_command";
    for (at, expected) in [(order.lock_by, "pending"), (order.lock_by + 1, "failed")] {
        chain.scene.mine_at(at).await;
        chain.run("update chain_command set not_before = now()").await;
        relayer.turn(&lease).await.unwrap();
        assert_eq!(chain.rows::<(String,)>(states).await, [(expected.to_owned(),)], "{at}");
    }
}

/// Has no history of fees, and counts the questions about one.
struct Forgetful {
    upstream: DynProvider,
    asked: AtomicUsize,
}

impl Answers for Forgetful {
    async fn answer(&self, call: &Value) -> Value {
        if call["method"] != "eth_feeHistory" {
            return forward(&self.upstream, call).await;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let error = json!({"code": -32601, "message": "the method eth_feeHistory does not exist"});
        json!({"jsonrpc": "2.0", "id": call["id"], "error": error})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_without_a_history_of_fees_is_not_asked_for_one_every_turn() {
    let mut chain = Chain::new().await;
    let node = Arc::new(Forgetful { upstream: chain.scene.provider.clone(), asked: AtomicUsize::new(0) });
    chain.config.rpc_url = serve(Arc::clone(&node)).await;
    let mut relayer = chain.relayer();
    let lease = chain.lease("relayer").await;
    let orders = orders(&chain.scene, 3).await;
    for order in &orders {
        chain.create_all([order]).await;
        // The wallet's next permit waits until this one's transaction is known to be in a block.
        for _ in 0..2 {
            relayer.turn(&lease).await.unwrap();
            chain.mined(1).await;
        }
    }
    assert_eq!(node.asked.load(Ordering::Relaxed), 1);
    assert_eq!(chain.one::<i64>("select count(*) from chain_command where state = 'sent'").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anchor_has_the_gas_for_a_counter_that_a_reorganization_sets_back_to_zero() {
    let (chain, _running) = Chain::running().await;
    chain.mined(4).await;
    // The first anchor of all is another account's, and is not sent again.
    chain.scene.anchor(&chain.scene.other_relayer, 0x70).await;
    chain.anchors(0x71..=0x71).await;
    assert_eq!(chain.attempts().await.len(), 1);
    chain.reorg(2).await;
    let blocks = "select count(distinct l.block_hash) from chain_log l join tx_attempt a on a.hash = l.tx_hash \
                  where l.event = 'Anchored'";
    chain.mined_until("it is anchored again", async || chain.one::<i64>(blocks).await == 2).await;
    assert_eq!(chain.attempts().await.len(), 1, "the same transaction succeeded");
}
