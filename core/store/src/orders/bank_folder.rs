//! The folder that is shared with the bank: its id, and the processes that cannot use it.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{StoreError, statement};

/// A process that cannot use the folder.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Outage {
    pub process: Uuid,
    pub cause: String,
    pub since: DateTime<Utc>,
}

/// The id of the folder that payments go into. `None`: none was stamped.
pub async fn find_id(conn: &mut PgConnection) -> Result<Option<Uuid>, StoreError> {
    statement::find_value(conn, "select id from bank_folder", ()).await
}

/// Records the folder that payments go into from now on.
pub async fn set_id(conn: &mut PgConnection, id: Uuid, operator: &str) -> Result<(), StoreError> {
    let sql = "insert into bank_folder (id, stamped_by) values ($1, $2) \
         on conflict on constraint bank_folder_pkey \
         do update set id = $1, stamped_by = $2, stamped_at = now()";
    statement::execute(conn, sql, (id, operator)).await
}

/// A process says why it cannot use the folder. It repeats it while it lasts. `true`: it is news.
pub async fn report_outage(conn: &mut PgConnection, process: Uuid, cause: &str) -> Result<bool, StoreError> {
    let sql = "with before as (select cause from bank_outage where process = $1), \
              ended as (delete from bank_outage where seen_at < now() - interval '1 hour' and process <> $1), \
              said as (insert into bank_outage (process, cause) values ($1, $2) \
                       on conflict on constraint bank_outage_pkey do update \
                       set cause = $2, seen_at = now()) \
         select cause from before";
    let before: Option<String> = statement::find_value(conn, sql, (process, cause)).await?;
    Ok(before.as_deref() != Some(cause))
}

/// A process can use the folder again. `false`: it could before.
pub async fn end_outage(conn: &mut PgConnection, process: Uuid) -> Result<bool, StoreError> {
    Ok(statement::affected(conn, "delete from bank_outage where process = $1", (process,)).await? > 0)
}

/// The outages of running processes, the oldest first.
pub async fn list_outages(conn: &mut PgConnection) -> Result<Vec<Outage>, StoreError> {
    let sql = "select process, cause, since from bank_outage \
         where seen_at > now() - interval '1 minute' order by since";
    statement::list(conn, sql, ()).await
}
