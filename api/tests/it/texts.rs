//! Text that cannot be stored: refused wherever a caller can put it, naming the place, and never the service's failure.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use serde_json::{Value, json};

use crate::harness::{Answer, ApiHarness, Call, order};
use crate::webhooks::{manage, register};

/// Invalid values of a line of text.
fn hostile() -> [String; 8] {
    [
        "a\0b".to_owned(),
        "padded\0\0\0\0".to_owned(),
        "a\u{7f}".to_owned(),
        "\u{1b}[2J".to_owned(),
        "a\u{85}b".to_owned(),
        "a\u{2028}b".to_owned(),
        "x".repeat(6_000),
        "x".repeat(60_000),
    ]
}

/// Pointers of all texts in a body.
fn texts(body: &Value, at: &str) -> Vec<String> {
    match body {
        Value::String(_) => vec![at.to_owned()],
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| texts(value, &format!("{at}/{name}"))).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(n, value)| texts(value, &format!("{at}/{n}"))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Puts each hostile text in the place of each text of the body.
async fn refused<F: Future<Output = Answer>>(body: impl Fn() -> Value, send: impl Fn(Value) -> F) {
    let pointers = texts(&body(), "");
    assert!(!pointers.is_empty());
    for pointer in pointers {
        // The caller's own objects may hold any text but NUL.
        let is_open = pointer.contains("/own") || pointer.contains("/travelRuleData");
        for text in hostile().into_iter().filter(|text| !is_open || text.contains('\0')) {
            let mut wrong = body();
            *wrong.pointer_mut(&pointer).unwrap() = text.clone().into();
            let answer = send(wrong).await;
            let what: String = text.escape_default().take(20).collect();
            assert_eq!(answer.status.as_u16(), 400, "{pointer} {what}: {}", answer.text);
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            let mut names = pointer.split('/').skip(1);
            // An item of an array is named by the array, a part of an open object by the object.
            let named = names.any(|name| message.contains(name));
            assert!(named, "{pointer} {what}: {message}");
        }
    }
}

#[tokio::test]
async fn every_text_of_a_quote_request_is_checked() {
    let harness = &ApiHarness::new().await;
    let send = |path: &'static str| {
        move |body: Value| async move { harness.send(&Call::post(&harness.acme, path, &body)).await }
    };
    let quote = || {
        json!({"requestId": "r-1", "actorId": "desk", "source": "USDC", "target": "USD", "amount": "100",
               "side": "sell", "actorType": "retail", "quoteType": "A_retail", "settlementPref": "hybrid"})
    };
    refused(quote, send("/v1/quotes")).await;
    let firm = || {
        json!({"requestId": "r-2", "actorId": "desk", "amountMinor": "100000000", "amountType": "source",
               "side": "sell", "actorType": "retail",
               "inputAsset": {"type": "erc20", "symbol": "USDC", "address": dvp_testing::market::TOKEN, "chain": "anvil"},
               "outputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"}})
    };
    refused(firm, send("/v1/quotes/firm")).await;
}

#[tokio::test]
async fn every_text_of_an_intent_is_checked() {
    let harness = &ApiHarness::new().await;
    let send = |body: Value| async move { harness.submit(&harness.acme, &body).await };
    let whole = || {
        let mut body = order();
        let more = json!({
            "quoteId": "qte_1", "outputRecipient": "somebody", "actorType": "institution", "side": "sell",
            "metadata": {
                "senderKycHash": "h", "depositReference": "d", "currency": "USD", "targetStablecoin": "USDC",
                "beneficiaryAccount": "1", "beneficiaryName": "n", "travelRuleData": {"originator": ["x"]},
                "own": {"deep": [{"text": "y"}]},
            },
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body["beneficiary"] = json!({
            "account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "wire",
            "swiftCode": "DEUTDEFF", "bank": "Bank", "travelRuleData": {"vasp": "v"},
            "address": {"line1": "1 St", "city": "c", "state": "s", "postalCode": "p"},
        });
        body
    };
    refused(whole, send).await;
    for open in [json!({"metadata": {"own\0key": 1}}), json!({"metadata": {"own": [{"k\0": 1}]}})] {
        let mut body = order();
        body.as_object_mut().unwrap().extend(open.as_object().unwrap().clone());
        let message = send(body).await.refused(400, "INVALID_PARAMETER");
        assert_eq!(message, "metadata: must not hold the character U+0000");
    }
    let older = || {
        json!({"pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "100.00",
               "strategy": "instant", "clientRef": "c", "constraints": {"settlementPref": "auto"}})
    };
    refused(older, send).await;
    assert_eq!(harness.count("select count(*) from intent").await, 0);
}

#[tokio::test]
async fn every_text_of_webhook_management_is_checked() {
    let harness = &ApiHarness::new().await;
    let send = |method: &'static str, path: &'static str| {
        move |body: Value| async move { harness.send(&manage(&harness.acme, method, path, &body)).await }
    };
    let path = "/v1/webhook_endpoints";
    let whole = || json!({"url": "https://8.8.8.8/hooks", "subscribedTypes": ["intent.accepted"]});
    refused(whole, send("POST", path)).await;
    register(harness, &harness.acme, "https://8.8.8.8/hooks").await;
    refused(whole, send("PATCH", path)).await;
    refused(|| json!({"type": "intent.accepted"}), send("POST", "/v1/webhook_endpoints/test")).await;
    let range = || json!({"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z", "types": ["intent.accepted"]});
    refused(range, send("POST", "/v1/webhook_endpoints/replay")).await;
}

#[tokio::test]
async fn a_body_that_is_not_utf8_is_refused() {
    let harness = ApiHarness::new().await;
    let body = |inner: &[u8]| [b"{\"requestId\":\"".as_slice(), inner, b"\"}"].concat();
    for bytes in [
        body(b"\xff\xfe"),
        body(b"a\xe2\x82"),
        body(b"\xed\xa0\x80"),
        body(b"a\0b"),
        body(b"\\ud800"),
        body(b"\\udc00\\ud800"),
        b"\0".to_vec(),
        b"{\"requestId\":\"r\"\0}".to_vec(),
    ] {
        for path in ["/v1/quotes", "/v1/quotes/firm", "/v1/intents"] {
            let call = Call::post(&harness.acme, path, &json!({})).body(bytes.clone());
            let answer = harness.send(&call.signed(&harness.acme, harness.now.unix_secs())).await;
            assert_eq!(answer.status.as_u16(), 400, "{path} {bytes:?}: {}", answer.text);
        }
        let call = manage(&harness.acme, "POST", "/v1/webhook_endpoints", &json!({})).body(bytes.clone());
        assert_eq!(harness.send(&call).await.status.as_u16(), 400, "{bytes:?}");
    }
}

#[tokio::test]
async fn no_path_query_or_header_causes_an_internal_error() {
    let harness = ApiHarness::new().await;
    register(&harness, &harness.acme, "https://8.8.8.8/hooks").await;
    let long = "x".repeat(6_000);
    for text in ["%00", "a%00b", "%C2%85", "%7F", "%E2%80%A8", &long] {
        let calls = [
            ("GET", format!("/v1/executions/{text}")),
            ("GET", format!("/v1/executions/{text}?refType=executionId")),
            ("GET", format!("/v1/executions/{text}/receipt")),
            ("GET", format!("/v1/executions?reference={text}")),
            ("GET", format!("/v1/executions/r?refType={text}")),
            ("GET", format!("/v1/intents/{text}")),
            ("GET", format!("/v1/intents/{text}/status")),
            ("DELETE", format!("/v1/intents/{text}")),
            ("GET", format!("/v1/intents?status={text}")),
            ("GET", format!("/v1/intents?fromDate={text}")),
            ("GET", format!("/v1/rates/{text}/USD")),
            ("GET", format!("/v1/events/{text}")),
            ("GET", format!("/v1/events?since={text}")),
            ("GET", format!("/v1/events?intentId={text}")),
            ("GET", format!("/v1/events?type={text}")),
            ("GET", format!("/v1/reconciliation?from={text}&to={text}")),
            ("GET", format!("/v1/reconciliation?from=2026-11-01&to=2026-11-02&cursor={text}")),
            ("GET", format!("/v1/reports/reconciliation/daily?date={text}")),
            ("GET", format!("/v1/webhook_endpoints/deliveries?cursor={text}")),
            ("GET", format!("/v1/webhook_endpoints/deliveries?eventId={text}")),
            ("GET", format!("/v1/webhook_endpoints/deliveries?state={text}")),
            ("DELETE", format!("/v1/webhook_endpoints/{text}")),
            ("POST", format!("/v1/events/{text}/resend")),
        ];
        for (method, path) in calls {
            let call = Call::new(method, &path)
                .with("X-API-Key", &harness.acme.api_key)
                .with("Idempotency-Key", "one")
                .with("X-Request-Id", &long);
            let answer = harness.send(&call).await;
            // A list of references not found is an answer, too.
            assert!(answer.status.as_u16() < 500, "{method} {path:.60}: {}", answer.text);
        }
    }
    for (name, value) in [("X-Idempotency-Key", long.as_str()), ("X-API-Key", long.as_str())] {
        let call = Call::post(&harness.acme, "/v1/quotes", &json!({})).with(name, value);
        let status = harness.send(&call).await.status.as_u16();
        assert!((400..500).contains(&status), "{name}: {status}");
    }
    let call = manage(&harness.acme, "POST", "/v1/webhook_endpoints/rotate", &Value::Null);
    harness.send(&call.with("Idempotency-Key", &long)).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
}
