//! Single-owner leases: a row lease by the database's clock, with a fence that grows at each change of owner.

use std::time::{Duration, Instant};

use sqlx::{PgConnection, PgExecutor, PgPool};
use tracing::warn;
use uuid::Uuid;

use crate::{StoreError, statement};

/// A lease that this process holds until it [`expires`](Lease::renew) without a renewal.
#[derive(Debug, Clone)]
pub struct Lease {
    pub name: String,
    pub owner: Uuid,
    pub fence: i64,
    ttl: Duration,
}

impl Lease {
    /// Acquires the lease if it is free. `owner` identifies this process.
    pub async fn acquire(
        db: impl PgExecutor<'_>,
        name: &str,
        owner: Uuid,
        ttl: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let row: Option<(i64,)> = sqlx::query_as(
            "insert into lease as l (name, owner, fence, expires_at) \
             values ($1, $2, 1, clock_timestamp() + make_interval(secs => $3)) \
             on conflict on constraint lease_pkey do update \
             set owner = excluded.owner, fence = l.fence + 1, expires_at = excluded.expires_at \
             where l.expires_at < clock_timestamp() or l.owner = excluded.owner returning fence",
        )
        .bind(name)
        .bind(owner)
        .bind(ttl.as_secs_f64())
        .fetch_optional(db)
        .await?;
        Ok(row.map(|(fence,)| Self { name: name.to_owned(), owner, fence, ttl }))
    }

    /// Renews the lease. `false`: it was lost, stop immediately.
    pub async fn renew(&self, pool: &PgPool) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "update lease set expires_at = clock_timestamp() + make_interval(secs => $4) \
             where name = $1 and owner = $2 and fence = $3 and expires_at > clock_timestamp()",
        )
        .bind(&self.name)
        .bind(self.owner)
        .bind(self.fence)
        .bind(self.ttl.as_secs_f64())
        .execute(pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Checks within a writing transaction that the lease is still held, and locks its owner until the transaction
    /// ends.
    pub async fn guard(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
        let sql = "select fence from lease where name = $1 and owner = $2 and fence = $3 \
               and expires_at > clock_timestamp() for share";
        let row: Option<(i64,)> = statement::find(conn, sql, (&self.name, self.owner, self.fence)).await?;
        row.map(|_| ()).ok_or(StoreError::Stale { what: "lease" })
    }

    /// Releases the lease, so that another process need not wait.
    pub async fn release(&self, db: impl PgExecutor<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "update lease set expires_at = clock_timestamp() where name = $1 and owner = $2 and fence = $3",
        )
        .bind(&self.name)
        .bind(self.owner)
        .bind(self.fence)
        .execute(db)
        .await?;
        Ok(())
    }
}

/// A lease that is renewed while its owner works.
#[derive(Debug)]
pub struct LeaseGuard {
    lease: Lease,
    /// When the request that gave the remaining time was sent.
    renewed_at: Instant,
}

impl LeaseGuard {
    /// Acquires the lease, unless another owner holds it.
    pub async fn try_acquire(
        pool: &PgPool,
        name: &str,
        owner: Uuid,
        ttl: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let renewed_at = Instant::now();
        let lease = Lease::acquire(pool, name, owner, ttl).await?;
        Ok(lease.map(|lease| Self { lease, renewed_at }))
    }

    /// The lease in its present state. Its fence has grown if it expired and was acquired again.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The interval of renewals: two of them may fail before the lease expires.
    fn renew_every(&self) -> Duration {
        self.lease.ttl * 3 / 10
    }

    /// Renews the lease when it is due. `false`: another owner has the lease, or had it meanwhile.
    pub async fn keep(&mut self, pool: &PgPool) -> Result<bool, StoreError> {
        if self.renewed_at.elapsed() < self.renew_every() { Ok(true) } else { self.renew(pool).await }
    }

    /// Renews the lease until it is lost: until another owner has it, or until the database has not answered for its
    /// whole duration.
    pub async fn keep_until_lost(&mut self, pool: &PgPool) {
        loop {
            tokio::time::sleep(self.renew_every()).await;
            match self.renew(pool).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    warn!(%error, lease = self.lease.name, "lease not renewed");
                    if self.renewed_at.elapsed() >= self.lease.ttl {
                        break;
                    }
                }
            }
        }
        warn!(lease = self.lease.name, "lease lost");
    }

    /// A lease that expired because the database was slow, and that no other owner has acquired, is renewed.
    async fn renew(&mut self, pool: &PgPool) -> Result<bool, StoreError> {
        let requested_at = Instant::now();
        if !self.lease.renew(pool).await? {
            let Lease { name, owner, fence, ttl } = &self.lease;
            let Some(again) = Lease::acquire(pool, name, *owner, *ttl).await? else { return Ok(false) };
            if again.fence != fence + 1 {
                again.release(pool).await?;
                return Ok(false);
            }
            self.lease = again;
        }
        self.renewed_at = requested_at;
        Ok(true)
    }

    /// Releases the lease, so that the next owner can begin immediately.
    pub async fn release(self, pool: &PgPool) {
        if let Err(error) = self.lease.release(pool).await {
            warn!(%error, lease = self.lease.name, "lease not released, it will expire");
        }
    }
}

/// Ends all leases and claims, when the only user of a private database starts.
pub async fn release_all(conn: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "with sender as (delete from webhook_sender), \
              endpoint as (update endpoint_lease set expires_at = clock_timestamp()), \
              work as (update effect set claimed_until = null where claimed_until is not null), \
              fact as (update chain_fact set claimed_by = null, claimed_until = null \
                       where claimed_until is not null and consumed_at is null and retracted_at is null) \
         update lease set expires_at = clock_timestamp()";
    statement::execute(conn, sql, ()).await
}
