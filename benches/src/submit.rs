//! Durable submissions a second through the engine (all rows, no HTTP), beside durable single-row INSERTs at the
//! same concurrency on the same PostgreSQL.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dvp_core::writer::Outcome;
use dvp_domain::intent::IntentRequest;
use dvp_testing::orders;
use futures_util::future::try_join_all;
use sqlx::{Connection as _, PgConnection};

use crate::figure::{Figure, per_second};
use crate::harness::{DurableHarness, order};
use crate::progress;

/// Orders made beforehand for each second of measuring: more than a machine of ours can take.
pub(crate) const ORDERS_A_SECOND: usize = 20_000;

pub async fn measure(seconds: u64, concurrency: usize) -> anyhow::Result<Figure> {
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let count = usize::try_from(seconds)?.saturating_mul(ORDERS_A_SECOND);
    let orders = tokio::task::spawn_blocking(move || (0..count).map(|_| order()).collect()).await?;
    progress::expect(2);
    let commits = commits(&harness, seconds, concurrency).await?;
    let floor = per_second(commits.len(), Duration::from_secs(seconds));
    progress::done("the floor");
    let value = submissions(&harness, orders, seconds, concurrency).await?;
    harness.stop().await?;
    Ok(Figure::new("submit", value, "orders/s", floor))
}

pub(crate) async fn submissions(
    harness: &DurableHarness,
    orders: Vec<IntentRequest>,
    seconds: u64,
    concurrency: usize,
) -> anyhow::Result<u64> {
    let orders = Arc::new(Mutex::new(orders));
    let started = Instant::now();
    let until = started + Duration::from_secs(seconds);
    let callers = (0..concurrency).map(|_| {
        let (left, engine, tenant) = (Arc::clone(&orders), harness.engine.clone(), harness.tenant.clone());
        tokio::spawn(async move {
            let mut done = 0_usize;
            while Instant::now() < until {
                let next = left.lock().ok().and_then(|mut left| left.pop());
                let Some(request) = next else { anyhow::bail!("the orders made beforehand ran out") };
                let outcome = orders::submit(&engine, &tenant, request).await?;
                anyhow::ensure!(matches!(outcome, Outcome::Accepted(_)), "not accepted: {outcome:?}");
                done = done.saturating_add(1);
            }
            Ok(done)
        })
    });
    let mut done = 0_usize;
    for caller in try_join_all(callers).await? {
        done = done.saturating_add(caller?);
    }
    progress::done(format!("{concurrency} submit to the engine"));
    Ok(per_second(done, started.elapsed()))
}

/// The latencies of durable commits of one row, each caller on a connection of its own: a pool would be part of the
/// figure.
pub(crate) async fn commits(
    harness: &DurableHarness,
    seconds: u64,
    concurrency: usize,
) -> anyhow::Result<Vec<Duration>> {
    sqlx::query("create table if not exists floor (id uuid primary key, body text not null)")
        .execute(harness.pool())
        .await?;
    let body = "x".repeat(1024);
    let options = harness.database.postgres.connect_options();
    let connections = (0..concurrency).map(|_| PgConnection::connect_with(&options));
    let connections = try_join_all(connections).await?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let callers = connections.into_iter().map(|mut connection| {
        let body = body.clone();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let at = Instant::now();
                sqlx::query("insert into floor values ($1, $2)")
                    .bind(uuid::Uuid::new_v4())
                    .bind(&body)
                    .execute(&mut connection)
                    .await?;
                latencies.push(at.elapsed());
            }
            Ok::<_, anyhow::Error>(latencies)
        })
    });
    let latencies: anyhow::Result<Vec<_>> = try_join_all(callers).await?.into_iter().collect();
    Ok(latencies?.concat())
}
