//! Tables whose rows are all deleted at one age: partitions of a day (UTC), created ahead of time and dropped whole.

use std::time::Duration;

use chrono::NaiveDate;
use sqlx::PgConnection;

use crate::StoreError;

/// A table in partitions of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DayTable {
    FixMessages,
    WebhookDeliveries,
    WebhookAttempts,
}

impl DayTable {
    /// The log of webhook deliveries.
    pub const WEBHOOK_LOG: [Self; 2] = [Self::WebhookDeliveries, Self::WebhookAttempts];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FixMessages => "fix_message",
            Self::WebhookDeliveries => "webhook_delivery_log",
            Self::WebhookAttempts => "webhook_attempt_log",
        }
    }

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
    sqlx::query("select create_day_partition($1, $2, $3)")
        .bind(table.as_str())
        .bind(day)
        .bind(table.own_key())
        .execute(conn)
        .await?;
    Ok(())
}

/// Creates the partitions of this day and the next `days`, by the database's clock.
pub async fn create_ahead(conn: &mut PgConnection, table: DayTable, days: i32) -> Result<(), StoreError> {
    sqlx::query(
        "select create_day_partition($1, (now() at time zone 'UTC')::date + n, $2) from generate_series(0, $3) n",
    )
    .bind(table.as_str())
    .bind(table.own_key())
    .bind(days)
    .execute(conn)
    .await?;
    Ok(())
}

/// Drops the oldest partition if all of it is older than `age`. Returns how many rows it had, by the statistics.
pub async fn drop_old_day(
    conn: &mut PgConnection,
    table: DayTable,
    age: Duration,
) -> Result<u64, StoreError> {
    let (rows,): (i64,) = sqlx::query_as("select drop_day_partition($1, now() - make_interval(secs => $2))")
        .bind(table.as_str())
        .bind(age.as_secs_f64())
        .fetch_one(conn)
        .await?;
    u64::try_from(rows).map_err(|_| StoreError::corrupt(table.as_str(), "a negative number of rows"))
}
