//! Partners and their API keys.

pub mod nonces;
pub mod rates;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use crate::StoreError;
use crate::orders::intents::Tenant;

/// A key found by the hash of the caller's key.
#[derive(Debug, Clone)]
pub struct KeyRow {
    pub key_id: String,
    pub tenant: Tenant,
    pub scopes: Vec<String>,
    /// The key is disabled, or its partner.
    pub disabled: bool,
    pub sealed_secret: Vec<u8>,
    pub limit_per_minute: i64,
    /// Its hash was made with an earlier master key.
    pub has_old_hash: bool,
}

/// A key to store.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub key_id: String,
    pub partner_id: String,
    pub env: &'static str,
    pub key_hash: [u8; 32],
    /// Id of the master key of the hash.
    pub hash_key: String,
    pub key_prefix: String,
    pub sealed_secret: Vec<u8>,
    pub scopes: Vec<String>,
}

/// The key with one of the hashes, the first of which is that of the current master key.
pub async fn find_key(
    conn: &mut PgConnection,
    key_hashes: &[[u8; 32]],
) -> Result<Option<KeyRow>, StoreError> {
    type Row = (String, String, String, Vec<String>, bool, Vec<u8>, i64, bool);
    let hashes: Vec<&[u8]> = key_hashes.iter().map(<[u8; 32]>::as_slice).collect();
    let row: Option<Row> = sqlx::query_as(
        "select k.id, k.partner_id, k.env, k.scopes, coalesce(k.disabled_at, p.disabled_at) is not null, k.sealed_secret, \
                p.limit_per_minute, k.key_hash <> $1[1] \
         from api_key k join partner p on p.id = k.partner_id where k.key_hash = any($1) and k.revoked_at is null",
    )
    .bind(hashes)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|(key_id, partner_id, env, scopes, disabled, sealed_secret, limit_per_minute, is_old)| {
        KeyRow {
            key_id,
            tenant: Tenant { partner_id, livemode: env == "live" },
            scopes,
            disabled,
            sealed_secret,
            limit_per_minute,
            has_old_hash: is_old,
        }
    }))
}

/// Stores a key under the hash of the current master key.
pub async fn rehash_key(
    conn: &mut PgConnection,
    key_id: &str,
    key_hash: &[u8; 32],
    master_key: &str,
) -> Result<(), StoreError> {
    sqlx::query("update api_key set key_hash = $2, hash_key = $3 where id = $1 and revoked_at is null")
        .bind(key_id)
        .bind(key_hash.as_slice())
        .bind(master_key)
        .execute(conn)
        .await?;
    Ok(())
}

/// Hashes of the keys issued since a time, and the time of the latest one. `None`: of all keys.
pub async fn list_key_hashes(
    conn: &mut PgConnection,
    since: Option<DateTime<Utc>>,
) -> Result<Vec<([u8; 32], DateTime<Utc>)>, StoreError> {
    let rows: Vec<(Vec<u8>, DateTime<Utc>)> = sqlx::query_as(
        "select key_hash, created_at from api_key where created_at >= coalesce($1, '-infinity') \
         and revoked_at is null",
    )
    .bind(since)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(hash, created_at)| {
            let hash = hash.try_into().map_err(|_| StoreError::corrupt("api_key", "key_hash"))?;
            Ok((hash, created_at))
        })
        .collect()
}

/// Creates a partner; an existing one of that name stays unchanged. Returns its id.
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

/// Stores a key; an existing one with the same hash stays unchanged.
pub async fn ensure_key(conn: &mut PgConnection, key: &NewKey) -> Result<(), StoreError> {
    sqlx::query(
        "insert into api_key (id, partner_id, env, key_hash, key_prefix, sealed_secret, scopes, hash_key) \
         values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict on constraint api_key_hash_key do nothing",
    )
    .bind(&key.key_id)
    .bind(&key.partner_id)
    .bind(key.env)
    .bind(key.key_hash.as_slice())
    .bind(&key.key_prefix)
    .bind(&key.sealed_secret)
    .bind(&key.scopes)
    .bind(&key.hash_key)
    .execute(conn)
    .await?;
    Ok(())
}

/// A partner as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PartnerRow {
    pub id: String,
    pub name: String,
    pub tier: String,
    pub limit_per_minute: i64,
    pub created_at: DateTime<Utc>,
    pub disabled_at: Option<DateTime<Utc>>,
}

/// An operator's action on a partner, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PartnerAction {
    /// `disable` or `enable`.
    pub action: String,
    pub operator: String,
    pub reason: String,
    pub at: DateTime<Utc>,
}

/// A key in a list: without any secret.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ListedKey {
    pub key_id: String,
    pub partner_id: String,
    pub partner: String,
    pub env: String,
    pub key_prefix: String,
    pub scopes: Vec<String>,
    pub created_at: DateTime<Utc>,
    pub disabled_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Creates a partner. `false`: one of that name exists and stays unchanged.
pub async fn insert_partner(
    conn: &mut PgConnection,
    id: &str,
    name: &str,
    tier: &str,
    limit_per_minute: i64,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "insert into partner (id, name, tier, limit_per_minute) values ($1, $2, $3, $4) \
         on conflict on constraint partner_name_key do nothing",
    )
    .bind(id)
    .bind(name)
    .bind(tier)
    .bind(limit_per_minute)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find_partner(conn: &mut PgConnection, name: &str) -> Result<Option<PartnerRow>, StoreError> {
    let row = sqlx::query_as(
        "select id, name, tier, limit_per_minute, created_at, disabled_at from partner where name = $1",
    )
    .bind(name)
    .fetch_optional(conn)
    .await?;
    Ok(row)
}

pub async fn is_partner(conn: &mut PgConnection, id: &str) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar("select exists (select from partner where id = $1)");
    Ok(found.bind(id).fetch_one(conn).await?)
}

/// The names of partners by their ids.
pub async fn list_names(
    conn: &mut PgConnection,
    ids: &[&str],
) -> Result<HashMap<String, String>, StoreError> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("select id, name from partner where id = any($1)").bind(ids).fetch_all(conn).await?;
    Ok(rows.into_iter().collect())
}

/// Disables or enables a partner, and records the operator and the reason. `false`: it was in that state, and nothing
/// is recorded.
pub async fn switch_partner(
    tx: &mut PgTransaction<'_>,
    partner_id: &str,
    enabled: bool,
    operator: &str,
    reason: &str,
) -> Result<bool, StoreError> {
    switch_seen(tx, partner_id, enabled, None, (operator, reason)).await
}

/// Enables a partner that was disabled at `disabled_at`. `false`: it is enabled, or was disabled again.
pub async fn enable_seen(
    tx: &mut PgTransaction<'_>,
    partner_id: &str,
    disabled_at: DateTime<Utc>,
    operator: &str,
    reason: &str,
) -> Result<bool, StoreError> {
    switch_seen(tx, partner_id, true, Some(disabled_at), (operator, reason)).await
}

async fn switch_seen(
    tx: &mut PgTransaction<'_>,
    partner_id: &str,
    enabled: bool,
    disabled_at: Option<DateTime<Utc>>,
    (operator, reason): (&str, &str),
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update partner set disabled_at = case when $2 then null else now() end \
         where id = $1 and (disabled_at is null) <> $2 and ($3::timestamptz is null or disabled_at = $3)",
    )
    .bind(partner_id)
    .bind(enabled)
    .bind(disabled_at)
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("insert into partner_action (partner_id, action, operator, reason) values ($1, $2, $3, $4)")
        .bind(partner_id)
        .bind(if enabled { "enable" } else { "disable" })
        .bind(operator)
        .bind(reason)
        .execute(&mut **tx)
        .await?;
    Ok(true)
}

/// Operators' actions on a partner, the latest first.
pub async fn list_actions(
    conn: &mut PgConnection,
    partner_id: &str,
    limit: i64,
) -> Result<Vec<PartnerAction>, StoreError> {
    let rows = sqlx::query_as(
        "select action, operator, reason, at from partner_action where partner_id = $1 order by id desc limit $2",
    );
    Ok(rows.bind(partner_id).bind(limit).fetch_all(conn).await?)
}

/// Partners by name, those after `after`.
pub async fn list_partners(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<PartnerRow>, StoreError> {
    let rows = sqlx::query_as(
        "select id, name, tier, limit_per_minute, created_at, disabled_at from partner \
         where name > $1 order by name limit $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// The keys of one partner or of all, by id, those after `after`.
pub async fn list_keys(
    conn: &mut PgConnection,
    partner_id: Option<&str>,
    after: &str,
    limit: i64,
) -> Result<Vec<ListedKey>, StoreError> {
    let rows = sqlx::query_as(
        "select k.id as key_id, k.partner_id, p.name as partner, k.env, k.key_prefix, k.scopes, k.created_at, \
                k.disabled_at, k.revoked_at \
         from api_key k join partner p on p.id = k.partner_id \
         where ($1::text is null or k.partner_id = $1) and k.id > $2 order by k.id limit $3",
    )
    .bind(partner_id)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// A key by its id, revoked ones too.
pub async fn find_listed_key(conn: &mut PgConnection, key_id: &str) -> Result<Option<ListedKey>, StoreError> {
    let row = sqlx::query_as(
        "select k.id as key_id, k.partner_id, p.name as partner, k.env, k.key_prefix, k.scopes, k.created_at, \
                k.disabled_at, k.revoked_at \
         from api_key k join partner p on p.id = k.partner_id where k.id = $1",
    )
    .bind(key_id)
    .fetch_optional(conn)
    .await?;
    Ok(row)
}

/// Disables a key. Returns whether it existed and was enabled.
pub async fn disable_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query("update api_key set disabled_at = now() where id = $1 and disabled_at is null")
        .bind(key_id)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Enables a disabled key. Returns whether there was one.
pub async fn enable_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update api_key set disabled_at = null where id = $1 and disabled_at is not null and revoked_at is null",
    )
    .bind(key_id)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes a key and deletes its signing secret; the database deactivates its endpoint. Returns whether it existed and was
/// not revoked.
pub async fn revoke_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update api_key set revoked_at = now(), disabled_at = coalesce(disabled_at, now()), sealed_secret = '' \
         where id = $1 and revoked_at is null",
    )
    .bind(key_id)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
