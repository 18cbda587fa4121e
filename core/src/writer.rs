//! The group-commit writer: every change of an order and its settlement goes through it.
//!
//! ```text
//! REST, FIX sessions, workflow ──units──> flows that take turns ──> one transaction ──> replies
//! ```
//!
//! The writer uses no timer: while one commit is in flight the next batch gathers. A tenant can use as many places of
//! the queue as are free; beyond that REST is answered with [`WriteError::Busy`], and a FIX session waits for a place.
//!
//! A batch assumes that its ids are new. When a unique constraint is violated, nothing was written, and the batch is
//! decided again after a look-up of used ids. A batch that fails for another reason is bisected until the failing unit
//! is found; that unit fails immediately, with the units that depend on it, and its tenant's units are batched
//! separately for a while. Each transaction has a time limit. A unit whose commit was not acknowledged is retried; its
//! own keys (idempotency record, intentId, version or MsgSeqNum) show whether it was committed.
//!
//! Kept by `tests/boundaries.rs::write_transactions_begin_in_the_listed_modules_only` and
//! `core/src/writer/pieces.rs::every_bad_unit_is_found_and_isolated`.

mod batch;
mod carry;
mod connection;
mod fair_queue;
mod figures;
mod fix;
pub(crate) mod handover;
mod idempotency;
mod pieces;
pub(crate) mod plan;
mod queue;
mod rows;
mod sessions;
pub(crate) mod statuses;
mod submit;
mod unit;

use std::sync::Arc;
use std::time::Instant;

use dvp_store::StoreError;
use sqlx::PgPool;
use tokio::sync::oneshot;
use tracing::Span;

use self::carry::Waiting;
pub use self::connection::WriterLimits;
use self::fair_queue::Places;
pub use self::fair_queue::{Flow, UnitSource};
use self::figures::Running;
pub use self::fix::FixChain;
use self::queue::Adding;
pub use self::unit::{
    Accepted, Change, Consumed, DepositDue, Done, FillAttempt, FilledAs, FixPart, IdempotencyPart,
    KnownWallet, Outcome, Refusal, RenderFix, RenderResponse, Submission, Unfilled, Unit, UsedKey, Work,
};
use crate::context::Context;
use crate::writer::handover::Handover;
use crate::writer::statuses::Statuses;

/// The places of order entry in the queue; one tenant alone can fill half of them.
pub const ORDER_PLACES: usize = 8192;
/// The places of the service's own work.
const SERVICE_PLACES: usize = 2048;

/// The unit was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The tenant's share of the queue is full: try again later.
    #[error("the writer's queue is full")]
    Busy,
    #[error("the writer has stopped")]
    Stopped,
    /// The row that the unit is based on has changed: load it again.
    #[error("{what} was changed concurrently")]
    Stale { what: &'static str },
    /// The database is unavailable or did not answer in time. The unit may have been written.
    #[error("the database is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The unit alone waited too long for a lock or a statement.
    #[error("the database took too long: {0}")]
    Slow(Arc<str>),
    /// The unit itself cannot be written: a retry would fail in the same way.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub type Pending = oneshot::Receiver<Result<Done, WriteError>>;

/// The handle that submits units to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    queue: Arc<Adding<Waiting>>,
    statuses: Arc<Statuses>,
    handover: Arc<Handover>,
}

impl Writer {
    /// Starts the writer on the current runtime. It ends when every handle is dropped, after the last unit.
    pub fn start(pool: PgPool, context: Arc<Context>) -> (Self, tokio::task::JoinHandle<()>) {
        Self::start_with(pool, context, WriterLimits::default())
    }

    /// The same with explicit time limits.
    pub fn start_with(
        pool: PgPool,
        context: Arc<Context>,
        limits: WriterLimits,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (adding, taking) = queue::queue(Places { entry: context.order_places, service: SERVICE_PLACES });
        let statuses = Arc::<Statuses>::default();
        let handover = Arc::<Handover>::default();
        let place = BatchContext {
            pool,
            context,
            statuses: Arc::clone(&statuses),
            handover: Arc::clone(&handover),
            limits,
        };
        let running = Running::default();
        tokio::spawn(figures::watch(running.clone(), taking.gauge(), limits.transaction / 2));
        let task = tokio::spawn(carry::run(Arc::new(place), taking, running));
        (Self { queue: Arc::new(adding), statuses, handover }, task)
    }

    /// Whether the writer's task accepts units.
    pub(crate) fn is_running(&self) -> bool {
        self.queue.is_taken()
    }

    pub(crate) const fn statuses(&self) -> &Arc<Statuses> {
        &self.statuses
    }

    pub(crate) const fn handover(&self) -> &Arc<Handover> {
        &self.handover
    }

    /// Writes a unit, or fails immediately when the queue has no free place. Returns after the commit.
    pub async fn write(&self, unit: Unit) -> Result<Done, WriteError> {
        self.enqueue(unit)?.await.map_err(|_| WriteError::Stopped)?
    }

    /// Queues a unit, if there is a free place. Units of one flow are committed in the order they were queued.
    pub fn enqueue(&self, unit: Unit) -> Result<Pending, WriteError> {
        let (flow, waiting, outcome) = waiting(unit);
        self.queue.try_push(flow, waiting).inspect_err(|error| {
            if matches!(error, WriteError::Busy) {
                figures::refused();
            }
        })?;
        Ok(outcome)
    }

    /// Writes a unit, waiting for a place in the queue: for the service's own work, which is never refused.
    pub async fn write_patiently(&self, unit: Unit) -> Result<Done, WriteError> {
        self.enqueue_patiently(unit).await?.await.map_err(|_| WriteError::Stopped)?
    }

    /// Queues a unit. The future, which is small, ends when the unit has a place.
    pub fn enqueue_patiently(&self, unit: Unit) -> impl Future<Output = Result<Pending, WriteError>> + use<> {
        let (flow, waiting, outcome) = waiting(unit);
        let placed = self.queue.push(flow, waiting);
        async move { placed.await.map(|()| outcome) }
    }
}

fn waiting(unit: Unit) -> (Flow, Waiting, Pending) {
    let (reply, outcome) = oneshot::channel();
    let flow = unit.flow.clone();
    (flow, Waiting { unit, reply, span: Span::current(), since: Instant::now() }, outcome)
}

/// The context in which a batch is decided and written.
struct BatchContext {
    pool: PgPool,
    context: Arc<Context>,
    statuses: Arc<Statuses>,
    handover: Arc<Handover>,
    limits: WriterLimits,
}
