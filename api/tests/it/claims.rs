//! Rules of the contract that no other test is named for.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{ApiHarness, Call, changed, firm, order, quote};

/// Section 2.4, rule 5.
#[tokio::test]
async fn an_expired_or_mismatched_firm_quote_is_rejected() {
    let harness = ApiHarness::new().await;
    let ask = async || harness.post(&harness.acme, "/v1/quotes/firm", &firm()).await.ok(201);
    let quote = ask().await;
    let lapsed = "update firm_quote set valid_until = now(), \
                  terms = jsonb_set(terms, '{valid_until}', to_jsonb((extract(epoch from now()) * 1000)::bigint - 1))";
    harness.run(lapsed).await;
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
    let quote = harness.post(&harness.acme, "/v1/quotes/firm", &ask).await.ok(201);
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
    harness.post(&small, "/v1/quotes", &quote()).await.ok(200);
    harness.post(&small, "/v1/quotes", &quote()).await.refused(429, "RATE_LIMIT_EXCEEDED");
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
