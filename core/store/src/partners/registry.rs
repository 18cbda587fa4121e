//! Partners and their API keys.

pub mod nonces;
pub mod rates;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

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
    let sql = "select k.id, k.partner_id, k.env, k.scopes, coalesce(k.disabled_at, p.disabled_at) is not null, \
                k.sealed_secret, p.limit_per_minute, k.key_hash <> $1[1] \
         from api_key k join partner p on p.id = k.partner_id where k.key_hash = any($1) and k.revoked_at is null";
    let row: Option<Row> = statement::find(conn, sql, (hashes,)).await?;
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
    let sql = "update api_key set key_hash = $2, hash_key = $3 where id = $1 and revoked_at is null";
    statement::execute(conn, sql, (key_id, key_hash.as_slice(), master_key)).await
}

/// Hashes of the keys issued since a time, and the time of the latest one. `None`: of all keys.
pub async fn list_key_hashes(
    conn: &mut PgConnection,
    since: Option<DateTime<Utc>>,
) -> Result<Vec<([u8; 32], DateTime<Utc>)>, StoreError> {
    let sql = "select key_hash, created_at from api_key where created_at >= coalesce($1, '-infinity') \
         and revoked_at is null";
    let rows: Vec<(Vec<u8>, DateTime<Utc>)> = statement::list(conn, sql, (since,)).await?;
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
    let sql = "insert into partner (id, name, tier, limit_per_minute) values ($1, $2, $3, $4) \
         on conflict on constraint partner_name_key do update set name = excluded.name returning id";
    statement::load_value(conn, sql, (id, name, tier, limit_per_minute)).await
}

/// Stores a key; an existing one with the same hash stays unchanged.
pub async fn ensure_key(conn: &mut PgConnection, key: &NewKey) -> Result<(), StoreError> {
    let sql = "insert into api_key (id, partner_id, env, key_hash, key_prefix, sealed_secret, scopes, hash_key) \
         values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict on constraint api_key_hash_key do nothing";
    let parameters = (
        &key.key_id,
        &key.partner_id,
        key.env,
        key.key_hash.as_slice(),
        &key.key_prefix,
        &key.sealed_secret,
        &key.scopes,
        &key.hash_key,
    );
    statement::execute(conn, sql, parameters).await
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PartnerRow {
    pub id: String,
    pub name: String,
    pub tier: String,
    pub limit_per_minute: i64,
    pub created_at: DateTime<Utc>,
    pub disabled_at: Option<DateTime<Utc>>,
}

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
    let sql = "insert into partner (id, name, tier, limit_per_minute) values ($1, $2, $3, $4) \
         on conflict on constraint partner_name_key do nothing";
    Ok(statement::affected(conn, sql, (id, name, tier, limit_per_minute)).await? == 1)
}

pub async fn find_partner(conn: &mut PgConnection, name: &str) -> Result<Option<PartnerRow>, StoreError> {
    let sql = "select id, name, tier, limit_per_minute, created_at, disabled_at from partner where name = $1";
    statement::find(conn, sql, (name,)).await
}

pub async fn is_partner(conn: &mut PgConnection, id: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select from partner where id = $1)";
    statement::load_value(conn, sql, (id,)).await
}

/// The names of partners by their ids.
pub async fn list_names(
    conn: &mut PgConnection,
    ids: &[&str],
) -> Result<HashMap<String, String>, StoreError> {
    let sql = "select id, name from partner where id = any($1)";
    let rows: Vec<(String, String)> = statement::list(conn, sql, (ids,)).await?;
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
    let sql = "update partner set disabled_at = case when $2 then null else now() end \
         where id = $1 and (disabled_at is null) <> $2 and ($3::timestamptz is null or disabled_at = $3)";
    let done = statement::affected(tx, sql, (partner_id, enabled, disabled_at)).await?;
    if done == 0 {
        return Ok(false);
    }
    let sql = "insert into partner_action (partner_id, action, operator, reason) values ($1, $2, $3, $4)";
    statement::execute(tx, sql, (partner_id, if enabled { "enable" } else { "disable" }, operator, reason))
        .await?;
    Ok(true)
}

/// Operators' actions on a partner, the latest first.
pub async fn list_actions(
    conn: &mut PgConnection,
    partner_id: &str,
    limit: i64,
) -> Result<Vec<PartnerAction>, StoreError> {
    let sql = "select action, operator, reason, at from partner_action where partner_id = $1 \
         order by id desc limit $2";
    statement::list(conn, sql, (partner_id, limit)).await
}

/// Partners by name, those after `after`.
pub async fn list_partners(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<PartnerRow>, StoreError> {
    let sql = "select id, name, tier, limit_per_minute, created_at, disabled_at from partner \
         where name > $1 order by name limit $2";
    statement::list(conn, sql, (after, limit)).await
}

/// The keys of one partner or of all, by id, those after `after`.
pub async fn list_keys(
    conn: &mut PgConnection,
    partner_id: Option<&str>,
    after: &str,
    limit: i64,
) -> Result<Vec<ListedKey>, StoreError> {
    let sql = "select k.id as key_id, k.partner_id, p.name as partner, k.env, k.key_prefix, k.scopes, k.created_at, \
                k.disabled_at, k.revoked_at \
         from api_key k join partner p on p.id = k.partner_id \
         where ($1::text is null or k.partner_id = $1) and k.id > $2 order by k.id limit $3";
    statement::list(conn, sql, (partner_id, after, limit)).await
}

/// A key by its id, revoked ones too.
pub async fn find_listed_key(conn: &mut PgConnection, key_id: &str) -> Result<Option<ListedKey>, StoreError> {
    let sql = "select k.id as key_id, k.partner_id, p.name as partner, k.env, k.key_prefix, k.scopes, k.created_at, \
                k.disabled_at, k.revoked_at \
         from api_key k join partner p on p.id = k.partner_id where k.id = $1";
    statement::find(conn, sql, (key_id,)).await
}

/// Disables a key. Returns whether it existed and was enabled.
pub async fn disable_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let sql = "update api_key set disabled_at = now() where id = $1 and disabled_at is null";
    Ok(statement::affected(conn, sql, (key_id,)).await? == 1)
}

/// Enables a disabled key. Returns whether there was one.
pub async fn enable_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let sql = "update api_key set disabled_at = null where id = $1 and disabled_at is not null \
         and revoked_at is null";
    Ok(statement::affected(conn, sql, (key_id,)).await? == 1)
}

/// Revokes a key and deletes its signing secret; the database deactivates its endpoint. Returns whether it existed and was
/// not revoked.
pub async fn revoke_key(conn: &mut PgConnection, key_id: &str) -> Result<bool, StoreError> {
    let sql = "update api_key set revoked_at = now(), disabled_at = coalesce(disabled_at, now()), sealed_secret = '' \
         where id = $1 and revoked_at is null";
    Ok(statement::affected(conn, sql, (key_id,)).await? == 1)
}
