//! What the sandbox deals in: assets, pairs, liquidity providers.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use dvp_core::context::{ChainFacts, Context, Windows};
use dvp_core::liquidity::Liquidity;
use dvp_core::rails::simulated;
use dvp_core::secrets::Vault;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::pricing::FeeSchedule;

use super::chain::{NAME, SandboxChain};

/// The name the permit contract signs with (EIP-712 domain).
const PERMIT_NAME: &str = "Permit";
/// What the provider can deliver of each currency: a trillion in minor units.
pub(super) const OPENING_BALANCE: Minor = Minor::new(100_000_000_000_000);
pub(super) const CURRENCIES: [&str; 2] = ["USD", "EUR"];
pub(super) const PROVIDERS: [&str; 2] = ["northwind", "meridian"];
const FEES: FeeSchedule = FeeSchedule {
    protocol_fee_bps: 5,
    payout_fee_minor: Minor::new(50),
    network_fee_minor: Minor::new(30_000),
};
/// From the lock: six hours to fill, a day until the refund.
const WINDOWS: Windows = Windows { fill_secs: 6 * 3600, timelock_secs: 24 * 3600 };

pub(super) fn context(chain: &SandboxChain, vault: Vault) -> anyhow::Result<Context> {
    let at = &chain.deployment;
    let text = |address: &dyn std::fmt::Display| address.to_string();
    let facts =
        ChainFacts::new(at.chain_id, &text(&at.escrow), &text(&at.anchor), &text(&at.permit), PERMIT_NAME)
            .context("the deployment's addresses")?;
    let registry = registry(chain)?;
    Ok(Context {
        liquidity: Arc::new(Liquidity::configured(&registry, providers(chain))),
        registry,
        payout_provider: simulated::PROVIDER.into(),
        chain: facts,
        windows: WINDOWS,
        vault,
        rest_millis: simulated::rest_millis,
    })
}

fn registry(chain: &SandboxChain) -> anyhow::Result<Registry> {
    let mut assets: Vec<Asset> = chain
        .deployment
        .tokens
        .iter()
        .map(|token| {
            let kind =
                AssetKind::Erc20 { chain: NAME.into(), address: token.address.to_string().to_lowercase() };
            Asset { symbol: token.symbol.clone(), exponent: token.decimals, kind }
        })
        .collect();
    for currency in CURRENCIES {
        let kind = AssetKind::Fiat { currency: currency.into() };
        assets.push(Asset { symbol: currency.into(), exponent: 2, kind });
    }
    let pair = |quote: &str, price: &str| -> anyhow::Result<Pair> {
        let reference_price = price.parse().map_err(|error| anyhow!("price {price}: {error}"))?;
        let (base, quote) = ("USDC".into(), quote.into());
        Ok(Pair { base, quote, reference_price: Some(reference_price), fees: FEES })
    };
    Ok(Registry { assets, pairs: vec![pair("USD", "1")?, pair("EUR", "0.92")?] })
}

/// Two that differ in price and in how much they give, so that a quote shows a choice.
fn providers(chain: &SandboxChain) -> Vec<LiquidityProvider> {
    let wallet = chain.solver.address().to_string();
    vec![
        LiquidityProvider {
            full_depth_bps: 100,
            firm_ttl_sec: 60,
            ..LiquidityProvider::new(PROVIDERS[0], wallet.clone(), 10)
        },
        LiquidityProvider {
            full_depth_bps: 50,
            firm_ttl_sec: 60,
            ..LiquidityProvider::new(PROVIDERS[1], wallet, 25)
        },
    ]
}
