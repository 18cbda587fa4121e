//! How long a page of the feed takes with ten thousand events, and with ten million of them: the slowest of the pages
//! at the beginning, in the middle and at the end, with and without filters.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dvp_domain::event::EventType;
use dvp_store::orders::events::{EventFilter, list_for_tenant};

use crate::figure::Figure;
use crate::harness::DurableHarness;

const FEW: i64 = 10_000;
const ROUNDS: usize = 200;
const TURNS: usize = 3;

/// Pages a second with `events` in the feed; the floor is pages a second with ten thousand. The feeds are kept in
/// `dir`, where one is given: filling them takes minutes, measuring them seconds.
pub async fn measure(events: i64, dir: Option<&Path>) -> anyhow::Result<Figure> {
    let temporary = tempfile::tempdir()?;
    let dir = dir.unwrap_or_else(|| temporary.path());
    let (few, many) = (filled(&dir.join("few"), FEW).await?, filled(&dir.join("many"), events).await?);
    // By turns, so that both meet the same machine.
    let (mut few_time, mut many_time) = (Duration::MAX, Duration::MAX);
    for _ in 0..TURNS {
        few_time = few_time.min(page_time(&few, FEW).await?);
        many_time = many_time.min(page_time(&many, events).await?);
    }
    few.stop().await?;
    many.stop().await?;
    let pages = |time: Duration| u64::try_from(1_000_000_000 / time.as_nanos().max(1)).unwrap_or(u64::MAX);
    Ok(Figure { name: "feed-pages", value: pages(many_time), unit: "pages/s", floor: pages(few_time) })
}

/// A harness whose feed has `events` events.
async fn filled(dir: &Path, events: i64) -> anyhow::Result<DurableHarness> {
    std::fs::create_dir_all(dir)?;
    let harness = DurableHarness::start(dir).await?;
    let (there,): (i64,) =
        sqlx::query_as("select position from feed_counter").fetch_one(harness.pool()).await?;
    if there < events {
        fill(&harness, there, events).await?;
    }
    Ok(harness)
}

async fn fill(harness: &DurableHarness, from: i64, to: i64) -> anyhow::Result<()> {
    const CHUNK: i64 = 200_000;
    let mut at = from;
    while at < to {
        let until = to.min(at.saturating_add(CHUNK));
        // A tenth of the events is the reader's; one in ten thousand is of a rare type.
        sqlx::query(
            "insert into event (position, event_id, partner_id, livemode, reference, intent_id, sequence, type, \
                                occurred_at, observed_at, object) \
             select n, 'evt_' || n, case when n % 10 = 0 then $3 else 'ptn_' || n % 10 end, false, 'exe_' || n / 5, \
                    'intent-' || n / 5, n % 5 + 1, \
                    case when n % 10000 = 0 then 'payout.failed' else 'intent.accepted' end, \
                    now(), now(), jsonb_build_object('filler', repeat('x', 200)) \
             from generate_series($1::int8 + 1, $2::int8) n",
        )
        .bind(at)
        .bind(until)
        .bind(&harness.tenant.partner_id)
        .execute(harness.pool())
        .await?;
        sqlx::query("update feed_counter set position = $1").bind(until).execute(harness.pool()).await?;
        at = until;
    }
    sqlx::query("vacuum analyze event").execute(harness.pool()).await?;
    Ok(())
}

/// The median of the slowest kind of page.
async fn page_time(harness: &DurableHarness, events: i64) -> anyhow::Result<Duration> {
    let rare = Some(EventType::PayoutFailed);
    let mut slowest = Duration::ZERO;
    let mut conn = harness.pool().acquire().await?;
    for (after, kind) in
        [(0, None), (events / 2, None), (events.saturating_sub(2000), None), (0, rare), (events, None)]
    {
        let filter = EventFilter { after, kind, limit: 100, ..EventFilter::default() };
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let started = Instant::now();
            let page = list_for_tenant(&mut conn, &harness.tenant, &filter).await?;
            times.push(started.elapsed());
            ensure!(after == events || !page.is_empty(), "an empty page after {after}");
        }
        times.sort_unstable();
        slowest = slowest.max(times.get(ROUNDS / 2).copied().unwrap_or_default());
    }
    Ok(slowest)
}
