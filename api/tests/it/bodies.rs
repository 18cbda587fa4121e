//! Every field of every body: text that cannot be stored is refused wherever a caller can put it, naming the place, and
//! never the service's failure; `null` is the same as absent, in the document and in the service.

use dvp_api::document;
use serde_json::{Value, json};

use crate::contract::takes;
use crate::harness::{Answer, ApiHarness, Call, changed, firm, older, order, quote};
use crate::webhooks::register;

const ENDPOINT: &str = "/v1/webhook_endpoints";

/// A body with all of its fields: the component that describes it, where it is sent, and how it is made.
type Request = (&'static str, &'static str, &'static str, fn() -> Value);

const REQUESTS: [Request; 9] = [
    ("QuoteRequest", "POST", "/v1/quotes", whole_quote),
    ("FirmQuoteRequest", "POST", "/v1/quotes/firm", whole_firm),
    ("AmountsIntentRequest", "POST", "/v1/intents", whole_order),
    ("BoundsIntentRequest", "POST", "/v1/intents", || by_bounds(whole_order())),
    ("LegacyIntentRequest", "POST", "/v1/intents", whole_older),
    ("WebhookRegistration", "POST", ENDPOINT, whole_endpoint),
    ("WebhookUpdate", "PATCH", ENDPOINT, whole_endpoint),
    ("WebhookTest", "POST", "/v1/webhook_endpoints/test", || json!({"type": "intent.accepted"})),
    (
        "WebhookReplay",
        "POST",
        "/v1/webhook_endpoints/replay",
        || json!({"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z", "types": ["intent.accepted"]}),
    ),
];

fn extended(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn whole_quote() -> Value {
    extended(quote(), json!({"actorType": "retail", "quoteType": "A_retail", "settlementPref": "hybrid"}))
}

fn whole_firm() -> Value {
    let assets = json!({
        "side": "sell", "actorType": "retail",
        "inputAsset": {"type": "erc20", "symbol": "USDC", "address": dvp_testing::market::TOKEN, "chain": "anvil"},
        "outputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
    });
    extended(firm(), assets)
}

fn whole_order() -> Value {
    let more = json!({
        "quoteId": "qte_1", "outputRecipient": "somebody", "actorType": "institution", "side": "sell",
        "metadata": {
            "senderKycHash": "h", "depositReference": "d", "currency": "USD", "targetStablecoin": "USDC",
            "beneficiaryAccount": "1", "beneficiaryName": "n", "travelRuleData": {"originator": ["x"]},
            "own": {"deep": [{"text": "y"}]},
        },
        "beneficiary": {
            "account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "wire",
            "swiftCode": "DEUTDEFF", "bank": "Bank", "travelRuleData": {"vasp": "v"},
            "address": {"line1": "1 St", "city": "c", "state": "s", "postalCode": "p"},
        },
    });
    extended(order(), more)
}

/// The same order in the other form: an exact output.
fn by_bounds(order: Value) -> Value {
    let order = changed(changed(order, "/inputAmountMinor", None), "/minOutputAmountMinor", None);
    let bounds = json!({
        "input": {"limitAmountMinor": "100000000"},
        "output": {"targetAmountMinor": "9900", "limitAmountMinor": "9900"},
    });
    extended(order, bounds)
}

fn whole_older() -> Value {
    changed(older(), "/constraints/settlementPref", Some(json!("auto")))
}

fn whole_endpoint() -> Value {
    json!({"url": "https://8.8.8.8/hooks", "subscribedTypes": ["intent.accepted"]})
}

async fn send(harness: &ApiHarness, method: &'static str, path: &str, body: &Value) -> Answer {
    match path {
        "/v1/intents" => harness.submit(&harness.acme, body).await,
        _ if path.starts_with(ENDPOINT) => harness.manage(&harness.acme, method, path, body).await,
        _ => harness.post(&harness.acme, path, body).await,
    }
}

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

#[tokio::test]
async fn every_text_of_a_body_is_checked() {
    let harness = ApiHarness::new().await;
    for (component, method, path, body) in REQUESTS {
        for pointer in texts(&body(), "") {
            // The caller's own objects may hold any text but NUL.
            let is_open = pointer.contains("/own") || pointer.contains("/travelRuleData");
            for text in hostile().into_iter().filter(|text| !is_open || text.contains('\0')) {
                let answer = send(&harness, method, path, &changed_at(body(), &pointer, &text)).await;
                let what: String = text.escape_default().take(20).collect();
                assert_eq!(answer.status.as_u16(), 400, "{component}{pointer} {what}: {}", answer.text);
                let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
                let mut names = pointer.split('/').skip(1);
                // An item of an array is named by the array, a part of an open object by the object.
                let named = names.any(|name| message.contains(name));
                assert!(named, "{component}{pointer} {what}: {message}");
            }
        }
        if component == "WebhookRegistration" {
            register(&harness, &harness.acme, "https://8.8.8.8/hooks").await;
        }
    }
    for open in [json!({"metadata": {"own\0key": 1}}), json!({"metadata": {"own": [{"k\0": 1}]}})] {
        let refused = harness.submit(&harness.acme, &extended(order(), open)).await;
        let message = refused.refused(400, "INVALID_PARAMETER");
        assert_eq!(message, "metadata: must not hold the character U+0000");
    }
    assert_eq!(harness.count("select count(*) from intent").await, 0);
}

fn changed_at(mut body: Value, pointer: &str, text: &str) -> Value {
    *body.pointer_mut(pointer).unwrap() = text.into();
    body
}

/// The fields of a component that may be absent, by their pointers; objects within it included.
fn optional(component: &str, at: &str) -> Vec<String> {
    let document = document();
    let schema = &document["components"]["schemas"][component];
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut found = Vec::new();
    // A list of names has no fields.
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
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

#[tokio::test]
async fn every_optional_field_may_be_null() {
    let harness = ApiHarness::new().await;
    register(&harness, &harness.acme, "https://8.8.8.8/hooks").await;
    for (component, method, path, body) in REQUESTS {
        // Of an intent with a quote nothing else would decide.
        let body = match component {
            "AmountsIntentRequest" => order,
            "BoundsIntentRequest" => || by_bounds(order()),
            _ => body,
        };
        assert!(takes(component, &body()), "{component}: {}", body());
        for pointer in optional(component, "") {
            let parent = pointer.rsplit_once('/').unwrap().0;
            if body().pointer(parent).is_none_or(|parent| !parent.is_object()) {
                continue;
            }
            let (null, absent) =
                (changed(body(), &pointer, Some(Value::Null)), changed(body(), &pointer, None));
            assert_eq!(
                takes(component, &null),
                takes(component, &absent),
                "{component}{pointer}: the document"
            );
            let [null, absent] =
                [send(&harness, method, path, &null).await, send(&harness, method, path, &absent).await];
            assert_eq!(verdict(&null), verdict(&absent), "{component}{pointer}: {}", null.text);
        }
    }
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
        let call =
            Call::manage(&harness.acme, "POST", "/v1/webhook_endpoints", &json!({})).body(bytes.clone());
        assert_eq!(harness.send(&call).await.status.as_u16(), 400, "{bytes:?}");
    }
}

#[tokio::test]
async fn no_query_or_header_causes_an_internal_error() {
    let harness = ApiHarness::new().await;
    register(&harness, &harness.acme, "https://8.8.8.8/hooks").await;
    let long = "x".repeat(6_000);
    for text in ["%00", "a%00b", "%C2%85", "%7F", "%E2%80%A8", &long] {
        let paths = [
            format!("/v1/executions/{text}?refType=executionId"),
            format!("/v1/executions?reference={text}"),
            format!("/v1/executions/r?refType={text}"),
            format!("/v1/intents?status={text}"),
            format!("/v1/intents?fromDate={text}"),
            format!("/v1/events?since={text}"),
            format!("/v1/events?intentId={text}"),
            format!("/v1/events?type={text}"),
            format!("/v1/reconciliation?from={text}&to={text}"),
            format!("/v1/reconciliation?from=2026-11-01&to=2026-11-02&cursor={text}"),
            format!("/v1/reports/reconciliation/daily?date={text}"),
            format!("/v1/webhook_endpoints/deliveries?cursor={text}"),
            format!("/v1/webhook_endpoints/deliveries?eventId={text}"),
            format!("/v1/webhook_endpoints/deliveries?state={text}"),
        ];
        for path in paths {
            let call = Call::get(&harness.acme, &path).with("X-Request-Id", &long);
            let answer = harness.send(&call).await;
            // A list of references not found is an answer, too.
            assert!(answer.status.as_u16() < 500, "{path:.60}: {}", answer.text);
        }
    }
    for (name, value) in [("X-Idempotency-Key", long.as_str()), ("X-API-Key", long.as_str())] {
        let call = Call::post(&harness.acme, "/v1/quotes", &json!({})).with(name, value);
        let status = harness.send(&call).await.status.as_u16();
        assert!((400..500).contains(&status), "{name}: {status}");
    }
    let call = Call::manage(&harness.acme, "POST", "/v1/webhook_endpoints/rotate", &Value::Null);
    harness.send(&call.with("Idempotency-Key", &long)).await.refused(400, "IDEMPOTENCY_KEY_INVALID");
}
