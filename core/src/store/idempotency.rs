//! Idempotency records (contract section 8): written in the transaction of the work they stand for.

use sqlx::PgConnection;
use uuid::Uuid;

use super::StoreError;

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

/// An answer as it was given and will be given again.
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

struct Columns<'a> {
    partner: Vec<&'a str>,
    livemode: Vec<bool>,
    method: Vec<&'a str>,
    path: Vec<&'a str>,
    key: Vec<Uuid>,
}

fn columns<'a>(ids: impl Iterator<Item = &'a RecordId>) -> Columns<'a> {
    let mut all = Columns { partner: vec![], livemode: vec![], method: vec![], path: vec![], key: vec![] };
    for id in ids {
        all.partner.push(&id.partner_id);
        all.livemode.push(id.livemode);
        all.method.push(&id.method);
        all.path.push(&id.path);
        all.key.push(id.key);
    }
    all
}

/// The records among `ids` that have not expired.
pub async fn list_live(conn: &mut PgConnection, ids: &[&RecordId]) -> Result<Vec<Record>, StoreError> {
    let at = columns(ids.iter().copied());
    let rows: Vec<Row> = sqlx::query_as(
        "select partner_id, livemode, method, path, key, fingerprint, status, body from idempotency \
         where (partner_id, livemode, method, path, key) in \
               (select * from unnest($1::text[], $2::bool[], $3::text[], $4::text[], $5::uuid[])) \
           and accepted_at > now() - make_interval(hours => $6)",
    )
    .bind(at.partner)
    .bind(at.livemode)
    .bind(at.method)
    .bind(at.path)
    .bind(at.key)
    .bind(RETENTION_HOURS)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(record).collect()
}

/// Inserts records, taking the place of expired ones. [`StoreError::Stale`] when another process was faster.
pub async fn insert(conn: &mut PgConnection, records: &[Record]) -> Result<(), StoreError> {
    let at = columns(records.iter().map(|record| &record.id));
    let fingerprints: Vec<&[u8]> = records.iter().map(|r| r.fingerprint.as_slice()).collect();
    let statuses: Vec<i32> = records.iter().map(|r| i32::from(r.response.status)).collect();
    let bodies: Vec<&str> = records.iter().map(|r| r.response.body.as_str()).collect();
    let written = sqlx::query(
        "insert into idempotency as i (partner_id, livemode, method, path, key, fingerprint, status, body) \
         select * from unnest($1::text[], $2::bool[], $3::text[], $4::text[], $5::uuid[], $6::bytea[], \
                              $7::int[], $8::text[]) \
         on conflict on constraint idempotency_pkey do update \
         set fingerprint = excluded.fingerprint, status = excluded.status, body = excluded.body, accepted_at = now() \
         where i.accepted_at <= now() - make_interval(hours => $9)",
    )
    .bind(at.partner)
    .bind(at.livemode)
    .bind(at.method)
    .bind(at.path)
    .bind(at.key)
    .bind(fingerprints)
    .bind(statuses)
    .bind(bodies)
    .bind(RETENTION_HOURS)
    .execute(conn)
    .await?
    .rows_affected();
    if usize::try_from(written) == Ok(records.len()) {
        Ok(())
    } else {
        Err(StoreError::Stale { what: "idempotency record" })
    }
}
