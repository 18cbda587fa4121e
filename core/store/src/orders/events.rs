//! The feed: gap-free positions, contiguous sequences per intent.

use chrono::{DateTime, Utc};
use dvp_domain::event::EventType;
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;
use crate::orders::intents::Tenant;

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

/// An event as stored, at its position of the feed.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    pub position: i64,
    pub event: NewEvent,
}

/// A reader's filter of the feed.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub after: i64,
    pub kind: Option<EventType>,
    pub intent_id: Option<String>,
    pub limit: i64,
}

#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    position: i64,
    event_id: String,
    partner_id: String,
    livemode: bool,
    reference: String,
    intent_id: String,
    client_reference: Option<String>,
    sequence: i64,
    #[sqlx(rename = "type")]
    kind: String,
    occurred_at: DateTime<Utc>,
    observed_at: DateTime<Utc>,
    object: Value,
}

pub(crate) fn kind(text: &str) -> Result<EventType, StoreError> {
    EventType::parse(text).ok_or_else(|| StoreError::corrupt("event", format_args!("type {text}")))
}

impl Row {
    pub(crate) fn into_event(self) -> Result<StoredEvent, StoreError> {
        let kind = kind(&self.kind)?;
        let event = NewEvent {
            event_id: self.event_id,
            tenant: Tenant { partner_id: self.partner_id, livemode: self.livemode },
            reference: self.reference,
            intent_id: self.intent_id,
            client_reference: self.client_reference,
            sequence: self.sequence,
            kind,
            occurred_at: self.occurred_at,
            observed_at: self.observed_at,
            object: self.object,
        };
        Ok(StoredEvent { position: self.position, event })
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
    let rows: Vec<Row> = sqlx::query_as(page_query(filter))
        .bind(&tenant.partner_id)
        .bind(tenant.livemode)
        .bind(filter.after)
        .bind(RETENTION_DAYS)
        .bind(filter.kind.map(EventType::as_str))
        .bind(filter.intent_id.as_deref())
        .bind(filter.limit)
        .fetch_all(conn)
        .await?;
    rows.into_iter().map(Row::into_event).collect()
}

/// A tenant's event by its id, unless it has left the feed.
pub async fn find_for_tenant(
    conn: &mut PgConnection,
    tenant: &Tenant,
    event_id: &str,
) -> Result<Option<StoredEvent>, StoreError> {
    let row: Option<Row> = sqlx::query_as(
        "select * from event where event_id = $1 and partner_id = $2 and livemode = $3 \
           and observed_at > now() - make_interval(days => $4)",
    )
    .bind(event_id)
    .bind(&tenant.partner_id)
    .bind(tenant.livemode)
    .bind(RETENTION_DAYS)
    .fetch_optional(conn)
    .await?;
    row.map(Row::into_event).transpose()
}

/// A page of the feed's events of one partner's executions in one environment, for the service's own readers.
pub async fn list_after(
    conn: &mut PgConnection,
    partner_id: &str,
    livemode: bool,
    after: i64,
    limit: i64,
) -> Result<Vec<StoredEvent>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "select * from event where partner_id = $1 and livemode = $2 and position > $3 order by position limit $4",
    )
    .bind(partner_id)
    .bind(livemode)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::into_event).collect()
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
    let rows: Vec<Row> = sqlx::query_as(
        "select * from event_record \
         where (partner_id, livemode, position) > ($1, $2, $3) \
           and (partner_id, livemode, position) <= ($1, $2, 9223372036854775807) \
         order by partner_id, livemode, position limit $4",
    )
    .bind(partner_id)
    .bind(livemode)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::into_event).collect()
}

/// The newest position of the feed.
pub async fn load_position(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let row: (i64,) = sqlx::query_as("select position from feed_counter").fetch_one(conn).await?;
    Ok(row.0)
}

/// The feed's epoch: cursors of another epoch are refused.
pub async fn load_epoch(conn: &mut PgConnection) -> Result<uuid::Uuid, StoreError> {
    let row: (uuid::Uuid,) = sqlx::query_as("select epoch from feed_counter").fetch_one(conn).await?;
    Ok(row.0)
}
