//! `null` is the same as absent, in the document and in the service.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use dvp_api::document;
use serde_json::{Value, json};

use crate::contract::takes;

use crate::harness::{Answer, ApiHarness, changed, order};
use crate::webhooks::{manage, register};

/// The fields of a component that may be absent, by their pointers; objects within it included.
fn optional(component: &str, at: &str) -> Vec<String> {
    let document = document();
    let schema = &document["components"]["schemas"][component];
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut found = Vec::new();
    for (name, field) in schema["properties"].as_object().unwrap() {
        let pointer = format!("{at}/{name}");
        let inner = field.get("$ref").or_else(|| field.pointer("/anyOf/0/$ref")).and_then(Value::as_str);
        if let Some(inner) = inner {
            found.extend(optional(inner.rsplit('/').next().unwrap(), &pointer));
        }
        if !required.contains(&name.as_str()) {
            found.push(pointer);
        }
    }
    found
}

fn verdict(answer: &Answer) -> (u16, Value) {
    (answer.status.as_u16(), answer.json()["error"]["code"].clone())
}

/// Sends a body with each optional field null and without it, where the field can be reached at all.
async fn same<F: Future<Output = Answer>>(
    component: &str,
    body: impl Fn() -> Value,
    send: impl Fn(Value) -> F,
) {
    assert!(takes(component, &body()), "{component}: {}", body());
    let pointers = optional(component, "");
    assert!(!pointers.is_empty(), "{component}");
    for pointer in pointers {
        let parent = pointer.rsplit_once('/').unwrap().0;
        if body().pointer(parent).is_none_or(|parent| !parent.is_object()) {
            continue;
        }
        let (null, absent) = (changed(body(), &pointer, Some(Value::Null)), changed(body(), &pointer, None));
        assert_eq!(takes(component, &null), takes(component, &absent), "{component}{pointer}: the document");
        let (null, absent) = (send(null).await, send(absent).await);
        assert_eq!(verdict(&null), verdict(&absent), "{component}{pointer}: {}", null.text);
    }
}

#[tokio::test]
async fn optional_fields_of_quotes_may_be_null() {
    let harness = &ApiHarness::new().await;
    let quote = || {
        json!({"requestId": "r-1", "actorId": "desk", "source": "USDC", "target": "USD", "amount": "100",
               "side": "sell"})
    };
    let send = |path: &'static str| {
        move |body: Value| async move {
            harness.send(&crate::harness::Call::post(&harness.acme, path, &body)).await
        }
    };
    same("QuoteRequest", quote, send("/v1/quotes")).await;
    let firm = || {
        json!({"requestId": "r-2", "actorId": "desk", "amountMinor": "100000000", "amountType": "source",
               "inputAsset": {"type": "erc20", "symbol": "USDC"},
               "outputAsset": {"type": "fiat", "symbol": "USD"}})
    };
    same("FirmQuoteRequest", firm, send("/v1/quotes/firm")).await;
}

#[tokio::test]
async fn optional_fields_of_intents_may_be_null() {
    let harness = &ApiHarness::new().await;
    let send = |body: Value| async move { harness.submit(&harness.acme, &body).await };
    same("CurrentIntentRequest", order, send).await;
    let older = || {
        json!({"pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "100.00",
               "strategy": "instant", "constraints": {}})
    };
    same("LegacyIntentRequest", older, send).await;
}

#[tokio::test]
async fn optional_fields_of_webhook_management_may_be_null() {
    let harness = &ApiHarness::new().await;
    register(harness, &harness.acme, "https://8.8.8.8/hooks").await;
    let send = |method: &'static str, path: &'static str| {
        move |body: Value| async move { harness.send(&manage(&harness.acme, method, path, &body)).await }
    };
    same("WebhookUpdate", || json!({}), send("PATCH", "/v1/webhook_endpoints")).await;
    same("WebhookTest", || json!({}), send("POST", "/v1/webhook_endpoints/test")).await;
    let range = || json!({"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"});
    same("WebhookReplay", range, send("POST", "/v1/webhook_endpoints/replay")).await;
}
