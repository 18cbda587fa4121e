//! Statements about a connection itself: its limits, its notifications, its access mode.

use std::time::Duration;

use sqlx::PgConnection;

/// Sets the lock and statement timeouts of the rest of the transaction.
pub async fn limit_transaction(
    conn: &mut PgConnection,
    lock: Duration,
    statement: Duration,
) -> Result<(), sqlx::Error> {
    sqlx::query("select set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)")
        .bind(format!("{}ms", lock.as_millis()))
        .bind(format!("{}ms", statement.as_millis()))
        .execute(conn)
        .await?;
    Ok(())
}

/// Whether transactions of the connection are read-only, as on a standby.
pub async fn is_read_only(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select current_setting('transaction_read_only')::bool").fetch_one(conn).await
}

/// Notifies all listeners of a channel, at the commit.
pub async fn notify(conn: &mut PgConnection, channel: &str, payload: &str) -> Result<(), sqlx::Error> {
    sqlx::query("select pg_notify($1, $2)").bind(channel).bind(payload).execute(conn).await?;
    Ok(())
}
