//! The feed.

use serde_json::{Value, json};

use crate::harness::{ApiHarness, Call, Keys, order};

async fn page(harness: &ApiHarness, keys: &Keys, query: &str) -> Value {
    harness.get(keys, &format!("/v1/events{query}")).await.ok(200)
}

async fn accept(harness: &ApiHarness, keys: &Keys) -> Value {
    let body = order();
    harness.submit(keys, &body).await.ok(202);
    body
}

fn intents(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|event| event["intentId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_event_has_the_contracts_envelope() {
    let harness = ApiHarness::new().await;
    let order = accept(&harness, &harness.acme).await;
    accept(&harness, &harness.acme_live).await;
    assert_eq!(page(&harness, &harness.acme_live, "").await["data"][0]["livemode"], true);
    let page = page(&harness, &harness.acme, "").await;
    let event = &page["data"][0];
    assert_eq!(event["object"], "event");
    assert!(event["id"].as_str().unwrap().starts_with("evt_"));
    assert_eq!(event["type"], "intent.accepted");
    assert_eq!((&event["isTerminal"], &event["livemode"]), (&json!(false), &json!(false)));
    assert_eq!(event["apiVersion"], dvp_domain::event::API_VERSION);
    assert_eq!(event["intentId"], order["intentId"]);
    assert_eq!(event["clientReference"], order["clientReference"]);
    assert_eq!(event["sequence"], 1);
    let object = &event["data"]["object"];
    assert_eq!((&object["id"], &object["status"]), (&order["intentId"], &json!("intent.accepted")));
    assert_eq!(object["beneficiary"]["accountLast4"], "6789");
    assert!(!event.to_string().contains("000123456789"), "the account is masked");
    let path = format!("/v1/executions/{}", order["clientReference"].as_str().unwrap());
    let view = harness.get(&harness.acme, &path).await.ok(200);
    for field in ["occurredAt", "observedAt"] {
        assert_eq!(view["events"][0][field], event[field], "{field}");
    }
}

#[tokio::test]
async fn pages_have_no_gaps_and_the_last_cursor_continues_the_feed() {
    let harness = ApiHarness::new().await;
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(accept(&harness, &harness.acme).await["intentId"].as_str().unwrap().to_owned());
        accept(&harness, &harness.globex).await;
    }
    let mut seen = Vec::new();
    let mut query = "?limit=2".to_owned();
    let mut more = Vec::new();
    for _ in 0..4 {
        let page = page(&harness, &harness.acme, &query).await;
        seen.extend(intents(&page).into_iter().map(str::to_owned));
        more.push(page["hasMore"].as_bool().unwrap());
        query = format!("?limit=2&since={}", page["nextCursor"].as_str().unwrap());
    }
    assert_eq!((seen, more), (sent, vec![true, true, false, false]));
    // An empty page returns its own cursor, and later events follow it.
    let empty = page(&harness, &harness.acme, &query).await;
    assert!(query.ends_with(empty["nextCursor"].as_str().unwrap()));
    let late = accept(&harness, &harness.acme).await;
    assert_eq!(intents(&page(&harness, &harness.acme, &query).await), [late["intentId"].as_str().unwrap()]);
}

#[tokio::test]
async fn the_default_page_has_twenty_events() {
    let harness = ApiHarness::new().await;
    for _ in 0..21 {
        accept(&harness, &harness.acme).await;
    }
    let first = page(&harness, &harness.acme, "").await;
    assert_eq!((intents(&first).len(), &first["hasMore"]), (20, &json!(true)));
    let all = page(&harness, &harness.acme, "?limit=100").await;
    assert_eq!((intents(&all).len(), &all["hasMore"]), (21, &json!(false)));
    for wrong in ["0", "101", "-1", "+5", "", "ten", "1.0", "99999999999999999999"] {
        let call = Call::get(&harness.acme, &format!("/v1/events?limit={}", wrong.replace('+', "%2B")));
        let message = harness.send(&call).await.refused(400, "INVALID_PARAMETER");
        assert!(message.starts_with("limit: "), "{wrong} gave {message}");
    }
}

#[tokio::test]
async fn filters_apply_and_unknown_types_are_refused() {
    let harness = ApiHarness::new().await;
    let one = accept(&harness, &harness.acme).await;
    accept(&harness, &harness.acme).await;
    let id = one["intentId"].as_str().unwrap();
    assert_eq!(intents(&page(&harness, &harness.acme, &format!("?intentId={id}")).await), [id]);
    assert_eq!(intents(&page(&harness, &harness.acme, "?type=intent.accepted").await).len(), 2);
    for kind in ["payout.completed", "test.ping"] {
        let none = page(&harness, &harness.acme, &format!("?type={kind}")).await;
        assert_eq!((&none["data"], &none["hasMore"]), (&json!([]), &json!(false)));
        assert!(none["nextCursor"].is_string());
    }
    for wrong in ["", "payout", "PAYOUT.COMPLETED", "intent.accepted%00"] {
        let call = Call::get(&harness.acme, &format!("/v1/events?type={wrong}"));
        harness.send(&call).await.refused(400, "INVALID_TYPE");
    }
    let call = Call::get(&harness.acme, "/v1/events?intentId=%00");
    assert!(harness.send(&call).await.refused(400, "INVALID_PARAMETER").starts_with("intentId: "));
}

#[tokio::test]
async fn a_cursor_of_another_partner_or_an_earlier_epoch_is_refused() {
    let harness = ApiHarness::new().await;
    let mine = page(&harness, &harness.acme, "").await["nextCursor"].as_str().unwrap().to_owned();
    for keys in [&harness.globex, &harness.acme_live] {
        let call = Call::get(keys, &format!("/v1/events?since={mine}"));
        harness.send(&call).await.refused(400, "INVALID_CURSOR");
    }
    for wrong in ["", "0", "1700000000", "%00", "é", &mine[2..], &format!("{mine}00")] {
        let call = Call::get(&harness.acme, &format!("/v1/events?since={}", wrong.replace('é', "%C3%A9")));
        harness.send(&call).await.refused(400, "INVALID_CURSOR");
    }
    let order = accept(&harness, &harness.acme).await;
    let later = page(&harness, &harness.acme, &format!("?since={mine}")).await;
    assert_eq!(intents(&later), [order["intentId"].as_str().unwrap()]);
    harness.run("update feed_counter set epoch = gen_random_uuid()").await;
    let call = Call::get(&harness.acme, &format!("/v1/events?since={mine}"));
    harness.send(&call).await.refused(400, "INVALID_CURSOR");
}
