//! Queries about endpoint leases: polling due deliveries, renewals, and the end of leases.
//!
//! Polls are frequent and sequential, so they have a connection of their own.

use std::time::{Duration, Instant};

use dvp_store::webhooks::deliveries::{self, Due};
use dvp_store::webhooks::leases::{self, EndpointLease, Renewed};
use dvp_store::webhooks::{self as endpoints, Endpoint};
use dvp_store::{PgConnection, PgPool, PoolConnection, StoreError};
use uuid::Uuid;

use super::leased_queues::Reading;

/// The connection that polls use.
pub(super) struct PollConnection {
    pool: PgPool,
    conn: Option<PoolConnection>,
    full: bool,
}

/// A completed poll.
pub(super) struct Looked {
    /// `None` after an error.
    pub(super) conn: Option<PoolConnection>,
    /// When it began.
    pub(super) at: Instant,
    pub(super) reading: Reading,
    pub(super) found: Result<PollResult, StoreError>,
}

/// The result of a poll.
#[derive(Default)]
pub(super) struct PollResult {
    pub(super) due: Vec<Due>,
    /// The endpoints of the deliveries, read after them.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) taken: Vec<EndpointLease>,
}

impl PollConnection {
    pub(super) fn new(pool: &PgPool) -> Self {
        Self { pool: pool.clone(), conn: None, full: false }
    }

    /// Whether a poll is in progress.
    pub(super) const fn are_full(&self) -> bool {
        self.full
    }

    pub(super) fn put_back(&mut self, conn: Option<PoolConnection>) {
        self.conn = conn;
        self.full = false;
    }

    /// Reads due deliveries, and then acquires free endpoint leases: owner, lease duration, and maximum number.
    pub(super) fn look(
        &mut self,
        reading: Option<Reading>,
        take: Option<(Uuid, Duration, i64)>,
    ) -> impl Future<Output = Looked> + Send + 'static {
        self.full = true;
        let (pool, conn, at) = (self.pool.clone(), self.conn.take(), Instant::now());
        async move {
            let reading = reading.unwrap_or_default();
            let mut conn = match conn {
                Some(conn) => conn,
                None => match pool.acquire().await {
                    Ok(conn) => conn,
                    Err(error) => return Looked { conn: None, at, reading, found: Err(error.into()) },
                },
            };
            let found = find(&mut conn, &reading, take).await;
            Looked { conn: found.is_ok().then_some(conn), at, reading, found }
        }
    }
}

async fn find(
    conn: &mut PgConnection,
    reading: &Reading,
    take: Option<(Uuid, Duration, i64)>,
) -> Result<PollResult, StoreError> {
    let mut found = PollResult::default();
    if !reading.positions.is_empty() {
        let limit = i64::try_from(reading.limit).unwrap_or(i64::MAX);
        found.due = deliveries::list_due(conn, &reading.positions, &reading.in_hand, limit).await?;
        // Read after the deliveries, so that no event is sent to a URL that the endpoint had before it.
        let ids: Vec<&str> = reading.leases.iter().map(|lease| lease.endpoint_id.as_str()).collect();
        found.endpoints = endpoints::find_many(conn, &ids).await?;
    }
    if let Some((owner, lease, limit)) = take {
        found.taken = leases::acquire(conn, owner, lease, limit).await?;
    }
    Ok(found)
}

pub(super) async fn renew(
    pool: &PgPool,
    owner: Uuid,
    held: &[EndpointLease],
    lease: Duration,
) -> Result<Renewed, StoreError> {
    let mut tx = pool.begin().await?;
    let renewed = leases::renew(&mut tx, owner, held, lease).await?;
    tx.commit().await?;
    Ok(renewed)
}

pub(super) async fn release(pool: &PgPool, held: &[EndpointLease]) -> Result<(), StoreError> {
    leases::release(&mut *pool.acquire().await?, held).await
}

/// This process stops sending.
pub(super) async fn give_up(pool: &PgPool, owner: Uuid, held: &[EndpointLease]) -> Result<(), StoreError> {
    let mut tx = pool.begin().await?;
    leases::release(&mut tx, held).await?;
    leases::leave(&mut tx, owner).await?;
    tx.commit().await?;
    Ok(())
}
