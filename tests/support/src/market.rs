//! Assets, pairs and providers, and the addresses of the contracts.

use dvp_core::context::ChainConfig;
use dvp_core::secrets::MasterKey;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::cell::CellId;
use dvp_domain::fees::FeeSchedule;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::windows::Windows;
use dvp_sandbox::rails::PAYOUT_TIME;

/// USDC.
pub const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
pub const WETH: &str = "0x00000000000000000000000000000000000000bb";
pub const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
pub const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
pub const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";
pub const CHAIN_ID: u64 = 31_337;

/// The market of a harness, and the providers' balances.
#[derive(Debug, Clone)]
pub struct Market {
    /// The cell whose digits the identifiers carry.
    pub cell: Option<CellId>,
    pub registry: Registry,
    pub providers: Vec<LiquidityProvider>,
    /// Initial balances of providers: provider, asset and minor units.
    pub funds: Vec<(String, String, u128)>,
    /// The chains beside the home chain.
    pub further_chains: Vec<ChainConfig>,
    /// The time that each part of a settlement has.
    pub windows: Windows,
}

impl Market {
    /// These pairs, and one provider for all of them that holds nothing.
    pub fn new(pairs: Vec<Pair>) -> Self {
        let is_traded =
            |asset: &Asset| pairs.iter().any(|pair| [&pair.base, &pair.quote].contains(&&asset.symbol));
        let assets = assets().into_iter().filter(is_traded).collect();
        Self {
            cell: None,
            registry: Registry { assets, pairs },
            providers: vec![north()],
            funds: Vec::new(),
            further_chains: Vec::new(),
            windows: Windows { fill_secs: 3600, margin_secs: 3600, payout: PAYOUT_TIME, finality_secs: 600 },
        }
    }

    pub fn with_provider(mut self, provider: LiquidityProvider) -> Self {
        self.providers.push(provider);
        self
    }

    /// Gives a provider money; `amount` is in minor units.
    pub fn with_funds(mut self, provider: &str, asset: &str, amount: u128) -> Self {
        self.funds.push((provider.to_owned(), asset.to_owned(), amount));
        self
    }
}

/// Every asset there is, in the order in which registries list them.
fn assets() -> Vec<Asset> {
    let token = |address: &str| AssetKind::Erc20 { chain: "anvil".into(), address: address.into() };
    let fiat = |code: &str| AssetKind::Fiat { currency: code.into() };
    vec![
        Asset { symbol: "USDC".into(), exponent: 6, kind: token(TOKEN) },
        Asset { symbol: "WETH".into(), exponent: 18, kind: token(WETH) },
        Asset { symbol: "USD".into(), exponent: 2, kind: fiat("USD") },
        Asset { symbol: "EUR".into(), exponent: 2, kind: fiat("EUR") },
    ]
}

/// The fees of every pair, unless a test has others.
pub fn fees() -> FeeSchedule {
    FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(50),
        network_fee_minor: Minor::new(30_000),
    }
}

/// A pair without bounds.
pub fn pair(base: &str, quote: &str, price: &str) -> Pair {
    Pair {
        base: base.into(),
        quote: quote.into(),
        reference_price: Some(price.parse().unwrap()),
        fees: fees(),
        min_input: Minor::ZERO,
        max_input: None,
    }
}

/// A provider for every pair, at one price for every size.
pub fn north() -> LiquidityProvider {
    LiquidityProvider {
        full_depth_bps: 100,
        ..LiquidityProvider::new("north", "0x0000000000000000000000000000000000000001", 10)
    }
}

pub fn master_key(id: &str, byte: u8) -> MasterKey {
    MasterKey { id: id.to_owned(), key: [byte; 32] }
}
