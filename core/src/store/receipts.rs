//! Receipts: immutable, one per execution.

use chrono::{DateTime, Utc};
use dvp_domain::receipt::Receipt;
use sqlx::PgConnection;

use super::StoreError;
use super::executions::bytes32;

pub async fn insert(
    conn: &mut PgConnection,
    reference: &str,
    receipt: &Receipt,
    issued_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("insert into receipt (reference, body, content_hash, issued_at) values ($1, $2, $3, $4)")
        .bind(reference)
        .bind(receipt.body.to_string())
        .bind(bytes32(&receipt.content_hash)?)
        .bind(issued_at)
        .execute(conn)
        .await?;
    Ok(())
}

/// The stored body's text.
pub async fn find_body(conn: &mut PgConnection, reference: &str) -> Result<Option<String>, StoreError> {
    let row: Option<(String,)> = sqlx::query_as("select body from receipt where reference = $1")
        .bind(reference)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(|row| row.0))
}
