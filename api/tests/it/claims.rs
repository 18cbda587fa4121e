//! Rules of the contract that no other test is named for.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{ApiHarness, Call, changed, order};

fn firm() -> Value {
    json!({"requestId": "r", "actorId": "desk", "amountMinor": "100000000", "amountType": "source",
           "inputAsset": {"type": "erc20", "symbol": "USDC"}, "outputAsset": {"type": "fiat", "symbol": "USD"}})
}

/// Section 2.4, rule 5.
#[tokio::test]
async fn an_expired_or_mismatched_firm_quote_is_rejected() {
    let harness = ApiHarness::new().await;
    let ask = async || harness.send(&Call::post(&harness.acme, "/v1/quotes/firm", &firm())).await.ok(201);
    let quote = ask().await;
    let lapsed = "update firm_quote set valid_until = now(), \
                  terms = jsonb_set(terms, '{valid_until}', to_jsonb((extract(epoch from now()) * 1000)::bigint - 1))";
    sqlx::query(lapsed).execute(harness.pool()).await.unwrap();
    let with = |quote: &Value| changed(order(), "/quoteId", Some(quote["quoteId"].clone()));
    assert_eq!(harness.submit(&harness.acme, &with(&quote)).await.ok(422)["reason"], "quote_expired");
    let quote = ask().await;
    let euros = changed(with(&quote), "/outputAsset", Some(json!({"type": "fiat", "symbol": "EUR"})));
    let bought = changed(with(&quote), "/side", Some(json!("buy")));
    for other in [euros, bought] {
        assert_eq!(harness.submit(&harness.acme, &other).await.ok(422)["reason"], "quote_mismatch");
    }
    assert_eq!(harness.count("select count(*) from execution").await, 0);
    harness.submit(&harness.acme, &with(&quote)).await.ok(202);
}

/// Section 2.4: "the required input is the target output plus locked deducted fees, rounded up".
#[tokio::test]
async fn a_quote_for_a_target_amount_fills_an_exact_output_intent() {
    let harness = ApiHarness::new().await;
    let ask =
        changed(changed(firm(), "/amountType", Some(json!("target"))), "/amountMinor", Some(json!("5003")));
    let quote = harness.send(&Call::post(&harness.acme, "/v1/quotes/firm", &ask)).await.ok(201);
    assert_eq!(quote["output"]["amountMinor"], "5003");
    let cap = quote["input"]["amountMinor"].clone();
    let mut body = changed(changed(order(), "/inputAmountMinor", None), "/minOutputAmountMinor", None);
    body["input"] = json!({"limitAmountMinor": cap});
    body["output"] = json!({"targetAmountMinor": "5003", "limitAmountMinor": "5003"});
    body["quoteId"] = quote["quoteId"].clone();
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    assert_eq!(
        (&accepted["inputAmountMinor"], &accepted["path"]["outputAmountMinor"]),
        (&cap, &json!("5003"))
    );
    assert_eq!(accepted["path"]["surplusAmountMinor"], "0");
    assert_eq!(accepted["fees"], quote["fees"]);
}

/// Section 7, the reasons that other tests of the REST API do not cover.
#[tokio::test]
async fn the_other_rejection_reasons_have_the_contracts_names() {
    let harness = ApiHarness::new().await;
    let third_party = changed(order(), "/outputRecipient", Some(json!("somebody else")));
    let remittance = changed(third_party, "/beneficiary/name", None);
    let wire = changed(order(), "/beneficiary/payoutMethod", Some(json!("wire")));
    let partly = json!({"line1": "1 Main St", "city": "Springfield", "state": "IL"});
    let partly = changed(wire.clone(), "/beneficiary/address", Some(partly));
    let swift = changed(
        changed(order(), "/beneficiary/payoutMethod", None),
        "/beneficiary/swiftCode",
        Some(json!("CHASUS33")),
    );
    let neither = changed(order(), "/beneficiary/payoutMethod", None);
    let mut dear = changed(changed(order(), "/inputAmountMinor", None), "/minOutputAmountMinor", None);
    dear["input"] = json!({"limitAmountMinor": "1000000"});
    dear["output"] = json!({"targetAmountMinor": "9900", "limitAmountMinor": "9900"});
    for (body, reason) in [
        (remittance, "beneficiary_required_for_remittance"),
        (dear, "above_maximum_input"),
        (wire, "beneficiary_address_required_for_rail"),
        (partly, "beneficiary_address_required_for_rail"),
        (swift, "beneficiary_address_required_for_rail"),
        (neither, "beneficiary_incomplete_for_jit_payout"),
    ] {
        let body = changed(body, "/intentId", Some(json!(Uuid::new_v4())));
        assert_eq!(harness.submit(&harness.acme, &body).await.ok(422)["reason"], reason);
    }
    // A reference to a registered recipient requires no further fields.
    let known = json!({"account": "bene_1:dest_1", "payoutMethod": "wire"});
    harness.submit(&harness.acme, &changed(order(), "/beneficiary", Some(known))).await.ok(202);
}

/// Section 4: every partner-facing POST; webhook management takes its own optional header (rule 6), and a maker's order
/// has an id of the maker's.
#[test]
fn every_post_requires_an_idempotency_key_except_webhook_management() {
    let document = dvp_api::document();
    let mut with_key = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(post) = operations.get("post") else { continue };
        let header = |name: &str| {
            let parameters = post["parameters"].as_array().unwrap().iter();
            let parameters = parameters.map(|one| dvp_api::resolve(&document, one));
            parameters.filter(|one| one["name"] == name).map(|one| one["required"] == true).next()
        };
        if post["tags"][0] == "webhooks" {
            assert_eq!(header("Idempotency-Key"), Some(false), "{path}");
        } else if post["tags"][0] == "resting orders" {
            // Not of the contract: the maker's own id of the order takes the key's place.
            let schema = &post["requestBody"]["content"]["application/json"]["schema"];
            let required = &dvp_api::resolve(&document, schema)["required"];
            assert!(required.as_array().unwrap().contains(&json!("clientOrderId")), "{path}");
        } else {
            assert_eq!(header("X-Idempotency-Key"), Some(true), "{path}");
            with_key.push(path.as_str());
        }
    }
    with_key.sort_unstable();
    assert_eq!(with_key, ["/v1/intents", "/v1/quotes", "/v1/quotes/firm"]);
}

/// Section 8, rule 5.
#[tokio::test]
async fn an_unstored_answer_leaves_its_key_unused() {
    let harness = ApiHarness::new().await;
    let key = Uuid::new_v4().to_string();
    let narrow = harness.issue("acme", 100_000, "test", &["quotes:write"]).await;
    let small = harness.issue("small", 1, "test", &["quotes:write"]).await;
    let body = order();
    let call = harness.intent(&harness.acme, &body).with("X-Idempotency-Key", &key);
    let wrong = call.clone().with("X-Signature", &"0".repeat(64));
    harness.send(&wrong).await.refused(401, "INVALID_SIGNATURE");
    harness.send(&call.clone().with("X-API-Key", &narrow.api_key)).await.refused(403, "INSUFFICIENT_SCOPE");
    harness.send(&call.clone().with("X-API-Key", "svc_test_nobody")).await.refused(401, "INVALID_API_KEY");
    for (status, code) in [(200, ""), (429, "RATE_LIMIT_EXCEEDED")] {
        let quote = json!({"requestId": "r", "actorId": "a", "source": "USDC", "target": "USD", "amount": "1",
                           "side": "sell"});
        let answer = harness.send(&Call::post(&small, "/v1/quotes", &quote)).await;
        if status == 200 { drop(answer.ok(200)) } else { drop(answer.refused(status, code)) }
    }
    assert_eq!(harness.count("select count(*) from idempotency").await, 1, "but for the quote");
    let done = harness.send(&call.signed(&harness.acme, harness.now.unix_secs())).await;
    done.ok(202);
    assert_eq!(done.header("x-idempotency-replayed"), None);
}

/// Section 8, rule 6: a replay reuses only status and body.
#[tokio::test]
async fn a_replay_has_headers_of_its_own() {
    let harness = ApiHarness::new().await;
    let keys = harness.issue("counted", 10, "test", &["quotes:write"]).await;
    let call = Call::post(&keys, "/v1/quotes/firm", &firm());
    let rate_limit = |answer: &crate::harness::Answer| answer.header("ratelimit").unwrap().to_owned();
    let (first, again) = (harness.send(&call).await, harness.send(&call).await);
    assert_eq!((first.ok(201), again.header("x-idempotency-replayed")), (again.ok(201), Some("true")));
    assert!(rate_limit(&first).starts_with("\"minute\";r=9;"), "{}", rate_limit(&first));
    assert!(rate_limit(&again).starts_with("\"minute\";r=8;"), "{}", rate_limit(&again));
}
