//! Webhook endpoints, one per API key, and the answers stored under the optional Idempotency-Key.

pub mod deliveries;
pub mod leases;
pub mod replays;

use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use dvp_domain::time::Timestamp;
use dvp_domain::webhook::Health;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

/// How long an answer is stored under an Idempotency-Key, in hours.
pub const ONCE_HOURS: i32 = 24;

/// An endpoint, active or not.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub id: String,
    pub key_id: String,
    pub tenant: Tenant,
    pub url: String,
    pub subscribed_types: Vec<String>,
    pub api_version: String,
    pub is_active: bool,
    pub secrets: SealedSecrets,
    pub rotated_at: Option<DateTime<Utc>>,
    pub health: Health,
}

/// The signing secrets, encrypted for the endpoint's id.
#[derive(Debug, Clone)]
pub struct SealedSecrets {
    pub current: Vec<u8>,
    /// The next secret, and the time from which it is used.
    pub next: Option<(Vec<u8>, DateTime<Utc>)>,
}

impl FromRow<'_, PgRow> for Endpoint {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let time = |column| {
            let time: Option<DateTime<Utc>> = row.try_get(column)?;
            Ok::<_, sqlx::Error>(time.map(Timestamp::from))
        };
        let next: Option<Vec<u8>> = row.try_get("sealed_next")?;
        Ok(Self {
            id: row.try_get("id")?,
            key_id: row.try_get("key_id")?,
            tenant: Tenant { partner_id: row.try_get("partner_id")?, livemode: row.try_get("livemode")? },
            url: row.try_get("url")?,
            subscribed_types: row.try_get("subscribed_types")?,
            api_version: row.try_get("api_version")?,
            is_active: row.try_get("is_active")?,
            secrets: SealedSecrets {
                current: row.try_get("sealed_secret")?,
                next: next.zip(row.try_get("grace_expires_at")?),
            },
            rotated_at: row.try_get("rotated_at")?,
            health: Health { failing_since: time("failing_since")?, reported_at: time("noticed_at")? },
        })
    }
}

#[derive(Debug, Clone)]
pub struct NewEndpoint {
    pub id: String,
    pub key_id: String,
    pub tenant: Tenant,
    pub url: String,
    pub subscribed_types: Vec<String>,
    pub api_version: &'static str,
    pub sealed_secret: Vec<u8>,
}

/// Inserts an endpoint and its lease. Delivery begins at the present end of the feed. A key has one endpoint:
/// [`StoreError::constraint`] is `webhook_endpoint_key_key` for a second.
pub async fn insert(conn: &mut PgConnection, new: &NewEndpoint) -> Result<(), StoreError> {
    let sql = "with new as ( \
             insert into webhook_endpoint (id, key_id, partner_id, livemode, url, subscribed_types, api_version, \
                                           sealed_secret, from_position) \
             select $1, $2, $3, $4, $5, $6, $7, $8, position from feed_counter returning id \
         ) \
         insert into endpoint_lease (endpoint_id) select id from new";
    let parameters = (
        &new.id,
        &new.key_id,
        &new.tenant.partner_id,
        new.tenant.livemode,
        &new.url,
        &new.subscribed_types,
        new.api_version,
        &new.sealed_secret,
    );
    statement::execute(conn, sql, parameters).await
}

pub async fn find_by_key(conn: &mut PgConnection, key_id: &str) -> Result<Option<Endpoint>, StoreError> {
    let sql = "select * from webhook_endpoint where key_id = $1";
    statement::find(conn, sql, (key_id,)).await
}

/// The endpoint of a key, locked until the transaction ends.
pub async fn lock_by_key(conn: &mut PgConnection, key_id: &str) -> Result<Option<Endpoint>, StoreError> {
    let sql = "select * from webhook_endpoint where key_id = $1 for no key update";
    statement::find(conn, sql, (key_id,)).await
}

/// Endpoints by id, except those of disabled partners.
pub async fn find_many(conn: &mut PgConnection, ids: &[&str]) -> Result<Vec<Endpoint>, StoreError> {
    let sql = "select w.* from webhook_endpoint w join partner p on p.id = w.partner_id \
         where w.id = any($1) and p.disabled_at is null";
    statement::list(conn, sql, (ids,)).await
}

/// Endpoints by id, locked until the transaction ends. Deliveries are inserted meanwhile: they refer to endpoints in any
/// order, and would meet a lock of the keys in a deadlock.
pub async fn lock_many(conn: &mut PgConnection, ids: &[&str]) -> Result<Vec<Endpoint>, StoreError> {
    let sql = "select * from webhook_endpoint where id = any($1) order by id for no key update";
    statement::list(conn, sql, (ids,)).await
}

/// Endpoints by id, those after `after`; of one partner or of all.
pub async fn list(
    conn: &mut PgConnection,
    partner_id: Option<&str>,
    after: &str,
    limit: i64,
) -> Result<Vec<Endpoint>, StoreError> {
    let sql = "select * from webhook_endpoint where id > $1 and ($2::text is null or partner_id = $2) \
         order by id limit $3";
    statement::list(conn, sql, (after, partner_id, limit)).await
}

/// Writes the fields that a partner may change. An endpoint that becomes active begins at the present end of the feed,
/// without its past failures; so does one with another URL, whose failures those were not.
pub async fn update(conn: &mut PgConnection, endpoint: &Endpoint) -> Result<(), StoreError> {
    let sql = "update webhook_endpoint w \
         set url = $2, subscribed_types = $3, is_active = $4, \
             from_position = case when $4 and not w.is_active \
                                  then (select position from feed_counter) else w.from_position end, \
             failing_since = case when ($4 and not w.is_active) or w.url <> $2 then null else w.failing_since end, \
             noticed_at = case when ($4 and not w.is_active) or w.url <> $2 then null else w.noticed_at end \
         where id = $1";
    let parameters = (&endpoint.id, &endpoint.url, &endpoint.subscribed_types, endpoint.is_active);
    statement::execute(conn, sql, parameters).await
}

/// Deactivates an endpoint for an operator; whether it was active. `None`: there is no such endpoint.
pub async fn stop(conn: &mut PgConnection, id: &str) -> Result<Option<bool>, StoreError> {
    let sql = "with before as (select id, is_active from webhook_endpoint where id = $1 for no key update) \
         update webhook_endpoint w set is_active = false \
         from before where w.id = before.id returning before.is_active";
    statement::find_value(conn, sql, (id,)).await
}

/// Writes an endpoint's secrets after a rotation.
pub async fn update_secrets(conn: &mut PgConnection, endpoint: &Endpoint) -> Result<(), StoreError> {
    let (next, expires) = endpoint.secrets.next.clone().unzip();
    let sql = "update webhook_endpoint set sealed_secret = $2, sealed_next = $3, grace_expires_at = $4, rotated_at \
         = $5 where id = $1";
    let parameters = (&endpoint.id, &endpoint.secrets.current, next, expires, endpoint.rotated_at);
    statement::execute(conn, sql, parameters).await
}

/// Writes an endpoint's health after an attempt.
pub async fn update_health(
    conn: &mut PgConnection,
    id: &str,
    health: Health,
    is_active: bool,
) -> Result<(), StoreError> {
    let sql = "update webhook_endpoint set failing_since = $2, noticed_at = $3, is_active = $4 where id = $1";
    let parameters = (
        id,
        health.failing_since.map(Timestamp::to_utc),
        health.reported_at.map(Timestamp::to_utc),
        is_active,
    );
    statement::execute(conn, sql, parameters).await
}

/// Moves an endpoint to another key of the same partner and environment. Returns whether there was one.
pub async fn move_to_key(conn: &mut PgConnection, from: &str, to: &str) -> Result<bool, StoreError> {
    let sql = "update webhook_endpoint w set key_id = new.id from api_key old, api_key new \
         where w.key_id = $1 and old.id = $1 and new.id = $2 \
           and new.partner_id = old.partner_id and new.env = old.env";
    Ok(statement::affected(conn, sql, (from, to)).await? == 1)
}

names! {
    pub enum NoticeKind {
        Failing = "failing",
        DeactivatedFailing = "deactivated_failing",
        DeactivatedGone = "deactivated_gone",
    }
}

pub async fn insert_notice(conn: &mut PgConnection, id: &str, kind: NoticeKind) -> Result<(), StoreError> {
    let sql = "insert into webhook_notice (endpoint_id, kind) values ($1, $2)";
    statement::execute(conn, sql, (id, kind.as_str())).await
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Notice {
    pub id: i64,
    pub endpoint_id: String,
    pub partner: String,
    pub kind: String,
    pub at: DateTime<Utc>,
}

/// Notices, latest first, those before `before`.
pub async fn list_notices(
    conn: &mut PgConnection,
    before: i64,
    limit: i64,
) -> Result<Vec<Notice>, StoreError> {
    let sql = "select n.id, n.endpoint_id, p.name as partner, n.kind, n.at \
         from webhook_notice n join webhook_endpoint w on w.id = n.endpoint_id \
              join partner p on p.id = w.partner_id \
         where n.id < $1 order by n.id desc limit $2";
    statement::list(conn, sql, (before, limit)).await
}

/// The write that an Idempotency-Key belongs to.
#[derive(Debug, Clone)]
pub struct WebhookRecordId {
    pub key_id: String,
    /// Method and path.
    pub operation: String,
    pub idempotency_key: String,
}

/// An answer stored under an Idempotency-Key.
#[derive(Debug, Clone)]
pub struct WebhookRecord {
    pub fingerprint: [u8; 32],
    pub status: u16,
    pub sealed_body: Vec<u8>,
}

/// Claims a key for the transaction's work: `None`. A concurrent request with the same key waits here for the first
/// one, and gets its answer.
pub async fn claim_key(
    conn: &mut PgConnection,
    id: &WebhookRecordId,
    fingerprint: &[u8; 32],
) -> Result<Option<WebhookRecord>, StoreError> {
    let sql = "insert into webhook_idempotency as o (key_id, operation, idempotency_key, fingerprint, status, \
         sealed_body) \
         values ($1, $2, $3, $4, 0, '') on conflict on constraint webhook_idempotency_pkey do update \
         set fingerprint = excluded.fingerprint, status = 0, sealed_body = '', accepted_at = now() \
         where o.accepted_at <= now() - make_interval(hours => $5)";
    let parameters = (&id.key_id, &id.operation, &id.idempotency_key, fingerprint.as_slice(), ONCE_HOURS);
    let claimed = statement::affected(conn, sql, parameters).await?;
    if claimed == 1 {
        return Ok(None);
    }
    let sql = "select fingerprint, status, sealed_body from webhook_idempotency \
         where key_id = $1 and operation = $2 and idempotency_key = $3";
    let (fingerprint, status, sealed_body): (Vec<u8>, i32, Vec<u8>) =
        statement::load(conn, sql, (&id.key_id, &id.operation, &id.idempotency_key)).await?;
    let corrupt = |reason: &str| StoreError::corrupt("webhook_idempotency", reason);
    Ok(Some(WebhookRecord {
        fingerprint: fingerprint.try_into().map_err(|_| corrupt("fingerprint"))?,
        status: u16::try_from(status).map_err(|_| corrupt("status"))?,
        sealed_body,
    }))
}

pub async fn store_answer(
    conn: &mut PgConnection,
    id: &WebhookRecordId,
    status: u16,
    sealed_body: &[u8],
) -> Result<(), StoreError> {
    let sql = "update webhook_idempotency set status = $4, sealed_body = $5 \
         where key_id = $1 and operation = $2 and idempotency_key = $3";
    let parameters = (&id.key_id, &id.operation, &id.idempotency_key, i32::from(status), sealed_body);
    statement::execute(conn, sql, parameters).await
}

/// Deletes expired answers, at most `limit`.
pub async fn delete_old_answers(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let sql = "delete from webhook_idempotency where ctid = any(array(select ctid from webhook_idempotency \
           where accepted_at <= now() - make_interval(hours => $1) order by accepted_at limit $2))";
    statement::affected(conn, sql, (ONCE_HOURS, limit)).await
}
