//! An order of the older surface that is executed, and refused by the bank.

use serde_json::json;

use crate::partner::Partner;
use crate::sandbox::{Sandbox, said};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_payout_the_bank_refuses_is_rejected_and_releases_its_money() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let instruct = ["partner", "instruct", "--name", "acme", "--env", "test", "--asset", "EUR"];
    let account = ["--account", "bene_closed:dest_10000002", "--as", "jo", "--reason", "to be refused"];
    said(&sandbox, &[&instruct[..], &account].concat());
    let order = json!({
        "pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "250.00", "strategy": "instant",
        "constraints": {"maxSlippageBps": 100, "maxFeeBps": 100},
    });
    let (status, created) = partner.submit(&order).await;
    assert_eq!((status, &created["success"]), (201, &json!(true)), "{created}");
    let path = format!("/v1/intents/{}", created["data"]["intentId"].as_str().unwrap());
    let refused = partner.wait_for(&path, |answer| answer["data"]["status"] == "rejected").await;
    assert_eq!(refused["data"]["filledAmount"], "0", "{refused}");
    let reference = refused["data"]["reference"].as_str().unwrap();
    let (_, execution) = partner.get(&format!("/v1/executions/{reference}?refType=executionId")).await;
    assert_eq!(execution["failure"]["code"], "beneficiary_account_closed");

    let reserved = "select count(*) from account_balance where reserved <> 0";
    assert_eq!(sandbox.one::<i64>(reserved).await, 0, "something is still reserved");
    sandbox.stop().await;
}
