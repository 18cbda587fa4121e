//! Estimates the backlog of the chain, and whether a new order could be locked in time.
//!
//! Orders are accepted a thousand times faster than a chain locks them. An order that cannot be locked before its
//! lock-by would reserve its providers' output for nothing, so it is refused. The estimate follows Little's law:
//!
//! ```text
//! wait of a new lock = commands that go before it / commands completed a second
//! ```
//!
//! Commands of higher priority come before a new lock (fills, settlements, transfers, returns), and so do earlier
//! locks, each with the fill and the settlement that follow it. Anchors come after locks and are not counted.
//!
//! The rate is counted over the last [`WINDOW`]. If commands were waiting during the whole window, the count is the
//! relayer's capacity; otherwise it is a lower bound, and a higher rate measured before stays in use. The rate is never
//! assumed to be below [`LEAST`]: a few commands that wait for other reasons must not stop admission, and a relayer
//! that has just started has no measured rate. The price: while the relayer is down, as many orders as [`LEAST`] allows
//! are accepted and expire at their lock-by, with no funds moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use metrics::{counter, gauge};
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::watch;

use dvp_store::StoreError;
use dvp_store::chain::commands::{self, OpenCommands};
use dvp_store::workers::{self, Items, Step, Worker, in_database};

/// The period over which completed commands are counted.
pub const WINDOW: Duration = Duration::from_secs(30);
/// The lowest rate assumed: commands in a [`WINDOW`], sixty a second.
pub const LEAST: u64 = 1800;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The longest time for one sample.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// Commands per order: a lock, and the fill and the settlement that follow it.
const COMMANDS_OF_A_LOCK: u64 = 3;

/// The relayer's measured rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    /// Commands in a [`WINDOW`].
    commands: u64,
    /// The number of consecutive samples with waiting commands.
    busy_samples: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { commands: LEAST, busy_samples: 0 }
    }
}

impl Rate {
    /// Records the open commands at a moment and those completed in the [`WINDOW`] before it.
    fn next(self, open: &OpenCommands) -> Self {
        let busy_samples = if waiting(open) == 0 { 0 } else { self.busy_samples.saturating_add(1) };
        let seen = open.done.max(LEAST);
        let is_all_it_can = busy_samples.saturating_mul(SAMPLE_EVERY.as_secs()) >= WINDOW.as_secs();
        Self { commands: if is_all_it_can { seen } else { seen.max(self.commands) }, busy_samples }
    }

    /// The time to process this many commands.
    fn wait(self, commands: u64) -> Duration {
        let window_ms = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(commands.saturating_mul(window_ms) / self.commands.max(1))
    }
}

/// The commands that come before a new lock.
const fn waiting(open: &OpenCommands) -> u64 {
    let locks = open.locks.saturating_mul(COMMANDS_OF_A_LOCK);
    open.urgent.saturating_add(open.swaps).saturating_add(locks)
}

/// The estimate, shared by all tasks that accept orders. Cheap to clone. Every order is admitted until [`Backlog::run`]
/// has taken its first sample.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    has_looked: AtomicBool,
    rate: Mutex<Rate>,
    waiting: AtomicU64,
    /// Orders accepted by this process since the last sample.
    accepted: AtomicU64,
}

impl Backlog {
    /// Whether a lock requested now is likely to be included within this time.
    pub(crate) fn admits(&self, within: Duration) -> bool {
        !self.0.has_looked.load(Ordering::Relaxed) || self.wait() <= within
    }

    /// Counts an accepted order that is to be locked.
    pub(crate) fn accepted(&self) {
        self.0.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// The expected wait of a new lock.
    pub fn wait(&self) -> Duration {
        let accepted = self.0.accepted.load(Ordering::Relaxed).saturating_mul(COMMANDS_OF_A_LOCK);
        let commands = self.0.waiting.load(Ordering::Relaxed).saturating_add(accepted);
        self.rate().wait(commands)
    }

    /// Takes a sample from the tables.
    pub fn look(&self, open: &OpenCommands) {
        let next = self.rate().next(open);
        *self.0.rate.lock() = next;
        self.0.waiting.store(waiting(open), Ordering::Relaxed);
        self.0.accepted.store(0, Ordering::Relaxed);
        self.0.has_looked.store(true, Ordering::Relaxed);
    }

    /// Takes a sample of a chain every second until `stop` turns true.
    pub async fn run(self, pool: PgPool, chain_id: i64, chain: String, mut stop: watch::Receiver<bool>) {
        let items = Items::waiting(pool.clone(), Worker::Backlog, LOOK_WITHIN, SAMPLE_EVERY);
        while !*stop.borrow() {
            let counted = async {
                workers::at(Step::BacklogCount, in_database(&pool, &chain)).await?;
                self.look_up(&pool, chain_id).await
            };
            // Admission uses the last known value meanwhile.
            items.attend(&chain, "chain", counted).await;
            self.show(&chain);
            tokio::select! {
                () = tokio::time::sleep(SAMPLE_EVERY) => {}
                _ = stop.changed() => {}
            }
        }
    }

    async fn look_up(&self, pool: &PgPool, chain_id: i64) -> Result<(), StoreError> {
        let mut conn = pool.acquire().await?;
        self.look(&commands::count_open(&mut conn, chain_id, WINDOW).await?);
        Ok(())
    }

    fn show(&self, chain: &str) {
        let commands = u32::try_from(self.rate().commands).unwrap_or(u32::MAX);
        gauge!("dvp_lock_wait_seconds", "chain" => chain.to_owned()).set(self.wait().as_secs_f64());
        gauge!("dvp_relayer_commands_per_window", "chain" => chain.to_owned()).set(commands);
    }

    fn rate(&self) -> Rate {
        *self.0.rate.lock()
    }
}

/// Counts an order that was refused because of the backlog.
pub(crate) fn count_refused() {
    counter!("dvp_orders_refused_for_backlog_total").increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: OpenCommands = OpenCommands { urgent: 0, locks: 0, swaps: 0, done: 0 };

    fn after(samples: impl IntoIterator<Item = OpenCommands>) -> Rate {
        samples.into_iter().fold(Rate::default(), |rate, open| rate.next(&open))
    }

    #[test]
    fn the_rate_is_the_throughput_while_commands_were_always_waiting() {
        let busy = |done| OpenCommands { locks: 10, done, ..IDLE };
        assert_eq!(after([IDLE]).commands, LEAST, "no sample yet");
        assert_eq!(after([busy(5000)]).commands, 5000, "the least that it can");
        assert_eq!(after([busy(5000), IDLE]).commands, 5000, "idle samples are ignored");
        let slower = [busy(5000)].into_iter().chain([busy(2000); 30]);
        assert_eq!(after(slower.clone().take(29)).commands, 5000, "the window has begun before");
        assert_eq!(after(slower).commands, 2000);
        assert_eq!(after([busy(0); 100]).commands, LEAST, "stuck commands do not stop admission");
    }

    #[test]
    fn a_lock_waits_for_urgent_commands_and_earlier_orders() {
        let backlog = Backlog::default();
        assert!(backlog.admits(Duration::ZERO), "no sample yet");
        backlog.look(&OpenCommands { urgent: 300, locks: 100, swaps: 300, done: 0 });
        assert_eq!(backlog.wait(), Duration::from_secs(15));
        assert!(backlog.admits(Duration::from_secs(15)) && !backlog.admits(Duration::from_secs(14)));
        for _ in 0..100 {
            backlog.accepted();
        }
        assert_eq!(backlog.wait(), Duration::from_secs(20));
        backlog.look(&OpenCommands { locks: 200, done: 9000, ..IDLE });
        assert_eq!(backlog.wait(), Duration::from_secs(2), "accepted ones are commands by now");
    }
}
