//! Single-owner leases: a row lease by the database's clock, with a fence that grows at each change of owner.

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::StoreError;

/// A lease this process holds until [`expires`](Lease::renew) it no longer renews it.
#[derive(Debug, Clone)]
pub struct Lease {
    pub name: String,
    pub owner: Uuid,
    pub fence: i64,
    ttl: Duration,
}

impl Lease {
    /// Takes the lease if nobody holds it. `owner` identifies this process.
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

    /// Prolongs the lease. `false`: it was lost, stop at once.
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

    /// Checks inside a writing transaction that the lease is still held, and keeps it from changing hands until the
    /// transaction ends.
    pub async fn guard(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
        let row: Option<(i64,)> = sqlx::query_as(
            "select fence from lease where name = $1 and owner = $2 and fence = $3 \
               and expires_at > clock_timestamp() for share",
        )
        .bind(&self.name)
        .bind(self.owner)
        .bind(self.fence)
        .fetch_optional(conn)
        .await?;
        row.map(|_| ()).ok_or(StoreError::Stale { what: "lease" })
    }

    /// Gives the lease up, so that another process need not wait.
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

/// Ends every lease: the private database's only user has just started.
pub async fn release_all(pool: &PgPool) -> Result<(), StoreError> {
    sqlx::query("update lease set expires_at = clock_timestamp()").execute(pool).await?;
    Ok(())
}
