//! Pools whose connections have no open transaction.
//!
//! sqlx 0.9.0 loses track of a transaction when the future of `begin` is dropped while BEGIN is in flight
//! (transact-rs/sqlx issue 4393): the connection returns to the pool with the transaction open, and its next user
//! writes into a transaction that is never committed. A client's disconnect, a timeout and an aborted task all cause
//! this, so every connection is checked before it is reused.

use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgConnection, Row as _};

/// The base options of every pool of this service.
pub fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new().after_release(|conn, _| Box::pin(is_outside_of_a_transaction(conn)))
}

/// In a statement of its own both times are equal; within a transaction the first is the transaction's start. An error,
/// as in a failed transaction, closes the connection too.
async fn is_outside_of_a_transaction(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // Through the simple protocol, in which statement and transaction begin with the same message.
    let row = conn.fetch_one(sqlx::raw_sql("select now() = statement_timestamp()")).await?;
    row.try_get(0)
}
