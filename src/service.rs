//! The service itself, over a database and a chain that are there: wires the core to its two listeners and to the chain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dvp_api::delivery::{Delivery, DeliveryConfig};
use dvp_api::{Api, Limits, WebhookRules};
use dvp_chain_indexer::signing::Account;
use dvp_chain_indexer::{ChainConfig, ChainWallets};
use dvp_core::context::Context;
use dvp_core::engine::Engine;
use dvp_core::retention::{self, Ages};
use dvp_core::secrets::Vault;
use dvp_core::workflow;
use dvp_core::writer::Writer;
use dvp_fix_gateway::{FixGateway, GatewayConfig, ListenerConfig};
use dvp_rails::Rail;
use dvp_rails::iso20022::BankFiles;
#[cfg(feature = "sandbox")]
use dvp_sandbox::bank::Bank;
use dvp_store::PgPool;
use dvp_store::pools::Pools;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// How often the books are held against the chain.
const RECONCILE_EVERY: Duration = Duration::from_secs(60);

/// What a process of the service needs, and which parts of it run here.
pub(crate) struct ServiceConfig {
    pub context: Context,
    /// Every chain of the context, whether or not it is followed here.
    pub chains: Vec<ChainParts>,
    pub rest: Option<RestParts>,
    pub fix: Option<FixParts>,
    /// Follow the chains and send transactions.
    pub indexer: bool,
    pub worker: Option<WorkerParts>,
}

/// A chain, and the accounts that send its transactions.
pub(crate) struct ChainParts {
    pub config: ChainConfig,
    pub accounts: Vec<Account>,
}

/// Where REST listens and what it allows.
pub(crate) struct RestParts {
    pub addr: SocketAddr,
    pub limits: Limits,
    pub webhook_rules: WebhookRules,
}

/// Where FIX listens.
pub(crate) struct FixParts {
    pub addr: SocketAddr,
    pub gateway: GatewayConfig,
    /// With TLS besides.
    pub tls: Option<(SocketAddr, ListenerConfig)>,
}

/// Who settles, and how events are sent.
pub(crate) struct WorkerParts {
    pub rails: Rails,
    /// The bank of the payout rail, when it is spoken to in files.
    pub bank: Option<BankParts>,
    pub delivery: DeliveryConfig,
    /// How long is kept what is not kept for ever.
    pub ages: Ages,
}

/// Takes a bank's files in, and stands for the bank where there is none.
pub(crate) struct BankParts {
    pub files: BankFiles,
    #[cfg(feature = "sandbox")]
    pub simulated: Option<Bank>,
}

impl BankParts {
    /// A bank of its own at the other end.
    pub(crate) fn of(files: BankFiles) -> Self {
        Self {
            files,
            #[cfg(feature = "sandbox")]
            simulated: None,
        }
    }
}

/// Who converts and who pays.
pub(crate) struct Rails {
    pub offramp: Arc<dyn Rail>,
    pub payout: Arc<dyn Rail>,
}

/// A running service. It serves until [`stop`](Service::stop).
pub(crate) struct Service {
    /// Where it listens, as far as it does.
    pub http: Option<SocketAddr>,
    pub fix: Option<SocketAddr>,
    pub fix_tls: Option<SocketAddr>,
    engine: Engine,
    parts: Parts,
}

impl Service {
    /// Binds the listeners and starts every part.
    pub(crate) async fn start(pools: &Pools, config: ServiceConfig) -> anyhow::Result<Self> {
        let ServiceConfig { context, chains, rest, fix, indexer, worker } = config;
        let mut parts = Parts::default();
        let vault = Arc::new(context.vault.clone());
        let engine = parts.engine(pools, context, &chains)?;
        // Nobody is let in before every door is open.
        let rest = match rest {
            Some(rest) => {
                let bound = TcpListener::bind(rest.addr).await;
                Some((bound.with_context(|| format!("REST on {}", rest.addr))?, rest))
            }
            None => None,
        };
        let http = rest.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
        let (fix, fix_tls) = match fix {
            Some(fix) => parts.fix(&engine, &pools.orders, fix).await?,
            None => (None, None),
        };
        if indexer {
            for chain in chains {
                parts.chain(&pools.background, chain, Arc::clone(&vault));
            }
        }
        if let Some(worker) = worker {
            parts.worker(&engine.in_background(), worker)?;
        }
        if let Some((listener, rest)) = rest {
            let api =
                Api::new(engine.clone()).with_webhook_rules(rest.webhook_rules).with_limits(rest.limits);
            let serving = dvp_api::serve(listener, api, parts.shutdown.clone());
            parts.tasks.spawn(named("REST", logged("REST", serving)));
        }
        Ok(Self { http, fix, fix_tls, engine, parts })
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine.clone()
    }

    /// Waits for a part to end, which none does by itself. Returns its name.
    pub(crate) async fn part_ended(&mut self) -> &'static str {
        match self.parts.tasks.join_next().await {
            Some(Ok(name)) => name,
            Some(Err(error)) => {
                error!(%error, "a component of the service failed");
                "a failed part"
            }
            None => "everything",
        }
    }

    /// Closes the listeners, finishes the work in hand, ends every part.
    pub(crate) async fn stop(self) {
        let Self { mut parts, engine, .. } = self;
        // The writer ends with its last handle.
        drop(engine);
        parts.shutdown.cancel();
        parts.workers.send_replace(true);
        while parts.tasks.join_next().await.is_some() {}
        info!("service stopped");
    }
}

/// What runs, and how it is told to end.
struct Parts {
    tasks: JoinSet<&'static str>,
    shutdown: CancellationToken,
    workers: watch::Sender<bool>,
}

impl Default for Parts {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), shutdown: CancellationToken::new(), workers: watch::Sender::new(false) }
    }
}

impl Parts {
    /// The core, with its writer and what keeps its prices and its wallets fresh.
    fn engine(&mut self, pools: &Pools, context: Context, chains: &[ChainParts]) -> anyhow::Result<Engine> {
        let context = Arc::new(context);
        let home = &chains.first().context("no chain")?.config;
        let endpoints = std::iter::once(&home.rpc_url).chain(&home.further_rpc_urls).map(String::as_str);
        let wallets = ChainWallets::over(endpoints, home.deployment.permit)?;
        let (writer, writing) = Writer::start(pools.orders.clone(), Arc::clone(&context));
        self.tasks.spawn(named("writer", async { writing.await.unwrap_or(()) }));
        let (backlog, chain_id) = (context.chain.backlog.clone(), context.chain.chain_id);
        let following = backlog.run(pools.background.clone(), chain_id, self.workers.subscribe());
        self.tasks.spawn(named("backlog", following));
        let liquidity = Arc::clone(&context.liquidity);
        self.tasks
            .spawn(named("liquidity", liquidity.run(pools.background.clone(), self.workers.subscribe())));
        let engine = Engine::new(pools.clone(), writer, context, Arc::new(wallets));
        self.tasks.spawn(named("wallets", engine.wallets().clone().run(self.workers.subscribe())));
        Ok(engine)
    }

    async fn fix(
        &mut self,
        engine: &Engine,
        pool: &PgPool,
        fix: FixParts,
    ) -> anyhow::Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        let bound = FixGateway::bind(fix.addr, engine.clone(), pool.clone(), fix.gateway).await;
        let (mut gateway, plain) = bound.with_context(|| format!("FIX on {}", fix.addr))?;
        let tls = match fix.tls {
            Some((addr, listener)) => Some(
                gateway.listen(addr, listener).await.with_context(|| format!("FIX with TLS on {addr}"))?,
            ),
            None => None,
        };
        self.tasks.spawn(named("FIX", gateway.run(self.shutdown.clone())));
        Ok((Some(plain), tls))
    }

    fn chain(&mut self, pool: &PgPool, chain: ChainParts, vault: Arc<Vault>) {
        let ChainParts { config, accounts } = chain;
        let indexing = dvp_chain_indexer::run_indexer(pool.clone(), config.clone(), self.shutdown.clone());
        self.tasks.spawn(named("indexer", logged("indexer", indexing)));
        let comparing = dvp_chain_indexer::run_reconciler(
            pool.clone(),
            config.clone(),
            Default::default(),
            RECONCILE_EVERY,
            self.shutdown.clone(),
        );
        self.tasks.spawn(named("reconciliation", comparing));
        let relaying =
            dvp_chain_indexer::run_relayers(pool.clone(), config, accounts, vault, self.shutdown.clone());
        self.tasks.spawn(named("relayer", logged("relayer", relaying)));
    }

    fn worker(&mut self, engine: &Engine, worker: WorkerParts) -> anyhow::Result<()> {
        let WorkerParts { rails, bank, delivery, ages } = worker;
        if let Some(bank) = bank {
            self.tasks.spawn(named("bank files", bank.files.run(self.workers.subscribe())));
            #[cfg(feature = "sandbox")]
            if let Some(bank) = bank.simulated {
                self.tasks.spawn(named("simulated bank", bank.run(self.workers.subscribe())));
            }
        }
        let settling = workflow::run(engine.clone(), rails.offramp, rails.payout, self.workers.subscribe());
        self.tasks.spawn(named("settlement workflow", settling));
        let older = dvp_core::legacy::run(engine.clone(), self.workers.subscribe());
        self.tasks.spawn(named("older orders", older));
        let keeping = retention::run(engine.pool().clone(), ages, self.workers.subscribe());
        self.tasks.spawn(named("retention", keeping));
        let delivery = Delivery::new(engine.clone(), delivery).context("webhook delivery")?;
        self.tasks.spawn(named("webhook delivery", delivery.run(self.shutdown.clone())));
        Ok(())
    }
}

async fn named(name: &'static str, part: impl Future<Output = ()>) -> &'static str {
    part.await;
    name
}

async fn logged<E: std::fmt::Display>(name: &'static str, part: impl Future<Output = Result<(), E>>) {
    if let Err(error) = part.await {
        error!(%error, part = name, "ended");
    }
}
