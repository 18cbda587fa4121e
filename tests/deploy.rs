//! The files in `deploy/`: alerts with their tests and pages, dashboards whose every expression is right, and settings
//! of the database servers that keep what `docs/failover.md` promises.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dvp_benches::scenes::alert_pages::{Page, remedy_of};
use dvp_benches::scenes::alert_table::CAUSES;
use promql_parser::label::MatchOp;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

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

/// The labels of a metric, each with its values where all of them are listed.
type Labels = BTreeMap<String, Option<BTreeSet<String>>>;

fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The documented metrics, with the parts of histograms.
fn known() -> BTreeMap<String, Labels> {
    let text = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let of = |labels: &[&str]| labels.iter().map(|label| ((*label).to_owned(), None)).collect::<Labels>();
    let targets = of(&["instance", "job"]);
    let mut known: BTreeMap<String, Labels> = BTreeMap::from([
        ("up".to_owned(), targets.clone()),
        ("ALERTS".to_owned(), of(&["alertname", "alertstate", "severity"])),
    ]);
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, ..] = cells.as_slice() else { panic!("{row}") };
        let label = |text: &str| {
            let (label, values) = text.split_once(": ").unwrap();
            let is_listed = values.starts_with('`') && !values.contains(" or ");
            (label.trim_matches('`').to_owned(), is_listed.then(|| quoted(values)))
        };
        let mut all = targets.clone();
        all.extend(labels.split("; ").filter(|text| !text.is_empty()).map(label));
        let name = name.trim_matches('`');
        if *kind == "histogram" {
            known.extend(["_sum", "_count"].map(|part| (format!("{name}{part}"), all.clone())));
            all.insert("le".to_owned(), None);
            known.insert(format!("{name}_bucket"), all);
        } else {
            known.insert(name.to_owned(), all);
        }
    }
    known
}

/// What an expression uses.
struct Used<'a> {
    known: &'a BTreeMap<String, Labels>,
    metrics: usize,
    /// The labels of its metrics, and those that it makes.
    labels: BTreeSet<String>,
    grouped: BTreeSet<String>,
}

impl Used<'_> {
    fn selector(&mut self, selector: &VectorSelector) -> Result<(), String> {
        let name = selector.name.as_deref().ok_or("a selector without a name")?;
        let labels = self.known.get(name).ok_or_else(|| format!("there is no metric {name}"))?;
        self.metrics += 1;
        self.labels.extend(labels.keys().cloned());
        for matcher in &selector.matchers.matchers {
            let values =
                labels.get(&matcher.name).ok_or_else(|| format!("{name} has no label {}", matcher.name))?;
            let Some(listed) = values else { continue };
            let wanted: Vec<&str> = match matcher.op {
                MatchOp::Equal | MatchOp::NotEqual => vec![&matcher.value],
                MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').collect(),
            };
            if let Some(value) = wanted.into_iter().find(|value| !listed.contains(*value)) {
                return Err(format!("{name} has no {}={value}", matcher.name));
            }
        }
        Ok(())
    }
}

impl ExprVisitor for Used<'_> {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.selector(selector)?,
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs)?,
            Expr::Aggregate(aggregate) => {
                let labels = aggregate.modifier.iter().flat_map(|modifier| &modifier.labels().labels);
                self.grouped.extend(labels.cloned());
            }
            Expr::Binary(binary) => {
                let matching = binary.modifier.iter().filter_map(|modifier| modifier.matching.as_ref());
                self.grouped.extend(matching.flat_map(|matching| &matching.labels().labels).cloned());
            }
            Expr::Call(call) if call.func.name == "label_replace" => {
                if let Some(Expr::StringLiteral(made)) = call.args.args.get(1).map(AsRef::as_ref) {
                    self.labels.insert(made.val.clone());
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

/// Checks an expression against the documentation. Returns the labels that its series may have.
fn check(place: &str, expression: &str, known: &BTreeMap<String, Labels>) -> BTreeSet<String> {
    let expression = expression.replace("$instance", ".*");
    let parsed = parser::parse(&expression).unwrap_or_else(|error| panic!("{place}: {error}\n{expression}"));
    let mut used = Used { known, metrics: 0, labels: BTreeSet::new(), grouped: BTreeSet::new() };
    walk_expr(&mut used, &parsed).unwrap_or_else(|error| panic!("{place}: {error}\n{expression}"));
    assert!(used.metrics > 0, "{place}: no metric in {expression}");
    let unknown: Vec<&String> = used.grouped.difference(&used.labels).collect();
    assert!(unknown.is_empty(), "{place}: no metric of it has {unknown:?}\n{expression}");
    used.labels
}

/// Every name of a label between `begin` and `end` is one of these.
fn check_names(place: &str, text: &str, [begin, end]: [&str; 2], labels: &BTreeSet<String>) {
    for name in text.split(begin).skip(1) {
        let name = name.split(end).next().unwrap().trim();
        let name = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap();
        assert!(labels.contains(name), "{place}: no series has the label {name}");
    }
}

#[test]
fn a_wrong_name_label_or_value_is_found() {
    let known = known();
    for (expression, fault) in [
        ("sum(rate(dvp_no_such_total[5m]))", "there is no metric"),
        ("dvp_leases{sort=\"indexer\"}", "has no label sort"),
        ("dvp_leases{kind=~\"indexer|relayers\"}", "has no kind=relayers"),
        ("dvp_fix_orders_total{result!=\"answer\"}", "has no result=answer"),
        ("sum by (session) (dvp_leases)", "no metric of it has"),
    ] {
        let wrong = std::panic::catch_unwind(|| check("a test", expression, &known)).unwrap_err();
        let said = wrong.downcast_ref::<String>().unwrap();
        assert!(said.contains(fault), "{expression}: {said}");
    }
    let labels = check("a test", "max by (kind) (dvp_leases{kind=~\"indexer|relayer\"})", &known);
    assert!(labels.contains("state") && !labels.contains("session"));
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
                let labels = check(&place, target["expr"].as_str().unwrap(), &known);
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                check_names(&place, legend, ["{{", "}}"], &labels);
                expressions += 1;
            }
        }
    }
    assert!(expressions > 80, "{expressions}");
}

/// Names, expressions and further lines of the alerts in a file of rules.
fn alerts(text: &str) -> Vec<[String; 3]> {
    let rules = text.split("      - alert: ").skip(1);
    rules
        .map(|rule| {
            let (name, rest) = rule.split_once('\n').unwrap();
            let (expression, more) =
                rest.split_once("expr: |\n").unwrap().1.split_once("\n        for:").unwrap();
            [name, expression, more].map(str::to_owned)
        })
        .collect()
}

#[test]
fn every_alert_has_two_tests_and_a_page_and_its_metrics_exist() {
    let known = known();
    let mut pages: BTreeSet<String> =
        BTreeSet::from(["README", "cells", "failover", "restore"].map(str::to_owned));
    let index = fs::read_to_string(root().join("docs/runbooks/README.md")).unwrap();
    for path in files("deploy/prometheus/rules", "yml") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let tests = fs::read_to_string(root().join("deploy/prometheus/tests").join(name)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for [alert, expression, more] in alerts(&text) {
            let labels = check(&alert, &expression, &known);
            check_names(&alert, &more, ["$labels.", " "], &labels);
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

/// The names of all alerts.
fn all_alerts() -> BTreeSet<String> {
    let texts =
        files("deploy/prometheus/rules", "yml").into_iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| alerts(&text)).map(|[name, ..]| name).collect()
}

#[test]
fn the_drill_raises_every_alert() {
    let all = all_alerts();
    let raised: BTreeSet<String> =
        CAUSES.iter().flat_map(|one| one.alerts).map(|alert| (*alert).to_owned()).collect();
    assert_eq!(raised, all, "alerts of the drill, and of the rules");
    for one in CAUSES {
        for alert in one.may_follow.iter().chain(one.stays) {
            assert!(all.contains(*alert), "{}: there is no alert {alert}", one.name);
            assert!(!one.alerts.contains(alert), "{}: {alert} fires and may fire", one.name);
        }
        let again = CAUSES.iter().filter(|other| other.cause == one.cause || other.name == one.name).count();
        assert_eq!(again, 1, "{} is there {again} times", one.name);
    }
}

#[test]
fn the_drill_carries_out_every_page() {
    let mut tried = BTreeSet::new();
    for one in CAUSES {
        let (steps, without) = remedy_of(one.alerts);
        assert!(without.is_empty(), "{}: pages without a block ```sh remedy: {without:?}", one.name);
        for step in steps {
            let is_command = step.starts_with("dvp ") && step.ends_with(" --config dvp.toml");
            assert!(is_command || step.starts_with("# "), "{}: {step}", one.name);
        }
        tried.extend(one.alerts.iter().copied());
    }
    assert_eq!(tried, all_alerts().iter().map(String::as_str).collect::<BTreeSet<_>>());
    assert!(Page::of("DvpDebt").remedy.len() > 1, "remedies are read");
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

/// The values of a file of settings by their path: `a.b` for YAML by indentation, `[a]` with `b=` for pgBackRest.
fn settings(path: &str) -> BTreeMap<String, String> {
    let (text, mut found) = (fs::read_to_string(root().join(path)).unwrap(), BTreeMap::new());
    let (mut parents, mut section): (Vec<(usize, String)>, _) = (Vec::new(), String::new());
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', '-']) && !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        parents.retain(|(of, _)| *of < indent);
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = format!("{name}.");
            continue;
        }
        let (name, value) = line.split_once(": ").or_else(|| line.split_once('=')).unwrap_or((line, ""));
        let name = name.trim_end_matches(':');
        let prefix: String = parents.iter().map(|(_, name)| format!("{name}.")).collect();
        let place = format!("{section}{prefix}{name}");
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let before = found.insert(place.clone(), bare.to_owned());
        assert_eq!(before, None, "{path}: {place} is set twice");
        if value.is_empty() {
            parents.push((indent, name.to_owned()));
        }
    }
    found
}

#[test]
fn patroni_is_set_up_as_the_service_needs_it() {
    let patroni = settings("deploy/patroni/patroni.yml");
    for (name, value) in [
        ("synchronous_mode", "true"),
        ("synchronous_mode_strict", "true"),
        ("synchronous_node_count", "1"),
        ("ttl", "20"),
        ("loop_wait", "5"),
        ("retry_timeout", "5"),
        ("failsafe_mode", "true"),
        ("postgresql.use_pg_rewind", "true"),
        ("postgresql.use_slots", "true"),
        ("postgresql.parameters.synchronous_commit", "on"),
        ("postgresql.parameters.wal_log_hints", "on"),
        ("postgresql.parameters.archive_mode", "on"),
    ] {
        let place = format!("bootstrap.dcs.{name}");
        assert_eq!(patroni.get(&place).map(String::as_str), Some(value), "{place}");
    }
    let number = |name: &str| patroni[name].parse::<u64>().unwrap();
    // With the strict mode zero can leave the cluster without a leader.
    assert!(number("bootstrap.dcs.maximum_lag_on_failover") > 0);
    let (ttl, wait) = (number("bootstrap.dcs.ttl"), number("bootstrap.dcs.loop_wait"));
    // A leader renews its key, or gives up the lead, before another may take it.
    assert!(wait + 2 * number("bootstrap.dcs.retry_timeout") <= ttl, "Patroni requires it of ttl");
    // The watchdog resets a machine whose Patroni hangs before its key expires, and not between two rounds.
    assert_eq!(patroni["watchdog.mode"], "required");
    assert!(ttl - number("watchdog.safety_margin") > wait);
    assert_eq!(patroni["restapi.verify_client"], "required");
    // Patroni's own connections are those that pg_hba allows.
    assert_eq!(patroni["postgresql.use_unix_socket"], "true");
    assert_eq!(patroni["postgresql.use_unix_socket_repl"], "true");
    let text = fs::read_to_string(root().join("deploy/patroni/patroni.yml")).unwrap();
    for rule in ["local all postgres peer", "local replication replicator scram-sha-256"] {
        assert!(text.contains(&format!("\n    - {rule}\n")), "{rule}");
    }
    // Nobody comes over the network without TLS, and the service not without its certificate.
    let hosts = text.lines().filter(|line| line.trim_start().starts_with("- host"));
    assert!(hosts.clone().count() > 0 && hosts.clone().all(|line| line.contains("- hostssl ")));
    assert!(hosts.clone().filter(|line| line.contains(" dvp dvp ")).all(|line| line.contains("verify-full")));
    let documented = fs::read_to_string(root().join("docs/failover.md")).unwrap();
    assert!(documented.contains("`synchronous_mode: true` and `synchronous_mode_strict: true`"));
    assert!(documented.contains(&format!("a `ttl` of {ttl} s")));
}

#[test]
fn etcd_decides_faster_than_patroni_waits() {
    let (etcd, patroni) = (settings("deploy/patroni/etcd.conf.yml"), settings("deploy/patroni/patroni.yml"));
    let members = etcd["initial-cluster"].split(',').count();
    assert_eq!(members, 3, "a majority without one machine");
    assert_eq!(patroni["etcd3.hosts"].split(',').count(), members);
    let election_ms: u64 = etcd["election-timeout"].parse().unwrap();
    let retry_secs: u64 = patroni["bootstrap.dcs.retry_timeout"].parse().unwrap();
    assert!(election_ms * 2 <= retry_secs * 1_000);
    assert_eq!(etcd["enable-grpc-gateway"], "true", "Patroni speaks to the gateway");
    for side in ["client", "peer"] {
        assert_eq!(etcd[&format!("{side}-transport-security.client-cert-auth")], "true");
    }
}

#[test]
fn pgbackrest_archives_for_the_servers_that_patroni_runs() {
    let (backup, patroni) =
        (settings("deploy/pgbackrest/pgbackrest.conf"), settings("deploy/patroni/patroni.yml"));
    assert_eq!(backup["dvp.pg1-path"], patroni["postgresql.data_dir"]);
    assert!(patroni["postgresql.listen"].ends_with(&format!(":{}", backup["dvp.pg1-port"])));
    assert_eq!(backup["global.repo1-cipher-type"], "aes-256-cbc");
    assert_eq!(backup["global.archive-async"], "y");
    assert!(
        backup.contains_key("global.archive-push-queue-max"),
        "a broken repository may not fill the disk"
    );
    let retention: u64 = backup["global.repo1-retention-full"].parse().unwrap();
    assert!(backup["global.repo1-retention-full-type"] == "time" && retention >= 35);
    let push = &patroni["bootstrap.dcs.postgresql.parameters.archive_command"];
    let fetch = &patroni["bootstrap.dcs.postgresql.recovery_conf.restore_command"];
    let stanza = "pgbackrest --stanza=dvp";
    assert_eq!(push, &format!("{stanza} archive-push %p"));
    assert_eq!(fetch, &format!("{stanza} archive-get %f \"%p\""));
    let crontab = fs::read_to_string(root().join("deploy/pgbackrest/crontab")).unwrap();
    for kind in ["full", "diff"] {
        assert!(crontab.contains(&format!("{stanza} --type={kind} backup")), "{kind}");
    }
    let page = fs::read_to_string(root().join("docs/runbooks/restore.md")).unwrap();
    assert!(
        page.lines().filter(|line| line.contains("pgbackrest --")).all(|line| line.contains("--stanza=dvp"))
    );
}

/// What each step of a restore has to be done before, by its command.
const RESTORE: [&str; 9] = [
    "patronictl -c /etc/patroni/patroni.yml remove dvp",
    "--type=full backup",
    "dvp audit verify --config dvp.toml\n",
    "dvp pause add --scope everything ",
    "select(.entry > 1200)",
    "dvp fix-session reset ",
    "dvp serve --config dvp.toml --roles api,indexer,worker,console\n",
    "Start the processes with the role `fix`",
    "dvp pause remove --scope everything ",
];

/// A key works as soon as a process runs, and a peer that connects before its numbers are reset loses reports.
#[test]
fn a_restore_is_carried_out_in_an_order_that_loses_nothing() {
    let page = fs::read_to_string(root().join("docs/runbooks/restore.md")).unwrap();
    let (_, mut rest) = page.split_once("\n## Restore\n").unwrap();
    for step in RESTORE {
        let (_, after) =
            rest.split_once(step).unwrap_or_else(|| panic!("{step} is missing, or before an earlier step"));
        rest = after;
    }
}

#[test]
fn a_restore_says_what_to_do_about_every_audited_table() {
    let page = fs::read_to_string(root().join("docs/runbooks/restore.md")).unwrap();
    let mut audited = BTreeSet::new();
    for path in files("migrations", "sql") {
        let text = fs::read_to_string(&path).unwrap();
        for trigger in text.split("create trigger ").skip(1).filter(|rest| rest.contains("_audited after ")) {
            let (name, rest) = trigger.split_once(" after ").unwrap();
            let table = rest.split_once(" on ").unwrap().1.split_whitespace().next().unwrap();
            if name.ends_with("_audited") {
                audited.insert(table.to_owned());
            }
        }
    }
    assert!(audited.len() > 15, "{audited:?}");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("   | `")).collect();
    for table in audited {
        let named = format!("`{table}`");
        assert!(rows.iter().any(|row| row.split('|').nth(1).unwrap().contains(&named)), "{table} is missing");
    }
}

#[test]
fn haproxy_takes_its_file_and_every_cell_is_whole() {
    let folder = root().join("deploy/haproxy");
    let text = fs::read_to_string(folder.join("haproxy.cfg")).unwrap();
    let documented = fs::read_to_string(root().join("docs/cells.md")).unwrap();
    let cells = fs::read_to_string(folder.join("dvp-cells.map")).unwrap();
    let cells = cells.lines().filter(|line| !line.starts_with('#'));
    let cells: Vec<&str> = cells.map(|line| line.split_once(' ').unwrap().0).collect();
    assert_eq!(cells, ["00a", "00b"]);
    let rest = "errorfile 500 /etc/haproxy/unavailable.http";
    for cell in cells {
        for (backend, needs) in [("rest", rest), ("fix", "send-proxy-v2 check")] {
            let section = text.split(&format!("\nbackend {backend}_{cell}\n")).nth(1).unwrap();
            let section = section.split("\n\n").next().unwrap();
            assert!(section.contains(needs) && section.contains("GET /readyz"), "{backend}_{cell}");
        }
    }
    // What a cell without a process answers is the API's own error.
    let answer = fs::read_to_string(folder.join("unavailable.http")).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 5"));
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&body["success"], &body["error"]["code"]),
        (&Value::Bool(false), &"SERVICE_UNAVAILABLE".into())
    );
    for file in ["haproxy.cfg", "unavailable.http", "dvp-cells.map", "dvp-sessions.map"] {
        assert!(documented.contains(&format!("`{file}`")), "docs/cells.md does not name {file}");
    }
    // As it is, but for the folder and the certificate, which are elsewhere.
    let own = text.replace(" ssl crt /etc/haproxy/dvp.pem", "");
    let own = own.replace("/etc/haproxy", &folder.display().to_string());
    let place = std::env::temp_dir().join(format!("dvp-haproxy-{}.cfg", std::process::id()));
    fs::write(&place, own).unwrap();
    let checked = Command::new("haproxy").args(["-c", "-q", "-f"]).arg(&place).output();
    fs::remove_file(&place).unwrap();
    let checked = checked.expect("no haproxy: apt-get install haproxy");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
