//! A lease that one process at a time has, and how it waits for it, keeps it and gives it up.

use dvp_store::lease::Lease;
use dvp_store::{PgPool, StoreError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A dead owner is replaced after so long.
const TTL: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(3);
const _: () =
    assert!(RENEW_EVERY.as_secs() * 3 < TTL.as_secs(), "two renewals may fail before the lease is lost");
const ASK_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct LeaseGuard {
    pub(crate) lease: Lease,
    renewed: Instant,
}

impl LeaseGuard {
    /// Waits until the lease is ours; `None` when we are to stop first.
    pub(crate) async fn acquire(pool: &PgPool, name: &str, shutdown: &CancellationToken) -> Option<Self> {
        let owner = Uuid::new_v4();
        while !shutdown.is_cancelled() {
            let asked = Instant::now();
            match Lease::acquire(pool, name, owner, TTL).await {
                Ok(Some(lease)) => {
                    tracing::info!(lease = name, fence = lease.fence, "lease acquired");
                    return Some(Self { lease, renewed: asked });
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

    /// The lease, if nobody has it.
    pub(crate) async fn try_acquire(pool: &PgPool, name: &str) -> Result<Option<Self>, StoreError> {
        let renewed = Instant::now();
        let lease = Lease::acquire(pool, name, Uuid::new_v4(), TTL).await?;
        Ok(lease.map(|lease| Self { lease, renewed }))
    }

    /// Prolongs the lease when it is time to; `false`: somebody else has the lease.
    pub(crate) async fn keep(&mut self, pool: &PgPool) -> Result<bool, StoreError> {
        if self.renewed.elapsed() < RENEW_EVERY {
            return Ok(true);
        }
        let asked = Instant::now();
        let ours = self.lease.renew(pool).await?;
        self.renewed = asked;
        Ok(ours)
    }

    /// Lets the next owner begin at once.
    pub(crate) async fn release(self, pool: &PgPool) {
        if let Err(error) = self.lease.release(pool).await {
            tracing::warn!(lease = self.lease.name, %error, "lease not released, it will expire");
        }
    }
}

/// How long to wait after errors: twice as long after each, up to a limit.
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
