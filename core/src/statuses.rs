//! Rendered statuses of executions, kept in memory for those who poll: the one read that is repeated all the time.
//!
//! ```text
//! writer ── before and after its commit ──────────────┐
//! trigger on execution ── NOTIFY, with the commit ────┤ forgets
//!                                                     v
//! GET status ── kept? ── its bytes        missing: read, and kept unless something changed meanwhile
//! ```
//!
//! How old may an answer be? Of this process's commits: not at all. From before a commit is sent until its outcome is
//! known the execution is read from the database, and what was kept is forgotten before anybody is told. Of other
//! processes' commits, an operator's SQL among them: as long as the notification is under way, and never older than
//! [`STALENESS_MAX`](cache::STALENESS_MAX). Notifications are delivered in the order of commits, so whoever notifies himself
//! and hears it has heard of everything that was committed before he asked. That is done every [`HEARTBEAT`], and when
//! the last question that came back was asked too long ago, for whatever reason, nothing is given from memory. It
//! takes two connections: one of the pool's to hear by, and one beside the pool to ask by.
//!
//! What is not there is never kept: a new execution needs nobody to be told, and guessing fills nothing.

mod cache;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dvp_store::database::session;
use dvp_store::orders::executions::RefType;
use dvp_store::orders::intents::Tenant;
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::OnceCell;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;
use uuid::Uuid;

use self::cache::{STALENESS_MAX, StatusCache};
pub(crate) use self::cache::{Status, Ticket};

/// Tells the references of changed executions, a line each; an empty payload stands for all.
const CHANNEL: &str = "dvp_execution";
/// How often we ask ourselves whether we still hear.
const HEARTBEAT: Duration = Duration::from_millis(100);
const _: () = assert!(
    HEARTBEAT.as_millis() * 2 < STALENESS_MAX.as_millis(),
    "a lost heartbeat does not yet make the cached statuses stale"
);
/// A question that takes so long does not come back.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Statuses {
    cache: Mutex<StatusCache>,
    listener: OnceCell<()>,
}

impl Statuses {
    /// The status kept of a tenant's execution, or where its reading begins. The first call begins to listen.
    pub(crate) async fn find(
        self: &Arc<Self>,
        pool: &PgPool,
        tenant: &Tenant,
        named: RefType,
        name: &str,
    ) -> Result<Bytes, Ticket> {
        if !self.listener.initialized() {
            let start = || async { drop(tokio::spawn(listen(pool.clone(), Arc::downgrade(self)))) };
            self.listener.get_or_init(start).await;
        }
        self.cache().find(tenant, named, name, Instant::now())
    }

    /// Keeps a status whose reading began with `began`.
    pub(crate) fn keep(&self, began: Ticket, status: Status) {
        self.cache().keep(began, status);
    }

    /// Until the guard is dropped, which is when the outcome of the commit is known, these are not kept.
    pub(crate) fn changing(self: &Arc<Self>, references: HashSet<String>) -> Changing {
        self.cache().begin(&references);
        Changing { statuses: Arc::clone(self), references }
    }

    fn cache(&self) -> MutexGuard<'_, StatusCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, payload: &str) {
        let mut cache = self.cache();
        if payload.is_empty() {
            cache.forget_all();
        }
        for reference in payload.lines() {
            cache.forget(reference);
        }
    }
}

/// Executions whose change is on its way to the database.
#[must_use]
pub(crate) struct Changing {
    statuses: Arc<Statuses>,
    references: HashSet<String>,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.statuses.cache().end(&self.references);
    }
}

/// Why changes are not heard of any more.
#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the connection was lost")]
    Lost,
    #[error("the database does not answer")]
    Silent,
}

/// Hears of changes as long as somebody asks for statuses.
async fn listen(pool: PgPool, statuses: Weak<Statuses>) {
    while statuses.strong_count() > 0 && !pool.is_closed() {
        let failed = hear(&pool, &statuses).await;
        let Some(statuses) = statuses.upgrade() else { return };
        statuses.cache().stop_listening();
        if let Err(error) = failed {
            warn!(%error, "status cache disabled: listening for changed executions failed; reading from the database");
        }
        drop(statuses);
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

/// Ends with an error when a connection is lost, and without one when nobody is left.
async fn hear(pool: &PgPool, statuses: &Weak<Statuses>) -> Result<(), ListenError> {
    let mut listener = PgListener::connect_with(pool).await?;
    // What is missed while connecting again must not go unnoticed: we begin anew instead.
    listener.eager_reconnect(false);
    let own = format!("dvp_heartbeat_{}", Uuid::new_v4().simple());
    listener.listen_all([CHANNEL, own.as_str()]).await?;
    let asker = PgConnection::connect_with(&pool.connect_options()).await?;
    match statuses.upgrade() {
        Some(statuses) => statuses.cache().listen(),
        None => return Ok(()),
    }
    let began = Instant::now();
    tokio::select! {
        failed = ask(asker, &own, began) => failed,
        ended = take_in(listener, &own, began, statuses) => ended,
    }
}

/// Asks ourselves at every beat, and says when. On a connection of its own, so that no change waits for the answer.
async fn ask(mut asker: PgConnection, own: &str, began: Instant) -> Result<(), ListenError> {
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        heartbeat.tick().await;
        let asked = began.elapsed().as_micros().to_string();
        let question = session::notify(&mut asker, own, &asked);
        timeout(HEARTBEAT_TIMEOUT, question).await.map_err(|_| ListenError::Silent)??;
    }
}

async fn take_in(
    mut listener: PgListener,
    own: &str,
    began: Instant,
    statuses: &Weak<Statuses>,
) -> Result<(), ListenError> {
    loop {
        let heard = listener.try_recv().await?.ok_or(ListenError::Lost)?;
        let Some(statuses) = statuses.upgrade() else { return Ok(()) };
        if heard.channel() != own {
            statuses.forget(heard.payload());
        } else if let Ok(asked) = heard.payload().parse() {
            // A part of a microsecond was cut off: rather too early than too late.
            statuses.cache().heard(began + Duration::from_micros(asked));
        }
    }
}
