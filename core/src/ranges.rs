//! Resting range orders: each is filled when the market meets its falling output.
//!
//! ```text
//! accepted, resting (row) ──notified──> book in memory ──price or time──> writer ──> accepted, filled (no row)
//! ```
//!
//! One process, the owner of the lease, has all resting orders in memory; the rows are the truth. It waits for three
//! things: a change of prices or balances, the time at which the first order is met at unchanged prices, and orders that
//! begin or cease to rest. What a look costs depends on the number of groups of equal size and on the orders that are
//! met, not on those that rest. The writer decides each fill under the lock of its order, as it decides a new one, so
//! that two owners at once, a crash and a cancellation cost an attempt and never a second fill. Deadlines are the
//! workflow's.
//!
//! The owner shows the sources that subscribe the demand: pair, number and size of the orders in memory, which are those
//! of committed rows. Their quotes are offers like any others, and a change of prices.

mod attempt;
mod book;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dvp_domain::liquidity::Market;
use dvp_domain::range::demand::Demand;
use dvp_store::lease::LeaseGuard;
use dvp_store::notify::Notifications;
use dvp_store::orders::ranges::{self, Horizon};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};
use uuid::Uuid;

use self::attempt::Attempted;
pub use self::book::BookFigures;
use self::book::{Book, Met, Pair};
use crate::engine::{Engine, EngineError};

const LEASE: &str = "ranges";
const LEASE_TTL: Duration = Duration::from_secs(10);
/// How often a process without the lease asks for it, and the pause after a failure.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often added orders are read without a notification, and the longest wait.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Rows of a page at the start.
const PAGE: i64 = 10_000;
/// Orders of a pair that are handed to the writer at a time.
const AT_ONCE: usize = 256;

/// What the owner of the lease sees of the resting orders, for metrics and tests. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RangesView(Arc<Mutex<View>>);

#[derive(Debug, Clone, Default)]
struct View {
    is_owner: bool,
    figures: BookFigures,
}

impl RangesView {
    /// Whether this process has the resting orders in memory.
    pub fn is_owner(&self) -> bool {
        self.lock().is_owner
    }

    pub fn figures(&self) -> BookFigures {
        self.lock().figures
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, View> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fills resting orders until `stop`, while this process has the lease.
pub async fn run(engine: Engine, stop: watch::Receiver<bool>) {
    run_with(engine, RangesView::default(), stop).await;
}

/// The same, and shows what it does.
pub async fn run_with(engine: Engine, view: RangesView, mut stop: watch::Receiver<bool>) {
    let owner = Uuid::now_v7();
    while !*stop.borrow() {
        match LeaseGuard::try_acquire(engine.pool(), LEASE, owner, LEASE_TTL).await {
            Ok(Some(mut guard)) => {
                let lost = {
                    let owned = own(&engine, &view, stop.clone());
                    tokio::select! {
                        owned = owned => owned.err(),
                        () = guard.keep_until_lost(engine.pool()) => None,
                    }
                };
                view.lock().is_owner = false;
                if let Some(error) = lost {
                    warn!(%error, "resting orders could not be read, will retry");
                }
                guard.release(engine.pool()).await;
            }
            Ok(None) => {}
            Err(error) => warn!(%error, "the lease of resting orders could not be asked for, will retry"),
        }
        tokio::select! {
            () = tokio::time::sleep(ASK_AGAIN) => {}
            _ = stop.changed() => {}
        }
    }
}

/// The book of the owner, and its work in progress.
struct Owner<'e> {
    engine: &'e Engine,
    book: Book,
    since: Horizon,
    /// Met orders by pair that wait for the pair's work in progress.
    waiting: Vec<Met>,
    busy: HashSet<Pair>,
    attempts: JoinSet<(Pair, Vec<(i64, Attempted)>)>,
}

async fn own(engine: &Engine, view: &RangesView, mut stop: watch::Receiver<bool>) -> Result<(), EngineError> {
    let mut notifications = Notifications::new(engine.pool().clone(), &["dvp_ranges"]);
    // Before the first read, so that nothing is missed in between.
    notifications.listen().await;
    let mut owner = Owner::load(engine).await?;
    info!(resting = owner.book.figures().resting, "resting orders loaded");
    let mut changes = engine.context().liquidity.changes();
    let demand = watch::Sender::new(owner.book.demand().clone());
    // Ends with the lease.
    let _subscribers = engine.context().liquidity.show_demand(&demand.subscribe());
    // Of its own, because prices may change more often.
    let mut reading = tokio::time::interval(READ_EVERY);
    reading.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        owner.look().await?;
        owner.begin();
        owner.show(view, &demand);
        let wait = owner.wait();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = reading.tick() => {
                let was_listening = notifications.is_listening();
                notifications.listen().await;
                if notifications.is_listening() && !was_listening {
                    // Which orders ended meanwhile was not notified: the rows are read again.
                    return Ok(());
                }
                owner.read_added().await?;
            }
            notified = notifications.next() => match notified {
                Some(notified) if !notified.payload().is_empty() => {
                    for reference in notified.payload().split('\n') {
                        owner.book.remove(reference);
                    }
                }
                Some(_) | None => owner.read_added().await?,
            },
            changed = changes.changed() => if changed.is_err() { return Ok(()) },
            Some(done) = owner.attempts.join_next() => {
                if let Ok((pair, attempted)) = done {
                    owner.busy.remove(&pair);
                    owner.end(attempted);
                }
            }
            _ = stop.changed() => {}
        }
    }
    Ok(())
}

impl<'e> Owner<'e> {
    async fn load(engine: &'e Engine) -> Result<Self, EngineError> {
        let mut conn = engine.pool().acquire().await?;
        let since = ranges::horizon(&mut conn).await?;
        let mut book = Book::default();
        let mut after = 0;
        loop {
            let page = ranges::list(&mut conn, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for resting in page {
                book.add(&engine.context().registry, resting);
            }
        }
        let (waiting, busy, attempts) = (Vec::new(), HashSet::new(), JoinSet::new());
        Ok(Self { engine, book, since, waiting, busy, attempts })
    }

    /// Takes in the orders that began to rest.
    async fn read_added(&mut self) -> Result<(), EngineError> {
        let mut conn = self.engine.pool().acquire().await?;
        let since = ranges::horizon(&mut conn).await?;
        for resting in ranges::list_added(&mut conn, &self.since).await? {
            self.book.add(&self.engine.context().registry, resting);
        }
        self.since = since;
        Ok(())
    }

    /// Finds the orders that the market meets.
    async fn look(&mut self) -> Result<(), EngineError> {
        let context = self.engine.context();
        let holdings = context.liquidity.balances().read(self.engine.pool()).await?;
        let snapshot = context.liquidity.snapshot();
        let now = self.engine.now();
        let market =
            Market { registry: &context.registry, snapshot: &snapshot, holdings: holdings.as_ref(), now };
        let before = self.book.figures().tested;
        self.waiting.extend(self.book.met(&market));
        counter!("dvp_ranges_tested_total").increment(self.book.figures().tested.saturating_sub(before));
        Ok(())
    }

    /// Hands met orders to the writer, those of a pair after each other.
    fn begin(&mut self) {
        let mut of_pairs: Vec<(Pair, Vec<Met>)> = Vec::new();
        for met in std::mem::take(&mut self.waiting) {
            let of_pair = of_pairs.iter_mut().find(|(pair, _)| *pair == met.pair);
            match of_pair {
                _ if self.busy.contains(&met.pair) => self.waiting.push(met),
                Some((_, orders)) if orders.len() < AT_ONCE => orders.push(met),
                Some(_) => self.waiting.push(met),
                None => of_pairs.push((met.pair.clone(), vec![met])),
            }
        }
        for (pair, orders) in of_pairs {
            self.busy.insert(pair.clone());
            let engine = self.engine.clone();
            self.attempts.spawn(async move { (pair, attempt::fill(&engine, orders).await) });
        }
    }

    fn end(&mut self, attempted: Vec<(i64, Attempted)>) {
        let now = self.engine.now();
        for (number, how) in attempted {
            counter!("dvp_ranges_attempts_total", "result" => how.as_str()).increment(1);
            match how {
                Attempted::Ended(reference) => self.book.remove(&reference),
                Attempted::Missed => self.book.missed(number, now),
                Attempted::Postponed(_) => self.book.postpone(number, now),
            }
        }
    }

    fn show(&self, view: &RangesView, demand: &watch::Sender<Demand>) {
        let figures = self.book.figures();
        gauge!("dvp_ranges_resting").set(u32::try_from(figures.resting).unwrap_or(u32::MAX));
        *view.lock() = View { is_owner: true, figures };
        demand.send_if_modified(|shown| {
            let is_new = shown != self.book.demand();
            if is_new {
                shown.clone_from(self.book.demand());
            }
            is_new
        });
    }

    fn wait(&self) -> Duration {
        let Some(due) = self.book.next_due() else { return READ_EVERY };
        let millis = due.millis().saturating_sub(self.engine.now().millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0).max(1)).min(READ_EVERY)
    }
}
