//! Queries of the worker: due deliveries, and the endpoint leases.

use std::time::{Duration, Instant};

use dvp_store::webhooks::deliveries::{self, Due};
use dvp_store::webhooks::leases::{self, EndpointLease, Renewed};
use dvp_store::webhooks::{self as endpoints, Endpoint};
use dvp_store::{PgPool, StoreError};
use uuid::Uuid;

use super::leased_queues::Reading;

pub(super) struct Looked {
    /// When it began.
    pub(super) at: Instant,
    pub(super) reading: Reading,
    pub(super) found: Result<PollResult, StoreError>,
}

#[derive(Default)]
pub(super) struct PollResult {
    pub(super) due: Vec<Due>,
    /// The endpoints of the deliveries, read after them.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) acquired: Vec<EndpointLease>,
}

/// Reads due deliveries, and then acquires free endpoint leases: owner, lease duration, and maximum number.
pub(super) async fn look(
    pool: PgPool,
    reading: Option<Reading>,
    acquire: Option<(Uuid, Duration, i64)>,
) -> Looked {
    let (at, reading) = (Instant::now(), reading.unwrap_or_default());
    let found = find(&pool, &reading, acquire).await;
    Looked { at, reading, found }
}

async fn find(
    pool: &PgPool,
    reading: &Reading,
    acquire: Option<(Uuid, Duration, i64)>,
) -> Result<PollResult, StoreError> {
    let mut conn = pool.acquire().await?;
    let mut found = PollResult::default();
    if !reading.positions.is_empty() {
        let limit = i64::try_from(reading.limit).unwrap_or(i64::MAX);
        found.due = deliveries::list_due(&mut conn, &reading.positions, &reading.in_hand, limit).await?;
        // Read after the deliveries, so that no event is sent to a URL that the endpoint had before it.
        let ids: Vec<&str> = reading.leases.iter().map(|lease| lease.endpoint_id.as_str()).collect();
        found.endpoints = endpoints::find_many(&mut conn, &ids).await?;
    }
    if let Some((owner, lease, limit)) = acquire {
        found.acquired = leases::acquire(&mut conn, owner, lease, limit).await?;
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
    release(pool, held).await?;
    leases::leave(&mut *pool.acquire().await?, owner).await
}
