//! The functions of the service for a partner: quote, submit, cancel, status, receipt, events. REST and FIX change
//! orders through these functions only.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use dvp_domain::asset::AssetKind;
use dvp_domain::intent::IntentRequest;
use dvp_domain::liquidity::Market;
use dvp_domain::permit::{self, PermitDefect};
use dvp_domain::quote::{Candidate, FirmRequest, FirmTerms, IndicativeRequest, firm, indicative};
use dvp_domain::settlement::{Finality, Happened, IllegalTransition, State};
use dvp_domain::status::{self, ExecutionView};
use dvp_domain::time::Timestamp;
use dvp_domain::{ids::QuoteId, receipt};
use dvp_store::database::Availability;
use dvp_store::orders::events::{EventFilter, StoredEvent};
use dvp_store::orders::executions::{self, RefType};
use dvp_store::orders::idempotency::{self, RecordId, StoredResponse};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::HeldTurn;
use dvp_store::orders::quotes::{NewFirmQuote, QuoteContext};
use dvp_store::orders::{events, receipts};
use dvp_store::pools::Pools;
use dvp_store::{Fault, StoreError};
use futures_util::future::Either;
use serde_json::Value;
use sqlx::PgPool;
use tracing::{Instrument, info, info_span};
use uuid::Uuid;

use crate::chain::{ChainUnavailable, WalletFacts, WalletKey, WalletReader};
use crate::context::Context;
use crate::liquidity::{PairAssets, PriceRequest};
use crate::permit::Signer;
use crate::statuses::Status;
use crate::wallets::Wallets;
use crate::writer::FixPart;
pub use crate::writer::Pending;
use crate::writer::{
    Change, Consumed, Done, IdempotencyPart, KnownWallet, Lane, Outcome, Submission, Unit, UnitSource, Work,
    WriteError, Writer,
};

/// The request failed; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Too many requests are waiting: retry shortly.
    #[error("busy")]
    Busy,
    /// The database or the chain did not answer.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// A row violates a rule, either a stored one or one that cannot be written.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error.fault() {
            Fault::Data => Self::Corrupt(error.to_string()),
            Fault::Conflict | Fault::Slow | Fault::Unavailable => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<sqlx::Error> for EngineError {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl From<WriteError> for EngineError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Busy => Self::Busy,
            WriteError::Store(error) => error.into(),
            WriteError::Unavailable(why) | WriteError::Slow(why) => Self::Unavailable(why.to_string()),
            WriteError::Stopped | WriteError::Stale { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<ChainUnavailable> for EngineError {
    fn from(error: ChainUnavailable) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// An intent from REST or FIX.
pub struct SubmitCommand {
    pub tenant: Tenant,
    pub request: IntentRequest,
    /// From REST.
    pub idempotency: Option<IdempotencyPart>,
    /// From FIX.
    pub fix: Option<FixPart>,
}

/// Whether an intent's permit can be checked without a chain query.
#[derive(Debug)]
pub enum PermitCheck {
    Judged(JudgedPermit),
    /// The permit is well formed and signed by its wallet; no fresh data of the wallet is cached.
    UnknownWallet(WalletKey),
}

/// The result of [`Engine::check_permit`], with the cached data of the wallet.
#[derive(Debug, Clone)]
pub struct JudgedPermit {
    verdict: Result<Option<WalletFacts>, PermitDefect>,
    wallet: Option<WalletKey>,
}

impl JudgedPermit {
    const fn without_wallet(verdict: Result<Option<WalletFacts>, PermitDefect>) -> Self {
        Self { verdict, wallet: None }
    }

    /// The wallet's other pending orders are read when the intent is decided.
    pub const fn of_wallet(wallet: WalletKey, facts: WalletFacts) -> Self {
        Self { verdict: Ok(Some(facts)), wallet: Some(wallet) }
    }

    /// The wallet that pays, when its data was read.
    pub const fn wallet(&self) -> Option<&WalletKey> {
        self.wallet.as_ref()
    }
}

/// The result of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    Cancelled,
    /// The settlement has left the accepted state.
    TooLate,
    Unknown,
}

/// Why no receipt is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptLookup<T> {
    Found(T),
    NotFound,
    NotIssued,
    /// The stored body is no JSON object.
    Unreadable,
}

/// A receipt as it was issued, and its anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedReceipt {
    pub body: Value,
    /// Known once the anchor was indexed.
    pub finality: Option<Finality>,
}

/// How often a step is retried after a concurrent change.
const STEP_ATTEMPTS: usize = 8;

/// Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) pool: PgPool,
    pools: Pools,
    pub(crate) writer: Writer,
    pub(crate) context: Arc<Context>,
    wallets: Wallets,
}

impl Engine {
    pub fn new(
        pools: impl Into<Pools>,
        writer: Writer,
        context: Arc<Context>,
        wallets: Arc<dyn WalletReader>,
    ) -> Self {
        let pools = pools.into();
        Self { pool: pools.orders.clone(), pools, writer, context, wallets: Wallets::new(wallets) }
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

    /// Candidates for a pair, best first. The context is stored under the requestId with the answer.
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
            now: self.now(),
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
            now: self.now(),
        };
        Ok(firm(&market, request, QuoteId::from_unique(Uuid::now_v7().simple())))
    }

    /// Stores an indicative quote's context with its answer.
    pub async fn keep_quote(&self, context: QuoteContext, key: IdempotencyPart) -> Result<Done, EngineError> {
        let work = Work::Quote(Box::new(context));
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    /// Stores a firm quote with its answer.
    pub async fn keep_firm_quote(
        &self,
        quote: NewFirmQuote,
        key: IdempotencyPart,
    ) -> Result<Done, EngineError> {
        let work = Work::FirmQuote(Box::new(quote));
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    /// Stores the answer of a request that writes no other row.
    pub async fn keep_refusal(&self, key: IdempotencyPart) -> Result<Done, EngineError> {
        let work = Work::Refuse(Outcome::Written);
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    /// Checks an intent's permit from memory: its form, its signer, and the cached data of its wallet. A given `signer`
    /// avoids a second recovery.
    pub fn check_permit(
        &self,
        tenant: &Tenant,
        request: &IntentRequest,
        signer: Option<&Signer>,
    ) -> PermitCheck {
        let refused = |defect| PermitCheck::Judged(JudgedPermit::without_wallet(Err(defect)));
        let fine = PermitCheck::Judged(JudgedPermit::without_wallet(Ok(None)));
        let Some(permit) = &request.permit else { return fine };
        if let Some(defect) = permit::form_defect(request, &self.context.chain.escrow, self.now()) {
            return refused(defect);
        }
        let token = self.context.registry.resolve(&request.input_asset).and_then(|asset| match &asset.kind {
            AssetKind::Erc20 { address, .. } => Some(address),
            AssetKind::Fiat { .. } => None,
        });
        if token.is_some_and(|address| !address.eq_ignore_ascii_case(&permit.token)) {
            return refused(PermitDefect::Token);
        }
        let recovered = if signer.is_none() { self.context.chain.permit.signer(permit) } else { None };
        let is_users = |signer: &Signer| signer.as_str().eq_ignore_ascii_case(&request.user);
        if !signer.or(recovered.as_ref()).is_some_and(is_users) {
            return refused(PermitDefect::Signer);
        }
        // The chain is queried about registered tokens only; any other token cannot be locked.
        let Some(token) = token else { return fine };
        let wallet =
            WalletKey { owner: request.user.to_ascii_lowercase(), token: token.to_ascii_lowercase() };
        match self.wallets.find(&tenant.partner_id, &wallet) {
            Some(facts) => PermitCheck::Judged(JudgedPermit::of_wallet(wallet, facts)),
            None => PermitCheck::UnknownWallet(wallet),
        }
    }

    /// Decides an intent and answers after the commit. An intent of an unknown wallet first waits for the wallet's
    /// look-up.
    pub async fn submit(&self, command: SubmitCommand) -> Result<Done, EngineError> {
        let span = info_span!("submit", intent_id = %command.request.intent_id);
        async {
            let permit = match self.check_permit(&command.tenant, &command.request, None) {
                PermitCheck::Judged(permit) => permit,
                PermitCheck::UnknownWallet(wallet) => {
                    let facts = self.wallets.look_up(&command.tenant.partner_id, &wallet).await?;
                    JudgedPermit::of_wallet(wallet, facts)
                }
            };
            let pending = self.begin_submit(command, permit).await?;
            let done = pending.await.map_err(|_| WriteError::Stopped)??;
            log_outcome(&done.outcome);
            Ok(done)
        }
        .instrument(span)
        .await
    }

    /// Queues an intent whose permit was checked. Submissions of one FIX session, or of one tenant over REST, are
    /// decided in the order of these calls. A FIX session's submission waits for a free place in the queue; any other
    /// is refused when its tenant's share is full.
    pub fn begin_submit(
        &self,
        command: SubmitCommand,
        permit: JudgedPermit,
    ) -> impl Future<Output = Result<Pending, EngineError>> + use<> {
        let SubmitCommand { tenant, mut request, idempotency, fix } = command;
        let lane = lane(tenant.clone(), fix.as_ref());
        let work = match permit.verdict {
            Err(defect) => Work::Refuse(Outcome::InvalidPermit(defect)),
            Ok(facts) => {
                normalise_signature(&mut request);
                let wallet = permit.wallet.zip(facts).map(|(key, facts)| KnownWallet { key, facts });
                Work::Submit(Box::new(Submission { tenant, request, wallet, turn: None }))
            }
        };
        self.queue(Unit { lane, work, idempotency, fix })
    }

    /// Executes a legacy order, which has no permit. `None`: another process holds the order's lease, and nothing was
    /// written.
    pub(crate) async fn submit_turn(
        &self,
        request: IntentRequest,
        turn: HeldTurn,
    ) -> Result<Option<Done>, EngineError> {
        let tenant = turn.tenant.clone();
        let lane = lane(tenant.clone(), None);
        let work = Work::Submit(Box::new(Submission { tenant, request, wallet: None, turn: Some(turn) }));
        match self.writer.write(Unit { lane, work, idempotency: None, fix: None }).await {
            Ok(done) => Ok(Some(done)),
            Err(WriteError::Stale { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
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

    /// Queues a firm quote with the FIX message that reports it, behind the session's earlier units; returns when it
    /// has a place in the queue.
    pub fn begin_firm_quote(
        &self,
        quote: NewFirmQuote,
        fix: FixPart,
    ) -> impl Future<Output = Result<Pending, EngineError>> + use<> {
        let tenant = quote.tenant.clone();
        self.queue(Unit::of_session(tenant, Work::FirmQuote(Box::new(quote)), fix))
    }

    /// Cancels an execution that is accepted and not yet locking. The FIX part is rendered from [`Outcome::Written`]
    /// when the cancellation succeeded; otherwise the caller renders it.
    pub async fn cancel(
        &self,
        tenant: &Tenant,
        reference: &str,
        fix: Option<FixPart>,
    ) -> Result<CancelOutcome, EngineError> {
        let mut was_stale = false;
        for _ in 0..STEP_ATTEMPTS {
            let mut conn = self.pool.acquire().await?;
            let named = RefType::ExecutionId;
            let found = executions::find_for_tenant(&mut conn, tenant, named, reference).await?;
            drop(conn);
            let Some(found) = found else { return Ok(CancelOutcome::Unknown) };
            let span = info_span!("cancel", intent_id = %found.terms.request.intent_id, reference);
            let was_open = !found.state.is_terminal();
            let step = match found.state.step(&found.terms, Happened::CancelAsked) {
                Ok(step) => step,
                // The cancellation is our own attempt whose commit was not acknowledged, or another one: the execution
                // is cancelled in both cases. A FIX session's numbers show which.
                Err(illegal) if was_stale && fix.is_none() && illegal.state == State::Cancelled.name() => {
                    return Ok(CancelOutcome::Cancelled);
                }
                Err(IllegalTransition { state, .. }) => {
                    span.in_scope(|| info!(state, "too late to cancel"));
                    return Ok(CancelOutcome::TooLate);
                }
            };
            let change = Change {
                terms: found.terms,
                version: found.version,
                last_sequence: found.last_sequence,
                last_occurred_at: found.last_occurred_at,
                step: Some(step),
                consumed: Consumed::default(),
                was_open,
            };
            let unit = Unit {
                lane: lane(tenant.clone(), fix.as_ref()),
                work: Work::Step(Box::new(change)),
                idempotency: None,
                fix: fix.clone(),
            };
            let pending = span.in_scope(|| self.queue(unit)).await?;
            match pending.await.unwrap_or(Err(WriteError::Stopped)) {
                Ok(_) => {
                    span.in_scope(|| info!("cancelled"));
                    return Ok(CancelOutcome::Cancelled);
                }
                Err(WriteError::Stale { .. }) => was_stale = true,
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
        let mut conn = self.reads().acquire().await?;
        let found = executions::find_with_events(&mut conn, tenant, named, reference).await?;
        Ok(found.map(|(found, recorded)| status::view(&found.terms, &found.state, &recorded)))
    }

    /// The same as JSON, cached in memory (the module `statuses` defines how old it can be).
    pub async fn execution_text(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<Option<Bytes>, EngineError> {
        let statuses = self.writer.statuses();
        let began = match statuses.find(self.reads(), tenant, named, reference).await {
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

    /// The receipt of a tenant's execution as partners receive it, with its finality once the anchor was indexed.
    pub async fn receipt(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<ReceiptLookup<Value>, EngineError> {
        Ok(match self.issued_receipt(tenant, named, reference).await? {
            ReceiptLookup::Found(issued) => {
                ReceiptLookup::Found(receipt::with_finality(&issued.body, issued.finality.as_ref()))
            }
            ReceiptLookup::NotFound => ReceiptLookup::NotFound,
            ReceiptLookup::NotIssued => ReceiptLookup::NotIssued,
            ReceiptLookup::Unreadable => ReceiptLookup::Unreadable,
        })
    }

    /// The receipt of a tenant's execution as it was issued, and its anchor.
    pub async fn issued_receipt(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<ReceiptLookup<IssuedReceipt>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        let Some(found) = executions::find_for_tenant(&mut conn, tenant, named, reference).await? else {
            return Ok(ReceiptLookup::NotFound);
        };
        let State::Completed { finality, .. } = found.state else {
            return Ok(ReceiptLookup::NotIssued);
        };
        let Some(text) = receipts::find_body(&mut conn, found.terms.reference.as_str()).await? else {
            return Ok(ReceiptLookup::NotIssued);
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(body) if body.is_object() => Ok(ReceiptLookup::Found(IssuedReceipt { body, finality })),
            Ok(_) | Err(_) => Ok(ReceiptLookup::Unreadable),
        }
    }

    /// A page of a tenant's feed.
    pub async fn events(
        &self,
        tenant: &Tenant,
        filter: &EventFilter,
    ) -> Result<Vec<StoredEvent>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(events::list_for_tenant(&mut conn, tenant, filter).await?)
    }

    /// The feed's epoch: a cursor of another epoch is refused.
    pub async fn feed_epoch(&self) -> Result<Uuid, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(events::load_epoch(&mut conn).await?)
    }
}

/// The signature is stored, and sent to the chain, in the form that the permit contract accepts.
fn normalise_signature(request: &mut IntentRequest) {
    if let Some(permit) = &mut request.permit
        && let Ok(signature) = permit::signature(permit)
    {
        permit.signature = signature.to_hex();
    }
}

/// The lane of a FIX session, or of a tenant over REST.
fn lane(tenant: Tenant, fix: Option<&FixPart>) -> Lane {
    let source = fix.map_or(UnitSource::Rest, |part| UnitSource::Session(part.numbers.session_id.clone()));
    Lane { tenant, source }
}

fn log_outcome(outcome: &Outcome) {
    match outcome {
        Outcome::Accepted(accepted) => info!(reference = %accepted.reference, "intent accepted"),
        Outcome::Rejected { reason, .. } => info!(reason = reason.as_str(), "intent rejected"),
        Outcome::InvalidPermit(defect) => info!(%defect, "permit rejected"),
        Outcome::Unpayable(why) => {
            info!(%why, "intent refused: the payout rail cannot pay the beneficiary")
        }
        Outcome::DuplicateIntent | Outcome::DuplicateClientReference => info!("duplicate intent"),
        Outcome::Replayed(StoredResponse { status, .. }) => info!(status, "stored response replayed"),
        Outcome::PartnerDisabled => info!("intent refused: the partner is disabled"),
        Outcome::KeyConflict | Outcome::KeyProcessing => info!("idempotency key in use"),
        Outcome::Written => {}
    }
}
