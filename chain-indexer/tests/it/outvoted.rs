//! An endpoint that is wrong about a settlement's state.

use crate::endpoints::releasing;
use crate::support::Chain;
use crate::support::answers::{Answers, forward, serve};
use crate::support::node::Reader;
use alloy::primitives::{B256, U256};
use alloy::providers::DynProvider;
use dvp_chain_indexer::rpc;
use dvp_store::chain as store;
use serde_json::{Value, json};
use std::sync::Arc;

/// `IntentSettler.State`.
const NONE: u64 = 0;
const CREATED: u64 = 1;
const SETTLED: u64 = 3;
const CANCELLED: u64 = 4;

/// Gives another state of a settlement.
struct Liar {
    upstream: DynProvider,
    about: B256,
    state: u64,
}

impl Answers for Liar {
    async fn answer(&self, call: &Value) -> Value {
        // A view's input is its selector and the id; a call that changes the state has more.
        let input = call["params"][0]["input"].as_str().unwrap_or_default();
        let is_view = call["method"] == "eth_call" && input.len() == 74;
        if is_view && input.ends_with(&format!("{:x}", self.about)) {
            return json!({"jsonrpc": "2.0", "id": call["id"], "result": B256::from(U256::from(self.state))});
        }
        forward(&self.upstream, call).await
    }
}

/// Counts a million transactions of each account too many.
struct Counter(DynProvider);

impl Answers for Counter {
    async fn answer(&self, call: &Value) -> Value {
        let mut answer = forward(&self.0, call).await;
        if call["method"] == "eth_getTransactionCount" {
            let count = answer["result"].as_str().unwrap().trim_start_matches("0x");
            let count = u64::from_str_radix(count, 16).unwrap();
            answer["result"] = json!(format!("{:#x}", count + 1_000_000));
        }
        answer
    }
}

/// The id of an order whose fill is indexed, and whose release is due.
async fn filled(chain: &Chain) -> B256 {
    let order = releasing(chain, 1).await;
    chain.mined(8).await;
    Reader::new(chain).await.rest().await;
    order.id
}

/// Turns of a relayer with a wrong first endpoint, over so many that are right. Returns the state of the release and
/// whether it is in trouble.
async fn take_turns(chain: &mut Chain, wrong: String, honest: usize) -> (String, bool) {
    chain.config.further_rpc_urls = vec![chain.scene.node.rpc_url(); honest];
    chain.config.rpc_url = wrong;
    let mut relayer = chain.relayer();
    let lease = chain.lease("relayer").await;
    for _ in 0..3 {
        chain.run("update chain_command set not_before = now()").await;
        relayer.turn(&lease).await.unwrap();
        chain.mined(1).await;
    }
    chain.rows("select state, trouble is not null from chain_command where kind = 'settle'").await.remove(0)
}

/// One endpoint of three is outvoted; of two, neither is believed, and an operator is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_endpoint_calls_impossible_done_or_early_is_sent_if_two_others_do_not() {
    for (told, honest) in
        [(CANCELLED, 2), (CANCELLED, 1), (SETTLED, 2), (SETTLED, 1), (NONE, 2), (CREATED, 2), (CREATED, 1)]
    {
        let mut chain = Chain::new().await;
        let about = filled(&chain).await;
        let url = serve(Arc::new(Liar { upstream: chain.scene.provider.clone(), about, state: told })).await;
        let (state, is_troubled) = take_turns(&mut chain, url, honest).await;
        let expected = if honest == 2 { ("sent", is_troubled) } else { ("pending", true) };
        assert_eq!((state.as_str(), is_troubled), expected, "{told} beside {honest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_transactions_that_one_endpoint_alone_gives_is_not_used() {
    for (honest, expected) in [(2, "sent"), (1, "pending")] {
        let mut chain = Chain::new().await;
        filled(&chain).await;
        let url = serve(Arc::new(Counter(chain.scene.provider.clone()))).await;
        assert_eq!(take_turns(&mut chain, url, honest).await.0, expected, "beside {honest}");
        let far = "select (select count(*) from nonce_slot where nonce > 1000) \
                        + (select count(*) from relayer_account where next_nonce > 1000)";
        assert_eq!(chain.one::<i64>(far).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_reverts_for_the_first_time_after_many_refusals_is_tried_again_at_once() {
    let chain = Chain::new().await;
    releasing(&chain, 1).await;
    chain.run("update chain_command set state = 'done' where kind <> 'settle'").await;
    chain.run("update chain_command set tries = 12").await;
    chain.sign_as(&chain.scene.relayer).await;
    let head = rpc::head(&chain.scene.provider).await.unwrap();
    let nonce: i64 = chain.one("select nonce from nonce_slot").await;
    let (nonce, signer) = (nonce.cast_unsigned(), chain.scene.relayer.address());
    let (pool, block) = (chain.pool(), (head.number, head.hash));
    let mut conn = pool.acquire().await.unwrap();
    store::mark_mined(&mut conn, chain.config.chain_id, signer, nonce, block, false, false).await.unwrap();
    let is_soon = "select state = 'pending' and not_before < clock_timestamp() + interval '5 s' \
                   from chain_command where kind = 'settle'";
    assert!(chain.one::<bool>(is_soon).await);
}
