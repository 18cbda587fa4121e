//! Properties of every response.

use std::net::SocketAddr;
use std::time::Duration;

use dvp_api::{Api, Limits, serve};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use dvp_testing::wait::wait_for;

use crate::harness::{ApiHarness, Call, order};

#[tokio::test]
async fn an_unknown_path_and_a_wrong_method_get_the_envelope() {
    let harness = ApiHarness::new().await;
    for path in ["/", "/v1", "/v1/rates/USDC", "/v1/intents/", "/v1/executions/", "/v1/executions/a/b"] {
        harness.get(&harness.acme, path).await.refused(404, "NOT_FOUND");
    }
    let cases = [("DELETE", "/v1/pairs"), ("GET", "/v1/quotes"), ("POST", "/v1/events"), ("PUT", "/healthz")];
    for (method, path) in cases {
        let answer = harness.send(&Call::new(method, path)).await;
        answer.refused(405, "METHOD_NOT_ALLOWED");
        assert!(answer.header("allow").is_some_and(|allow| !allow.is_empty()), "{method} {path}");
    }
}

#[tokio::test]
async fn a_malformed_name_in_a_path_is_not_found() {
    let harness = ApiHarness::new().await;
    for odd in ["%00", "%FF", "%FF%FE", "a%0Ab", &"x".repeat(129), "..%2f..", "'%20or%201=1"] {
        for (method, path, code) in [
            ("GET", "/v1/{}", "NOT_FOUND"),
            ("GET", "/v1/events/{}", "NOT_FOUND"),
            ("POST", "/v1/events/{}/resend", "NOT_FOUND"),
            ("DELETE", "/v1/webhook_endpoints/{}", "NOT_FOUND"),
            ("DELETE", "/v1/resting-orders/{}", "NOT_FOUND"),
            ("GET", "/v1/executions/{}", "EXECUTION_NOT_FOUND"),
            ("GET", "/v1/executions/{}/receipt", "receipt_not_found"),
            ("GET", "/v1/intents/{}", "INTENT_NOT_FOUND"),
            ("GET", "/v1/intents/{}/status", "INTENT_NOT_FOUND"),
            ("DELETE", "/v1/intents/{}", "INTENT_NOT_FOUND"),
        ] {
            let call = Call::new(method, &path.replace("{}", odd)).with("X-API-Key", &harness.acme.api_key);
            harness.send(&call).await.refused(404, code);
        }
        harness.get(&harness.acme, &format!("/v1/rates/{odd}/USD")).await.refused(400, "INVALID_PAIR");
    }
}

#[tokio::test]
async fn every_response_has_a_request_id_and_a_valid_one_is_echoed() {
    let harness = ApiHarness::new().await;
    let longest = "a".repeat(128);
    for sane in ["a", "Trace_1.2-3", &longest] {
        for path in ["/healthz", "/v1/nothing", "/v1/events"] {
            let answer = harness.send(&Call::new("GET", path).with("X-Request-Id", sane)).await;
            assert_eq!(answer.header("x-request-id"), Some(sane));
        }
    }
    let too_long = "a".repeat(129);
    for odd in ["", "a b", "a\"b", &too_long] {
        let answer = harness.send(&Call::new("GET", "/healthz").with("X-Request-Id", odd)).await;
        let id = answer.header("x-request-id").unwrap();
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{odd} gave {id}");
    }
}

#[tokio::test]
async fn a_body_over_64_kib_is_refused() {
    let harness = ApiHarness::new().await;
    let sized = |bytes: usize| {
        let body = json!({"pad": ""}).to_string();
        let body = body.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - body.len())));
        assert_eq!(body.len(), bytes);
        body
    };
    for path in ["/v1/quotes", "/v1/quotes/firm", "/v1/intents"] {
        let call = Call::post(&harness.acme, path, &json!({}));
        let at = harness.now.unix_secs();
        let over = call.clone().body(sized(65_537)).signed(&harness.acme, at);
        harness.send(&over).await.refused(413, "PAYLOAD_TOO_LARGE");
        let full = call.body(sized(65_536)).signed(&harness.acme, at);
        harness.send(&full).await.refused(400, "INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn health_needs_no_key_and_reports_an_unavailable_database() {
    let harness = ApiHarness::new().await;
    assert_eq!(harness.send(&Call::new("GET", "/healthz")).await.ok(200), json!({"status": "ok"}));
    harness.pool().close().await;
    let answer = wait_for("the health check to fail", || async {
        let answer = harness.send(&Call::new("GET", "/healthz")).await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    let message = answer.refused(503, "SERVICE_UNAVAILABLE");
    assert!(!message.contains("pool"), "{message}");
    assert!(answer.header("retry-after").is_some());
    harness.submit(&harness.acme, &order()).await.refused(503, "SERVICE_UNAVAILABLE");
}

#[tokio::test]
async fn the_server_answers_on_its_socket_and_stops_on_request() {
    let harness = ApiHarness::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, Api::new(harness.engine.clone()), stop.clone()));
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with(r#"{"status":"ok"}"#), "{text}");
    stop.cancel();
    serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

/// A served API with small bounds: its address, and what it is served as long as.
pub(crate) async fn bounded(harness: &ApiHarness, limits: Limits) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, Api::new(harness.engine.clone()).with_limits(limits), stop.clone()));
    (address, stop.drop_guard())
}

pub(crate) async fn say(address: SocketAddr, text: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    socket
}

pub(crate) async fn receive(mut socket: TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(Duration::from_secs(30), socket.read_to_string(&mut text));
    read.await.expect("the connection is ended").unwrap();
    text
}

#[tokio::test]
async fn an_incomplete_head_is_closed_and_an_incomplete_body_is_answered() {
    let harness = ApiHarness::new().await;
    let short = Duration::from_millis(300);
    let (address, _serving) =
        bounded(&harness, Limits { head: short, request: short, ..Limits::default() }).await;
    let slow_head = say(address, "GET /healthz HTTP/1.1\r\nhost: x\r\n").await;
    let silent = say(address, "").await;
    let head = format!(
        "POST /v1/quotes HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {}\r\n\
         x-idempotency-key: {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        harness.acme.api_key,
        uuid::Uuid::new_v4(),
    );
    let slow_body = say(address, &head).await;
    assert_eq!(receive(slow_head).await, "");
    assert_eq!(receive(silent).await, "");
    let answer = receive(slow_body).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("SERVICE_UNAVAILABLE"), "{answer}");
    assert!(answer.contains("retry-after: "), "{answer}");
}

#[tokio::test]
async fn excess_requests_are_shed_and_health_still_answers() {
    let harness = ApiHarness::new().await;
    let (address, _serving) = bounded(&harness, Limits { in_flight: 1, ..Limits::default() }).await;
    let head = format!(
        "POST /v1/quotes HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nx-idempotency-key: {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        harness.acme.api_key,
        uuid::Uuid::new_v4(),
    );
    let key = &harness.globex.api_key;
    let ask = async |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {key}\r\n\r\n");
        receive(say(address, &head).await).await
    };
    // One request holds the only place while its body is on its way. It may find the place taken by the one that asks.
    let (held, shed) = wait_for("a request to be shed", || async {
        let held = say(address, &head).await;
        Some((held, ask("/v1/events").await)).filter(|(_, text)| text.starts_with("HTTP/1.1 503 "))
    })
    .await;
    assert!(shed.contains("SERVICE_UNAVAILABLE") && shed.contains("retry-after: 1"), "{shed}");
    assert!(ask("/healthz").await.starts_with("HTTP/1.1 200 "));
    drop(held);
    wait_for("the place to be free again", || async {
        Some(ask("/v1/events").await).filter(|text| text.starts_with("HTTP/1.1 200 "))
    })
    .await;
}

#[tokio::test]
async fn a_request_names_one_host_and_what_is_no_http_is_refused_without_a_handler() {
    let harness = ApiHarness::new().await;
    let (address, _serving) = bounded(&harness, Limits::default()).await;
    let ask =
        async |head: &str| receive(say(address, &format!("{head}connection: close\r\n\r\n")).await).await;
    for hosts in ["", "host: x\r\nhost: x\r\n"] {
        let answer = ask(&format!("GET /healthz HTTP/1.1\r\n{hosts}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(r#""param":"Host""#), "{answer}");
        assert!(answer.contains("x-request-id: "), "{answer}");
    }
    assert!(ask("GET /healthz HTTP/1.0\r\n").await.starts_with("HTTP/1.0 200 "));
    let two_lengths = "POST /v1/quotes HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n";
    let both = "POST /v1/quotes HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n";
    for head in [two_lengths, "GET /healthz HTTP/1.1\r\nhost: x\r\n bad: 1\r\n", "GE T /healthz HTTP/1.1\r\n"]
    {
        assert!(ask(head).await.starts_with("HTTP/1.1 400 "), "{head}");
    }
    let answer = ask(both).await;
    assert!(!answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
