//! The status cache: rendered statuses of executions in memory, for clients that poll.
//!
//! ```text
//! writer ── before and after its commit ──────────────┐
//! trigger on execution ── NOTIFY, with the commit ────┤ invalidates
//!                                                     v
//! GET status ── cached? ── its bytes      missing: read, and cached unless something changed meanwhile
//! ```
//!
//! How old can a cached status be? A commit of this process invalidates it immediately: from before COMMIT is sent
//! until its outcome is known the status is read from the database, and the cached one is removed before the caller
//! gets its answer. A commit of another process, including an operator's SQL, invalidates it when the notification
//! arrives, and [`STALENESS_MAX`](cache::STALENESS_MAX) limits the delay. NOTIFY is delivered in commit order: once
//! this process's own heartbeat arrives, every earlier notification has been processed. A heartbeat is sent every
//! [`HEARTBEAT`], and the cache is not used while the last heartbeat that arrived is too old. This takes two
//! connections: one of the pool to listen, and one beside the pool to notify.
//!
//! Missing executions are not cached, so that a new execution needs no notification and guessed references take no
//! memory.
//!
//! Kept by `core/tests/it/statuses.rs::a_status_never_goes_back_behind_a_change_of_this_process` and
//! `core/tests/it/statuses.rs::a_lost_listener_leaves_no_stale_answer`.

mod cache;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dvp_store::database::notify::Notifications;
use dvp_store::database::session;
use dvp_store::orders::executions::RefType;
use dvp_store::orders::intents::Tenant;
use dvp_store::workers::{Worker, supervise_until};
use parking_lot::Mutex;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::OnceCell;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;
use uuid::Uuid;

use self::cache::{STALENESS_MAX, StatusCache};
pub(crate) use self::cache::{Status, Ticket};

/// The notification's payload contains the references of changed executions, one per line; an empty payload stands for
/// all.
const CHANNEL: &str = "dvp_execution";
const HEARTBEAT: Duration = Duration::from_millis(100);
const _: () = assert!(
    HEARTBEAT.as_millis() * 2 < STALENESS_MAX.as_millis(),
    "a lost heartbeat does not yet make the cached statuses stale"
);
/// The time limit for sending a heartbeat.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Statuses {
    cache: Mutex<StatusCache>,
    listener: OnceCell<()>,
}

impl Statuses {
    /// The cached status of a tenant's execution, or the ticket for reading it. The first call starts the listener.
    pub(crate) async fn find(
        self: &Arc<Self>,
        pool: &PgPool,
        tenant: &Tenant,
        named: RefType,
        name: &str,
    ) -> Result<Bytes, Ticket> {
        if !self.listener.initialized() {
            let (pool, statuses) = (pool.clone(), Arc::downgrade(self));
            let listening = async move {
                let is_over = || statuses.strong_count() == 0 || pool.is_closed();
                supervise_until(Worker::Caches, is_over, || listen(&pool, &statuses)).await;
            };
            self.listener.get_or_init(async || drop(tokio::spawn(listening))).await;
        }
        self.cache.lock().find(tenant, named, name, Instant::now())
    }

    /// Caches a status whose reading began with `began`.
    pub(crate) fn keep(&self, began: Ticket, status: Status) {
        self.cache.lock().keep(began, status);
    }

    /// Keeps these executions out of the cache until the guard is dropped, which is when the outcome of the commit is
    /// known.
    pub(crate) fn changing(self: &Arc<Self>, references: HashSet<String>) -> Changing {
        self.cache.lock().begin(&references);
        Changing { statuses: Arc::clone(self), references }
    }

    fn forget(&self, payload: &str) {
        let mut cache = self.cache.lock();
        if payload.is_empty() {
            cache.forget_all();
        }
        for reference in payload.lines() {
            cache.forget(reference);
        }
    }
}

/// Executions with a commit in progress.
#[must_use]
pub(crate) struct Changing {
    statuses: Arc<Statuses>,
    references: HashSet<String>,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.statuses.cache.lock().end(&self.references);
    }
}

/// Why listening for changes ended.
#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the connection was lost")]
    Lost,
    #[error("the database does not answer")]
    Silent,
}

/// Listens for changes as long as the cache is in use.
async fn listen(pool: &PgPool, statuses: &Weak<Statuses>) {
    let own = format!("dvp_beat_{}", Uuid::new_v4().simple());
    let mut notifications = Notifications::new(pool.clone(), &[CHANNEL, &own]);
    let began = Instant::now();
    while statuses.strong_count() > 0 && !pool.is_closed() {
        notifications.listen().await;
        if notifications.is_listening() {
            let failed = follow(pool, &mut notifications, &own, began, statuses).await;
            notifications.disconnect();
            let Some(statuses) = statuses.upgrade() else { return };
            statuses.cache.lock().stop_listening();
            if let Err(error) = failed {
                warn!(%error, "status cache disabled: listening for changed executions failed; reading from the database");
            }
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

/// Ends with an error when a connection is lost, and without one when the cache is no longer in use.
async fn follow(
    pool: &PgPool,
    notifications: &mut Notifications,
    own: &str,
    began: Instant,
    statuses: &Weak<Statuses>,
) -> Result<(), ListenError> {
    let asker = PgConnection::connect_with(&pool.connect_options()).await?;
    match statuses.upgrade() {
        Some(statuses) => statuses.cache.lock().listen(),
        None => return Ok(()),
    }
    tokio::select! {
        failed = ask(asker, own, began) => failed,
        ended = take_in(notifications, own, began, statuses) => ended,
    }
}

/// Sends a heartbeat with its send time at each interval, on a connection of its own, so that notifications of changes
/// do not wait for it.
async fn ask(mut asker: PgConnection, own: &str, began: Instant) -> Result<(), ListenError> {
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        heartbeat.tick().await;
        let requested = began.elapsed().as_micros().to_string();
        let question = session::notify(&mut asker, own, &requested);
        timeout(HEARTBEAT_TIMEOUT, question).await.map_err(|_| ListenError::Silent)??;
    }
}

async fn take_in(
    notifications: &mut Notifications,
    own: &str,
    began: Instant,
    statuses: &Weak<Statuses>,
) -> Result<(), ListenError> {
    loop {
        let received = notifications.next().await.ok_or(ListenError::Lost)?;
        let Some(statuses) = statuses.upgrade() else { return Ok(()) };
        if received.channel() != own {
            statuses.forget(received.payload());
        } else if let Ok(requested) = received.payload().parse() {
            // The send time is rounded down to a microsecond: rather too early than too late.
            statuses.cache.lock().heartbeat(began + Duration::from_micros(requested));
        }
    }
}
