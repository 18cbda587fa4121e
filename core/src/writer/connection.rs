//! The writer's own connection: statements are prepared and planned once, and every operation has a time limit.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dvp_store::database::session;
use dvp_store::operators::pauses::{self, Decisions};
use dvp_store::orders::effects::{self, Claimed};
use dvp_store::{Fault, StoreError};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;
use tracing::debug;

use super::batch::{self, Attempt, Patience};
use super::idempotency::Trust;
use super::unit::{Done, Unit};
use super::{BatchContext, WriteError, figures};
use crate::writer::handover::{Committing, Payee, destination_of};

/// How many batches look up repeats after one batch had a repeat: repeats come in runs.
const WARY_BATCHES: u32 = 64;

/// How long the writer waits for the database.
#[derive(Debug, Clone, Copy)]
pub struct WriterLimits {
    /// For a connection.
    pub connect: Duration,
    /// The limit of a whole transaction, measured here, because the database may not answer at all.
    pub transaction: Duration,
    /// The limit of one statement, and of one lock: set on the connection, so that the server enforces them.
    pub statement: Duration,
    pub lock: Duration,
}

impl Default for WriterLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            transaction: Duration::from_secs(6),
            statement: Duration::from_secs(4),
            lock: Duration::from_secs(2),
        }
    }
}

/// Why nothing was written, as far as is known.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) fault: Fault,
    /// COMMIT was sent and its answer did not arrive: the batch may have been written.
    pub(super) is_unknown: bool,
    /// No answer in time: a retry would take as long.
    pub(super) timed_out: bool,
}

impl Failure {
    fn of(error: StoreError) -> Self {
        // Another process used an id first: the next look-up finds it.
        let fault = if batch::is_repeat(&error) { Fault::Conflict } else { error.fault() };
        Self { error, fault, is_unknown: false, timed_out: false }
    }

    /// Whether the batch may have failed because an id was used before.
    pub(super) fn may_be_repeat(&self) -> bool {
        batch::may_be_repeat(&self.error)
    }

    fn timed_out(what: &str) -> Self {
        let error = std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer to {what} in time"));
        Self { timed_out: true, ..Self::of(StoreError::Database(error.into())) }
    }
}

/// How units are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Used ids are looked up first.
    pub(super) trust_nothing: bool,
    pub(super) patience: Option<Patience>,
}

#[derive(Default)]
pub(super) struct WriterConnections {
    idle: Option<PgConnection>,
    /// How many more batches use [`Trust::Nothing`].
    wary: u32,
    /// Work of transactions whose COMMIT was not acknowledged. Its claims expire, unless its rows are found first.
    unconfirmed: Vec<Committing>,
}

/// The outcomes of a batch's units.
pub(super) type Committed = Result<Vec<Result<Done, WriteError>>, Failure>;

impl WriterConnections {
    /// Writes the units in one transaction and returns each one's outcome.
    pub(super) async fn commit(
        &mut self,
        place: &BatchContext,
        units: &[&Unit],
        manner: Manner,
    ) -> Committed {
        let Manner { trust_nothing, patience } = manner;
        let trust = if self.wary == 0 && !trust_nothing { Trust::New } else { Trust::Nothing };
        self.wary = self.wary.saturating_sub(1);
        match self.attempt(place, units, trust, patience).await {
            Err(failure) if trust == Trust::New && failure.may_be_repeat() => {
                self.wary = WARY_BATCHES;
                self.attempt(place, units, Trust::Nothing, patience).await
            }
            done => done,
        }
    }

    async fn attempt(
        &mut self,
        place: &BatchContext,
        units: &[&Unit],
        trust: Trust,
        patience: Option<Patience>,
    ) -> Committed {
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        let attempted = attempt(self.idle.take(), place, units, (trust, patience), unconfirmed).await;
        let Attempted { conn, committed, unconfirmed } = attempted;
        self.idle = conn;
        self.unconfirmed.extend(unconfirmed);
        committed
    }

    /// Whether committed work, or work that may be, waits to be handed over.
    pub(super) const fn has_unconfirmed(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// Hands over what waits, as the next batch would. What cannot be handed over waits on.
    pub(super) async fn confirm(&mut self, place: &BatchContext) {
        let limit = place.limits.transaction;
        let confirmed = async {
            let mut conn = match self.idle.take() {
                Some(conn) => conn,
                None => connect(place).await.map_err(|failure| failure.error)?,
            };
            match timeout(limit, confirm(&mut conn, &mut self.unconfirmed)).await {
                Ok(confirmed) => confirmed?,
                Err(_) => return Err(Failure::timed_out("a question").error),
            }
            self.idle = Some(conn);
            Ok(())
        };
        if let Err(error) = confirmed.await {
            debug!(%error, works = self.unconfirmed.len(), "committed work not handed over yet, will retry");
        }
    }

    /// The next transactions look up used ids, because the retried units may have been written.
    pub(super) const fn trust_nothing(&mut self) {
        self.wary = WARY_BATCHES;
    }

    /// Connects, unless there is a connection, and checks that the database is writable.
    pub(super) async fn probe(&mut self, place: &BatchContext) -> Result<(), StoreError> {
        let mut conn = match self.idle.take() {
            Some(conn) => conn,
            None => connect(place).await.map_err(|failure| failure.error)?,
        };
        let is_read_only = timeout(place.limits.connect, session::is_read_only(&mut conn))
            .await
            .map_err(|_| Failure::timed_out("a question").error)?
            .map_err(StoreError::from)?;
        if is_read_only {
            let error =
                std::io::Error::new(std::io::ErrorKind::ReadOnlyFilesystem, "the database is read-only");
            return Err(StoreError::Database(error.into()));
        }
        self.idle = Some(conn);
        Ok(())
    }
}

/// An attempt that has ended. `conn`: it can be used again.
struct Attempted {
    conn: Option<PgConnection>,
    committed: Committed,
    unconfirmed: Vec<Committing>,
}

async fn attempt(
    conn: Option<PgConnection>,
    place: &BatchContext,
    units: &[&Unit],
    (trust, patience): (Trust, Option<Patience>),
    mut unconfirmed: Vec<Committing>,
) -> Attempted {
    let mut conn = match conn {
        Some(conn) => conn,
        None => match connect(place).await {
            Ok(conn) => conn,
            Err(failure) => return Attempted { conn: None, committed: Err(failure), unconfirmed },
        },
    };
    let commit_sent = AtomicBool::new(false);
    let limit = place.limits.transaction;
    let mut committing = Vec::new();
    let written = timeout(limit, async {
        confirm(&mut conn, &mut unconfirmed).await.map_err(|error| (error, false))?;
        let attempt = Attempt { trust, patience, commit_sent: &commit_sent };
        batch::commit(&mut conn, place, units, attempt, &mut committing).await
    });
    let written = written.await;
    let (conn, failure) = match written {
        Ok(Ok(done)) => {
            figures::transaction("committed");
            let handed = timeout(limit, hand_over(&mut conn, &mut committing)).await;
            // What could not be handed over is, once the database answers again.
            unconfirmed.extend(committing);
            return Attempted {
                conn: matches!(handed, Ok(Ok(()))).then_some(conn),
                committed: Ok(done),
                unconfirmed,
            };
        }
        Ok(Err((error, is_reusable))) => (is_reusable.then_some(conn), Failure::of(error)),
        // The connection is dropped: its state is unknown.
        Err(_) => (None, Failure::timed_out("a transaction")),
    };
    let is_unknown = failure.fault == Fault::Unavailable && commit_sent.load(Ordering::Relaxed);
    figures::transaction(failure.fault.as_str());
    if is_unknown {
        unconfirmed.extend(committing);
    }
    Attempted { conn, committed: Err(Failure { is_unknown, ..failure }), unconfirmed }
}

/// Hands over the unconfirmed work whose rows exist under their first claim, however long the database was unavailable.
async fn confirm(conn: &mut PgConnection, unconfirmed: &mut Vec<Committing>) -> Result<(), StoreError> {
    if !unconfirmed.is_empty() {
        let claims: Vec<&Claimed> = unconfirmed.iter().map(|work| &work.claim).collect();
        let standing: HashSet<i64> = effects::list_standing(conn, &claims).await?.into_iter().collect();
        unconfirmed.retain(|work| standing.contains(&work.claim.id));
        hand_over(conn, unconfirmed).await?;
    }
    Ok(())
}

/// Hands committed work over under what operators have decided by now, as a claim does: the batch may have waited long
/// since it looked a destination up. On an error all of it is left.
async fn hand_over(conn: &mut PgConnection, committed: &mut Vec<Committing>) -> Result<(), StoreError> {
    if committed.is_empty() {
        return Ok(());
    }
    let named = committed.iter().filter_map(|work| destination_of(&work.execution.terms));
    let named: Vec<&str> = named.map(|(.., id)| id).collect();
    let Decisions { pauses, disabled } = pauses::load_decisions(conn, &named).await?;
    let pauses = Arc::new(pauses);
    for mut work in committed.drain(..) {
        if destination_of(&work.execution.terms).is_some_and(|(.., id)| disabled.contains(id)) {
            work.payee = Payee::Unread;
        }
        work.hand_over(Arc::clone(&pauses));
    }
    Ok(())
}

/// A batch reads rows by key only. The planner would choose between an index and a sequential scan by the statistics at
/// the time of preparing, which become wrong as a table grows.
///
/// The server ends slow statements, and the transaction of a writer that stopped answering: its locks would block every
/// other process.
async fn connect(place: &BatchContext) -> Result<PgConnection, Failure> {
    let by_key = [
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        // A scan that cannot be avoided has such a cost then that the planner would start parallel workers to read even
        // five small tables.
        ("max_parallel_workers_per_gather", "0"),
        ("plan_cache_mode", "force_generic_plan"),
        ("jit", "off"),
    ];
    let limits = place.limits;
    let ms = |limit: Duration| format!("{}ms", limit.as_millis());
    let in_time = [
        ("statement_timeout", ms(limits.statement)),
        ("lock_timeout", ms(limits.lock)),
        ("idle_in_transaction_session_timeout", ms(limits.transaction)),
    ];
    let options = PgConnectOptions::clone(&place.pool.connect_options()).options(by_key).options(in_time);
    match timeout(limits.connect, PgConnection::connect_with(&options)).await {
        Ok(connected) => connected.map_err(|error| Failure::of(error.into())),
        Err(_) => Err(Failure::timed_out("a connection")),
    }
}
