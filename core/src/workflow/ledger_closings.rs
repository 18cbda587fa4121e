//! Closes the ledger's hours: each worker tries every minute, and one at a time does.

use std::time::Duration;

use dvp_store::ledger::closings;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::engine::{Engine, EngineError};

const EVERY: Duration = Duration::from_secs(60);

pub(super) async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        if let Err(error) = close_hours(engine).await {
            warn!(%error, "closing the ledger's last hours failed, will retry");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.changed() => {}
        }
    }
}

/// Closes every hour that can be closed, at most a day at once. Returns how many times.
pub async fn close_hours(engine: &Engine) -> Result<usize, EngineError> {
    let mut count = 0;
    let mut conn = engine.pool.acquire().await?;
    loop {
        closings::announce(&mut conn).await?;
        let Some(until) = closings::close(&mut conn).await? else { return Ok(count) };
        count += 1;
        info!(%until, "the ledger is closed");
    }
}
