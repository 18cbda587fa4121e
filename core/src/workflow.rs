//! The work after acceptance: due effects are executed, chain facts are processed, and each moves its settlement by one
//! step.
//!
//! Effects are claimed with a fence; facts are consumed by the transaction of their step. Several
//! processes may process the same one: the settlement's version lets one of them commit. Work that cannot be written
//! stays due and is postponed, longer each time.

pub mod audit;
mod effects;
mod facts;
mod failed;
pub mod figures;
pub mod lateness;
pub mod ledger_check;
pub mod ledger_closings;
pub mod retention;
mod screened;
mod step;

use std::sync::Arc;
use std::time::Duration;

use dvp_rails::Rail;
use dvp_store::database::notify::Notifications;
use dvp_store::workers::{Worker, supervise};
use tokio::sync::watch;

use crate::engine::Engine;

/// The longest wait without a notification.
const POLL: Duration = Duration::from_millis(200);
/// The wait after a database failure.
const BACK_OFF: Duration = Duration::from_millis(500);

/// A rail and how a process uses it.
#[derive(Clone)]
pub struct RailUse {
    pub rail: Arc<dyn Rail>,
    /// Concurrent legs: a rail that hangs blocks its own leg only.
    pub concurrency: u16,
    /// The longest interval between two queries about a leg in progress.
    pub poll_max: Duration,
}

impl RailUse {
    /// 128 legs at a time, and the rail's own interval.
    pub fn of(rail: Arc<dyn Rail>) -> Self {
        let poll_max = rail.poll_max();
        Self { rail, concurrency: 128, poll_max }
    }
}

/// The workers of a process. Ends when `stop` turns true, after the work in progress.
pub async fn run(engine: Engine, offramp: RailUse, payout: RailUse, stop: watch::Receiver<bool>) {
    let rails = effects::Rails { offramp, payout };
    let watched = || stop.clone();
    tokio::join!(
        supervise(Worker::Effects, watched(), || effects::run(&engine, &rails, watched())),
        supervise(Worker::Facts, watched(), || facts::run(&engine, watched())),
        supervise(Worker::AuditAnchor, watched(), || crate::workflow::audit::run(&engine, watched())),
        supervise(Worker::Figures, watched(), || crate::workflow::figures::run(
            engine.pool.clone(),
            watched()
        )),
        supervise(Worker::LedgerCheck, watched(), || ledger_check::run(&engine, watched())),
        supervise(Worker::LedgerClosings, watched(), || ledger_closings::run(&engine, watched())),
        supervise(Worker::Lateness, watched(), || lateness::run(&engine, watched())),
    );
}

/// Waits for a notification, the poll interval or the stop, whichever is first.
struct Wake {
    notifications: Notifications,
    stop: watch::Receiver<bool>,
}

impl Wake {
    async fn new(engine: &Engine, channels: &'static [&'static str], stop: watch::Receiver<bool>) -> Self {
        let mut wake = Self { notifications: Notifications::new(engine.pool.clone(), channels), stop };
        wake.listen().await;
        wake
    }

    /// Starts listening for notifications, unless it already does.
    async fn listen(&mut self) {
        self.notifications.listen().await;
    }

    fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// `false`: stop.
    async fn wait(&mut self, at_most: Duration) -> bool {
        tokio::select! {
            _ = self.notifications.next() => {}
            () = tokio::time::sleep(at_most) => {}
            _ = self.stop.changed() => {}
        }
        !self.stopped()
    }
}
