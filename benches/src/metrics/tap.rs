//! A recorder that keeps what is recorded, to be recorded again under a clock.

use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder,
    SharedString, Unit,
};

/// One call of a metric: its handle was made, or a handle was used.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    key: Key,
    call: Call,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Made(Kind),
    Changed(Kind, Change),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Count(u64),
    Total(u64),
    Set(f64),
    Add(f64),
    Subtract(f64),
    Sample(f64),
}

/// A handle of a recorder.
pub(super) enum Handle {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Handle {
    fn of(recorder: &impl Recorder, kind: Kind, key: &Key, metadata: &Metadata<'_>) -> Self {
        match kind {
            Kind::Counter => Self::Counter(recorder.register_counter(key, metadata)),
            Kind::Gauge => Self::Gauge(recorder.register_gauge(key, metadata)),
            Kind::Histogram => Self::Histogram(recorder.register_histogram(key, metadata)),
        }
    }

    fn change(&self, change: Change) {
        match (self, change) {
            (Self::Counter(counter), Change::Count(value)) => counter.increment(value),
            (Self::Counter(counter), Change::Total(value)) => counter.absolute(value),
            (Self::Gauge(gauge), Change::Set(value)) => gauge.set(value),
            (Self::Gauge(gauge), Change::Add(value)) => gauge.increment(value),
            (Self::Gauge(gauge), Change::Subtract(value)) => gauge.decrement(value),
            (Self::Histogram(histogram), Change::Sample(value)) => histogram.record(value),
            _ => {}
        }
    }
}

/// A call that can be made again.
pub(super) enum Repeatable<'a> {
    Make(Kind, &'a Key),
    Change(Handle, Change),
}

impl Operation {
    pub(super) fn name(&self) -> &str {
        self.key.name()
    }

    /// A handle that was kept is kept here, too.
    pub(super) fn prepared<'a>(
        &'a self,
        recorder: &impl Recorder,
        metadata: &Metadata<'_>,
    ) -> Repeatable<'a> {
        match self.call {
            Call::Made(kind) => Repeatable::Make(kind, &self.key),
            Call::Changed(kind, change) => {
                Repeatable::Change(Handle::of(recorder, kind, &self.key, metadata), change)
            }
        }
    }
}

impl Repeatable<'_> {
    /// A handle is made with a key made anew, as the place of the call makes it.
    pub(super) fn repeat(&self, recorder: &impl Recorder, metadata: &Metadata<'_>) {
        match self {
            Self::Make(kind, key) => {
                let labels: Vec<Label> = key.labels().cloned().collect();
                let key = Key::from_parts(key.name_shared(), labels);
                black_box(Handle::of(recorder, *kind, &key, metadata));
            }
            Self::Change(handle, change) => handle.change(*change),
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

    fn keep(&self, key: &Key, call: Call) {
        if let Some(kept) = self.kept().as_mut() {
            kept.push(Operation { key: key.clone(), call });
        }
    }

    fn handle(&self, kind: Kind, key: &Key) -> Arc<Tapped> {
        self.keep(key, Call::Made(kind));
        Arc::new(Tapped { tap: self.clone(), key: key.clone() })
    }
}

impl Recorder for Tap {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(Kind::Counter, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(Kind::Gauge, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(Kind::Histogram, key))
    }
}

/// One metric of a tap.
struct Tapped {
    tap: Tap,
    key: Key,
}

impl Tapped {
    fn keep(&self, kind: Kind, change: Change) {
        self.tap.keep(&self.key, Call::Changed(kind, change));
    }
}

impl CounterFn for Tapped {
    fn increment(&self, value: u64) {
        self.keep(Kind::Counter, Change::Count(value));
    }

    fn absolute(&self, value: u64) {
        self.keep(Kind::Counter, Change::Total(value));
    }
}

impl GaugeFn for Tapped {
    fn increment(&self, value: f64) {
        self.keep(Kind::Gauge, Change::Add(value));
    }

    fn decrement(&self, value: f64) {
        self.keep(Kind::Gauge, Change::Subtract(value));
    }

    fn set(&self, value: f64) {
        self.keep(Kind::Gauge, Change::Set(value));
    }
}

impl HistogramFn for Tapped {
    fn record(&self, value: f64) {
        self.keep(Kind::Histogram, Change::Sample(value));
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
            let prepared = kept.iter().map(|operation| operation.prepared(&recorder, &METADATA));
            prepared.for_each(|repeatable| repeatable.repeat(&recorder, &METADATA));
        }
        let text = recorder.handle().render();
        for line in ["orders{door=\"fix\"} 4", "open -3", "seconds_sum 0.5", "seconds_count 2"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("before"), "{text}");
        assert!(tap.stop().is_empty());
    }
}
