//! The service itself, over a database and a chain that are there: wires the core to its two listeners and to the
//! chain.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dvp_api::delivery::{Delivery, DeliveryConfig};
use dvp_api::{Api, Limits, SandboxClock, WebhookRules};
use dvp_chain_indexer::deploy::Deployment;
use dvp_chain_indexer::reconcile::Options;
use dvp_chain_indexer::signing::Account;
use dvp_chain_indexer::{ChainConfig, ChainWallets};
use dvp_console::{Console, ConsoleSettings};
use dvp_core::chain::WalletReaders;
use dvp_core::context::{ChainConfig as SettlementChain, Context, ContractSet};
use dvp_core::engine::Engine;
use dvp_core::ledger::reconciliation;
use dvp_core::secrets::Vault;
use dvp_core::workflow::retention::{self, Ages};
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::Writer;
use dvp_domain::address::Address;
use dvp_domain::reconcile::Patience;
use dvp_fix_gateway::{FixGateway, GatewayConfig, ListenerConfig};
use dvp_ops::FixRules;
use dvp_rails::iso20022::BankFiles;
#[cfg(feature = "sandbox")]
use dvp_sandbox::bank::Bank;
use dvp_store::database::pools::Pools;
use dvp_store::reconcile::wallets::register;
use dvp_store::workers::processes::{self, NewProcess};
use dvp_store::workers::{Worker, pause, supervise};
use dvp_store::{PgPool, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::access::host_name;
use crate::config::Role;

/// How often the books are held against the chain.
const RECONCILE_EVERY: Duration = Duration::from_secs(60);

/// This process as it reports itself.
pub(crate) fn new_process(roles: &[Role], configuration: String) -> NewProcess {
    NewProcess {
        id: Uuid::new_v4(),
        host: host_name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        roles: roles.iter().map(|role| role.as_str().to_owned()).collect(),
        configuration,
    }
}

/// The dependencies of a process of the service, and its roles.
pub(crate) struct ServiceConfig {
    pub process: NewProcess,
    pub context: Context,
    /// Every chain of the context, whether or not it is followed here.
    pub chains: Vec<ChainParts>,
    /// Providers with the wallets that hold their tokens.
    pub wallets: Vec<(String, String)>,
    pub rest: Option<RestParts>,
    pub fix: Option<FixParts>,
    pub console: Option<ConsoleParts>,
    /// Follow the chains and send transactions.
    pub indexer: bool,
    /// What the comparison of the books with the chains takes for too long.
    pub patience: Patience,
    pub worker: Option<WorkerParts>,
}

/// A chain, and the accounts that send its transactions.
pub(crate) struct ChainParts {
    pub config: ChainConfig,
    pub accounts: Vec<Account>,
}

impl ChainParts {
    /// The chain as orders settle on it. `permit_name` is the permit contract's EIP-712 name.
    pub(crate) fn settles(&self, permit_name: &str) -> anyhow::Result<SettlementChain> {
        let at = &self.config.deployment;
        let [escrow, anchor, permit] = [at.escrow, at.anchor, at.permit].map(|address| address.to_string());
        let chain =
            SettlementChain::new(&self.config.name, at.chain_id, &escrow, &anchor, &permit, permit_name);
        let chain = chain.with_context(|| format!("the addresses of chain {}", self.config.name))?;
        let contracts = at.contracts().into_iter();
        let set = |set: &Deployment| ContractSet {
            escrow: set.escrow.to_string(),
            anchor: set.anchor.to_string(),
            gate: set.coin.map(|coin| coin.gate.to_string()),
        };
        Ok(SettlementChain {
            taking: set(at),
            ending: at.earlier.iter().map(set).collect(),
            contracts: contracts.map(|(name, at)| (name, Address::from_bytes(at.into_array()))).collect(),
            ..chain
        })
    }
}

/// The REST listener and its limits.
pub(crate) struct RestParts {
    pub addr: SocketAddr,
    pub limits: Limits,
    pub webhook_rules: WebhookRules,
    /// In a sandbox: its clock.
    pub sandbox: Option<Arc<dyn SandboxClock>>,
}

/// Where the console listens, and its settings. Without origins, browsers find it where it listens.
pub(crate) struct ConsoleParts {
    pub addr: SocketAddr,
    /// Another port is good, too, when this one is taken.
    pub or_any_port: bool,
    pub settings: ConsoleSettings,
}

/// Where FIX listens.
pub(crate) struct FixParts {
    pub addr: SocketAddr,
    pub gateway: GatewayConfig,
    /// With TLS besides.
    pub tls: Option<(SocketAddr, ListenerConfig)>,
}

/// The settings of settlement and webhooks.
pub(crate) struct WorkerParts {
    pub rails: Rails,
    /// The bank of the payout rail, when it is spoken to in files.
    pub bank: Option<BankParts>,
    /// Compare bank statements with the ledger, with this patience.
    pub books: Option<Duration>,
    pub delivery: DeliveryConfig,
    /// Retention periods.
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

/// The rails of conversion and payout.
pub(crate) struct Rails {
    pub offramp: RailUse,
    pub payout: RailUse,
}

/// A running service. It serves until [`stop`](Service::stop).
pub(crate) struct Service {
    /// Where it listens, as far as it does.
    pub http: Option<SocketAddr>,
    pub fix: Option<SocketAddr>,
    pub fix_tls: Option<SocketAddr>,
    pub console: Option<SocketAddr>,
    engine: Engine,
    parts: Parts,
}

impl Service {
    /// Binds the listeners and starts every part.
    pub(crate) async fn start(pools: &Pools, config: ServiceConfig) -> anyhow::Result<Self> {
        let ServiceConfig {
            process,
            context,
            chains,
            wallets,
            rest,
            fix,
            console,
            indexer,
            patience,
            worker,
        } = config;
        let mut parts = Parts::default();
        register_wallets(&pools.background, &context, &chains, &wallets).await?;
        context.chains.halts().look(&pools.background).await.context("which chains are halted")?;
        let vault = Arc::new(context.vault.clone());
        let engine = parts.engine(pools, context, &chains)?;
        // No peer is admitted before every listener is open.
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
        let console = match console {
            Some(console) => Some(parts.console(pools, &engine, Arc::clone(&vault), console).await?),
            None => None,
        };
        if indexer {
            for chain in chains {
                parts.chain(&pools.background, chain, patience, Arc::clone(&vault));
            }
        }
        if let Some(worker) = worker {
            parts.worker(&engine.in_background(), worker)?;
        }
        if let Some((listener, rest)) = rest {
            let api =
                Api::new(engine.clone()).with_webhook_rules(rest.webhook_rules).with_limits(rest.limits);
            let api = api.in_sandbox(rest.sandbox);
            let serving = dvp_api::serve(listener, api, parts.shutdown.clone());
            parts.tasks.spawn(named("REST", logged("REST", serving)));
        }
        let reporting = report(pools.background.clone(), process, parts.workers.subscribe());
        parts.tasks.spawn(named("process report", reporting));
        Ok(Self { http, fix, fix_tls, console, engine, parts })
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

/// How often a process reports itself.
const REPORTED_EVERY: Duration = Duration::from_secs(15);

/// Reports the process until it stops.
async fn report(pool: PgPool, process: NewProcess, mut stop: watch::Receiver<bool>) {
    let once =
        async || -> Result<(), StoreError> { processes::report(&mut *pool.acquire().await?, &process).await };
    loop {
        if let Err(error) = once().await {
            warn!(%error, "the process could not be reported, retrying in 15 s");
        }
        if !pause(REPORTED_EVERY, &mut stop).await {
            break;
        }
    }
    if let Ok(mut conn) = pool.acquire().await {
        let _ = processes::forget(&mut conn, process.id).await;
    }
}

/// The running tasks, and their shutdown signals.
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
    /// The core, with its writer and the refreshers of prices and wallets.
    fn engine(&mut self, pools: &Pools, context: Context, chains: &[ChainParts]) -> anyhow::Result<Engine> {
        let context = Arc::new(context);
        let mut wallets = WalletReaders::new();
        for ChainParts { config, .. } in chains {
            let reader = ChainWallets::over(config.rpc_urls(), config.deployment.permit)?;
            wallets.insert(config.chain_id.cast_signed(), Arc::new(reader));
        }
        let (writer, writing) = Writer::start(pools.orders.clone(), Arc::clone(&context));
        self.tasks.spawn(named("writer", async { writing.await.unwrap_or(()) }));
        for chain in context.chains.iter() {
            let (backlog, chain_id, name) = (chain.backlog.clone(), chain.chain_id, chain.name.clone());
            let pool = pools.background.clone();
            let start = move |stop| backlog.clone().run(pool.clone(), chain_id, name.clone(), stop);
            self.supervised("backlog", Worker::Backlog, start);
        }
        let (halting, pool) = (Arc::clone(&context), pools.background.clone());
        let start = move |stop| halting.chains.halts().run(pool.clone(), stop);
        self.supervised("halts", Worker::Halts, start);
        let liquidity = Arc::clone(&context.liquidity);
        let pool = pools.background.clone();
        let start = move |stop| Arc::clone(&liquidity).run(pool.clone(), stop);
        self.supervised("liquidity", Worker::Liquidity, start);
        let engine = Engine::new(pools.clone(), writer, context, wallets);
        let refreshing = engine.wallets().clone().run(pools.background.clone(), self.workers.subscribe());
        self.tasks.spawn(named("wallets", refreshing));
        Ok(engine)
    }

    /// A loop that is started again when it ends before it is told to.
    fn supervised<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        worker: Worker,
        start: impl Fn(watch::Receiver<bool>) -> F + Send + Sync + 'static,
    ) {
        let stop = self.workers.subscribe();
        self.tasks.spawn(named(name, async move {
            supervise(worker, stop.clone(), || start(stop.clone())).await;
        }));
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

    async fn console(
        &mut self,
        pools: &Pools,
        engine: &Engine,
        vault: Arc<Vault>,
        console: ConsoleParts,
    ) -> anyhow::Result<SocketAddr> {
        let ConsoleParts { addr, or_any_port, mut settings } = console;
        let bound = match TcpListener::bind(addr).await {
            Err(error) if or_any_port && error.kind() == ErrorKind::AddrInUse => {
                TcpListener::bind((addr.ip(), 0)).await
            }
            bound => bound,
        };
        let listener = bound.with_context(|| format!("console on {addr}"))?;
        let local = listener.local_addr()?;
        if settings.origins.is_empty() {
            let hosts = [local.to_string(), format!("localhost:{}", local.port())];
            settings.origins =
                hosts.iter().map(|host| format!("http://{host}").parse()).collect::<Result<_, _>>()?;
        }
        let contracts = engine.context().chains.contracts().clone();
        let console = Console::new(pools.clone(), vault, settings, contracts, fix_rules());
        let serving = dvp_console::serve(listener, console, self.shutdown.clone());
        self.tasks.spawn(named("console", logged("console", serving)));
        Ok(local)
    }

    fn chain(&mut self, pool: &PgPool, chain: ChainParts, patience: Patience, vault: Arc<Vault>) {
        let ChainParts { config, accounts } = chain;
        let indexing = dvp_chain_indexer::run_indexer(pool.clone(), config.clone(), self.shutdown.clone());
        self.tasks.spawn(named("indexer", logged("indexer", indexing)));
        let comparing = dvp_chain_indexer::run_reconciler(
            pool.clone(),
            config.clone(),
            Options { patience, ..Options::default() },
            RECONCILE_EVERY,
            self.shutdown.clone(),
        );
        self.tasks.spawn(named("reconciliation", comparing));
        let relaying =
            dvp_chain_indexer::run_relayers(pool.clone(), config, accounts, vault, self.shutdown.clone());
        self.tasks.spawn(named("relayer", logged("relayer", relaying)));
    }

    fn worker(&mut self, engine: &Engine, worker: WorkerParts) -> anyhow::Result<()> {
        let WorkerParts { rails, bank, books, delivery, ages } = worker;
        if let Some(patience) = books {
            let engine = engine.clone();
            let start = move |stop| reconciliation::run(engine.clone(), patience, stop);
            self.supervised("bank reconciliation", Worker::BankComparison, start);
        }
        if let Some(bank) = bank {
            self.tasks.spawn(named("bank files", bank.files.run(self.workers.subscribe())));
            #[cfg(feature = "sandbox")]
            if let Some(bank) = bank.simulated {
                self.tasks.spawn(named("simulated bank", bank.run(self.workers.subscribe())));
            }
        }
        let settling = workflow::run(engine.clone(), rails.offramp, rails.payout, self.workers.subscribe());
        self.tasks.spawn(named("settlement workflow", settling));
        let resting = engine.clone();
        let start = move |stop| dvp_core::ranges::run(resting.clone(), stop);
        self.supervised("resting ranges", Worker::Ranges, start);
        let older = engine.clone();
        let start = move |stop| dvp_core::legacy::run(older.clone(), stop);
        self.supervised("older orders", Worker::Legacy, start);
        let pool = engine.pool().clone();
        self.supervised("retention", Worker::Retention, move |stop| retention::run(pool.clone(), ages, stop));
        let delivery = Delivery::new(engine.clone(), delivery).context("webhook delivery")?;
        self.tasks.spawn(named("webhook delivery", delivery.run(self.shutdown.clone())));
        Ok(())
    }
}

/// Makes known to the reconciliation which wallets and tokens the ledger is about.
async fn register_wallets(
    pool: &PgPool,
    context: &Context,
    chains: &[ChainParts],
    wallets: &[(String, String)],
) -> anyhow::Result<()> {
    let mut tokens = Vec::new();
    for asset in &context.registry.assets {
        let Some((chain, token)) = asset.chain().zip(asset.held_as()) else { continue };
        if let Some(parts) = chains.iter().find(|parts| parts.config.name == *chain) {
            tokens.push((parts.config.chain_id.cast_signed(), asset.symbol.clone(), token.to_owned()));
        }
    }
    let mut conn = pool.acquire().await?;
    register(&mut conn, wallets, &tokens).await.context("providers' wallets")
}

async fn named(name: &'static str, part: impl Future<Output = ()>) -> &'static str {
    part.await;
    name
}

async fn logged<E: std::fmt::Display>(name: &'static str, part: impl Future<Output = Result<(), E>>) {
    if let Err(error) = part.await {
        error!(%error, part = name, "component ended with an error");
    }
}

/// What operators' actions ask the FIX gateway.
pub(crate) fn fix_rules() -> FixRules {
    FixRules {
        stale_types: dvp_fix_gateway::stale_types(),
        check: |session, settings| Ok(dvp_fix_gateway::check_agreement(session, settings)?),
    }
}
