//! Orders of money for money through their whole life: over REST until the feed has `payout.completed`, over FIX until
//! the report of the fill. Settled by the simulated rails, whose books are in the database, beside a rail in memory,
//! which shows what the service itself costs.

mod rest;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dvp_core::workflow::{self, RailUse};
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};
use dvp_sandbox::embedded::Options;
use dvp_sandbox::rails::SimulatedRails;
use sqlx::PgPool;
use tokio::sync::watch;

use crate::figure::Figure;
use crate::fix_orders::{Gateway, Goal, Measured, PARTS, beside};
use crate::harness::DurableHarness;
use crate::http::Served;
use crate::progress;

/// Orders that are settled before the clock starts, so that plans and caches exist on every connection.
const WARM_UP: usize = 2_000;
/// The same over FIX.
const WARM_UP_SECONDS: u64 = 3;
/// Rounds of autovacuum are as far apart as PostgreSQL has them, and not 5 s as in a sandbox, where they gather a new
/// database's statistics: here `analyze` does, before the clock starts.
const SETTINGS: [&str; 2] = ["shared_preload_libraries=pg_stat_statements", "autovacuum_naptime=60s"];
/// Unsettled orders of the callers of REST.
const REST_WINDOW: usize = 64;

/// Measures each part for `seconds` with each rail. The floor of a figure is the one with the rail in memory.
pub async fn measure(seconds: u64) -> anyhow::Result<Vec<Figure>> {
    progress::expect(2 * 6);
    let floor = settled_by(|_| Arc::new(MemoryRail::default()), seconds).await?;
    let ours = settled_by(|harness| Arc::new(SimulatedRails::new(harness.pool().clone())), seconds).await?;
    let over_fix = PARTS.iter().map(|part| (format!("fiat orders over FIX, {}", part.name), part.window));
    let names = std::iter::once(("fiat orders over REST".to_owned(), REST_WINDOW)).chain(over_fix);
    let mut figures = Vec::new();
    for (((of, window), ours), floor) in names.zip(ours).zip(floor) {
        figures.extend(beside(&of, &format!(", {window} unsettled"), ours.measured, floor.measured));
        let name = format!("{of}, statements");
        figures.push(Figure::new(name, ours.statements, "statements/1000 orders", floor.statements));
        let name = format!("{of}, write-ahead log");
        figures.push(Figure::new(name, ours.wal_bytes, "bytes/order", floor.wal_bytes));
    }
    Ok(figures)
}

/// A part with one of the rails.
#[derive(Clone, Copy, Default)]
struct Settled {
    measured: Measured,
    /// Of 1,000 orders.
    statements: u64,
    wal_bytes: u64,
}

async fn settled_by(
    rail: fn(&DurableHarness) -> Arc<dyn Rail>,
    seconds: u64,
) -> anyhow::Result<[Settled; 3]> {
    let dir = tempfile::tempdir()?;
    let settings = SETTINGS.map(str::to_owned).to_vec();
    let harness =
        DurableHarness::start_for_fiat_under(dir.path(), Options { settings, ..Options::default() }).await?;
    let pool = harness.pool();
    sqlx::query("create extension if not exists pg_stat_statements").execute(pool).await?;
    let (rail, stop) = (rail(&harness), watch::Sender::new(false));
    let (offramp, payout) = (RailUse::of(rail.clone()), RailUse::of(rail));
    let settled = tokio::spawn(workflow::run(harness.engine.clone(), offramp, payout, stop.subscribe()));
    let served = Served::start(&harness).await?;
    let mut all = [Settled::default(); 3];

    let mut follower = rest::Follower::connect(&served).await?;
    follower.settle(&harness, REST_WINDOW, (WARM_UP, Duration::MAX)).await?;
    begin_part(pool).await?;
    let until = (usize::try_from(seconds)? * rest::ORDERS_A_SECOND, Duration::from_secs(seconds));
    let (orders, measured) = follower.settle(&harness, REST_WINDOW, until).await?;
    all[0] = end_part(pool, orders, measured).await?;
    served.stop.cancel();

    // Not before: its sessions read the feed of all the partner's orders.
    let gateway = Gateway::start(&harness, true).await?;
    for (part, settled) in PARTS.iter().zip(&mut all[1..]) {
        gateway.drive(part.sessions, part.window, WARM_UP_SECONDS, Goal::Filled).await?;
        begin_part(pool).await?;
        let (cost, latencies) = gateway.drive(part.sessions, part.window, seconds, Goal::Filled).await?;
        *settled = end_part(pool, latencies.len(), cost).await?;
    }
    gateway.stop().await?;
    stop.send_replace(true);
    settled.await?;
    harness.stop().await?;
    Ok(all)
}

/// Gathers the planner's statistics, and counts statements anew.
async fn begin_part(pool: &PgPool) -> anyhow::Result<()> {
    sqlx::query("analyze").execute(pool).await?;
    sqlx::query("select pg_stat_statements_reset()").execute(pool).await?;
    Ok(())
}

async fn end_part(pool: &PgPool, orders: usize, measured: Measured) -> anyhow::Result<Settled> {
    let sums = "select sum(calls)::int8, sum(wal_bytes)::int8 from pg_stat_statements";
    let (calls, wal_bytes): (i64, i64) = sqlx::query_as(sums).fetch_one(pool).await?;
    let orders = u64::try_from(orders)?.max(1);
    let [statements, wal_bytes] = [calls.unsigned_abs().saturating_mul(1000), wal_bytes.unsigned_abs()];
    Ok(Settled { measured, statements: statements / orders, wal_bytes: wal_bytes / orders })
}

/// A rail whose books are in memory: it converts and pays at once. What was paid is by reference.
/// A repeated call is answered as the first.
#[derive(Debug, Default)]
struct MemoryRail {
    books: Mutex<HashMap<String, LegDone>>,
}

impl Rail for MemoryRail {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async {
            let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
            let done = books.entry(request.reference.clone()).or_insert_with(|| LegDone {
                provider_reference: format!("MEM-{}", request.reference),
                occurred_at: dvp_core::context::now(),
            });
            Ok(RailAnswer::Done(done.clone()))
        })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async {
            let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
            let done = books.get(&request.reference).cloned();
            Ok(done.map_or(RailStatus::NeverSeen, |done| RailStatus::Known(RailAnswer::Done(done))))
        })
    }
}
