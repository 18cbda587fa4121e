//! Latencies of the well-behaved partner, by interface and phase.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The measured actions of the well-behaved partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    /// A fiat order: from the moment it is due to the whole answer.
    Rest,
    /// A fiat order: from the moment it is due to its first report.
    Fix,
    /// The same for orders with a permit.
    RestToken,
    FixToken,
    /// From connecting to the Logon that admits.
    FixLogon,
}

impl Interface {
    pub const ALL: [Self; 5] = [Self::Rest, Self::Fix, Self::RestToken, Self::FixToken, Self::FixLogon];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rest => "REST",
            Self::Fix => "FIX",
            Self::RestToken => "REST, token",
            Self::FixToken => "FIX, token",
            Self::FixLogon => "FIX logon",
        }
    }
}

/// The latencies of one interface in one phase.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    pub count: usize,
    pub median: Duration,
    pub p99: Duration,
    pub worst: Duration,
}

impl Summary {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at =
            |share: usize| all.get(all.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
        Self { count: all.len(), median: at(50), p99: at(99), worst: at(100) }
    }
}

/// Shared by the measuring tasks and the task that ends the phases.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder {
    is_measuring: Arc<AtomicBool>,
    pending: Arc<AtomicUsize>,
    taken: Arc<Mutex<BTreeMap<Interface, Vec<Duration>>>>,
}

/// Something that is due now. Dropped unanswered it is counted as never answered.
pub(super) struct Due {
    interface: Interface,
    at: Instant,
    recorder: Option<Recorder>,
}

impl Due {
    /// The answer is here.
    pub(super) fn answered(mut self) {
        let Some(recorder) = self.recorder.take() else { return };
        let mut taken = recorder.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.entry(self.interface).or_default().push(self.at.elapsed());
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
    pub(super) fn due(&self, interface: Interface, at: Instant) -> Due {
        let recorder = self.is_measuring.load(Ordering::Relaxed).then(|| self.clone());
        if recorder.is_some() {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
        Due { interface, at, recorder }
    }

    pub(super) fn begin(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.is_measuring.store(true, Ordering::Relaxed);
    }

    /// The latencies since [`Self::begin`], those included that are answered up to `patience` later.
    pub(super) async fn end(&self, patience: Duration) -> BTreeMap<Interface, Summary> {
        self.is_measuring.store(false, Ordering::Relaxed);
        let until = Instant::now() + patience;
        while self.pending.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *taken)
            .into_iter()
            .map(|(interface, all)| (interface, Summary::of(all)))
            .collect()
    }
}
