//! Authentication, scopes and rate limits.

use dvp_core::operators::keys::SCOPES;
use dvp_core::secrets::Vault;
use dvp_store::partners::registry;
use serde_json::json;

use dvp_testing::market::master_key;
use dvp_testing::wait::wait_for;

use crate::harness::{ApiHarness, Call, order};

const ROUTES: [(&str, &str, &[&str]); 19] = [
    ("POST", "/v1/quotes", &["quotes:write"]),
    ("POST", "/v1/quotes/firm", &["quotes:write"]),
    ("POST", "/v1/intents", &["intents:write"]),
    ("GET", "/v1/intents/x/status", &["intents:write", "executions:read"]),
    ("GET", "/v1/intents", &["executions:read"]),
    ("GET", "/v1/intents/x", &["executions:read"]),
    ("DELETE", "/v1/intents/x", &["intents:write"]),
    ("GET", "/v1/rates/USDC/USD", &["quotes:write"]),
    ("GET", "/v1/pairs", &["quotes:write"]),
    ("GET", "/v1/executions", &["executions:read"]),
    ("GET", "/v1/executions/x", &["executions:read"]),
    ("GET", "/v1/executions/x/receipt", &["executions:read"]),
    ("GET", "/v1/chains", &["executions:read"]),
    ("GET", "/v1/reconciliation", &["reports:read"]),
    ("GET", "/v1/reports/reconciliation/daily", &["reports:read"]),
    ("GET", "/v1/events", &["events:read"]),
    ("POST", "/v1/resting-orders", &["resting_orders:write"]),
    ("GET", "/v1/resting-orders", &["resting_orders:write"]),
    ("DELETE", "/v1/resting-orders/1", &["resting_orders:write"]),
];

#[tokio::test]
async fn every_route_requires_a_key_before_any_other_check() {
    let harness = ApiHarness::new().await;
    for (method, path, _) in ROUTES {
        let call = Call::new(method, path);
        harness.send(&call).await.refused(401, "MISSING_API_KEY");
        for wrong in ["", "svc_test_no", "é"] {
            harness.send(&call.clone().with("X-API-Key", wrong)).await.refused(401, "INVALID_API_KEY");
        }
        let twice = call.with("X-API-Key", &harness.acme.api_key).and("X-API-Key", &harness.acme.api_key);
        harness.send(&twice).await.refused(401, "INVALID_API_KEY");
    }
}

#[tokio::test]
async fn each_route_requires_one_of_its_scopes() {
    let harness = ApiHarness::new().await;
    for (method, path, scopes) in ROUTES {
        let others: Vec<&str> = SCOPES.into_iter().filter(|other| !scopes.contains(other)).collect();
        let keys = harness.issue("acme", 100_000, "test", &others).await;
        let answer = harness.send(&Call::new(method, path).with("X-API-Key", &keys.api_key)).await;
        assert!(answer.refused(403, "INSUFFICIENT_SCOPE").contains(scopes[0]));
        assert!(answer.header("ratelimit").is_some());
        for scope in scopes {
            let keys = harness.issue("acme", 100_000, "test", &[scope]).await;
            let answer = harness.send(&Call::new(method, path).with("X-API-Key", &keys.api_key)).await;
            assert_ne!(answer.status, 403, "{method} {path} with {scope}");
        }
    }
}

#[tokio::test]
async fn a_disabled_key_is_refused_and_the_partners_other_key_works() {
    let harness = ApiHarness::new().await;
    let keys = harness.issue("acme", 100_000, "test", &["events:read"]).await;
    harness.get(&keys, "/v1/events").await.ok(200);
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(registry::disable_key(&mut conn, &keys.id).await.unwrap());
    drop(conn);
    let refused = wait_for("the key to be refused", || async {
        let answer = harness.get(&keys, "/v1/events").await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    refused.refused(403, "API_KEY_DISABLED");
    harness.get(&harness.acme, "/v1/events").await.ok(200);
}

#[tokio::test]
async fn a_partners_rate_limit_is_enforced() {
    let harness = ApiHarness::new().await;
    let keys = harness.issue("small", 3, "test", &["events:read", "quotes:write"]).await;
    let live = harness.issue("small", 3, "live", &["events:read"]).await;
    for left in [2, 1, 0] {
        let answer = harness.get(&keys, "/v1/events").await;
        answer.ok(200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"minute\";q=3;w=60"));
        let rate_limit = answer.header("ratelimit").unwrap();
        assert!(rate_limit.starts_with(&format!("\"minute\";r={left};t=")), "{rate_limit}");
    }
    // The limit comes before the body: an empty one is not even looked at.
    for call in [Call::get(&keys, "/v1/events"), Call::post(&keys, "/v1/quotes", &json!({})).body("")] {
        let answer = harness.send(&call).await;
        answer.refused(429, "RATE_LIMIT_EXCEEDED");
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert!(answer.header("ratelimit").unwrap().starts_with("\"minute\";r=0;"));
    }
    harness.get(&live, "/v1/events").await.ok(200);
    harness.get(&harness.acme, "/v1/events").await.ok(200);
}

#[tokio::test]
async fn processes_count_a_partners_minute_together() {
    let harness = ApiHarness::new().await;
    let other = harness.another_process();
    let keys = harness.issue("shared", 40, "test", &["events:read"]).await;
    let call = Call::get(&keys, "/v1/events");
    let (mut answered, mut refused) = (0, 0);
    for n in 0..60 {
        // One of them gets most of the requests.
        let answer =
            if n % 4 == 0 { harness.send_to(other.clone(), &call).await } else { harness.send(&call).await };
        match answer.status.as_u16() {
            200 => answered += 1,
            _ => {
                answer.refused(429, "RATE_LIMIT_EXCEEDED");
                refused += 1;
            }
        }
    }
    assert_eq!((answered, refused), (40, 20));
    let granted: i64 = harness.count("select granted from rate_window w where granted = 40").await;
    assert_eq!(granted, 40);
    // Side by side, at the beginning of a window.
    let burst = harness.issue("burst", 40, "test", &["events:read"]).await;
    let call = Call::get(&burst, "/v1/events");
    let sent = (0..60).map(|n| {
        let door = if n % 2 == 0 { other.clone() } else { harness.router() };
        harness.send_to(door, &call)
    });
    let answers = futures_util::future::join_all(sent).await;
    let answered = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((36..=40).contains(&answered), "{answered}");
}

#[tokio::test]
async fn a_request_with_two_faults_gets_the_code_of_the_first_check() {
    let harness = ApiHarness::new().await;
    let keys = harness.issue("tiny", 2, "test", &["intents:write"]).await;
    let quotes_only = harness.issue("tiny", 2, "test", &["quotes:write"]).await;
    // No scope, no signature, no idempotency key, no body.
    harness
        .send(&Call::new("POST", "/v1/intents").with("X-API-Key", &quotes_only.api_key))
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    // No signature, no idempotency key.
    let bare = Call::new("POST", "/v1/intents").with("X-API-Key", &keys.api_key);
    harness.send(&bare).await.refused(401, "INVALID_SIGNATURE");
    // Rate limit before signature, and before the scope: what is refused for it counts, too.
    harness.send(&bare).await.refused(429, "RATE_LIMIT_EXCEEDED");
    harness
        .send(&Call::new("POST", "/v1/intents").with("X-API-Key", &quotes_only.api_key))
        .await
        .refused(429, "RATE_LIMIT_EXCEEDED");
    // Idempotency key before body, content type and business.
    let call = harness.intent(&harness.acme, &json!({}));
    harness.send(&call.clone().without("X-Idempotency-Key")).await.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    // Fields before permit and business rules.
    let mut body = order();
    body["deadline"] = json!(1);
    body["permit"]["signature"] = json!("0x");
    harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
}

#[tokio::test]
async fn a_key_under_an_earlier_master_key_works_and_is_reencrypted() {
    let harness = ApiHarness::new().await;
    let earlier = Vault::with_keys(vec![master_key("2025", 6)]).unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let hash = earlier.api_key_hash(&harness.globex.api_key);
    registry::rehash_key(&mut conn, &harness.globex.id, &hash, "2025").await.unwrap();
    let feed = Call::get(&harness.globex, "/v1/events");
    let page = harness.send(&feed).await.ok(200);
    assert_eq!(harness.count("select count(*) from api_key where hash_key = '2025'").await, 0);
    harness.send(&feed).await.ok(200);

    // So does a cursor that it made.
    let epoch = harness.engine.clone().feed_epoch().await.unwrap();
    let head = [&[1], epoch.as_bytes().as_slice(), &0_i64.to_be_bytes()].concat();
    let partner = "select partner_id from api_key where id = $1";
    let tenant: (String,) = harness.row_of(partner, &harness.globex.id).await;
    let mac = earlier.cursor_mac(&[head.as_slice(), &[0], tenant.0.as_bytes()].concat());
    let cursor = hex::encode([head.as_slice(), &mac].concat());
    let again = harness.get(&harness.globex, &format!("/v1/events?since={cursor}")).await.ok(200);
    assert_eq!(page["data"], again["data"]);
}

async fn switch_partner(harness: &ApiHarness, enabled: bool) {
    let mut tx = harness.pool().begin().await.unwrap();
    let acme = registry::find_partner(&mut tx, "acme").await.unwrap().unwrap();
    assert!(registry::switch_partner(&mut tx, &acme.id, enabled, "jo", "a test").await.unwrap());
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_disabled_partners_orders_and_keys_are_refused() {
    let harness = ApiHarness::new().await;
    let feed = Call::get(&harness.acme, "/v1/events");
    harness.send(&feed).await.ok(200);
    let first = harness.submit(&harness.acme, &order()).await.ok(202);
    switch_partner(&harness, false).await;
    // The key was looked up a moment ago and is believed; the order is refused by the commit.
    let call = harness.intent(&harness.acme, &order());
    harness.send(&call).await.refused(403, "API_KEY_DISABLED");
    assert_eq!(harness.count("select count(*) from intent").await, 1);
    assert_eq!(harness.count("select count(*) from idempotency").await, 1);
    wait_for("every key to be refused", || async {
        let answer = harness.send(&feed).await;
        (answer.status == 403).then(|| answer.refused(403, "API_KEY_DISABLED"))
    })
    .await;
    harness.get(&harness.globex, "/v1/events").await.ok(200);

    // Accepted executions continue to their end.
    harness.start_workers();
    let reference = first["reference"].as_str().unwrap();
    harness.play_chain(reference).await;
    harness.wait_for_state(reference, "completed").await;

    // Enabled again, the same request is taken under the same idempotency key.
    switch_partner(&harness, true).await;
    wait_for("the key to work", || async { (harness.send(&feed).await.status == 200).then_some(()) }).await;
    harness.send(&call.signed(&harness.acme, harness.now.unix_secs())).await.ok(202);
    assert_eq!(harness.count("select count(*) from partner_action").await, 2);
}
