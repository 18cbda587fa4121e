//! The state of the tables as numbers, for metrics. Every statement reads an index of open work, never what has ended.

use sqlx::PgConnection;

use crate::{StoreError, statement};

/// The executions of a stage that have not ended.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct OpenStage {
    pub stage: String,
    pub orders: i64,
    /// The longest time since an order's last event.
    pub oldest_seconds: f64,
}

pub async fn list_open_stages(conn: &mut PgConnection) -> Result<Vec<OpenStage>, StoreError> {
    let sql = "select state_name as stage, count(*) as orders, \
                greatest(extract(epoch from clock_timestamp() - min(coalesce(last_occurred_at, accepted_at))), 0)::float8 \
                    as oldest_seconds \
         from execution where terminal_at is null group by state_name";
    statement::list(conn, sql, ()).await
}

/// What open orders pay, in minor units, by asset.
pub async fn list_open_amounts(conn: &mut PgConnection) -> Result<Vec<(String, f64)>, StoreError> {
    let sql = "select asset, sum(amount)::float8 from open_change \
         where scope = 'everything' and target = '' group by asset";
    statement::list(conn, sql, ()).await
}

/// The feed's end, and how far its deliveries have come.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub struct FeedLag {
    pub position: i64,
    /// Deliveries were made of the events up to here.
    pub webhook_position: i64,
    /// Since the oldest event after that was recorded.
    pub webhook_seconds: f64,
}

pub async fn load_feed_lag(conn: &mut PgConnection) -> Result<FeedLag, StoreError> {
    let sql = "select counter.position, dispatcher.position as webhook_position, \
                coalesce((select greatest(extract(epoch from clock_timestamp() - event.observed_at), 0) \
                          from event where event.position > dispatcher.position \
                          order by event.position limit 1), 0)::float8 as webhook_seconds \
         from feed_counter counter, webhook_dispatcher dispatcher";
    statement::load(conn, sql, ()).await
}

/// Queued webhook deliveries of active endpoints.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub struct WebhookBacklog {
    pub pending: i64,
    /// Of them, those that were attempted and failed.
    pub retried: i64,
    /// How long the delivery that is due for the longest time has been due.
    pub overdue_seconds: f64,
    pub inactive_endpoints: i64,
}

pub async fn load_webhook_backlog(conn: &mut PgConnection) -> Result<WebhookBacklog, StoreError> {
    let sql = "select count(*) as pending, count(*) filter (where queue.attempts > 0) as retried, \
                greatest(extract(epoch from clock_timestamp() - coalesce(min(queue.due_at), clock_timestamp())), 0)::float8 \
                    as overdue_seconds, \
                (select count(*) from webhook_endpoint where not is_active) as inactive_endpoints \
         from webhook_queue queue join webhook_endpoint endpoint on endpoint.id = queue.endpoint_id \
         where endpoint.is_active";
    statement::load(conn, sql, ()).await
}

/// Leases of a kind: the part of their names before the first colon.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LeaseCount {
    pub kind: String,
    pub held: i64,
    pub expired: i64,
    /// How often they were acquired, by any process: their fences.
    pub acquired: i64,
}

pub async fn list_lease_counts(conn: &mut PgConnection) -> Result<Vec<LeaseCount>, StoreError> {
    let sql = "select split_part(name, ':', 1) as kind, \
                count(*) filter (where expires_at > clock_timestamp()) as held, \
                count(*) filter (where expires_at <= clock_timestamp()) as expired, \
                sum(fence)::int8 as acquired \
         from lease group by 1";
    statement::list(conn, sql, ()).await
}

/// The share of the most used limit of a scope and a period: 1 is a limit that is used up.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct LimitUse {
    pub scope: String,
    pub period: String,
    pub used: f64,
}

pub async fn list_limit_use(conn: &mut PgConnection) -> Result<Vec<LimitUse>, StoreError> {
    let sql = "select l.scope, l.period, \
                max(case l.period when 'day' then coalesce(u.amount, 0) \
                    else (select coalesce(sum(c.amount), 0) from open_change c \
                          where (c.scope, c.target, c.asset) = (l.scope, l.target, l.asset)) end \
                    / l.amount)::float8 as used \
         from order_limit l left join limit_usage u \
           on (u.scope, u.target, u.asset) = (l.scope, l.target, l.asset) \
              and u.day = (clock_timestamp() at time zone 'UTC')::date \
         where l.amount > 0 and l.period in ('day', 'open') group by l.scope, l.period";
    statement::list(conn, sql, ()).await
}

/// Nonces whose transactions are signed or broadcast and not mined, of a chain, and since when the oldest of them is.
pub async fn load_unmined(conn: &mut PgConnection, chain_id: i64) -> Result<(i64, f64), StoreError> {
    let sql = "select count(*), \
                greatest(extract(epoch from clock_timestamp() - coalesce(min(created_at), clock_timestamp())), 0)::float8 \
         from nonce_slot where chain_id = $1 and state in ('signed', 'broadcast')";
    statement::load(conn, sql, (chain_id,)).await
}
