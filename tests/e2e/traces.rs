//! One trace from an order's request to its anchor and its webhooks, as a collector receives it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use dvp_testing::receiver::{Got, Reply};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;
use crate::wait::answer;
use crate::webhooks::{register, with_receiver};

/// An OTLP/HTTP collector that keeps what it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kept = self.clone();
        let take = move |body: String| async move {
            let export: Value = serde_json::from_str(&body).unwrap();
            for resource in export["resourceSpans"].as_array().unwrap() {
                let name = &resource["resource"]["attributes"][0];
                assert_eq!(
                    (&name["key"], &name["value"]["stringValue"]),
                    (&json!("service.name"), &json!("dvp"))
                );
                for scope in resource["scopeSpans"].as_array().unwrap() {
                    kept.0.lock().unwrap().extend(scope["spans"].as_array().unwrap().iter().cloned());
                }
            }
            "{}"
        };
        tokio::spawn(axum::serve(listener, Router::new().route("/v1/traces", post(take))).into_future());
        url
    }

    /// The spans of the trace that has a span with this attribute.
    fn trace_of(&self, key: &str, value: &str) -> Vec<Value> {
        let spans = self.0.lock().unwrap();
        let has = |span: &&Value| attribute(span, key).as_deref() == Some(value);
        let Some(trace) = spans.iter().find(has).map(|span| span["traceId"].clone()) else {
            return Vec::new();
        };
        spans.iter().filter(|span| span["traceId"] == trace).cloned().collect()
    }

    async fn wait_for(&self, key: &str, value: &str, complete: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        answer(async || self.trace_of(key, value), |spans| complete(spans)).await
    }
}

fn attribute(span: &Value, key: &str) -> Option<String> {
    let found = span["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    found["value"]["stringValue"].as_str().map(str::to_owned)
}

/// What the spans are about: their names, with their kind if they have one.
fn names(spans: &[Value]) -> BTreeSet<String> {
    let name = |span: &Value| {
        let name = span["name"].as_str().unwrap();
        attribute(span, "kind").map_or_else(|| name.to_owned(), |kind| format!("{name} {kind}"))
    };
    spans.iter().map(name).collect()
}

/// All of an order over REST, and its webhook.
const WHOLE: [&str; 11] = [
    "request",
    "submit",
    "commit",
    "effect offramp",
    "effect payout",
    "transaction create",
    "transaction fill",
    "transaction settle",
    "transaction anchor",
    "fact",
    "webhook",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_from_either_interface_to_the_anchor_and_the_webhook() {
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let headers = Arc::new(Mutex::new(Vec::new()));
    let kept = headers.clone();
    let keep = move |_, got: &Got| {
        kept.lock().unwrap().push(got.head.clone());
        Reply::Status(200)
    };
    let (sandbox, receiver, _trusted) = with_receiver(&["--otlp-endpoint", &endpoint], keep).await;
    let partner = Partner::of(&sandbox);
    partner.is_served().await;
    register(&sandbox, &receiver.url("127.0.0.1")).await;
    let order = partner.order(&sandbox, 0, "000123456789").await;
    partner.submit_accepted(&order).await;
    let intent = order["intentId"].as_str().unwrap();
    let is_whole = |spans: &[Value]| {
        let names = names(spans);
        WHOLE.iter().all(|name| names.contains(*name))
    };
    let spans = collector.wait_for("intent_id", intent, is_whole).await;
    // Every span but the first has its parent in the trace, and ends after it began.
    let ids: BTreeMap<&str, &Value> =
        spans.iter().map(|span| (span["spanId"].as_str().unwrap(), span)).collect();
    assert_eq!(ids.len(), spans.len(), "span ids are unique");
    for span in &spans {
        let time = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        if let Some(parent) = span["parentSpanId"].as_str() {
            assert!(ids.contains_key(parent), "the parent of {span} is not in the trace");
        }
    }
    let trace = spans[0]["traceId"].as_str().unwrap();
    let is_told = |head: &String| head.to_ascii_lowercase().contains(&format!("traceparent: 00-{trace}-"));
    assert!(headers.lock().unwrap().iter().any(is_told), "a webhook carries the trace");

    let fix_order = partner.order(&sandbox, 1, "bene_a:dest_10000000").await;
    let mut client = FixClient::log_on(&sandbox).await;
    client.new_order("O-1", "bene_a:dest_10000000", &fix_order["permit"]).await;
    client.report(|report| report.get(150) == "F").await;
    let of_session = |spans: &[Value]| {
        let names = names(spans);
        ["fix_order", "effect payout", "transaction anchor"].iter().all(|name| names.contains(*name))
    };
    // Its wallet was not known, so that it was parked for a while.
    collector.wait_for("session", "FIX.4.4:DVP->ACME", of_session).await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_trace_is_continued_if_it_is_recorded_and_in_the_log_in_any_case() {
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let sandbox = Sandbox::start_with(&["--otlp-endpoint", &endpoint, "--log-format", "json"]).await;
    let (recorded, unrecorded) = ("0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c");
    Partner::of(&sandbox).is_served().await;
    let client = reqwest::Client::new();
    for (trace, flags) in [(unrecorded, "00"), (recorded, "01")] {
        let request = client
            .get(format!("{}/v1/events", sandbox.text("/http")))
            .header("X-API-Key", sandbox.text("/partner/apiKey"))
            .header("traceparent", format!("00-{trace}-b7ad6b7169203331-{flags}"));
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    let of_caller = |span: &&Value| span["parentSpanId"] == "b7ad6b7169203331";
    let span = async || collector.0.lock().unwrap().iter().find(of_caller).cloned();
    assert_eq!(answer(span, Option::is_some).await.unwrap()["traceId"], recorded);
    assert!(collector.0.lock().unwrap().iter().all(|span| span["traceId"] != unrecorded));
    for trace in [recorded, unrecorded] {
        assert!(sandbox.log().contains(&format!("\"trace_id\":\"{trace}\"")), "{trace}");
    }
    sandbox.stop().await;
}
