//! Webhooks from the real binary: through a kill, and with the tools a partner is given.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use dvp_api::delivery::signature::sign;
use dvp_testing::receiver::{Authority, Got, Receiver, ReceiverManner, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::partner::Partner;
use crate::sandbox::{Sandbox, refused, said};
use crate::wait::until;

pub(crate) async fn register(sandbox: &Sandbox, url: &str) {
    let types: Vec<&str> = dvp_domain::event::EventType::ALL.iter().map(|kind| kind.as_str()).collect();
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/webhook_endpoints", sandbox.text("/http")))
        .header("X-API-Key", sandbox.text("/partner/apiKey"))
        .json(&json!({"url": url, "subscribedTypes": types}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
}

/// A sandbox with these arguments that trusts a receiver on this machine, the receiver, and the folder of its authority.
pub(crate) async fn with_receiver(
    args: &[&str],
    answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
) -> (Sandbox, Receiver, tempfile::TempDir) {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority, ReceiverManner::default(), answer).await;
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let trust = ["--webhook-allow-private", "--webhook-ca", ca.to_str().unwrap()];
    let sandbox = Sandbox::start_with(&[args, &trust].concat()).await;
    (sandbox, receiver, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_delivery_loses_no_event_and_repeats_identically() {
    let silent = Arc::new(AtomicBool::new(true));
    let hangs = silent.clone();
    let answer = move |_, _: &Got| {
        if hangs.load(Ordering::Relaxed) { Reply::Never } else { Reply::Status(200) }
    };
    let (mut sandbox, receiver, _trusted) = with_receiver(&[], answer).await;
    register(&sandbox, &receiver.url("127.0.0.1")).await;
    let partner = Partner::of(&sandbox);
    let mut references = Vec::new();
    for wallet in 0..3 {
        let order = partner.order(&sandbox, wallet, "000123456789").await;
        assert_eq!(partner.submit(&order).await.0, 202);
        references.push(order["clientReference"].as_str().unwrap().to_owned());
    }
    until("deliveries under way", async || receiver.count() >= 3).await;
    sandbox.kill_and_start_again().await;
    silent.store(false, Ordering::Relaxed);
    let partner = Partner::of(&sandbox);
    for reference in &references {
        partner.wait_until(reference, |execution| !execution["finality"].is_null()).await;
    }
    let (_, page) = partner.get("/v1/events?limit=100").await;
    let expected: BTreeMap<String, Value> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let mut event = event.clone();
            // Known only after the event was sent.
            if let Some(receipt) = event.pointer_mut("/data/object/payout/receipt") {
                *receipt = Value::Null;
            }
            (event["id"].as_str().unwrap().to_owned(), event)
        })
        .collect();
    let seen = || receiver.got().iter().map(|got| got.event_id().to_owned()).collect::<BTreeSet<_>>();
    until("every event", async || seen() == expected.keys().cloned().collect::<BTreeSet<_>>()).await;
    for got in receiver.got() {
        assert_eq!(serde_json::from_str::<Value>(&got.body).unwrap(), expected[got.event_id()]);
    }
    sandbox.stop().await;
}

/// The lines of `dvp webhook listen`, as JSON.
struct Lines(tokio::io::Lines<BufReader<ChildStdout>>);

impl Lines {
    async fn read(&mut self) -> Value {
        serde_json::from_str(&self.0.next_line().await.unwrap().unwrap()).unwrap()
    }
}

/// `dvp webhook listen` with these arguments, which ends with the test, and what it prints.
fn listen(args: &[&str]) -> (Child, Lines) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_dvp"));
    command.args(["webhook", "listen", "--json"]).args(args).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut listening = command.spawn().unwrap();
    let lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    (listening, Lines(lines))
}

/// A receiver without TLS, as in a partner's development: its received requests, and its response.
#[derive(Clone, Default)]
struct Plain {
    got: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    refuses: Arc<AtomicBool>,
}

impl Plain {
    async fn start() -> (Self, String) {
        let plain = Self::default();
        let answering = plain.clone();
        let receive = async move |headers: HeaderMap, body: Bytes| {
            answering.got.lock().unwrap().push((headers, body));
            let refuses = answering.refuses.load(Ordering::Relaxed);
            if refuses { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(post(receive))).await });
        (plain, url)
    }
}

/// The partner's only endpoint.
fn endpoint(sandbox: &Sandbox) -> Value {
    said(sandbox, &["webhook", "endpoints"])["endpoints"][0].clone()
}

fn printed(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{} {errors}", output.status))
}

#[tokio::test(flavor = "multi_thread")]
async fn listen_forwards_genuine_deliveries_and_returns_the_response() {
    let (plain, url) = Plain::start().await;
    let sandbox = Sandbox::start_with(&["--webhook-allow-private"]).await;
    let (listening, mut lines) = listen(&["--forward-to", &url, "--dir", sandbox.dir().to_str().unwrap()]);
    let ready = lines.read().await;
    // With an address and a key instead of a directory, too.
    let (base, key) = (sandbox.text("/http"), sandbox.text("/partner/apiKey"));
    let trigger =
        ["webhook", "trigger", "payout.completed", "--base-url", &base, "--api-key", &key, "--json"];
    let triggered = Command::new(env!("CARGO_BIN_EXE_dvp")).args(trigger).output().unwrap();
    let triggered = printed(&triggered);
    let delivered = lines.read().await;
    assert_eq!((&delivered["verified"], &delivered["answered"]), (&json!(true), &json!(204)), "{delivered}");
    let (headers, body) = plain.got.lock().unwrap()[0].clone();
    assert_eq!(headers["webhook-id"], triggered["eventId"].as_str().unwrap());
    let header = headers["svc-signature"].to_str().unwrap();
    let checked = |body: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(body).unwrap();
        let secret = ready["secret"].as_str().unwrap();
        let path = file.path().to_str().unwrap();
        let words =
            ["webhook", "verify", "--secret", secret, "--signature", header, "--file", path, "--json"];
        Command::new(env!("CARGO_BIN_EXE_dvp")).args(words).output().unwrap()
    };
    assert_eq!(printed(&checked(&body))["verified"], true);
    assert_eq!(checked(&body[1..]).status.code(), Some(1));
    // The receiver's answer is the delivery's.
    plain.refuses.store(true, Ordering::Relaxed);
    let pinged = said(&sandbox, &["webhook", "trigger", "test.ping"]);
    let delivered = lines.read().await;
    assert_eq!(delivered["answered"], 503, "{delivered}");
    let (endpoint, event) = (endpoint(&sandbox), pinged["eventId"].as_str().unwrap());
    let id = endpoint["endpointId"].as_str().unwrap();
    let words = ["webhook", "deliveries", "--endpoint-id", id, "--event-id", event];
    until("the attempt in the log", async || {
        said(&sandbox, &words)["deliveries"][0]["attempts"][0]["status"] == json!(503)
    })
    .await;
    refused(&sandbox, &["webhook", "trigger", "payout.lost"]);
    drop(listening);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listen_with_a_secret_drops_forged_deliveries() {
    let (plain, url) = Plain::start().await;
    let (_listening, mut lines) = listen(&["--secret", "whsec_c2VjcmV0", "--forward-to", &url]);
    let ready = lines.read().await;
    let now = dvp_core::context::now().unix_secs();
    let send = async |secret: &str, t: u64| {
        let header = sign(&[secret.into()], t, b"{}");
        let request = reqwest::Client::new().post(ready["listening"].as_str().unwrap());
        request.header("Svc-Signature", header).body("{}").send().await.unwrap().status().as_u16()
    };
    assert_eq!(send("whsec_b3RoZXI=", now).await, 401);
    assert_eq!(send("whsec_c2VjcmV0", now - 301).await, 401);
    assert!(plain.got.lock().unwrap().is_empty());
    assert_eq!(send("whsec_c2VjcmV0", now).await, 204);
    assert_eq!(plain.got.lock().unwrap().len(), 1);
    for expected in [false, false, true] {
        assert_eq!(lines.read().await["verified"], expected);
    }
}

#[test]
fn verify_accepts_the_published_vectors_only() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/webhooks/vectors.json");
    let vectors: Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let (header, t) = (case["svcSignature"].as_str().unwrap(), case["t"].as_u64().unwrap());
        let body = case["body"].as_str().unwrap();
        for secret in case["secrets"].as_array().unwrap() {
            let verify = |body: &str, at: u64, tolerance: &str| {
                let at = at.to_string();
                let words =
                    ["webhook", "verify", "--secret", secret.as_str().unwrap(), "--signature", header];
                let more = ["--file", "-", "--at", &at, "--tolerance", tolerance, "--json"];
                let mut command = Command::new(env!("CARGO_BIN_EXE_dvp"));
                command.args(words).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.spawn().unwrap();
                child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
                let output = child.wait_with_output().unwrap();
                let verified = printed(&output)["verified"].as_bool().unwrap();
                assert_eq!(verified, output.status.success());
                verified
            };
            assert!(verify(body, t, "0") && verify(body, t + 300, "300"), "{case}");
            assert!(!verify(body, t + 301, "300") && !verify(&format!("{body} "), t, "300"), "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_read_notices_and_move_an_endpoint_to_another_key() {
    let (sandbox, gone, _trusted) = with_receiver(&[], |_, _| Reply::Status(410)).await;
    register(&sandbox, &gone.url("127.0.0.1")).await;
    let notices = || said(&sandbox, &["webhook", "notices"])["notices"].clone();
    assert_eq!(notices(), json!([]));
    said(&sandbox, &["webhook", "trigger", "test.ping"]);
    until("a notice", async || notices() != json!([])).await;
    let (notice, before) = (notices()[0].clone(), endpoint(&sandbox));
    assert_eq!((&notice["partner"], &notice["kind"]), (&json!("acme"), &json!("deactivated_gone")));
    assert_eq!((&before["endpointId"], &before["isActive"]), (&notice["endpointId"], &json!(false)));

    let issue = |partner: &str| said(&sandbox, &["key", "issue", "--partner", partner]);
    let from = before["keyId"].as_str().unwrap();
    let other = issue("globex");
    refused(
        &sandbox,
        &["webhook", "move", "--from", from, "--to", other["keyId"].as_str().unwrap(), "--reason", "rotated"],
    );
    let next = issue("acme");
    said(
        &sandbox,
        &["webhook", "move", "--from", from, "--to", next["keyId"].as_str().unwrap(), "--reason", "rotated"],
    );
    assert_eq!(endpoint(&sandbox)["keyId"], next["keyId"]);
    let shown = async |key: &str| {
        let url = format!("{}/v1/webhook_endpoints", sandbox.text("/http"));
        reqwest::Client::new().get(url).header("X-API-Key", key).send().await.unwrap().status().as_u16()
    };
    assert_eq!(shown(next["apiKey"].as_str().unwrap()).await, 200);
    assert_eq!(shown(&sandbox.text("/partner/apiKey")).await, 404);
    sandbox.stop().await;
}
