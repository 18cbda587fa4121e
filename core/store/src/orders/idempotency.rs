//! Idempotency records (contract section 8): written in the transaction of their work.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{StoreError, statement};

/// How long a record is kept, from the acceptance of the request.
pub const RETENTION_HOURS: i32 = 24;

/// What identifies a record: the partner (not the key it used), the environment, method, path and key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    pub partner_id: String,
    pub livemode: bool,
    pub method: String,
    pub path: String,
    pub key: Uuid,
}

/// A stored answer, replayed unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub body: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: RecordId,
    pub fingerprint: [u8; 32],
    pub response: StoredResponse,
}

type Row = (String, bool, String, String, Uuid, Vec<u8>, i32, String);

fn record(row: Row) -> Result<Record, StoreError> {
    let (partner_id, livemode, method, path, key, fingerprint, status, body) = row;
    let corrupt = |reason: &str| StoreError::corrupt("idempotency", reason);
    Ok(Record {
        id: RecordId { partner_id, livemode, method, path, key },
        fingerprint: fingerprint.try_into().map_err(|_| corrupt("fingerprint"))?,
        response: StoredResponse { status: u16::try_from(status).map_err(|_| corrupt("status"))?, body },
    })
}

pub(crate) struct RecordColumns<'a> {
    pub(crate) partner: Vec<&'a str>,
    pub(crate) livemode: Vec<bool>,
    pub(crate) method: Vec<&'a str>,
    pub(crate) path: Vec<&'a str>,
    pub(crate) key: Vec<Uuid>,
}

pub(crate) fn columns<'a>(ids: impl Iterator<Item = &'a RecordId>) -> RecordColumns<'a> {
    let mut all =
        RecordColumns { partner: vec![], livemode: vec![], method: vec![], path: vec![], key: vec![] };
    for id in ids {
        all.partner.push(&id.partner_id);
        all.livemode.push(id.livemode);
        all.method.push(&id.method);
        all.path.push(&id.path);
        all.key.push(id.key);
    }
    all
}

pub async fn list_live(conn: &mut PgConnection, ids: &[&RecordId]) -> Result<Vec<Record>, StoreError> {
    let at = columns(ids.iter().copied());
    let sql = "select partner_id, livemode, method, path, key, fingerprint, status, body from idempotency \
         where (partner_id, livemode, method, path, key) in \
               (select * from unnest($1::text[], $2::bool[], $3::text[], $4::text[], $5::uuid[])) \
           and accepted_at > now() - make_interval(hours => $6)";
    let rows: Vec<Row> =
        statement::list(conn, sql, (at.partner, at.livemode, at.method, at.path, at.key, RETENTION_HOURS))
            .await?;
    rows.into_iter().map(record).collect()
}
