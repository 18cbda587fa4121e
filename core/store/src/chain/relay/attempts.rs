//! Signed bytes, encrypted.
//!
//! Invariant: the bytes of an attempt are committed before they are broadcast.

use super::super::{bigint, block, hash, unsigned};
use crate::{StoreError, statement};
use alloy::primitives::{Address, B256, Bytes};
use dvp_domain::chain::BlockNumber;
use dvp_domain::text::{TEXT_MAX, clean};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

/// One signed transaction of a slot.
#[derive(Debug, Clone)]
pub struct TxAttempt {
    pub nonce: u64,
    pub attempt: u64,
    pub hash: B256,
    /// The signed bytes, encrypted by the signer.
    pub sealed: Bytes,
    /// Wei per gas.
    pub max_fee: u128,
    /// Wei per gas.
    pub priority_fee: u128,
    /// The chain's newest block when it was signed.
    pub head_number: BlockNumber,
    /// By the database's clock; 0 of one that is to be stored.
    pub age_ms: i64,
    /// `None` before the first broadcast.
    pub last_broadcast_age_ms: Option<i64>,
}

/// Stores signed bytes. They may be broadcast only after the commit. Bytes that were signed before become the newest
/// attempt: the same call for the same fees has the same hash.
pub async fn insert_attempt(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    attempt: &TxAttempt,
) -> Result<(), StoreError> {
    let sql =
        "insert into tx_attempt (chain_id, signer, nonce, attempt, hash, sealed, max_fee, priority_fee, head_number)
         values ($1, $2, $3, $4, $5, $6, $7::text::numeric, $8::text::numeric, $9)
         on conflict on constraint tx_attempt_hash_key do update
         set attempt = excluded.attempt, head_number = excluded.head_number";
    let parameters = (
        bigint(chain_id),
        signer.as_slice(),
        bigint(attempt.nonce),
        bigint(attempt.attempt),
        attempt.hash.as_slice(),
        attempt.sealed.as_ref(),
        attempt.max_fee.to_string(),
        attempt.priority_fee.to_string(),
        bigint(attempt.head_number.0),
    );
    statement::execute(conn, sql, parameters).await
}

/// The attempts of some nonces, by nonce and attempt.
pub async fn list_attempts(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    nonces: &[i64],
) -> Result<Vec<TxAttempt>, StoreError> {
    let sql =
        "select nonce, attempt, hash, sealed, max_fee::text as max_fee, priority_fee::text as priority_fee, head_number,
                (extract(epoch from clock_timestamp() - created_at) * 1000)::bigint as age_ms,
                (extract(epoch from clock_timestamp() - last_broadcast_at) * 1000)::bigint as broadcast_age_ms
         from tx_attempt
         where chain_id = $1 and signer = $2 and nonce = any($3)
         order by nonce, attempt";
    let rows = statement::list_rows(conn, sql, (bigint(chain_id), signer.as_slice(), nonces)).await?;
    rows.iter().map(attempt_row).collect()
}

fn attempt_row(row: &PgRow) -> Result<TxAttempt, StoreError> {
    let table = "tx_attempt";
    let fee = |column: &str| -> Result<u128, StoreError> {
        let text: &str = row.try_get(column)?;
        text.parse().map_err(|error| StoreError::corrupt(table, error))
    };
    Ok(TxAttempt {
        nonce: unsigned(table, row.try_get("nonce")?)?,
        attempt: unsigned(table, row.try_get("attempt")?)?,
        hash: hash(table, row.try_get("hash")?)?,
        sealed: Bytes::copy_from_slice(row.try_get("sealed")?),
        max_fee: fee("max_fee")?,
        priority_fee: fee("priority_fee")?,
        head_number: block(table, row.try_get("head_number")?)?,
        age_ms: row.try_get("age_ms")?,
        last_broadcast_age_ms: row.try_get("broadcast_age_ms")?,
    })
}

/// Records that the node accepted the attempt's bytes.
pub async fn mark_broadcast(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    attempt: &TxAttempt,
) -> Result<(), StoreError> {
    let sql = "with sent as (
             update tx_attempt
             set last_broadcast_at = clock_timestamp(), last_error = null
             where chain_id = $1 and signer = $2 and nonce = $3 and attempt = $4)
         update nonce_slot
         set state = 'broadcast'
         where chain_id = $1 and signer = $2 and nonce = $3 and state = 'signed'";
    let parameters = (bigint(chain_id), signer.as_slice(), bigint(attempt.nonce), bigint(attempt.attempt));
    statement::execute(conn, sql, parameters).await
}

/// Records that the node rejected the attempt's bytes, or was not reached: it may have accepted them.
pub async fn note_send_error(
    conn: &mut PgConnection,
    chain_id: u64,
    attempt_hash: B256,
    error: &str,
) -> Result<(), StoreError> {
    let sql = "update tx_attempt
         set last_broadcast_at = clock_timestamp(), last_error = $3
         where chain_id = $1 and hash = $2";
    statement::execute(conn, sql, (bigint(chain_id), attempt_hash.as_slice(), clean(error, TEXT_MAX))).await
}
