//! A recorder that keeps what is recorded, to be recorded again under a clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder,
    SharedString, Unit,
};

/// One call of a metric.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    key: Key,
    change: Change,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Count(u64),
    Total(u64),
    Set(f64),
    Add(f64),
    Subtract(f64),
    Sample(f64),
}

impl Operation {
    pub(super) fn name(&self) -> &str {
        self.key.name()
    }

    /// The same call, with a key made anew as the place of the call makes it.
    pub(super) fn repeat(&self, recorder: &impl Recorder, metadata: &Metadata<'_>) {
        let labels: Vec<Label> = self
            .key
            .labels()
            .map(|label| Label::new(label.key().to_owned(), label.value().to_owned()))
            .collect();
        let key = Key::from_parts(self.key.name().to_owned(), labels);
        match self.change {
            Change::Count(value) => recorder.register_counter(&key, metadata).increment(value),
            Change::Total(value) => recorder.register_counter(&key, metadata).absolute(value),
            Change::Set(value) => recorder.register_gauge(&key, metadata).set(value),
            Change::Add(value) => recorder.register_gauge(&key, metadata).increment(value),
            Change::Subtract(value) => recorder.register_gauge(&key, metadata).decrement(value),
            Change::Sample(value) => recorder.register_histogram(&key, metadata).record(value),
        }
    }
}

/// Keeps operations while it is switched on, and otherwise does nothing.
#[derive(Clone, Default)]
pub(super) struct Tap {
    kept: Arc<Mutex<Option<Vec<Operation>>>>,
}

impl Tap {
    /// Takes the place of the process's recorder.
    pub(super) fn install() -> anyhow::Result<Self> {
        let tap = Self::default();
        metrics::set_global_recorder(tap.clone())
            .map_err(|_| anyhow::anyhow!("the process already has a recorder"))?;
        Ok(tap)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Vec<Operation>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self) {
        *self.kept() = Some(Vec::new());
    }

    /// What was recorded since the start.
    pub(super) fn stop(&self) -> Vec<Operation> {
        self.kept().take().unwrap_or_default()
    }

    fn handle(&self, key: &Key) -> Arc<Tapped> {
        Arc::new(Tapped { tap: self.clone(), key: key.clone() })
    }
}

impl Recorder for Tap {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

/// One metric of a tap.
struct Tapped {
    tap: Tap,
    key: Key,
}

impl Tapped {
    fn keep(&self, change: Change) {
        if let Some(kept) = self.tap.kept().as_mut() {
            kept.push(Operation { key: self.key.clone(), change });
        }
    }
}

impl CounterFn for Tapped {
    fn increment(&self, value: u64) {
        self.keep(Change::Count(value));
    }

    fn absolute(&self, value: u64) {
        self.keep(Change::Total(value));
    }
}

impl GaugeFn for Tapped {
    fn increment(&self, value: f64) {
        self.keep(Change::Add(value));
    }

    fn decrement(&self, value: f64) {
        self.keep(Change::Subtract(value));
    }

    fn set(&self, value: f64) {
        self.keep(Change::Set(value));
    }
}

impl HistogramFn for Tapped {
    fn record(&self, value: f64) {
        self.keep(Change::Sample(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_recorded_again() {
        static METADATA: Metadata<'static> = Metadata::new("dvp", metrics::Level::INFO, None);
        let tap = Tap::default();
        metrics::with_local_recorder(&tap, || {
            metrics::counter!("before").increment(1);
            tap.start();
            metrics::counter!("orders", "door" => "fix").increment(2);
            metrics::gauge!("open").decrement(1.5);
            metrics::histogram!("seconds").record(0.25);
        });
        let kept = tap.stop();
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        for _ in 0..2 {
            kept.iter().for_each(|operation| operation.repeat(&recorder, &METADATA));
        }
        let text = recorder.handle().render();
        for line in ["orders{door=\"fix\"} 4", "open -3", "seconds_sum 0.5", "seconds_count 2"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("before"), "{text}");
        assert!(tap.stop().is_empty());
    }
}
