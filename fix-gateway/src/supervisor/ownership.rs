//! A session's lease, for as long as its driver runs.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dvp_store::{PgPool, StoreError, lease::Lease};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The lease as it is now: taking it again after a pause changes its fence.
pub(super) type SharedLease = Arc<Mutex<Lease>>;

pub(super) fn held(lease: &SharedLease) -> Lease {
    // No code panics while it holds the lease.
    lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Renews the lease for as long as that is possible, and ends the session when it is not.
pub(super) async fn cancel_when_lost(
    pool: PgPool,
    lease: SharedLease,
    ttl: Duration,
    session: CancellationToken,
) {
    let mut renewed_at = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(ttl / 3).await;
        let current = held(&lease);
        match renew(&pool, &current, ttl).await {
            Ok(Some(renewed)) => {
                *lease.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
                renewed_at = tokio::time::Instant::now();
            }
            Ok(None) => break,
            // The database may be away for a moment; the lease holds a little longer than that.
            Err(error) => {
                warn!(%error, lease = current.name, "lease not renewed");
                if renewed_at.elapsed() >= ttl {
                    break;
                }
            }
        }
    }
    warn!(lease = held(&lease).name, "lease lost");
    session.cancel();
}

/// `None`: somebody else has the lease, or had it meanwhile. One that ran out because the database was slow, and that
/// nobody took, goes on.
async fn renew(pool: &PgPool, lease: &Lease, ttl: Duration) -> Result<Option<Lease>, StoreError> {
    if lease.renew(pool).await? {
        return Ok(Some(lease.clone()));
    }
    let again = Lease::acquire(pool, &lease.name, lease.owner, ttl).await?;
    let Some(again) = again else { return Ok(None) };
    if again.fence == lease.fence + 1 {
        return Ok(Some(again));
    }
    again.release(pool).await?;
    Ok(None)
}
