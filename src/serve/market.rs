//! From the configuration of assets, pairs and prices to the core's types.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use dvp_chain_indexer::ChainPrices;
use dvp_core::context::{Chains, Clock, Context};
use dvp_core::liquidity::{
    AmmPool, BookConfig, ConfiguredPrices, ConfiguredProvider, ExternalConfig, ExternalProvider,
    FIRM_SHARE_BPS, FeedConfig, HttpPrices, HttpPricesConfig, Liquidity, LiquiditySource, OnChainFeed,
    OrderBook, PoolConfig, ReferenceSource,
};
use dvp_core::secrets::Vault;
use dvp_core::writer::ORDER_PLACES;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::liquidity::band::{Band, Bands};
use dvp_domain::liquidity::{Deliverer, LiquidityProvider, Policy};
use dvp_rails::iso20022::instruction::check_payout as check_bank_payout;
use dvp_rails::{CheckPayout, iso20022};
#[cfg(feature = "sandbox")]
use dvp_sandbox::rails as simulated;
use dvp_store::PgPool;

use crate::config::Config;
use crate::config::chain::ChainSection;
use crate::config::listeners::PayoutKind;
use crate::config::market::{AssetSection, ExternalSection, LiquiditySection, PairSection, ProviderSection};
use crate::config::value::Span;
use crate::service::ChainParts;

pub(super) fn context(
    config: &Config,
    chains: &[ChainParts],
    pool: &PgPool,
    vault: Vault,
) -> anyhow::Result<Context> {
    let rails = config.rails.as_ref().context("there is no section [rails]")?;
    let registry = registry(config)?;
    let chains_of_orders = settlement_chains(config, chains, &registry)?;
    for (provider, wallet) in wallets(&config.liquidity) {
        if let Err(fault) = chains_of_orders.contracts().check_wallet(&wallet) {
            anyhow::bail!("liquidity: the wallet {wallet} of {provider} {fault}");
        }
    }
    let (payout_provider, rest_millis, check_payout): (_, fn(&str) -> i64, _) = match rails.payout {
        #[cfg(feature = "sandbox")]
        PayoutKind::Simulated => {
            (simulated::PROVIDER, simulated::rest_millis, CheckPayout::new(simulated::check_payout))
        }
        PayoutKind::BankFiles => {
            let accounts = || config.bank.iter().flat_map(|bank| &bank.accounts);
            let addressed = accounts().filter(|account| account.has_full_address());
            let check = CheckPayout::new(check_bank_payout)
                .paying_from(accounts().map(|account| account.currency.clone()))
                .addressed(addressed.map(|account| account.currency.clone()));
            (iso20022::PROVIDER, |_| 0, check)
        }
    };
    Ok(Context {
        cell: config.cell(),
        liquidity: Arc::new(liquidity(config, &registry, chains, pool)?),
        registry,
        payout_provider: payout_provider.into(),
        chains: chains_of_orders,
        windows: config.settlement.windows(rails.payout.time())?,
        vault,
        clock: Clock::default(),
        rest_millis,
        check_payout,
        screening: config.screening.screening()?,
        cool_down: config.cool_down.rules()?,
        order_places: ORDER_PLACES,
    })
}

/// The first is the home chain.
fn settlement_chains(config: &Config, chains: &[ChainParts], registry: &Registry) -> anyhow::Result<Chains> {
    let of = |(section, parts): (&ChainSection, &ChainParts)| parts.settles(&section.permit_name);
    let mut chains = config.chains.iter().zip(chains).map(of);
    let home = chains.next().context("chains: there is no [[chains]]")??;
    Ok(Chains::new(home, chains.collect::<anyhow::Result<_>>()?, registry))
}

fn registry(config: &Config) -> anyhow::Result<Registry> {
    let assets = config.assets.iter().map(asset).collect::<anyhow::Result<_>>()?;
    let pairs = config.pairs.iter().map(pair).collect::<anyhow::Result<_>>()?;
    Ok(Registry { assets, pairs })
}

fn asset(section: &AssetSection) -> anyhow::Result<Asset> {
    let AssetSection { symbol, exponent, chain, address, wrapped, currency } = section;
    let kind = match (chain, address, wrapped, currency) {
        (Some(chain), Some(address), None, _) => {
            AssetKind::Erc20 { chain: chain.clone(), address: address.to_lowercase() }
        }
        (Some(chain), None, Some(wrapped), _) => {
            AssetKind::Native { chain: chain.clone(), wrapped: wrapped.to_lowercase() }
        }
        (_, _, _, Some(currency)) => AssetKind::Fiat { currency: currency.clone() },
        _ => anyhow::bail!("assets: {symbol} is neither token, coin nor currency"),
    };
    Ok(Asset { symbol: symbol.clone(), exponent: *exponent, kind })
}

fn pair(section: &PairSection) -> anyhow::Result<Pair> {
    let PairSection { base, quote, reference_price, .. } = section;
    let price = reference_price.as_ref().map(|price| price.parse()).transpose();
    let wrong = |error| anyhow!("pairs: the reference_price of {base}/{quote}: {error}");
    Ok(Pair {
        base: base.clone(),
        quote: quote.clone(),
        reference_price: price.map_err(wrong)?,
        fees: section.fees(),
        min_input: section.min_input(),
        max_input: section.max_input_minor,
    })
}

fn liquidity(
    config: &Config,
    registry: &Registry,
    chains: &[ChainParts],
    pool: &PgPool,
) -> anyhow::Result<Liquidity> {
    let mut readers: HashMap<&str, Arc<ChainPrices>> = HashMap::new();
    for chain in chains {
        readers.insert(&chain.config.name, Arc::new(ChainPrices::over(chain.config.rpc_urls())?));
    }
    let reader = |chain: &str| readers.get(chain).cloned().with_context(|| format!("no chain {chain}"));
    let sections = &config.liquidity;
    let mut sources: Vec<Arc<dyn LiquiditySource>> = Vec::new();
    for section in &sections.providers {
        sources.push(Arc::new(ConfiguredProvider::new(provider(section)?)));
    }
    for section in &sections.external {
        let external = ExternalProvider::new(external(section, registry)?);
        sources.push(Arc::new(external.with_context(|| format!("liquidity.external {}", section.id))?));
    }
    for section in &sections.pools {
        let config = PoolConfig {
            id: section.id.clone(),
            chain: section.chain.clone(),
            address: section.address.clone(),
            kind: section.kind(),
            window_secs: secs(section.average_window)?,
            deviation_bps: section.price_band_bps,
            desk: Deliverer { provider_id: section.provider_id.clone(), wallet: section.wallet.clone() },
            policy: Policy::default(),
            refresh_every: section.refresh_every.0,
            good_for: section.good_for.0,
            candidate_ttl_sec: secs(section.candidate_ttl)?,
        };
        sources.push(Arc::new(AmmPool::new(config, reader(&section.chain)?)));
    }
    if sections.order_book {
        sources.push(Arc::new(OrderBook::new(BookConfig::default(), pool.clone())));
    }
    let mut references: Vec<Arc<dyn ReferenceSource>> = vec![Arc::new(ConfiguredPrices::of(registry))];
    for section in &sections.feeds {
        let config = FeedConfig {
            id: section.id.clone(),
            address: section.address.clone(),
            base: section.base.clone(),
            quote: section.quote.clone(),
            refresh_every: section.refresh_every.0,
            stale_after: section.stale_after.0,
            good_for: section.good_for.0,
        };
        references.push(Arc::new(OnChainFeed::new(config, reader(&section.chain)?)));
    }
    for section in &sections.price_lists {
        let config = HttpPricesConfig {
            id: section.id.clone(),
            url: section.url.clone(),
            refresh_every: section.refresh_every.0,
            stale_after: section.stale_after.0,
            timeout: section.timeout.0,
        };
        let list = HttpPrices::new(config);
        references.push(Arc::new(list.with_context(|| format!("liquidity.price_lists {}", section.id))?));
    }
    let share = sections.firm_share_bps.unwrap_or(FIRM_SHARE_BPS);
    let liquidity = Liquidity::with_bands(registry.clone(), sources, references, bands(&config.pairs));
    let gas = config.chains.iter().filter_map(|chain| chain.gas().transpose());
    let gas = gas.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(liquidity.with_firm_share(share).with_network_fees(gas))
}

fn bands(pairs: &[PairSection]) -> Bands {
    let band = |pair: &PairSection| {
        let band = Band { deviation_bps: pair.price_band_bps?, middle: None };
        Some(((pair.base.clone(), pair.quote.clone()), band))
    };
    pairs.iter().filter_map(band).collect()
}

fn provider(section: &ProviderSection) -> anyhow::Result<LiquidityProvider> {
    let usual = LiquidityProvider::new(&section.id, &section.wallet, section.spread_bps);
    let or_usual = |span: Option<Span>, usual| span.map_or(Ok(usual), secs);
    Ok(LiquidityProvider {
        full_depth_bps: section.full_depth_bps,
        pairs: section.pairs.clone(),
        candidate_ttl_sec: or_usual(section.candidate_ttl, usual.candidate_ttl_sec)?,
        firm_ttl_sec: or_usual(section.firm_ttl, usual.firm_ttl_sec)?,
        ..usual
    })
}

fn external(section: &ExternalSection, registry: &Registry) -> anyhow::Result<ExternalConfig> {
    let find = |symbol: &str| registry.find(symbol).cloned().with_context(|| format!("no asset {symbol}"));
    let pairs = section.pairs.iter();
    Ok(ExternalConfig {
        id: section.id.clone(),
        url: section.url.clone(),
        deliverer: Deliverer { provider_id: section.provider_id.clone(), wallet: section.wallet.clone() },
        policy: Policy::default(),
        pairs: pairs
            .map(|pair| Ok((find(&pair.base)?, find(&pair.quote)?, pair.probe_minor)))
            .collect::<anyhow::Result<_>>()?,
        timeout: section.timeout.0,
        refresh_every: section.refresh_every.0,
        good_for: section.good_for.0,
        pause: section.pause.0,
        candidate_ttl_sec: secs(section.candidate_ttl)?,
        firm_ttl_sec: secs(section.firm_ttl)?,
    })
}

fn secs(span: Span) -> anyhow::Result<u32> {
    u32::try_from(span.0.as_secs()).context("a time to live is beyond all sense")
}

/// Providers with the wallets that hold their tokens.
pub(super) fn wallets(section: &LiquiditySection) -> Vec<(String, String)> {
    let own = section.providers.iter().map(|one| (&one.id, &one.wallet));
    let external = section.external.iter().map(|one| (&one.provider_id, &one.wallet));
    let pools = section.pools.iter().map(|one| (&one.provider_id, &one.wallet));
    own.chain(external).chain(pools).map(|(id, wallet)| (id.clone(), wallet.clone())).collect()
}
