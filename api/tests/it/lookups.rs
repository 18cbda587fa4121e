//! Several executions at once, and an intent's status without its history.

use serde_json::{Value, json};

use dvp_testing::wait::wait_for;

use crate::harness::{ApiHarness, Call, order};

#[tokio::test]
async fn several_references_are_answered_once_in_the_requested_order() {
    let harness = ApiHarness::new().await;
    let (one, two) = (order(), order());
    let accepted = harness.submit(&harness.acme, &one).await.ok(202);
    harness.submit(&harness.acme, &two).await.ok(202);
    let foreign = order();
    harness.submit(&harness.globex, &foreign).await.ok(202);
    let name = |body: &Value| body["clientReference"].as_str().unwrap().to_owned();
    let path = format!(
        "/v1/executions?reference={}&reference=nothing&reference={}&reference={}&reference={}&reference=%00",
        name(&two),
        name(&one),
        name(&two),
        name(&foreign),
    );
    let found = harness.get(&harness.acme, &path).await.ok(200);
    let names: Vec<&Value> =
        found["data"].as_array().unwrap().iter().map(|view| &view["clientReference"]).collect();
    assert_eq!(names, [&two["clientReference"], &one["clientReference"]]);
    assert_eq!(found["notFound"], json!(["nothing", name(&foreign), "\u{0}"]));
    let alone = harness.get(&harness.acme, &format!("/v1/executions/{}", name(&one))).await.ok(200);
    assert_eq!(found["data"][1], alone);

    let reference = accepted["reference"].as_str().unwrap();
    let path = format!("/v1/executions?refType=executionId&reference={reference}&reference={}", name(&one));
    let found = harness.get(&harness.acme, &path).await.ok(200);
    assert_eq!((&found["data"][0], &found["notFound"]), (&alone, &json!([name(&one)])));
}

#[tokio::test]
async fn a_lookup_takes_one_to_a_hundred_references() {
    let harness = ApiHarness::new().await;
    let ask = async |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("reference=r{n}")).collect();
        harness.get(&harness.acme, &format!("/v1/executions?{}", names.join("&"))).await
    };
    assert!(ask(0).await.refused(400, "INVALID_PARAMETER").starts_with("reference: "));
    assert_eq!(ask(100).await.ok(200)["notFound"].as_array().unwrap().len(), 100);
    ask(101).await.refused(400, "INVALID_PARAMETER");
    let wrong = Call::get(&harness.acme, "/v1/executions?reference=a&refType=x");
    harness.send(&wrong).await.refused(400, "INVALID_REF_TYPE");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intents_status_is_its_executions_status() {
    let harness = ApiHarness::new().await;
    harness.start_workers();
    let keys = harness.issue("acme", 100_000, "test", &["intents:write"]).await;
    let body = order();
    let accepted = harness.submit(&keys, &body).await.ok(202);
    let path = format!("/v1/intents/{}/status", body["intentId"].as_str().unwrap());
    let ask = async || harness.get(&keys, &path).await.ok(200);
    let first = ask().await;
    let expected = json!({
        "intentId": body["intentId"], "clientReference": body["clientReference"], "planId": accepted["planId"],
        "status": "in_progress", "phase": first["phase"], "failure": null, "updatedAt": first["updatedAt"],
    });
    assert_eq!(first, expected);
    harness.play_chain(accepted["reference"].as_str().unwrap()).await;
    let last = wait_for("the intent to complete", || async {
        Some(ask().await).filter(|status| status["status"] == "completed")
    })
    .await;
    assert_eq!(last["phase"], "payout");
    assert!(last["updatedAt"].as_str() > first["updatedAt"].as_str());

    let mut poor = order();
    poor["minOutputAmountMinor"] = json!("99999999");
    harness.submit(&keys, &poor).await.ok(422);
    for id in [poor["intentId"].as_str().unwrap(), "nothing"] {
        let call = Call::get(&keys, &format!("/v1/intents/{id}/status"));
        harness.send(&call).await.refused(404, "INTENT_NOT_FOUND");
    }
}
