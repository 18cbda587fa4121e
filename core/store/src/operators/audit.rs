//! The audit log: operators' actions, in a chain of hashes that the database appends to.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AuditEntry {
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub source: String,
    /// The row that was written, as JSON.
    pub entry: String,
    pub previous: Vec<u8>,
    pub hash: Vec<u8>,
    /// The text that the hash covers beside the previous hash.
    pub covered: String,
    /// Personal data was erased from it, so that the hash does not follow from the text.
    pub is_erased: bool,
}

/// The last row's number and hash.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Head {
    pub seq: i64,
    pub hash: Vec<u8>,
}

/// A head that was handed to the relayer to be anchored.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Anchor {
    pub seq: i64,
    pub hash: Vec<u8>,
    pub chain_id: i64,
    pub tx_hash: Option<String>,
    pub anchored_at: Option<DateTime<Utc>>,
}

pub async fn load_head(conn: &mut PgConnection) -> Result<Head, StoreError> {
    statement::load(conn, "select seq, hash from audit_head", ()).await
}

/// Rows after a number, in order.
pub async fn list(conn: &mut PgConnection, after: i64, limit: i64) -> Result<Vec<AuditEntry>, StoreError> {
    let sql = "select seq, at, source, entry, previous, hash, audit_text(seq, at, source, entry) as covered, \
                erased_at is not null as is_erased \
         from audit_entry where seq > $1 order by seq limit $2";
    statement::list(conn, sql, (after, limit)).await
}

/// Which rows of the log. What is not given is no condition.
#[derive(Debug, Clone, Copy)]
pub struct AuditFilter<'a> {
    /// Before this number, and this time.
    pub before: i64,
    pub until: Option<DateTime<Utc>>,
    /// The table of the action.
    pub record: Option<&'a str>,
    /// Who made, checked or did it.
    pub operator: Option<&'a str>,
    /// Any other value of the row.
    pub subject: Option<&'a str>,
}

/// How many rows a filter is compared with at a time.
const SEARCHED: i64 = 20_000;

/// Rows of a filter, the newest first, and the number of the last one that was compared with it: 1 is the first.
pub async fn list_before(
    conn: &mut PgConnection,
    filter: &AuditFilter<'_>,
    limit: i64,
) -> Result<(Vec<AuditEntry>, i64), StoreError> {
    let head = load_head(conn).await?.seq;
    let until = "select min(seq) from audit_entry where at >= $1";
    let later: Option<i64> = match filter.until {
        Some(until_time) => statement::load_value(conn, until, (until_time,)).await?,
        None => None,
    };
    let before = filter.before.min(head.saturating_add(1)).min(later.unwrap_or(i64::MAX));
    let first = before.saturating_sub(SEARCHED).max(1);
    let sql = "select seq, at, source, entry, previous, hash, audit_text(seq, at, source, entry) as covered, \
                erased_at is not null as is_erased \
         from audit_entry where seq < $1 and seq >= $2 and ($3::text is null or source = $3) \
              and ($4::text is null \
                   or exists (select from jsonb_each_text(entry::jsonb) f \
                              where f.key in ('operator', 'checker', 'maker', 'created_by') and lower(f.value) = lower($4))) \
              and ($5::text is null or exists (select from jsonb_each_text(entry::jsonb) f where f.value = $5)) \
         order by seq desc limit $6";
    let parameters = (before, first, filter.record, filter.operator, filter.subject, limit);
    let found: Vec<AuditEntry> = statement::list(conn, sql, parameters).await?;
    let is_full = i64::try_from(found.len()) == Ok(limit);
    let last = found.last().filter(|_| is_full).map_or(first, |row| row.seq);
    Ok((found, last))
}

/// The heads handed to the relayer, oldest first.
pub async fn list_anchors(
    conn: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<Anchor>, StoreError> {
    let sql = "select seq, hash, chain_id, tx_hash, anchored_at from audit_anchor where seq > $1 \
         order by seq limit $2";
    statement::list(conn, sql, (after, limit)).await
}

/// Inserts the audit log's head as the anchor of today, in the caller's transaction. `None`: today has an anchor, or the
/// log has no new row since the last one.
pub async fn insert_anchor(conn: &mut PgConnection, chain_id: i64) -> Result<Option<Anchor>, StoreError> {
    let sql = "insert into audit_anchor (day, seq, hash, chain_id) \
         select (now() at time zone 'UTC')::date, seq, hash, $1 from audit_head where seq > 0 \
         on conflict do nothing returning seq, hash, chain_id, tx_hash, anchored_at";
    statement::find(conn, sql, (chain_id,)).await
}

/// Marks a hash as anchored. `false`: it is not a head of the log.
pub async fn mark_anchored(conn: &mut PgConnection, hash: &[u8], tx_hash: &str) -> Result<bool, StoreError> {
    let sql =
        "update audit_anchor set tx_hash = $2, anchored_at = coalesce(anchored_at, now()) where hash = $1";
    Ok(statement::affected(conn, sql, (hash, tx_hash)).await? > 0)
}
