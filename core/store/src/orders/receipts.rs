//! Receipts: immutable, one per execution.

use dvp_domain::receipt::Receipt;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::StoreError;
use crate::orders::executions::bytes32;

/// A receipt, the reference of its execution, and when it is issued.
pub type NewReceipt = (String, Receipt, Timestamp);

pub async fn insert(conn: &mut PgConnection, receipts: &[NewReceipt]) -> Result<(), StoreError> {
    let hashes = receipts.iter().map(|(_, receipt, _)| bytes32(&receipt.content_hash));
    let hashes = hashes.collect::<Result<Vec<_>, _>>()?;
    sqlx::query(
        "insert into receipt (reference, body, content_hash, issued_at) \
         select * from unnest($1::text[], $2::text[], $3::bytea[], $4::timestamptz[])",
    )
    .bind(receipts.iter().map(|(reference, ..)| reference.as_str()).collect::<Vec<_>>())
    .bind(receipts.iter().map(|(_, receipt, _)| receipt.body.to_string()).collect::<Vec<_>>())
    .bind(hashes)
    .bind(receipts.iter().map(|(.., issued_at)| issued_at.to_utc()).collect::<Vec<_>>())
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
