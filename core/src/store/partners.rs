//! Partners and their API keys.

use sqlx::PgConnection;

use super::StoreError;
use super::intents::Tenant;

/// A key as it is found by the hash of what the caller sent.
#[derive(Debug, Clone)]
pub struct KeyRow {
    pub key_id: String,
    pub tenant: Tenant,
    pub scopes: Vec<String>,
    pub disabled: bool,
    pub sealed_secret: Vec<u8>,
    pub limit_per_minute: i64,
}

/// A key to store.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub key_id: String,
    pub partner_id: String,
    pub env: &'static str,
    pub key_hash: [u8; 32],
    pub key_prefix: String,
    pub sealed_secret: Vec<u8>,
    pub scopes: Vec<String>,
}

pub async fn find_key(conn: &mut PgConnection, key_hash: &[u8; 32]) -> Result<Option<KeyRow>, StoreError> {
    type Row = (String, String, String, Vec<String>, bool, Vec<u8>, i64);
    let row: Option<Row> = sqlx::query_as(
        "select k.id, k.partner_id, k.env, k.scopes, k.disabled_at is not null, k.sealed_secret, p.limit_per_minute \
         from api_key k join partner p on p.id = k.partner_id where k.key_hash = $1",
    )
    .bind(key_hash.as_slice())
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|(key_id, partner_id, env, scopes, disabled, sealed_secret, limit_per_minute)| KeyRow {
        key_id,
        tenant: Tenant { partner_id, livemode: env == "live" },
        scopes,
        disabled,
        sealed_secret,
        limit_per_minute,
    }))
}

/// Creates a partner; one of that name stays as it is. Returns its id.
pub async fn ensure_partner(
    conn: &mut PgConnection,
    id: &str,
    name: &str,
    tier: &str,
    limit_per_minute: i64,
) -> Result<String, StoreError> {
    let row: (String,) = sqlx::query_as(
        "insert into partner (id, name, tier, limit_per_minute) values ($1, $2, $3, $4) \
         on conflict on constraint partner_name_key do update set name = excluded.name returning id",
    )
    .bind(id)
    .bind(name)
    .bind(tier)
    .bind(limit_per_minute)
    .fetch_one(conn)
    .await?;
    Ok(row.0)
}

/// Stores a key; one with the same hash stays as it is.
pub async fn ensure_key(conn: &mut PgConnection, key: &NewKey) -> Result<(), StoreError> {
    sqlx::query(
        "insert into api_key (id, partner_id, env, key_hash, key_prefix, sealed_secret, scopes) \
         values ($1, $2, $3, $4, $5, $6, $7) on conflict on constraint api_key_hash_key do nothing",
    )
    .bind(&key.key_id)
    .bind(&key.partner_id)
    .bind(key.env)
    .bind(key.key_hash.as_slice())
    .bind(&key.key_prefix)
    .bind(&key.sealed_secret)
    .bind(&key.scopes)
    .execute(conn)
    .await?;
    Ok(())
}

/// Disables a key. Returns whether it was there and enabled.
pub async fn disable_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query("update api_key set disabled_at = now() where id = $1 and disabled_at is null")
        .bind(key_id)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}
