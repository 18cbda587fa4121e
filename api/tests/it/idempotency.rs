//! One operation, one outcome, one answer.

use axum::http::StatusCode;
use serde_json::json;
use uuid::Uuid;

use crate::harness::{Answer, ApiHarness, Call, changed, firm, order, quote};

/// Signs again, for routes that look at it.
fn again(harness: &ApiHarness, call: &Call) -> Call {
    call.clone().signed(&harness.acme, harness.now.unix_secs())
}

fn assert_replay(first: &Answer, replay: &Answer) {
    assert_eq!(replay.header("x-idempotency-replayed"), Some("true"));
    assert_eq!((replay.status, &replay.text), (first.status, &first.text));
    assert_ne!(replay.header("x-request-id"), first.header("x-request-id"));
}

#[tokio::test]
async fn a_field_that_the_payout_refuses_leaves_the_key_free() {
    let harness = ApiHarness::new().await;
    harness.register_recipient().await;
    let unverified = changed(order(), "/beneficiary", Some(json!({"account": "bene_new:dest_new"})));
    let call = harness.intent(&harness.acme, &unverified);
    let refused = harness.send(&call).await;
    let message = refused.refused(400, "INVALID_PARAMETER");
    assert!(message.starts_with("beneficiary: "), "{message}");
    assert_eq!(refused.json()["error"]["param"], "beneficiary");
    let corrected = harness.intent(&harness.acme, &order());
    let corrected = corrected.with("X-Idempotency-Key", call.header("X-Idempotency-Key"));
    harness.send(&corrected).await.ok(202);
}

#[tokio::test]
async fn a_repeated_request_is_executed_once_and_answered_identically() {
    let harness = ApiHarness::new().await;
    let rejected = changed(order(), "/beneficiary", None);
    let bad_permit = changed(order(), "/permit/nonce", Some(json!("5")));
    let calls = [
        Call::post(&harness.acme, "/v1/quotes", &quote()),
        Call::post(&harness.acme, "/v1/quotes/firm", &firm()),
        harness.intent(&harness.acme, &order()),
        harness.intent(&harness.acme, &rejected),
        harness.intent(&harness.acme, &bad_permit),
    ];
    for call in calls {
        let first = harness.send(&call).await;
        assert_eq!(first.header("x-idempotency-replayed"), None);
        assert_replay(&first, &harness.send(&again(&harness, &call)).await);
        // Which has not seen the key.
        let elsewhere = harness.another_process();
        assert_replay(&first, &harness.send_to(elsewhere, &again(&harness, &call)).await);
        let upper = call.header("X-Idempotency-Key").to_uppercase();
        assert_replay(&first, &harness.send(&again(&harness, &call).with("X-Idempotency-Key", &upper)).await);
    }
    assert_eq!(harness.count("select count(*) from firm_quote").await, 1);
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    assert_eq!(harness.count("select count(*) from intent").await, 2);
}

#[tokio::test]
async fn any_different_request_under_the_key_is_a_conflict() {
    let harness = ApiHarness::new().await;
    let call = Call::post(&harness.acme, "/v1/quotes", &quote());
    harness.send(&call).await.ok(200);
    let spaced = call.clone().body(format!("{} ", quote()));
    let written_otherwise = call.clone().body(quote().to_string().replace("\"100\"", "\"100.0\""));
    let invalid = call.clone().body("{}");
    for other in [spaced, written_otherwise, invalid] {
        harness.send(&other).await.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    }
    let key = call.header("X-Idempotency-Key").to_owned();
    let queried = Call::post(&harness.acme, "/v1/quotes?a=1", &quote()).with("X-Idempotency-Key", &key);
    harness.send(&queried).await.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
}

#[tokio::test]
async fn keys_are_scoped_by_partner_environment_and_path() {
    let harness = ApiHarness::new().await;
    let key = Uuid::new_v4().to_string();
    for keys in [&harness.acme, &harness.globex, &harness.acme_live] {
        for (path, body) in [("/v1/quotes", quote()), ("/v1/quotes/firm", firm())] {
            let call = Call::post(keys, path, &body).with("X-Idempotency-Key", &key);
            let answer = harness.send(&call).await;
            assert!(answer.status.is_success());
            assert_eq!(answer.header("x-idempotency-replayed"), None);
        }
    }
    // A rotated key is the same partner.
    let rotated = harness.issue("acme", 100_000, "test", &["quotes:write"]).await;
    let call = Call::post(&rotated, "/v1/quotes", &quote()).with("X-Idempotency-Key", &key);
    assert_eq!(harness.send(&call).await.header("x-idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn a_missing_or_malformed_key_is_refused() {
    let harness = ApiHarness::new().await;
    for (path, body) in [("/v1/quotes", quote()), ("/v1/quotes/firm", firm()), ("/v1/intents", order())] {
        let call = Call::post(&harness.acme, path, &body).signed(&harness.acme, harness.now.unix_secs());
        let missing = again(&harness, &call).without("X-Idempotency-Key");
        harness.send(&missing).await.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
        let key = Uuid::new_v4();
        let two = again(&harness, &call).and("X-Idempotency-Key", &key.to_string());
        harness.send(&two).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
        for form in [key.simple().to_string(), key.urn().to_string(), key.braced().to_string(), String::new()]
        {
            let call = again(&harness, &call).with("X-Idempotency-Key", &form);
            harness.send(&call).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
        }
    }
    let read = Call::get(&harness.acme, "/v1/events").with("X-Idempotency-Key", "ignored");
    harness.send(&read).await.ok(200);
}

#[tokio::test]
async fn an_invalid_body_is_refused_and_leaves_the_key_unused() {
    let harness = ApiHarness::new().await;
    let call = Call::post(&harness.acme, "/v1/quotes", &quote());
    for body in ["", " ", "{", "not json", "{} {}", "\u{feff}{}"] {
        harness.send(&call.clone().body(body)).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    }
    harness.send(&call.clone().body(vec![b'"', 0xff, b'"'])).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    let deep = call.clone().body("[".repeat(60_000));
    harness.send(&deep).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    harness.send(&call.clone().without("Content-Type")).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    for media in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json"] {
        harness.send(&call.clone().with("Content-Type", media)).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    harness.send(&call.clone().body("{}")).await.refused(400, "INVALID_PARAMETER");
    harness.send(&call.with("Content-Type", "Application/JSON; charset=utf-8")).await.ok(200);
}

#[tokio::test]
async fn a_replay_after_the_deadline_is_the_original_answer() {
    let harness = ApiHarness::new().await;
    let call = harness.intent(&harness.acme, &order());
    let first = harness.send(&call).await;
    first.ok(202);
    // A replay passes checks that would refuse a new submission: the permit's nonce is used, the deadline passed.
    harness.node.set_next_nonce(9);
    let elsewhere = harness.another_process();
    assert_replay(&first, &harness.send_to(elsewhere, &again(&harness, &call)).await);
    let later = harness.pass(2 * 3600);
    assert_replay(&first, &harness.send(&call.clone().signed(&harness.acme, later)).await);
    let elsewhere = harness.another_process();
    assert_replay(&first, &harness.send_to(elsewhere, &call.clone().signed(&harness.acme, later)).await);
    let expired = "update idempotency set accepted_at = now() - interval '25 hours'";
    harness.run(expired).await;
    // After the retention it is a new request.
    let message =
        harness.send(&call.clone().signed(&harness.acme, later)).await.refused(400, "INVALID_PARAMETER");
    assert_eq!(message, "deadline: has passed (it is in Unix milliseconds)");
}

#[tokio::test]
async fn a_key_conflict_precedes_other_faults_of_an_intent() {
    let harness = ApiHarness::new().await;
    let key = "6f1e2d3c-aaaa-4000-8000-00000000000b";
    harness.send(&harness.intent(&harness.acme, &order()).with("X-Idempotency-Key", key)).await.ok(202);
    let used_nonce = changed(order(), "/permit/nonce", Some(json!("5")));
    for other in
        [json!({}), json!({"pair": "USDC/USD"}), changed(order(), "/user", None), used_nonce, order()]
    {
        let call = harness.intent(&harness.acme, &other).with("X-Idempotency-Key", key);
        for door in [harness.router(), harness.another_process()] {
            let call = again(&harness, &call);
            harness.send_to(door, &call).await.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_are_executed_once_and_replayed_or_deferred() {
    let harness = ApiHarness::new().await;
    let call = harness.intent(&harness.acme, &order());
    let calls: Vec<Call> = (0..32).map(|_| again(&harness, &call)).collect();
    let answers = futures_util::future::join_all(calls.iter().map(|call| harness.send(call))).await;
    let done: Vec<&Answer> = answers.iter().filter(|a| a.status == StatusCode::ACCEPTED).collect();
    assert!(!done.is_empty());
    assert!(done.iter().all(|answer| answer.text == done[0].text));
    assert_eq!(done.iter().filter(|answer| answer.header("x-idempotency-replayed").is_none()).count(), 1);
    for waiting in answers.iter().filter(|answer| answer.status != StatusCode::ACCEPTED) {
        waiting.refused(409, "IDEMPOTENCY_KEY_PROCESSING");
        assert!(waiting.header("retry-after").is_some());
    }
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    harness.send(&again(&harness, &call)).await.ok(202);
}
