//! A chain that is read again beside the running service.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::alert_faults::call_node;
use crate::cli::{dvp, dvp_for_people, said};
use crate::partner::Partner;
use crate::sandbox::Sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn a_rescan_finds_a_lost_event_and_agrees_otherwise() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123456789").await;
    let accepted = partner.submit_accepted(&order).await;
    let client = order["clientReference"].as_str().unwrap();
    partner.wait_until(client, |execution| !execution["finality"].is_null()).await;
    let head = call_node(&sandbox, "eth_blockNumber", json!([])).await;
    let head = u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    call_node(&sandbox, "anvil_mine", json!(["0x60"])).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while said(&sandbox, &["chain", "status"])["chains"][0]["indexedFinal"].as_u64().unwrap() < head {
        assert!(Instant::now() < deadline, "the order's blocks are not final");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    let found = said(&sandbox, &["chain", "rescan"]);
    assert_eq!((&found["ok"], &found["differences"]), (&json!(true), &json!([])), "{found}");
    assert!(found["events"].as_u64().unwrap() > 4 && found["toBlock"].as_u64().unwrap() >= head, "{found}");

    let entity = "select entity from execution where reference = $1";
    let lost = format!(
        "delete from chain_log where event = 'Filled' and entity = ({entity}) returning block_number"
    );
    let block: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(lost))
        .bind(accepted["reference"].as_str())
        .fetch_one(&mut sandbox.database().await)
        .await
        .unwrap();
    let output = dvp(&sandbox, &["chain", "rescan"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found["differenceCount"]), (Some(1), &json!(1)), "{found}");
    let missing = &found["differences"][0];
    assert_eq!((&missing["kind"], missing["block"].as_i64()), (&json!("missing"), Some(block)), "{found}");
    assert!(missing["detail"].as_str().unwrap().starts_with("Filled of 0x"), "{found}");
    let before = (block - 1).to_string();
    let text = dvp_for_people(&sandbox, &["chain", "rescan", "--to-block", &before]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(", 0 differences"), "{text}");
    sandbox.stop().await;
}
