//! The service's own reads of the feed: for deliveries, for replays, and for its retention.

use chrono::{DateTime, Utc};
use sqlx::{FromRow as _, PgConnection, PgTransaction, Row as _};

use crate::orders::events::{RETENTION_DAYS, StoredEvent};
use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

/// An event and an endpoint that subscribes to it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Routed {
    pub endpoint_id: String,
    #[sqlx(rename = "endpoint_version")]
    pub api_version: String,
    #[sqlx(flatten)]
    pub stored: StoredEvent,
}

/// The last position of the feed. All positions up to it are visible.
pub async fn load_last_position(conn: &mut PgConnection) -> Result<i64, StoreError> {
    statement::load_value(conn, "select position from feed_counter", ()).await
}

/// The tenants with events after a position, and the latest position among them; `after` without any.
pub async fn list_tenants_after(
    conn: &mut PgConnection,
    after: i64,
) -> Result<(Vec<Tenant>, i64), StoreError> {
    let sql = "select partner_id, livemode, max(position) from event where position > $1 \
         group by partner_id, livemode";
    let rows: Vec<(String, bool, i64)> = statement::list(conn, sql, (after,)).await?;
    let newest = rows.iter().map(|row| row.2).max().unwrap_or(after);
    let tenants = rows.into_iter().map(|(partner_id, livemode, _)| Tenant { partner_id, livemode });
    Ok((tenants.collect(), newest))
}

/// The position up to which deliveries were queued. Locks the dispatcher's row until the transaction ends; `None`:
/// another process holds it.
pub async fn lock_dispatcher(tx: &mut PgTransaction<'_>) -> Result<Option<i64>, StoreError> {
    let sql = "select position from webhook_dispatcher for update skip locked";
    statement::find_value(tx, sql, ()).await
}

pub async fn update_dispatcher(conn: &mut PgConnection, position: i64) -> Result<(), StoreError> {
    statement::execute(conn, "update webhook_dispatcher set position = $1", (position,)).await
}

/// An event for an endpoint that cannot be read, and why.
#[derive(Debug)]
pub struct Unrouted {
    pub position: i64,
    pub endpoint_id: String,
    pub error: StoreError,
}

/// Events of positions `after < position <= until`, once for each active endpoint that subscribes to them. An event that
/// cannot be read takes none of the others along.
pub async fn list_routed(
    conn: &mut PgConnection,
    after: i64,
    until: i64,
) -> Result<Vec<Result<Routed, Unrouted>>, StoreError> {
    let sql = "select w.id as endpoint_id, w.api_version as endpoint_version, e.* \
         from event e join webhook_endpoint w on w.partner_id = e.partner_id and w.livemode = e.livemode \
         where e.position > $1 and e.position <= $2 and w.is_active and e.position > w.from_position \
           and e.type = any(w.subscribed_types) \
         order by e.position";
    let rows = statement::list_rows(conn, sql, (after, until)).await?;
    let routed = |row| match Routed::from_row(row) {
        Ok(routed) => Ok(Ok(routed)),
        Err(error) => {
            let (position, endpoint_id) = (row.try_get("position")?, row.try_get("endpoint_id")?);
            Ok(Err(Unrouted { position, endpoint_id, error: error.into() }))
        }
    };
    rows.iter().map(routed).collect()
}

/// The last position recorded before `at`; zero without any. Positions are in the order of time except for differences
/// of clocks: give `at` a margin.
pub async fn find_position_before(conn: &mut PgConnection, at: DateTime<Utc>) -> Result<i64, StoreError> {
    let (mut low, mut high) = (0_i64, load_last_position(conn).await?);
    // Every event at or below `low` is before `at`, every one above `high` is not.
    while low < high {
        let middle = low.saturating_add(high.saturating_sub(low).saturating_add(1) / 2);
        let sql = "select position, observed_at from event where position >= $1 and position <= $2 \
             order by position limit 1";
        let next: Option<(i64, DateTime<Utc>)> = statement::find(conn, sql, (middle, high)).await?;
        match next {
            Some((position, observed)) if observed < at => low = position,
            Some(_) | None => high = middle.saturating_sub(1),
        }
    }
    Ok(low)
}

/// Moves expired events from the feed to the history, which statuses, reports and FIX sessions also read, at most `limit`.
/// Readers do not wait: deleted rows stay visible to transactions that have begun. Returns their number.
pub async fn trim(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let sql = "with oldest as (select position, observed_at from event order by position limit $1), \
              gone as (delete from event e using oldest o \
                       where e.position = o.position and o.observed_at <= now() - make_interval(days => $2) \
                       returning e.*) \
         insert into event_history select * from gone";
    statement::affected(conn, sql, (limit, RETENTION_DAYS)).await
}

/// The metadata of a page of the feed.
#[derive(Debug, Clone)]
pub struct Reader {
    /// Cursors of another epoch are refused.
    pub epoch: uuid::Uuid,
    /// The schema version pinned to the key's endpoint.
    pub api_version: Option<String>,
}

pub async fn load_reader(conn: &mut PgConnection, key_id: &str) -> Result<Reader, StoreError> {
    let sql =
        "select c.epoch, w.api_version from feed_counter c left join webhook_endpoint w on w.key_id = $1";
    let (epoch, api_version) = statement::load(conn, sql, (key_id,)).await?;
    Ok(Reader { epoch, api_version })
}
