//! Processes that accept FIX connections, and where each takes the connections that the others forward.

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{StoreError, statement};

/// Rows of processes that ended without deleting theirs are kept this long: a process whose database was away is still
/// the owner of its sessions.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The number of sessions and of the processes that share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct FixPopulation {
    pub sessions: i64,
    pub processes: i64,
}

/// Registers a process for `alive`, or extends its registration.
pub async fn register_process(
    conn: &mut PgConnection,
    id: Uuid,
    forward_address: &str,
    alive: Duration,
) -> Result<FixPopulation, StoreError> {
    let sql = "with gone as ( \
             delete from fix_process where alive_until < clock_timestamp() - make_interval(secs => $4) and id <> $1 \
         ) \
         insert into fix_process (id, forward_address, alive_until) \
         values ($1, $2, clock_timestamp() + make_interval(secs => $3)) \
         on conflict on constraint fix_process_pkey do update \
         set forward_address = excluded.forward_address, alive_until = excluded.alive_until";
    statement::execute(conn, sql, (id, forward_address, alive.as_secs_f64(), FORGOTTEN_AFTER.as_secs_f64()))
        .await?;
    let sql = "select (select count(*) from fix_session where enabled) as sessions, \
                (select count(*) from fix_process where alive_until > clock_timestamp()) as processes";
    statement::load(conn, sql, ()).await
}

/// Ends a registration: the process takes no more sessions.
pub async fn leave_processes(conn: &mut PgConnection, id: Uuid) -> Result<(), StoreError> {
    statement::execute(conn, "delete from fix_process where id = $1", (id,)).await
}
