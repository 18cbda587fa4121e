//! The writer's figures. docs/operations.md says what they mean and when to alarm.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dvp_store::Fault;
use metrics::{counter, gauge, histogram};
use tracing::error;

use super::queue::{Depth, Gauge};

/// How often the age of the running batch and the queue are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// COMMIT was answered.
pub(super) fn committed(after: Duration) {
    histogram!("dvp_writer_commit_seconds").record(after);
}

/// A transaction ended.
pub(super) fn transaction(fault: Option<Fault>) {
    let result = fault.map_or("committed", Fault::as_str);
    counter!("dvp_writer_transactions_total", "result" => result).increment(1);
}

/// Units were answered with an error.
pub(super) fn failed(kind: &'static str, units: u64) {
    counter!("dvp_writer_failed_units_total", "kind" => kind).increment(units);
}

/// A unit found no place.
pub(super) fn refused() {
    counter!("dvp_writer_refused_total").increment(1);
}

/// 0 while the database is unavailable.
pub(super) fn available(is_available: bool) {
    gauge!("dvp_writer_available").set(f64::from(u8::from(is_available)));
}

/// A unit waited so long for its batch.
pub(super) fn waited(since: Duration) {
    histogram!("dvp_writer_queued_seconds").record(since);
}

fn queue(depth: &Depth) {
    // Beyond four billion a figure for people is as good as its bound.
    let number = |value: usize| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    for (class, units) in depth.queued {
        gauge!("dvp_writer_queued_units", "class" => class.as_str()).set(number(units));
    }
    gauge!("dvp_writer_parked_units").set(number(depth.parked));
    gauge!("dvp_writer_tenants_apart").set(number(depth.tenants_apart));
}

/// The batch that is being written now.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<Option<(Instant, usize)>>>);

impl Running {
    fn set(&self, batch: Option<(Instant, usize)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = batch;
    }

    fn get(&self) -> Option<(Instant, usize)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch begins; its duration is counted when the guard is dropped.
    pub(super) fn begin(&self, units: usize) -> BatchTimer {
        let began = Instant::now();
        self.set(Some((began, units)));
        histogram!("dvp_writer_batch_units").record(f64::from(u32::try_from(units).unwrap_or(u32::MAX)));
        BatchTimer { running: self.clone(), began }
    }
}

/// A batch under way.
#[must_use]
pub(super) struct BatchTimer {
    running: Running,
    began: Instant,
}

impl BatchTimer {
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for BatchTimer {
    fn drop(&mut self) {
        self.running.set(None);
        histogram!("dvp_writer_batch_seconds").record(self.began.elapsed());
    }
}

/// Shows the queue and the age of the running batch for as long as the queue is there. In a task of its own, so that
/// a batch that hangs is seen.
pub(super) async fn watch<T>(running: Running, waiting: Gauge<T>, alarm_after: Duration) {
    let mut alarmed = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        let Some(depth) = waiting.depth() else { return };
        queue(&depth);
        let batch = running.get();
        let age = batch.map(|(began, _)| began.elapsed()).unwrap_or_default();
        gauge!("dvp_writer_batch_age_seconds").set(age.as_secs_f64());
        if let Some((began, units)) = batch.filter(|(began, _)| age >= alarm_after && alarmed != Some(*began))
        {
            alarmed = Some(began);
            error!(age_ms = age.as_millis(), units, "batch is slow; it will be cancelled at its time limit");
        }
    }
}
