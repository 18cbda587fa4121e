//! Every metric of the service, as `docs/metrics.md` lists it: its kind, labels and meaning.
//!
//! A counter whose label values are all listed exists from the start of the process with the value 0, so that its first
//! increment is an increase to Prometheus. So do the gauges of [`preset`](super::process::preset).
//!
//! Values of labels never come from callers.
//!
//! Kept by `tests/e2e/metrics.rs::metrics_are_the_documented_ones_and_do_not_grow_with_traffic`.

use ::metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram};

const DOCUMENTATION: &str = include_str!("../../docs/metrics.md");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A label with its values. `None`: what the configuration and operators name; their number does not depend on callers.
type Labelled = (&'static str, Option<Vec<&'static str>>);

#[derive(Debug)]
struct Metric {
    name: &'static str,
    kind: Kind,
    labels: Vec<Labelled>,
    meaning: &'static str,
    /// When it exists, if not from the first seconds of a process of its role on.
    only: Option<&'static str>,
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('`')?.strip_suffix('`')
}

impl Metric {
    /// A row of the documentation's tables.
    fn parse(row: &'static str) -> Option<Self> {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", name, kind, labels, meaning, ""] = cells[..] else { return None };
        let kind = match kind {
            "counter" => Kind::Counter,
            "gauge" => Kind::Gauge,
            "histogram" => Kind::Histogram,
            _ => return None,
        };
        let label = |text: &'static str| -> Option<Labelled> {
            let (name, values) = text.split_once(": ")?;
            Some((quoted(name)?, values.split(", ").map(quoted).collect()))
        };
        let labels = labels.split("; ").filter(|text| !text.is_empty()).map(label).collect::<Option<_>>()?;
        let (meaning, only) = match meaning.rsplit_once(" (exists ") {
            Some((meaning, when)) => (meaning, Some(when.strip_suffix(')')?)),
            None => (meaning, None),
        };
        Some(Self { name: quoted(name)?, kind, labels, meaning, only })
    }

    /// All combinations of its labels' values, if all of them are listed.
    fn combinations(&self) -> Option<Vec<Vec<Label>>> {
        let mut combinations = vec![Vec::new()];
        for (name, values) in &self.labels {
            let values = values.as_ref()?;
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

/// The documented metrics.
fn all() -> impl Iterator<Item = Metric> {
    DOCUMENTATION.lines().filter_map(Metric::parse)
}

/// Gives the recorder the descriptions, and every counter with listed labels the value 0.
pub(super) fn describe() {
    for metric in all() {
        let unit = metric.unit().unwrap_or(Unit::Count);
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, unit, metric.meaning),
            Kind::Gauge => describe_gauge!(metric.name, unit, metric.meaning),
            Kind::Histogram => describe_histogram!(metric.name, unit, metric.meaning),
        }
        if metric.kind == Kind::Counter && metric.only.is_none() {
            for labels in metric.combinations().into_iter().flatten() {
                counter!(metric.name, labels).increment(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use dvp_core::chain::expected::FIELDS;
    use dvp_store::workers::Worker;

    use super::*;

    #[test]
    fn every_row_of_the_documentation_is_a_metric() {
        let rows = DOCUMENTATION.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(all().count(), rows.count());
        for (label, values) in [("loop", Worker::NAMES), ("field", &FIELDS[..])] {
            let mut labels = all().flat_map(|metric| metric.labels).filter(|(name, _)| *name == label);
            assert!(labels.all(|(_, listed)| listed.as_deref() == Some(values)), "{label}");
        }
    }

    #[test]
    fn names_have_the_units_and_suffixes_of_prometheus() {
        let mut names = BTreeSet::new();
        for metric in all() {
            let name = metric.name;
            assert!(names.insert(name), "{name} twice");
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            let known = ["dvp_", "http_server_", "db_client_", "process_", "tokio_"];
            assert!(known.iter().any(|prefix| name.starts_with(prefix)), "{name}");
            for (label, _) in &metric.labels {
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
            for metric in all().filter(|metric| metric.kind == Kind::Counter && text.contains(metric.name)) {
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
}
