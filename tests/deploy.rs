//! The files in `deploy/`: alerts with their tests and pages, dashboards whose every expression is right.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use promql_parser::parser::{self, Expr};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

/// Series that Prometheus itself makes.
const OWN: [&str; 2] = ["up", "ALERTS"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    assert!(!found.is_empty(), "{folder} has no .{extension}");
    found
}

/// The documented metrics, with the parts of histograms.
fn known() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut known: BTreeSet<String> = OWN.map(str::to_owned).into();
    for (name, rest) in rows {
        if rest.starts_with("histogram") {
            known.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")));
        } else {
            known.insert(name.to_owned());
        }
    }
    known
}

#[derive(Default)]
struct Names(BTreeSet<String>);

impl ExprVisitor for Names {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        let selector = match expr {
            Expr::VectorSelector(selector) => selector,
            Expr::MatrixSelector(matrix) => &matrix.vs,
            _ => return Ok(true),
        };
        self.0.insert(selector.name.clone().ok_or("a selector without a name")?);
        Ok(true)
    }
}

fn check(place: &str, expression: &str, known: &BTreeSet<String>) {
    let expression = expression.replace("$instance", ".*");
    let parsed = parser::parse(&expression).unwrap_or_else(|error| panic!("{place}: {error}\n{expression}"));
    let mut names = Names::default();
    walk_expr(&mut names, &parsed).unwrap();
    let unknown: Vec<&String> = names.0.difference(known).collect();
    assert!(unknown.is_empty(), "{place}: no such metrics: {unknown:?}");
    assert!(!names.0.is_empty(), "{place}: no metric in {expression}");
}

#[test]
fn every_expression_of_the_dashboards_parses_and_its_metrics_exist() {
    let (known, mut expressions) = (known(), 0);
    for path in files("deploy/grafana", "json") {
        let board: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            let place = format!("{}: {}", path.display(), panel["title"]);
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{place}: its id is used twice");
            for target in panel["targets"].as_array().unwrap() {
                check(&place, target["expr"].as_str().unwrap(), &known);
                expressions += 1;
            }
        }
    }
    assert!(expressions > 80, "{expressions}");
}

/// Names and expressions of the alerts in a file of rules.
fn alerts(text: &str) -> Vec<(String, String)> {
    let rules = text.split("      - alert: ").skip(1);
    rules
        .map(|rule| {
            let (name, rest) = rule.split_once('\n').unwrap();
            let expression = rest.split_once("expr: |\n").unwrap().1.split_once("\n        for:").unwrap().0;
            (name.to_owned(), expression.to_owned())
        })
        .collect()
}

#[test]
fn every_alert_has_two_tests_and_a_page_and_its_metrics_exist() {
    let known = known();
    let mut pages: BTreeSet<String> = BTreeSet::from(["README", "failover", "restore"].map(str::to_owned));
    let index = fs::read_to_string(root().join("docs/runbooks/README.md")).unwrap();
    for path in files("deploy/prometheus/rules", "yml") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let tests = fs::read_to_string(root().join("deploy/prometheus/tests").join(name)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for (alert, expression) in alerts(&text) {
            check(&alert, &expression, &known);
            for outcome in ["fires", "does not fire"] {
                assert!(
                    tests.contains(&format!("- name: {alert} {outcome}\n")),
                    "{alert} {outcome}: no test"
                );
            }
            assert!(text.contains(&format!("runbook_url: docs/runbooks/{alert}.md\n")), "{alert}");
            let page = fs::read_to_string(root().join(format!("docs/runbooks/{alert}.md"))).unwrap();
            let shown = page.split_once("```promql\n").unwrap().1.split_once("\n```").unwrap().0;
            let rule: Vec<&str> = expression.lines().map(str::trim).collect();
            assert_eq!(
                shown.lines().map(str::trim).collect::<Vec<_>>(),
                rule,
                "the page of {alert} has another rule"
            );
            for part in ["## Meaning", "## Impact", "## Check", "## What to do"] {
                assert!(page.contains(part), "the page of {alert} has no {part}");
            }
            assert!(index.contains(&format!("[{alert}]({alert}.md)")), "{alert} is not in the index");
            pages.insert(alert);
        }
    }
    let found: BTreeSet<String> = files("docs/runbooks", "md")
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, pages, "pages and alerts");
}

fn promtool(args: &[&str], paths: &[PathBuf]) {
    let run = Command::new("promtool").args(args).args(paths).current_dir(root()).output();
    let run = run.unwrap_or_else(|error| {
        panic!("promtool: {error}; it is in the package `prometheus`: apt-get update && apt-get install prometheus")
    });
    let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    assert!(run.status.success(), "{said}");
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    promtool(&["check", "rules"], &files("deploy/prometheus/rules", "yml"));
    promtool(&["test", "rules"], &files("deploy/prometheus/tests", "yml"));
    promtool(&["check", "config"], &[root().join("deploy/prometheus/prometheus.yml")]);
}
