//! Assets, pairs and providers, and the addresses of the contracts.

use std::sync::{Arc, Mutex};

use dvp_core::context::ChainConfig;
use dvp_core::engine::Engine;
use dvp_core::liquidity::ReferenceSource;
use dvp_core::operators::targets::Targets;
use dvp_core::secrets::MasterKey;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::cell::CellId;
use dvp_domain::fees::FeeSchedule;
use dvp_domain::liquidity::{LiquidityProvider, Reference};
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use dvp_domain::windows::Windows;
use dvp_rails::iso20022::instruction::Debtor;
use dvp_sandbox::rails::PAYOUT_TIME;
use rust_decimal::Decimal;

/// USDC.
pub const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
pub const WETH: &str = "0x00000000000000000000000000000000000000bb";
/// ETH, as the contracts hold it.
pub const WRAPPED: &str = "0x00000000000000000000000000000000000000cc";
pub const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
/// Takes deposits where the market deals in the chain's coin.
pub const GATE: &str = "0xdddddddddddddddddddddddddddddddddddddddd";
pub const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
pub const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";
pub const CHAIN_ID: u64 = 31_337;
/// The chain beside it ([`Market::with_base`]).
pub const BASE_ID: u64 = 8_453;
pub const BASE_ESCROW: &str = "0x00000000000000000000000000000000000000e2";

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

    /// A second chain, with USDC at the same address, which is sold for USD and for that of the home chain.
    pub fn with_base(mut self) -> Self {
        let anchor = "0x00000000000000000000000000000000000000a2";
        let base = ChainConfig::new("base", BASE_ID, BASE_ESCROW, anchor, PERMIT, "Permit");
        self.further_chains.push(base.unwrap());
        let kind = AssetKind::Erc20 { chain: "base".into(), address: TOKEN.into() };
        self.registry.assets.push(Asset { symbol: "USDC.base".into(), exponent: 6, kind });
        self.registry.pairs.extend([pair("USDC.base", "USD", "1"), pair("USDC", "USDC.base", "1")]);
        self
    }
}

/// The reference price of one pair, which the test sets.
#[derive(Debug, Clone)]
pub struct Price {
    pair: (&'static str, &'static str),
    price: Arc<Mutex<Decimal>>,
}

impl Price {
    pub fn of(input: &'static str, output: &'static str, price: &str) -> Self {
        Self { pair: (input, output), price: Arc::new(Mutex::new(price.parse().unwrap())) }
    }

    pub fn set(&self, engine: &Engine, price: &str) {
        self.change(price);
        engine.context().liquidity.publish();
    }

    /// Engines see it when they look at their sources the next time.
    pub fn change(&self, price: &str) {
        *self.price.lock().unwrap() = price.parse().unwrap();
    }
}

impl ReferenceSource for Price {
    fn id(&self) -> &str {
        "test"
    }

    fn reference(&self, input: &str, output: &str) -> Option<Reference> {
        let price = *self.price.lock().unwrap();
        let valid_until = Timestamp::from_millis(i64::MAX);
        ((input, output) == self.pair).then_some(Reference { price, valid_until })
    }
}

impl Market {
    /// What operators' controls can be about.
    pub fn targets(&self) -> Targets {
        let further = self.further_chains.iter().map(|chain| chain.name.clone());
        let providers = self.providers.iter().map(|provider| provider.id.clone());
        Targets::new(&self.registry, std::iter::once("anvil".to_owned()).chain(further), providers)
    }
}

/// Every asset there is, in the order in which registries list them.
fn assets() -> Vec<Asset> {
    let token = |address: &str| AssetKind::Erc20 { chain: "anvil".into(), address: address.into() };
    let coin = AssetKind::Native { chain: "anvil".into(), wrapped: WRAPPED.into() };
    let fiat = |code: &str| AssetKind::Fiat { currency: code.into() };
    vec![
        Asset { symbol: "USDC".into(), exponent: 6, kind: token(TOKEN) },
        Asset { symbol: "WETH".into(), exponent: 18, kind: token(WETH) },
        Asset { symbol: "ETH".into(), exponent: 18, kind: coin },
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

/// Accounts that a bank pays from, by currency, number and BIC.
pub(crate) fn debtors<const N: usize>(accounts: [(&str, &str, &str); N]) -> Vec<Debtor> {
    let debtor = |(currency, account, bic): (&str, &str, &str)| Debtor {
        name: "DVP".into(),
        currency: currency.into(),
        account: account.into(),
        bic: bic.into(),
        country: bic[4..6].into(),
        town: None,
        street: None,
        post_code: None,
        purpose: None,
    };
    accounts.map(debtor).into()
}
