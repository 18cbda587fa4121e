//! Leases of webhook endpoints.
//!
//! One process at a time leases an endpoint's queue and sends from it. Its fence grows with each acquisition. Outcomes
//! are written in a transaction that locks the lease's row and compares the fence, so a process whose lease was taken
//! over writes nothing. An expired lease keeps its fence until another process acquires it.

use std::time::Duration;

use sqlx::{PgConnection, PgTransaction};
use uuid::Uuid;

use crate::{StoreError, statement};

/// A lease, with the fence of its acquisition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointLease {
    pub endpoint_id: String,
    pub fence: i64,
}

/// Acquires free leases of active endpoints of enabled partners that have a delivery due, up to this process's share.
pub async fn acquire(
    conn: &mut PgConnection,
    owner: Uuid,
    ttl: Duration,
    limit: i64,
) -> Result<Vec<EndpointLease>, StoreError> {
    let sql = "with due as ( \
             select l.endpoint_id from endpoint_lease l join webhook_endpoint w on w.id = l.endpoint_id \
                    join partner p on p.id = w.partner_id and p.disabled_at is null \
             where l.expires_at <= statement_timestamp() and w.is_active \
               and exists (select from webhook_queue q \
                           where q.endpoint_id = l.endpoint_id and q.due_at <= statement_timestamp()) \
         ), share as ( \
             select ((select count(*) from due) + count(l.endpoint_id) + s.processes - 1) / s.processes \
                    - count(*) filter (where l.owner = $1) as allowed \
             from (select greatest(count(*), 1) as processes from webhook_sender \
                   where alive_until > statement_timestamp()) s \
                  left join endpoint_lease l on l.expires_at > statement_timestamp() \
             group by s.processes \
         ), free as ( \
             select endpoint_id from endpoint_lease \
             where endpoint_id in (select endpoint_id from due) and expires_at <= statement_timestamp() \
             order by endpoint_id limit (select greatest(least(allowed, $3), 0) from share) for update skip locked \
         ) \
         update endpoint_lease l \
         set owner = $1, fence = l.fence + 1, expires_at = clock_timestamp() + make_interval(secs => $2) \
         from free where l.endpoint_id = free.endpoint_id returning l.endpoint_id, l.fence";
    let rows: Vec<(String, i64)> = statement::list(conn, sql, (owner, ttl.as_secs_f64(), limit)).await?;
    Ok(rows.into_iter().map(|(endpoint_id, fence)| EndpointLease { endpoint_id, fence }).collect())
}

#[derive(Debug, Clone, Default)]
pub struct Renewed {
    /// The endpoints whose fence is unchanged; the others were taken by other processes.
    pub held: Vec<String>,
    /// The number of leases per process when all processes hold equally many.
    pub share: i64,
}

/// Registers this process as a sender, and extends its leases.
pub async fn renew(
    tx: &mut PgTransaction<'_>,
    owner: Uuid,
    held: &[EndpointLease],
    ttl: Duration,
) -> Result<Renewed, StoreError> {
    let sql = "with gone as (delete from webhook_sender where alive_until <= clock_timestamp() and id <> $1) \
         insert into webhook_sender (id, alive_until) \
         values ($1, clock_timestamp() + make_interval(secs => $2)) \
         on conflict on constraint webhook_sender_pkey do update set alive_until = excluded.alive_until";
    statement::execute(tx, sql, (owner, ttl.as_secs_f64())).await?;
    let held = expire_after(tx, held, ttl).await?;
    let sql = "select ((select count(*) from endpoint_lease where expires_at > statement_timestamp()) \
                 + greatest(count(*), 1) - 1) / greatest(count(*), 1) \
         from webhook_sender where alive_until > statement_timestamp()";
    let share: i64 = statement::load_value(tx, sql, ()).await?;
    Ok(Renewed { held, share })
}

/// Releases leases before they expire, so that other processes can take them at once.
pub async fn release(conn: &mut PgConnection, held: &[EndpointLease]) -> Result<(), StoreError> {
    expire_after(conn, held, Duration::ZERO).await.map(drop)
}

/// Sets the end of leases whose fence is unchanged, and returns their endpoints.
async fn expire_after(
    conn: &mut PgConnection,
    held: &[EndpointLease],
    ttl: Duration,
) -> Result<Vec<String>, StoreError> {
    // Rows are locked in order, so that two processes cannot deadlock.
    let sql = "with own as ( \
             select l.endpoint_id from endpoint_lease l join unnest($1::text[], $2::int8[]) as h (endpoint_id, fence) \
                    on l.endpoint_id = h.endpoint_id and l.fence = h.fence \
             order by l.endpoint_id for update of l \
         ) \
         update endpoint_lease l set expires_at = clock_timestamp() + make_interval(secs => $3) \
         from own where l.endpoint_id = own.endpoint_id returning l.endpoint_id";
    let parameters = (
        held.iter().map(|lease| lease.endpoint_id.as_str()).collect::<Vec<_>>(),
        held.iter().map(|lease| lease.fence).collect::<Vec<_>>(),
        ttl.as_secs_f64(),
    );
    statement::list_values(conn, sql, parameters).await
}

/// Removes this process from the senders.
pub async fn leave(conn: &mut PgConnection, owner: Uuid) -> Result<(), StoreError> {
    statement::execute(conn, "delete from webhook_sender where id = $1", (owner,)).await
}
