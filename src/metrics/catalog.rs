//! Every metric of the service: its kind, labels and meaning. `docs/metrics.md` is made from it.
//!
//! A counter whose label values are all listed exists from the start of the process with the value 0, so that its first
//! increment is an increase to Prometheus. So do the gauges of [`preset`](super::process::preset).

use ::metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram};

use super::catalog_service::{FIX, ORDERS, WRITER};
use super::catalog_settlement::{BOOKS, CHAIN, SETTLEMENT, WEBHOOKS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The values of a label.
#[derive(Debug, Clone, Copy)]
pub(super) enum Values {
    /// These, and no others.
    Of(&'static [&'static str]),
    /// What the configuration and operators name: their number does not depend on callers.
    Named(#[cfg_attr(not(test), expect(dead_code, reason = "only the documentation says it"))] &'static str),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [(&'static str, Values)],
    pub meaning: &'static str,
    /// When it exists, if not from the first seconds of a process of its role on.
    pub only: Option<&'static str>,
}

pub(super) const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [(&'static str, Values)],
    meaning: &'static str,
) -> Metric {
    Metric { name, kind, labels, meaning, only: None }
}

impl Metric {
    pub(super) const fn only(self, when: &'static str) -> Self {
        Self { only: Some(when), ..self }
    }

    /// All combinations of its labels' values, if all of them are listed.
    fn combinations(&self) -> Option<Vec<Vec<Label>>> {
        let mut combinations = vec![Vec::new()];
        for (name, values) in self.labels {
            let Values::Of(values) = values else { return None };
            let with = |before: &Vec<Label>| {
                let before = before.clone();
                values.iter().map(move |value| {
                    let mut labels = before.clone();
                    labels.push(Label::new(*name, *value));
                    labels
                })
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        Some(combinations)
    }

    fn unit(&self) -> Option<Unit> {
        let stem = self.name.trim_end_matches("_total");
        match stem.rsplit('_').next()? {
            "seconds" => Some(Unit::Seconds),
            "bytes" => Some(Unit::Bytes),
            _ => None,
        }
    }
}

use Kind::{Counter, Gauge, Histogram};
use Values::{Named, Of};

const POOL: (&str, Values) =
    ("db_client_connection_pool_name", Of(&["orders", "reads", "lookups", "background"]));

const PROCESS: &[Metric] = &[
    metric("dvp_build_info", Gauge, &[("version", Named("the program's version"))], "1"),
    metric("process_start_time_seconds", Gauge, &[], "when the process was ready, in Unix time"),
    metric(
        "process_cpu_seconds_total",
        Counter,
        &[],
        "processor time used, user and system, in whole seconds",
    ),
    metric("process_resident_memory_bytes", Gauge, &[], "memory in use"),
    metric("process_threads", Gauge, &[], "threads"),
    metric("process_open_fds", Gauge, &[], "open files and sockets"),
    metric("tokio_workers", Gauge, &[], "threads that run tasks"),
    metric("tokio_alive_tasks", Gauge, &[], "tasks that have not ended"),
    metric("tokio_global_queue_depth", Gauge, &[], "tasks that wait for a thread"),
    metric(
        "tokio_busy_seconds_total",
        Counter,
        &[],
        "time that the threads have spent running tasks, in whole seconds",
    ),
    metric(
        "dvp_database_available",
        Gauge,
        &[],
        "0 while the check of every second finds no database that takes writes, and until the first one is found",
    ),
    metric(
        "dvp_database_outages_total",
        Counter,
        &[],
        "times that the check found no database that takes writes any more; a fail-over counts once in each process",
    ),
    metric(
        "db_client_connection_count",
        Gauge,
        &[POOL, ("db_client_connection_state", Of(&["idle", "used"]))],
        "connections of a pool",
    ),
    metric("db_client_connection_max", Gauge, &[POOL], "the most connections that a pool may have"),
    metric(
        "db_client_connection_wait_time_seconds",
        Histogram,
        &[POOL],
        "how long a probe, every five seconds, waited for a connection of the pool",
    ),
    metric(
        "db_client_connection_timeouts_total",
        Counter,
        &[POOL],
        "probes that got no connection within three seconds",
    ),
    metric(
        "dvp_figures_last_success_timestamp_seconds",
        Gauge,
        &[],
        "when the role `worker` last counted open work in the tables, in Unix time; figures that it counts are as old; until the first time, when the process was started",
    ),
    metric(
        "dvp_trace_spans_total",
        Counter,
        &[("result", Of(&["exported", "failed", "dropped"]))],
        "spans of traces by what became of them; `dropped`: more were waiting than are kept",
    ),
    metric(
        "dvp_leases",
        Gauge,
        &[
            ("kind", Of(&["indexer", "relayer", "reconcile", "ranges", "retention", "fix", "other"])),
            ("state", Of(&["held", "expired"])),
        ],
        "leases by their state; an expired lease of `indexer`, `relayer` or `fix` has no owner, one of `retention` is between two runs",
    ),
    metric(
        "dvp_lease_acquisitions_total",
        Counter,
        &[("kind", Of(&["indexer", "relayer", "reconcile", "ranges", "retention", "fix", "other"]))],
        "times that leases were acquired, by all processes together; a hand-over to another process is one",
    ),
];

const REST: &[Metric] = &[
    metric(
        "http_server_request_duration_seconds",
        Histogram,
        &[
            (
                "http_request_method",
                Of(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "_OTHER"]),
            ),
            ("http_route", Named("the route's template, or `unmatched`")),
            ("http_response_status_code", Named("the status code")),
        ],
        "requests by route and status, from their head to their answer",
    )
    .only("after a request"),
    metric(
        "dvp_console_request_seconds",
        Histogram,
        &[
            ("method", Of(&["GET", "POST"])),
            ("route", Named("the page's template, or `unmatched`")),
            ("status", Named("the status code")),
        ],
        "requests of the console by page and status, from their head to the head of their answer",
    )
    .only("with the role `console`, after a request"),
    metric("http_server_active_requests", Gauge, &[], "requests that are not answered yet")
        .only("after a request"),
    metric(
        "dvp_rest_failed_total",
        Counter,
        &[("kind", Of(&["busy", "timed_out", "unavailable", "internal"]))],
        "requests answered with 503 or 500: too many requests are in flight, the route's time limit passed, database, chain or writer are unavailable, a defect or corrupt data",
    ),
    metric(
        "dvp_rest_feed_reads_total",
        Counter,
        &[("reader", Of(&["request", "follower"]))],
        "pages of the feed read by `GET /v1/events`, and by the process for all waiting long-polls of a partner at once",
    ),
];

/// The catalog, by sections of the documentation.
pub(super) const SECTIONS: [(&str, &[Metric]); 9] = [
    ("Process", PROCESS),
    ("REST", REST),
    ("FIX", FIX),
    ("Writer", WRITER),
    ("Orders", ORDERS),
    ("Settlement and rails", SETTLEMENT),
    ("Chains", CHAIN),
    ("Webhooks and feed", WEBHOOKS),
    ("Ledger and reconciliation", BOOKS),
];

fn all() -> impl Iterator<Item = &'static Metric> {
    SECTIONS.iter().flat_map(|(_, metrics)| metrics.iter())
}

/// Gives the recorder the descriptions, and every counter with listed labels the value 0.
pub(super) fn describe() {
    for metric in all() {
        let unit = metric.unit().unwrap_or(Unit::Count);
        match metric.kind {
            Counter => describe_counter!(metric.name, unit, metric.meaning),
            Gauge => describe_gauge!(metric.name, unit, metric.meaning),
            Histogram => describe_histogram!(metric.name, unit, metric.meaning),
        }
        if metric.kind == Counter && metric.only.is_none() {
            for labels in metric.combinations().into_iter().flatten() {
                counter!(metric.name, labels).increment(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn names_have_the_units_and_suffixes_of_prometheus() {
        let mut names = BTreeSet::new();
        for metric in all() {
            let name = metric.name;
            assert!(names.insert(name), "{name} twice");
            assert_eq!(metric.kind == Counter, name.ends_with("_total"), "{name}");
            let known = ["dvp_", "http_server_", "db_client_", "process_", "tokio_"];
            assert!(known.iter().any(|prefix| name.starts_with(prefix)), "{name}");
            for (label, _) in metric.labels {
                assert!(
                    label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                    "{name}: {label}"
                );
            }
        }
    }

    /// A counter that appears with its first increment is no increase to Prometheus: its first event would page nobody.
    #[test]
    fn counters_of_alerts_exist_before_their_first_increment() {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus/rules");
        let mut used = 0;
        for file in std::fs::read_dir(rules).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for metric in all().filter(|metric| metric.kind == Counter && text.contains(metric.name)) {
                used += 1;
                let exists = match metric.only {
                    None => metric.combinations().is_some(),
                    Some(when) => when.starts_with("for "),
                };
                assert!(exists, "{} exists only {:?}", metric.name, metric.only);
            }
        }
        assert!(used > 5, "{used} counters are in the rules");
    }

    /// The documentation, with a marked part that is written by `UPDATE_EXPECT=1`.
    #[test]
    fn the_documentation_lists_every_metric() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (mark, end) = ("<!-- metrics: begin -->\n", "<!-- metrics: end -->");
        let (head, rest) = text.split_once(mark).unwrap();
        let (_, tail) = rest.split_once(end).unwrap();
        let expected = format!("{head}{mark}{}{end}{tail}", tables());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        assert!(expected == text, "docs/metrics.md is out of date: UPDATE_EXPECT=1 rewrites it");
    }

    fn tables() -> String {
        let mut text = String::new();
        for (section, metrics) in SECTIONS {
            writeln!(text, "\n## {section}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
                .unwrap();
            for metric in metrics {
                let labels: Vec<String> = metric.labels.iter().map(label).collect();
                let kind = format!("{:?}", metric.kind).to_lowercase();
                let only = metric.only.map(|when| format!(" (exists {when})")).unwrap_or_default();
                let Metric { name, meaning, .. } = metric;
                writeln!(text, "| `{name}` | {kind} | {} | {meaning}{only} |", labels.join("; ")).unwrap();
            }
        }
        text.push('\n');
        text
    }

    fn label((name, values): &(&str, Values)) -> String {
        match values {
            Of(values) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                format!("`{name}`: {}", values.join(", "))
            }
            Named(what) => format!("`{name}`: {what}"),
        }
    }
}
