//! An endpoint that is wrong about a settlement's state.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use crate::endpoints::{releasing, rest};
use crate::support::answers::{Answers, serve};
use crate::support::{Chain, Scene, vault};
use alloy::primitives::{B256, U256};
use alloy::providers::{DynProvider, Provider as _};
use dvp_chain_indexer::indexer::Indexer;
use dvp_chain_indexer::relayer::Relayer;
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
        let (id, method) = (&call["id"], call["method"].as_str().unwrap().to_owned());
        // A view's input is its selector and the id; a call that changes the state has more.
        let input = call["params"][0]["input"].as_str().unwrap_or_default();
        if method == "eth_call" && input.len() == 74 && input.ends_with(&format!("{:x}", self.about)) {
            return json!({"jsonrpc": "2.0", "id": id, "result": B256::from(U256::from(self.state))});
        }
        let result: Value = self.upstream.raw_request(method.into(), call["params"].clone()).await.unwrap();
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    }
}

/// Counts a million transactions of each account too many.
struct Counter {
    upstream: DynProvider,
}

impl Answers for Counter {
    async fn answer(&self, call: &Value) -> Value {
        let (id, method) = (&call["id"], call["method"].as_str().unwrap().to_owned());
        let counts = method == "eth_getTransactionCount";
        let result: Value = self.upstream.raw_request(method.into(), call["params"].clone()).await.unwrap();
        let result = match result.as_str().map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16))
        {
            Some(Ok(count)) if counts => json!(format!("{:#x}", count + 1_000_000)),
            _ => result,
        };
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    }
}

/// The id of an order whose fill is indexed, and whose release is due.
async fn filled(chain: &Chain) -> B256 {
    let order = releasing(chain, 1).await;
    let mut indexer = Indexer::new(chain.pool(), chain.config.clone()).unwrap();
    let reading = chain.lease("reader").await;
    chain.mined(8).await;
    rest(&mut indexer, &reading).await;
    order.id
}

/// Turns of a relayer whose first endpoint gives this state of order 1, over so many that do not. Returns the state of its
/// release and whether it is in trouble.
async fn released(chain: &mut Chain, told: u64, honest: usize) -> (String, bool) {
    let id = filled(chain).await;
    let liar = Liar { upstream: chain.scene.provider.clone(), about: id, state: told };
    let url = serve(Arc::new(liar)).await;
    take_turns(chain, url, honest).await
}

/// Turns of a relayer with a wrong first endpoint. Returns the state of the release and whether it is in trouble.
async fn take_turns(chain: &mut Chain, wrong: String, honest: usize) -> (String, bool) {
    chain.config.further_rpc_urls = vec![chain.scene.node.rpc_url(); honest];
    chain.config.rpc_url = wrong;
    let account = chain.scene.relayer.clone();
    let mut relayer = Relayer::new(chain.pool(), chain.config.clone(), account, vault()).unwrap();
    let lease = chain.lease("relayer").await;
    for _ in 0..3 {
        sqlx::query("update chain_command set not_before = now()").execute(&chain.pool()).await.unwrap();
        relayer.turn(&lease).await.unwrap();
        chain.mined(1).await;
    }
    let state = "select state, trouble is not null from chain_command where kind = 'settle'";
    sqlx::query_as(state).fetch_one(&chain.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_three_endpoints_calls_impossible_is_sent() {
    let mut chain = Chain::new(Scene::new().await).await;
    assert_eq!(released(&mut chain, CANCELLED, 2).await.0, "sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_about_which_two_endpoints_disagree_stays_open() {
    let mut chain = Chain::new(Scene::new().await).await;
    assert_eq!(released(&mut chain, CANCELLED, 1).await, ("pending".to_owned(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_three_endpoints_calls_done_is_sent() {
    let mut chain = Chain::new(Scene::new().await).await;
    assert_eq!(released(&mut chain, SETTLED, 2).await.0, "sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_two_endpoints_calls_done_is_reported() {
    let mut chain = Chain::new(Scene::new().await).await;
    assert_eq!(released(&mut chain, SETTLED, 1).await, ("pending".to_owned(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_three_endpoints_calls_early_is_sent() {
    for told in [NONE, CREATED] {
        let mut chain = Chain::new(Scene::new().await).await;
        assert_eq!(released(&mut chain, told, 2).await.0, "sent", "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_of_two_endpoints_calls_early_is_reported() {
    let mut chain = Chain::new(Scene::new().await).await;
    assert_eq!(released(&mut chain, CREATED, 1).await, ("pending".to_owned(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_transactions_that_one_endpoint_alone_gives_is_not_used() {
    for (honest, expected) in [(2, "sent"), (1, "pending")] {
        let mut chain = Chain::new(Scene::new().await).await;
        filled(&chain).await;
        let counter = Counter { upstream: chain.scene.provider.clone() };
        let url = serve(Arc::new(counter)).await;
        assert_eq!(take_turns(&mut chain, url, honest).await.0, expected, "beside {honest}");
        let far = "select (select count(*) from nonce_slot where nonce > 1000) \
                        + (select count(*) from relayer_account where next_nonce > 1000)";
        assert_eq!(sqlx::query_scalar::<_, i64>(far).fetch_one(&chain.pool()).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_reverts_for_the_first_time_after_many_refusals_is_tried_again_at_once() {
    let chain = Chain::new(Scene::new().await).await;
    releasing(&chain, 1).await;
    let pool = chain.pool();
    sqlx::query("update chain_command set state = 'done' where kind <> 'settle'")
        .execute(&pool)
        .await
        .unwrap();
    sqlx::query("update chain_command set tries = 12").execute(&pool).await.unwrap();
    let account = chain.scene.relayer.clone();
    let (chain_id, signer) = (chain.config.chain_id, account.address());
    let relayer = Relayer::new(chain.pool(), chain.config.clone(), account, vault()).unwrap();
    let lease = chain.lease("relayer").await;
    let head = rpc::head(&chain.scene.provider).await.unwrap();
    relayer.sign_ready(&lease, &head).await.unwrap();
    let mut conn = pool.acquire().await.unwrap();
    let nonce: i64 = sqlx::query_scalar("select nonce from nonce_slot").fetch_one(&mut *conn).await.unwrap();
    let nonce = u64::try_from(nonce).unwrap();
    let block = (head.number, head.hash);
    store::mark_mined(&mut conn, chain_id, signer, nonce, block, false, false).await.unwrap();
    let is_soon = "select state = 'pending' and not_before < clock_timestamp() + interval '5 s' \
                   from chain_command where kind = 'settle'";
    assert!(sqlx::query_scalar::<_, bool>(is_soon).fetch_one(&mut *conn).await.unwrap());
}
