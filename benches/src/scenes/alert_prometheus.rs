//! A real Prometheus over one sandbox, with a copy of `deploy/prometheus/rules` that waits for seconds.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use dvp_sandbox::embedded::FreePort;
use serde_json::Value;
use tokio::process::{Child, Command};

use super::alert_pages::root;
use super::wait::{answer, until};

/// Ranges of the rules, and those of the copy: an alert about a rate ends soon after its cause.
const RANGES: [(&str, &str); 4] =
    [("[5m]", "[20s]"), ("[10m]", "[20s]"), ("[15m]", "[20s]"), ("[1h]", "[40s]")];

/// Fires when scrapes fail, which on a loaded machine some do: several in a row are a fault.
const DOWN: &str = "DvpDown";

/// For how long alerts must be off to have ended.
pub const QUIET: Duration = Duration::from_secs(8);

/// A threshold that does not suit a drill: the alert, what its rule says, and what the copy says.
pub type Threshold = (&'static str, &'static str, &'static str);

pub struct Prometheus {
    url: String,
    _child: Child,
    client: reqwest::Client,
    _dir: tempfile::TempDir,
    _port: FreePort,
}

impl Prometheus {
    /// Every `for:` is three seconds at most, but that of `DOWN`, and rates are over `RANGES`.
    pub async fn start(metrics: &str, thresholds: &[Threshold]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rules = root().join("deploy/prometheus/rules");
        let copy = ["symptoms.yml", "causes.yml"].map(|name| fs::read_to_string(rules.join(name)).unwrap());
        for (alert, from, _) in thresholds {
            let is_said = |text: &String| rule_of(text, alert).is_some_and(|rule| rule.contains(from));
            assert!(copy.iter().any(is_said), "{alert} does not say {from}");
        }
        for (n, text) in copy.iter().enumerate() {
            fs::write(dir.path().join(format!("rules-{n}.yml")), shortened(text, thresholds)).unwrap();
        }
        let target = metrics.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
        let config = format!(
            "global: {{scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}}\n\
             rule_files: ['rules-*.yml']\n\
             scrape_configs: [{{job_name: dvp, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let free = FreePort::take().unwrap();
        let port = free.number();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log")).unwrap())
            .kill_on_drop(true)
            .spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("prometheus: {error}; apt-get update && apt-get install prometheus")
        });
        let url = format!("http://127.0.0.1:{port}");
        let started = Self { url, _child: child, client: reqwest::Client::new(), _dir: dir, _port: free };
        until("a scrape", async || started.has_scraped().await).await;
        started
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await.ok()?;
        answer.json().await.ok()
    }

    async fn has_scraped(&self) -> bool {
        let answer = self.get("/api/v1/query?query=dvp_figures_last_success_timestamp_seconds").await;
        answer.is_some_and(|answer| answer["data"]["result"].as_array().is_some_and(|rows| !rows.is_empty()))
    }

    pub async fn firing(&self) -> BTreeSet<String> {
        let answer = self.get("/api/v1/alerts").await.unwrap();
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until each of these alerts has fired, while no alert fires that may not. Returns all that fire then.
    pub async fn wait_for_each(&self, expected: &[&str], allowed: &BTreeSet<&str>) -> BTreeSet<String> {
        let mut missing: BTreeSet<&str> = expected.iter().copied().collect();
        let look = async || {
            let firing = self.firing_of(allowed).await;
            missing.retain(|alert| !firing.contains(*alert));
            (missing.clone(), firing)
        };
        answer(look, |(missing, _)| missing.is_empty()).await.1
    }

    /// Waits until no alert fires but these for a while, and no alert fires that may not.
    pub async fn wait_for_end(&self, stays: &BTreeSet<&str>, allowed: &BTreeSet<&str>) {
        let mut since = Instant::now();
        let look = async || {
            let firing = self.firing_of(allowed).await;
            if !firing.iter().all(|alert| stays.contains(alert.as_str())) {
                since = Instant::now();
            }
            (since.elapsed() >= QUIET, firing)
        };
        answer(look, |(is_quiet, _)| *is_quiet).await;
    }

    /// The alerts that fire: only these may.
    pub async fn firing_of(&self, allowed: &BTreeSet<&str>) -> BTreeSet<String> {
        let firing = self.firing().await;
        let others: Vec<&String> = firing.iter().filter(|alert| !allowed.contains(alert.as_str())).collect();
        if !others.is_empty() {
            let all = self.get("/api/v1/alerts").await;
            panic!("{others:?} fire, and only {allowed:?} may: {all:#?}");
        }
        firing
    }
}

fn rule_of<'a>(rules: &'a str, alert: &str) -> Option<&'a str> {
    rules.split("- alert: ").find(|rule| rule.lines().next() == Some(alert))
}

fn shortened(rules: &str, thresholds: &[Threshold]) -> String {
    let mut alert = "";
    let mut text = String::new();
    for line in rules.lines() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            alert = name;
        }
        let mut line = line.to_owned();
        if let Some(time) = line.trim().strip_prefix("for: ") {
            let (number, unit) = time.split_at(time.len() - 1);
            let seconds = number.parse::<u32>().unwrap() * if unit == "m" { 60 } else { 1 };
            line = format!("        for: {}s", seconds.min(if alert == DOWN { 10 } else { 3 }));
        }
        for (from, to) in RANGES {
            line = line.replace(from, to);
        }
        for (_, from, to) in thresholds.iter().filter(|(of, ..)| *of == alert) {
            line = line.replace(from, to);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}
