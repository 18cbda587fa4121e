//! Webhook management: one endpoint a key, secrets shown once, URL rules, repetitions.

use dvp_core::engine::webhooks::disable;
use dvp_store::orders::feed;
use dvp_store::partners::registry;
use serde_json::{Value, json};

use crate::harness::{Answer, ApiHarness, Call, Keys, order};

const PATH: &str = "/v1/webhook_endpoints";
/// An address, so that no name is looked up.
const URL: &str = "https://8.8.8.8/hooks";

pub(crate) async fn register(harness: &ApiHarness, keys: &Keys, url: &str) -> Value {
    let body = json!({"url": url, "subscribedTypes": ["intent.accepted", "payout.completed"]});
    harness.manage(keys, "POST", PATH, &body).await.ok(201)
}

async fn shown(harness: &ApiHarness, keys: &Keys) -> Answer {
    harness.get(keys, PATH).await
}

#[tokio::test]
async fn an_endpoint_is_registered_once_and_its_secret_is_returned_once() {
    let harness = ApiHarness::new().await;
    shown(&harness, &harness.acme).await.refused(404, "NOT_FOUND");
    let registered = register(&harness, &harness.acme, URL).await;
    let secret = registered["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 46, "{secret}");
    let id = registered["endpointId"].as_str().unwrap();
    assert!(id.starts_with("ep_"));
    assert_eq!(
        shown(&harness, &harness.acme).await.ok(200),
        json!({
            "endpointId": id, "url": URL, "subscribedTypes": ["intent.accepted", "payout.completed"],
            "isActive": true, "rotatedAt": null, "apiVersion": "2026-11-01",
        })
    );
    let again = json!({"url": URL, "subscribedTypes": ["intent.accepted"]});
    let second = harness.manage(&harness.acme, "POST", PATH, &again).await;
    second.refused(409, "ALREADY_EXISTS");
    // Other keys have endpoints of their own, the live key of the same partner too.
    shown(&harness, &harness.acme_live).await.refused(404, "NOT_FOUND");
    register(&harness, &harness.acme_live, URL).await;
    register(&harness, &harness.globex, URL).await;
    let stored: Vec<(Vec<u8>,)> = harness.rows("select sealed_secret from webhook_endpoint").await;
    assert!(stored.iter().all(|row| !row.0.windows(6).any(|part| part == b"whsec_")));
}

#[tokio::test]
async fn invalid_urls_and_unknown_types_are_refused() {
    let harness = ApiHarness::new().await;
    for url in [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://private.example/",
        "https://user:pw@8.8.8.8/",
        "https://8.8.8.8:8443/",
        "",
    ] {
        let body = json!({"url": url, "subscribedTypes": ["intent.accepted"]});
        harness.manage(&harness.acme, "POST", PATH, &body).await.refused(400, "INVALID_URL");
    }
    for (types, code) in [
        (json!(["intent.accepted", "intent.unknown"]), "INVALID_TYPE"),
        (json!([""]), "INVALID_TYPE"),
        (json!([]), "INVALID_PARAMETER"),
        (json!("intent.accepted"), "INVALID_PARAMETER"),
        (json!([1]), "INVALID_PARAMETER"),
        (Value::Null, "INVALID_PARAMETER"),
    ] {
        let body = json!({"url": URL, "subscribedTypes": types});
        harness.manage(&harness.acme, "POST", PATH, &body).await.refused(400, code);
    }
    for body in [json!({"subscribedTypes": ["intent.accepted"]}), json!([]), json!({"url": 1}), Value::Null] {
        harness.manage(&harness.acme, "POST", PATH, &body).await.refused(400, "INVALID_PARAMETER");
    }
    let text = Call::new("POST", PATH).with("X-API-Key", &harness.acme.api_key).body("{}");
    harness.send(&text).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(harness.count("select count(*) from webhook_endpoint").await, 0);
    let public = json!({"url": "https://public.example/", "subscribedTypes": ["intent.accepted"]});
    harness.manage(&harness.acme, "POST", PATH, &public).await.ok(201);
}

#[tokio::test]
async fn an_update_changes_given_fields_and_restores_a_deleted_endpoint() {
    let harness = ApiHarness::new().await;
    let none = harness.manage(&harness.acme, "PATCH", PATH, &json!({"isActive": false})).await;
    none.refused(404, "NOT_FOUND");
    let id = register(&harness, &harness.acme, URL).await["endpointId"].as_str().unwrap().to_owned();
    let change = json!({"subscribedTypes": ["payout.failed", "payout.failed"]});
    let changed = harness.manage(&harness.acme, "PATCH", PATH, &change).await.ok(200);
    assert_eq!((&changed["subscribedTypes"], &changed["url"]), (&json!(["payout.failed"]), &json!(URL)));
    let bad = json!({"url": "https://10.0.0.1/"});
    harness.manage(&harness.acme, "PATCH", PATH, &bad).await.refused(400, "INVALID_URL");
    let bad = json!({"isActive": "yes"});
    harness.manage(&harness.acme, "PATCH", PATH, &bad).await.refused(400, "INVALID_PARAMETER");

    let delete = |id: &str| Call::manage(&harness.globex, "DELETE", &format!("{PATH}/{id}"), &Value::Null);
    harness.send(&delete(&id)).await.refused(404, "NOT_FOUND");
    let own = Call::manage(&harness.acme, "DELETE", &format!("{PATH}/{id}"), &Value::Null);
    assert_eq!(harness.send(&own).await.ok(200)["isActive"], false);
    assert_eq!(shown(&harness, &harness.acme).await.ok(200)["isActive"], false);
    harness
        .manage(&harness.acme, "POST", &format!("{PATH}/test"), &Value::Null)
        .await
        .refused(404, "NOT_FOUND");
    let back = harness.manage(&harness.acme, "PATCH", PATH, &json!({"isActive": true})).await.ok(200);
    assert_eq!((&back["isActive"], &back["endpointId"]), (&json!(true), &json!(id)));
}

#[tokio::test]
async fn a_rotation_returns_the_next_secret_once_and_the_end_of_its_grace() {
    let harness = ApiHarness::new().await;
    let rotate = Call::manage(&harness.acme, "POST", &format!("{PATH}/rotate"), &Value::Null);
    harness.send(&rotate).await.refused(404, "NOT_FOUND");
    let secret = register(&harness, &harness.acme, URL).await["secret"].clone();
    let first = harness.send(&rotate).await.ok(200);
    let second = harness.send(&rotate).await.ok(200);
    assert!(first["nextSecret"] != secret && second["nextSecret"] != first["nextSecret"]);
    let expires = chrono::DateTime::parse_from_rfc3339(second["graceExpiresAt"].as_str().unwrap()).unwrap();
    let grace = (expires.to_utc() - chrono::Utc::now()).num_minutes();
    assert!((23 * 60 + 50..=24 * 60).contains(&grace), "{grace}");
    assert!(shown(&harness, &harness.acme).await.ok(200)["rotatedAt"].is_string());
}

#[tokio::test]
async fn an_idempotency_key_replays_its_answer_and_refuses_another_body() {
    let harness = ApiHarness::new().await;
    let rotate = |key: &str| {
        Call::manage(&harness.acme, "POST", &format!("{PATH}/rotate"), &Value::Null)
            .with("Idempotency-Key", key)
    };
    // A refusal is not kept.
    harness.send(&rotate("r")).await.refused(404, "NOT_FOUND");
    let body = json!({"url": URL, "subscribedTypes": ["intent.accepted"]});
    let once = Call::manage(&harness.acme, "POST", PATH, &body).with("Idempotency-Key", "any text: 1");
    let first = harness.send(&once).await;
    let again = harness.send(&once).await;
    assert_eq!(first.ok(201), again.ok(201));
    assert_eq!(
        (first.header("x-idempotency-replayed"), again.header("x-idempotency-replayed")),
        (None, Some("true"))
    );
    let other = json!({"url": "https://8.8.4.4/", "subscribedTypes": ["intent.accepted"]});
    let conflict = Call::manage(&harness.acme, "POST", PATH, &other).with("Idempotency-Key", "any text: 1");
    harness.send(&conflict).await.refused(409, "IDEMPOTENCY_CONFLICT");
    // The kept answer holds a secret, so it is sealed.
    let kept: (Vec<u8>,) = harness.row("select sealed_body from webhook_idempotency").await;
    assert!(!kept.0.windows(6).any(|part| part == b"whsec_"));

    let first = harness.send(&rotate("r")).await.ok(200);
    assert_eq!(harness.send(&rotate("r")).await.ok(200), first);
    assert_ne!(harness.send(&rotate("s")).await.ok(200), first);
    // After a day the key is as good as new.
    let day = "update webhook_idempotency set accepted_at = now() - interval '24 hours'";
    harness.run(day).await;
    assert_ne!(harness.send(&rotate("r")).await.ok(200), first);
    for wrong in ["", "é", &"k".repeat(256)] {
        harness.send(&rotate(wrong)).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    }
}

#[tokio::test]
async fn concurrent_requests_with_one_key_are_executed_once() {
    let harness = ApiHarness::new().await;
    register(&harness, &harness.acme, URL).await;
    let call = Call::manage(&harness.acme, "POST", &format!("{PATH}/test"), &Value::Null)
        .with("Idempotency-Key", "k");
    let answers = futures_util::future::join_all((0..8).map(|_| harness.send(&call))).await;
    let ids: std::collections::BTreeSet<String> =
        answers.iter().map(|answer| answer.ok(202)["eventId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(harness.count("select count(*) from webhook_queue").await, 1);
}

#[tokio::test]
async fn an_event_is_found_by_id_until_retention_deletes_it() {
    let harness = ApiHarness::new().await;
    let body = order();
    harness.submit(&harness.acme, &body).await.ok(202);
    let listed = harness.get(&harness.acme, "/v1/events").await.ok(200)["data"][0].clone();
    let path = format!("/v1/events/{}", listed["id"].as_str().unwrap());
    assert_eq!(harness.get(&harness.acme, &path).await.ok(200), listed);
    let resend = Call::manage(&harness.acme, "POST", &format!("{path}/resend"), &Value::Null);
    harness.send(&resend).await.refused(404, "NOT_FOUND");
    register(&harness, &harness.acme, URL).await;
    assert_eq!(harness.send(&resend).await.ok(202)["eventId"], listed["id"]);

    let status = format!("/v1/executions/{}", body["clientReference"].as_str().unwrap());
    let before = harness.get(&harness.acme, &status).await.ok(200);
    let age = "update event set occurred_at = occurred_at - interval '15 days', \
                                observed_at = observed_at - interval '15 days'";
    harness.run(age).await;
    for gone in [Call::get(&harness.acme, &path), resend] {
        harness.send(&gone).await.refused(404, "NOT_FOUND");
    }
    assert_eq!(harness.get(&harness.acme, "/v1/events").await.ok(200)["data"], json!([]));
    // A reader in the middle of a page neither waits nor is waited for.
    let mut reader = harness.pool().begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *reader).await.unwrap();
    let mut seen = async || -> i64 {
        sqlx::query_as::<_, (i64,)>("select count(*) from event").fetch_one(&mut *reader).await.unwrap().0
    };
    assert_eq!(seen().await, 1);
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(dvp_store::orders::feed::trim(&mut conn, 100).await.unwrap(), 1);
    assert_eq!(seen().await, 1);
    assert_eq!(dvp_store::orders::feed::trim(&mut conn, 100).await.unwrap(), 0);
    assert_eq!(harness.count("select count(*) from event").await, 0);
    let after = harness.get(&harness.acme, &status).await.ok(200);
    assert_eq!(after["events"].as_array().unwrap().len(), before["events"].as_array().unwrap().len());
}

#[tokio::test]
async fn a_long_poll_returns_the_event_or_an_empty_page() {
    let harness = ApiHarness::new().await;
    let empty = harness.get(&harness.acme, "/v1/events?wait=1").await.ok(200);
    assert_eq!(empty["data"], json!([]));
    let waiting = Call::get(&harness.acme, "/v1/events?wait=8");
    let body = order();
    let (page, accepted) = tokio::join!(harness.send(&waiting), harness.submit(&harness.acme, &body));
    accepted.ok(202);
    assert_eq!(page.ok(200)["data"][0]["intentId"], body["intentId"]);
    for wrong in ["9", "-1", "1.5", ""] {
        let call = Call::get(&harness.acme, &format!("/v1/events?wait={wrong}"));
        harness.send(&call).await.refused(400, "INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn the_endpoint_of_a_revoked_key_gets_no_further_events() {
    let harness = ApiHarness::new().await;
    register(&harness, &harness.acme, URL).await;
    harness.submit(&harness.acme, &order()).await.ok(202);
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(!feed::list_routed(&mut conn, 0, i64::MAX).await.unwrap().is_empty());
    let find = "select key_id, is_active from webhook_endpoint";
    let (key, is_active): (String, bool) = harness.row(find).await;
    assert!(is_active);
    assert!(registry::disable_key(&mut conn, &key).await.unwrap());
    assert!(!feed::list_routed(&mut conn, 0, i64::MAX).await.unwrap().is_empty(), "it may be enabled again");
    assert!(registry::revoke_key(&mut conn, &key).await.unwrap());
    let (_, is_active): (String, bool) = harness.row(find).await;
    assert!(!is_active);
    assert!(feed::list_routed(&mut conn, 0, i64::MAX).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_operator_disables_an_endpoint_which_its_partner_can_activate_again() {
    let harness = ApiHarness::new().await;
    let registered = register(&harness, &harness.acme, URL).await;
    let id = registered["endpointId"].as_str().unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let by = ("jo", "unknown host");
    assert_eq!(disable(&mut conn, "ep_other", by).await.unwrap(), None);
    assert_eq!(disable(&mut conn, id, by).await.unwrap(), Some(true));
    assert_eq!(disable(&mut conn, id, by).await.unwrap(), Some(false));
    assert_eq!(shown(&harness, &harness.acme).await.ok(200)["isActive"], false);
    let recorded =
        "select count(*) from console_record where operator = 'jo' and subject like '%unknown host'";
    assert_eq!(harness.count(recorded).await, 2);
    let on = Call::manage(&harness.acme, "PATCH", PATH, &json!({"isActive": true}));
    assert_eq!(harness.send(&on).await.ok(200)["isActive"], true);
}
