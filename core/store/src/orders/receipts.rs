//! Receipts: immutable, one per execution.

use dvp_domain::receipt::Receipt;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::StoreError;

/// A receipt, the reference of its execution, and when it is issued.
pub type NewReceipt = (String, Receipt, Timestamp);

/// The stored body's text.
pub async fn find_body(conn: &mut PgConnection, reference: &str) -> Result<Option<String>, StoreError> {
    let row: Option<(String,)> = sqlx::query_as("select body from receipt where reference = $1")
        .bind(reference)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(|row| row.0))
}

/// An anchor in a canonical block.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AnchorRow {
    pub chain_id: i64,
    pub contract: Vec<u8>,
    pub tx_hash: Vec<u8>,
    pub block_number: i64,
}

/// The first indexed anchor of a content hash.
pub async fn find_anchor(
    conn: &mut PgConnection,
    content_hash: &[u8],
) -> Result<Option<AnchorRow>, StoreError> {
    let row = sqlx::query_as(
        "select chain_id, contract, tx_hash, block_number from chain_log \
         where entity = $1 and event = 'Anchored' and canonical order by block_number, log_index limit 1",
    )
    .bind(content_hash)
    .fetch_optional(conn)
    .await?;
    Ok(row)
}
