//! The state of the service in a few rows, for operators. Every statement reads partial indexes of what is open.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::workers::set_aside::all;
use crate::{StoreError, statement};

/// Money of orders that have not ended, by settlement state and asset.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct InFlight {
    pub state: String,
    pub asset: String,
    pub exponent: i32,
    pub orders: i64,
    /// Minor units of the input.
    pub amount: String,
    pub oldest_at: DateTime<Utc>,
}

pub async fn list_in_flight(conn: &mut PgConnection) -> Result<Vec<InFlight>, StoreError> {
    let sql = "select state_name as state, terms #>> '{input,asset}' as asset, \
                (terms #>> '{input,exponent}')::int as exponent, count(*) as orders, \
                sum((terms #>> '{input,amount}')::numeric)::text as amount, min(accepted_at) as oldest_at \
         from execution where terminal_at is null group by 1, 2, 3 order by 1, 2";
    statement::list(conn, sql, ()).await
}

/// How orders of the last day went, or of an hour of it, by the newest events of the feed.
#[derive(Debug, Clone, Copy, Default, PartialEq, sqlx::FromRow)]
pub struct Lately {
    /// The hour: that many whole hours ago. `None`: the day.
    pub hours_ago: Option<i32>,
    pub paid: i64,
    pub failed: i64,
    /// Milliseconds from the acceptance to the payout: of half of them, and of all but a twentieth.
    pub median_ms: Option<i64>,
    pub most_ms: Option<i64>,
}

impl Lately {
    /// How long orders take.
    pub fn words(&self) -> Option<String> {
        let (median, most) = self.median_ms.zip(self.most_ms)?;
        Some(format!("{}; 95 of 100 within {}", seconds(median), seconds(most)))
    }
}

/// Milliseconds as seconds with a decimal.
pub fn seconds(millis: i64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}

/// The day, then those of its hours in which an order ended.
pub async fn list_lately(conn: &mut PgConnection) -> Result<Vec<Lately>, StoreError> {
    let sql = "with newest as (select type, reference, occurred_at from event \
                             where position > (select position from feed_counter) - 4000), \
                  ended as (select floor(extract(epoch from now() - t.occurred_at) / 3600)::int as hours_ago, \
                                   extract(epoch from t.occurred_at - e.accepted_at) * 1000 as millis \
                            from newest t left join lateral (select accepted_at from execution \
                                                             where reference = t.reference \
                                                               and t.type = 'payout.completed' offset 0) e on true \
                            where t.occurred_at > now() - interval '1 day' \
                              and (t.type like '%failed' \
                                   or t.type in ('payout.completed', 'intent.expired', 'intent.cancelled'))) \
         select hours_ago, count(millis) as paid, count(*) - count(millis) as failed, \
                round(percentile_cont(0.5) within group (order by millis))::int8 as median_ms, \
                round(percentile_cont(0.95) within group (order by millis))::int8 as most_ms \
         from ended group by grouping sets ((), (hours_ago)) order by hours_ago nulls first";
    statement::list(conn, sql, ()).await
}

/// How orders of the last day went.
pub async fn load_lately(conn: &mut PgConnection) -> Result<Lately, StoreError> {
    Ok(list_lately(conn).await?.first().copied().unwrap_or_default())
}

/// The bank's side: payments without a final answer, and the files each way.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BankCounts {
    pub unanswered: i64,
    pub oldest_at: Option<DateTime<Utc>>,
    /// The newest message about a payment to the bank, and from it.
    pub sent_at: Option<DateTime<Utc>>,
    pub received_at: Option<DateTime<Utc>>,
    /// Files of the bank that could not be read, or speak of payments that nobody knows.
    pub files: i64,
}

pub async fn load_bank_counts(conn: &mut PgConnection) -> Result<BankCounts, StoreError> {
    let sql = "select count(*) as unanswered, min(ordered_at) as oldest_at, \
                (select at from bank_message where direction = 'out' order by at desc limit 1) as sent_at, \
                (select at from bank_message where direction = 'in' order by at desc limit 1) as received_at, \
                (select count(*) from bank_file where (refusal is not null or unknown > 0) and cleared_at is null) \
                    as files \
         from bank_payment where status in ('staged', 'sent', 'pending')";
    statement::load(conn, sql, ()).await
}

/// What waits for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct Waiting {
    /// Orders that have not ended ten minutes after their acceptance.
    pub stuck_orders: i64,
    /// Payments with an open alarm.
    pub alarmed_payments: i64,
    pub pending_approvals: i64,
    pub breaks: i64,
    pub pauses: i64,
    /// Orders that screening holds.
    pub held_orders: i64,
    /// Items of worker loops that failed and are tried again later.
    pub set_aside: i64,
}

pub async fn load_waiting(conn: &mut PgConnection) -> Result<Waiting, StoreError> {
    let sql = concat!(
        "select (select count(*) from execution where terminal_at is null and state_name <> 'resting' \
                   and accepted_at < clock_timestamp() - interval '10 minutes') as stuck_orders, \
                (select count(*) from bank_payment where alarm is not null and alarm_cleared_at is null) \
                    as alarmed_payments, \
                (select count(*) from approval where state = 'pending' and expires_at > clock_timestamp()) \
                    as pending_approvals, \
                (select count(*) from reconciliation_break \
                 where run_id in (select max(id) from reconciliation_run group by chain_id)) as breaks, \
                (select count(*) from pause) as pauses, \
                (select count(*) from effect where kind = 'lock' and last_result = 'held by screening') as held_orders, \
                (select count(*) from (",
        all!(),
        ") items) as set_aside"
    );
    statement::load(conn, sql, ()).await
}

/// The sessions of the FIX gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct SessionCounts {
    pub enabled: i64,
    pub disabled: i64,
    /// A process owns them.
    pub owned: i64,
    /// Orders that wait for a look-up of their wallet.
    pub parked_orders: i64,
}

pub async fn load_session_counts(conn: &mut PgConnection) -> Result<SessionCounts, StoreError> {
    let sql = "select count(*) filter (where s.enabled) as enabled, count(*) filter (where not s.enabled) as \
                disabled, count(*) filter (where l.expires_at > clock_timestamp()) as owned, \
                (select count(*) from fix_parked) as parked_orders \
         from fix_session s left join lease l on l.name = 'fix:' || s.session_id";
    statement::load(conn, sql, ()).await
}

/// The queues of webhook endpoints.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WebhookCounts {
    pub active: i64,
    pub inactive: i64,
    /// Every delivery to them fails.
    pub failing: i64,
    pub queued: i64,
    pub oldest_at: Option<DateTime<Utc>>,
    /// Events that the dispatcher has not read.
    pub behind: i64,
}

pub async fn load_webhook_counts(conn: &mut PgConnection) -> Result<WebhookCounts, StoreError> {
    let sql = "select count(*) filter (where is_active) as active, count(*) filter (where not is_active) as \
                inactive, count(*) filter (where is_active and failing_since is not null) as failing, \
                (select count(*) from (select from webhook_queue limit 100000) q) as queued, \
                (select min(created_at) from (select created_at from webhook_queue order by id limit 1) q) as oldest_at, \
                (select c.position - d.position from feed_counter c, webhook_dispatcher d) as behind \
         from webhook_endpoint";
    statement::load(conn, sql, ()).await
}

/// The events of a stretch of the feed, by what they mean for throughput.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct FeedCounts {
    pub events: i64,
    pub accepted: i64,
    pub completed: i64,
    pub failed: i64,
}

impl FeedCounts {
    #[must_use]
    pub const fn plus(&self, more: &Self) -> Self {
        Self {
            events: self.events.saturating_add(more.events),
            accepted: self.accepted.saturating_add(more.accepted),
            completed: self.completed.saturating_add(more.completed),
            failed: self.failed.saturating_add(more.failed),
        }
    }
}

/// Counts the events after `after` up to `until`.
pub async fn count_events(conn: &mut PgConnection, after: i64, until: i64) -> Result<FeedCounts, StoreError> {
    let sql = "select count(*) as events, count(*) filter (where type = 'intent.accepted') as accepted, \
                count(*) filter (where type in ('payout.completed')) as completed, \
                count(*) filter (where type like '%failed' or type in ('intent.expired', 'intent.cancelled')) as failed \
         from event where position > $1 and position <= $2";
    statement::load(conn, sql, (after, until)).await
}
