//! What the sandbox's partners and providers have at first.

use dvp_domain::money::Minor;

/// A provider's inventory of each asset: a trillion of a currency; of tokens its wallet's balance.
pub(super) const OPENING_BALANCES: [(&str, Minor); 5] = [
    ("USD", Minor::new(100_000_000_000_000)),
    ("EUR", Minor::new(100_000_000_000_000)),
    ("USDC", Minor::new(200_000_000_000_000)),
    ("WETH", Minor::new(200_000_000_000_000_000_000)),
    (COIN, Minor::new(200_000_000_000_000_000_000)),
];
/// The coin of each chain.
pub(super) const COIN: &str = "ETH";
pub(super) const COIN_DECIMALS: u8 = 18;
/// A partner's prefunded balance of each currency: a hundred million.
pub(super) const PREFUNDED: Minor = Minor::new(10_000_000_000);
pub(super) const CURRENCIES: [&str; 2] = ["USD", "EUR"];
/// Two configured ones, the desk that fills at the pool's price, and one that leaves orders resting.
pub(super) const PROVIDERS: [&str; 4] = ["northwind", "meridian", "pool-desk", "harbour"];

/// What all providers have of a token at first: their wallet holds as much.
pub(super) fn opening_inventory(asset: &str) -> u128 {
    let opening = OPENING_BALANCES.iter().find(|(known, _)| *known == asset);
    let amount = opening.map_or(0, |(_, amount)| amount.get());
    PROVIDERS.iter().map(|_| amount).sum()
}
