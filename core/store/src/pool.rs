//! Pools whose connections come back as they went out.
//!
//! sqlx 0.9.0 forgets a transaction when the future of `begin` is dropped while BEGIN is on its way (transact-rs/sqlx
//! issue 4393): the connection goes back to the pool with the transaction open, and whoever gets it next writes into a
//! transaction that nobody commits. A caller that hangs up, a timeout and an aborted task all do that, so every
//! connection is looked at before it is given out again.

use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgConnection, Row as _};

/// The options every pool of this service begins with.
pub fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new().after_release(|conn, _| Box::pin(is_outside_of_a_transaction(conn)))
}

/// In a statement of its own both times are the same; within a transaction the first is when that began. An error, as
/// in a failed transaction, closes the connection too.
async fn is_outside_of_a_transaction(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // By the simple protocol, where statement and transaction begin with the same message.
    let row = conn.fetch_one(sqlx::raw_sql("select now() = statement_timestamp()")).await?;
    row.try_get(0)
}
