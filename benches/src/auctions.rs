//! Resting range orders: what they cost in memory, what a price change and a restart cost with many of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::engine::Engine;
use dvp_core::liquidity::{ConfiguredProvider, Liquidity, LiquiditySource};
use dvp_core::ranges::{self, RangesView};
use dvp_core::writer::Outcome;
use dvp_domain::intent::IntentRequest;
use dvp_store::orders::ranges::RESTING_MAX;
use dvp_testing::market::{Price, north};
use dvp_testing::orders::{ranged, submit};
use futures_util::stream::{StreamExt as _, TryStreamExt as _, iter};
use rust_decimal::Decimal;
use tokio::sync::watch;

use crate::figure::{Figure, per_second};
use crate::harness::{DurableHarness, fiat_order};
use crate::proc::Vitals;
use crate::progress;

/// Long enough that nothing is met by time while it is measured.
const LIFETIME_MS: i64 = 24 * 3_600_000;
const QUIET_CHANGES: u32 = 50;
/// Orders that the last price change reaches.
const REACHED: u128 = 100;

pub async fn measure(orders: usize, concurrency: usize) -> anyhow::Result<Vec<Figure>> {
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start_for_fiat(dir.path()).await?;
    let price = Price::of("USD", "EUR", "0.92");
    let liquidity = |price: &Price| {
        let provider: Arc<dyn LiquiditySource> = Arc::new(ConfiguredProvider::new(north()));
        Liquidity::new(harness.market.registry.clone(), vec![provider], vec![Arc::new(price.clone())])
    };
    let engine = harness.engine_with(liquidity(&price));
    let accepted = submit_all(&harness, &engine, orders, concurrency).await?;
    let next = harness.engine_with(liquidity(&price));
    let restarted = Restarted::after(&next, orders).await?;
    let [rest, load, memory] = [
        Figure::new("auctions_accept", accepted, "orders/s", accepted),
        Figure::new("auctions_load", restarted.per_second, "orders/s", restarted.floor),
        Figure::new("auctions_memory", restarted.bytes, "bytes/order", 512),
    ];
    let quiet = restarted.quiet_changes(&next, &price).await?;
    let reached = restarted.change_that_reaches(&next, &price).await?;
    restarted.stop.send_replace(true);
    drop((engine, next));
    harness.stop().await?;
    Ok(vec![rest, load, memory, quiet, reached])
}

/// 100 USD for euros: 91.81 at a reference price of 0.92, which fall from more than that by a cent in hours.
fn falling(number: usize) -> IntentRequest {
    ranged(fiat_order(), 9_140 + u128::try_from(number).unwrap_or(0), 9_000, LIFETIME_MS)
}

/// Orders accepted a second. A tenant's orders are so many at most, so those that rest are made others' meanwhile.
async fn submit_all(
    harness: &DurableHarness,
    engine: &Engine,
    orders: usize,
    concurrency: usize,
) -> anyhow::Result<u64> {
    let (mut took, each) = (Duration::ZERO, usize::try_from(RESTING_MAX)?);
    progress::expect(u64::try_from(orders.div_ceil(each))? + 2);
    for from in (0..orders).step_by(each) {
        let until = orders.min(from.saturating_add(each));
        let began = Instant::now();
        submit_some(harness, engine, from..until, concurrency).await?;
        took = took.saturating_add(began.elapsed());
        progress::done(format!("{until} of {orders} orders rest"));
        sqlx::query("update resting_range set partner_id = 'others'").execute(harness.pool()).await?;
    }
    let resting = harness.count("select count(*) from resting_range").await;
    anyhow::ensure!(usize::try_from(resting)? == orders, "{resting} of {orders} rest");
    Ok(per_second(orders, took))
}

async fn submit_some(
    harness: &DurableHarness,
    engine: &Engine,
    orders: Range<usize>,
    concurrency: usize,
) -> anyhow::Result<()> {
    iter(orders)
        .map(|number| async move {
            match submit(engine, &harness.tenant, falling(number)).await? {
                Outcome::Accepted(_) => Ok(()),
                other => Err(anyhow::anyhow!("not accepted: {other:?}")),
            }
        })
        .buffer_unordered(concurrency)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// A process that has just loaded the resting orders.
struct Restarted {
    view: RangesView,
    stop: watch::Sender<bool>,
    per_second: u64,
    /// Rows read a second, and nothing done with them.
    floor: u64,
    bytes: u64,
}

impl Restarted {
    async fn after(engine: &Engine, orders: usize) -> anyhow::Result<Self> {
        let began = Instant::now();
        let mut conn = engine.pool().acquire().await?;
        let mut after = 0;
        while let Some(last) = dvp_store::orders::ranges::list(&mut conn, after, 10_000).await?.last() {
            after = last.as_ref().map_or_else(|unreadable| unreadable.number, |resting| resting.number);
        }
        drop(conn);
        let floor = per_second(orders, began.elapsed());
        let before = Vitals::of(std::process::id())?.resident_bytes;
        let (view, stop) = (RangesView::default(), watch::Sender::new(false));
        let began = Instant::now();
        tokio::spawn(ranges::run_with(engine.clone(), view.clone(), stop.subscribe()));
        wait("the restart", || view.figures().resting == orders).await?;
        let per_second = per_second(orders, began.elapsed());
        let after = Vitals::of(std::process::id())?.resident_bytes;
        let bytes = after.saturating_sub(before) / u64::try_from(orders.max(1))?;
        Ok(Self { view, stop, per_second, floor, bytes })
    }

    /// Microseconds of a look after a price change that reaches nobody; the floor is the number of orders it tested, which
    /// must be none.
    async fn quiet_changes(&self, engine: &Engine, price: &Price) -> anyhow::Result<Figure> {
        let before = self.view.figures();
        let began = Instant::now();
        for change in 0..QUIET_CHANGES {
            let seen = self.view.figures().prices;
            price.set(engine, ["0.9199", "0.9198"][usize::try_from(change % 2)?]);
            wait("a look", || self.view.figures().prices > seen).await?;
        }
        let micros = began.elapsed().as_micros() / u128::from(QUIET_CHANGES);
        let tested = self.view.figures().tested.saturating_sub(before.tested);
        anyhow::ensure!(tested == 0, "{tested} orders were looked at, and none was reached");
        progress::done("price changes that reach none");
        Ok(Figure::new("auctions_quiet_change", u64::try_from(micros)?, "us", 1))
    }

    /// Orders that a price change looks at, beside those that it fills.
    async fn change_that_reaches(&self, engine: &Engine, price: &Price) -> anyhow::Result<Figure> {
        let before = self.view.figures();
        // North gives 0.999 of the price for 99.95 USD, and half a euro is the payout fee.
        let wanted = Decimal::from(9_140 + REACHED) + Decimal::from(50);
        price.set(engine, &(wanted / Decimal::new(9_995, 0) / Decimal::new(999, 3)).to_string());
        wait("the fills", || self.view.figures().resting < before.resting).await?;
        let mut last = self.view.figures();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let figures = self.view.figures();
            if figures == last {
                break;
            }
            last = figures;
        }
        let tested = last.tested.saturating_sub(before.tested);
        let filled = u64::try_from(before.resting.saturating_sub(last.resting))?;
        Ok(Figure::new("auctions_reached", tested, "orders tested", filled))
    }
}

async fn wait(what: &'static str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so() {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(300), "waited too long for {what}");
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    Ok(())
}
