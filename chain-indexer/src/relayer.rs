//! Carries out the engine's commands: several in one transaction where they wait together, each exactly once, however
//! often the process or the node fails.
//!
//! Commands are selected by their kinds' deadlines (`plan`) and simulated together at one block (`work`). Those that
//! would succeed are signed as one transaction with a nonce, and the bytes are committed; only then are they broadcast,
//! repeatedly until they are in a block (`slots`). A command that would be refused is checked alone (`look`,
//! `outlook`). It is done when the indexer has stored its event, not when there is a receipt; a command that its
//! transaction left out is open again.
//!
//! Invariants:
//! - a preimage is derived when its `settle` is sent; the bytes that contain it are stored encrypted;
//! - a signature is verified before it is stored ([`signing`](crate::signing)), and made while no connection or
//!   transaction of the database is held;
//! - bytes are committed before they are broadcast, so after a crash the same transaction is sent, not a second one;
//! - a command is in one live transaction at most;
//! - a command, a transaction or a step that fails is set aside by itself (`apart`): only what concerns all of them ends
//!   a turn;
//! - a transaction that cannot be found is not a failed one: nothing is abandoned because of a missing answer;
//! - a command fails only when the contracts' state at a confirmed block proves that it can never succeed and its goal
//!   is not reached at that block, one that releases or returns a filled lock only when more than half of the endpoints
//!   show it; any other refusal is retried and reported to operators;
//! - a payment that was signed fails only at a final block after its last second: until then its transaction may still be
//!   included, whatever the newest block says of it;
//! - a reverted block makes its transactions open again: the same bytes are broadcast again, except for commands that
//!   were abandoned or are in another transaction meanwhile, which are removed first.
//!
//! What was signed before may be included all the same: a command keeps its link to the nonce
//! (`slot_command.dropped_at`).
//!
//! Kept by `chain-indexer/tests/it/flow.rs::bytes_signed_before_a_crash_are_sent_after_it` and
//! `chain-indexer/tests/it/sim.rs::every_command_takes_effect_once_and_no_nonce_is_stuck_under_all_faults`.

mod action;
mod apart;
mod batch;
mod data_fee;
mod drain;
mod fees;
pub mod functions;
mod look;
mod outlook;
mod plan;
pub mod returns;
mod sift;
mod signer;
mod slots;
mod work;

use crate::config::ChainConfig;
use crate::deploy::Deployment;
use crate::lease_guard::{self, Backoff};
use crate::orders::Malformed;
use crate::rpc::{self, BlockHead};
use crate::signing::{Account, SignError, Signed};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, Bytes};
use alloy::providers::{DynProvider, Provider};
use alloy::transports::{RpcError, TransportError, TransportErrorKind};
use apart::{PART_REST_MAX, Part};
use dvp_core::secrets::Vault;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{self as store, CommandRow, Cursor, TxAttempt};
use dvp_store::database::lease::{Lease, LeaseGuard};
use dvp_store::database::notify::Notifications;
use dvp_store::workers::{ItemError, Items, Worker, guarded, supervise_until};
use dvp_store::{PgPool, StoreError};
use fees::Market;
use futures_util::FutureExt as _;
use metrics::{counter, gauge};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A command that has to wait for another is checked again after this time.
const WAIT: Duration = Duration::from_millis(250);
const BALANCE_EVERY: Duration = Duration::from_secs(30);
const FEES_EVERY: Duration = Duration::from_secs(1);
/// The longest wait without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The number of blocks from which the market's tip is computed, and the time limit of their fees.
const HISTORY_BLOCKS: u64 = 10;
const HISTORY_WITHIN: Duration = Duration::from_secs(3);
/// An endpoint without a history is asked for one again after this time.
const HISTORY_AGAIN: Duration = Duration::from_secs(600);
/// Longer than anything takes within its own limit.
const TURN_WITHIN: Duration = Duration::from_secs(600);

/// Why the relayer cannot continue for now.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("chain call failed: {}", rpc::told(.0))]
    Rpc(#[from] TransportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("stored transaction of nonce {nonce} is not one of ours: {reason}")]
    Undecodable { nonce: u64, reason: String },
    #[error("the node is on chain {found}, not {expected}")]
    WrongChain { expected: u64, found: u64 },
    #[error("the settler is in the unknown state {0}")]
    UnknownState(u8),
    #[error("no endpoint is configured")]
    NoEndpoint,
    #[error("signed bytes of {tx} do not open with the master keys that are listed")]
    Sealed { tx: B256 },
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("the relayer panicked: {0}")]
    Panicked(String),
    #[error("the deployment's record names no contracts with the escrow {0}, in which the order ends")]
    UnknownContracts(Address),
}

impl From<ItemError<Self>> for RelayError {
    fn from(error: ItemError<Self>) -> Self {
        match error {
            ItemError::Failed(error) => error,
            ItemError::TimedOut(_) => TransportErrorKind::custom_str(&error.to_string()).into(),
            ItemError::Panicked(text) => Self::Panicked(text),
        }
    }
}

impl From<sqlx::Error> for RelayError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Runs until cancelled. Errors of the node and the database are logged and tried again. Several accounts divide the
/// commands: more pending transactions than nodes keep for one account. If the other accounts stop, any one of them
/// handles all commands.
pub async fn run_relayers(
    pool: PgPool,
    config: ChainConfig,
    accounts: Vec<Account>,
    vault: Arc<Vault>,
    shutdown: CancellationToken,
) -> Result<(), RelayError> {
    // Without it the first time would be no increase to who reads the counter.
    counter!("dvp_relayer_fee_capped_total", "chain" => config.name.clone()).increment(0);
    counter!("dvp_relayer_failures_total", "chain" => config.name.clone()).increment(0);
    let mut running = Vec::with_capacity(accounts.len());
    for account in accounts {
        let relayer = Relayer::new(pool.clone(), config.clone(), account, Arc::clone(&vault))?;
        running.push(run_account(pool.clone(), relayer, shutdown.clone()));
    }
    futures_util::future::join_all(running).await;
    Ok(())
}

/// One account's failure never ends those of the others.
async fn run_account(pool: PgPool, relayer: Relayer, shutdown: CancellationToken) {
    let relayer = tokio::sync::Mutex::new(relayer);
    let hold = || async { hold_account(&pool, &mut *relayer.lock().await, &shutdown).await }.boxed();
    supervise_until(Worker::Relayer, || shutdown.is_cancelled(), hold).await;
}

async fn hold_account(pool: &PgPool, relayer: &mut Relayer, shutdown: &CancellationToken) {
    // `list_retired` parses names of this form.
    let name = format!("relayer:{}:{}", relayer.config.chain_id, relayer.account.address());
    while let Some(mut guard) = lease_guard::acquire(pool, &name, shutdown).await {
        relayer.follow(&mut guard, shutdown).await;
        if shutdown.is_cancelled() {
            relayer.give_up_share().await;
        }
        // Another process has the account now, and shows its signer.
        relayer.show_signer(1.0);
        guard.release(pool).await;
    }
}

/// A node, and what is known of it.
struct Endpoint {
    provider: DynProvider,
    chain_checked: bool,
    /// When it said that it has no history of fees.
    without_history: Mutex<Option<Instant>>,
}

/// What a turn works with: the newest block, and the gas price.
#[derive(Clone, Copy)]
struct Turn<'a> {
    lease: &'a Lease,
    head: &'a BlockHead,
    market: Market,
}

pub struct Relayer {
    pool: PgPool,
    /// Never empty.
    endpoints: Vec<Endpoint>,
    at: usize,
    config: ChainConfig,
    account: Account,
    failures: signer::Failures,
    /// Derives preimages, and encrypts the signed bytes that contain them.
    vault: Arc<Vault>,
    balance_checked: Mutex<Option<Instant>>,
    /// What the account had then, in wei.
    balance: Mutex<u128>,
    /// The block whose fees were recorded last, and when.
    fees_noted: Mutex<Option<(Instant, B256)>>,
    /// What a byte of a transaction cost on the chain's L1 then, in wei.
    data_wei: Mutex<u128>,
    /// The highest reported block, and when it was first reported.
    newest: (BlockNumber, Instant),
    /// The account cannot pay for gas: the others take over its commands.
    is_out_of_funds: AtomicBool,
    /// A command waits for an event without a notification.
    waiting: AtomicBool,
    /// The other endpoints contradict the one in use about a command.
    is_outvoted: AtomicBool,
    /// The endpoint in use has failed in something: it may not fail in everything.
    is_suspect: AtomicBool,
    /// Transactions and steps of the turn.
    items: Items,
}

impl Relayer {
    /// Does not connect yet.
    pub fn new(
        pool: PgPool,
        config: ChainConfig,
        account: impl Into<Account>,
        vault: Arc<Vault>,
    ) -> Result<Self, RelayError> {
        let providers = config.rpc_urls().map(rpc::connect).collect::<Result<Vec<_>, _>>()?;
        Self::over(pool, config, providers, account.into(), vault)
    }

    pub fn over(
        pool: PgPool,
        config: ChainConfig,
        providers: Vec<DynProvider>,
        account: Account,
        vault: Arc<Vault>,
    ) -> Result<Self, RelayError> {
        let endpoints: Vec<Endpoint> = providers
            .into_iter()
            .map(|provider| Endpoint { provider, chain_checked: false, without_history: Mutex::default() })
            .collect();
        if endpoints.is_empty() {
            return Err(RelayError::NoEndpoint);
        }
        let items = Items::waiting(pool.clone(), Worker::Transactions, TURN_WITHIN, PART_REST_MAX);
        Ok(Self {
            pool,
            endpoints,
            at: 0,
            config,
            account,
            failures: signer::Failures::default(),
            vault,
            balance_checked: Mutex::default(),
            balance: Mutex::new(u128::MAX),
            fees_noted: Mutex::default(),
            data_wei: Mutex::default(),
            newest: (BlockNumber::FIRST, Instant::now()),
            is_out_of_funds: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            is_outvoted: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            items,
        })
    }

    /// Signed bytes as they are stored. Those of a `settle` contain its preimage, which must not be readable in the
    /// database before it is on the chain.
    fn seal(&self, signed: &Signed) -> Result<Bytes, RelayError> {
        let sealed = self.vault.seal(&format!("tx:{}", signed.hash), &signed.raw);
        Ok(sealed.map_err(|_| RelayError::Sealed { tx: signed.hash })?.into())
    }

    fn open(&self, attempt: &TxAttempt) -> Result<Bytes, RelayError> {
        let raw = self.vault.open(&format!("tx:{}", attempt.hash), &attempt.sealed);
        Ok(raw.map_err(|_| RelayError::Sealed { tx: attempt.hash })?.into())
    }

    fn provider(&self) -> &DynProvider {
        &self.endpoints[self.at].provider
    }

    async fn follow(&mut self, guard: &mut LeaseGuard, shutdown: &CancellationToken) {
        let mut backoff = Backoff::new();
        let mut commands = Notifications::new(self.pool.clone(), &["dvp_commands"]);
        let mut seen = None;
        while !shutdown.is_cancelled() {
            commands.listen().await;
            match guarded(TURN_WITHIN, self.turn_if_news(guard, &mut seen).boxed())
                .await
                .map_err(RelayError::from)
            {
                Ok(true) => backoff.reset(),
                Ok(false) => {
                    tracing::warn!(chain = self.config.name, "the relayer's lease was lost");
                    return;
                }
                Err(error) => {
                    tracing::error!(chain = self.config.name, %error, "relayer stalled, will retry");
                    counter!("dvp_relayer_failures_total", "chain" => self.config.name.clone()).increment(1);
                    if matches!(error, RelayError::Rpc(_) | RelayError::WrongChain { .. }) {
                        self.take_next_endpoint();
                    }
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
                _ = commands.next() => seen = None,
            }
        }
    }

    fn leave_outvoted_endpoint(&mut self) {
        if self.is_outvoted.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                chain = self.config.name,
                "the other endpoints contradict the relayer's one: it switches to another"
            );
            self.take_next_endpoint();
        } else if self.is_suspect.swap(false, Ordering::Relaxed) && self.endpoints.len() > 1 {
            tracing::warn!(chain = self.config.name, "the relayer's endpoint failed: it switches to another");
            self.take_next_endpoint();
        }
    }

    fn take_next_endpoint(&mut self) {
        self.at = (self.at + 1) % self.endpoints.len();
    }

    /// As [`Self::turn_at_news`], while the lease is renewed. `false`: it is lost.
    async fn turn_if_news(
        &mut self,
        guard: &mut LeaseGuard,
        seen: &mut Option<(B256, Instant)>,
    ) -> Result<bool, RelayError> {
        if !guard.keep(&self.pool).await? {
            return Ok(false);
        }
        let (lease, pool) = (guard.lease().clone(), self.pool.clone());
        tokio::select! {
            done = self.turn_at_news(&lease, seen) => done.map(|()| true),
            () = guard.keep_until_lost(&pool) => Ok(false),
        }
    }

    /// A turn when there is a new head, after a wake-up (`seen` is empty) and at intervals.
    async fn turn_at_news(
        &mut self,
        lease: &Lease,
        seen: &mut Option<(B256, Instant)>,
    ) -> Result<(), RelayError> {
        self.leave_outvoted_endpoint();
        let head = rpc::head(self.provider()).await?;
        self.note_head(&head);
        let every = if self.waiting.load(Ordering::Relaxed) { WAIT } else { LOOK_EVERY };
        let old = seen.is_some_and(|(hash, at)| hash == head.hash && at.elapsed() < every);
        if !old {
            *seen = Some((head.hash, Instant::now()));
            self.turn_at(lease, &head).await?;
        }
        Ok(())
    }

    /// Replaces an endpoint that has stalled, for the next turn.
    fn note_head(&mut self, head: &BlockHead) {
        if head.number > self.newest.0 {
            self.newest = (head.number, Instant::now());
        } else if self.endpoints.len() > 1 && self.newest.1.elapsed() > self.config.stale_after {
            let (chain, block) = (&self.config.name, head.number);
            let secs = self.config.stale_after.as_secs();
            tracing::warn!(
                chain,
                %block,
                secs,
                "no new block within the limit: the relayer switches to another endpoint"
            );
            self.newest.1 = Instant::now();
            self.take_next_endpoint();
        }
    }

    /// Completes, signs and broadcasts everything that is due.
    pub async fn turn(&mut self, lease: &Lease) -> Result<(), RelayError> {
        self.leave_outvoted_endpoint();
        let head = rpc::head(self.provider()).await?;
        self.turn_at(lease, &head).await
    }

    async fn turn_at(&mut self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        self.check_chain().await?;
        let (step, items) = (Part::Step, Part::Items);
        self.with_part(step("finality"), self.finalize()).await?;
        self.with_part(step("outcomes"), self.judge()).await?;
        self.with_part(step("deposits"), self.release_deposited()).await?;
        self.with_part(step("balance"), self.check_balance(head)).await?;
        let head = &self.counted(head);
        let market = self.market(head).await;
        let chain = || self.config.name.clone();
        gauge!("dvp_relayer_base_fee_wei", "chain" => chain()).set(wei(market.base_fee));
        gauge!("dvp_relayer_tip_wei", "chain" => chain()).set(wei(market.tip));
        self.with_part(step("fees"), self.note_fees(market, head.hash)).await?;
        let turn = Turn { lease, head, market };
        self.with_part(items("gap"), self.fill_gap(turn)).await?;
        // A transaction that takes long holds up no command.
        let (sent, signed, drained) = tokio::join!(
            self.with_part(items("transactions"), self.send_open(turn)),
            self.with_part(items("commands"), self.take_ready(turn, true)),
            self.with_part(items("retired accounts"), self.drain_retired()),
        );
        sent.and(signed).and(drained).map(drop)
    }

    /// The block with the gas that is counted on.
    fn counted(&self, head: &BlockHead) -> BlockHead {
        BlockHead { gas_limit: head.gas_limit.min(self.config.fees.block_gas), ..head.clone() }
    }

    async fn cursor(&self) -> Result<Option<Cursor>, RelayError> {
        Ok(store::find_cursor(&mut *self.pool.acquire().await?, self.config.chain_id).await?)
    }

    async fn finalize(&self) -> Result<(), RelayError> {
        store::finalize_slots(&mut *self.pool.acquire().await?, self.config.chain_id).await?;
        Ok(())
    }

    async fn judge(&self) -> Result<(), RelayError> {
        let signer = self.account.address();
        let mut conn = self.pool.acquire().await?;
        let left_out = store::judge_slots(&mut conn, self.config.chain_id, signer).await?;
        if left_out > 0 {
            tracing::warn!(%signer, left_out, "batches left out commands: they will be simulated again");
        }
        Ok(())
    }

    async fn release_deposited(&self) -> Result<(), RelayError> {
        let sets = self.config.deployment.sets();
        let gates: Vec<(Address, Address)> =
            sets.filter_map(|set| Some((set.escrow, set.coin?.gate))).collect();
        store::release_deposited(&mut *self.pool.acquire().await?, self.config.chain_id, &gates).await?;
        Ok(())
    }

    /// The contracts that the command's order ends in.
    fn contracts_of(&self, row: &CommandRow) -> Result<&Deployment, RelayError> {
        let set = self.config.deployment.of_escrow(row.escrow);
        set.ok_or(RelayError::UnknownContracts(row.escrow))
    }

    /// The fees of the newest blocks; those of the head alone when the node has no history, or none that can be read.
    async fn market(&self, head: &BlockHead) -> Market {
        let without = &self.endpoints[self.at].without_history;
        if without.lock().is_some_and(|at| at.elapsed() < HISTORY_AGAIN) {
            return Market::of(None, head.base_fee);
        }
        let history = timeout(HISTORY_WITHIN, rpc::fee_history(self.provider(), HISTORY_BLOCKS)).await;
        match &history {
            Ok(Ok(_)) => {}
            Ok(Err(RpcError::ErrorResp(refused))) => {
                *without.lock() = rpc::lacks_method(refused).then(Instant::now);
            }
            Ok(Err(_)) | Err(_) => self.is_suspect.store(true, Ordering::Relaxed),
        }
        Market::of(history.ok().and_then(Result::ok), head.base_fee)
    }

    /// Records the fees at each new block, at most once in [`FEES_EVERY`]. While an endpoint reports no new block, what
    /// was recorded ages: quotes stop using it.
    async fn note_fees(&self, market: Market, head: B256) -> Result<(), RelayError> {
        let is_noted = |(at, noted): &(Instant, B256)| *noted == head || at.elapsed() < FEES_EVERY;
        if self.fees_noted.lock().as_ref().is_some_and(is_noted) {
            return Ok(());
        }
        let Market { base_fee, tip } = market;
        let data = match self.config.l1_fee_oracle {
            Some(oracle) => data_fee::per_byte(self.provider(), oracle, BlockId::hash(head)).await?,
            None => 0,
        };
        *self.data_wei.lock() = data;
        let fees = store::ChainFees { base_fee, tip, cap: self.config.fees.cap_wei, data };
        store::note_fees(&mut *self.pool.acquire().await?, self.config.chain_id, fees).await?;
        *self.fees_noted.lock() = Some((Instant::now(), head));
        Ok(())
    }

    /// Reports a low balance before the account cannot pay for gas any more.
    async fn check_balance(&self, head: &BlockHead) -> Result<(), RelayError> {
        let checked = *self.balance_checked.lock();
        if checked.is_some_and(|at| at.elapsed() < BALANCE_EVERY) {
            return Ok(());
        }
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let balance = rpc::balance(self.provider(), signer, BlockId::hash(head.hash)).await?;
        let balance = u128::try_from(balance).unwrap_or(u128::MAX);
        let labels = [("chain", self.config.name.clone()), ("account", signer.to_string())];
        gauge!("dvp_relayer_balance_wei", &labels).set(wei(balance));
        gauge!("dvp_relayer_balance_low_wei", "chain" => self.config.name.clone())
            .set(wei(self.config.balance_low_wei));
        let low = balance < self.config.balance_low_wei;
        let mut conn = self.pool.acquire().await?;
        if store::note_balance(&mut conn, chain_id, signer, balance, low).await? && low {
            let limit = self.config.balance_low_wei;
            tracing::error!(%signer, balance, limit, "relayer account is low on funds for gas");
        }
        self.is_out_of_funds.store(balance == 0, Ordering::Relaxed);
        *self.balance.lock() = balance;
        *self.balance_checked.lock() = Some(Instant::now());
        Ok(())
    }

    async fn check_chain(&mut self) -> Result<(), RelayError> {
        if !self.endpoints[self.at].chain_checked {
            let (expected, found) = (self.config.chain_id, self.provider().get_chain_id().await?);
            if found != expected {
                return Err(RelayError::WrongChain { expected, found });
            }
            self.endpoints[self.at].chain_checked = true;
        }
        Ok(())
    }
}

/// The nearest floating point number: a metric needs no more digits.
fn wei(amount: u128) -> f64 {
    amount.to_string().parse().unwrap_or(f64::MAX)
}
