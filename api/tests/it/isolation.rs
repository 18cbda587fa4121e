//! Another partner's things, the same partner's other environment's things, and things that never existed answer the
//! same, byte for byte.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Answer, ApiHarness, Call, order};
use crate::webhooks::register;

/// How a read names a thing: `{}` is where the name goes.
const READS: [(&str, Thing); 9] = [
    ("/v1/executions/{}", Thing::ClientReference),
    ("/v1/executions/{}?refType=executionId", Thing::Reference),
    ("/v1/executions/{}/receipt", Thing::ClientReference),
    ("/v1/executions/{}/receipt?refType=executionId", Thing::Reference),
    ("/v1/intents/{}/status", Thing::IntentId),
    ("/v1/events?intentId={}", Thing::IntentId),
    ("/v1/executions?reference={}", Thing::ClientReference),
    ("/v1/events/{}", Thing::EventId),
    ("/v1/intents/{}", Thing::OlderIntentId),
];

/// Reads that name nothing of anybody's, or only a page of the caller's own.
const UNNAMED: [&str; 21] = [
    "/v1/assets",
    "/v1/chains",
    "/v1/wallets/{address}",
    "/v1/balances",
    "/v1/limits",
    "/v1/requests",
    "/v1/sandbox/clock",
    "/v1/statements",
    "/v1/beneficiaries",
    "/v1/events/stream",
    "/v1/resting-orders",
    "/v1/executions",
    "/v1/intents",
    "/v1/rates/{base}/{target}",
    "/v1/pairs",
    "/v1/reconciliation",
    "/v1/reports/reconciliation/daily",
    "/v1/events",
    "/v1/webhook_endpoints",
    "/v1/webhook_endpoints/deliveries",
    "/v1/openapi.json",
];

#[derive(Clone, Copy)]
enum Thing {
    ClientReference,
    Reference,
    IntentId,
    EventId,
    OlderIntentId,
}

/// Status, headers and body, without the request id and rate limit counters, and with the name itself masked.
fn face(answer: &Answer, name: &str) -> (u16, Vec<(String, String)>, String) {
    let varies = |header: &str| header == "x-request-id" || header == "ratelimit";
    let headers = answer
        .headers
        .iter()
        .filter(|(header, _)| !varies(header.as_str()))
        .map(|(header, value)| (header.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let text = answer.text.replace(name, "NAME").replace(answer.header("x-request-id").unwrap(), "ID");
    (answer.status.as_u16(), headers, text)
}

/// An unused name of the same form.
fn absent(name: &str) -> String {
    let fresh = Uuid::new_v4();
    [fresh.to_string(), fresh.simple().to_string()]
        .into_iter()
        .find_map(|fresh| {
            let at = name.len().checked_sub(fresh.len())?;
            let (prefix, own) = (name.get(..at)?, name.get(at..)?);
            own.parse::<Uuid>().ok().map(|_| format!("{prefix}{fresh}"))
        })
        .unwrap()
}

#[test]
fn every_documented_read_is_tested_with_another_partner() {
    let document = dvp_api::document();
    let covered = |path: &str| {
        let as_template = |read: &str| read.split('?').next().unwrap().replace("{}", "");
        let plain = path.split('/').map(|part| if part.starts_with('{') { "" } else { part });
        let plain: Vec<&str> = plain.collect();
        READS.iter().any(|(read, _)| as_template(read) == plain.join("/")) || UNNAMED.contains(&path)
    };
    for (path, operations) in document["paths"].as_object().unwrap() {
        if operations["get"]["security"].as_array().is_some_and(|security| !security.is_empty()) {
            assert!(covered(path), "{path}");
        }
    }
}

#[tokio::test]
async fn reads_do_not_distinguish_foreign_names_from_unknown_ones() {
    let harness = ApiHarness::new().await;
    let body = order();
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    harness.prefund().await;
    let older = json!({"pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "1.00",
                       "strategy": "scheduled"});
    let older = harness.submit(&harness.acme, &older).await.ok(201);
    let events = harness.get(&harness.acme, "/v1/events").await.ok(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for (read, thing) in READS {
        let name = match thing {
            Thing::ClientReference => text(&body["clientReference"]),
            Thing::Reference => text(&accepted["reference"]),
            Thing::IntentId => text(&body["intentId"]),
            Thing::EventId => text(&events["data"][0]["id"]),
            Thing::OlderIntentId => text(&older["data"]["intentId"]),
        };
        let unknown = absent(&name);
        assert_eq!(unknown.len(), name.len());
        let mine = harness.get(&harness.acme, &read.replace("{}", &name)).await;
        for keys in [&harness.globex, &harness.acme_live] {
            let ask = async |name: &str| harness.get(keys, &read.replace("{}", name)).await;
            let (foreign, none) = (ask(&name).await, ask(&unknown).await);
            assert_eq!(face(&foreign, &name), face(&none, &unknown), "{read}");
            assert_ne!(foreign.text.replace(&name, ""), mine.text.replace(&name, ""), "{read} shows nothing");
        }
    }
}

#[tokio::test]
async fn lists_contain_the_partners_own_items_only() {
    let harness = ApiHarness::new().await;
    harness.submit(&harness.acme, &order()).await.ok(202);
    register(&harness, &harness.acme, "https://8.8.8.8/hooks").await;
    let test = Call::manage(&harness.acme, "POST", "/v1/webhook_endpoints/test", &Value::Null);
    harness.send(&test).await.ok(202);
    let deliveries = "/v1/webhook_endpoints/deliveries";
    for path in ["/v1/events", deliveries] {
        let mine = harness.get(&harness.acme, path).await.ok(200);
        assert_eq!(mine["data"].as_array().unwrap().len(), 1, "{path}");
    }
    let day = &harness.now.iso8601()[..10];
    let range = format!("/v1/reconciliation?from={day}&to={day}");
    let daily = format!("/v1/reports/reconciliation/daily?date={day}");
    for path in [&range, &daily] {
        let mine = harness.get(&harness.acme, path).await.ok(200);
        assert_eq!(mine["rows"].as_array().unwrap().len(), 1);
    }
    for keys in [&harness.globex, &harness.acme_live] {
        for path in [&range, &daily] {
            let theirs = harness.get(keys, path).await.ok(200);
            assert_eq!((&theirs["rows"], &theirs["totals"]), (&json!([]), &json!([])), "{path}");
        }
        assert_eq!(harness.get(keys, "/v1/events").await.ok(200)["data"], json!([]));
        harness.get(keys, deliveries).await.refused(404, "NOT_FOUND");
        harness.get(keys, "/v1/webhook_endpoints").await.refused(404, "NOT_FOUND");
        register(&harness, keys, "https://8.8.8.8/theirs").await;
        assert_eq!(harness.get(keys, deliveries).await.ok(200)["data"], json!([]));
    }
}
