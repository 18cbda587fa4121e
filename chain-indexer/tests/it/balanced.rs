//! One URL behind which nodes differ: a block that one has announced, and another one does not have yet.

use crate::support::Chain;
use crate::support::answers::{Answers, forward, serve};
use alloy::eips::BlockId;
use alloy::providers::DynProvider;
use dvp_chain_indexer::indexer::{Indexer, Step};
use dvp_chain_indexer::rpc;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Two nodes behind one URL: the first request about a block reaches the one that does not have it.
struct Balanced {
    upstream: DynProvider,
    announced: AtomicBool,
    seen: Mutex<HashSet<String>>,
    denied: AtomicUsize,
    /// No node has any block that is requested by its number or hash.
    never: AtomicBool,
}

impl Answers for Balanced {
    async fn answer(&self, call: &Value) -> Value {
        let (id, method) = (&call["id"], call["method"].as_str().unwrap());
        if self.denies(method, &call["params"]) {
            self.denied.fetch_add(1, Ordering::Relaxed);
            return if method == "eth_getBlockByNumber" {
                json!({"jsonrpc": "2.0", "id": id, "result": null})
            } else {
                let error = json!({"code": -32000, "message": "header not found"});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            };
        }
        if call["params"][0] == "latest" {
            self.announced.store(true, Ordering::Relaxed);
        }
        forward(&self.upstream, call).await
    }
}

impl Balanced {
    async fn start(upstream: DynProvider) -> (String, Arc<Self>) {
        let node = Arc::new(Self {
            upstream,
            announced: AtomicBool::new(false),
            seen: Mutex::default(),
            denied: AtomicUsize::new(0),
            never: AtomicBool::new(false),
        });
        (serve(Arc::clone(&node)).await, node)
    }

    fn denies(&self, method: &str, params: &Value) -> bool {
        let by_number = method == "eth_getBlockByNumber" && params[0].as_str().unwrap().starts_with("0x");
        let is_hash = |param: &Value| param.as_str().is_some_and(|text| text.len() == 66);
        let by_hash = params.to_string().contains("blockHash")
            || params.as_array().is_some_and(|params| params.iter().any(is_hash));
        let about_a_block = self.announced.load(Ordering::Relaxed) && (by_number || by_hash);
        let first = || self.seen.lock().unwrap().insert(format!("{method} {params}"));
        about_a_block && (self.never.load(Ordering::Relaxed) || first())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_another_node_behind_the_url_lacks_is_no_failure() {
    let mut chain = Chain::new().await;
    let (url, node) = Balanced::start(chain.scene.provider.clone()).await;
    chain.config.rpc_url = url.clone();
    chain.config.range_margin = 1_000;
    let mut indexer = Indexer::new(chain.pool(), chain.config.clone()).unwrap();
    let lease = chain.lease("reader").await;
    for byte in 1..=3 {
        chain.scene.anchor(&chain.scene.relayer, byte).await;
        while indexer.step(&lease).await.unwrap() != Step::Idle {}
    }
    assert_eq!(chain.logs("Anchored").await.len(), 3);
    let denied = node.denied.load(Ordering::Relaxed);
    assert!(denied > 3, "the nodes differed {denied} times");

    // As the relayer reads: the state at the head.
    let provider = rpc::connect(&url).unwrap();
    let head = rpc::head(&provider).await.unwrap();
    let account = chain.scene.relayer.address();
    let nonce = rpc::mined_nonce(&provider, account, BlockId::hash(head.hash)).await.unwrap();
    assert!(nonce >= 3, "{nonce}");
    assert!(node.denied.load(Ordering::Relaxed) > denied, "the relayer's node differed");

    // A block that no node has is an answer after a while.
    node.never.store(true, Ordering::Relaxed);
    let denied = node.denied.load(Ordering::Relaxed);
    let lost = rpc::block(&provider, BlockId::number(head.number.0)).await.unwrap();
    assert!(lost.is_none());
    assert_eq!(node.denied.load(Ordering::Relaxed) - denied, 6);
    // One that was never announced is one at once.
    let later = rpc::block(&provider, BlockId::number(head.number.0 + 1)).await.unwrap();
    assert!(later.is_none());
    assert_eq!(node.denied.load(Ordering::Relaxed) - denied, 7);
    lease.release(&chain.pool()).await.unwrap();
}
