//! What work costs over a history of ten thousand orders and over a large one: the time of each kind over the large
//! history may be 1.3 times that over the small one.

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use dvp_core::ledger::statements::{TimeRange, parse_account, read_page};
use dvp_core::workflow::ledger_check;
use dvp_core::workflow::retention::{self, Ages};
use dvp_domain::event::EventType;
use dvp_store::ledger::check::Compared;
use dvp_store::orders::events::{EventFilter, list_for_tenant};
use dvp_store::orders::executions::RefType;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::figure::{Figures, decimal, within};
use crate::harness::{DurableHarness, fiat_order};
use crate::history::{self, HistorySize};
use crate::interfaces::{self, Reads};
use crate::progress;
use crate::screens;

const FEW: i64 = 10_000;
/// Orders of which each is settled before the next one.
const ORDERS: usize = 30;
const READS: usize = 200;
const JOBS: usize = 9;
/// After half of them every connection has planned a page's statements for good.
const PAGES: usize = 24;
/// Kinds of work beside the screens, and the warm-up.
const MEDIANS: u64 = 16;

/// How much longer work may take over the large history, in hundredths.
const BOUND: u128 = 130;
/// A smaller difference is none: a request on a machine that does other things, too, varies by as much.
const NOISE: Duration = Duration::from_millis(1);

/// The time within which ninety-five of a hundred requests for any screen are answered.
const GOAL: Duration = Duration::from_millis(200);

/// A kind of work over one history.
#[derive(Debug, Clone)]
struct Cost {
    name: String,
    time: Duration,
    /// Of a screen: what ninety-five of a hundred requests take at most.
    p95: Option<Duration>,
    /// It reads as many rows as its range has orders, such as an export: it is measured and not judged.
    reads_its_range: bool,
}

impl Cost {
    fn of(name: &str, time: Duration) -> Self {
        Self { name: name.to_owned(), time, p95: None, reads_its_range: false }
    }

    fn is_too_long(&self, few: &Self) -> bool {
        let is_longer = self.time.as_nanos().saturating_mul(100) > few.time.as_nanos().saturating_mul(BOUND);
        let is_longer = is_longer && self.time.saturating_sub(few.time) > NOISE;
        !self.reads_its_range && (is_longer || self.p95 > Some(GOAL))
    }

    fn json(&self, few: &Self) -> Value {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let ratio = nanos(self.time).saturating_mul(1000).checked_div(nanos(few.time)).unwrap_or(u64::MAX);
        json!({
            "name": self.name, "few_ns": nanos(few.time), "many_ns": nanos(self.time), "ratio": decimal(ratio),
            "p95_ns": self.p95.map(nanos), "is_judged": !self.reads_its_range,
            "within": !self.is_too_long(few),
        })
    }
}

/// Measures over both histories. They are kept in `dir`, where one is given.
pub async fn measure(dir: Option<&Path>, orders: i64) -> anyhow::Result<Figures> {
    progress::expect(2 * MEDIANS);
    let temporary = tempfile::tempdir()?;
    let dir = dir.unwrap_or_else(|| temporary.path());
    let few = costs(&dir.join("few"), FEW).await?;
    let many = costs(&dir.join("many"), orders).await?;
    let has_both = few.iter().map(|one| &one.name).eq(many.iter().map(|one| &one.name));
    ensure!(has_both, "the histories have other screens");
    let both = || few.iter().zip(&many);
    let long: Vec<&str> =
        both().filter(|(few, many)| many.is_too_long(few)).map(|(_, many)| many.name.as_str()).collect();
    let missed = match long.len() {
        0 => String::new(),
        count => format!("{count} of {} take too long: {}", many.len(), long.join("; ")),
    };
    Ok(Figures { lines: both().map(|(few, many)| many.json(few)).collect(), missed })
}

/// The median of each kind of work, and the first quartile of each screen.
async fn costs(dir: &Path, orders: i64) -> anyhow::Result<Vec<Cost>> {
    let harness = history::open(dir, HistorySize::of(orders), &[history::MEMORY]).await?;
    // A history that was just filled is written to the disk now, and not while the work is timed.
    sqlx::raw_sql("checkpoint").execute(harness.pool()).await?;
    let workers = harness.start_workers();
    // A warm-up: the first orders and statuses read from the disk what later ones find in memory.
    median(ORDERS, || order(&harness)).await?;
    status(&harness).await?;
    let mut costs = vec![
        Cost::of("an order, to its end", median(ORDERS, || order(&harness)).await?),
        Cost::of("a status", status(&harness).await?),
        Cost::of("a page of the feed", feed_page(&harness).await?),
        Cost::of("a page of a statement", statement_page(&harness).await?),
    ];
    workers.abort();
    let whole = median(JOBS, || interfaces::reconcile(harness.pool(), Reads::Whole)).await?;
    let whole = Cost::of("what a comparison reads once a day, the whole history", whole);
    costs.push(Cost { reads_its_range: true, ..whole });
    let since = median(JOBS, || interfaces::reconcile(harness.pool(), Reads::Since)).await?;
    costs.push(Cost::of("a comparison's reads since the last one", since));
    let checked = async |compared| {
        median(JOBS, || async {
            ledger_check::check(&harness.engine, compared).await?;
            Ok(())
        })
        .await
    };
    // In an hour the large history has as many times more entries as it has orders.
    for (name, compared) in [
        ("a check of the ledger, the entries since the last closed hour", Compared::SinceClosing),
        ("a check of the ledger once a day, all entries", Compared::Whole),
    ] {
        costs.push(Cost { reads_its_range: true, ..Cost::of(name, checked(compared).await?) });
    }
    let round = || async {
        retention::round(harness.pool(), &Ages::default()).await;
        Ok(())
    };
    round().await?;
    costs.push(Cost::of("a round of retention, with nothing to delete", median(JOBS, round).await?));
    let rendered = screens::render(&harness, PAGES).await?;
    costs.extend(rendered.iter().zip(1..).map(|(page, n)| Cost {
        // Addresses have ids of orders, which the histories do not share.
        name: format!("screen {n}, {}", page.screen.route),
        // Other work on the machine delays some of the rounds; a quarter of them show what the page itself takes.
        time: page.within(25),
        p95: Some(page.within(95)),
        reads_its_range: page.is_export(),
    }));
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
    progress::done(format!("{rounds} rounds"));
    Ok(within(&times, 50))
}

async fn order(harness: &DurableHarness) -> anyhow::Result<()> {
    let reference = harness.accept(fiat_order()).await.reference;
    harness.wait_for_state(&reference, "completed").await;
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

/// The slowest of the pages at the beginning, in the middle and at the end of the feed, and with a filter for a rare type.
async fn feed_page(harness: &DurableHarness) -> anyhow::Result<Duration> {
    let (first, last): (i64, i64) = harness.row("select min(position), max(position) from event").await;
    let (before, rare) = (first - 1, Some(EventType::PayoutReversed));
    let mut slowest = Duration::ZERO;
    for (after, kind) in [(before, None), ((first + last) / 2, None), (last, None), (before, rare)] {
        let page = median(READS, || async {
            let mut conn = harness.pool().acquire().await?;
            let filter = EventFilter { after, kind, limit: 100, ..EventFilter::default() };
            list_for_tenant(&mut conn, &harness.tenant, &filter).await?;
            Ok(())
        });
        slowest = slowest.max(page.await?);
    }
    Ok(slowest)
}

/// The first page of a day (UTC) of a busy account.
async fn statement_page(harness: &DurableHarness) -> anyhow::Result<Duration> {
    let account = parse_account("provider:north:available").ok_or_else(|| anyhow::anyhow!("no account"))?;
    let day = chrono::Utc::now() - chrono::TimeDelta::days(12);
    let from = day.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
    let range = TimeRange { from, to: from + chrono::TimeDelta::days(1) };
    median(READS, || async {
        let mut conn = harness.pool().acquire().await?;
        read_page(&mut conn, &account, "USD", range, None, 100).await?;
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_longer_than_its_bound_or_goal_is_named_and_noise_and_exports_are_not() {
        let cost = |micros| Cost::of("a status", Duration::from_micros(micros));
        let is_too_long = |few, many| cost(many).is_too_long(&cost(few));
        assert!(!is_too_long(10_000, 13_000));
        assert!(is_too_long(10_000, 13_001));
        assert!(!is_too_long(300, 1_300));
        assert!(is_too_long(300, 1_301));
        let slow = Cost { p95: Some(GOAL + NOISE), ..cost(10_000) };
        assert!(slow.is_too_long(&cost(10_000)));
        assert!(!Cost { reads_its_range: true, ..slow }.is_too_long(&cost(1)));
        assert_eq!(cost(13_060).json(&cost(10_000))["ratio"].to_string(), "1.306");
    }
}
