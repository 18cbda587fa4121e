//! What the archive reads of a day: orders that ended on it, with their events and receipts, the ledger's entries of it,
//! and what accounts held at its beginning. Nobody's personal data is read.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::partners::personal::orders::{UNENDED, without_personal_data};
use crate::{StoreError, read, statement};

pub use crate::ledger::closings::find_closed_until;

/// When the first order ended, or the first entry was posted.
pub async fn find_beginning(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, StoreError> {
    let sql = "select least((select min(until) - interval '1 microsecond' from ledger_closing), \
                      (select terminal_at from execution where terminal_at is not null order by terminal_at limit 1))";
    statement::load_value(conn, sql, ()).await
}

/// How many of these orders have something on its way: funds, payments, work, decisions.
pub async fn count_unended(conn: &mut PgConnection, references: &[&str]) -> Result<i64, StoreError> {
    let sql =
        format!("select count(*) from execution e where e.reference = any($1) and ({UNENDED}) is not null");
    statement::load_value(conn, sqlx::AssertSqlSafe(sql), (references,)).await
}

/// An ended order without personal data.
#[derive(Debug, Clone)]
pub struct ArchivedOrder {
    pub reference: String,
    pub partner_id: String,
    pub livemode: bool,
    pub intent_id: String,
    pub client_reference: Option<String>,
    pub entity: Vec<u8>,
    /// JSON.
    pub terms: String,
    pub state_name: String,
    /// JSON.
    pub state: String,
    pub accepted_at: DateTime<Utc>,
    pub terminal_at: DateTime<Utc>,
}

impl FromRow<'_, PgRow> for ArchivedOrder {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let impersonal =
            |terms| serde_json::to_string(&without_personal_data(&serde_json::from_value(terms)?));
        Ok(Self {
            reference: row.try_get("reference")?,
            partner_id: row.try_get("partner_id")?,
            livemode: row.try_get("livemode")?,
            intent_id: row.try_get("intent_id")?,
            client_reference: row.try_get("client_reference")?,
            entity: row.try_get("entity")?,
            terms: read(row, ("execution", "terms"), impersonal)?,
            state_name: row.try_get("state_name")?,
            state: row.try_get::<Value, _>("state")?.to_string(),
            accepted_at: row.try_get("accepted_at")?,
            terminal_at: row.try_get("terminal_at")?,
        })
    }
}

/// A page of the orders that ended from a time on and before another, after a place, in the order of their ends.
pub async fn list_ended(
    conn: &mut PgConnection,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
    after: &str,
    limit: i64,
) -> Result<Vec<ArchivedOrder>, StoreError> {
    let sql = "select reference, partner_id, livemode, intent_id, client_reference, entity, terms, state_name, \
                state, accepted_at, terminal_at \
         from execution \
         where terminal_at is not null and terminal_at >= $1 and terminal_at < $2 and (terminal_at, reference) > ($1, $3) \
         order by terminal_at, reference limit $4";
    statement::list(conn, sql, (from, to, after, limit)).await
}

/// An event, without its beneficiary.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ArchivedEvent {
    pub reference: String,
    pub sequence: i64,
    pub event_id: String,
    #[sqlx(rename = "type")]
    pub kind: String,
    pub position: i64,
    pub occurred_at: DateTime<Utc>,
    pub observed_at: DateTime<Utc>,
    /// JSON.
    pub object: String,
}

pub async fn list_events(
    conn: &mut PgConnection,
    references: &[&str],
) -> Result<Vec<ArchivedEvent>, StoreError> {
    let sql = "select v.reference, v.sequence, v.event_id, v.type, v.position, v.occurred_at, v.observed_at, \
                jsonb_set(v.object::jsonb, '{beneficiary}', \
                          '{\"nameMasked\": null, \"accountLast4\": null, \"accountHash\": null}', false)::text as object \
         from event_record v where v.reference = any($1) order by v.reference, v.sequence";
    statement::list(conn, sql, (references,)).await
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ArchivedReceipt {
    pub reference: String,
    /// The canonical JSON.
    pub body: String,
    pub content_hash: Vec<u8>,
    pub issued_at: DateTime<Utc>,
}

pub async fn list_receipts(
    conn: &mut PgConnection,
    references: &[&str],
) -> Result<Vec<ArchivedReceipt>, StoreError> {
    let sql = "select reference, coalesce(body, remainder) as body, content_hash, issued_at \
         from receipt where reference = any($1) order by reference";
    statement::list(conn, sql, (references,)).await
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ArchivedEntry {
    pub reference: String,
    pub step: i64,
    pub line: i32,
    pub reason: String,
    pub owner_kind: String,
    pub owner: String,
    pub part: String,
    pub asset: String,
    pub amount: String,
    pub recorded_at: DateTime<Utc>,
}

/// The entries from a time on and before another, in no order.
pub async fn list_entries(
    conn: &mut PgConnection,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<Vec<ArchivedEntry>, StoreError> {
    let sql = "select reference, step, line, reason, owner_kind, owner, part, asset, trim_scale(amount)::text as \
                amount, recorded_at from ledger_entry where recorded_at >= $1 and recorded_at < $2";
    statement::list(conn, sql, (from, to)).await
}

/// Whether a closed day has entries: each account that had any has a closing of that day.
pub async fn has_entries(conn: &mut PgConnection, end: DateTime<Utc>) -> Result<bool, StoreError> {
    let sql =
        "select exists (select from ledger_closing where until > $1 - interval '24 hours' and until <= $1)";
    statement::load_value(conn, sql, (end,)).await
}
