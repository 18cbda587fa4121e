//! `dvp serve`: the service as configured, over a database and chains that are there.
//!
//! A process is stateless beside PostgreSQL: several may run at once, each with the roles it was given.

mod listeners;
mod market;

#[cfg(feature = "sandbox")]
pub(crate) use self::listeners::authorities;

use anyhow::{Context as _, bail, ensure};
use dvp_chain_indexer::signing::Account;
use dvp_core::operators::rotation;
use dvp_core::secrets::Vault;
use dvp_store::database::pools::Pools;
use futures_util::future::join_all;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info};

use crate::checkup;
use crate::cli::ServeArgs;
use crate::config::market::PairSection;
use crate::config::{Config, Role};
use crate::metrics;
use crate::readiness::Readiness;
use crate::service::{ChainParts, Service, ServiceConfig, new_process};
use crate::stop::Stop;

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let mut config = Config::read(&args.config)?;
    if !args.roles.is_empty() {
        config.roles = args.roles;
    }
    let mut stop = Stop::listen()?;
    let readiness = Readiness::default();
    let mut started = tokio::select! {
        started = start(&config, &readiness) => started?,
        () = stop.requested() => bail!("stopped before it was ready"),
    };
    let ended = tokio::select! {
        () = stop.requested() => Ok(()),
        part = started.service.part_ended() => Err(anyhow::anyhow!("{part} ended")),
    };
    info!("stopping");
    readiness.stopping();
    started.service.stop().await;
    started.pools.close().await;
    ended
}

struct Started {
    service: Service,
    pools: Pools,
    _metrics: [AbortOnDropHandle<()>; 3],
}

async fn start(config: &Config, readiness: &Readiness) -> anyhow::Result<Started> {
    // Started first, so that all metrics are collected and the readiness endpoint answers during startup.
    let (listen, collected) = (config.metrics.listen, metrics::collect(&config.roles)?);
    let (addr, serving) =
        metrics::serve(listen, collected, readiness.clone()).await.context("metrics.listen")?;
    info!(%addr, "metrics listening");
    let metrics = AbortOnDropHandle::new(tokio::spawn(serving));
    listeners::warn_of_plain_text(config);
    let vault = config.vault()?;
    let pools = open_pools(config).await?;
    let following = AbortOnDropHandle::new(tokio::spawn(metrics::follow(pools.availability().clone())));
    let vault = rotation::with_kept_secrets(&mut *pools.background.acquire().await?, vault).await?;
    let chains = chains(config)?;
    check_chains(config, &chains, &pools).await?;
    check_signers(&chains).await?;
    let context = market::context(config, &chains, &pools.background, vault)?;
    context.liquidity.refresh().await;
    context.liquidity.load_network_fees(&pools.background).await?;
    let service = Service::start(&pools, parts(config, context, chains, &pools).await?).await?;
    let watching = metrics::watch(pools.clone(), readiness.clone());
    readiness.serving(service.engine(), &config.roles);
    info!(roles = ?config.roles, http = ?service.http, fix = ?service.fix, fix_tls = ?service.fix_tls,
        console = ?service.console, "ready");
    let watching = AbortOnDropHandle::new(tokio::spawn(watching));
    Ok(Started { service, pools, _metrics: [metrics, following, watching] })
}

/// A schema of another version, or more connections than the server gives, is a mistake that shows at once, not at
/// the first statement that fails.
async fn open_pools(config: &Config) -> anyhow::Result<Pools> {
    let sizes = config.database.sizes();
    let pools = Pools::open(&config.database()?, sizes).await;
    let pools = pools.context("the database does not answer (database.url)")?;
    let mut conn = pools.background.acquire().await?;
    checkup::database(config, &mut conn).await?;
    drop(conn);
    Ok(pools)
}

/// The pairs that no configured source prices now. Providers that are asked for each order cannot be tried without one.
pub(crate) async fn pairs_without_price(config: &Config, vault: Vault) -> anyhow::Result<Vec<String>> {
    let pools = Pools::open(&config.database()?, config.database.sizes()).await?;
    let context = market::context(config, &chains(config)?, &pools.background, vault)?;
    context.liquidity.refresh().await;
    let snapshot = context.liquidity.snapshot();
    pools.close().await;
    let is_asked = !config.liquidity.external.is_empty() || config.liquidity.order_book;
    let is_priced = |pair: &&PairSection| {
        is_asked || snapshot.pair(&pair.base, &pair.quote).is_some_and(|market| !market.offers.is_empty())
    };
    let without = config.pairs.iter().filter(|pair| !is_priced(pair));
    Ok(without.map(|pair| format!("{}/{}", pair.base, pair.quote)).collect())
}

/// Every chain with its contracts; the keys only where transactions are sent.
fn chains(config: &Config) -> anyhow::Result<Vec<ChainParts>> {
    ensure!(!config.chains.is_empty(), "chains: there is no [[chains]]");
    let sends = config.roles.contains(&Role::Indexer);
    let parts = |section: &crate::config::chain::ChainSection| {
        let accounts = if sends { section.accounts()? } else { Vec::new() };
        Ok(ChainParts { config: section.config(section.deployment()?, &config.assets)?, accounts })
    };
    config.chains.iter().map(parts).collect()
}

async fn check_chains(config: &Config, chains: &[ChainParts], pools: &Pools) -> anyhow::Result<()> {
    let mut conn = pools.background.acquire().await?;
    let mut expectations = Vec::new();
    for (section, parts) in config.chains.iter().zip(chains) {
        let relayers = parts.accounts.iter().map(Account::address).collect();
        checkup::contract_sets(&parts.config, &mut conn).await?;
        expectations.push(checkup::expected(config, section, relayers, &mut conn).await?);
    }
    drop(conn);
    let checks = chains.iter().zip(&expectations);
    let checks = checks.map(|(parts, expected)| checkup::at_start(&parts.config, expected));
    join_all(checks).await.into_iter().collect()
}

/// A signer for another account, or without its key, is a mistake that shows at once. One that does not answer may come
/// back: the relayer waits for it, and the other accounts do its work.
async fn check_signers(chains: &[ChainParts]) -> anyhow::Result<()> {
    let checks = chains.iter().flat_map(|chain| {
        chain.accounts.iter().map(async |account| (&chain.config.name, account, account.check().await))
    });
    for (chain, account, answer) in join_all(checks).await {
        match answer {
            Ok(()) => {}
            Err(error) if error.is_absence() => {
                error!(chain, ?account, %error, "the signer does not answer, the relayer will retry");
            }
            Err(error) => return Err(error).with_context(|| format!("{account:?} of {chain}")),
        }
    }
    Ok(())
}

async fn parts(
    config: &Config,
    context: dvp_core::context::Context,
    chains: Vec<ChainParts>,
    pools: &Pools,
) -> anyhow::Result<ServiceConfig> {
    let has = |role| config.roles.contains(&role);
    let worker = match has(Role::Worker) {
        true => Some(listeners::worker(config, &pools.background).await?),
        false => None,
    };
    Ok(ServiceConfig {
        process: new_process(&config.roles, config.digest().to_owned()),
        context,
        chains,
        wallets: market::wallets(&config.liquidity),
        rest: has(Role::Api).then(|| listeners::rest(config)).transpose()?,
        fix: has(Role::Fix).then(|| listeners::fix(config)).transpose()?,
        console: has(Role::Console).then(|| listeners::console(config)).transpose()?,
        indexer: has(Role::Indexer),
        patience: config.patience(),
        worker,
    })
}
