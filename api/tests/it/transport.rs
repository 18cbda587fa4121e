//! What every answer has, whatever was asked.

use dvp_api::{Api, serve};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::house::{Call, House, order};

#[tokio::test]
async fn an_unknown_path_and_a_wrong_method_get_the_envelope() {
    let house = House::new().await;
    for path in ["/", "/v1", "/v1/rates/USDC", "/v1/intents/", "/v1/executions/", "/v1/executions/a/b"] {
        house.send(&Call::get(&house.acme, path)).await.refused(404, "NOT_FOUND");
    }
    let cases = [("DELETE", "/v1/pairs"), ("GET", "/v1/quotes"), ("POST", "/v1/events"), ("PUT", "/healthz")];
    for (method, path) in cases {
        let answer = house.send(&Call::new(method, path)).await;
        answer.refused(405, "METHOD_NOT_ALLOWED");
        assert!(answer.header("allow").is_some_and(|allow| !allow.is_empty()), "{method} {path}");
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_a_sane_one_is_echoed() {
    let house = House::new().await;
    let longest = "a".repeat(128);
    for sane in ["a", "Trace_1.2-3", &longest] {
        for path in ["/healthz", "/v1/nothing", "/v1/events"] {
            let answer = house.send(&Call::new("GET", path).with("X-Request-Id", sane)).await;
            assert_eq!(answer.header("x-request-id"), Some(sane));
        }
    }
    let too_long = "a".repeat(129);
    for odd in ["", "a b", "a\"b", &too_long] {
        let answer = house.send(&Call::new("GET", "/healthz").with("X-Request-Id", odd)).await;
        let id = answer.header("x-request-id").unwrap();
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{odd} gave {id}");
    }
}

#[tokio::test]
async fn a_body_over_64_kib_is_refused_and_one_at_the_limit_is_read() {
    let house = House::new().await;
    let sized = |bytes: usize| {
        let body = json!({"pad": ""}).to_string();
        let body = body.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - body.len())));
        assert_eq!(body.len(), bytes);
        body
    };
    for path in ["/v1/quotes", "/v1/quotes/firm", "/v1/intents"] {
        let call = Call::post(&house.acme, path, &json!({}));
        let at = house.now.unix_secs();
        let over = call.clone().body(sized(65_537)).signed(&house.acme, at);
        house.send(&over).await.refused(413, "PAYLOAD_TOO_LARGE");
        let full = call.body(sized(65_536)).signed(&house.acme, at);
        house.send(&full).await.refused(400, "INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn health_needs_no_key_and_tells_when_the_database_is_away() {
    let house = House::new().await;
    assert_eq!(house.send(&Call::new("GET", "/healthz")).await.ok(200), json!({"status": "ok"}));
    house.pool().close().await;
    let answer = house.send(&Call::new("GET", "/healthz")).await;
    let message = answer.refused(503, "SERVICE_UNAVAILABLE");
    assert!(!message.contains("pool"), "{message}");
    assert!(answer.header("retry-after").is_some());
    house.submit(&house.acme, &order()).await.refused(503, "SERVICE_UNAVAILABLE");
}

#[tokio::test]
async fn the_server_answers_on_its_socket_and_stops_when_told() {
    let house = House::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, Api::new(house.engine()), stop.clone()));
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with(r#"{"status":"ok"}"#), "{text}");
    stop.cancel();
    serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
