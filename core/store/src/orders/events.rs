//! The feed: gap-free positions, contiguous sequences per intent.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::event::EventType;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::orders::intents::Tenant;
use crate::{StoreError, known, statement};

/// An event to append, with its document: a JSON value or its text.
#[derive(Debug, Clone)]
pub struct NewEvent<Document = Value> {
    pub event_id: String,
    pub tenant: Tenant,
    pub reference: String,
    pub intent_id: String,
    pub client_reference: Option<String>,
    pub sequence: i64,
    pub kind: EventType,
    pub occurred_at: DateTime<Utc>,
    pub observed_at: DateTime<Utc>,
    pub object: Document,
}

#[derive(Debug, Clone)]
pub struct StoredEvent {
    pub position: i64,
    pub event: NewEvent,
}

#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub after: i64,
    pub kind: Option<EventType>,
    pub intent_id: Option<String>,
    pub limit: i64,
}

pub(crate) fn kind(text: &str) -> Result<EventType, StoreError> {
    known("event", text, EventType::parse)
}

pub(crate) fn read_kind(row: &PgRow) -> sqlx::Result<EventType> {
    kind(row.try_get("type")?).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

impl FromRow<'_, PgRow> for StoredEvent {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let event = NewEvent {
            event_id: row.try_get("event_id")?,
            tenant: Tenant { partner_id: row.try_get("partner_id")?, livemode: row.try_get("livemode")? },
            reference: row.try_get("reference")?,
            intent_id: row.try_get("intent_id")?,
            client_reference: row.try_get("client_reference")?,
            sequence: row.try_get("sequence")?,
            kind: read_kind(row)?,
            occurred_at: row.try_get("occurred_at")?,
            observed_at: row.try_get("observed_at")?,
            object: row.try_get("object")?,
        };
        Ok(Self { position: row.try_get("position")?, event })
    }
}

/// How long an event stays in the feed.
pub const RETENTION_DAYS: i32 = 15;

macro_rules! page {
    ($events:expr, $filter:literal) => {
        concat!(
            "select * from ",
            $events,
            " where partner_id = $1 and livemode = $2 and position > $3 \
               and observed_at > now() - make_interval(days => $4) and ($5::text is null or true) \
               and ($6::text is null or true) ",
            $filter,
            " order by position limit $7"
        )
    };
}

/// An intent has few events: they are found by its reference, independently of the planner's statistics.
macro_rules! of_intent {
    () => {
        "(select * from event \
          where reference = (select reference from intent \
                             where partner_id = $1 and livemode = $2 and intent_id = $6) offset 0) of_intent"
    };
}

/// One statement text for each set of filters, so that each has a plan of its own that uses its index only.
const fn page_query(filter: &EventFilter) -> &'static str {
    match (&filter.kind, &filter.intent_id) {
        (None, None) => page!("event", ""),
        (Some(_), None) => page!("event", "and type = $5"),
        (None, Some(_)) => page!(of_intent!(), ""),
        (Some(_), Some(_)) => page!(of_intent!(), "and type = $5"),
    }
}

/// A page of a tenant's events after a position, ascending, within the feed's retention.
pub async fn list_for_tenant(
    conn: &mut PgConnection,
    tenant: &Tenant,
    filter: &EventFilter,
) -> Result<Vec<StoredEvent>, StoreError> {
    let sql = page_query(filter);
    let parameters = (
        &tenant.partner_id,
        tenant.livemode,
        filter.after,
        RETENTION_DAYS,
        filter.kind.map(EventType::as_str),
        filter.intent_id.as_deref(),
        filter.limit,
    );
    let mut found = statement::list(conn, sql, parameters).await?;
    show_receipts(conn, found.iter_mut()).await?;
    Ok(found)
}

/// Puts the receipt's hash into the events of a completed payout once its anchor is confirmed on the chain (spec section
/// 2.8). The events were recorded before that.
pub(crate) async fn show_receipts(
    conn: &mut PgConnection,
    events: impl Iterator<Item = &mut StoredEvent>,
) -> Result<(), StoreError> {
    let paid: Vec<&mut NewEvent> =
        events.map(|stored| &mut stored.event).filter(|event| event.kind.is_paid()).collect();
    if paid.is_empty() {
        return Ok(());
    }
    let references: Vec<&str> = paid.iter().map(|event| event.reference.as_str()).collect();
    let sql = "select r.reference, '0x' || encode(r.content_hash, 'hex') \
         from receipt r join execution e on e.reference = r.reference \
         where r.reference = any($1) and e.state #>> '{finality,txHash}' is not null";
    let anchored: Vec<(String, String)> = statement::list(conn, sql, (&references,)).await?;
    let anchored: HashMap<String, String> = anchored.into_iter().collect();
    for event in paid {
        if let Some(hash) = anchored.get(&event.reference)
            && let Some(receipt) = event.object.pointer_mut("/payout/receipt")
        {
            *receipt = Value::String(hash.clone());
        }
    }
    Ok(())
}

/// A tenant's event by its id, unless it has left the feed.
pub async fn find_for_tenant(
    conn: &mut PgConnection,
    tenant: &Tenant,
    event_id: &str,
) -> Result<Option<StoredEvent>, StoreError> {
    let sql = "select * from event where event_id = $1 and partner_id = $2 and livemode = $3 \
           and observed_at > now() - make_interval(days => $4)";
    let parameters = (event_id, &tenant.partner_id, tenant.livemode, RETENTION_DAYS);
    let mut found = statement::find(conn, sql, parameters).await?;
    show_receipts(conn, found.iter_mut()).await?;
    Ok(found)
}

/// A page of the feed's events of one partner's executions in one environment, for the service's own readers.
pub async fn list_after(
    conn: &mut PgConnection,
    partner_id: &str,
    livemode: bool,
    after: i64,
    limit: i64,
) -> Result<Vec<StoredEvent>, StoreError> {
    let sql = "select * from event where partner_id = $1 and livemode = $2 and position > $3 \
         order by position limit $4";
    statement::list(conn, sql, (partner_id, livemode, after, limit)).await
}

/// The same with events that have left the feed, for readers that may not have read for longer than its retention.
pub async fn list_recorded_after(
    conn: &mut PgConnection,
    partner_id: &str,
    livemode: bool,
    after: i64,
    limit: i64,
) -> Result<Vec<StoredEvent>, StoreError> {
    // The comparison of rows fits only the index that begins with the partner. With one condition for each column the
    // planner may read the primary key, and with it what all other partners have had since that position.
    let sql = "select * from event_record \
         where (partner_id, livemode, position) > ($1, $2, $3) \
           and (partner_id, livemode, position) <= ($1, $2, 9223372036854775807) \
         order by partner_id, livemode, position limit $4";
    statement::list(conn, sql, (partner_id, livemode, after, limit)).await
}

/// The feed's epoch: cursors of another epoch are refused.
pub async fn load_epoch(conn: &mut PgConnection) -> Result<uuid::Uuid, StoreError> {
    statement::load_value(conn, "select epoch from feed_counter", ()).await
}
