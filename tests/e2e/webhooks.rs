//! Webhooks from the real binary: through a kill, and with the tools a partner is given.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::partner::Partner;
use crate::receiver::{Authority, Got, Manner, Receiver, Reply};
use crate::sandbox::Sandbox;

async fn register(sandbox: &Sandbox, url: &str) {
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

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_delivery_loses_no_event_and_repeats_only_with_the_same_id_and_bytes() {
    let authority = Authority::new().unwrap();
    let silent = Arc::new(AtomicBool::new(true));
    let hangs = silent.clone();
    let answer = move |_, _: &Got| {
        if hangs.load(Ordering::Relaxed) { Reply::Never } else { Reply::Status(200) }
    };
    let receiver = Receiver::start(&authority, Manner::default(), answer).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let args = ["--webhook-allow-private", "--webhook-ca", ca.to_str().unwrap()];
    let mut sandbox = Sandbox::start_with(&args).await;
    register(&sandbox, &receiver.url("127.0.0.1")).await;
    let partner = Partner::of(&sandbox);
    let mut references = Vec::new();
    for wallet in 0..3 {
        let order = partner.order(&sandbox, wallet, "000123456789").await;
        assert_eq!(partner.submit(&order).await.0, 202);
        references.push(order["clientReference"].as_str().unwrap().to_owned());
    }
    until("deliveries under way", || receiver.count() >= 3).await;
    sandbox.kill_and_start_again().await;
    silent.store(false, Ordering::Relaxed);
    let partner = Partner::of(&sandbox);
    for reference in &references {
        partner.wait_until(reference, |execution| !execution["finality"].is_null()).await;
    }
    let (_, page) = partner.get("/v1/events?limit=100").await;
    let told: BTreeMap<String, Value> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["id"].as_str().unwrap().to_owned(), event.clone()))
        .collect();
    let seen = || receiver.got().iter().map(|got| got.event_id().to_owned()).collect::<BTreeSet<_>>();
    until("every event", || seen() == told.keys().cloned().collect::<BTreeSet<_>>()).await;
    for got in receiver.got() {
        assert_eq!(serde_json::from_str::<Value>(&got.body).unwrap(), told[got.event_id()]);
    }
    sandbox.stop().await;
}

/// A command of the binary, ended with the test.
struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn dvp(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dvp"));
    command.arg("webhook").args(args).arg("--dir").arg(dir).arg("--json");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn listen_receives_what_trigger_asks_for_and_passes_it_on() {
    let sandbox = Sandbox::start_with(&["--webhook-allow-private"]).await;
    let dir = sandbox.ready_file().parent().unwrap().to_owned();
    let mut listening = Tool(dvp(&["listen"], &dir).spawn().unwrap());
    let mut lines = BufReader::new(listening.0.stdout.take().unwrap()).lines();
    let mut next = move || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let ready = next();
    assert!(ready["secret"].as_str().unwrap().starts_with("whsec_"), "{ready}");
    let triggered = dvp(&["trigger", "payout.failed"], &dir).output().unwrap();
    assert!(triggered.status.success());
    let triggered: Value = serde_json::from_slice(&triggered.stdout).unwrap();
    let delivered = tokio::task::spawn_blocking(next).await.unwrap();
    assert_eq!((&delivered["verified"], &delivered["answered"]), (&json!(true), &json!(200)), "{delivered}");
    assert_eq!(delivered["event"]["id"], triggered["eventId"]);
    assert_eq!(delivered["event"]["type"], "payout.failed");
    let endpoints = dvp(&["endpoints"], &dir).output().unwrap();
    let endpoints: Value = serde_json::from_slice(&endpoints.stdout).unwrap();
    assert_eq!(endpoints["endpoints"][0]["isActive"], true);
    let id = endpoints["endpoints"][0]["endpointId"].as_str().unwrap();
    let log = dvp(&["deliveries", "--endpoint-id", id], &dir).output().unwrap();
    let log: Value = serde_json::from_slice(&log.stdout).unwrap();
    assert_eq!(log["deliveries"][0]["eventId"], triggered["eventId"]);
    drop(listening);
    sandbox.stop().await;
}
