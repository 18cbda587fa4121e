//! `dvp sandbox`: everything on one machine, in one directory.
//!
//! The ready file exists when, and only when, everything answers. A run that was killed leaves a directory the next
//! one goes on with.

mod chain;
mod clock;
mod faults;
mod files;
mod hooks;
mod inventory;
mod market;
mod ready;
mod seed;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dvp_api::Limits;
use dvp_console::{ConsoleSettings, SessionPolicy};
use dvp_core::ledger::reconciliation;
use dvp_core::liquidity::Liquidity;
use dvp_core::operators::rotation;
use dvp_core::operators::targets::Targets;
use dvp_core::secrets::Vault;
use dvp_core::workflow::RailUse;
use dvp_core::workflow::retention::Ages;
use dvp_domain::environment::Environment;
use dvp_domain::reconcile::Patience;
use dvp_rails::{CheckPayout, Rail, iso20022};
use dvp_sandbox::anvil::Anvil;
use dvp_sandbox::embedded::{Options, Postgres};
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::database::pools::{PoolSizes, Pools};
use dvp_store::database::{Database, TlsFiles};
use dvp_store::{MIGRATOR, PgPool, database, database::deployment, database::lease};
use futures_util::future::{join_all, try_join_all};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use self::chain::SandboxChain;
use self::faults::Faults;
use self::files::{Files, Secrets};
use self::hooks::Hooks;
use crate::cli::SandboxArgs;
use crate::config::Role;
use crate::config::signers::SignersFile;
use crate::metrics;
use crate::readiness::Readiness;
use crate::service::{
    ChainParts, ConsoleParts, FixParts, Rails, RestParts, Service, ServiceConfig, WorkerParts, new_process,
};
use crate::stop::Stop;

const POOL_CONNECTIONS: u32 = 40;
/// Where the console listens by default.
const CONSOLE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
/// How often the programs we started are looked at.
const LOOK_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: SandboxArgs) -> anyhow::Result<()> {
    let files = Files::open(&args.dir)?;
    files.remove_ready()?;
    let mut stop = Stop::listen()?;
    // A signal during startup stops it too: dropping the started programs ends them.
    let readiness = Readiness::default();
    let started = tokio::select! {
        started = start(&args, &files, &readiness) => started?,
        () = stop.requested() => bail!("stopped before it was ready"),
    };
    let ended = started.serve(&mut stop, &readiness).await;
    files.remove_ready()?;
    ended
}

/// How long a start waits for the fees of the chains, and how often it looks.
const FEES_WITHIN: Duration = Duration::from_secs(60);
const FEES_EVERY: Duration = Duration::from_millis(100);

/// With faults the chain may fork, a few blocks deep; events are reported below that depth.
const FAULTS_CONFIRMATIONS: u64 = 5;

/// The programs of a sandbox. Stopped in reverse order.
struct Running {
    service: Service,
    pools: Pools,
    _faults: Option<Faults>,
    nodes: Vec<Anvil>,
    /// Unless it uses other servers.
    postgres: Option<Postgres>,
    _metrics: [AbortOnDropHandle<()>; 3],
}

async fn start(args: &SandboxArgs, files: &Files, readiness: &Readiness) -> anyhow::Result<Running> {
    let secrets = Secrets::open(files)?;
    // First of all, so that nothing is counted in vain.
    let (metrics_addr, serving) =
        metrics::serve(args.metrics, metrics::collect(&Role::ALL)?, readiness.clone()).await?;
    let metrics = AbortOnDropHandle::new(tokio::spawn(serving));
    let fix_tls =
        args.fix_tls.map(|addr| Ok::<_, anyhow::Error>((addr, tls::listener(files.dir(), addr.ip())?)));
    let (fix_tls, fix_ca) = fix_tls.transpose()?.map(|(addr, (listener, ca))| ((addr, listener), ca)).unzip();
    let hooks = Hooks::prepare(args, files)?;
    let nodes = chain::start_nodes(files.dir(), usize::from(args.chains));
    let (postgres, nodes) = tokio::try_join!(start_postgres(args, files.dir()), nodes)?;
    let database_urls = match &postgres {
        Some(postgres) => vec![postgres.url()],
        None => args.database_urls.clone(),
    };
    let pools = open_pools(args, postgres.as_ref()).await?;
    let following = AbortOnDropHandle::new(tokio::spawn(metrics::follow(pools.availability().clone())));
    let urls: Vec<String> = nodes.iter().map(|node| node.anvil.rpc_url()).collect();
    clock::follow(urls.iter().map(String::as_str)).await?;
    let pool = &pools.background;
    let signers = args.signers.as_deref().map(SignersFile::accounts).transpose()?.unwrap_or_default();
    let prepared = nodes.iter().map(|node| SandboxChain::prepare(node, signers.clone()));
    let chains = try_join_all(prepared).await?;
    let home = chains.first().context("a sandbox has a chain")?;
    let solver = home.solver.address().to_string();
    let faults = match args.chain_faults {
        Some(seed) => Some(Faults::start(&home.rpc_url, seed).await?),
        None => None,
    };
    let mut parts: Vec<ChainParts> = chains.iter().map(|chain| chain.parts(&chain.rpc_url)).collect();
    if let (Some(faults), Some(home)) = (&faults, parts.first_mut()) {
        home.config.rpc_url = faults.url().to_owned();
        home.config.confirmations = FAULTS_CONFIRMATIONS;
    }
    if let Some(home) = parts.first_mut() {
        home.config.further_rpc_urls.extend(args.chain_endpoints.iter().map(ToString::to_string));
    }
    let vault = Vault::new(secrets.master_key()?);
    let vault = rotation::with_kept_secrets(&mut *pool.acquire().await?, vault).await?;
    let opening = market::opening_balances(&chains);
    let partners = seed::seed(pool, &vault, &secrets, (&solver, &opening)).await?;
    let mut context = market::context(&chains, &parts, pool, vault)?;
    context.screening = market::screening(args)?;
    context.order_places = args.order_places;
    // Ready means that there are prices, and below the fees of the chains.
    context.liquidity.refresh().await;
    let liquidity = Arc::clone(&context.liquidity);
    let rails = Arc::new(SimulatedRails::new(pool.clone()));
    let bank = if args.bank_files { Some(market::bank(files.dir(), pool, &partners).await?) } else { None };
    let payout: Arc<dyn Rail> = match &bank {
        None => rails.clone(),
        Some(bank) => Arc::new(bank.files.clone()),
    };
    if bank.is_some() {
        context.payout_provider = iso20022::PROVIDER.into();
        context.windows.payout = iso20022::PAYOUT_TIME;
        let check = CheckPayout::new(iso20022::instruction::check_payout);
        context.check_payout = check.paying_from(inventory::CURRENCIES.map(str::to_owned));
    }
    let offramp: Arc<dyn Rail> = match &args.desk_url {
        None => rails,
        Some(url) => Arc::new(market::desk(url)?),
    };
    let names = chains.iter().map(|chain| chain.name().to_owned());
    let targets = Targets::new(&context.registry, names, inventory::PROVIDERS.map(str::to_owned));
    let pairs: Vec<String> =
        context.registry.pairs.iter().map(|pair| format!("{}/{}", pair.base, pair.quote)).collect();
    let console = ConsoleSettings {
        origins: Vec::new(),
        environment: Environment::Test,
        decimals: context
            .registry
            .assets
            .iter()
            .map(|asset| (asset.symbol.clone(), asset.exponent))
            .collect(),
        targets,
        proxies: Vec::new(),
        sessions: SessionPolicy::default(),
        provider: None,
        connections: ConsoleSettings::CONNECTIONS,
    };
    let clock = clock::SandboxClock {
        pool: pool.clone(),
        rpc_urls: chains.iter().map(|chain| chain.rpc_url.clone()).collect(),
        liquidity: Arc::clone(&liquidity),
        has_bank: bank.is_some(),
        advancing: Default::default(),
    };
    let config = ServiceConfig {
        process: new_process(&Role::ALL, "sandbox".to_owned()),
        context,
        chains: parts,
        wallets: inventory::PROVIDERS.map(|id| (id.to_owned(), solver.clone())).to_vec(),
        rest: Some(RestParts {
            addr: args.http,
            limits: Limits::default(),
            webhook_rules: hooks.rules(),
            sandbox: Some(Arc::new(clock)),
        }),
        fix: Some(FixParts { addr: args.fix, gateway: Default::default(), tls: fix_tls }),
        console: Some(ConsoleParts {
            addr: args.console.unwrap_or(CONSOLE),
            or_any_port: args.console.is_none(),
            settings: console,
        }),
        indexer: true,
        patience: Patience::default(),
        worker: Some(WorkerParts {
            ages: Ages::default(),
            rails: Rails { offramp: RailUse::of(offramp), payout: RailUse::of(payout) },
            books: bank.as_ref().map(|_| reconciliation::PATIENCE),
            bank,
            delivery: hooks.delivery(),
        }),
    };
    let service = Service::start(&pools, config).await?;
    wait_for_fees(&liquidity, pool).await?;
    let (http, fix) = service.http.zip(service.fix).context("both listeners are open")?;
    let mut ready = ready::document((http, fix), &database_urls, &chains, &secrets);
    ready["pairs"] = pairs.into();
    ready["providers"] = inventory::PROVIDERS.to_vec().into();
    let tls = database_files(args);
    ready["databaseFiles"] =
        serde_json::json!({"ca": tls.ca, "certificate": tls.client_certificate, "key": tls.client_key});
    if let (Some(addr), Some(ca)) = (service.fix_tls, fix_ca) {
        ready["fix"]["tlsPort"] = addr.port().into();
        ready["fix"]["ca"] = ca.display().to_string().into();
    }
    let console = service.console.context("the console is open")?;
    ready["console"] = format!("http://{console}").into();
    ready["metrics"] = format!("http://{metrics_addr}/metrics").into();
    readiness.serving(service.engine(), &Role::ALL);
    let watching = AbortOnDropHandle::new(tokio::spawn(metrics::watch(pools.clone(), readiness.clone())));
    ready["webhooks"] = hooks.ready();
    files.write_ready(&ready)?;
    info!(%http, %fix, file = %files.ready().display(), "ready");
    let nodes = nodes.into_iter().map(|node| node.anvil).collect();
    Ok(Running { service, pools, _faults: faults, nodes, postgres, _metrics: [metrics, following, watching] })
}

/// Waits until the relayers have recorded the chains' fees. Chains whose relayer cannot do so have no quotes.
async fn wait_for_fees(liquidity: &Liquidity, pool: &PgPool) -> anyhow::Result<()> {
    let since = Instant::now();
    while !liquidity.load_network_fees(pool).await? {
        if since.elapsed() > FEES_WITHIN {
            warn!("no relayer has recorded the fees of every chain yet");
            break;
        }
        tokio::time::sleep(FEES_EVERY).await;
    }
    Ok(())
}

async fn start_postgres(args: &SandboxArgs, dir: &Path) -> anyhow::Result<Option<Postgres>> {
    if !args.database_urls.is_empty() {
        return Ok(None);
    }
    Ok(Some(Postgres::start(dir, Options::default()).await.context("PostgreSQL")?))
}

fn database_files(args: &SandboxArgs) -> TlsFiles {
    TlsFiles {
        ca: args.database_ca.clone(),
        client_certificate: args.database_certificate.clone(),
        client_key: args.database_key.clone(),
    }
}

/// No other process uses this database, so the leases of a killed run are released.
async fn open_pools(args: &SandboxArgs, postgres: Option<&Postgres>) -> anyhow::Result<Pools> {
    let database = match postgres {
        Some(postgres) => Database::by_socket(postgres.connect_options()),
        None => Database::among(&args.database_urls, &database_files(args), !args.asynchronous_database)?,
    };
    let mut migrating = database.connect().await?;
    MIGRATOR.run(&mut migrating).await.context("migrations")?;
    deployment::stamp(&mut migrating, Environment::Test).await??;
    database::clock::set_ahead(database::clock::install(&mut migrating).await?);
    drop(migrating);
    let pools = Pools::open(&database, PoolSizes::of(POOL_CONNECTIONS)).await?;
    lease::release_all(&mut *pools.background.acquire().await?).await?;
    Ok(pools)
}

impl Running {
    /// Until a signal, or until something ends that should not.
    async fn serve(mut self, stop: &mut Stop, readiness: &Readiness) -> anyhow::Result<()> {
        let ended = loop {
            tokio::select! {
                () = stop.requested() => break Ok(()),
                part = self.service.part_ended() => break Err(anyhow::anyhow!("{part} ended")),
                () = tokio::time::sleep(LOOK_AFTER) => {
                    if self.postgres.as_mut().is_some_and(Postgres::has_exited) {
                        break Err(anyhow::anyhow!("PostgreSQL ended"));
                    }
                    if self.nodes.iter_mut().any(Anvil::has_exited) {
                        break Err(anyhow::anyhow!("anvil ended"));
                    }
                }
            }
        };
        info!("stopping");
        readiness.stopping();
        self.service.stop().await;
        self.pools.close().await;
        let stop_database = async {
            match self.postgres {
                Some(postgres) => postgres.stop().await,
                None => Ok(()),
            }
        };
        let stop_nodes = join_all(self.nodes.into_iter().map(Anvil::stop));
        let (nodes, database) = tokio::join!(stop_nodes, stop_database);
        for stopped in nodes.into_iter().chain([database]) {
            if let Err(error) = stopped {
                warn!(%error, "shutdown was not clean");
            }
        }
        ended
    }
}
