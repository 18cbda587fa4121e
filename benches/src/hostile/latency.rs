//! Latencies of the well-behaved partner, by action and phase.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::figure::within;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Action {
    /// A fiat order: from the moment it is due to the whole answer.
    Rest,
    /// A fiat order: from the moment it is due to its first report.
    Fix,
    /// The same for orders with a permit.
    RestToken,
    FixToken,
    /// From connecting to the Logon that admits.
    FixLogon,
    /// From an order's submission until it is settled.
    TokenToFiat,
    TokenToToken,
    FiatToFiat,
    Range,
    /// From an event's record to its delivery.
    Webhook,
}

impl Action {
    /// An order up to its end, and not an answer.
    pub(crate) const fn is_settlement(self) -> bool {
        matches!(self, Self::TokenToFiat | Self::TokenToToken | Self::FiatToFiat | Self::Range)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Summary {
    pub count: usize,
    pub median: Duration,
    pub p99: Duration,
    pub worst: Duration,
}

impl Summary {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let [median, p99, worst] = [50, 99, 100].map(|share| within(&all, share));
        Self { count: all.len(), median, p99, worst }
    }

    pub(super) fn json(self) -> Value {
        let [median, p99, worst] = [self.median, self.p99, self.worst]
            .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        json!({"count": self.count, "medianMicros": median, "p99Micros": p99, "worstMicros": worst})
    }
}

/// Shared by the measuring tasks and the task that ends the phases.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder {
    is_measuring: Arc<AtomicBool>,
    pending: Arc<AtomicUsize>,
    taken: Arc<Mutex<BTreeMap<Action, Vec<Duration>>>>,
}

/// Something that is due now. Dropped unanswered it is counted as never answered.
pub(super) struct Due {
    action: Action,
    at: Instant,
    recorder: Option<Recorder>,
}

impl Due {
    pub(super) fn answered(mut self) {
        let Some(recorder) = self.recorder.take() else { return };
        let mut taken = recorder.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.entry(self.action).or_default().push(self.at.elapsed());
        recorder.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder {
            recorder.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Recorder {
    /// Actions due outside of a measured phase are not counted, however late their answer is.
    pub(super) fn due(&self, action: Action, at: Instant) -> Due {
        let recorder = self.is_measuring.load(Ordering::Relaxed).then(|| self.clone());
        if recorder.is_some() {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
        Due { action, at, recorder }
    }

    /// An action whose time is not counted.
    pub(super) fn untimed(&self) -> Due {
        Due { action: Action::Rest, at: Instant::now(), recorder: None }
    }

    /// Something that was measured by its own times.
    pub(super) fn took(&self, action: Action, time: Duration) {
        if self.is_measuring.load(Ordering::Relaxed) {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.entry(action).or_default().push(time);
        }
    }

    pub(super) fn begin(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.is_measuring.store(true, Ordering::Relaxed);
    }

    /// The latencies since [`Self::begin`], those included that are answered up to `patience` later.
    pub(super) async fn end(&self, patience: Duration) -> BTreeMap<Action, Summary> {
        self.is_measuring.store(false, Ordering::Relaxed);
        let until = Instant::now() + patience;
        while self.pending.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *taken).into_iter().map(|(action, all)| (action, Summary::of(all))).collect()
    }
}
