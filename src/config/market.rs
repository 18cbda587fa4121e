//! Assets, pairs, fees, and price sources.

use std::collections::HashSet;

use anyhow::{Context as _, ensure};
use dvp_core::liquidity::PoolKind;
use dvp_domain::address::{Address, OwnContracts};
use dvp_domain::currency;
use dvp_domain::fees::FeeSchedule;
use dvp_domain::liquidity::band::POOL_DEVIATION_BPS;
use dvp_domain::money::Minor;
use serde::Deserialize;

use super::value::{Span, millis, within};

/// The fee of Uniswap's own v2 pairs.
const V2_FEE_BPS: u32 = 30;

/// An asset: a token of a chain, or a currency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssetSection {
    /// Of a token on another chain than its ticker's default one: `TICKER.CHAIN`.
    pub symbol: String,
    /// Decimal places.
    pub exponent: u8,
    /// Of a token: the chain's name and the contract.
    pub chain: Option<String>,
    pub address: Option<String>,
    /// Of a chain's coin, in place of the contract: the token contract that wraps it.
    pub wrapped: Option<String>,
    /// Of a currency: its ISO 4217 code.
    pub currency: Option<String>,
}

/// An input and an output, with the fees of the exchange.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PairSection {
    pub base: String,
    pub quote: String,
    /// A price that never ages; without one it comes from a feed or a price list.
    pub reference_price: Option<String>,
    /// Of the input, deducted.
    #[serde(default)]
    pub protocol_fee_bps: u32,
    /// In the output's minor units, deducted.
    #[serde(default)]
    pub payout_fee_minor: Minor,
    /// In the input's minor units: an estimate the service bears. Computed where the pair's chains have a coin.
    #[serde(default)]
    pub network_fee_minor: Minor,
    /// The smallest order, in the input's minor units. Left out: the smallest that pays a protocol fee.
    pub min_input_minor: Option<Minor>,
    /// The largest order, likewise.
    pub max_input_minor: Option<Minor>,
    /// How far a price may be from the reference price, in basis points; operators can set another band.
    pub price_band_bps: Option<u32>,
}

impl PairSection {
    pub(crate) fn fees(&self) -> FeeSchedule {
        FeeSchedule {
            protocol_fee_bps: self.protocol_fee_bps,
            payout_fee_minor: self.payout_fee_minor,
            network_fee_minor: self.network_fee_minor,
        }
    }

    /// The smallest order.
    pub(crate) fn min_input(&self) -> Minor {
        self.min_input_minor.unwrap_or_else(|| self.fees().least_input())
    }
}

/// The sources of liquidity and of reference prices.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiquiditySection {
    #[serde(default)]
    pub providers: Vec<ProviderSection>,
    #[serde(default)]
    pub external: Vec<ExternalSection>,
    #[serde(default)]
    pub pools: Vec<PoolSection>,
    /// The internal order book.
    #[serde(default)]
    pub order_book: bool,
    #[serde(default)]
    pub feeds: Vec<FeedSection>,
    #[serde(default)]
    pub price_lists: Vec<PriceListSection>,
    /// How much of a provider's free balance one partner's open firm quotes may hold, in basis points.
    pub firm_share_bps: Option<u32>,
}

/// A provider with a spread around the reference price.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderSection {
    pub id: String,
    /// Funds are released to this wallet.
    pub wallet: String,
    pub spread_bps: u32,
    /// How far the price gives way when an order takes the whole balance.
    #[serde(default)]
    pub full_depth_bps: u32,
    /// `[input, output]`; all when there are none.
    #[serde(default)]
    pub pairs: Vec<(String, String)>,
    pub candidate_ttl: Option<Span>,
    pub firm_ttl: Option<Span>,
}

/// A provider whose prices are requested over HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalSection {
    pub id: String,
    pub url: String,
    /// The account it keeps with the service, and its wallet.
    pub provider_id: String,
    pub wallet: String,
    pub pairs: Vec<ExternalPair>,
    #[serde(default = "millis::<500>")]
    pub timeout: Span,
    #[serde(default = "millis::<2_000>")]
    pub refresh_every: Span,
    #[serde(default = "millis::<15_000>")]
    pub good_for: Span,
    /// How long it is left alone after failing.
    #[serde(default = "millis::<10_000>")]
    pub pause: Span,
    #[serde(default = "millis::<15_000>")]
    pub candidate_ttl: Span,
    #[serde(default = "millis::<15_000>")]
    pub firm_ttl: Span,
}

/// A pair of an external provider, and the input of the background price requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalPair {
    pub base: String,
    pub quote: String,
    pub probe_minor: Minor,
}

/// A pool's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PoolKindName {
    /// A constant-product pair.
    UniswapV2,
    /// Concentrated liquidity.
    UniswapV3,
}

/// A pool on a chain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolSection {
    pub id: String,
    pub chain: String,
    pub address: String,
    pub kind: PoolKindName,
    /// Of a v2 pair, which does not tell its fee: 30 when not given. A v3 pool tells its own.
    pub fee_bps: Option<u32>,
    /// The time that the average price is made over.
    #[serde(default = "millis::<600_000>")]
    pub average_window: Span,
    /// How far the price may be from the average price and from the reference price, in basis points.
    #[serde(default = "pool_deviation")]
    pub price_band_bps: u32,
    /// The account that fills at the pool's price, and its wallet.
    pub provider_id: String,
    pub wallet: String,
    #[serde(default = "millis::<5_000>")]
    pub refresh_every: Span,
    /// How long what was read at a block is valid, from the block's time on.
    #[serde(default = "millis::<60_000>")]
    pub good_for: Span,
    #[serde(default = "millis::<5_000>")]
    pub candidate_ttl: Span,
}

/// A price feed contract.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedSection {
    pub id: String,
    pub chain: String,
    pub address: String,
    /// The answer is `quote` units per one `base`.
    pub base: String,
    pub quote: String,
    #[serde(default = "millis::<5_000>")]
    pub refresh_every: Span,
    /// From the answer's own time on.
    pub stale_after: Span,
    /// How long what was read at a block is valid, from the block's time on.
    #[serde(default = "millis::<60_000>")]
    pub good_for: Span,
}

/// A list of prices over HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceListSection {
    pub id: String,
    pub url: String,
    #[serde(default = "millis::<5_000>")]
    pub refresh_every: Span,
    pub stale_after: Span,
    #[serde(default = "millis::<500>")]
    pub timeout: Span,
}

const fn pool_deviation() -> u32 {
    POOL_DEVIATION_BPS
}

impl PoolSection {
    /// The kind, with the fee of a v2 pair.
    pub(crate) fn kind(&self) -> PoolKind {
        match self.kind {
            PoolKindName::UniswapV2 => PoolKind::UniswapV2 { fee_bps: self.fee_bps.unwrap_or(V2_FEE_BPS) },
            PoolKindName::UniswapV3 => PoolKind::UniswapV3,
        }
    }

    fn check(&self, at: &str) -> anyhow::Result<()> {
        match self.kind {
            PoolKindName::UniswapV2 => {
                ensure!(self.fee_bps.is_none_or(|bps| bps < 10_000), "{at}.fee_bps is not below 10000")
            }
            PoolKindName::UniswapV3 => {
                ensure!(self.fee_bps.is_none(), "{at}.fee_bps: a v3 pool tells its own fee");
            }
        }
        ensure!((1..10_000).contains(&self.price_band_bps), "{at}.price_band_bps is not between 1 and 9999");
        within(&format!("{at}.average_window"), Some(self.average_window), "1s", "1d")
    }
}

impl AssetSection {
    /// The chain and the ticker of a token.
    fn token(&self) -> Option<(&str, &str)> {
        let chain = self.chain.as_deref()?;
        let ticker = self.symbol.strip_suffix(chain).and_then(|rest| rest.strip_suffix('.'));
        Some((chain, ticker.filter(|ticker| !ticker.is_empty()).unwrap_or(&self.symbol)))
    }

    /// The chain and the token contract that holds it.
    fn held(&self) -> Option<(&str, String)> {
        let contract = self.address.as_ref().or(self.wrapped.as_ref())?;
        Some((self.chain.as_deref()?, contract.to_lowercase()))
    }

    /// Whether a descriptor with ticker and chain could name both.
    fn is_same_token(&self, other: &Self) -> bool {
        self.token().is_some_and(|token| other.token() == Some(token))
    }

    fn check(&self, chains: &HashSet<&str>) -> anyhow::Result<()> {
        match (&self.chain, &self.address, &self.wrapped, &self.currency) {
            (Some(chain), Some(_), None, None) | (Some(chain), None, Some(_), None) => {
                ensure!(chains.contains(chain.as_str()), "chain: no [[chains]] is called {chain}");
            }
            (None, None, None, Some(currency)) => {
                // Payment orders name the currency by the symbol, and their amounts have its decimals.
                let places = currency::exponent(currency);
                let places = places.with_context(|| format!("currency: {currency} is no ISO 4217 code"))?;
                ensure!(self.symbol == *currency, "symbol: that of the currency {currency} is its code");
                ensure!(
                    self.exponent == places,
                    "exponent: {currency} has {places} decimals (ISO 4217), not {}",
                    self.exponent
                );
            }
            _ => anyhow::bail!("{} needs either chain and address or wrapped, or currency", self.symbol),
        }
        for (name, contract) in [("address", &self.address), ("wrapped", &self.wrapped)] {
            if let Some(contract) = contract {
                address(name, contract)?;
            }
        }
        Ok(())
    }
}

pub(super) fn check(
    assets: &[AssetSection],
    pairs: &[PairSection],
    liquidity: &LiquiditySection,
    chains: &HashSet<&str>,
    coins: &HashSet<&str>,
) -> anyhow::Result<()> {
    let mut symbols = HashSet::new();
    for (n, asset) in assets.iter().enumerate() {
        asset.check(chains).with_context(|| format!("assets[{n}]"))?;
        ensure!(symbols.insert(asset.symbol.as_str()), "assets[{n}].symbol: {} is there twice", asset.symbol);
        let same = assets.iter().take(n).find(|other| other.is_same_token(asset));
        if let Some(other) = same {
            anyhow::bail!("assets[{n}].symbol: {} is {}", asset.symbol, other.symbol);
        }
        // Both would be the same balance of the same wallet.
        let is_shared = |other: &&AssetSection| {
            (asset.wrapped.is_some() || other.wrapped.is_some())
                && asset.held().is_some_and(|held| other.held() == Some(held))
        };
        if let Some(other) = assets.iter().take(n).find(is_shared) {
            anyhow::bail!("assets[{n}]: {} and {} are held as the same token", asset.symbol, other.symbol);
        }
    }
    let known = |place: &str, symbol: &str| -> anyhow::Result<()> {
        ensure!(symbols.contains(symbol), "{place}: no [[assets]] has the symbol {symbol}");
        Ok(())
    };
    for (n, pair) in pairs.iter().enumerate() {
        known(&format!("pairs[{n}].base"), &pair.base)?;
        known(&format!("pairs[{n}].quote"), &pair.quote)?;
        ensure!(
            pair.max_input_minor.is_none_or(|max| max >= pair.min_input()),
            "pairs[{n}].max_input_minor is below min_input_minor"
        );
        ensure!(
            pair.price_band_bps.is_none_or(|bps| (1..10_000).contains(&bps)),
            "pairs[{n}].price_band_bps is not between 1 and 9999"
        );
    }
    ensure!(
        liquidity.firm_share_bps.is_none_or(|bps| (1..=10_000).contains(&bps)),
        "liquidity.firm_share_bps is not between 1 and 10000"
    );
    for (n, provider) in liquidity.providers.iter().enumerate() {
        for (base, quote) in &provider.pairs {
            known(&format!("liquidity.providers[{n}].pairs"), base)?;
            known(&format!("liquidity.providers[{n}].pairs"), quote)?;
        }
    }
    for (n, external) in liquidity.external.iter().enumerate() {
        for pair in &external.pairs {
            known(&format!("liquidity.external[{n}].pairs"), &pair.base)?;
            known(&format!("liquidity.external[{n}].pairs"), &pair.quote)?;
        }
    }
    for (n, feed) in liquidity.feeds.iter().enumerate() {
        if !coins.contains(feed.base.as_str()) {
            known(&format!("liquidity.feeds[{n}].base"), &feed.base)?;
        }
        known(&format!("liquidity.feeds[{n}].quote"), &feed.quote)?;
    }
    for (n, pool) in liquidity.pools.iter().enumerate() {
        pool.check(&format!("liquidity.pools[{n}]"))?;
    }
    let on_chains = liquidity.pools.iter().map(|pool| ("pools", &pool.chain));
    for (kind, chain) in on_chains.chain(liquidity.feeds.iter().map(|feed| ("feeds", &feed.chain))) {
        ensure!(chains.contains(chain.as_str()), "liquidity.{kind}: no [[chains]] is called {chain}");
    }
    check_addresses(assets, liquidity)?;
    check_ids(liquidity)
}

/// The wallets of providers, and the addresses of contracts that prices are read from.
fn check_addresses(assets: &[AssetSection], liquidity: &LiquiditySection) -> anyhow::Result<()> {
    let mut contracts = OwnContracts::default();
    for asset in assets {
        if let Some(token) = asset.address.as_ref().or(asset.wrapped.as_ref()) {
            contracts.insert(token.parse()?, format!("the token contract of {}", asset.symbol));
        }
    }
    let wallet = |at: String, wallet: &str| match contracts.check_wallet(wallet) {
        Ok(_) => Ok(()),
        Err(fault) => anyhow::bail!("{at}.wallet: {wallet} {fault}"),
    };
    for (n, provider) in liquidity.providers.iter().enumerate() {
        wallet(format!("liquidity.providers[{n}]"), &provider.wallet)?;
    }
    for (n, external) in liquidity.external.iter().enumerate() {
        wallet(format!("liquidity.external[{n}]"), &external.wallet)?;
    }
    for (n, pool) in liquidity.pools.iter().enumerate() {
        wallet(format!("liquidity.pools[{n}]"), &pool.wallet)?;
        address(&format!("liquidity.pools[{n}].address"), &pool.address)?;
    }
    for (n, feed) in liquidity.feeds.iter().enumerate() {
        address(&format!("liquidity.feeds[{n}].address"), &feed.address)?;
    }
    Ok(())
}

fn address(at: &str, text: &str) -> anyhow::Result<()> {
    match text.parse::<Address>() {
        Ok(_) => Ok(()),
        Err(fault) => anyhow::bail!("{at}: {text} {fault}"),
    }
}

fn check_ids(liquidity: &LiquiditySection) -> anyhow::Result<()> {
    let sources = (liquidity.providers.iter().map(|one| &one.id))
        .chain(liquidity.external.iter().map(|one| &one.id))
        .chain(liquidity.pools.iter().map(|one| &one.id));
    let mut ids = HashSet::new();
    for id in sources {
        ensure!(ids.insert(id), "liquidity: two sources are called {id}");
    }
    Ok(())
}
