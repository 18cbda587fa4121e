//! When legacy orders are evaluated: when they are due, and when the market of their pair has changed.
//!
//! ```text
//! offers, balances ──compared in memory──> pairs that changed ──┐
//! added orders (notified), times in memory ─────────────────────┴─> claim and evaluate what is due ──> next time
//! ```
//!
//! While prices and balances stay the same and no time has come, the database is not queried. The times are rows, so a
//! restart loses none, and a process evaluates the waiting orders of all pairs once at its start, because prices may have
//! changed before. Several processes may run this at once: a claim decides which one evaluates an order.
//!
//! Kept by `core/tests/it/older.rs::a_waiting_order_causes_no_query_until_the_price_changes`.

use std::sync::Arc;
use std::time::Duration;

use dvp_domain::liquidity::Market;
use dvp_domain::time::Timestamp;
use dvp_store::database::notify::Notifications;
use dvp_store::orders::legacy;
use dvp_store::workers::Apart;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;

use super::prices::Prices;
use super::strategy::{WINDOW, next_epoch};
use super::{orders, turns_of};
use crate::engine::{Engine, EngineError};

/// The pause after a failure, and while a due order is another process's.
const AGAIN: Duration = Duration::from_millis(100);
/// How often the times in memory are compared with the clock, and a lost notification connection is opened again.
const TICK: Duration = Duration::from_secs(1);
/// How often the rows are read without a reason: another process may have been lost after it changed one.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// What the evaluation has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LegacyFigures {
    /// Statements that looked for orders to evaluate.
    pub queries: u64,
    pub evaluated: u64,
    /// Comparisons of the market in memory.
    pub compared: u64,
}

/// The figures, for tests. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LegacyView(Arc<Mutex<LegacyFigures>>);

impl LegacyView {
    pub fn figures(&self) -> LegacyFigures {
        *self.0.lock()
    }
}

/// Evaluates orders until `stop`.
pub async fn run(engine: Engine, stop: watch::Receiver<bool>) {
    run_with(engine, LegacyView::default(), stop).await;
}

/// The same, and shows what it does.
pub async fn run_with(engine: Engine, view: LegacyView, mut stop: watch::Receiver<bool>) {
    let mut notifications = Notifications::new(engine.pool().clone(), &["dvp_legacy"]);
    notifications.listen().await;
    let mut changes = engine.context().liquidity.changes();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut schedule = Schedule::new(&engine);
    while !*stop.borrow() {
        let stepped = schedule.step().await;
        *view.0.lock() = schedule.figures;
        let wait = stepped.unwrap_or_else(|error| {
            warn!(%error, "legacy orders could not be read, will retry");
            schedule.is_stale = true;
            AGAIN
        });
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = tick.tick() => if !notifications.is_listening() {
                notifications.listen().await;
                schedule.is_stale = true;
            },
            // A lost connection may have lost a notification with it.
            _ = notifications.next() => schedule.is_stale = true,
            changed = changes.changed() => if changed.is_err() { return },
            _ = stop.changed() => {}
        }
    }
}

struct Schedule<'e> {
    engine: &'e Engine,
    orders: Apart,
    prices: Prices,
    woken: Option<Instant>,
    /// Whether the rows may have changed since they were read.
    is_stale: bool,
    read: Instant,
    /// When the first open order is due; `None`: no order is open.
    next_due: Option<Timestamp>,
    figures: LegacyFigures,
}

impl<'e> Schedule<'e> {
    fn new(engine: &'e Engine) -> Self {
        let (prices, figures) = (Prices::default(), LegacyFigures::default());
        let orders = orders(engine);
        Self {
            engine,
            orders,
            prices,
            woken: None,
            is_stale: true,
            read: Instant::now(),
            next_due: None,
            figures,
        }
    }

    /// Evaluates what is due. Returns how long nothing will be due.
    async fn step(&mut self) -> Result<Duration, EngineError> {
        self.wake().await?;
        let is_due = |due: Timestamp| due <= self.engine.now();
        if self.is_stale || self.next_due.is_some_and(is_due) || self.read.elapsed() >= READ_AGAIN {
            self.is_stale = false;
            self.read = Instant::now();
            let evaluated = turns_of(self.engine, &self.orders).await?;
            self.figures.evaluated += u64::try_from(evaluated).unwrap_or(u64::MAX);
            let mut conn = self.engine.pool().acquire().await?;
            // A timestamp has whole milliseconds: the next one.
            let due = legacy::next_due(&mut conn).await?;
            self.next_due = due.map(|due| Timestamp::from(due).plus_millis(1));
            self.figures.queries += 2;
            if self.next_due.is_some_and(|due| due <= self.engine.now()) {
                // The rest of a batch is evaluated now; what cannot be claimed is another process's for a moment.
                return Ok(if evaluated > 0 { Duration::ZERO } else { AGAIN });
            }
        }
        let Some(due) = self.next_due else { return Ok(TICK) };
        let millis = due.millis().saturating_sub(self.engine.now().millis());
        Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)).clamp(AGAIN / 100, TICK))
    }

    /// Makes the waiting orders due whose pair's market has changed, at most once a window.
    async fn wake(&mut self) -> Result<(), EngineError> {
        let window = WINDOW.to_std().unwrap_or_default();
        if self.woken.is_some_and(|woken| woken.elapsed() < window) {
            return Ok(());
        }
        let context = self.engine.context();
        let holdings = context.liquidity.balances().read(self.engine.pool()).await?;
        let snapshot = context.liquidity.snapshot();
        let changed = self.prices.changed(&Market {
            registry: &context.registry,
            snapshot: &snapshot,
            holdings: holdings.as_ref(),
            now: self.engine.now(),
        });
        self.figures.compared += 1;
        // Without an open order there is nothing to wake.
        if changed.is_empty() || (self.next_due.is_none() && !self.is_stale) {
            return Ok(());
        }
        let woken = match self.wake_pairs(&changed, window.as_secs_f64()).await {
            Ok(woken) => woken,
            Err(error) => {
                // Every pair counts as changed at the next attempt.
                self.prices = Prices::default();
                return Err(error);
            }
        };
        self.woken = Some(Instant::now());
        self.is_stale |= woken > 0;
        Ok(())
    }

    async fn wake_pairs(&mut self, pairs: &[(String, String)], window_secs: f64) -> Result<u64, EngineError> {
        self.figures.queries += 1;
        let epoch = next_epoch(self.engine.now().to_utc());
        let mut conn = self.engine.pool().acquire().await?;
        Ok(legacy::wake(&mut conn, pairs, window_secs, epoch).await?)
    }
}
