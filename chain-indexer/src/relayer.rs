//! Carries out the engine's commands: several in one transaction where they wait together, each exactly once, however
//! often the process or the node dies.
//!
//! Commands are taken by their kinds' deadlines (`plan`) and simulated together at one block (`work`). Those that would
//! be carried out are signed as one transaction with a nonce, and the bytes are committed; only then are they sent,
//! and sent again until they are in a block (`slots`). A command that would be refused is looked at alone (`look`,
//! `outlook`). It is done when the indexer has seen its event, not when we have a receipt; one whose transaction left
//! it out is open again.
//!
//! Invariants:
//! - a preimage is derived when its `settle` is sent; the bytes that hold it are kept sealed;
//! - bytes are committed before they are sent, so after a crash the same transaction is sent, not a second one;
//! - a command is in one live transaction at most;
//! - a transaction that cannot be found is not a failed one: nothing is given up for want of an answer;
//! - a command fails only when the contracts' state at a confirmed block says that it can never succeed and its goal is
//!   not reached at that block; what is refused for any other reason is tried again, and operators are told;
//! - a block that is taken back makes its transactions open again: their same bytes are sent again, but for commands
//!   that were given up or are in another transaction by then, which are taken out first.

mod action;
mod batch;
mod drain;
mod fees;
mod look;
mod outlook;
mod plan;
mod slots;
mod work;

use crate::config::ChainConfig;
use crate::lease_guard::{self, Backoff};
use crate::rpc::{self, BlockHead};
use crate::signing::{Account, Signed};
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{B256, Bytes};
use alloy::providers::{DynProvider, Provider};
use alloy::signers::Signer;
use alloy::transports::TransportError;
use dvp_core::secrets::Vault;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{self as store, AttemptRow};
use dvp_store::lease::{Lease, LeaseGuard};
use dvp_store::notify::Notifications;
use dvp_store::{PgPool, StoreError};
use fees::Market;
use metrics::gauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A command that has to wait for another is looked at again after so long.
const WAIT: Duration = Duration::from_millis(250);
const BALANCE_EVERY: Duration = Duration::from_secs(30);
const FIGURES_EVERY: Duration = Duration::from_secs(10);
/// Without news we look at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Blocks that the market's tip is taken from.
const HISTORY_BLOCKS: u64 = 10;

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
    #[error("no endpoint is configured")]
    NoEndpoint,
    #[error("signed bytes of {tx} do not open with the master keys that are listed")]
    Sealed { tx: B256 },
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
    vault: Arc<Vault>,
    shutdown: CancellationToken,
) -> Result<(), RelayError> {
    run_relayers(pool, config, vec![Arc::new(signer)], vault, shutdown).await
}

/// The same with several accounts, which divide the commands: more transactions under way than nodes keep for one.
/// Any one of them does them all when the others are gone.
pub async fn run_relayers(
    pool: PgPool,
    config: ChainConfig,
    accounts: Vec<Account>,
    vault: Arc<Vault>,
    shutdown: CancellationToken,
) -> Result<(), RelayError> {
    let mut running = Vec::with_capacity(accounts.len());
    for account in accounts {
        let relayer = Relayer::of(pool.clone(), config.clone(), account, Arc::clone(&vault))?;
        running.push(run_lane(pool.clone(), relayer, shutdown.clone()));
    }
    futures_util::future::try_join_all(running).await?;
    Ok(())
}

async fn run_lane(pool: PgPool, mut relayer: Relayer, shutdown: CancellationToken) -> Result<(), RelayError> {
    // Its form is known to `list_retired`.
    let name = format!("relayer:{}:{}", relayer.config.chain_id, relayer.signer.address());
    while let Some(mut guard) = lease_guard::acquire(&pool, &name, &shutdown).await {
        relayer.follow(&mut guard, &shutdown).await;
        guard.release(&pool).await;
    }
    Ok(())
}

/// A node, and whether it was asked which chain it is on.
struct Endpoint {
    provider: DynProvider,
    chain_checked: bool,
}

/// One account of one chain.
pub struct Relayer {
    pool: PgPool,
    /// Never empty.
    endpoints: Vec<Endpoint>,
    /// The one that is asked.
    at: usize,
    config: ChainConfig,
    signer: Account,
    /// Derives preimages, and seals the signed bytes that hold them.
    vault: Arc<Vault>,
    balance_checked: Option<Instant>,
    figures_told: Option<Instant>,
    /// The highest block that was told, and when it was new.
    newest: (BlockNumber, Instant),
    /// The account cannot pay for gas: the others do its work.
    is_out_of_funds: AtomicBool,
    /// Some command waits for something that no notification tells of.
    waiting: AtomicBool,
}

impl Relayer {
    /// No traffic yet.
    pub fn new(
        pool: PgPool,
        config: ChainConfig,
        signer: impl Signer + Send + Sync + 'static,
        vault: Arc<Vault>,
    ) -> Result<Self, RelayError> {
        Self::of(pool, config, Arc::new(signer), vault)
    }

    fn of(pool: PgPool, config: ChainConfig, signer: Account, vault: Arc<Vault>) -> Result<Self, RelayError> {
        let urls = std::iter::once(&config.rpc_url).chain(&config.further_rpc_urls);
        let providers = urls.map(|url| rpc::connect(url)).collect::<Result<Vec<_>, _>>()?;
        Self::over(pool, config, providers, signer, vault)
    }

    /// Over connections that are there.
    pub fn over(
        pool: PgPool,
        config: ChainConfig,
        providers: Vec<DynProvider>,
        signer: Account,
        vault: Arc<Vault>,
    ) -> Result<Self, RelayError> {
        let endpoints: Vec<Endpoint> =
            providers.into_iter().map(|provider| Endpoint { provider, chain_checked: false }).collect();
        if endpoints.is_empty() {
            return Err(RelayError::NoEndpoint);
        }
        Ok(Self {
            pool,
            endpoints,
            at: 0,
            config,
            signer,
            vault,
            balance_checked: None,
            figures_told: None,
            newest: (BlockNumber::FIRST, Instant::now()),
            is_out_of_funds: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
        })
    }

    /// Signed bytes as they are kept. Those of a `settle` have its preimage, which is in the database for nobody to read
    /// before it is on the chain.
    fn seal(&self, signed: &Signed) -> Result<Bytes, RelayError> {
        let sealed = self.vault.seal(&format!("tx:{}", signed.hash), &signed.raw);
        Ok(sealed.map_err(|_| RelayError::Sealed { tx: signed.hash })?.into())
    }

    fn open(&self, attempt: &AttemptRow) -> Result<Bytes, RelayError> {
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
            match self.turn_if_news(guard, &mut seen).await {
                Ok(true) => backoff.reset(),
                Ok(false) => {
                    tracing::warn!(chain = self.config.name, "the relayer's lease was lost");
                    return;
                }
                Err(error) => {
                    tracing::error!(chain = self.config.name, %error, "relayer stalled, will retry");
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

    fn take_next_endpoint(&mut self) {
        self.at = (self.at + 1) % self.endpoints.len();
    }

    /// A turn when there is a new head, when we were woken (`seen` is empty) and once in a while. `false`: the lease
    /// is lost.
    async fn turn_if_news(
        &mut self,
        guard: &mut LeaseGuard,
        seen: &mut Option<(B256, Instant)>,
    ) -> Result<bool, RelayError> {
        if !guard.keep(&self.pool).await? {
            return Ok(false);
        }
        let head = rpc::head(self.provider()).await?;
        self.note_head(&head);
        let every = if self.waiting.load(Ordering::Relaxed) { WAIT } else { LOOK_EVERY };
        let old = seen.is_some_and(|(hash, at)| hash == head.hash && at.elapsed() < every);
        if !old {
            *seen = Some((head.hash, Instant::now()));
            self.turn_at(guard.lease(), &head).await?;
        }
        Ok(true)
    }

    /// An endpoint that stands still is left for the next turn's.
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

    /// Completes, signs and sends whatever there is to.
    pub async fn turn(&mut self, lease: &Lease) -> Result<(), RelayError> {
        let head = rpc::head(self.provider()).await?;
        self.turn_at(lease, &head).await
    }

    async fn turn_at(&mut self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        self.check_chain().await?;
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let mut conn = self.pool.acquire().await?;
        store::finalize_slots(&mut conn, chain_id).await?;
        let left_out = store::judge_slots(&mut conn, chain_id, signer).await?;
        drop(conn);
        if left_out > 0 {
            tracing::warn!(%signer, left_out, "batches skipped commands: they will be simulated one by one");
        }
        self.check_balance(head).await?;
        let market = self.market(head).await?;
        self.fill_gap(lease, head, market).await?;
        self.send_open(lease, head, market).await?;
        self.sign_and_send(lease, head, market).await?;
        self.drain_retired().await?;
        self.tell_figures().await
    }

    /// What the newest blocks took; by the head alone when the node has no history.
    async fn market(&self, head: &BlockHead) -> Result<Market, RelayError> {
        let newest = BlockNumberOrTag::Latest;
        let history = self.provider().get_fee_history(HISTORY_BLOCKS, newest, &[50.0]).await;
        match history {
            Ok(history) => Ok(Market::of(Some(&history), head.base_fee)),
            Err(error) if error.is_error_resp() => Ok(Market::of(None, head.base_fee)),
            Err(error) => Err(error.into()),
        }
    }

    /// Says so before the account cannot pay for gas any more.
    async fn check_balance(&mut self, head: &BlockHead) -> Result<(), RelayError> {
        if self.balance_checked.is_some_and(|at| at.elapsed() < BALANCE_EVERY) {
            return Ok(());
        }
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let balance = self.provider().get_balance(signer).block_id(BlockId::hash(head.hash)).await?;
        let balance = u128::try_from(balance).unwrap_or(u128::MAX);
        let low = balance < self.config.balance_low_wei;
        let mut conn = self.pool.acquire().await?;
        if store::note_balance(&mut conn, chain_id, signer, balance, low).await? && low {
            let limit = self.config.balance_low_wei;
            tracing::error!(%signer, balance, limit, "relayer account is low on funds for gas");
        }
        self.is_out_of_funds.store(balance == 0, Ordering::Relaxed);
        self.balance_checked = Some(Instant::now());
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

    /// What waits, for whoever watches the service.
    async fn tell_figures(&mut self) -> Result<(), RelayError> {
        if self.figures_told.is_some_and(|at| at.elapsed() < FIGURES_EVERY) {
            return Ok(());
        }
        let mut conn = self.pool.acquire().await?;
        let rows = store::count_waiting(&mut conn, self.config.chain_id).await?;
        drop(conn);
        for kind in plan::ORDER {
            let row = rows.iter().find(|row| row.kind == kind);
            let labels = [("chain", self.config.name.clone()), ("kind", kind.name().to_owned())];
            let (waiting, troubled, oldest) =
                row.map_or((0, 0, 0), |row| (row.waiting, row.troubled, row.oldest_seconds));
            gauge!("dvp_chain_commands_waiting", &labels).set(figure(waiting));
            gauge!("dvp_chain_commands_troubled", &labels).set(figure(troubled));
            gauge!("dvp_chain_command_oldest_seconds", &labels).set(figure(oldest));
        }
        self.figures_told = Some(Instant::now());
        Ok(())
    }
}

fn figure(count: i64) -> f64 {
    f64::from(i32::try_from(count).unwrap_or(i32::MAX))
}
