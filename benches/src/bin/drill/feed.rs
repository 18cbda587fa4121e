//! A reader pages through the feed while sixteen writers commit, some of them slowly: every event once, in order.
//!
//! The same with two processes: half the writers are this program started again.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_benches::harness::DurableHarness;
use dvp_domain::event::EventType;
use dvp_store::insert_batch::{self, AppendBatch};
use dvp_store::orders::events::{self, EventFilter, NewEvent};
use dvp_store::orders::intents::Tenant;
use dvp_store::{PgPool, StoreError};
use futures_util::future::try_join_all;
use serde_json::json;

use crate::Seeds;

const WRITERS: u64 = 16;
/// Transactions of each writer.
const COMMITS: u64 = 60;
const PAGE: i64 = 100;
/// A reader without a new event for this time has missed one.
const PATIENCE: Duration = Duration::from_secs(30);

/// The second process's parameters: database, partner, writers and seed.
const WRITER_ENV: &str = "DVP_DRILL_FEED_WRITER";

pub(crate) async fn run(seeds: Seeds) -> anyhow::Result<bool> {
    if let Ok(params) = std::env::var(WRITER_ENV) {
        return second_process(&params).await;
    }
    let mut broken = Vec::new();
    let (started, mut seen) = (Instant::now(), 0_u64);
    for seed in seeds.seed..seeds.seed.saturating_add(seeds.count) {
        for processes in [1, 2] {
            match one(seed, processes).await {
                Ok(events) => seen = seen.saturating_add(events),
                Err(error) => broken.push(format!("seed {seed}, {processes} processes: {error:#}")),
            }
        }
    }
    let mut out = std::io::stdout().lock();
    if seeds.json {
        let value = json!({
            "drill": "feed", "seeds": seeds.count, "events": seen, "broken": broken,
            "seconds": started.elapsed().as_secs(),
        });
        writeln!(out, "{value}")?;
    } else {
        writeln!(out, "{seen} events, each seen once and in order; {} promises broken", broken.len())?;
        for line in &broken {
            writeln!(out, "{line}")?;
        }
    }
    Ok(broken.is_empty())
}

/// Returns how many events the reader saw.
async fn one(seed: u64, processes: u64) -> anyhow::Result<u64> {
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let here = WRITERS / processes;
    let mut others = Vec::new();
    for process in 1..processes {
        let params = json!({
            "url": harness.database.postgres.url(), "partner": harness.tenant.partner_id, "seed": seed,
            "first": process * here, "count": here,
        });
        let child = tokio::process::Command::new(std::env::current_exe()?)
            .arg("feed")
            .env(WRITER_ENV, params.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        others.push(child);
    }
    let expected = WRITERS.saturating_mul(COMMITS);
    let writing = write_all(harness.pool(), &harness.tenant, seed, 0..here);
    let (written, read) = tokio::join!(writing, read(harness.pool(), &harness.tenant, expected));
    written?;
    for mut other in others {
        ensure!(other.wait().await?.success(), "the other process failed");
    }
    let events = read?;
    harness.stop().await?;
    Ok(events)
}

async fn second_process(params: &str) -> anyhow::Result<bool> {
    let params: serde_json::Value = serde_json::from_str(params)?;
    let number = |name: &str| params[name].as_u64().context("a number");
    let tenant =
        Tenant { partner_id: params["partner"].as_str().context("partner")?.to_owned(), livemode: false };
    let pool = PgPool::connect(params["url"].as_str().context("url")?).await?;
    let first = number("first")?;
    write_all(&pool, &tenant, number("seed")?, first..first.saturating_add(number("count")?)).await?;
    Ok(true)
}

async fn write_all(
    pool: &PgPool,
    tenant: &Tenant,
    seed: u64,
    writers: std::ops::Range<u64>,
) -> anyhow::Result<()> {
    try_join_all(writers.map(|writer| write(pool, tenant, seed, writer))).await?;
    Ok(())
}

/// One writer: transactions of one event each. Some dawdle before the event, some between it and the commit, some
/// give up.
async fn write(pool: &PgPool, tenant: &Tenant, seed: u64, writer: u64) -> Result<(), StoreError> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ writer);
    for commit in 0..COMMITS {
        for attempt in [true, false] {
            let gives_up = attempt && dice.roll(10) == 0;
            let mut tx = pool.begin().await?;
            if dice.roll(8) == 0 {
                sqlx::query("select 1").execute(&mut *tx).await?;
                tokio::time::sleep(Duration::from_millis(dice.roll(20))).await;
            }
            let events = [event(tenant, writer, commit)];
            insert_batch::append(&mut tx, &AppendBatch { events: &events, ..AppendBatch::default() }).await?;
            if dice.roll(16) == 0 {
                tokio::time::sleep(Duration::from_millis(dice.roll(10))).await;
            }
            if gives_up {
                tx.rollback().await?;
                continue;
            }
            tx.commit().await?;
            break;
        }
    }
    Ok(())
}

fn event(tenant: &Tenant, writer: u64, commit: u64) -> NewEvent<String> {
    let at = dvp_core::context::now().to_utc();
    NewEvent {
        event_id: format!("evt_{}", uuid::Uuid::new_v4()),
        tenant: tenant.clone(),
        reference: format!("exe_{writer}"),
        intent_id: format!("intent-{writer}"),
        client_reference: None,
        sequence: i64::try_from(commit).unwrap_or(i64::MAX).saturating_add(1),
        kind: EventType::IntentAccepted,
        occurred_at: at,
        observed_at: at,
        object: "{}".into(),
    }
}

/// Pages as a partner would, and compares the events with the expected ones.
async fn read(pool: &PgPool, tenant: &Tenant, expected: u64) -> anyhow::Result<u64> {
    let (mut after, mut seen, mut last_new) = (0_i64, 0_u64, Instant::now());
    let mut sequences: BTreeMap<String, i64> = BTreeMap::new();
    while seen < expected {
        let filter = EventFilter { after, limit: PAGE, ..EventFilter::default() };
        let page = events::list_for_tenant(&mut *pool.acquire().await?, tenant, &filter).await?;
        for stored in page {
            ensure!(stored.position == after.saturating_add(1), "position {} after {after}", stored.position);
            after = stored.position;
            let last = sequences.entry(stored.event.intent_id.clone()).or_default();
            let sequence = stored.event.sequence;
            ensure!(
                sequence == last.saturating_add(1),
                "{} has {sequence} after {last}",
                stored.event.intent_id
            );
            *last = sequence;
            seen = seen.saturating_add(1);
            last_new = Instant::now();
        }
        ensure!(last_new.elapsed() < PATIENCE, "{seen} of {expected} events were ever seen");
    }
    let filter = EventFilter { after, limit: PAGE, ..EventFilter::default() };
    let more = events::list_for_tenant(&mut *pool.acquire().await?, tenant, &filter).await?;
    ensure!(more.is_empty(), "{} events too many", more.len());
    Ok(seen)
}

/// Numbers that a seed gives again (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
