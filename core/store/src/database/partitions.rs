//! Tables whose rows are all deleted at one age: partitions of a day (UTC), created ahead of time and dropped whole.

use std::time::Duration;

use chrono::NaiveDate;
use dvp_domain::names::names;
use sqlx::PgConnection;

use crate::{StoreError, statement};

names! {
    pub enum DayTable {
        FixMessages = "fix_message",
        WebhookDeliveries = "webhook_delivery_log",
        WebhookAttempts = "webhook_attempt_log",
    }
}

impl DayTable {
    pub const WEBHOOK_LOG: [Self; 2] = [Self::WebhookDeliveries, Self::WebhookAttempts];

    /// The primary key of each partition by itself; `None`: the table's own key has the time.
    const fn own_key(self) -> Option<&'static str> {
        match self {
            Self::FixMessages => None,
            Self::WebhookDeliveries => Some("endpoint_id, id"),
            Self::WebhookAttempts => Some("delivery_id, number"),
        }
    }
}

/// Creates the partition of a day, unless one covers it.
pub async fn create_day(conn: &mut PgConnection, table: DayTable, day: NaiveDate) -> Result<(), StoreError> {
    let sql = "select create_day_partition($1, $2, $3)";
    statement::execute(conn, sql, (table.as_str(), day, table.own_key())).await
}

/// Creates the partitions of this day and the next `days`, by the database's clock.
pub async fn create_ahead(conn: &mut PgConnection, table: DayTable, days: i32) -> Result<(), StoreError> {
    let sql = "select create_day_partition($1, (now() at time zone 'UTC')::date + n, $2) \
         from generate_series(0, $3) n";
    statement::execute(conn, sql, (table.as_str(), table.own_key(), days)).await
}

/// Drops the oldest partition if all of it is older than `age`. Returns how many rows it had, by the statistics.
pub async fn drop_old_day(
    conn: &mut PgConnection,
    table: DayTable,
    age: Duration,
) -> Result<u64, StoreError> {
    let sql = match table {
        // Their days are the machine's, however far a sandbox is ahead.
        DayTable::FixMessages => {
            "select drop_day_partition($1, pg_catalog.now() - make_interval(secs => $2))"
        }
        DayTable::WebhookDeliveries | DayTable::WebhookAttempts => {
            "select drop_day_partition($1, now() - make_interval(secs => $2))"
        }
    };
    let rows: i64 = statement::load_value(conn, sql, (table.as_str(), age.as_secs_f64())).await?;
    u64::try_from(rows).map_err(|_| StoreError::corrupt(table.as_str(), "a negative number of rows"))
}
