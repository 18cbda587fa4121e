//! A backfill in the foreground: from the cursor to the head, with progress reports.

use super::{IndexError, Indexer, Step};
use crate::config::ChainConfig;
use crate::lease_guard::{self, Backoff};
use dvp_domain::chain::BlockNumber;
use dvp_store::PgPool;
use dvp_store::database::lease::LeaseGuard;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The number of consecutive failures that are reported.
const TRIES: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The block it began after.
    pub from: BlockNumber,
    pub at: BlockNumber,
    pub to: BlockNumber,
    /// Events written since it began.
    pub events: u64,
    pub elapsed: Duration,
}

impl Progress {
    #[must_use]
    pub fn events_per_second(&self) -> u64 {
        let millis = self.elapsed.as_millis().max(1);
        u64::try_from(u128::from(self.events) * 1000 / millis).unwrap_or(u64::MAX)
    }

    /// At the average rate so far; `None` before there is one.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        let done = u128::from(self.at.blocks_above(self.from));
        let left = u128::from(self.to.blocks_above(self.at));
        let millis = left.checked_mul(self.elapsed.as_millis())?.checked_div(done)?;
        u64::try_from(millis / 1000).ok()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// A running service reads this chain; its own status has the progress.
    #[error("another process has the lease of reading this chain")]
    Taken,
    #[error("the lease was lost to another process, or the backfill was stopped")]
    Stopped,
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// Reads the chain up to its head, unless another process does already. Written blocks are kept, so the next backfill
/// continues from there.
pub async fn backfill(
    pool: PgPool,
    config: ChainConfig,
    mut tell: impl FnMut(&Progress) + Send,
    shutdown: CancellationToken,
) -> Result<Progress, BackfillError> {
    let name = format!("indexer:{}", config.chain_id);
    let mut indexer = Indexer::new(pool.clone(), config)?;
    let guard = lease_guard::try_acquire(&pool, &name).await.map_err(IndexError::from)?;
    let mut guard = guard.ok_or(BackfillError::Taken)?;
    let result = to_the_head(&mut indexer, &mut guard, &mut tell, &shutdown).await;
    guard.release(&pool).await;
    result
}

async fn to_the_head(
    indexer: &mut Indexer,
    guard: &mut LeaseGuard,
    tell: &mut impl FnMut(&Progress),
    shutdown: &CancellationToken,
) -> Result<Progress, BackfillError> {
    let (began, mut from, mut failures) = (Instant::now(), None, 0);
    let mut backoff = Backoff::new();
    loop {
        if shutdown.is_cancelled() || !guard.keep(&indexer.pool).await.map_err(IndexError::from)? {
            return Err(BackfillError::Stopped);
        }
        let before = indexer.read_up_to().await?;
        let step = indexer.step(guard.lease()).await;
        let at = indexer.read_up_to().await?;
        let first = indexer.config.deployment.first_block().saturating_sub(1);
        let from = *from.get_or_insert(before.unwrap_or(first));
        let at = at.unwrap_or(from);
        let (to, events) = (indexer.node.0.max(at), indexer.events_written());
        let progress = Progress { from, at, to, events, elapsed: began.elapsed() };
        match step {
            Ok(step) => {
                failures = 0;
                backoff.reset();
                tell(&progress);
                if step == Step::Idle && at >= indexer.node.0 {
                    return Ok(progress);
                }
            }
            Err(error @ IndexError::Halted(_)) => return Err(error.into()),
            Err(error) => {
                failures += 1;
                if failures >= TRIES {
                    return Err(error.into());
                }
                tracing::warn!(%error, failures, "indexer step failed, will retry");
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}

impl Indexer {
    async fn read_up_to(&self) -> Result<Option<BlockNumber>, IndexError> {
        Ok(self.stored_cursor().await?.map(|cursor| cursor.head_number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_from_the_rate_so_far() {
        let elapsed = Duration::from_secs(10);
        let progress = Progress {
            from: BlockNumber(100),
            at: BlockNumber(600),
            to: BlockNumber(1_600),
            events: 50_000,
            elapsed,
        };
        assert_eq!((progress.events_per_second(), progress.seconds_left()), (5_000, Some(20)));
        let begun = Progress { at: BlockNumber(100), ..progress };
        assert_eq!(begun.seconds_left(), None);
    }
}
