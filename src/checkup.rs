//! What the configuration expects of each chain, for `dvp doctor` and for the start of `dvp serve`.

use std::collections::BTreeSet;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context as _, bail, ensure};
use dvp_chain_indexer::ChainConfig;
use dvp_chain_indexer::checkup::{Defect, Expected, ExpectedPool, ExpectedToken, Finding, Payer, check_up};
use dvp_domain::ledger::Owner;
use dvp_store::PgConnection;
use dvp_store::chain::{OpenInSet, list_open_sets};
use dvp_store::database::clock;
use dvp_store::database::deployment::{self, EnvironmentMismatch};
use dvp_store::database::health;
use dvp_store::database::pools::connections_allowed;
use dvp_store::ledger::balances;
use tracing::{error, warn};

use crate::config::Config;
use crate::config::chain::ChainSection;
use crate::config::market::{AssetSection, PoolSection};

/// The database is this deployment's, with this program's schema, and has room for this process's connections. Returns
/// what it is.
pub(crate) async fn database(config: &Config, conn: &mut PgConnection) -> anyhow::Result<String> {
    let (allowed, wanted) = (connections_allowed(conn).await?, config.database.sizes().connections());
    ensure!(
        i64::from(wanted) <= i64::from(allowed),
        "database.max_connections: this process would use {wanted} connections, the server gives {allowed}"
    );
    let schema = health::schema(conn).await?;
    if let Some(complaint) = schema.complaint() {
        bail!("{complaint}");
    }
    let stamped = deployment::find_environment(conn).await?;
    let stamped = stamped.context("the database has no environment yet: run dvp migrate")?;
    let configured = config.environment;
    ensure!(stamped == configured, EnvironmentMismatch { stamped, configured });
    deployment::check_cell(conn, config.cell()).await??;
    let version = schema.newest.unwrap_or_default();
    Ok(format!("{}, schema {version}, {wanted} of {allowed} connections", configured.as_str()))
}

/// Every order that is open ends in contracts that the record names. Returns what is open in those before the newest.
pub(crate) async fn contract_sets(chain: &ChainConfig, conn: &mut PgConnection) -> anyhow::Result<String> {
    let open = list_open_sets(conn, chain.chain_id).await?;
    let deployment = &chain.deployment;
    let said = |set: &OpenInSet| {
        format!(
            "{} orders and {} commands are open in the contracts of the escrow {}",
            set.orders, set.commands, set.escrow
        )
    };
    if let Some(unnamed) = open.iter().find(|set| deployment.of_escrow(set.escrow).is_none()) {
        bail!("chains.deployment of {}: {}, which the record does not name", chain.name, said(unnamed));
    }
    let earlier: Vec<String> = open.iter().filter(|set| set.escrow != deployment.escrow).map(said).collect();
    let sets = deployment.sets().count();
    let earlier = if earlier.is_empty() { String::new() } else { format!("; {}", earlier.join("; ")) };
    Ok(format!(
        "{}: {sets} sets, new orders in that of the escrow {}{earlier}",
        chain.name, deployment.escrow
    ))
}

/// How long the checks of a chain may hold up a start.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// A provider's account and wallet, and the pairs it fills.
struct Fills<'a> {
    provider: &'a str,
    wallet: &'a str,
    /// `None`: all.
    pairs: Option<Vec<(&'a str, &'a str)>>,
}

/// What is expected of one chain. A provider without a balance of a token pays none, and needs no allowance.
pub(crate) async fn expected(
    config: &Config,
    section: &ChainSection,
    relayers: Vec<Address>,
    conn: &mut PgConnection,
) -> anyhow::Result<Expected> {
    let tokens = tokens(config, section)?;
    let mut receivers = BTreeSet::new();
    let mut payers = Vec::new();
    for filled in filled(config) {
        let wallet = || address(filled.wallet).with_context(|| format!("wallet of {}", filled.provider));
        let fills = |base: &str, quote: &str| {
            filled.pairs.as_ref().is_none_or(|pairs| pairs.contains(&(base, quote)))
        };
        for pair in config.pairs.iter().filter(|pair| fills(&pair.base, &pair.quote)) {
            if tokens.iter().any(|token| token.symbol == pair.base) {
                receivers.insert(wallet()?);
            }
            let Some(token) = tokens.iter().find(|token| token.symbol == pair.quote) else { continue };
            let payer = Payer { wallet: wallet()?, token: token.clone() };
            if !payers.contains(&payer) && holds(conn, filled.provider, &token.symbol).await? {
                payers.push(payer);
            }
        }
    }
    let pools = pools(config, section, &tokens)?;
    let open = list_open_sets(conn, section.chain_id).await?;
    Ok(Expected {
        relayers,
        receivers: receivers.into_iter().collect(),
        tokens,
        payers,
        pools,
        accept_other_code: section.accept_other_code,
        ending: open.iter().map(|set| set.escrow).collect(),
    })
}

fn tokens(config: &Config, section: &ChainSection) -> anyhow::Result<Vec<ExpectedToken>> {
    let here = config.assets.iter().filter(|asset| asset.chain.as_ref() == Some(&section.name));
    let token = |asset: &AssetSection| {
        let place = asset.address.as_deref().or(asset.wrapped.as_deref()).unwrap_or_default();
        let address = address(place).with_context(|| format!("assets: the address of {}", asset.symbol))?;
        Ok(ExpectedToken { symbol: asset.symbol.clone(), address, decimals: asset.exponent })
    };
    here.map(token).collect()
}

fn pools(
    config: &Config,
    section: &ChainSection,
    tokens: &[ExpectedToken],
) -> anyhow::Result<Vec<ExpectedPool>> {
    let token = |symbol: &str| tokens.iter().find(|token| token.symbol == symbol).map(|token| token.address);
    let pairs: Vec<(Address, Address)> =
        config.pairs.iter().filter_map(|pair| token(&pair.base).zip(token(&pair.quote))).collect();
    let here = config.liquidity.pools.iter().filter(|pool| pool.chain == section.name);
    let pool = |pool: &PoolSection| {
        Ok(ExpectedPool {
            id: pool.id.clone(),
            address: address(&pool.address)
                .with_context(|| format!("liquidity.pools: the address of {}", pool.id))?,
            kind: pool.kind(),
            pairs: pairs.clone(),
            window_secs: u32::try_from(pool.average_window.0.as_secs())?,
        })
    };
    here.map(pool).collect()
}

fn filled(config: &Config) -> impl Iterator<Item = Fills<'_>> {
    let liquidity = &config.liquidity;
    let own = liquidity.providers.iter().map(|one| {
        let pairs: Vec<_> = one.pairs.iter().map(|(base, quote)| (base.as_str(), quote.as_str())).collect();
        let pairs = (!pairs.is_empty()).then_some(pairs);
        Fills { provider: &one.id, wallet: &one.wallet, pairs }
    });
    let external = liquidity.external.iter().map(|one| {
        let pairs = one.pairs.iter().map(|pair| (pair.base.as_str(), pair.quote.as_str())).collect();
        Fills { provider: &one.provider_id, wallet: &one.wallet, pairs: Some(pairs) }
    });
    let pools = liquidity.pools.iter().map(|one| {
        let is_here = |symbol: &str| {
            config
                .assets
                .iter()
                .any(|asset| asset.symbol == symbol && asset.chain.as_ref() == Some(&one.chain))
        };
        let pairs = config.pairs.iter().filter(|pair| is_here(&pair.base) && is_here(&pair.quote));
        let pairs = pairs.map(|pair| (pair.base.as_str(), pair.quote.as_str())).collect();
        Fills { provider: &one.provider_id, wallet: &one.wallet, pairs: Some(pairs) }
    });
    own.chain(external).chain(pools)
}

async fn holds(conn: &mut PgConnection, provider: &str, asset: &str) -> anyhow::Result<bool> {
    let held = balances::find(conn, &Owner::Provider(provider.into()), asset).await?;
    Ok(held.available.get() > 0 || held.reserved.get() > 0)
}

/// The service's time.
pub(crate) fn unix_secs() -> u64 {
    clock::now().unix_secs()
}

/// Checks a chain as the service starts. A configuration that the chain contradicts is a mistake that shows at once;
/// what is missing can be put right while the service runs, and an endpoint that does not answer may come back.
pub(crate) async fn at_start(chain: &ChainConfig, expected: &Expected) -> anyhow::Result<()> {
    let Ok(findings) = tokio::time::timeout(START_PATIENCE, check_up(chain, expected, unix_secs())).await
    else {
        warn!(chain = chain.name, "the chain could not be checked in time; see `dvp doctor`");
        return Ok(());
    };
    for Finding { about, found } in findings {
        match found {
            Ok(_) => {}
            Err(Defect::Contradiction(said)) => bail!("{} of {}: {said}", about, chain.name),
            Err(defect @ Defect::Lack(_)) => {
                error!(chain = chain.name, about, %defect, "the chain lacks something that orders need");
            }
            Err(defect @ Defect::Unanswered(_)) => {
                warn!(chain = chain.name, about, %defect, "the chain could not be checked");
            }
        }
    }
    Ok(())
}

fn address(text: &str) -> anyhow::Result<Address> {
    text.parse().with_context(|| format!("{text} is no address"))
}
