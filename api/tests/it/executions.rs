//! Status and receipts.

use serde_json::{Value, json};

use dvp_testing::wait::wait_for;

use crate::harness::{ApiHarness, Call, order};

#[tokio::test]
async fn an_execution_is_found_by_exactly_the_given_name() {
    let harness = ApiHarness::new().await;
    let body = order();
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    let client = body["clientReference"].as_str().unwrap();
    let reference = accepted["reference"].as_str().unwrap();
    let ask = async |name: &str, query: &str| {
        harness.get(&harness.acme, &format!("/v1/executions/{name}{query}")).await
    };
    let view = ask(client, "").await.ok(200);
    assert_eq!(view["clientReference"], client);
    assert_eq!(view["reference"], reference);
    assert_eq!((&view["status"], &view["phase"]), (&json!("in_progress"), &json!("intent")));
    assert_eq!(
        (&view["failure"], &view["finality"], &view["providerReference"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let event = &view["events"][0];
    assert_eq!((&event["phase"], &event["state"]), (&json!("intent"), &json!("initiated")));
    assert_eq!((&event["isTerminal"], &event["isReversible"]), (&json!(false), &json!(false)));
    assert_eq!(ask(client, "?refType=clientReference").await.ok(200), view);
    assert_eq!(ask(reference, "?refType=executionId&later=1").await.ok(200), view);
    ask(reference, "").await.refused(404, "EXECUTION_NOT_FOUND");
    ask(client, "?refType=executionId").await.refused(404, "EXECUTION_NOT_FOUND");
}

#[tokio::test]
async fn an_unknown_ref_type_is_refused() {
    let harness = ApiHarness::new().await;
    for path in ["/v1/executions/x", "/v1/executions/x/receipt"] {
        for named in ["orderId", "", "clientreference", "executionId%00"] {
            let call = Call::get(&harness.acme, &format!("{path}?refType={named}"));
            harness.send(&call).await.refused(400, "INVALID_REF_TYPE");
        }
        let twice = Call::get(&harness.acme, &format!("{path}?refType=executionId&refType=executionId"));
        assert!(harness.send(&twice).await.refused(400, "INVALID_PARAMETER").starts_with("refType: "));
    }
}

#[tokio::test]
async fn a_client_reference_with_a_slash_is_found_when_it_is_encoded() {
    let harness = ApiHarness::new().await;
    let mut body = order();
    body["clientReference"] = json!("desk/7 ü");
    harness.submit(&harness.acme, &body).await.ok(202);
    let view = harness.get(&harness.acme, "/v1/executions/desk%2F7%20%C3%BC").await.ok(200);
    assert_eq!(view["clientReference"], "desk/7 ü");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_issued_on_completion_and_verifies_against_its_hash() {
    let harness = ApiHarness::new().await;
    harness.start_workers();
    let body = order();
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    let reference = accepted["reference"].as_str().unwrap();
    let path = format!("/v1/executions/{reference}/receipt?refType=executionId");
    let ask = async || harness.get(&harness.acme, &path).await;
    ask().await.refused(409, "receipt_not_issued");
    harness.play_chain(reference).await;
    let receipt = wait_for("the receipt's finality", || async {
        let answer = ask().await;
        (answer.status == 200).then(|| answer.json()).filter(|receipt| receipt.get("txHash").is_some())
    })
    .await;
    assert_eq!(receipt["_schemaVersion"], "svc-receipt-1");
    assert_eq!(receipt["clientReference"], body["clientReference"]);
    assert_eq!(receipt["payout"]["amountMinor"], "9935");
    assert_eq!(receipt["finality"]["txHash"], receipt["txHash"]);
    let (hash,): (Vec<u8>,) = harness.row("select content_hash from receipt").await;
    assert_eq!(dvp_domain::receipt::hash(&receipt), format!("0x{}", hex::encode(hash)));
    let view = harness.get(&harness.acme, &path.replace("/receipt", "")).await.ok(200);
    assert_eq!((&view["status"], &view["finality"]), (&json!("completed"), &receipt["finality"]));
    let page = harness.get(&harness.acme, "/v1/events?type=payout.completed").await.ok(200);
    let event = &page["data"][0];
    assert_eq!(event["data"]["object"]["payout"]["receipt"], json!(dvp_domain::receipt::hash(&receipt)));
    let path_of_event = format!("/v1/events/{}", event["id"].as_str().unwrap());
    assert_eq!(harness.get(&harness.acme, &path_of_event).await.ok(200), *event);
    // Past the database, which refuses it.
    for statement in ["alter table receipt disable trigger user", "update receipt set body = '[1]'"] {
        harness.run(statement).await;
    }
    ask().await.refused(500, "receipt_corrupt");
}
