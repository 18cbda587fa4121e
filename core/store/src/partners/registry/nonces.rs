//! Nonces of signed requests that every process must know, because no other part of the request is unique.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{StoreError, statement};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNonce {
    pub key_id: String,
    pub partner_id: String,
    pub nonce: String,
    /// The request's timestamp is refused after this time.
    pub expires_at: DateTime<Utc>,
}

/// Marks a nonce as used. `false`: it was used before.
pub async fn insert(conn: &mut PgConnection, new: &NewNonce) -> Result<bool, StoreError> {
    let sql = "insert into request_nonce (key_id, nonce, partner_id, expires_at) values ($1, $2, $3, $4) \
         on conflict on constraint request_nonce_pkey do nothing";
    Ok(statement::affected(conn, sql, (&new.key_id, &new.nonce, &new.partner_id, new.expires_at)).await? == 1)
}
