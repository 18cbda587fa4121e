//! The writer's metrics. docs/operations.md describes them and their alarms.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram, counter, gauge, histogram};
use parking_lot::Mutex;
use tracing::error;

use dvp_store::orders::abandonments::NewAbandonment;

use super::fair_queue::UnitSource;
use super::queue::{Depth, Gauge};
use super::unit::{Outcome, Unit, Work};

/// The sampling interval of the running batch's age and of the queue.
const LOOK: Duration = Duration::from_millis(500);

/// Kept for what every unit counts: making a handle costs more than counting.
static QUEUED: LazyLock<Histogram> = LazyLock::new(|| histogram!("dvp_writer_queued_seconds"));
static ACCEPTED_BY_REST: LazyLock<Counter> = LazyLock::new(|| orders("rest", "accepted", "none"));
static ACCEPTED_BY_FIX: LazyLock<Counter> = LazyLock::new(|| orders("fix", "accepted", "none"));

/// COMMIT was answered.
pub(super) fn committed(after: Duration) {
    histogram!("dvp_writer_commit_seconds").record(after);
}

/// A transaction ended. `result`: `committed` or a fault.
pub(super) fn transaction(result: &'static str) {
    counter!("dvp_writer_transactions_total", "result" => result).increment(1);
}

/// Units were answered with an error.
pub(super) fn failed(kind: &'static str, units: u64) {
    counter!("dvp_writer_failed_units_total", "kind" => kind).increment(units);
}

/// A unit was refused because the queue was full.
pub(super) fn refused() {
    counter!("dvp_writer_refused_total").increment(1);
}

fn orders(source: &'static str, result: &'static str, reason: &'static str) -> Counter {
    counter!("dvp_orders_total", "source" => source, "result" => result, "reason" => reason)
}

/// Orders whose takers let them go were recorded.
pub(super) fn abandoned(orders: &[NewAbandonment]) {
    for one in orders {
        counter!("dvp_orders_abandoned_total", "how" => one.how.as_str()).increment(1);
    }
}

/// A unit was committed: counts the orders that it decided.
pub(super) fn decided(unit: &Unit, outcome: &Outcome) {
    if !matches!(unit.work, Work::Submit(_) | Work::Refuse(_)) {
        return;
    }
    let source = match unit.flow.source {
        UnitSource::Session(_) => "fix",
        UnitSource::Rest | UnitSource::Settlement | UnitSource::Suspect => "rest",
    };
    let (result, reason) = match outcome {
        Outcome::Accepted(_) => ("accepted", "none"),
        Outcome::Rejected { reason, .. } => ("rejected", reason.as_str()),
        Outcome::Refused(refusal) => ("refused", refusal.as_str()),
        Outcome::KeyUsed(_) => ("repeated", "none"),
        Outcome::Unfilled(_) | Outcome::Written => return,
    };
    match (source, result) {
        ("rest", "accepted") => ACCEPTED_BY_REST.increment(1),
        ("fix", "accepted") => ACCEPTED_BY_FIX.increment(1),
        _ => orders(source, result, reason).increment(1),
    }
}

/// Accepted orders that left the accepted state in the commit of their acceptance, as a step's own commit is counted.
pub(super) fn begun(next: &[&'static str]) {
    for next in next {
        histogram!("dvp_order_stage_seconds", "stage" => "accepted").record(0.0);
        counter!("dvp_order_steps_total", "stage" => "accepted", "next" => *next).increment(1);
    }
}

/// 0 while the database is unavailable.
pub(super) fn available(is_available: bool) {
    gauge!("dvp_writer_available").set(f64::from(u8::from(is_available)));
}

/// How long a unit waited for its batch.
pub(super) fn waited(since: Duration) {
    QUEUED.record(since);
}

fn queue(depth: &Depth) {
    // Values above four billion are clamped.
    let number = |value: usize| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    for (class, units) in depth.queued {
        gauge!("dvp_writer_queued_units", "class" => class.as_str()).set(number(units));
    }
    gauge!("dvp_writer_parked_units").set(number(depth.parked));
    gauge!("dvp_writer_tenants_apart").set(number(depth.tenants_apart));
}

#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<Option<(Instant, usize)>>>);

impl Running {
    fn set(&self, batch: Option<(Instant, usize)>) {
        *self.0.lock() = batch;
    }

    fn get(&self) -> Option<(Instant, usize)> {
        *self.0.lock()
    }

    /// A batch is in progress; its duration is recorded when the guard is dropped.
    pub(super) fn begin(&self, began: Instant, units: usize) -> BatchTimer {
        self.set(Some((began, units)));
        histogram!("dvp_writer_batch_units").record(f64::from(u32::try_from(units).unwrap_or(u32::MAX)));
        BatchTimer { running: self.clone(), began }
    }
}

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

/// Reports the queue and the age of the running batch as long as the queue exists. A separate task, so that a hanging
/// batch is visible.
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
