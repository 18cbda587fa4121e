//! The assets and pairs that the service deals in, and how a caller names them (spec section 2.5, AssetDescriptor).

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::fees::FeeSchedule;
use crate::money::Minor;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum AssetKind {
    /// A token contract on a named chain; `address` is lowercase hex with `0x`.
    Erc20 { chain: String, address: String },
    /// An ISO 4217 currency.
    Fiat { currency: String },
    /// The coin of a named chain; `wrapped` is the token contract that holds it for the service, lowercase hex with `0x`.
    Native { chain: String, wrapped: String },
}

/// Stands for a chain's coin where a payment names its token, as in the payout contract.
pub const COIN: &str = "0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

/// An asset of the registry. `exponent` is the count of decimal places of its minor unit.
///
/// A token on two chains is two assets. On the ticker's default chain the symbol is the ticker (`USDC`), on any other
/// it is the ticker and the chain's name (`USDC.base`), so that everything keyed by symbol tells the two apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    pub symbol: String,
    pub exponent: u8,
    pub kind: AssetKind,
}

impl Asset {
    pub const fn is_fiat(&self) -> bool {
        matches!(self.kind, AssetKind::Fiat { .. })
    }

    /// The chain's name, for an asset that lives on one.
    pub fn chain(&self) -> Option<&str> {
        match &self.kind {
            AssetKind::Erc20 { chain, .. } | AssetKind::Native { chain, .. } => Some(chain),
            AssetKind::Fiat { .. } => None,
        }
    }

    /// Whether it is a chain's coin, which is deposited and not pulled.
    pub const fn is_native(&self) -> bool {
        matches!(self.kind, AssetKind::Native { .. })
    }

    /// The token contract that holds it for the service and its providers: the wrapped coin of a chain's coin.
    pub fn held_as(&self) -> Option<&str> {
        match &self.kind {
            AssetKind::Erc20 { address, .. } => Some(address),
            AssetKind::Native { wrapped, .. } => Some(wrapped),
            AssetKind::Fiat { .. } => None,
        }
    }

    /// What a payment of it names as its token.
    pub fn paid_as(&self) -> Option<&str> {
        match &self.kind {
            AssetKind::Erc20 { address, .. } => Some(address),
            AssetKind::Native { .. } => Some(COIN),
            AssetKind::Fiat { .. } => None,
        }
    }

    /// The symbol without the chain's name.
    pub fn ticker(&self) -> &str {
        let on_chain = |chain| self.symbol.strip_suffix(chain)?.strip_suffix('.');
        self.chain().and_then(on_chain).filter(|ticker| !ticker.is_empty()).unwrap_or(&self.symbol)
    }
}

/// The `type` of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AssetType {
    Erc20,
    Fiat,
    Native,
}

/// An asset as the caller describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssetDescriptor {
    #[serde(rename = "type")]
    pub kind: AssetType,
    pub symbol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

/// A pair that liquidity sources may price: `base` is paid, `quote` is received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub base: String,
    pub quote: String,
    /// The configured reference price: quote units per one base unit, before spread and fees. `None` when the price
    /// comes from a feed.
    pub reference_price: Option<Decimal>,
    /// The fees, which are the same for every provider.
    pub fees: FeeSchedule,
    /// The smallest order, in the base's minor units; below it the transactions cost more than the order earns.
    pub min_input: Minor,
    /// The largest order, in the base's minor units, if there is a limit.
    pub max_input: Option<Minor>,
}

/// Which orders a pair takes, by what they pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderSizes {
    pub min: Minor,
    pub max: Option<Minor>,
}

impl OrderSizes {
    pub fn take(&self, input: Minor) -> bool {
        input >= self.min && self.max.is_none_or(|max| input <= max)
    }
}

impl Pair {
    pub const fn sizes(&self) -> OrderSizes {
        OrderSizes { min: self.min_input, max: self.max_input }
    }
}

/// Every asset and pair the service knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Registry {
    pub assets: Vec<Asset>,
    pub pairs: Vec<Pair>,
}

impl Registry {
    pub fn find(&self, symbol: &str) -> Option<&Asset> {
        self.assets.iter().find(|asset| asset.symbol == symbol)
    }

    pub fn pair(&self, base: &str, quote: &str) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.base == base && pair.quote == quote)
    }

    /// The asset that a descriptor names: by its symbol, or by its ticker and chain. Every field that the caller filled
    /// in must agree with the registry.
    pub fn resolve(&self, descriptor: &AssetDescriptor) -> Option<&Asset> {
        let AssetDescriptor { symbol, chain, .. } = descriptor;
        let on_chain = chain.as_ref().and_then(|chain| {
            let is_on = |asset: &Asset| asset.chain().is_some_and(|on| on.eq_ignore_ascii_case(chain));
            self.assets.iter().find(|asset| asset.ticker() == symbol && is_on(asset))
        });
        let asset = on_chain.or_else(|| self.find(symbol))?;
        let agrees =
            |said: &Option<String>, known: &str| said.as_ref().is_none_or(|s| s.eq_ignore_ascii_case(known));
        let same = match (&asset.kind, descriptor.kind) {
            (AssetKind::Erc20 { chain, address }, AssetType::Erc20) => {
                agrees(&descriptor.chain, chain)
                    && agrees(&descriptor.address, address)
                    && descriptor.currency.is_none()
            }
            (AssetKind::Fiat { currency }, AssetType::Fiat) => {
                agrees(&descriptor.currency, currency)
                    && descriptor.chain.is_none()
                    && descriptor.address.is_none()
            }
            (AssetKind::Native { chain, .. }, AssetType::Native) => {
                agrees(&descriptor.chain, chain)
                    && agrees(&descriptor.address, COIN)
                    && descriptor.currency.is_none()
            }
            (AssetKind::Erc20 { .. } | AssetKind::Fiat { .. } | AssetKind::Native { .. }, _) => false,
        };
        same.then_some(asset)
    }

    /// Gives a descriptor the symbol of its asset, by which everything behind the interfaces knows it. One that names no
    /// asset stays as it is.
    pub fn normalise(&self, descriptor: &mut AssetDescriptor) {
        if let Some(asset) = self.resolve(descriptor) {
            descriptor.symbol.clone_from(&asset.symbol);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        let token = |symbol: &str, chain: &str| {
            let kind = AssetKind::Erc20 { chain: chain.into(), address: "0xab".into() };
            Asset { symbol: symbol.into(), exponent: 6, kind }
        };
        let coin = |symbol: &str, chain: &str| {
            let kind = AssetKind::Native { chain: chain.into(), wrapped: "0xcd".into() };
            Asset { symbol: symbol.into(), exponent: 18, kind }
        };
        let usd = AssetKind::Fiat { currency: "USD".into() };
        Registry {
            assets: vec![
                token("USDC", "anvil"),
                token("USDC.base2", "base2"),
                token("EURC.e", "base2"),
                Asset { symbol: "USD".into(), exponent: 2, kind: usd },
                coin("ETH", "anvil"),
                coin("ETH.base2", "base2"),
            ],
            pairs: vec![],
        }
    }

    fn resolves(json: &str) -> bool {
        registry().resolve(&serde_json::from_str(json).unwrap()).is_some()
    }

    #[test]
    fn a_descriptor_resolves_only_when_every_field_it_states_agrees() {
        assert!(resolves(r#"{"type":"erc20","symbol":"USDC"}"#));
        assert!(resolves(r#"{"type":"erc20","symbol":"USDC","address":"0xAB","chain":"anvil"}"#));
        assert!(!resolves(r#"{"type":"erc20","symbol":"USDC","address":"0xcd"}"#));
        assert!(!resolves(r#"{"type":"erc20","symbol":"USDC","chain":"base"}"#));
        assert!(!resolves(r#"{"type":"native","symbol":"USDC"}"#));
        assert!(!resolves(r#"{"type":"fiat","symbol":"USD","currency":"EUR"}"#));
        assert!(resolves(r#"{"type":"fiat","symbol":"USD","currency":"USD"}"#));
        assert!(!resolves(r#"{"type":"fiat","symbol":"GBP"}"#));
        assert!(resolves(r#"{"type":"native","symbol":"ETH"}"#));
        assert!(resolves(r#"{"type":"native","symbol":"ETH","chain":"base2"}"#));
        assert!(
            !resolves(r#"{"type":"native","symbol":"ETH","address":"0xcd"}"#),
            "the wrapped coin is another asset"
        );
        assert!(!resolves(r#"{"type":"erc20","symbol":"ETH"}"#));
    }

    #[test]
    fn a_token_on_two_chains_is_two_assets() {
        let registry = registry();
        let symbol = |json: &str| {
            let mut descriptor: AssetDescriptor = serde_json::from_str(json).unwrap();
            registry.normalise(&mut descriptor);
            let again = registry.resolve(&descriptor).map(|asset| asset.symbol.clone());
            assert!(again.is_none_or(|again| again == descriptor.symbol), "{json}");
            descriptor.symbol
        };
        assert_eq!(symbol(r#"{"type":"erc20","symbol":"USDC"}"#), "USDC", "the default chain");
        assert_eq!(symbol(r#"{"type":"erc20","symbol":"USDC","chain":"anvil"}"#), "USDC");
        assert_eq!(symbol(r#"{"type":"erc20","symbol":"USDC","chain":"Base2"}"#), "USDC.base2");
        assert_eq!(symbol(r#"{"type":"erc20","symbol":"USDC.base2"}"#), "USDC.base2");
        assert_eq!(symbol(r#"{"type":"erc20","symbol":"USDC.base2","chain":"base2"}"#), "USDC.base2");
        assert!(!resolves(r#"{"type":"erc20","symbol":"USDC.base2","chain":"anvil"}"#));
        assert!(!resolves(r#"{"type":"erc20","symbol":"USDC","chain":"base"}"#));
        let ticker = |symbol| registry.find(symbol).map(Asset::ticker);
        assert_eq!(ticker("USDC.base2"), Some("USDC"));
        assert_eq!(ticker("EURC.e"), Some("EURC.e"), "a dot that is not the chain's");
    }
}
