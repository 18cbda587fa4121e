//! The events read from contracts.

use super::{bigint, hash, unsigned};
use crate::{StoreError, statement};
use alloy::primitives::B256;
use dvp_domain::chain::BlockNumber;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEvent {
    pub log_index: u64,
    pub tx_hash: B256,
    pub contract: Vec<u8>,
    pub event: String,
    pub entity: B256,
    pub seq: u64,
    pub fact: Option<serde_json::Value>,
    pub deposit: Option<serde_json::Value>,
}

/// The canonical events of some contracts in a block, in order.
pub async fn list_block_events(
    conn: &mut PgConnection,
    chain_id: u64,
    (number, block_hash): (BlockNumber, B256),
    contracts: &[Vec<u8>],
) -> Result<Vec<KeptEvent>, StoreError> {
    let sql = "select log_index, tx_hash, contract, event, entity, seq, fact, deposit
         from chain_log
         where chain_id = $1 and block_number = $2 and block_hash = $3 and contract = any($4) and canonical
         order by log_index";
    let parameters = (bigint(chain_id), bigint(number.0), block_hash.as_slice(), contracts);
    let rows = statement::list_rows(conn, sql, parameters).await?;
    rows.iter().map(kept).collect()
}

/// The canonical events of some contracts in a range of blocks, in the chain's order, each with its block's number and
/// hash.
pub async fn list_range_events(
    conn: &mut PgConnection,
    chain_id: u64,
    (from, to): (BlockNumber, BlockNumber),
    contracts: &[Vec<u8>],
) -> Result<Vec<(BlockNumber, B256, KeptEvent)>, StoreError> {
    let sql =
        "select block_number, block_hash, log_index, tx_hash, contract, event, entity, seq, fact, deposit
         from chain_log
         where chain_id = $1 and block_number between $2 and $3 and contract = any($4) and canonical
         order by block_number, log_index";
    let rows =
        statement::list_rows(conn, sql, (bigint(chain_id), bigint(from.0), bigint(to.0), contracts)).await?;
    let placed = |row: &PgRow| {
        let number = BlockNumber(unsigned(TABLE, row.try_get("block_number")?)?);
        Ok((number, hash(TABLE, row.try_get("block_hash")?)?, kept(row)?))
    };
    rows.iter().map(placed).collect()
}

const TABLE: &str = "chain_log";

fn kept(row: &PgRow) -> Result<KeptEvent, StoreError> {
    Ok(KeptEvent {
        log_index: unsigned(TABLE, row.try_get("log_index")?)?,
        tx_hash: hash(TABLE, row.try_get("tx_hash")?)?,
        contract: row.try_get("contract")?,
        event: row.try_get("event")?,
        entity: hash(TABLE, row.try_get("entity")?)?,
        seq: unsigned(TABLE, row.try_get("seq")?)?,
        fact: row.try_get("fact")?,
        deposit: row.try_get("deposit")?,
    })
}
