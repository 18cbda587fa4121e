//! Orders flow while the node between us and the chain fails, lags and loses, and the chain forks: every order ends
//! once, as its account says, and the books agree with the chain's.

use std::time::Duration;

use alloy::primitives::{Address, B256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::types::Filter;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::partner::Partner;
use super::sandbox::{Sandbox, dvp};
use super::wait::answer;

#[derive(Debug, Clone, Copy)]
pub struct ReorgScale {
    /// Each has its orders one after the other.
    pub wallets: usize,
    pub orders_of_each: usize,
    pub reorgs: u64,
}

/// Accounts, and the state in which an order to them ends.
const ACCOUNTS: [(&str, &str); 7] = [
    ("000123456789", "completed"),
    ("000123450004", "completed"),
    ("000123450002", "payout_failed"),
    ("000123450001", "completed"),
    ("000123450003", "conversion_failed"),
    ("000123450005", "completed"),
    ("000123450006", "completed"),
];
struct Ordered {
    reference: String,
    entity: B256,
    state: &'static str,
}

pub async fn run(seed: u64, scale: ReorgScale) -> String {
    let sandbox = Sandbox::start_with(&["--chain-faults", &seed.to_string()]).await;
    let partner = Partner::of(&sandbox);
    let node: DynProvider =
        ProviderBuilder::new().connect_http(sandbox.text("/chain/rpcUrl").parse().unwrap()).erased();
    let wallets = (0..scale.wallets).map(|wallet| of_wallet(&sandbox, &partner, wallet, scale, seed));
    let (ordered, ()) = tokio::join!(join_all(wallets), forks(&node, seed, scale.reorgs));
    let ordered: Vec<Ordered> = ordered.into_iter().flatten().collect();

    let mut conn = sandbox.database().await;
    for order in &ordered {
        let anchored = order.state == "completed";
        until_state(&mut conn, order, anchored).await;
    }
    paid_once(&sandbox, &ordered).await;
    agreed(&sandbox).await;
    for order in &ordered {
        on_chain_once(&sandbox, &node, order).await;
    }
    let retracted: i64 = sandbox.one("select count(*) from chain_fact where retracted_at is not null").await;
    sandbox.stop().await;
    format!("{} orders, {} forks, {retracted} facts taken back", ordered.len(), scale.reorgs)
}

async fn of_wallet(
    sandbox: &Sandbox,
    partner: &Partner,
    wallet: usize,
    scale: ReorgScale,
    seed: u64,
) -> Vec<Ordered> {
    let mut conn = sandbox.database().await;
    let (mut ordered, mut nonce) = (Vec::new(), 0);
    for turn in 0..scale.orders_of_each {
        let offset = usize::try_from(seed % 7).unwrap_or_default();
        let (account, state) = ACCOUNTS[(wallet + turn * scale.wallets + offset) % ACCOUNTS.len()];
        let reference = submit(sandbox, partner, (wallet, account), &mut nonce).await;
        let entity: Vec<u8> =
            sandbox.one_of("select entity from execution where reference = $1", &reference).await;
        let order = Ordered { reference, entity: B256::from_slice(&entity), state };
        until_state(&mut conn, &order, false).await;
        ordered.push(order);
    }
    ordered
}

/// A service that cannot ask the chain for the permit's nonce says so, and has accepted nothing.
async fn submit(
    sandbox: &Sandbox,
    partner: &Partner,
    (wallet, account): (usize, &str),
    nonce: &mut u64,
) -> String {
    let submitted = async || {
        let order = partner.order_from(sandbox, wallet, account, *nonce).await;
        (order["permit"]["nonce"].clone(), partner.submit(&order).await)
    };
    let (used, (status, answered)) = answer(submitted, |(_, (status, _))| *status != 503).await;
    assert_eq!(status, 202, "{answered}");
    *nonce = used.as_str().unwrap().parse::<u64>().unwrap() + 1;
    answered["reference"].as_str().unwrap().to_owned()
}

/// Replaces the newest blocks by empty ones, now and then.
async fn forks(node: &DynProvider, seed: u64, count: u64) {
    // The sandbox's own transactions must be below the depth of forks.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for turn in 0..count {
        tokio::time::sleep(Duration::from_millis(1_500 + (seed * 389 + turn * 701) % 2_000)).await;
        let depth = 1 + (seed + turn) % 4;
        let _: Value = node.raw_request("anvil_reorg".into(), json!([depth, []])).await.unwrap();
    }
}

async fn until_state(conn: &mut PgConnection, order: &Ordered, anchored: bool) {
    let sql = "select state_name, state ->> 'finality' is not null from execution where reference = $1";
    let look = async || -> (String, bool) {
        let found: (String, bool) =
            sqlx::query_as(sql).bind(&order.reference).fetch_one(&mut *conn).await.unwrap();
        let on_the_way =
            ["accepted", "locking", "converting", "committing", "paying", "releasing", order.state];
        assert!(on_the_way.contains(&&*found.0), "{} is {}, not {}", order.reference, found.0, order.state);
        found
    };
    answer(look, |(state, is_final)| state == order.state && *is_final >= anchored).await;
}

/// The simulated bank counts how often money moved.
async fn paid_once(sandbox: &Sandbox, ordered: &[Ordered]) {
    let paid = "select coalesce(sum(executed), 0)::int8 from simulated_rail
                where leg = 'payout' and reference = encode(sha256(convert_to($1 || ':payout', 'UTF8')), 'hex')";
    for Ordered { reference, state, .. } in ordered {
        let paid: i64 = sandbox.one_of(paid, reference).await;
        assert_eq!(paid, i64::from(*state == "completed"), "{reference} ({state})");
    }
}

/// Created, Filled and Settled, each once; of a failed payout the first two, of a failed conversion Created and
/// Cancelled.
async fn on_chain_once(sandbox: &Sandbox, node: &DynProvider, order: &Ordered) {
    let settler: Address = sandbox.text("/chain/contracts/settler").parse().unwrap();
    let filter = Filter::new().address(settler).from_block(0).topic1(order.entity);
    let expected = if order.state == "completed" { 3 } else { 2 };
    let logs = answer(async || node.get_logs(&filter).await.unwrap().len(), |logs| *logs >= expected).await;
    assert_eq!(logs, expected, "{} ({})", order.reference, order.state);
}

/// Reconciliation finds nothing but the conversion of the order that was not paid, once the forks are behind the final
/// block.
async fn agreed(sandbox: &Sandbox) {
    let is_unused = |found: &Value| found["type"] == "converted_not_used";
    answer(
        async || dvp(sandbox, &["reconcile"]),
        |output| {
            let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            found["breaks"].as_array().is_some_and(|breaks| breaks.iter().all(is_unused))
        },
    )
    .await;
}
