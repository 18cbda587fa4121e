//! The processes of the service, as each reports itself: its roles, its version, and its configuration.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{StoreError, statement};

/// A process as it reports itself.
#[derive(Debug, Clone)]
pub struct NewProcess {
    pub id: Uuid,
    pub host: String,
    pub version: String,
    pub roles: Vec<String>,
    /// The digest of what every process must have been configured alike.
    pub configuration: String,
}

/// A process that has reported within the last day and was not stopped.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Process {
    pub id: Uuid,
    pub host: String,
    pub version: String,
    pub roles: Vec<String>,
    pub configuration: String,
    pub started_at: DateTime<Utc>,
    pub seen_at: DateTime<Utc>,
    /// It has not reported for a minute.
    pub is_silent: bool,
}

/// Records that a process runs, and forgets those that were silent for a day.
pub async fn report(conn: &mut PgConnection, process: &NewProcess) -> Result<(), StoreError> {
    let old = "delete from process where seen_at < clock_timestamp() - interval '1 day'";
    statement::execute(conn, old, ()).await?;
    let sql = "insert into process (id, host, version, roles, configuration) values ($1, $2, $3, $4, $5) \
         on conflict on constraint process_pkey do update set seen_at = clock_timestamp()";
    let parameters = (process.id, &process.host, &process.version, &process.roles, &process.configuration);
    statement::execute(conn, sql, parameters).await
}

/// Forgets a process that stops.
pub async fn forget(conn: &mut PgConnection, id: Uuid) -> Result<(), StoreError> {
    statement::execute(conn, "delete from process where id = $1", (id,)).await
}

/// The processes, by host.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Process>, StoreError> {
    let sql = "select *, seen_at < clock_timestamp() - interval '1 minute' as is_silent from process \
         order by host, started_at, id";
    statement::list(conn, sql, ()).await
}

/// With how many different configurations processes run.
pub async fn count_configurations(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let sql = "select count(distinct configuration) from process \
         where seen_at > clock_timestamp() - interval '1 minute'";
    statement::load_value(conn, sql, ()).await
}
