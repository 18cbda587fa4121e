//! Pools whose connections have no open transaction.
//!
//! sqlx 0.9.0 loses track of a transaction when the future of `begin` is dropped while BEGIN is in flight
//! (transact-rs/sqlx issue 4393): the connection returns to the pool with the transaction open, and its next user
//! writes into a transaction that is never committed. A client's disconnect, a timeout and an aborted task all cause
//! this, so every connection is checked before it is reused.
//!
//! Kept by `core/tests/it/pool.rs::an_abandoned_begin_does_not_leave_a_transaction_open`.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, Row as _};

/// A connection that was used this recently is given out without a question whether it is still open.
const FRESH: Duration = Duration::from_secs(1);

/// The base options of every pool of this service.
pub fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new()
        .after_release(|conn, _| Box::pin(is_outside_of_a_transaction(conn)))
        .test_before_acquire(false)
        .before_acquire(|conn, used| {
            Box::pin(async move { Ok(used.idle_for < FRESH || conn.ping().await.is_ok()) })
        })
}

/// Whether the database answers over a pool: then a failure is about what was written.
pub async fn answers(pool: &PgPool) -> bool {
    match pool.acquire().await {
        Ok(mut conn) => conn.ping().await.is_ok(),
        Err(_) => false,
    }
}

/// In a statement of its own both times are equal; within a transaction the first is the transaction's start. An error,
/// as in a failed transaction, closes the connection too.
async fn is_outside_of_a_transaction(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // Through the simple protocol, in which statement and transaction begin with the same message.
    let row = conn.fetch_one(sqlx::raw_sql("select now() = statement_timestamp()")).await?;
    row.try_get(0)
}
