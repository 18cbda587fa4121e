//! The feed as server-sent events.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use axum::response::Response;
use dvp_api::{Api, router};
use dvp_core::operators::keys::SCOPES;
use dvp_store::partners::registry;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::harness::{ApiHarness, order};

struct Reader {
    body: BodyDataStream,
    text: String,
}

impl Reader {
    async fn open(harness: &ApiHarness, door: axum::Router, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::get("/v1/events/stream").header("X-API-Key", &harness.acme.api_key);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        door.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    async fn new(harness: &ApiHarness, headers: &[(&str, &str)]) -> Self {
        let response = Self::open(harness, harness.router(), headers).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The fields of the next message.
    async fn message(&mut self) -> Vec<(String, String)> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let field = |line: &str| {
                    let (name, value) = line.split_once(": ").unwrap();
                    (name.to_owned(), value.to_owned())
                };
                let fields = message.lines().map(field).collect();
                self.text = rest.to_owned();
                return fields;
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.body.next()).await.unwrap();
            self.text += std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap();
        }
    }

    /// The id and the envelope of the next event.
    async fn event(&mut self) -> (String, Value) {
        let fields = self.message().await;
        let of = |name: &str| fields.iter().find(|field| field.0 == name).unwrap().1.clone();
        let envelope: Value = serde_json::from_str(&of("data")).unwrap();
        assert_eq!(envelope["type"], of("event"));
        (of("id"), envelope)
    }
}

async fn accept(harness: &ApiHarness) -> Value {
    let body = order();
    harness.submit(&harness.acme, &body).await.ok(202);
    body["intentId"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_what_is_recorded_and_another_one_goes_on_after_its_last_event() {
    let harness = ApiHarness::new().await;
    accept(&harness).await;
    let mut reader = Reader::new(&harness, &[]).await;
    assert_eq!(reader.message().await, [("retry".to_owned(), "1000".to_owned())]);
    // From now on: what was there before is in the list.
    let first = accept(&harness).await;
    let (cursor, event) = reader.event().await;
    assert_eq!(event["intentId"], first);
    let page = harness.get(&harness.acme, "/v1/events").await.ok(200);
    assert_eq!((&page["data"][1], &page["nextCursor"]), (&event, &json!(cursor)));
    drop(reader);
    let missed = [accept(&harness).await, accept(&harness).await];
    let mut reader = Reader::new(&harness, &[("Last-Event-ID", &cursor)]).await;
    reader.message().await;
    for expected in missed {
        assert_eq!(reader.event().await.1["intentId"], expected);
    }
    let last = accept(&harness).await;
    assert_eq!(reader.event().await.1["intentId"], last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_disabled_gets_no_more_events() {
    let harness = ApiHarness::new().await;
    let mut reader = Reader::new(&harness, &[]).await;
    reader.message().await;
    let other = harness.issue("acme", 100_000, "test", &SCOPES).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(registry::disable_key(&mut conn, &harness.acme.id).await.unwrap());
    // A key is looked at again after a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    harness.submit(&other, &order()).await.ok(202);
    let ended = tokio::time::timeout(Duration::from_secs(60), reader.body.next()).await;
    assert!(ended.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_the_service_stops_and_refuses_anothers_cursor() {
    let harness = ApiHarness::new().await;
    let closing = CancellationToken::new();
    let door = router(Api::new(harness.engine.clone()), closing.clone());
    let response = Reader::open(&harness, door, &[]).await;
    let mut body = response.into_body().into_data_stream();
    assert!(body.next().await.unwrap().is_ok());
    closing.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), body.next()).await;
    assert!(ended.unwrap().is_none());
    let theirs = harness.get(&harness.globex, "/v1/events").await.ok(200);
    let cursor = theirs["nextCursor"].as_str().unwrap();
    let refused = Reader::open(&harness, harness.router(), &[("Last-Event-ID", cursor)]).await;
    assert_eq!(refused.status(), 400);
}
