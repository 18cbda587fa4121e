//! A lease held by one process at a time: acquisition, and the delays after errors.

use std::time::Duration;

use dvp_store::database::lease::LeaseGuard;
use dvp_store::{PgPool, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The time after which a dead owner is replaced.
const TTL: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Waits until the lease is acquired; `None` when `shutdown` is cancelled first.
pub(crate) async fn acquire(pool: &PgPool, name: &str, shutdown: &CancellationToken) -> Option<LeaseGuard> {
    let owner = Uuid::new_v4();
    while !shutdown.is_cancelled() {
        match LeaseGuard::try_acquire(pool, name, owner, TTL).await {
            Ok(Some(guard)) => {
                tracing::info!(lease = name, fence = guard.lease().fence, "lease acquired");
                return Some(guard);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(lease = name, %error, "lease could not be acquired, will retry"),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
    }
    None
}

/// Acquires the lease, if it is free.
pub(crate) async fn try_acquire(pool: &PgPool, name: &str) -> Result<Option<LeaseGuard>, StoreError> {
    LeaseGuard::try_acquire(pool, name, Uuid::new_v4(), TTL).await
}

/// The delay after errors: doubled after each, up to a limit.
pub(crate) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(5);

    pub(crate) const fn new() -> Self {
        Self(Self::FIRST)
    }

    pub(crate) const fn reset(&mut self) {
        self.0 = Self::FIRST;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Self::MOST);
        pause
    }
}
