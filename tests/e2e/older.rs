//! Orders of the older surface, followed to each of their ends.

use serde_json::{Value, json};

use crate::partner::Partner;
use crate::sandbox::{Sandbox, said};

async fn create(partner: &Partner, changes: Value) -> String {
    let mut body = json!({
        "pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "250.00", "strategy": "instant",
        "constraints": {"maxSlippageBps": 100, "maxFeeBps": 100},
    });
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let (status, answer) = partner.submit(&body).await;
    assert_eq!((status, &answer["success"]), (201, &json!(true)), "{answer}");
    format!("/v1/intents/{}", answer["data"]["intentId"].as_str().unwrap())
}

async fn ended(partner: &Partner, path: &str, status: &str) -> Value {
    let before = ["pending", "solving", "queued", "executing"];
    let seen = partner.wait_for(path, |answer| {
        answer["data"]["status"].as_str().is_some_and(|status| !before.contains(&status))
    });
    let data = seen.await["data"].clone();
    assert_eq!(data["status"], status, "{data}");
    data
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_each_strategy_is_settled_with_a_receipt() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    for strategy in ["instant", "optimized", "scheduled"] {
        let path = create(&partner, json!({"strategy": strategy, "clientRef": strategy})).await;
        let settled = ended(&partner, &path, "settled").await;
        assert_eq!((&settled["filledAmount"], &settled["clientRef"]), (&json!("250.00"), &json!(strategy)));
        let reference = settled["reference"].as_str().unwrap();
        let receipt = format!("/v1/executions/{reference}/receipt?refType=executionId");
        let (status, receipt) = partner.get(&receipt).await;
        assert_eq!(
            (status, &receipt["offramp"], &receipt["payout"]["currency"]),
            (200, &Value::Null, &json!("EUR"))
        );
        let (status, refused) = partner.delete(&path).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &json!("INTENT_ALREADY_EXECUTING")));
    }
    let (_, settled) = partner.get("/v1/intents?status=settled").await;
    assert_eq!(settled["total"], 3);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_expired_and_rejected_orders_release_their_money() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    // Nothing costs nothing, so it looks until its time is up.
    let free = json!({"strategy": "optimized", "constraints": {"maxFeeBps": 0, "ttlMs": 2_000}});
    let expiring = create(&partner, free).await;
    let waiting = json!({"strategy": "optimized", "constraints": {"maxFeeBps": 0, "ttlMs": 3_600_000}});
    let waiting = create(&partner, waiting).await;
    let (status, cancelled) = partner.delete(&waiting).await;
    assert_eq!((status, &cancelled["data"]["status"]), (200, &json!("cancelled")), "{cancelled}");
    ended(&partner, &waiting, "cancelled").await;
    ended(&partner, &expiring, "expired").await;
    let (status, refused) = partner.delete(&expiring).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("INTENT_EXPIRED")));
    let rejected = create(&partner, json!({"constraints": {"maxFeeBps": 0}})).await;
    assert_eq!(ended(&partner, &rejected, "rejected").await["rejection"], "CONSTRAINTS_NOT_MET");

    // The bank refuses the executed order.
    let instruct = ["partner", "instruct", "--name", "acme", "--env", "test", "--asset", "EUR"];
    let account = ["--account", "bene_closed:dest_10000002", "--operator", "jo", "--reason", "to be refused"];
    said(&sandbox, &[&instruct[..], &account].concat());
    let refused = create(&partner, json!({})).await;
    let refused = ended(&partner, &refused, "rejected").await;
    assert_eq!(refused["filledAmount"], "0");
    let reference = refused["reference"].as_str().unwrap();
    let (_, execution) = partner.get(&format!("/v1/executions/{reference}?refType=executionId")).await;
    assert_eq!(execution["failure"]["code"], "beneficiary_account_closed");

    let reserved = "select count(*) from account_balance where reserved <> 0";
    assert_eq!(sandbox.one::<i64>(reserved).await, 0, "something is still reserved");
    sandbox.stop().await;
}
