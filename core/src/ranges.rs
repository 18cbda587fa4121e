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
//! The owner also fills the orders of a chain's coin whose deposit has come (`deposits.rs`), and those that a restored
//! database has forgotten to have filled (`forgotten.rs`), before any other of their chain.
//!
//! Amounts may become free at unchanged prices: an order whose price was reached and that the market does not meet is
//! tested again after 1 s, then less often, up to 30 s; so is one that a control keeps from its fill.
//!
//! Kept by `core/src/ranges/book/tests.rs::unchanged_prices_and_falling_ones_test_no_order` and
//! `core/tests/it/ranges.rs::several_writers_fill_an_order_once`.

mod attempt;
mod book;
mod deposits;
mod forgotten;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dvp_domain::liquidity::Market;
use dvp_store::database::lease::LeaseGuard;
use dvp_store::database::notify::Notifications;
use dvp_store::orders::ranges::{self, Horizon, RestingRange, UnreadableRange};
use dvp_store::workers::{Items, Worker};
use metrics::{counter, gauge};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};
use uuid::Uuid;

use self::attempt::Attempted;
pub use self::book::BookFigures;
use self::book::{Book, Met, Pair};
pub(crate) use self::forgotten::fill_as_found;
use crate::engine::{Engine, EngineError};

const LEASE: &str = "ranges";
const LEASE_TTL: Duration = Duration::from_secs(10);
/// How often a process without the lease asks for it, and the pause after a failure.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often added orders are read without a notification, and the longest wait.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Rows of a page at the start.
const PAGE: i64 = 10_000;
/// The longest time for orders that are filled together.
const FILL_MAX: Duration = Duration::from_secs(20);
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
        self.0.lock().is_owner
    }

    pub fn figures(&self) -> BookFigures {
        self.0.lock().figures
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
                    forgotten::begin(&engine).await;
                    let owned = own(&engine, &view, stop.clone());
                    tokio::select! {
                        owned = owned => owned.err(),
                        () = deposits::run(&engine) => None,
                        () = forgotten::run(&engine) => None,
                        () = guard.keep_until_lost(engine.pool()) => None,
                    }
                };
                view.0.lock().is_owner = false;
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

/// What became of the attempts of a pair, by resting order.
type Attempts = (Option<Pair>, Vec<(i64, Attempted)>);

/// The book of the owner, and its work in progress.
struct Owner<'e> {
    engine: &'e Engine,
    /// The orders that fail.
    items: Items,
    book: Book,
    since: Horizon,
    /// Met orders by pair that wait for the pair's work in progress.
    waiting: Vec<Met>,
    busy: HashSet<Pair>,
    attempts: JoinSet<Attempts>,
}

/// Adds an order to the book. One whose row cannot be read is set aside.
async fn add(
    engine: &Engine,
    items: &Items,
    book: &mut Book,
    resting: Result<RestingRange, UnreadableRange>,
) {
    match resting {
        Ok(resting) => book.add(&engine.context().registry, resting),
        Err(UnreadableRange { reference, error, .. }) => {
            items.note(&reference, &reference, Err(error.to_string())).await;
        }
    }
}

async fn own(engine: &Engine, view: &RangesView, mut stop: watch::Receiver<bool>) -> Result<(), EngineError> {
    let mut notifications = Notifications::new(engine.pool().clone(), &["dvp_ranges"]);
    // Before the first read, so that nothing is missed in between.
    notifications.listen().await;
    let mut owner = Owner::load(engine).await?;
    info!(resting = owner.book.figures().resting, "resting orders loaded");
    let mut changes = engine.context().liquidity.changes();
    // Of its own, because prices may change more often.
    let mut reading = tokio::time::interval(READ_EVERY);
    reading.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        owner.look().await?;
        owner.items.refresh().await;
        owner.begin();
        owner.show(view);
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
                match done {
                    Ok((pair, attempted)) => {
                        if let Some(pair) = pair {
                            owner.busy.remove(&pair);
                        }
                        owner.end(attempted);
                    }
                    // Attempts are contained. Were it otherwise, which pair is free is not known: all is read again.
                    Err(error) => {
                        error!(%error, "task of resting orders failed, reading them again");
                        return Ok(());
                    }
                }
            }
            _ = stop.changed() => {}
        }
    }
    Ok(())
}

impl<'e> Owner<'e> {
    async fn load(engine: &'e Engine) -> Result<Self, EngineError> {
        let items = Items::new(engine.pool().clone(), Worker::Ranges, FILL_MAX);
        let mut conn = engine.pool().acquire().await?;
        let since = ranges::horizon(&mut conn).await?;
        let mut book = Book::default();
        let mut after = 0;
        loop {
            let page = ranges::list(&mut conn, after, PAGE).await?;
            if page.is_empty() {
                break;
            }
            for resting in page {
                after =
                    resting.as_ref().map_or_else(|unreadable| unreadable.number, |resting| resting.number);
                add(engine, &items, &mut book, resting).await;
            }
        }
        let (waiting, busy, attempts) = (Vec::new(), HashSet::new(), JoinSet::new());
        Ok(Self { engine, items, book, since, waiting, busy, attempts })
    }

    /// Takes in the orders that began to rest.
    async fn read_added(&mut self) -> Result<(), EngineError> {
        let mut conn = self.engine.pool().acquire().await?;
        let since = ranges::horizon(&mut conn).await?;
        for resting in ranges::list_added(&mut conn, &self.since).await? {
            add(self.engine, &self.items, &mut self.book, resting).await;
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

    /// Hands met orders to the writer, those of a pair after each other. One that failed is tried beside them.
    fn begin(&mut self) {
        let mut of_pairs: Vec<(Pair, Vec<Met>)> = Vec::new();
        for met in std::mem::take(&mut self.waiting) {
            if self.items.is_set_aside(&met.reference) {
                let (engine, items) = (self.engine.clone(), self.items.clone());
                self.attempts.spawn(async move { (None, attempt::fill(&engine, &items, vec![met]).await) });
                continue;
            }
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
            let (engine, items) = (self.engine.clone(), self.items.clone());
            self.attempts.spawn(async move { (Some(pair), attempt::fill(&engine, &items, orders).await) });
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

    fn show(&self, view: &RangesView) {
        let figures = self.book.figures();
        gauge!("dvp_ranges_resting").set(u32::try_from(figures.resting).unwrap_or(u32::MAX));
        *view.0.lock() = View { is_owner: true, figures };
    }

    fn wait(&self) -> Duration {
        let Some(due) = self.book.next_due() else { return READ_EVERY };
        let millis = due.millis().saturating_sub(self.engine.now().millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0).max(1)).min(READ_EVERY)
    }
}
