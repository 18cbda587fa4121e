//! Runbooks carried out: a page's check while its alert fires, and its remedy as it is written.
//!
//! A command is run with what an operator reads in place of its placeholders; a comment is a step outside of the
//! service, which is what undoes the cause.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::alert_faults::call_node;
use super::alert_pages::{Page, remedy_of};
use super::alert_scene::{Cure, Scene};
use super::alert_table::Expected;
use super::sandbox::program;

/// For a command that is refused for now, such as the approval of a payment that may still be in flight.
const PATIENCE: Duration = Duration::from_secs(90);

/// What fills the placeholders that no state of the sandbox has.
const GIVEN: [(&str, &str); 9] = [
    ("REASON", "drill"),
    ("EVIDENCE", "drill-1"),
    ("PROVIDER_REFERENCE", "drill-2"),
    ("PARTNER", "acme"),
    ("ASSET", "USD"),
    ("AMOUNT", "100000000"),
    ("PAIR", "USD/EUR"),
    ("BANK_REFERENCE", "CHARGE-1"),
    ("CHARGED", "350"),
];

fn sh(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output().unwrap()
}

impl Scene {
    /// Runs the commands of an alert's check. What they read is there.
    pub async fn check(&self, alert: &str) {
        for command in Page::of(alert).check {
            let found = if command.starts_with("curl ") {
                sh(&command.replace("http://127.0.0.1:9100/metrics", &self.sandbox.text("/metrics")))
            } else if command.starts_with("openssl ") {
                let port = self.sandbox.value("/fix/tlsPort").to_string();
                sh(&command.replace("localhost:9876", &format!("localhost:{port}")))
            } else {
                self.command(&command, &Value::Null).await
            };
            // `dvp` ends with 1 when it reports trouble.
            let may_report = command.starts_with("dvp ");
            let is_well = found.status.success() || may_report && found.status.code() == Some(1);
            let said = String::from_utf8_lossy(&found.stdout);
            assert!(is_well, "{alert}: {command}: {said}{}", String::from_utf8_lossy(&found.stderr));
            assert!(may_report || !said.is_empty(), "{alert}: {command} shows nothing");
        }
    }

    pub async fn remedy(&mut self, one: &Expected, cure: Option<Cure>) {
        let (steps, without) = remedy_of(one.alerts);
        assert!(without.is_empty(), "pages without a remedy: {without:?}");
        let (mut cure, mut last, mut before) = (cure, Value::Null, None);
        for step in steps {
            match step.strip_prefix("# ") {
                Some(outside) => {
                    let done =
                        cure.take().unwrap_or_else(|| panic!("{}: {outside} has no part here", one.name));
                    assert_eq!(done.step, outside, "{}", one.name);
                    self.cure(done).await;
                }
                None => {
                    last = self.carry_out(&step, last, before.as_deref()).await;
                    before = Some(step);
                }
            }
        }
        assert!(cure.is_none(), "{}: no page undoes it", one.name);
    }

    /// A command that succeeds, now or later, after `last` was said by the command `before` it. Returns what it says.
    async fn carry_out(&self, command: &str, mut last: Value, before: Option<&str>) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let done = self.command(command, &last).await;
            if done.status.success() {
                return serde_json::from_slice(&done.stdout).unwrap_or_default();
            }
            let errors = String::from_utf8_lossy(&done.stderr);
            assert!(Instant::now() < deadline, "{command}: {errors}");
            if let Some(request) = before.filter(|_| errors.contains("request it again")) {
                let again = self.command(request, &Value::Null).await;
                last = serde_json::from_slice(&again.stdout).unwrap_or(last);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Runs a command of ours with its placeholders filled.
    async fn command(&self, command: &str, last: &Value) -> Output {
        let words = command.strip_prefix("dvp ").and_then(|rest| rest.strip_suffix(" --config dvp.toml"));
        let words = words.unwrap_or_else(|| panic!("{command} is none of ours, or has no configuration"));
        let mut run = Command::new(program());
        for word in words.split_whitespace() {
            run.arg(self.filled(word, last).await);
        }
        // Another operator approves; what only reads has no operator.
        let approves = words.starts_with("approval ") || words.starts_with("ledger approve");
        if approves {
            run.args(["--as", "kim"]);
        }
        run.arg("--json").arg("--dir").arg(self.sandbox.dir()).stdin(Stdio::null());
        let running = tokio::task::spawn_blocking(move || run.output().unwrap());
        let ended = tokio::time::timeout(PATIENCE, running).await;
        ended.unwrap_or_else(|_| panic!("{command} does not end")).unwrap()
    }

    /// What an operator puts in the place of a word.
    async fn filled(&self, word: &str, last: &Value) -> String {
        if let Some((_, text)) = GIVEN.iter().find(|(name, _)| *name == word) {
            return (*text).to_owned();
        }
        let found = match word {
            "exe_…" => {
                let newest = "select reference from execution order by accepted_at desc limit 1";
                Some(self.sandbox.one(newest).await)
            }
            "ep_…" => {
                self.said(&["webhook", "endpoints"])["endpoints"][0]["endpointId"].as_str().map(str::to_owned)
            }
            "apr_…" => last["approval"].as_str().or(last["id"].as_str()).map(str::to_owned),
            "SUBJECT" => self.said(&["bank", "alarms"])["alarms"][0]["subject"].as_str().map(str::to_owned),
            "CHAIN" => Some(self.sandbox.text("/chain/name")),
            "CHAIN_ID" => Some(self.sandbox.value("/chain/chainId").to_string()),
            "SHARED_BLOCK" => Some(self.shared_block().await.to_string()),
            _ => Some(word.to_owned()),
        };
        found.unwrap_or_else(|| panic!("nothing stands for {word}"))
    }

    /// The newest block that was read and that the node has.
    async fn shared_block(&self) -> i64 {
        let read =
            "select number, '0x' || encode(hash, 'hex') from chain_block order by number desc limit 100";
        let read: Vec<(i64, String)> = self.sandbox.rows(read).await;
        for (number, hash) in read {
            let of = json!([format!("0x{number:x}"), false]);
            if call_node(&self.sandbox, "eth_getBlockByNumber", of).await["hash"] == hash {
                return number;
            }
        }
        panic!("the node has none of the blocks");
    }
}
