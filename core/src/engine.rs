//! The functions of the service for a partner: quote, submit, cancel, status, receipt, events. REST and FIX change
//! orders through these functions only.

pub mod account;
mod cancel;
mod error;
mod forgotten;
pub(crate) mod knowledge;
mod lookups;
mod quotes;
pub mod reads;
mod submit;
pub mod webhooks;

use std::future::ready;
use std::sync::Arc;

use dvp_domain::time::Timestamp;
use dvp_store::database::Availability;
use dvp_store::database::pools::Pools;
use dvp_store::orders::idempotency::{self, RecordId};
use dvp_store::orders::intents::Tenant;
use futures_util::future::Either;
use sqlx::PgPool;

pub use self::cancel::CancelOutcome;
pub use self::error::EngineError;
use self::forgotten::Forgotten;
pub use self::knowledge::KNOWN;
pub use self::lookups::{IssuedReceipt, ReceiptLookup};
pub use self::submit::{JudgedPermit, PermitCheck, SubmitCommand, UnknownWallet};
use crate::chain::WalletReaders;
use crate::chain::wallets::Wallets;
use crate::context::Context;
use crate::writer::FixPart;
pub use crate::writer::Pending;
use crate::writer::{Done, Flow, IdempotencyPart, Unit, UnitSource, Work, WriteError, Writer};

/// Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) pool: PgPool,
    pools: Pools,
    pub(crate) writer: Writer,
    pub(crate) context: Arc<Context>,
    wallets: Wallets,
    started_at: Timestamp,
    pub(crate) forgotten: Forgotten,
}

impl Engine {
    pub fn new(
        pools: impl Into<Pools>,
        writer: Writer,
        context: Arc<Context>,
        wallets: WalletReaders,
    ) -> Self {
        let pools = pools.into();
        let started_at = context.clock.now();
        let (pool, wallets) = (pools.orders.clone(), Wallets::new(wallets));
        let forgotten = Forgotten::default();
        Self { pool, pools, writer, context, wallets, started_at, forgotten }
    }

    /// The cached wallets. A task must call [`run`](Wallets::run); without it every order looks its wallet up.
    pub const fn wallets(&self) -> &Wallets {
        &self.wallets
    }

    /// The same engine with a pool of its own for background work, so that callers never wait for it.
    #[must_use]
    pub fn in_background(&self) -> Self {
        let pools = self.pools.in_background();
        Self { pool: pools.orders.clone(), pools, ..self.clone() }
    }

    /// The time by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// When this process began.
    pub(crate) const fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The pool for orders.
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The pool for partners' reads, separate from orders.
    pub const fn reads(&self) -> &PgPool {
        &self.pools.reads
    }

    /// The pool for callers that are not authenticated yet.
    pub const fn lookups(&self) -> &PgPool {
        &self.pools.lookups
    }

    /// Whether the writer accepts units; it stops only when its task has failed.
    pub fn is_writing(&self) -> bool {
        self.writer.is_running()
    }

    /// Whether the database answers.
    pub const fn availability(&self) -> &Availability {
        self.pools.availability()
    }

    /// The answer stored under an idempotency key, read without queueing. The writer checks it again.
    pub async fn find_answer(&self, id: &RecordId) -> Result<Option<idempotency::Record>, EngineError> {
        let mut conn = self.pool.acquire().await?;
        Ok(idempotency::list_live(&mut conn, &[id]).await?.pop())
    }

    /// Stores the answer of a request that writes no other row.
    pub async fn keep_refusal(&self, key: IdempotencyPart) -> Result<Done, EngineError> {
        let work = Work::AnswerOnly;
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    fn queue(&self, unit: Unit) -> impl Future<Output = Result<Pending, EngineError>> + use<> {
        let queued = if unit.fix.is_some() {
            Either::Left(self.writer.enqueue_patiently(unit))
        } else {
            Either::Right(ready(self.writer.enqueue(unit)))
        };
        async move { Ok(queued.await?) }
    }

    /// Writes a FIX session's own change: sequence numbers, stored messages.
    pub async fn commit_fix(&self, tenant: &Tenant, fix: FixPart) -> Result<Done, EngineError> {
        Ok(self.begin_commit_fix(tenant, fix).await?.await.map_err(|_| WriteError::Stopped)??)
    }

    /// Queues a FIX session's own change behind its earlier units; returns when it has a place in the queue.
    pub fn begin_commit_fix(
        &self,
        tenant: &Tenant,
        fix: FixPart,
    ) -> impl Future<Output = Result<Pending, EngineError>> + use<> {
        self.queue(Unit::of_session(tenant.clone(), Work::SessionOnly, fix))
    }
}

/// The flow of a FIX session, or of a tenant over REST.
fn flow(tenant: Tenant, fix: Option<&FixPart>) -> Flow {
    let source = fix.map_or(UnitSource::Rest, |part| UnitSource::Session(part.numbers.session_id.clone()));
    Flow { tenant, source }
}
