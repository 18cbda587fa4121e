//! End to end: the real binary, its own PostgreSQL and chain, its two doors.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod alerts;
mod api_page;
mod beneficiaries;
mod browser;
mod cells;
mod certify;
mod cli;
mod clock;
mod console;
mod console_breaks;
mod console_live;
mod console_orders;
mod console_outcomes;
mod contract_sets;
mod contract_wallets;
mod controls;
mod crash;
mod database_away;
mod double_payment;
mod every_control;
mod failover;
mod guide;
mod hostile;
mod makers;
mod metrics;
mod native;
mod nodes;
mod older;
mod oms;
mod operators;
mod processes;
mod ranges;
mod recalls;
mod reconcile;
mod rescan;
mod rotation;
mod runbooks;
mod screening;
mod serve;
mod signers;
mod suffixes;
mod traces;
mod two_chains;
mod two_operators;
mod webhooks;

use std::time::Duration;

use alloy::primitives::{Address, B256};
use alloy::providers::{Provider, ProviderBuilder};
use alloy::rpc::types::Filter;
use dvp_benches::scenes::{
    alert_causes, alert_faults, alert_table, chain_faults, chain_isolation, fix, partner, sandbox, served,
    wait,
};
use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

/// Logs of a contract with this second topic, from the first block on.
async fn logs(sandbox: &Sandbox, contract: &str, topic: &str) -> usize {
    let rpc = sandbox.text("/chain/rpcUrl").parse().unwrap();
    let provider = ProviderBuilder::new().connect_http(rpc);
    let address: Address = sandbox.text(&format!("/chain/contracts/{contract}")).parse().unwrap();
    let topic: B256 = topic.parse().unwrap();
    let filter = Filter::new().address(address).from_block(0).topic1(topic);
    provider.get_logs(&filter).await.unwrap().len()
}

/// SHA-256 over the canonical receipt, computed here from the contract's words alone.
fn content_hash(receipt: &Value) -> String {
    use sha2::Digest;
    let mut body = receipt.clone();
    body.as_object_mut().unwrap().remove("txHash");
    body.as_object_mut().unwrap().remove("finality");
    // serde_json keeps object keys sorted unless configured otherwise.
    format!("0x{}", hex::encode(sha2::Sha256::digest(body.to_string())))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_through_rest_ends_with_an_anchored_receipt() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let quotes = json!({"requestId": "r1", "actorId": "a", "source": "USDC", "target": "USD", "amount": "100",
                        "side": "sell"});
    let (status, quoted) = partner.post("/v1/quotes", &quotes).await;
    assert_eq!(status, 200, "{quoted}");
    let scores: Vec<_> =
        quoted["candidates"].as_array().unwrap().iter().map(|c| c["metadata"]["score"].as_f64()).collect();
    assert!(!scores.is_empty() && scores.is_sorted(), "best first: {quoted}");
    let (status, firm) = partner.firm_quote("100000000").await;
    assert_eq!(status, 201, "{firm}");

    let mut order = partner.order(&sandbox, 0, "000123456789").await;
    order["quoteId"] = firm["quoteId"].clone();
    order["minOutputAmountMinor"] = firm["output"]["amountMinor"].clone();
    let accepted = partner.submit_accepted(&order).await;
    assert_eq!(accepted["fees"], firm["fees"]);

    let reference = order["clientReference"].as_str().unwrap();
    let execution = partner.wait_until(reference, |e| !e["finality"].is_null()).await;
    assert_eq!(execution["status"], "completed");
    let (status, receipt) = partner.get(&format!("/v1/executions/{reference}/receipt")).await;
    assert_eq!(status, 200);
    assert_eq!(receipt["fees"], firm["fees"]);
    assert_eq!(logs(&sandbox, "anchor", &content_hash(&receipt)).await, 1);
    let (_, page) = partner.get("/v1/events").await;
    let types: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"]
    );
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fix_order_is_filled_and_a_resting_one_is_cancelled() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let mut client = FixClient::log_on(&sandbox).await;
    let order = partner.order(&sandbox, 0, "bene_a:dest_10000000").await;
    client.new_order("O-1", "bene_a:dest_10000000", &order["permit"]).await;
    let accepted = client.report(|r| r.get(150) == "0").await;
    assert_eq!(accepted.get(11), "O-1");
    let filled = client.report(|r| r.get(150) == "F").await;
    assert_eq!((filled.get(39), filled.get(14), filled.get(151)), ("2", "100", "0"));
    assert_eq!(filled.get(37), accepted.get(37));

    let resting = partner.order(&sandbox, 1, "bene_a:dest_10000008").await;
    client.new_order("O-2", "bene_a:dest_10000008", &resting["permit"]).await;
    client.report(|r| r.get(11) == "O-2" && r.get(150) == "0").await;
    client.cancel("O-3", "O-2").await;
    let cancelled = client.report(|r| r.get(41) == "O-2").await;
    assert_eq!((cancelled.get(35), cancelled.get(39)), ("8", "4"));
    client.cancel("O-4", "O-1").await;
    let too_late = client.report(|r| r.get(35) == "9").await;
    assert_eq!(too_late.get(102), "0");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_leaves_no_processes_and_the_data_survives() {
    let mut sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123456789").await;
    let reference = partner.settled(&order).await;
    let (key, rpc) = (sandbox.text("/partner/apiKey"), sandbox.text("/chain/rpcUrl"));
    sandbox.interrupt().await;
    assert!(!sandbox.ready_file().exists());
    let answer = reqwest::Client::new().get(&rpc).timeout(Duration::from_secs(1)).send().await;
    assert!(answer.is_err(), "the chain still answers");
    sandbox.start_again().await;
    assert_eq!(sandbox.text("/partner/apiKey"), key);
    let path = format!("/v1/executions/{reference}?refType=executionId");
    let (status, execution) = Partner::of(&sandbox).get(&path).await;
    assert_eq!((status, execution["status"].as_str()), (200, Some("completed")));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fix_over_tls_works_and_is_counted_in_the_metrics() {
    let mut sandbox = Sandbox::start().await;
    let ca = std::fs::read(sandbox.text("/fix/ca")).unwrap();
    let mut client = FixClient::log_on_with_tls(&sandbox).await;
    client.send_raw("1", &[(112, "tls")]).await;
    assert_eq!(client.report(|message| message.get(35) == "0").await.get(112), "tls");
    let figures = reqwest::get(sandbox.text("/metrics")).await.unwrap().text().await.unwrap();
    for line in ["dvp_fix_connected{session=\"FIX.4.4:DVP->ACME\"} 1", "dvp_fix_commit_seconds_bucket{"] {
        assert!(figures.contains(line), "{line} is not in\n{figures}");
    }
    drop(client);
    // Clients that trust the authority can keep trusting it.
    sandbox.kill_and_start_again().await;
    assert_eq!(std::fs::read(sandbox.text("/fix/ca")).unwrap(), ca);
    drop(FixClient::log_on_with_tls(&sandbox).await);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_end_once_despite_node_faults_and_forks() {
    chain_faults::run(1, chain_faults::ReorgScale { wallets: 4, orders_of_each: 2, reorgs: 5 }).await;
}
