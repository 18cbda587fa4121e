//! Who may call, and how often.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use dvp_core::keys::SCOPES;
use dvp_core::secrets::Vault;
use dvp_store::partners;
use serde_json::json;

use crate::house::{Call, House, master_key, order};

const ROUTES: [(&str, &str, &[&str]); 15] = [
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
    ("GET", "/v1/reconciliation", &["reports:read"]),
    ("GET", "/v1/reports/reconciliation/daily", &["reports:read"]),
    ("GET", "/v1/events", &["events:read"]),
];

#[tokio::test]
async fn every_route_asks_for_a_key_before_anything_else() {
    let house = House::new().await;
    for (method, path, _) in ROUTES {
        let call = Call::new(method, path);
        house.send(&call).await.refused(401, "MISSING_API_KEY");
        for wrong in ["", "svc_test_no", "é"] {
            house.send(&call.clone().with("X-API-Key", wrong)).await.refused(401, "INVALID_API_KEY");
        }
        let twice = call.with("X-API-Key", &house.acme.api_key).and("X-API-Key", &house.acme.api_key);
        house.send(&twice).await.refused(401, "INVALID_API_KEY");
    }
}

#[tokio::test]
async fn each_route_needs_one_of_its_own_scopes() {
    let house = House::new().await;
    for (method, path, scopes) in ROUTES {
        let others: Vec<&str> = SCOPES.into_iter().filter(|other| !scopes.contains(other)).collect();
        let keys = house.issue("acme", 100_000, "test", &others).await;
        let answer = house.send(&Call::new(method, path).with("X-API-Key", &keys.api_key)).await;
        assert!(answer.refused(403, "INSUFFICIENT_SCOPE").contains(scopes[0]));
        assert!(answer.header("ratelimit").is_some());
        for scope in scopes {
            let keys = house.issue("acme", 100_000, "test", &[scope]).await;
            let answer = house.send(&Call::new(method, path).with("X-API-Key", &keys.api_key)).await;
            assert_ne!(answer.status, 403, "{method} {path} with {scope}");
        }
    }
}

#[tokio::test]
async fn a_disabled_key_stops_working_within_moments_and_the_other_key_goes_on() {
    let house = House::new().await;
    let keys = house.issue("acme", 100_000, "test", &["events:read"]).await;
    house.send(&Call::get(&keys, "/v1/events")).await.ok(200);
    let mut conn = house.pool().acquire().await.unwrap();
    assert!(partners::disable_key(&mut conn, &keys.id).await.unwrap());
    drop(conn);
    let refused = house
        .wait_for("the key to be refused", || async {
            let answer = house.send(&Call::get(&keys, "/v1/events")).await;
            (answer.status != 200).then_some(answer)
        })
        .await;
    refused.refused(403, "API_KEY_DISABLED");
    house.send(&Call::get(&house.acme, "/v1/events")).await.ok(200);
}

#[tokio::test]
async fn a_partner_may_call_as_often_as_its_limit_says() {
    let house = House::new().await;
    let keys = house.issue("small", 3, "test", &["events:read", "quotes:write"]).await;
    let live = house.issue("small", 3, "live", &["events:read"]).await;
    for left in [2, 1, 0] {
        let answer = house.send(&Call::get(&keys, "/v1/events")).await;
        answer.ok(200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"minute\";q=3;w=60"));
        let rate_limit = answer.header("ratelimit").unwrap();
        assert!(rate_limit.starts_with(&format!("\"minute\";r={left};t=")), "{rate_limit}");
    }
    // The limit comes before the body: an empty one is not even looked at.
    for call in [Call::get(&keys, "/v1/events"), Call::post(&keys, "/v1/quotes", &json!({})).body("")] {
        let answer = house.send(&call).await;
        answer.refused(429, "RATE_LIMIT_EXCEEDED");
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert!(answer.header("ratelimit").unwrap().starts_with("\"minute\";r=0;"));
    }
    house.send(&Call::get(&live, "/v1/events")).await.ok(200);
    house.send(&Call::get(&house.acme, "/v1/events")).await.ok(200);
}

#[tokio::test]
async fn a_doubly_wrong_request_is_told_the_earlier_fault() {
    let house = House::new().await;
    let keys = house.issue("tiny", 1, "test", &["intents:write"]).await;
    let quotes_only = house.issue("tiny", 1, "test", &["quotes:write"]).await;
    // No scope, no signature, no idempotency key, no body.
    house
        .send(&Call::new("POST", "/v1/intents").with("X-API-Key", &quotes_only.api_key))
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    // No signature, no idempotency key.
    let bare = Call::new("POST", "/v1/intents").with("X-API-Key", &keys.api_key);
    house.send(&bare).await.refused(401, "INVALID_SIGNATURE");
    // Rate limit before signature.
    house.send(&bare).await.refused(429, "RATE_LIMIT_EXCEEDED");
    // Idempotency key before body, content type and business.
    let call = house.intent(&house.acme, &json!({}));
    house.send(&call.clone().without("X-Idempotency-Key")).await.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    // Fields before permit and business rules.
    let mut body = order();
    body["deadline"] = json!(1);
    body["permit"]["signature"] = json!("0x");
    house.submit(&house.acme, &body).await.refused(400, "INVALID_PARAMETER");
}

#[tokio::test]
async fn a_key_kept_under_an_earlier_master_key_works_and_is_kept_under_the_current_one() {
    let house = House::new().await;
    let earlier = Vault::with_keys(vec![master_key("2025", 6)]).unwrap();
    let mut conn = house.pool().acquire().await.unwrap();
    let hash = earlier.api_key_hash(&house.globex.api_key);
    partners::rehash_key(&mut conn, &house.globex.id, &hash, "2025").await.unwrap();
    let feed = Call::get(&house.globex, "/v1/events");
    let page = house.send(&feed).await.ok(200);
    assert_eq!(house.count("select count(*) from api_key where hash_key = '2025'").await, 0);
    house.send(&feed).await.ok(200);

    // So does a cursor that it made.
    let epoch = house.engine().feed_epoch().await.unwrap();
    let head = [&[1], epoch.as_bytes().as_slice(), &0_i64.to_be_bytes()].concat();
    let tenant: (String,) = sqlx::query_as("select partner_id from api_key where id = $1")
        .bind(&house.globex.id)
        .fetch_one(house.pool())
        .await
        .unwrap();
    let mac = earlier.cursor_mac(&[head.as_slice(), &[0], tenant.0.as_bytes()].concat());
    let cursor = hex::encode([head.as_slice(), &mac].concat());
    let again = house.send(&Call::get(&house.globex, &format!("/v1/events?since={cursor}"))).await.ok(200);
    assert_eq!(page["data"], again["data"]);
}

async fn switch_partner(house: &House, enabled: bool) {
    let mut tx = house.pool().begin().await.unwrap();
    let acme = partners::find_partner(&mut tx, "acme").await.unwrap().unwrap();
    assert!(partners::switch_partner(&mut tx, &acme.id, enabled, "jo", "a test").await.unwrap());
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_disabled_partners_orders_are_refused_at_once_and_its_keys_within_moments() {
    let house = House::new().await;
    let feed = Call::get(&house.acme, "/v1/events");
    house.send(&feed).await.ok(200);
    let first = house.submit(&house.acme, &order()).await.ok(202);
    switch_partner(&house, false).await;
    // The key was looked up a moment ago and is believed; the order is refused by the commit.
    let call = house.intent(&house.acme, &order());
    house.send(&call).await.refused(403, "API_KEY_DISABLED");
    assert_eq!(house.count("select count(*) from intent").await, 1);
    assert_eq!(house.count("select count(*) from idempotency").await, 1);
    house
        .wait_for("every key to be refused", || async {
            let answer = house.send(&feed).await;
            (answer.status == 403).then(|| answer.refused(403, "API_KEY_DISABLED"))
        })
        .await;
    house.send(&Call::get(&house.globex, "/v1/events")).await.ok(200);

    // What was accepted goes on to its end.
    house.work();
    let reference = first["reference"].as_str().unwrap();
    house.play_chain(reference).await;
    let completed = "select count(*) from execution where state_name = 'completed'";
    house.wait_for("the end", || async { (house.count(completed).await == 1).then_some(()) }).await;

    // Enabled again, the same request is taken under the same idempotency key.
    switch_partner(&house, true).await;
    house
        .wait_for("the key to work", || async { (house.send(&feed).await.status == 200).then_some(()) })
        .await;
    house.send(&call.signed(&house.acme, house.now.unix_secs())).await.ok(202);
    assert_eq!(house.count("select count(*) from partner_action").await, 2);
}
