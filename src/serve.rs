//! `dvp serve`: the service as configured, over a database and chains that are there.
//!
//! A process is stateless beside PostgreSQL: several may run at once, each with the roles it was given.

mod doors;
mod market;

pub(crate) use self::doors::authorities;

use anyhow::{Context as _, bail, ensure};
use dvp_core::secrets::Vault;
use dvp_core::store::pool::pool_options;
use dvp_core::store::{PgPool, health};
use sqlx::postgres::PgConnectOptions;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::cli::ServeArgs;
use crate::config::{Config, Role};
use crate::metrics;
use crate::service::{ChainParts, Service, ServiceConfig};
use crate::stop::Stop;

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let mut config = Config::read(&args.config)?;
    if !args.roles.is_empty() {
        config.roles = args.roles;
    }
    let mut stop = Stop::listen()?;
    let mut started = tokio::select! {
        started = start(&config) => started?,
        () = stop.asked() => bail!("stopped before it was ready"),
    };
    let ended = tokio::select! {
        () = stop.asked() => Ok(()),
        part = started.service.part_ended() => Err(anyhow::anyhow!("{part} ended")),
    };
    info!("stopping");
    started.service.stop().await;
    started.pool.close().await;
    ended
}

struct Started {
    service: Service,
    pool: PgPool,
    _metrics: Option<AbortOnDropHandle<()>>,
}

async fn start(config: &Config) -> anyhow::Result<Started> {
    // First of all, so that nothing is counted in vain.
    let metrics = match &config.metrics {
        Some(section) => {
            let bound = metrics::serve(section.listen, metrics::collect()?).await;
            let (addr, serving) = bound.context("metrics.listen")?;
            info!(%addr, "metrics are served");
            Some(AbortOnDropHandle::new(tokio::spawn(serving)))
        }
        None => None,
    };
    let vault = Vault::new(config.master_key()?);
    let pool = open_pool(config).await?;
    let chains = chains(config)?;
    let context = market::context(config, &chains, &pool, vault)?;
    context.liquidity.refresh().await;
    let service = Service::start(pool.clone(), parts(config, context, chains, &pool).await?).await?;
    info!(roles = ?config.roles, http = ?service.http, fix = ?service.fix, fix_tls = ?service.fix_tls, "ready");
    Ok(Started { service, pool, _metrics: metrics })
}

/// A schema of another version is a mistake that shows at once, not at the first statement it breaks.
async fn open_pool(config: &Config) -> anyhow::Result<PgPool> {
    let options: PgConnectOptions = config.database_url()?.parse().context("database.url")?;
    let pool = pool_options().max_connections(config.database.max_connections).connect_with(options).await;
    let pool = pool.context("the database does not answer (database.url)")?;
    let schema = health::schema(&mut *pool.acquire().await?).await?;
    if let Some(complaint) = schema.complaint() {
        bail!("{complaint}");
    }
    Ok(pool)
}

/// Every chain with its contracts; the keys only where transactions are sent.
fn chains(config: &Config) -> anyhow::Result<Vec<ChainParts>> {
    ensure!(!config.chains.is_empty(), "chains: there is no [[chains]]");
    let sends = config.roles.contains(&Role::Indexer);
    let parts = |section: &crate::config::chain::ChainSection| {
        let accounts = if sends { section.accounts()? } else { Vec::new() };
        Ok(ChainParts { config: section.config(section.deployment()?)?, accounts })
    };
    config.chains.iter().map(parts).collect()
}

async fn parts(
    config: &Config,
    context: dvp_core::context::Context,
    chains: Vec<ChainParts>,
    pool: &PgPool,
) -> anyhow::Result<ServiceConfig> {
    let has = |role| config.roles.contains(&role);
    let worker = match has(Role::Worker) {
        true => Some(doors::worker(config, pool).await?),
        false => None,
    };
    Ok(ServiceConfig {
        context,
        chains,
        rest: has(Role::Api).then(|| doors::rest(config)).transpose()?,
        fix: has(Role::Fix).then(|| doors::fix(config)).transpose()?,
        indexer: has(Role::Indexer),
        worker,
    })
}
