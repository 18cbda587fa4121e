//! The end of rows: events leave the feed after their 15 days, deliveries and kept answers go with them.

use std::time::Duration;

use dvp_core::store::{PgPool, StoreError, feed, webhook_deliveries, webhooks};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const EVERY: Duration = Duration::from_secs(60);
/// Rows of one statement: short, so that nobody waits for its locks.
const ROWS: i64 = 1000;

pub(super) async fn run(pool: &PgPool, shutdown: &CancellationToken) {
    loop {
        if let Err(error) = trim(pool, shutdown).await {
            warn!(%error, "old events and deliveries stay a little longer");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

async fn trim(pool: &PgPool, shutdown: &CancellationToken) -> Result<(), StoreError> {
    let mut conn = pool.acquire().await?;
    let mut gone = 0_u64;
    while !shutdown.is_cancelled() {
        let rows = feed::trim(&mut conn, ROWS)
            .await?
            .saturating_add(webhook_deliveries::trim(&mut conn, ROWS).await?)
            .saturating_add(webhooks::delete_old_answers(&mut conn, ROWS).await?);
        gone = gone.saturating_add(rows);
        if rows == 0 {
            break;
        }
    }
    if gone > 0 {
        info!(rows = gone, "kept for their time and let go");
    }
    Ok(())
}
