//! The group-commit writer: the only way anything is written.
//!
//! ```text
//! Engine, workflow, FIX sessions ──units──> bounded channel ──recv_many──> one transaction ──> replies
//! ```
//!
//! There is no timer: while one commit is in flight the next batch gathers. A full channel is [`WriteError::Busy`],
//! which the doors answer with 503. A batch trusts that what it brings is new; when one of the database's keys says
//! otherwise, nothing was written, and it is decided again after looking for what was used before. When a batch fails, each of its units is tried alone, so that a poisoned one
//! fails alone. A unit whose commit was not acknowledged is tried again and meets its own keys: idempotency record,
//! intentId, version or MsgSeqNum tell that it was done.

mod batch;
mod claims;
mod plan;
mod rows;
mod submit;
mod unit;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, Span, error, warn};

use self::batch::Trust;
pub use self::unit::{
    Accepted, Change, Consumed, Done, IdempotencyPart, Outcome, RenderResponse, Submission, Unit, Work,
};
use crate::context::Context;
use crate::statuses::Statuses;
use crate::store::StoreError;

/// How many units wait at most.
const QUEUE_UNITS: usize = 4096;
/// How many units one transaction takes at most.
const BATCH_UNITS: usize = 512;
/// How many batches look for repeats at once after one has run into one: they come in runs.
const WARY_BATCHES: u32 = 64;

/// The unit was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The queue is full: try again later.
    #[error("the writer's queue is full")]
    Busy,
    /// The service is stopping.
    #[error("the writer has stopped")]
    Stopped,
    /// Somebody else changed what the unit was based on: load it again.
    #[error("{what} was changed by somebody else")]
    Stale { what: &'static str },
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Waiting {
    unit: Unit,
    reply: oneshot::Sender<Result<Done, WriteError>>,
    span: Span,
}

/// Hands units to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::Sender<Waiting>,
    statuses: Arc<Statuses>,
}

impl Writer {
    /// Starts the writer on the current runtime. It ends when every handle is dropped, after the last unit.
    pub fn start(pool: PgPool, context: Arc<Context>) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, units) = mpsc::channel(QUEUE_UNITS);
        let statuses = Arc::<Statuses>::default();
        let place = Place { pool, context, statuses: Arc::clone(&statuses) };
        let task = tokio::spawn(run(place, units));
        (Self { queue, statuses }, task)
    }

    pub(crate) const fn statuses(&self) -> &Arc<Statuses> {
        &self.statuses
    }

    /// Writes a unit, or says at once that the queue is full. Returns after the commit.
    pub async fn write(&self, unit: Unit) -> Result<Done, WriteError> {
        self.enqueue(unit)?.await.map_err(|_| WriteError::Stopped)?
    }

    /// Queues a unit and returns where its outcome will be. Units are committed in the order they were queued.
    pub fn enqueue(&self, unit: Unit) -> Result<oneshot::Receiver<Result<Done, WriteError>>, WriteError> {
        let (reply, outcome) = oneshot::channel();
        let waiting = Waiting { unit, reply, span: Span::current() };
        self.queue.try_send(waiting).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => WriteError::Busy,
            mpsc::error::TrySendError::Closed(_) => WriteError::Stopped,
        })?;
        Ok(outcome)
    }

    /// Writes a unit, waiting for room in the queue: for the service's own work, which nobody refuses.
    pub async fn write_patiently(&self, unit: Unit) -> Result<Done, WriteError> {
        let (reply, outcome) = oneshot::channel();
        let waiting = Waiting { unit, reply, span: Span::current() };
        self.queue.send(waiting).await.map_err(|_| WriteError::Stopped)?;
        outcome.await.map_err(|_| WriteError::Stopped)?
    }
}

/// What a batch is decided by and written to.
struct Place {
    pool: PgPool,
    context: Arc<Context>,
    statuses: Arc<Statuses>,
}

async fn run(place: Place, mut units: mpsc::Receiver<Waiting>) {
    let mut line = Line { open: None, wary: 0 };
    let mut gathered = Vec::with_capacity(BATCH_UNITS);
    while units.recv_many(&mut gathered, BATCH_UNITS).await > 0 {
        let batch = std::mem::take(&mut gathered);
        let work: Vec<&Unit> = batch.iter().map(|waiting| &waiting.unit).collect();
        let span = tracing::debug_span!("commit", units = work.len());
        match line.commit(&place, &work).instrument(span).await {
            Ok(done) => {
                for (waiting, done) in batch.into_iter().zip(done) {
                    // A caller that went away has its outcome in the database.
                    let _ = waiting.reply.send(done);
                }
            }
            Err(failed) => one_by_one(&place, batch, &failed).await,
        }
    }
}

/// The writer's own connection: what it runs is prepared and planned once.
struct Line {
    open: Option<PgConnection>,
    /// How many more batches trust nothing.
    wary: u32,
}

impl Line {
    /// After an error the next batch begins on a new connection: what is left of the old one is not worth knowing.
    async fn commit(
        &mut self,
        place: &Place,
        units: &[&Unit],
    ) -> Result<Vec<Result<Done, WriteError>>, StoreError> {
        let mut conn = match self.open.take() {
            Some(conn) => conn,
            None => connect(&place.pool).await?,
        };
        let trust = if self.wary == 0 { Trust::New } else { Trust::Nothing };
        self.wary = self.wary.saturating_sub(1);
        let done = match batch::commit(&mut conn, place, units, trust).await {
            Err(error) if trust == Trust::New && batch::is_repeat(&error) => {
                self.wary = WARY_BATCHES;
                batch::commit(&mut conn, place, units, Trust::Nothing).await?
            }
            done => done?,
        };
        self.open = Some(conn);
        Ok(done)
    }
}

/// Everything a batch reads it finds by key. The planner would weigh that against reading whole tables by what it knew
/// of them when the statement was prepared, which in a growing table is soon wrong.
async fn connect(pool: &PgPool) -> Result<PgConnection, StoreError> {
    let by_key = [
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("plan_cache_mode", "force_generic_plan"),
        ("jit", "off"),
    ];
    let options = PgConnectOptions::clone(&pool.connect_options()).options(by_key);
    Ok(PgConnection::connect_with(&options).await?)
}

/// Tries each unit of a failed batch alone, and once more when the failure may pass.
async fn one_by_one(place: &Place, batch: Vec<Waiting>, failed: &StoreError) {
    warn!(error = %failed, units = batch.len(), "batch failed; its units are tried one by one");
    for Waiting { unit, reply, span } in batch {
        let outcome = async {
            let first = alone(place, &unit).await;
            let Err(WriteError::Store(again)) = first else { return first };
            tokio::time::sleep(Duration::from_millis(50)).await;
            let second = alone(place, &unit).await;
            if let Err(error) = &second {
                error!(%error, first = %again, "unit failed");
            }
            second
        }
        .instrument(span)
        .await;
        let _ = reply.send(outcome);
    }
}

async fn alone(place: &Place, unit: &Unit) -> Result<Done, WriteError> {
    let mut conn = place.pool.acquire().await.map_err(StoreError::from)?;
    let mut done = batch::commit(&mut conn, place, &[unit], Trust::Nothing).await?;
    done.pop().ok_or(WriteError::Stopped)?
}
