//! Another partner's things, the same partner's other environment's things, and things that never existed answer the
//! same, byte for byte.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use serde_json::Value;
use uuid::Uuid;

use crate::house::{Answer, Call, House, order};

/// How a read names a thing: `{}` is where the name goes.
const READS: [(&str, Thing); 7] = [
    ("/v1/executions/{}", Thing::ClientReference),
    ("/v1/executions/{}?refType=executionId", Thing::Reference),
    ("/v1/executions/{}/receipt", Thing::ClientReference),
    ("/v1/executions/{}/receipt?refType=executionId", Thing::Reference),
    ("/v1/intents/{}/status", Thing::IntentId),
    ("/v1/events?intentId={}", Thing::IntentId),
    ("/v1/executions?reference={}", Thing::ClientReference),
];

#[derive(Clone, Copy)]
enum Thing {
    ClientReference,
    Reference,
    IntentId,
}

/// Status, headers and body, without the request id and what counts requests, and with the name itself blotted out.
fn face(answer: &Answer, name: &str) -> (u16, Vec<(String, String)>, String) {
    let varies = |header: &str| header == "x-request-id" || header == "ratelimit";
    let headers = answer
        .headers
        .iter()
        .filter(|(header, _)| !varies(header.as_str()))
        .map(|(header, value)| (header.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    (answer.status.as_u16(), headers, answer.text.replace(name, "NAME"))
}

/// A name of the same form that nobody uses.
fn absent(name: &str) -> String {
    match name.strip_prefix("exe_") {
        Some(_) => format!("exe_{}", Uuid::new_v4().simple()),
        None => name
            .strip_prefix("ref-")
            .map_or_else(|| Uuid::new_v4().to_string(), |_| format!("ref-{}", Uuid::new_v4())),
    }
}

#[tokio::test]
async fn every_read_tells_a_foreign_name_and_an_unknown_one_apart_by_nothing() {
    let house = House::new().await;
    let body = order();
    let accepted = house.submit(&house.acme, &body).await.ok(202);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for (read, thing) in READS {
        let name = match thing {
            Thing::ClientReference => text(&body["clientReference"]),
            Thing::Reference => text(&accepted["reference"]),
            Thing::IntentId => text(&body["intentId"]),
        };
        let unknown = absent(&name);
        assert_eq!(unknown.len(), name.len());
        let mine = house.send(&Call::get(&house.acme, &read.replace("{}", &name))).await;
        for keys in [&house.globex, &house.acme_live] {
            let ask = async |name: &str| house.send(&Call::get(keys, &read.replace("{}", name))).await;
            let (foreign, none) = (ask(&name).await, ask(&unknown).await);
            assert_eq!(face(&foreign, &name), face(&none, &unknown), "{read}");
            assert_ne!(foreign.text.replace(&name, ""), mine.text.replace(&name, ""), "{read} shows nothing");
        }
    }
}

#[tokio::test]
async fn reports_of_a_partner_hold_nothing_of_another() {
    let house = House::new().await;
    house.submit(&house.acme, &order()).await.ok(202);
    let day = &house.now.iso8601()[..10];
    let range = format!("/v1/reconciliation?from={day}&to={day}");
    let daily = format!("/v1/reports/reconciliation/daily?date={day}");
    for path in [&range, &daily] {
        let mine = house.send(&Call::get(&house.acme, path)).await.ok(200);
        assert_eq!(mine["rows"].as_array().unwrap().len(), 1);
        for keys in [&house.globex, &house.acme_live] {
            let theirs = house.send(&Call::get(keys, path)).await.ok(200);
            assert_eq!(
                (theirs["rows"].to_string(), theirs["totals"].to_string()),
                ("[]".into(), "[]".into())
            );
        }
    }
}
