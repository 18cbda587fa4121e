//! Closes the ledger's hours: each worker tries every minute, and one at a time does.

use std::time::Duration;

use dvp_store::ledger::closings;
use dvp_store::workers::{self, Apart, Step, Worker, in_database, pause};
use tokio::sync::watch;
use tracing::info;

use crate::engine::{Engine, EngineError};

const EVERY: Duration = Duration::from_secs(60);
/// The longest time for what one attempt closes, a day at most.
const CLOSE_MAX: Duration = Duration::from_secs(600);
const HOURS: &str = "hours";

pub async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    let items = Apart::new(engine.pool.clone(), Worker::LedgerClosings, CLOSE_MAX);
    loop {
        let engine = engine.clone();
        items.attend(HOURS, HOURS, async move { close_hours(&engine).await }).await;
        if !pause(EVERY, &mut stop).await {
            return;
        }
    }
}

/// Closes every hour that can be closed, at most a day at once. Returns how many times.
pub async fn close_hours(engine: &Engine) -> Result<usize, EngineError> {
    workers::at(Step::LedgerClose, in_database(&engine.pool, HOURS)).await?;
    let mut count = 0;
    let mut conn = engine.pool.acquire().await?;
    loop {
        closings::announce(&mut conn).await?;
        let Some(until) = closings::close(&mut conn).await? else { return Ok(count) };
        count += 1;
        info!(%until, "the ledger is closed");
    }
}
