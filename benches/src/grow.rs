//! What work costs over a history of ten thousand orders and over a large one: the time of each kind over the large
//! history, with the same over the small one as its floor.

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use dvp_core::retention::{self, Ages};
use dvp_core::statements::{TimeRange, parse_account, read_page};
use dvp_store::orders::events::{EventFilter, list_for_tenant};
use dvp_store::orders::executions::RefType;
use dvp_testing::wait::wait_for;

use crate::figure::Figure;
use crate::harness::{DurableHarness, fiat_order};
use crate::history::{self, HistorySize};
use crate::interfaces;
use crate::screens;

const FEW: i64 = 10_000;
/// Orders of which each is settled before the next one.
const ORDERS: usize = 30;
const READS: usize = 200;
const JOBS: usize = 3;
const PAGES: usize = 5;

/// Measures over both histories. They are kept in `dir`, where one is given.
///
/// # Errors
/// Fails when the work does.
pub async fn measure(dir: Option<&Path>, orders: i64) -> anyhow::Result<Vec<Figure>> {
    let temporary = tempfile::tempdir()?;
    let dir = dir.unwrap_or_else(|| temporary.path());
    let few = costs(&dir.join("few"), FEW).await?;
    let many = costs(&dir.join("many"), orders).await?;
    let figures = many.into_iter().zip(few).map(|((name, value), (_, floor))| Figure {
        name,
        value: nanos(value),
        unit: "ns",
        floor: nanos(floor),
    });
    Ok(figures.collect())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The median of each kind of work.
async fn costs(dir: &Path, orders: i64) -> anyhow::Result<Vec<(&'static str, Duration)>> {
    let harness = history::open(dir, HistorySize::of(orders)).await?;
    let workers = harness.start_workers();
    let mut costs = vec![
        ("an order, to its end", median(ORDERS, || order(&harness)).await?),
        ("a status", status(&harness).await?),
        ("a page of the feed", feed_page(&harness).await?),
        ("a page of a statement", statement_page(&harness).await?),
    ];
    workers.abort();
    costs.push(("a comparison's reads", median(JOBS, || interfaces::reconcile(harness.pool())).await?));
    let round = || async {
        retention::round(harness.pool(), &Ages::default()).await;
        Ok(())
    };
    round().await?;
    costs.push(("a round of retention, with nothing to delete", median(JOBS, round).await?));
    let rendered = screens::render(&harness, PAGES).await?;
    costs.push(("the slowest screen", rendered.first().map(|page| page.within(50)).unwrap_or_default()));
    harness.stop().await?;
    Ok(costs)
}

async fn median<F: Future<Output = anyhow::Result<()>>>(
    rounds: usize,
    work: impl Fn() -> F,
) -> anyhow::Result<Duration> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = Instant::now();
        work().await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(rounds / 2).copied().unwrap_or_default())
}

/// An order of money for money, from its submission to `completed`.
async fn order(harness: &DurableHarness) -> anyhow::Result<()> {
    let reference = harness.accept(fiat_order()?).await.reference;
    wait_for("the order's end", || async {
        let state: Result<(String,), _> =
            sqlx::query_as("select state_name from execution where reference = $1")
                .bind(reference.as_str())
                .fetch_one(harness.pool())
                .await;
        state.is_ok_and(|state| state.0 == "completed").then_some(())
    })
    .await;
    Ok(())
}

async fn status(harness: &DurableHarness) -> anyhow::Result<Duration> {
    let references: Vec<(String,)> = sqlx::query_as(
        "select reference from execution where partner_id = $1 and livemode = $2 \
           and accepted_at < now() - interval '3 days' order by accepted_at desc limit $3",
    )
    .bind(&harness.tenant.partner_id)
    .bind(harness.tenant.livemode)
    .bind(i64::try_from(READS)?)
    .fetch_all(harness.pool())
    .await?;
    let next = std::sync::atomic::AtomicUsize::new(0);
    median(references.len(), || async {
        let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Some((reference,)) = references.get(n) {
            harness.engine.execution(&harness.tenant, RefType::ExecutionId, reference).await?;
        }
        Ok(())
    })
    .await
}

/// The page in the middle of the feed.
async fn feed_page(harness: &DurableHarness) -> anyhow::Result<Duration> {
    let (after,): (i64,) = sqlx::query_as("select (min(position) + max(position)) / 2 from event")
        .fetch_one(harness.pool())
        .await?;
    median(READS, || async {
        let mut conn = harness.pool().acquire().await?;
        let filter = EventFilter { after, limit: 100, ..EventFilter::default() };
        list_for_tenant(&mut conn, &harness.tenant, &filter).await?;
        Ok(())
    })
    .await
}

/// The first page of a day of a busy account.
async fn statement_page(harness: &DurableHarness) -> anyhow::Result<Duration> {
    let account = parse_account("provider:north:available").ok_or_else(|| anyhow::anyhow!("no account"))?;
    let from = chrono::Utc::now() - chrono::TimeDelta::days(12);
    let range = TimeRange { from, to: from + chrono::TimeDelta::days(1) };
    median(READS, || async {
        let mut conn = harness.pool().acquire().await?;
        read_page(&mut conn, &account, "USD", range, None, 100).await?;
        Ok(())
    })
    .await
}
