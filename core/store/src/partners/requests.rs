//! Requests of partners over REST that changed something or were refused, as the partner reads them.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

/// An answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRequest {
    /// Ordered by time.
    pub id: Uuid,
    pub at: DateTime<Utc>,
    pub tenant: Tenant,
    pub key_id: String,
    pub request_id: String,
    pub method: String,
    pub path: String,
    pub status: i32,
    /// Of a refusal: its code and its message.
    pub code: Option<String>,
    pub message: Option<String>,
    pub millis: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LoggedRequest {
    pub id: Uuid,
    pub at: DateTime<Utc>,
    pub key_id: String,
    pub request_id: String,
    pub method: String,
    pub path: String,
    pub status: i32,
    pub code: Option<String>,
    pub message: Option<String>,
    pub millis: i32,
}

/// Records requests, in one statement.
pub async fn insert(conn: &mut PgConnection, requests: &[NewRequest]) -> Result<(), StoreError> {
    let sql = "insert into request_log (partner_id, livemode, id, at, key_id, request_id, method, path, status, \
                                  code, message, millis) \
         select * from unnest($1::text[], $2::bool[], $3::uuid[], $4::timestamptz[], $5::text[], $6::text[], \
                              $7::text[], $8::text[], $9::int[], $10::text[], $11::text[], $12::int[])";
    fn each<'a, T>(requests: &'a [NewRequest], of: impl Fn(&'a NewRequest) -> T) -> Vec<T> {
        requests.iter().map(of).collect()
    }
    let parameters = (
        each(requests, |one| one.tenant.partner_id.as_str()),
        each(requests, |one| one.tenant.livemode),
        each(requests, |one| one.id),
        each(requests, |one| one.at),
        each(requests, |one| one.key_id.as_str()),
        each(requests, |one| one.request_id.as_str()),
        each(requests, |one| one.method.as_str()),
        each(requests, |one| one.path.as_str()),
        each(requests, |one| one.status),
        each(requests, |one| one.code.as_deref()),
        each(requests, |one| one.message.as_deref()),
        each(requests, |one| one.millis),
    );
    statement::execute(conn, sql, parameters).await
}

/// A partner's requests of an environment, the latest first, before one of them.
pub async fn list(
    conn: &mut PgConnection,
    tenant: &Tenant,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<LoggedRequest>, StoreError> {
    let sql = "select id, at, key_id, request_id, method, path, status, code, message, millis from request_log \
         where partner_id = $1 and livemode = $2 and id < coalesce($3, 'ffffffff-ffff-ffff-ffff-ffffffffffff') \
         order by id desc limit $4";
    statement::list(conn, sql, (&tenant.partner_id, tenant.livemode, before, limit)).await
}
