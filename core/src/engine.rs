//! The one door: quote, submit, cancel, status, receipt, events. Both services call it; neither writes anything
//! itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dvp_domain::intent::{IntentRequest, permit_defect};
use dvp_domain::liquidity::Market;
use dvp_domain::quote::{Candidate, FirmRequest, FirmTerms, IndicativeRequest, firm, indicative};
use dvp_domain::settlement::{Happened, IllegalTransition};
use dvp_domain::status::{self, ExecutionView};
use dvp_domain::{ids::QuoteId, receipt};
use serde_json::Value;
use sqlx::PgPool;
use tracing::{Instrument, info, info_span};
use uuid::Uuid;

use crate::chain::{ChainUnavailable, PermitNonces};
use crate::context::{Context, now};
use crate::fix::FixPart;
use crate::liquidity::{PairAssets, PriceRequest};
use crate::statuses::Status;
use crate::store::events::{Filter, StoredEvent};
use crate::store::executions::{self, RefType};
use crate::store::idempotency::{self, RecordId, StoredResponse};
use crate::store::intents::Tenant;
use crate::store::quotes::{NewFirmQuote, QuoteContext};
use crate::store::{StoreError, events, receipts};
use crate::writer::{
    Change, Consumed, Done, IdempotencyPart, Outcome, Submission, Unit, Work, WriteError, Writer,
};

/// The request could not be carried out; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Too much is waiting: try again in a moment.
    #[error("busy")]
    Busy,
    /// Database or chain did not answer.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// A row breaks a rule.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt { .. } => Self::Corrupt(error.to_string()),
            StoreError::Database(_) | StoreError::Migrate(_) | StoreError::Stale { .. } => {
                Self::Unavailable(error.to_string())
            }
        }
    }
}

impl From<sqlx::Error> for EngineError {
    fn from(error: sqlx::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<WriteError> for EngineError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Busy => Self::Busy,
            WriteError::Store(error) => error.into(),
            WriteError::Stopped | WriteError::Stale { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<ChainUnavailable> for EngineError {
    fn from(error: ChainUnavailable) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// An intent from either door.
pub struct SubmitCommand {
    pub tenant: Tenant,
    pub request: IntentRequest,
    /// From REST.
    pub idempotency: Option<IdempotencyPart>,
    /// From FIX.
    pub fix: Option<FixPart>,
}

/// Where a submission is up to: validated and queued, to be awaited.
pub type Pending = tokio::sync::oneshot::Receiver<Result<Done, WriteError>>;

/// How a cancellation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    Cancelled,
    /// The settlement is past the accepted point.
    TooLate,
    Unknown,
}

/// Why there is no receipt to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptLookup<T> {
    Found(T),
    NotFound,
    NotIssued,
    /// The stored body is no JSON object.
    Unreadable,
}

/// How often a step is tried anew when another writer was faster.
const STEP_ATTEMPTS: usize = 8;
/// How long the chain may take to answer a question on the way of a request.
const CHAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) pool: PgPool,
    pub(crate) writer: Writer,
    pub(crate) context: Arc<Context>,
    nonces: Arc<dyn PermitNonces>,
}

impl Engine {
    pub fn new(pool: PgPool, writer: Writer, context: Arc<Context>, nonces: Arc<dyn PermitNonces>) -> Self {
        Self { pool, writer, context, nonces }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The answer already given under an idempotency key, read without queueing. The writer checks again.
    pub async fn find_answer(&self, id: &RecordId) -> Result<Option<idempotency::Record>, EngineError> {
        let mut conn = self.pool.acquire().await?;
        Ok(idempotency::list_live(&mut conn, &[id]).await?.pop())
    }

    /// Candidates for a pair, best first. The context is kept under the requestId with the answer.
    pub async fn quote(&self, request: &IndicativeRequest<'_>) -> Result<Vec<Candidate>, EngineError> {
        let started = Instant::now();
        let liquidity = &self.context.liquidity;
        let holdings = liquidity.balances().read(&self.pool).await?;
        let pair = PairAssets { input: request.input, output: request.output };
        let asked = PriceRequest { pair, amount: request.amount, actor: request.actor };
        let snapshot = liquidity.snapshot_with_answers(asked).await;
        let market = Market {
            registry: &self.context.registry,
            snapshot: &snapshot,
            holdings: holdings.as_ref(),
            now: now(),
        };
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(indicative(&market, request, latency_ms))
    }

    /// A locked price, not yet stored. `None`: no liquidity.
    pub async fn firm_quote(&self, request: &FirmRequest<'_>) -> Result<Option<FirmTerms>, EngineError> {
        let liquidity = &self.context.liquidity;
        let holdings = liquidity.balances().read(&self.pool).await?;
        let market = Market {
            registry: &self.context.registry,
            snapshot: &liquidity.snapshot(),
            holdings: holdings.as_ref(),
            now: now(),
        };
        Ok(firm(&market, request, QuoteId::from_unique(Uuid::now_v7().simple())))
    }

    /// Stores an indicative quote's context with its answer.
    pub async fn keep_quote(&self, context: QuoteContext, key: IdempotencyPart) -> Result<Done, EngineError> {
        let work = Work::Quote(Box::new(context));
        Ok(self.writer.write(Unit { work, idempotency: Some(key), fix: None }).await?)
    }

    /// Stores a firm quote with its answer.
    pub async fn keep_firm_quote(
        &self,
        quote: NewFirmQuote,
        key: IdempotencyPart,
    ) -> Result<Done, EngineError> {
        let work = Work::FirmQuote(Box::new(quote));
        Ok(self.writer.write(Unit { work, idempotency: Some(key), fix: None }).await?)
    }

    /// Stores the answer of a request that ends without anything written.
    pub async fn keep_refusal(&self, key: IdempotencyPart) -> Result<Done, EngineError> {
        let work = Work::Refuse(Outcome::Written);
        Ok(self.writer.write(Unit { work, idempotency: Some(key), fix: None }).await?)
    }

    /// What can be said against a permit before the intent is decided: its form, its signer, its nonce.
    pub async fn permit_problem(&self, request: &IntentRequest) -> Result<Option<&'static str>, EngineError> {
        let Some(permit) = &request.permit else { return Ok(None) };
        if let Some(defect) = permit_defect(request, &self.context.chain.escrow, now()) {
            return Ok(Some(defect));
        }
        let token = self.context.registry.resolve(&request.input_asset).map(|asset| &asset.kind);
        if let Some(dvp_domain::asset::AssetKind::Erc20 { address, .. }) = token
            && !address.eq_ignore_ascii_case(&permit.token)
        {
            return Ok(Some("permit.token differs from inputAsset.address"));
        }
        let signer = self.context.chain.permit.signer(permit);
        if signer.is_none_or(|signer| !signer.eq_ignore_ascii_case(&request.user)) {
            return Ok(Some("permit.signature does not recover to user"));
        }
        let next = tokio::time::timeout(CHAIN_TIMEOUT, self.nonces.permit_nonce(&request.user))
            .await
            .map_err(|_| ChainUnavailable("no answer in time".into()))??;
        // Sequential nonces: a later one cannot be used before the ones between, which nobody has signed for us.
        Ok((permit.nonce.get() < next).then_some("permit.nonce was used before"))
    }

    /// Decides an intent and answers after the commit.
    pub async fn submit(&self, command: SubmitCommand) -> Result<Done, EngineError> {
        let span = info_span!("submit", intent_id = %command.request.intent_id);
        async {
            let pending = self.begin_submit(command).await?;
            let done = pending.await.map_err(|_| WriteError::Stopped)??;
            log_outcome(&done.outcome);
            Ok(done)
        }
        .instrument(span)
        .await
    }

    /// Checks the permit and queues the intent. Submissions are decided in the order this returned.
    pub async fn begin_submit(&self, command: SubmitCommand) -> Result<Pending, EngineError> {
        let SubmitCommand { tenant, request, idempotency, fix } = command;
        let work = match self.permit_problem(&request).await? {
            Some(problem) => Work::Refuse(Outcome::InvalidPermit(problem)),
            None => Work::Submit(Box::new(Submission { tenant, request })),
        };
        Ok(self.writer.enqueue(Unit { work, idempotency, fix })?)
    }

    /// Writes a FIX session's own change: numbers, stored messages.
    pub async fn commit_fix(&self, fix: FixPart) -> Result<Done, EngineError> {
        Ok(self.begin_commit_fix(fix)?.await.map_err(|_| WriteError::Stopped)??)
    }

    /// Queues a FIX session's own change behind what the session queued before.
    pub fn begin_commit_fix(&self, fix: FixPart) -> Result<Pending, EngineError> {
        Ok(self.writer.enqueue(Unit { work: Work::SessionOnly, idempotency: None, fix: Some(fix) })?)
    }

    /// Queues a firm quote with the FIX message that tells it, behind what the session queued before.
    pub fn begin_firm_quote(&self, quote: NewFirmQuote, fix: FixPart) -> Result<Pending, EngineError> {
        let work = Work::FirmQuote(Box::new(quote));
        Ok(self.writer.enqueue(Unit { work, idempotency: None, fix: Some(fix) })?)
    }

    /// Cancels an execution that is accepted and not yet locking. The FIX part is rendered from
    /// [`Outcome::Written`] when it was cancelled, and is left to the caller otherwise.
    pub async fn cancel(
        &self,
        tenant: &Tenant,
        reference: &str,
        fix: Option<FixPart>,
    ) -> Result<CancelOutcome, EngineError> {
        for _ in 0..STEP_ATTEMPTS {
            let mut conn = self.pool.acquire().await?;
            let named = RefType::ExecutionId;
            let found = executions::find_for_tenant(&mut conn, tenant, named, reference).await?;
            drop(conn);
            let Some(found) = found else { return Ok(CancelOutcome::Unknown) };
            let span = info_span!("cancel", intent_id = %found.terms.request.intent_id, reference);
            let step = match found.state.step(&found.terms, Happened::CancelAsked) {
                Ok(step) => step,
                Err(IllegalTransition { state, .. }) => {
                    span.in_scope(|| info!(state, "too late to cancel"));
                    return Ok(CancelOutcome::TooLate);
                }
            };
            let change = Change {
                terms: found.terms,
                version: found.version,
                last_sequence: found.last_sequence,
                step: Some(step),
                consumed: Consumed::default(),
            };
            let unit = Unit { work: Work::Step(Box::new(change)), idempotency: None, fix: fix.clone() };
            match self.writer.write(unit).instrument(span.clone()).await {
                Ok(_) => {
                    span.in_scope(|| info!("cancelled"));
                    return Ok(CancelOutcome::Cancelled);
                }
                Err(WriteError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Busy)
    }

    /// The status of a tenant's execution.
    pub async fn execution(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<Option<ExecutionView>, EngineError> {
        let mut conn = self.pool.acquire().await?;
        let found = executions::find_with_events(&mut conn, tenant, named, reference).await?;
        Ok(found.map(|(found, recorded)| status::view(&found.terms, &found.state, &recorded)))
    }

    /// The same as JSON, kept in memory for those who poll ([`crate::statuses`] says how old it may be).
    pub async fn execution_text(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<Option<Bytes>, EngineError> {
        let statuses = self.writer.statuses();
        let began = match statuses.find(&self.pool, tenant, named, reference).await {
            Ok(kept) => return Ok(Some(kept)),
            Err(began) => began,
        };
        let at = Instant::now();
        let Some(view) = self.execution(tenant, named, reference).await? else { return Ok(None) };
        let body = serde_json::to_vec(&view).map_err(|error| EngineError::Corrupt(error.to_string()))?;
        let body = Bytes::from(body);
        let status = Status {
            tenant: tenant.clone(),
            reference: view.reference.into(),
            client_reference: view.client_reference.map(Into::into),
            body: body.clone(),
            at,
        };
        statuses.keep(began, status);
        Ok(Some(body))
    }

    /// The receipt of a tenant's execution, with its finality once the anchor was seen.
    pub async fn receipt(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<ReceiptLookup<Value>, EngineError> {
        let mut conn = self.pool.acquire().await?;
        let Some(found) = executions::find_for_tenant(&mut conn, tenant, named, reference).await? else {
            return Ok(ReceiptLookup::NotFound);
        };
        let dvp_domain::settlement::State::Completed { finality, .. } = &found.state else {
            return Ok(ReceiptLookup::NotIssued);
        };
        let Some(text) = receipts::find_body(&mut conn, found.terms.reference.as_str()).await? else {
            return Ok(ReceiptLookup::NotIssued);
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(body) if body.is_object() => {
                Ok(ReceiptLookup::Found(receipt::with_finality(&body, finality.as_ref())))
            }
            Ok(_) | Err(_) => Ok(ReceiptLookup::Unreadable),
        }
    }

    /// A page of a tenant's feed.
    pub async fn events(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<StoredEvent>, EngineError> {
        let mut conn = self.pool.acquire().await?;
        Ok(events::list_for_tenant(&mut conn, tenant, filter).await?)
    }

    /// The feed's epoch: a cursor of another one is refused.
    pub async fn feed_epoch(&self) -> Result<Uuid, EngineError> {
        let mut conn = self.pool.acquire().await?;
        Ok(events::load_epoch(&mut conn).await?)
    }
}

fn log_outcome(outcome: &Outcome) {
    match outcome {
        Outcome::Accepted(accepted) => info!(reference = %accepted.reference, "intent accepted"),
        Outcome::Rejected { reason, .. } => info!(reason = reason.as_str(), "intent rejected"),
        Outcome::InvalidPermit(problem) => info!(problem, "permit refused"),
        Outcome::DuplicateIntent | Outcome::DuplicateClientReference => info!("intent seen before"),
        Outcome::Replayed(StoredResponse { status, .. }) => info!(status, "answer given again"),
        Outcome::KeyConflict | Outcome::KeyProcessing => info!("idempotency key in use"),
        Outcome::Written => {}
    }
}
