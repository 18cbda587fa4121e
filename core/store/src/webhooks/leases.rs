//! Leases of webhook endpoints.
//!
//! One process at a time leases an endpoint's queue and sends from it. Taking a lease increments its fence. Outcomes
//! are written in a transaction that locks the lease's row and compares the fence, so a process whose lease was taken
//! over writes nothing. An expired lease keeps its fence until another process takes it.

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

/// Takes free leases of active endpoints of enabled partners that have a delivery due, up to this process's share.
pub async fn take(
    conn: &mut PgConnection,
    holder: Uuid,
    lease: Duration,
    limit: i64,
) -> Result<Vec<EndpointLease>, StoreError> {
    let sql = "with due as ( \
             select l.endpoint_id from endpoint_lease l join webhook_endpoint w on w.id = l.endpoint_id \
                    join partner p on p.id = w.partner_id and p.disabled_at is null \
             where l.leased_until <= statement_timestamp() and w.is_active \
               and exists (select from webhook_queue q \
                           where q.endpoint_id = l.endpoint_id and q.due_at <= statement_timestamp()) \
         ), share as ( \
             select ((select count(*) from due) + count(l.endpoint_id) + s.processes - 1) / s.processes \
                    - count(*) filter (where l.holder = $1) as allowed \
             from (select greatest(count(*), 1) as processes from webhook_sender \
                   where leased_until > statement_timestamp()) s \
                  left join endpoint_lease l on l.leased_until > statement_timestamp() \
             group by s.processes \
         ), free as ( \
             select endpoint_id from endpoint_lease \
             where endpoint_id in (select endpoint_id from due) and leased_until <= statement_timestamp() \
             order by endpoint_id limit (select greatest(least(allowed, $3), 0) from share) for update skip locked \
         ) \
         update endpoint_lease l \
         set holder = $1, fence = l.fence + 1, leased_until = clock_timestamp() + make_interval(secs => $2) \
         from free where l.endpoint_id = free.endpoint_id returning l.endpoint_id, l.fence";
    let rows: Vec<(String, i64)> = statement::list(conn, sql, (holder, lease.as_secs_f64(), limit)).await?;
    Ok(rows.into_iter().map(|(endpoint_id, fence)| EndpointLease { endpoint_id, fence }).collect())
}

/// The result of a renewal.
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
    holder: Uuid,
    held: &[EndpointLease],
    lease: Duration,
) -> Result<Renewed, StoreError> {
    let sql = "with gone as (delete from webhook_sender where leased_until <= clock_timestamp() and id <> $1) \
         insert into webhook_sender (id, leased_until) \
         values ($1, clock_timestamp() + make_interval(secs => $2)) \
         on conflict on constraint webhook_sender_pkey do update set leased_until = excluded.leased_until";
    statement::execute(tx, sql, (holder, lease.as_secs_f64())).await?;
    // Rows are locked in order, so that two processes cannot deadlock.
    let sql = "with own as ( \
             select l.endpoint_id from endpoint_lease l join unnest($1::text[], $2::int8[]) as h (endpoint_id, fence) \
                    on l.endpoint_id = h.endpoint_id and l.fence = h.fence \
             order by l.endpoint_id for update of l \
         ) \
         update endpoint_lease l set leased_until = clock_timestamp() + make_interval(secs => $3) \
         from own where l.endpoint_id = own.endpoint_id returning l.endpoint_id";
    let parameters = (
        held.iter().map(|lease| lease.endpoint_id.as_str()).collect::<Vec<_>>(),
        held.iter().map(|lease| lease.fence).collect::<Vec<_>>(),
        lease.as_secs_f64(),
    );
    let held: Vec<String> = statement::list_values(tx, sql, parameters).await?;
    let sql = "select ((select count(*) from endpoint_lease where leased_until > statement_timestamp()) \
                 + greatest(count(*), 1) - 1) / greatest(count(*), 1) \
         from webhook_sender where leased_until > statement_timestamp()";
    let share: i64 = statement::load_value(tx, sql, ()).await?;
    Ok(Renewed { held, share })
}

/// Releases leases before they expire, so that other processes can take them at once.
pub async fn release(conn: &mut PgConnection, held: &[EndpointLease]) -> Result<(), StoreError> {
    let sql = "with own as ( \
             select l.endpoint_id from endpoint_lease l join unnest($1::text[], $2::int8[]) as h (endpoint_id, fence) \
                    on l.endpoint_id = h.endpoint_id and l.fence = h.fence \
             order by l.endpoint_id for update of l \
         ) \
         update endpoint_lease l set leased_until = '-infinity' from own where l.endpoint_id = own.endpoint_id";
    let parameters = (
        held.iter().map(|lease| lease.endpoint_id.as_str()).collect::<Vec<_>>(),
        held.iter().map(|lease| lease.fence).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

/// Removes this process from the senders.
pub async fn leave(conn: &mut PgConnection, holder: Uuid) -> Result<(), StoreError> {
    statement::execute(conn, "delete from webhook_sender where id = $1", (holder,)).await
}

/// Releases every lease, when the only user of a private database starts.
pub async fn free_all(conn: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "with gone as (delete from webhook_sender) \
         update endpoint_lease set leased_until = '-infinity' where leased_until > '-infinity'";
    statement::execute(conn, sql, ()).await
}
