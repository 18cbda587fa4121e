//! Signed submissions.

use serde_json::{Value, json};

use crate::harness::{ApiHarness, Call, order};

/// A body that gets as far as its fields when the signature is right.
fn unread() -> Value {
    json!({"unread": true})
}

fn call(harness: &ApiHarness) -> Call {
    Call::post(&harness.acme, "/v1/intents", &unread())
}

#[tokio::test]
async fn a_signature_is_accepted_within_the_time_window_only() {
    let harness = ApiHarness::new().await;
    let now = harness.now.unix_secs();
    for at in [now - 300, now, now + 300] {
        let signed = call(&harness).signed(&harness.acme, at);
        harness.send(&signed).await.refused(400, "INVALID_PARAMETER");
    }
    for at in [now - 301, now + 301] {
        let message =
            harness.send(&call(&harness).signed(&harness.acme, at)).await.refused(401, "INVALID_SIGNATURE");
        assert!(message.contains("X-Timestamp"), "{message}");
    }
    // The query is signed as it was sent.
    let queried = Call::post(&harness.acme, "/v1/intents?b=%20&a=1", &unread());
    harness.send(&queried.signed(&harness.acme, now)).await.refused(400, "INVALID_PARAMETER");
    // In milliseconds, which is the usual mistake.
    let answer = harness.send(&call(&harness).signed(&harness.acme, now * 1000)).await;
    answer.refused(401, "INVALID_SIGNATURE");
}

#[tokio::test]
async fn each_header_is_required_once_and_well_formed() {
    let harness = ApiHarness::new().await;
    let at = harness.now.unix_secs().to_string();
    let nonce = "n".repeat(16);
    let signed = call(&harness).signed_with(&harness.acme, &at, &nonce);
    for name in ["X-Signature", "X-Timestamp", "X-Nonce"] {
        let missing = harness.send(&signed.clone().without(name)).await.refused(401, "INVALID_SIGNATURE");
        assert!(missing.starts_with(name), "{missing}");
        let twice = harness.send(&signed.clone().and(name, "x")).await.refused(401, "INVALID_SIGNATURE");
        assert!(twice.starts_with(name), "{twice}");
    }
    let unneeded = Call::get(&harness.acme, "/v1/events").with("X-Signature", "nonsense");
    harness.send(&unneeded).await.ok(200);
    for signature in ["", "00", &"A".repeat(64), &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
        let answer = harness.send(&signed.clone().with("X-Signature", signature)).await;
        assert!(answer.refused(401, "INVALID_SIGNATURE").contains("64 lowercase hex"), "{signature}");
    }
    for at in ["", "now", "+1800000000", "-1", "1.5", &format!("0{at}"), "99999999999999999999"] {
        let answer = harness.send(&call(&harness).signed_with(&harness.acme, at, &nonce)).await;
        assert!(answer.refused(401, "INVALID_SIGNATURE").contains("Unix seconds"), "{at}");
    }
    for nonce in ["n".repeat(15), "n".repeat(65), format!("{}  {}", "n".repeat(8), "n".repeat(8))] {
        let answer = harness.send(&call(&harness).signed_with(&harness.acme, &at, &nonce)).await;
        assert!(answer.refused(401, "INVALID_SIGNATURE").starts_with("X-Nonce"), "{nonce}");
    }
    for nonce in ["n".repeat(16), "n".repeat(64)] {
        let answer = harness.send(&call(&harness).signed_with(&harness.acme, &at, &nonce)).await;
        answer.refused(400, "INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn a_change_of_any_signed_part_or_another_secret_breaks_the_signature() {
    let harness = ApiHarness::new().await;
    let now = harness.now.unix_secs();
    let signed = call(&harness).signed(&harness.acme, now);
    let mut moved = Call::post(&harness.acme, "/v1/intents?a=1", &unread());
    for name in ["X-Signature", "X-Timestamp", "X-Nonce"] {
        moved = moved.with(name, signed.header(name));
    }
    let changes = [
        signed.clone().body(json!({"unread": false}).to_string()),
        signed.clone().body(format!("{} ", unread())),
        signed.clone().with("X-Timestamp", &(now - 1).to_string()),
        signed.clone().with("X-Nonce", &"m".repeat(32)),
        moved,
        call(&harness).signed(&harness.globex, now),
        call(&harness).signed(&harness.acme_live, now),
    ];
    for changed in changes {
        let message = harness.send(&changed).await.refused(401, "INVALID_SIGNATURE");
        assert_eq!(message, "X-Signature does not match the request");
    }
    // None of them used up the nonce.
    harness.send(&signed).await.refused(400, "INVALID_PARAMETER");
}

#[test]
fn the_guides_worked_example_is_correct() {
    let guide = include_str!("../../../docs/api.md");
    let section = guide.split_once("\n## Signing\n").unwrap().1.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section.split("```\n").skip(1).step_by(2).map(str::trim_end).collect();
    let [message, signature] = blocks.as_slice() else { panic!("two blocks: {blocks:?}") };
    let cell = |part: &str| {
        let row = section.lines().find(|line| line.starts_with(&format!("| {part}"))).unwrap();
        row.split('`').rev().nth(1).unwrap().to_owned()
    };
    let parts = ["the method", "the path", "`X-Timestamp`", "`X-Nonce`", "the body"].map(cell);
    assert_eq!(parts.concat(), *message);
    let secret = section.split_once("the secret `").unwrap().1.split('`').next().unwrap();
    assert_eq!(hex::encode(dvp_core::secrets::mac(secret.as_bytes(), message.as_bytes())), *signature);
    assert!(section.contains(&format!("these {} bytes", message.len())));
}

#[tokio::test]
async fn a_nonce_is_accepted_once_per_key() {
    let harness = ApiHarness::new().await;
    let body = order();
    let first = harness.intent(&harness.acme, &body);
    harness.send(&first).await.ok(202);
    let message = harness.send(&first).await.refused(401, "INVALID_SIGNATURE");
    assert!(message.contains("used before"), "{message}");
    let retry = first.clone().signed(&harness.acme, harness.now.unix_secs());
    assert_eq!(harness.send(&retry).await.header("x-idempotency-replayed"), Some("true"));
    // Another key may use the same nonce.
    let (at, nonce) = (first.header("X-Timestamp").to_owned(), first.header("X-Nonce").to_owned());
    let other =
        Call::post(&harness.globex, "/v1/intents", &order()).signed_with(&harness.globex, &at, &nonce);
    harness.send(&other).await.ok(202);
}
