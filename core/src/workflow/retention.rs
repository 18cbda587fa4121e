//! Retention: how long rows are kept, and the job that deletes expired rows.
//!
//! One process runs the job, by a lease. A round processes the tables in turn, one short statement each, until no
//! expired row is left or the round's time is over; the rest waits for the next round. A table that fails is set aside,
//! and the others continue; so is an order whose personal data cannot be erased. Tables in partitions of a day lose whole days, and get those to come.
//!
//! Personal data of ended orders is erased from rows that stay ([`crate::operators::personal_data`]).
//!
//! Never deleted: intents, executions, events (they move to the history), receipts, the ledger, orders of FIX sessions,
//! resting orders, payments at a bank and their recalls, the results of screening, and operators' actions.
//!
//! Kept by `core/tests/it/retention.rs::expired_rows_are_deleted_and_younger_ones_and_orders_stay` and
//! `core/tests/it/retention.rs::what_the_chain_side_keeps_of_old_orders_goes_and_events_of_ours_stay`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sqlx::{PgConnection, PgPool};
use tokio::sync::watch;
use tracing::{info, warn};
use uuid::Uuid;

use dvp_domain::names::names;
use dvp_store::chain::retention as chain;
use dvp_store::database::lease::Lease;
use dvp_store::database::partitions::{self, DayTable};
use dvp_store::database::retention::{self, OUTDATED, delete};
use dvp_store::orders::feed;
use dvp_store::orders::idempotency::RETENTION_HOURS;
use dvp_store::partners::personal::messages;
use dvp_store::partners::personal::orders::{self, ErasableOrder, list_due};
use dvp_store::webhooks::{self, deliveries as webhook_deliveries};
use dvp_store::workers::{self, Apart, Attended, Step, Worker, in_database, pause, set_aside};
use dvp_store::{StoreError, operators::accounts, operators::limits};

use crate::operators::personal_data::erase_order;

const LEASE: &str = "retention";
const LEASE_TIME: Duration = Duration::from_secs(60);
/// From the end of a round to the next.
const EVERY: Duration = Duration::from_secs(60);
/// The time limit of a round.
const ROUND: Duration = Duration::from_secs(30);
const _: () = assert!(ROUND.as_secs() < LEASE_TIME.as_secs(), "a round ends within its lease");
/// The pause between two statements, which leaves the disk to other work.
const BREATH: Duration = Duration::from_millis(10);
/// How long the sums of a day are kept for operators: no limit counts another day than the present one.
const LIMIT_USAGE: Duration = Duration::from_secs(90 * 86_400);
/// How long abandoned orders and unused quotes are kept for operators.
const ABANDONMENTS: Duration = Duration::from_secs(30 * 86_400);
/// How long a partner can read its requests.
const REQUESTS: Duration = Duration::from_secs(7 * 86_400);
/// How long ended sessions of the console and expired sign-in links are kept; the audit log has every sign-in.
const CONSOLE_SESSIONS: Duration = Duration::from_secs(90 * 86_400);
/// For so many days ahead there are partitions: so long may their creation fail without any loss.
const DAYS_AHEAD: i32 = 7;
/// Rows of one statement.
const ROWS: i64 = 1000;
/// Orders read at a time whose personal data is erased, a dozen statements each.
const ORDERS: i64 = 50;
const ERASABLE: &str = "orders to erase";
/// The longest time for one table or order: a statement, with its timeouts.
const TABLE_MAX: Duration = Duration::from_secs(20);
/// Orders of one statement that deletes a few commands and facts of each.
const ORDERS_ON_CHAIN: i64 = 200;

/// The minimum retention of an idempotency record (contract section 8).
pub const IDEMPOTENCY_LEAST: Duration = Duration::from_secs(24 * 3600);
const _: () = assert!(
    IDEMPOTENCY_LEAST.as_secs() == RETENTION_HOURS.unsigned_abs() as u64 * 3600,
    "records are kept for as long as requests are answered from them"
);

/// The retention time of each table, from the moment that its field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// Answers under an idempotency key, from their request on.
    pub idempotency: Duration,
    /// Contexts of indicative quotes from their request on, firm quotes from the end of their validity on.
    pub quotes: Duration,
    /// Messages that a FIX session's peer has received, from their SendingTime(52) on.
    pub fix_messages: Duration,
    /// The archive of FIX messages, in whole days (UTC).
    pub fix_archive: Duration,
    /// Notices to owners of webhook endpoints.
    pub notices: Duration,
    /// Signed chain transactions that are final.
    pub transactions: Duration,
    /// Commands and facts of ended orders, anchors by strangers, and blocks that were taken back.
    pub chain: Duration,
    /// Calls of rails, and messages to and from the bank with their documents.
    pub order_records: Duration,
    /// Personal data of orders, from their end on. `None`: it is kept.
    pub personal_data: Option<Duration>,
}

impl Default for Ages {
    fn default() -> Self {
        let days = |days: u64| Duration::from_secs(86_400 * days);
        Self {
            idempotency: IDEMPOTENCY_LEAST,
            quotes: days(30),
            fix_messages: days(30),
            fix_archive: days(30),
            notices: days(365),
            transactions: days(90),
            chain: days(90),
            order_records: days(400),
            personal_data: None,
        }
    }
}

names! {
    /// The tables with a retention time, and what comes first.
    pub enum Subject {
        /// Partitions of the coming days are created; nothing is deleted.
        Partitions = "partitions",
        Events = "events",
        Deliveries = "deliveries",
        WebhookLog = "webhook_log",
        WebhookAnswers = "webhook_answers",
        Idempotency = "idempotency",
        Nonces = "nonces",
        PermitHolds = "permit_holds",
        PublishedPermits = "published_permits",
        Abandonments = "abandonments",
        Requests = "requests",
        QuoteRequests = "quote_requests",
        FirmQuotes = "firm_quotes",
        FixMessages = "fix_messages",
        FixArchive = "fix_archive",
        Notices = "notices",
        Transactions = "transactions",
        LimitUsage = "limit_usage",
        OpenChanges = "open_changes",
        ConsoleSessions = "console_sessions",
        PersonalData = "personal_data",
        FixAccounts = "fix_accounts",
        ChainWork = "chain_work",
        ChainStrangers = "chain_strangers",
        ChainOrphans = "chain_orphans",
        RailCalls = "rail_calls",
        BankMessages = "bank_messages",
        SetAside = "set_aside",
    }
}

impl Subject {
    async fn trim(self, conn: &mut PgConnection, ages: &Ages) -> Result<u64, StoreError> {
        match self {
            Self::Partitions => webhook_deliveries::create_log(conn, DAYS_AHEAD).await.map(|()| 0),
            Self::Events => feed::trim(conn, ROWS).await,
            Self::Deliveries => webhook_deliveries::trim(conn, ROWS).await,
            Self::WebhookLog => webhook_deliveries::drop_old_day(conn).await,
            Self::WebhookAnswers => webhooks::delete_old_answers(conn, ROWS).await,
            Self::Idempotency => delete(conn, retention::IDEMPOTENCY, ages.idempotency, ROWS).await,
            Self::Nonces => delete(conn, retention::NONCES, OUTDATED, ROWS).await,
            Self::PermitHolds => delete(conn, retention::PERMIT_HOLDS, OUTDATED, ROWS).await,
            Self::PublishedPermits => delete(conn, retention::PUBLISHED_PERMITS, OUTDATED, ROWS).await,
            Self::Abandonments => retention::delete_abandonments(conn, ABANDONMENTS, ROWS).await,
            Self::Requests => delete(conn, retention::REQUESTS, REQUESTS, ROWS).await,
            Self::QuoteRequests => delete(conn, retention::QUOTE_REQUESTS, ages.quotes, ROWS).await,
            Self::FirmQuotes => delete(conn, retention::FIRM_QUOTES, ages.quotes, ROWS).await,
            Self::FixMessages => delete(conn, retention::FIX_MESSAGES, ages.fix_messages, ROWS).await,
            Self::FixArchive => partitions::drop_old_day(conn, DayTable::FixMessages, ages.fix_archive).await,
            Self::Notices => delete(conn, retention::NOTICES, ages.notices, ROWS).await,
            Self::Transactions => delete(conn, retention::TRANSACTIONS, ages.transactions, ROWS).await,
            Self::LimitUsage => delete(conn, retention::LIMIT_USAGE, LIMIT_USAGE, ROWS).await,
            Self::OpenChanges => limits::merge_open(conn, ROWS).await,
            Self::ConsoleSessions => accounts::sessions::delete_old(conn, CONSOLE_SESSIONS, ROWS).await,
            Self::PersonalData => match ages.personal_data {
                Some(age) => orders::erase_rejected(conn, age, ORDERS).await,
                None => Ok(0),
            },
            Self::ChainWork => chain::delete_work(conn, ages.chain, ORDERS_ON_CHAIN).await,
            Self::ChainStrangers => chain::delete_strangers(conn, ages.chain, ROWS).await,
            Self::ChainOrphans => chain::delete_orphans(conn, ages.chain, ROWS).await,
            Self::RailCalls => delete(conn, retention::RAIL_CALLS, ages.order_records, ROWS).await,
            Self::BankMessages => retention::delete_bank_messages(conn, ages.order_records, ROWS).await,
            Self::FixAccounts => messages::erase_sent(conn, ROWS).await,
            Self::SetAside => set_aside::delete_abandoned(conn, ROWS).await,
        }
    }
}

/// Deletes expired rows, round after round, until `stop` turns true.
pub async fn run(pool: PgPool, ages: Ages, mut stop: watch::Receiver<bool>) {
    let owner = Uuid::new_v4();
    let items = tables(&pool);
    loop {
        tokio::select! {
            () = guarded_round(&pool, &ages, owner, &items) => {}
            _ = stop.changed() => {}
        }
        if !pause(EVERY, &mut stop).await {
            return;
        }
    }
}

/// Each table is an item, and each order whose personal data is erased.
fn tables(pool: &PgPool) -> Apart {
    Apart::new(pool.clone(), Worker::Retention, TABLE_MAX)
}

async fn guarded_round(pool: &PgPool, ages: &Ages, owner: Uuid, items: &Apart) {
    let held = async {
        let Some(lease) = Lease::acquire(pool, LEASE, owner, LEASE_TIME).await? else { return Ok(()) };
        round_of(pool, ages, items).await;
        lease.release(pool).await
    };
    let ended: Result<(), StoreError> = held.await;
    if let Err(error) = ended {
        warn!(%error, "retention could not acquire its lease, retrying in {} s", EVERY.as_secs());
    }
}

/// The deleted rows of a round, by table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    pub deleted: BTreeMap<&'static str, u64>,
    pub failed: Vec<&'static str>,
}

/// Runs one round without taking the lease.
pub async fn round(pool: &PgPool, ages: &Ages) -> Round {
    // What fails is told at the end.
    round_of(pool, ages, &tables(pool).with_patience(TABLE_MAX)).await
}

async fn round_of(pool: &PgPool, ages: &Ages, items: &Apart) -> Round {
    let until = Instant::now() + ROUND;
    let mut open = Subject::ALL.to_vec();
    let mut round = Round::default();
    if let Some(age) = ages.personal_data {
        erase(pool, age, Instant::now() + ROUND / 2, items, &mut round).await;
    }
    while !open.is_empty() && Instant::now() < until {
        let mut still_open = Vec::new();
        for subject in open {
            let table = subject.as_str();
            match items.attend(table, table, trim(pool.clone(), subject, *ages)).await {
                Attended::Done(0) | Attended::SetAside | Attended::InProgress => {}
                Attended::Done(rows) => {
                    metrics::counter!("dvp_retention_rows_total", "subject" => table).increment(rows);
                    let count = round.deleted.entry(table).or_default();
                    *count = count.saturating_add(rows);
                    still_open.push(subject);
                }
                Attended::Failed => round.failed.push(table),
            }
            tokio::time::sleep(BREATH).await;
        }
        open = still_open;
    }
    for (subject, rows) in &round.deleted {
        info!(subject, rows, "expired rows deleted");
    }
    for subject in open {
        info!(subject = subject.as_str(), "retention batch limit reached, continuing in the next round");
    }
    round
}

/// Erases the personal data of orders that ended before this age, each in a transaction of its own.
async fn erase(pool: &PgPool, age: Duration, until: Instant, items: &Apart, round: &mut Round) {
    let mut after = None;
    while Instant::now() < until {
        let reading = list_erasable(pool.clone(), age, after.take());
        let Some(due) = items.attend(ERASABLE, ERASABLE, reading).await.done() else { return };
        let Some(last) = due.last() else { return };
        after = Some(last.clone());
        for ErasableOrder { reference, .. } in due {
            let erasing = erase_one(pool.clone(), reference.clone());
            if let Attended::Done(true) = items.attend(&reference, &reference, erasing).await {
                let subject = Subject::PersonalData.as_str();
                metrics::counter!("dvp_retention_rows_total", "subject" => subject).increment(1);
                let count = round.deleted.entry(subject).or_default();
                *count = count.saturating_add(1);
            }
        }
        tokio::time::sleep(BREATH).await;
    }
}

async fn list_erasable(
    pool: PgPool,
    age: Duration,
    after: Option<ErasableOrder>,
) -> Result<Vec<ErasableOrder>, StoreError> {
    let mut tx = pool.begin().await?;
    retention::bound(&mut tx).await?;
    let due = list_due(&mut tx, age, after.as_ref(), ORDERS).await?;
    tx.rollback().await?;
    Ok(due)
}

async fn erase_one(pool: PgPool, reference: String) -> Result<bool, StoreError> {
    workers::at(Step::RetentionErase, &reference).await?;
    let mut tx = pool.begin().await?;
    retention::bound(&mut tx).await?;
    let is_erased = erase_order(&mut tx, &reference, false).await?;
    tx.commit().await?;
    Ok(is_erased)
}

/// Runs one statement with short lock and statement timeouts.
async fn trim(pool: PgPool, subject: Subject, ages: Ages) -> Result<u64, StoreError> {
    let trimming = async {
        workers::at(Step::RetentionTrim, in_database(&pool, subject.as_str())).await?;
        let mut tx = pool.begin().await?;
        retention::bound(&mut tx).await?;
        let rows = subject.trim(&mut tx, &ages).await?;
        tx.commit().await?;
        Ok(rows)
    };
    let trimmed = trimming.await;
    if trimmed.is_err() {
        metrics::counter!("dvp_retention_failures_total", "subject" => subject.as_str()).increment(1);
    }
    trimmed
}
