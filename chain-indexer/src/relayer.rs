//! Carries out the engine's commands: one transaction each, however often the process or the node dies.
//!
//! A command is looked at (`action`) at one block: is its goal reached, and if not, would its transaction
//! succeed? If it would, a nonce is taken and the signed bytes are committed; only then are they sent, and sent
//! again until they are in a block. A command is done when the indexer has seen its event, not when we have a
//! receipt.
//!
//! Invariants:
//! - bytes are committed before they are sent, so after a crash the same transaction is sent, not a second one;
//! - a transaction that cannot be found is not a failed one: nothing is given up for want of an answer;
//! - a command fails only when a call at a confirmed block says that it can never succeed while its goal is not
//!   reached at that block;
//! - a block that is taken back makes its transactions open again, and their same bytes are sent again.

mod action;
mod slots;

use crate::config::ChainConfig;
use crate::contracts::{anchor::ReceiptAnchor, payouts::Payouts, settler::IntentSettler};
use crate::duty::{Backoff, Duty};
use crate::rpc::{self, BlockHead, Simulated};
use crate::signing::{self, Account, Fees, Unsigned};
use action::{Action, IntentState, Outlook};
use alloy::eips::BlockId;
use alloy::primitives::{B256, TxKind};
use alloy::providers::{DynProvider, Provider};
use alloy::signers::Signer;
use alloy::transports::{RpcError, TransportError};
use dvp_core::chain::{ChainCommand, ChainFact};
use dvp_core::store::chain::{self as store, CommandRow, NewAttempt};
use dvp_core::store::lease::Lease;
use dvp_core::store::{PgPool, StoreError};
use sqlx::postgres::PgListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Transactions of one account that nodes keep for sure.
const WINDOW: u64 = 16;
/// Commands looked at in one turn.
const LOOK_AT: i64 = 32;
/// A command that has to wait for another is looked at again after so long.
const WAIT_MS: i64 = 250;
const WAIT: Duration = Duration::from_millis(250);
/// A command whose goal is reached waits for the indexer.
const REACHED_MS: i64 = 1_000;
const BLOCKED_MS: i64 = 10_000;
/// A command that its own lane has not signed after so long is any lane's.
const LEFT_LYING_MS: i64 = 3_000;
const BALANCE_EVERY: Duration = Duration::from_secs(30);
/// Without news we look at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why the relayer does not go on for now.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("chain call failed: {0}")]
    Rpc(#[from] TransportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("transaction could not be signed: {0}")]
    Sign(#[from] alloy::signers::Error),
    #[error("stored transaction of nonce {nonce} is not one of ours: {reason}")]
    Undecodable { nonce: u64, reason: String },
    #[error("the node is on chain {found}, not {expected}")]
    WrongChain { expected: u64, found: u64 },
    #[error("the settler is in state {0}, which we do not know")]
    UnknownState(u8),
}

impl From<sqlx::Error> for RelayError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Runs until cancelled. Errors of the node and the database are logged and tried again.
pub async fn run_relayer(
    pool: PgPool,
    config: ChainConfig,
    signer: impl Signer + Send + Sync + 'static,
    shutdown: CancellationToken,
) -> Result<(), RelayError> {
    run_relayers(pool, config, vec![Arc::new(signer)], shutdown).await
}

/// The same with several accounts, which share the commands: more transactions under way than nodes keep for one.
/// Any one of them does them all when the others are gone.
pub async fn run_relayers(
    pool: PgPool,
    config: ChainConfig,
    accounts: Vec<Account>,
    shutdown: CancellationToken,
) -> Result<(), RelayError> {
    let lanes = i64::try_from(accounts.len()).unwrap_or(i64::MAX).max(1);
    let mut running = Vec::with_capacity(accounts.len());
    for (lane, account) in (0_i64..).zip(accounts) {
        let relayer = Relayer::in_lane(pool.clone(), config.clone(), account, (lane, lanes))?;
        running.push(run_lane(pool.clone(), relayer, shutdown.clone()));
    }
    futures_util::future::try_join_all(running).await?;
    Ok(())
}

async fn run_lane(pool: PgPool, mut relayer: Relayer, shutdown: CancellationToken) -> Result<(), RelayError> {
    let name = format!("relayer:{}:{}", relayer.config.chain_id, relayer.signer.address());
    while let Some(mut duty) = Duty::acquire(&pool, &name, &shutdown).await {
        relayer.follow(&mut duty, &shutdown).await;
        duty.release(&pool).await;
    }
    Ok(())
}

/// One account of one chain.
pub struct Relayer {
    pool: PgPool,
    provider: DynProvider,
    config: ChainConfig,
    signer: Account,
    /// Which lane this is, of how many.
    lane: (i64, i64),
    balance_checked: Option<Instant>,
    chain_checked: bool,
    /// Some command waits for something that no notification tells of.
    waiting: AtomicBool,
}

impl Relayer {
    /// No traffic yet.
    pub fn new(
        pool: PgPool,
        config: ChainConfig,
        signer: impl Signer + Send + Sync + 'static,
    ) -> Result<Self, RelayError> {
        Self::in_lane(pool, config, Arc::new(signer), (0, 1))
    }

    fn in_lane(
        pool: PgPool,
        config: ChainConfig,
        signer: Account,
        lane: (i64, i64),
    ) -> Result<Self, RelayError> {
        let provider = rpc::connect(&config.rpc_url)?;
        let waiting = AtomicBool::new(false);
        Ok(Self {
            pool,
            provider,
            config,
            signer,
            lane,
            balance_checked: None,
            chain_checked: false,
            waiting,
        })
    }

    async fn follow(&mut self, duty: &mut Duty, shutdown: &CancellationToken) {
        let mut backoff = Backoff::new();
        let mut listener = None;
        let mut seen = None;
        while !shutdown.is_cancelled() {
            if listener.is_none() {
                listener = self.listen().await;
            }
            match self.turn_if_news(duty, &mut seen).await {
                Ok(true) => backoff.reset(),
                Ok(false) => {
                    tracing::warn!(chain = self.config.name, "the relayer's duty was lost");
                    return;
                }
                Err(error) => {
                    tracing::error!(chain = self.config.name, %error, "the relayer holds");
                    seen = None;
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = tokio::time::sleep(backoff.next()) => {}
                    }
                    continue;
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(self.config.poll_interval) => {}
                () = woken(&mut listener) => seen = None,
            }
        }
    }

    async fn listen(&self) -> Option<PgListener> {
        let mut listener = PgListener::connect_with(&self.pool).await.ok()?;
        listener.listen("dvp_commands").await.ok()?;
        Some(listener)
    }

    /// A turn when there is a new head, when we were woken (`seen` is empty) and once in a while. `false`: the duty
    /// is lost.
    async fn turn_if_news(
        &mut self,
        duty: &mut Duty,
        seen: &mut Option<(B256, Instant)>,
    ) -> Result<bool, RelayError> {
        if !duty.keep(&self.pool).await? {
            return Ok(false);
        }
        let head = rpc::head(&self.provider).await?;
        let every = if self.waiting.load(Ordering::Relaxed) { WAIT } else { LOOK_EVERY };
        let old = seen.is_some_and(|(hash, at)| hash == head.hash && at.elapsed() < every);
        if !old {
            *seen = Some((head.hash, Instant::now()));
            self.turn_at(&duty.lease, &head).await?;
        }
        Ok(true)
    }

    /// Completes, signs and sends whatever there is to.
    pub async fn turn(&mut self, lease: &Lease) -> Result<(), RelayError> {
        let head = rpc::head(&self.provider).await?;
        self.turn_at(lease, &head).await
    }

    async fn turn_at(&mut self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        self.check_chain().await?;
        let mut conn = self.pool.acquire().await?;
        store::complete_commands(&mut conn, self.config.chain_id).await?;
        store::finalize_slots(&mut conn, self.config.chain_id).await?;
        drop(conn);
        self.check_balance(head).await?;
        self.sign_ready(lease, head).await?;
        self.fill_gap(lease, head).await?;
        self.send_open(lease, head).await
    }

    /// Says so before the account cannot pay for gas any more.
    async fn check_balance(&mut self, head: &BlockHead) -> Result<(), RelayError> {
        if self.balance_checked.is_some_and(|at| at.elapsed() < BALANCE_EVERY) {
            return Ok(());
        }
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let balance = self.provider.get_balance(signer).block_id(BlockId::hash(head.hash)).await?;
        let balance = u128::try_from(balance).unwrap_or(u128::MAX);
        let low = balance < self.config.balance_low_wei;
        let mut conn = self.pool.acquire().await?;
        if store::note_balance(&mut conn, chain_id, signer, balance, low).await? && low {
            let limit = self.config.balance_low_wei;
            tracing::error!(%signer, balance, limit, "a relayer's account is running out of funds for gas");
        }
        self.balance_checked = Some(Instant::now());
        Ok(())
    }

    async fn check_chain(&mut self) -> Result<(), RelayError> {
        if !self.chain_checked {
            let (expected, found) = (self.config.chain_id, self.provider.get_chain_id().await?);
            if found != expected {
                return Err(RelayError::WrongChain { expected, found });
            }
            self.chain_checked = true;
        }
        Ok(())
    }

    /// Takes nonces for the commands whose time has come and commits their signed bytes. Nothing is sent here.
    pub async fn sign_ready(&self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        self.waiting.store(false, Ordering::Relaxed);
        let mut conn = self.pool.acquire().await?;
        let open = store::count_in_flight(&mut conn, chain_id, signer).await?;
        let ready = store::list_ready_commands(&mut conn, chain_id, LOOK_AT).await?;
        drop(conn);
        if ready.is_empty() || open >= WINDOW {
            return Ok(());
        }
        let mut room = WINDOW - open;
        let mined = rpc::mined_nonce(&self.provider, signer, BlockId::hash(head.hash)).await?;
        for row in &ready {
            if room == 0 {
                break;
            }
            if !self.is_ours(row) {
                continue;
            }
            let span = tracing::info_span!("relay", intent_id = row.intent_id, reference = row.reference);
            let signed = self.consider(lease, row, head, mined).instrument(span).await?;
            room -= u64::from(signed);
        }
        Ok(())
    }

    /// Each lane has its share; what its lane has left lying is everybody's.
    const fn is_ours(&self, row: &CommandRow) -> bool {
        let (lane, lanes) = self.lane;
        row.id.rem_euclid(lanes) == lane || row.age_ms > LEFT_LYING_MS
    }

    /// Looks at one command and does what follows; `true` when it was signed.
    async fn consider(
        &self,
        lease: &Lease,
        row: &CommandRow,
        head: &BlockHead,
        mined: u64,
    ) -> Result<bool, RelayError> {
        let command: ChainCommand = match serde_json::from_value(row.payload.clone()) {
            Ok(command) => command,
            Err(error) => {
                tracing::error!(command = row.id, kind = row.kind, %error, "a command that cannot be read");
                self.defer(row, BLOCKED_MS).await?;
                return Ok(false);
            }
        };
        let action = match action::action(&self.config.deployment, &command) {
            Ok(action) => action,
            Err(error) => {
                self.fail(lease, row, action::rejected(&command), error.to_string()).await?;
                return Ok(false);
            }
        };
        match self.outlook(row.entity, &command, &action, head).await? {
            Outlook::Possible => {
                return self.sign(lease, row, &action, head, mined).await;
            }
            Outlook::Reached => self.defer(row, REACHED_MS).await?,
            Outlook::NotYet(reason) => {
                tracing::debug!(kind = row.kind, reason, "not yet");
                self.waiting.store(true, Ordering::Relaxed);
                self.defer(row, WAIT_MS).await?;
            }
            Outlook::Blocked(reason) => {
                tracing::error!(kind = row.kind, reason, "an operator must put this right");
                self.defer(row, BLOCKED_MS).await?;
            }
            Outlook::Never { code, message } => self.fail(lease, row, code, message).await?,
        }
        Ok(false)
    }

    /// What the newest block says; a last word must hold at the confirmation depth too.
    async fn outlook(
        &self,
        entity: B256,
        command: &ChainCommand,
        action: &Action,
        head: &BlockHead,
    ) -> Result<Outlook, RelayError> {
        let now = self.outlook_at(entity, command, action, BlockId::hash(head.hash)).await?;
        if !matches!(now, Outlook::Never { .. }) || self.config.confirmations <= 1 {
            return Ok(now);
        }
        let deep = BlockId::number((head.number + 1).saturating_sub(self.config.confirmations));
        match self.outlook_at(entity, command, action, deep).await? {
            Outlook::Never { .. } => Ok(now),
            Outlook::Reached | Outlook::Possible | Outlook::NotYet(_) | Outlook::Blocked(_) => {
                Ok(Outlook::NotYet("a refusal that is not confirmed yet".to_owned()))
            }
        }
    }

    async fn outlook_at(
        &self,
        entity: B256,
        command: &ChainCommand,
        action: &Action,
        at: BlockId,
    ) -> Result<Outlook, RelayError> {
        let (provider, to) = (&self.provider, action.to);
        let by_state = match command {
            ChainCommand::Anchor { .. } => {
                let submitter = self.signer.address();
                let call = ReceiptAnchor::anchorsCall { contentHash: entity, submitter };
                action::once_outlook(rpc::view(provider, to, &call, at).await?)
            }
            ChainCommand::Transfer(_) => {
                let call = Payouts::paidAtCall { id: entity };
                action::once_outlook(rpc::view(provider, to, &call, at).await?)
            }
            ChainCommand::Create(_) | ChainCommand::Fill { .. } | ChainCommand::Settle { .. } => {
                let call = IntentSettler::stateOfCall { intentId: entity };
                let state = rpc::view(provider, to, &call, at).await?;
                let state = IntentState::from_contract(state).ok_or(RelayError::UnknownState(state))?;
                action::settler_outlook(command, state)
            }
        };
        if by_state != Outlook::Possible {
            return Ok(by_state);
        }
        let from = self.signer.address();
        match rpc::simulate(provider, from, to, action.input.clone(), action.gas_limit, at).await {
            Ok(Simulated::Succeeds) => Ok(Outlook::Possible),
            Ok(Simulated::Reverts { data, message }) => Ok(action::judge(command, &data, &message)),
            // The node answered and did not like this one call: the others need not wait for it.
            Err(RpcError::ErrorResp(payload)) => Ok(Outlook::Blocked(payload.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn defer(&self, row: &CommandRow, delay_ms: i64) -> Result<(), RelayError> {
        let mut conn = self.pool.acquire().await?;
        Ok(store::defer_command(&mut conn, row.id, delay_ms).await?)
    }

    async fn fail(
        &self,
        lease: &Lease,
        row: &CommandRow,
        code: &str,
        message: String,
    ) -> Result<(), RelayError> {
        tracing::warn!(kind = row.kind, code, message, "the command cannot succeed any more");
        let fact = ChainFact::CommandFailed { command: row.kind.clone(), code: code.to_owned(), message };
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        store::fail_command(&mut tx, self.config.chain_id, row, &fact).await?;
        tx.commit().await?;
        Ok(())
    }

    /// `false`: another lane was faster.
    async fn sign(
        &self,
        lease: &Lease,
        row: &CommandRow,
        action: &Action,
        head: &BlockHead,
        mined: u64,
    ) -> Result<bool, RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let fees = Fees::for_base_fee(head.base_fee);
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        if !store::claim_command(&mut tx, row.id).await? {
            return Ok(false);
        }
        let nonce = store::reserve_nonce(&mut tx, chain_id, signer, mined).await?;
        let unsigned = Unsigned {
            chain_id,
            nonce,
            to: TxKind::Call(action.to),
            input: action.input.clone(),
            gas_limit: action.gas_limit,
            fees,
        };
        let signed = signing::sign_by(&self.signer, unsigned).await?;
        store::insert_slot(&mut tx, chain_id, signer, nonce, row.id).await?;
        let attempt = NewAttempt {
            nonce,
            attempt: 0,
            hash: signed.hash,
            raw: signed.raw,
            max_fee: fees.max_fee,
            priority_fee: fees.priority_fee,
        };
        store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
        tx.commit().await?;
        tracing::info!(kind = row.kind, nonce, tx = %attempt.hash, "signed and kept");
        Ok(true)
    }
}

/// Returns when a command was announced; never when nobody listens.
async fn woken(listener: &mut Option<PgListener>) {
    match listener {
        Some(open) => {
            if open.recv().await.is_err() {
                *listener = None;
            }
        }
        None => std::future::pending().await,
    }
}
