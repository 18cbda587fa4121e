//! Receipts: immutable, one per execution.

use dvp_domain::receipt::Receipt;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// A receipt, the reference of its execution, and when it is issued.
pub type NewReceipt = (String, Receipt, Timestamp);

/// The stored body's text; of an erased receipt, what is left of it.
pub async fn find_body(conn: &mut PgConnection, reference: &str) -> Result<Option<String>, StoreError> {
    let sql = "select coalesce(body, remainder) from receipt where reference = $1";
    statement::find_value(conn, sql, (reference,)).await
}

/// An anchor in a canonical block, by one of the relayer accounts.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AnchorRow {
    pub chain_id: i64,
    pub contract: Vec<u8>,
    pub tx_hash: Vec<u8>,
    pub block_number: i64,
    pub is_final: bool,
}

/// The first indexed anchor of a content hash by one of the relayer accounts, in service or not any more: anybody can
/// anchor anything, and the indexer derives a fact only from the anchors of these.
pub async fn find_anchor(
    conn: &mut PgConnection,
    content_hash: &[u8],
) -> Result<Option<AnchorRow>, StoreError> {
    let sql = "select log.chain_id, contract, tx_hash, block_number, block_number <= final_number as is_final \
         from chain_log log join chain_cursor cursor on cursor.chain_id = log.chain_id \
         where entity = $1 and event = 'Anchored' and canonical and fact is not null \
         order by block_number, log_index limit 1";
    statement::find(conn, sql, (content_hash,)).await
}
