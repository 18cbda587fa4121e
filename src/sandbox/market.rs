//! The sandbox's market: assets, pairs, and the sources of their prices.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use dvp_chain_indexer::ChainPrices;
use dvp_chain_indexer::deploy::DeployedToken;
use dvp_core::context::{Chains, Clock, Context, Windows};
use dvp_core::liquidity::{
    AmmPool, BookConfig, ConfiguredPrices, ConfiguredProvider, FeedConfig, Liquidity, LiquiditySource,
    OnChainFeed, OrderBook, PoolConfig, PoolKind, ReferenceSource,
};
use dvp_core::screening::{HookConfig, ListConfig, Screening};
use dvp_core::secrets::Vault;
use dvp_core::writer::ORDER_PLACES;
use dvp_domain::abandonment::CoolDownRules;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::fees::FeeSchedule;
use dvp_domain::liquidity::band::POOL_DEVIATION_BPS;
use dvp_domain::liquidity::{Deliverer, LiquidityProvider, Policy};
use dvp_domain::money::Minor;
use dvp_domain::screening::ScreeningResult;
use dvp_rails::CheckPayout;
use dvp_rails::http_desk::{DeskConfig, HttpDesk};
use dvp_rails::iso20022::instruction::Debtor;
use dvp_rails::iso20022::{BankFiles, outage};
use dvp_sandbox::bank::Bank;
use dvp_sandbox::rails as simulated;
use dvp_store::PgPool;
use dvp_store::orders::resting_orders::NewRestingOrder;

use super::chain::SandboxChain;
use super::inventory::{COIN, COIN_DECIMALS, CURRENCIES, OPENING_BALANCES, PREFUNDED, PROVIDERS};
use crate::cli::SandboxArgs;
use crate::service::{BankParts, ChainParts};

/// The name the permit contract signs with (EIP-712 domain).
const PERMIT_NAME: &str = "Permit";
const DESK_TOKEN: &str = "sandbox";
/// An hour to fill, and a day from the payout's end to the refund.
const WINDOWS: Windows =
    Windows { fill_secs: 3600, margin_secs: 24 * 3600, payout: simulated::PAYOUT_TIME, finality_secs: 60 };
/// The sandbox's feed speaks at each start only.
const FEED_STALE_AFTER: Duration = Duration::from_secs(3_650 * 24 * 3600);
/// Short, so that a new sandbox has its pool soon.
const AVERAGE_WINDOW_SECS: u32 = 5;
/// From the time of the block on.
const GOOD_FOR: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pairs with their configured price; that of WETH comes from the feed.
const PAIRS: [(&str, &str, Option<&str>); 13] = [
    ("USDC", "USD", Some("1")),
    ("USDC", "EUR", Some("0.92")),
    ("WETH", "USDC", None),
    ("USDC", "WETH", None),
    ("USD", "EUR", Some("0.92")),
    ("EUR", "USD", Some("1.086")),
    ("USD", "USDC", Some("1")),
    ("EUR", "USDC", Some("1.086")),
    ("WETH", "USD", Some("3000")),
    (COIN, "USD", Some("3000")),
    ("USD", COIN, Some("0.000333333333333333")),
    (COIN, "USDC", Some("3000")),
    ("USDC", COIN, Some("0.000333333333333333")),
];

/// What a chain's coin costs in each asset.
const COIN_PRICES: [(&str, u32); 4] = [("USDC", 3000), ("WETH", 1), ("USD", 3000), ("EUR", 2760)];

/// The token that is exchanged for itself between two chains, at par.
const ACROSS: (&str, &str, Option<&str>) = ("USDC", "USDC", Some("1"));

/// A bank with an account in each currency, at the other end of a folder.
pub(super) async fn bank(dir: &Path, pool: &PgPool, partners: &[String]) -> anyhow::Result<BankParts> {
    let debtor = |(currency, account, bic): (&str, &str, &str)| Debtor {
        name: "DVP Sandbox".into(),
        currency: currency.into(),
        account: account.into(),
        bic: bic.into(),
        country: "DE".into(),
        town: Some("Frankfurt am Main".into()),
        street: Some("Taunusanlage 1".into()),
        post_code: Some("60329".into()),
        purpose: None,
    };
    let accounts = [("USD", "400500600", "SANDUS33"), ("EUR", "DE89370400440532013000", "SANDDEFF")];
    let folder = dir.join("bank");
    std::fs::create_dir_all(&folder)?;
    outage::stamp(&mut *pool.acquire().await?, &folder, "sandbox", true).await?;
    let files = BankFiles::open(pool.clone(), &folder, accounts.map(debtor).to_vec()).await?;
    // The simulated bank writes files atomically: an incomplete file stays incomplete.
    let files = files.settling_after(Duration::from_secs(1));
    let accounts = accounts.map(|(currency, account, _)| (currency.to_owned(), account.to_owned()));
    let bank = Bank::open_with_accounts(&folder, accounts.to_vec()).await?;
    // What the ledger begins with is at the bank.
    for currency in CURRENCIES {
        for provider in PROVIDERS {
            let opening = OPENING_BALANCES.iter().find(|(asset, _)| *asset == currency);
            let amount = opening.map_or(0, |(_, amount)| amount.get());
            bank.deposit(&format!("opening:{provider}:{currency}"), currency, i64::try_from(amount)?).await?;
        }
        for partner in partners {
            let prefunded = i64::try_from(PREFUNDED.get())?;
            bank.deposit(&prefunding(partner, currency), currency, prefunded).await?;
        }
    }
    Ok(BankParts { files, simulated: Some(bank) })
}

/// The id of a partner's deposit.
pub(super) fn prefunding(partner: &str, currency: &str) -> String {
    format!("sandbox:{partner}:{currency}")
}

/// The desk at this URL, by the token of all sandboxes.
pub(super) fn desk(url: &reqwest::Url) -> anyhow::Result<HttpDesk> {
    let config = DeskConfig { url: url.clone(), token: DESK_TOKEN.into(), authorities: None };
    Ok(HttpDesk::new(config)?)
}

/// `chains`: the home chain first.
pub(super) fn context(
    chains: &[SandboxChain],
    parts: &[ChainParts],
    pool: &PgPool,
    vault: Vault,
) -> anyhow::Result<Context> {
    let mut settling = parts.iter().map(|chain| chain.settles(PERMIT_NAME));
    let home = settling.next().context("a sandbox has a chain")??;
    let registry = registry(chains)?;
    let chains_of_orders = Chains::new(home, settling.collect::<anyhow::Result<_>>()?, &registry);
    Ok(Context {
        cell: None,
        liquidity: Arc::new(liquidity(&registry, chains, pool)?),
        registry,
        payout_provider: simulated::PROVIDER.into(),
        chains: chains_of_orders,
        windows: WINDOWS,
        vault,
        clock: Clock::default(),
        rest_millis: simulated::rest_millis,
        check_payout: CheckPayout::new(simulated::check_payout),
        screening: Screening::default(),
        cool_down: CoolDownRules::default(),
        order_places: ORDER_PLACES,
    })
}

/// Held orders are screened again every other second.
pub(super) fn screening(args: &SandboxArgs) -> anyhow::Result<Screening> {
    let list = args.screening_list.clone().map(|file| ListConfig { file, on_match: ScreeningResult::Hold });
    let hook = args.screening_url.clone().map(|url| HookConfig {
        url,
        token: None,
        timeout: LOOK_EVERY,
        on_error: args.screening_on_error,
    });
    Ok(Screening::new(list, hook, 2 * LOOK_EVERY)?)
}

fn registry(chains: &[SandboxChain]) -> anyhow::Result<Registry> {
    let token = |chain: &SandboxChain, token: &DeployedToken| {
        let address = token.address.to_string().to_lowercase();
        let kind = AssetKind::Erc20 { chain: chain.name().into(), address };
        Asset { symbol: chain.symbol(&token.symbol), exponent: token.decimals, kind }
    };
    let tokens =
        chains.iter().flat_map(|chain| chain.deployment.tokens.iter().map(move |one| token(chain, one)));
    let coin = |chain: &SandboxChain| {
        let wrapped = chain.deployment.coin?.wrapped.to_string().to_lowercase();
        let kind = AssetKind::Native { chain: chain.name().into(), wrapped };
        Some(Asset { symbol: chain.symbol(COIN), exponent: COIN_DECIMALS, kind })
    };
    let mut assets: Vec<Asset> = tokens.collect();
    assets.extend(chains.iter().filter_map(coin));
    for currency in CURRENCIES {
        let kind = AssetKind::Fiat { currency: currency.into() };
        assets.push(Asset { symbol: currency.into(), exponent: 2, kind });
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for chain in chains {
        for other in chains.iter().filter(|other| other.name() != chain.name()) {
            pairs.push(pair([chain, other], ACROSS)?);
        }
        let offered = |ticker: &str| ticker != COIN || chain.deployment.coin.is_some();
        for listed in PAIRS.into_iter().filter(|(base, quote, _)| offered(base) && offered(quote)) {
            let pair = pair([chain, chain], listed)?;
            if !pairs.iter().any(|known| (&known.base, &known.quote) == (&pair.base, &pair.quote)) {
                pairs.push(pair);
            }
        }
    }
    Ok(Registry { assets, pairs })
}

/// A pair with the tokens of these chains.
fn pair(
    [base_chain, quote_chain]: [&SandboxChain; 2],
    (base, quote, price): (&str, &str, Option<&str>),
) -> anyhow::Result<Pair> {
    let price = price.map(|price| price.parse().map_err(|error| anyhow!("price {price}: {error}")));
    let symbol = |chain: &SandboxChain, asset: &str| {
        if CURRENCIES.contains(&asset) { asset.to_owned() } else { chain.symbol(asset) }
    };
    Ok(Pair {
        base: symbol(base_chain, base),
        quote: symbol(quote_chain, quote),
        reference_price: price.transpose()?,
        fees: fees(base, quote),
        // Of each order a fee is taken.
        min_input: min_input(base).max(fees(base, quote).least_input()),
        max_input: None,
    })
}

/// What each provider has at first: currencies once, tokens on each chain.
pub(super) fn opening_balances(chains: &[SandboxChain]) -> Vec<(String, Minor)> {
    let (currencies, tokens): (Vec<_>, Vec<_>) =
        OPENING_BALANCES.into_iter().partition(|(asset, _)| CURRENCIES.contains(asset));
    let of_chain = |chain: &SandboxChain| -> Vec<(String, Minor)> {
        let offered = |ticker: &str| ticker != COIN || chain.deployment.coin.is_some();
        let held = tokens.iter().filter(|(ticker, _)| offered(ticker));
        held.map(|(ticker, amount)| (chain.symbol(ticker), *amount)).collect()
    };
    let currencies = currencies.iter().map(|(asset, amount)| ((*asset).to_owned(), *amount));
    currencies.chain(chains.iter().flat_map(of_chain)).collect()
}

/// About one dollar: twice the cost of a payout.
fn min_input(base: &str) -> Minor {
    match base {
        "WETH" | COIN => Minor::new(500_000_000_000_000),
        "USDC" => Minor::new(1_000_000),
        _ => Minor::new(100),
    }
}

/// Half a unit for a payout of a currency; gas where the input is a token.
fn fees(base: &str, quote: &str) -> FeeSchedule {
    let gas = match base {
        "USDC" => 30_000,
        "WETH" | COIN => 10_000_000_000_000,
        _ => 0,
    };
    let payout = if CURRENCIES.contains(&quote) { 50 } else { 0 };
    FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(payout),
        network_fee_minor: Minor::new(gas),
    }
}

fn liquidity(registry: &Registry, chains: &[SandboxChain], pool: &PgPool) -> anyhow::Result<Liquidity> {
    let wallet = chains.first().context("a sandbox has a chain")?.solver.address().to_string();
    let configured = |provider| -> Arc<dyn LiquiditySource> { Arc::new(ConfiguredProvider::new(provider)) };
    let [northwind, meridian] = providers(&wallet);
    let mut sources = vec![configured(northwind), configured(meridian)];
    let coin_price = |asset: &Asset| {
        let (_, price) = COIN_PRICES.iter().find(|(ticker, _)| *ticker == asset.ticker())?;
        Some(((COIN.to_owned(), asset.symbol.clone()), (*price).into()))
    };
    let configured = ConfiguredPrices::of(registry).and(registry.assets.iter().filter_map(coin_price));
    let mut references: Vec<Arc<dyn ReferenceSource>> = vec![Arc::new(configured)];
    for chain in chains {
        let prices = Arc::new(ChainPrices::over([chain.rpc_url.as_str()])?);
        let id = chain.symbol("weth-usdc");
        let amm = PoolConfig {
            id: id.clone(),
            chain: chain.name().into(),
            address: chain.market.pool.to_string(),
            kind: PoolKind::UniswapV2 { fee_bps: 30 },
            window_secs: AVERAGE_WINDOW_SECS,
            deviation_bps: POOL_DEVIATION_BPS,
            desk: Deliverer { provider_id: PROVIDERS[2].into(), wallet: wallet.clone() },
            policy: Policy::default(),
            refresh_every: LOOK_EVERY,
            good_for: GOOD_FOR,
            candidate_ttl_sec: 5,
        };
        let feed = FeedConfig {
            id: format!("{id}-feed"),
            address: chain.market.feed.to_string(),
            base: chain.symbol("WETH"),
            quote: chain.symbol("USDC"),
            refresh_every: LOOK_EVERY,
            stale_after: FEED_STALE_AFTER,
            good_for: GOOD_FOR,
        };
        sources.push(Arc::new(AmmPool::new(amm, prices.clone())));
        references.push(Arc::new(OnChainFeed::new(feed, prices)));
    }
    sources.push(Arc::new(OrderBook::new(BookConfig::default(), pool.clone())));
    let gas = chains.iter().map(SandboxChain::gas).collect();
    Ok(Liquidity::new(registry.clone(), sources, references).with_network_fees(gas))
}

/// Two that differ in price, so that a quote shows a choice.
fn providers(wallet: &str) -> [LiquidityProvider; 2] {
    let provider = |id, spread, full_depth_bps| LiquidityProvider {
        full_depth_bps,
        firm_ttl_sec: 60,
        ..LiquidityProvider::new(id, wallet, spread)
    };
    [provider(PROVIDERS[0], 10, 100), provider(PROVIDERS[1], 25, 50)]
}

/// The resting orders of a new sandbox. Its rates are behind the best provider's: orders of ordinary
/// sizes are filled by one.
pub(super) fn resting(wallet: &str) -> anyhow::Result<Vec<NewRestingOrder>> {
    let level = |(input, output, rate, amount): (&str, &str, &str, u128)| -> anyhow::Result<NewRestingOrder> {
        Ok(NewRestingOrder {
            provider_id: PROVIDERS[3].into(),
            wallet: wallet.to_owned(),
            input_asset: input.into(),
            output_asset: output.into(),
            rate: rate.parse().map_err(|error| anyhow!("rate {rate}: {error}"))?,
            amount: Minor::new(amount),
            placed_by: None,
        })
    };
    [
        ("USDC", "USD", "0.9985", 50_000_000),
        ("USDC", "USD", "0.9980", 100_000_000),
        ("USDC", "EUR", "0.9180", 50_000_000),
        ("WETH", "USDC", "2985", 300_000_000_000),
        ("USD", "EUR", "0.9182", 50_000_000),
    ]
    .into_iter()
    .map(level)
    .collect()
}
