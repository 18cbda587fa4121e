use super::*;
use crate::asset::AssetKind;
use crate::decision::tests::pair;
use crate::fees::FeeSchedule;
use crate::intent::ActorType;
use crate::liquidity::{Ask, Market, Unlimited};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const LATER: Timestamp = Timestamp::from_millis(1_800_000_060_000);
const GWEI: u128 = 1_000_000_000;

fn charge(gas: u64, wei: u128, price: &str) -> GasCharge {
    GasCharge {
        chain: "anvil".into(),
        gas_use: GasUse::Settlement,
        gas,
        wei_per_gas: Minor::new(wei),
        coin: "ETH".into(),
        coin_price: price.parse().unwrap(),
    }
}

fn fee(charges: &[GasCharge], exponent: u8) -> Option<u128> {
    amount(charges, exponent).map(Minor::get)
}

#[test]
fn a_fee_is_gas_times_wei_times_price_rounded_down() {
    // 122,000 gas at 1 gwei are 0.000122 ETH, at 3,000 USDC 0.366 USDC.
    assert_eq!(fee(&[charge(122_000, GWEI, "3000")], 6), Some(366_000));
    assert_eq!(fee(&[charge(122_000, GWEI, "3000")], 2), Some(36));
    assert_eq!(fee(&[charge(122_000, GWEI, "3000")], 0), Some(0));
    // In the coin itself, to the wei.
    assert_eq!(fee(&[charge(122_000, GWEI, "1")], 18), Some(122_000 * GWEI));
    // 2,999.999999 of a unit is not 3,000.
    assert_eq!(fee(&[charge(1, 999_999_999_999_999_999, "0.003")], 6), Some(2_999));
    assert_eq!(fee(&[charge(1, GWEI * GWEI, "0.003")], 6), Some(3_000));
    assert_eq!(fee(&[charge(1, 1, "0.0000000000000000000000000001")], 46), Some(1));
}

#[test]
fn the_parts_of_two_chains_are_added_before_they_are_rounded() {
    let half = charge(1, GWEI * GWEI, "0.0000005");
    assert_eq!(fee(std::slice::from_ref(&half), 6), Some(0));
    assert_eq!(fee(&[half.clone(), half.clone()], 6), Some(1));
    // Prices of different scales.
    assert_eq!(fee(&[half, charge(1, GWEI * GWEI, "0.00000150")], 6), Some(2));
    assert_eq!(fee(&[], 6), Some(0));
}

#[test]
fn a_fee_beyond_all_amounts_is_none_and_never_a_smaller_one() {
    let most = u128::MAX;
    assert_eq!(fee(&[charge(1, most, "1")], 18), Some(most));
    assert_eq!(fee(&[charge(2, most, "1")], 18), None);
    assert_eq!(fee(&[charge(1, most, "1"), charge(1, 1, "1")], 18), None);
    assert_eq!(fee(&[charge(u64::MAX, most, "79228162514264337593543950335")], 0), None);
    assert_eq!(fee(&[charge(u64::MAX, most, "79228162514264337593543950335")], 255), None);
    assert_eq!(fee(&[charge(1, 1, "0")], 6), None);
    assert_eq!(fee(&[charge(1, 1, "-1")], 6), None);
    assert_eq!(fee(&[charge(0, most, "3000")], 6), Some(0));
}

#[test]
fn the_price_of_gas_is_the_base_fee_and_the_relayers_tip_within_its_cap() {
    assert_eq!(GasPrice::paid(40, 9, (5, 1_000)), 49);
    assert_eq!(GasPrice::paid(40, 1, (5, 1_000)), 45);
    assert_eq!(GasPrice::paid(u128::MAX, 9, (5, 1_000)), 1_000);
    assert_eq!(GasPrice::paid(u128::MAX, u128::MAX, (5, u128::MAX)), u128::MAX);
}

fn asset(symbol: &str, chain: Option<&str>, exponent: u8) -> Asset {
    let kind = match chain {
        Some(chain) => AssetKind::Erc20 { chain: chain.into(), address: "0xab".into() },
        None => AssetKind::Fiat { currency: symbol.into() },
    };
    Asset { symbol: symbol.into(), exponent, kind }
}

const CONFIGURED: Minor = Minor::new(30_000);
const PAIRS: [(&str, &str); 9] = [
    ("USDC", "USD"),
    ("USDC.base", "USD"),
    ("USDC", "USDC.base"),
    ("USDC", "WETH"),
    ("USD", "USDC"),
    ("USD", "EUR"),
    ("USDC.other", "USD"),
    ("WETH", "USDC"),
    ("WETH.base", "USDC.base"),
];

fn registry() -> Registry {
    let fees = FeeSchedule { network_fee_minor: CONFIGURED, ..FeeSchedule::default() };
    Registry {
        assets: vec![
            asset("USDC", Some("anvil"), 6),
            asset("WETH", Some("anvil"), 18),
            asset("USDC.base", Some("base"), 6),
            asset("WETH.base", Some("base"), 18),
            asset("USDC.other", Some("other"), 6),
            asset("USD", None, 2),
            asset("EUR", None, 2),
        ],
        pairs: PAIRS.map(|(base, quote)| pair(base, quote, fees)).into(),
    }
}

fn chain(name: &str) -> ChainGas {
    ChainGas { settlement_gas: 122_000, payment_gas: 50_000, ..ChainGas::measured(name, "WETH") }
}

/// What is known of the market.
#[derive(Clone)]
struct Known {
    /// By chain.
    wei: Vec<(&'static str, GasPrice)>,
    /// Of listed pairs.
    references: Vec<(&'static str, &'static str, Reference)>,
    /// Of others.
    unlisted: Option<Reference>,
}

fn reference(price: &str, valid_until: Timestamp) -> Reference {
    Reference { price: price.parse().unwrap(), valid_until }
}

impl Default for Known {
    fn default() -> Self {
        let at = |wei| GasPrice { wei, data_wei: 0, valid_until: LATER };
        Self {
            wei: vec![("anvil", at(GWEI)), ("base", at(GWEI / 100))],
            references: vec![
                ("WETH", "USDC", reference("3000", LATER)),
                ("WETH.base", "USDC.base", reference("3000", LATER)),
            ],
            unlisted: Some(reference("3300", LATER)),
        }
    }
}

impl Known {
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (base, quote, reference) in &self.references {
            snapshot.pair_mut(base, quote).reference = Some(*reference);
        }
        let wei = |chain: &str| self.wei.iter().find(|(name, _)| *name == chain).map(|(_, wei)| *wei);
        let chains = [chain("anvil"), chain("base")];
        apply(&mut snapshot, &registry(), &chains, wei, |coin, asset| {
            assert_eq!((coin, asset), ("WETH", "USD"));
            self.unlisted
        });
        snapshot
    }

    /// The fee that an order of a pair is charged, and the number of the chains it is made of.
    fn fee(&self, input: &str, output: &str, now: Timestamp) -> Option<(u128, usize)> {
        let (registry, snapshot) = (registry(), self.snapshot());
        let market = Market { registry: &registry, snapshot: &snapshot, holdings: &Unlimited, now };
        let (input, output) = (registry.find(input)?, registry.find(output)?);
        let ask = Ask { input, output, actor: ActorType::Institution, firm: false };
        let charges = market.charges(&ask)?;
        Some((charges.fees.network_fee_minor.get(), charges.gas.len()))
    }
}

#[test]
fn a_pair_is_charged_for_the_chains_that_its_orders_use() {
    let known = Known::default();
    let fee = |input, output| known.fee(input, output, NOW);
    assert_eq!(fee("USDC", "USD"), Some((366_000, 1)));
    assert_eq!(fee("USDC.base", "USD"), Some((3_660, 1)));
    assert_eq!(fee("USDC", "WETH"), Some((366_000, 1)), "one transaction");
    assert_eq!(fee("USDC", "USDC.base"), Some((366_000 + 1_500, 2)));
    assert_eq!(fee("USD", "USDC"), Some((16, 1)), "50,000 gas at 1 gwei and 3,300 USD: 16.5 cents");
    assert_eq!(fee("WETH", "USDC"), Some((122_000 * GWEI, 1)), "in the coin itself");
}

/// A rollup whose data costs 2 gwei a byte on its L1: 1,350 bytes of a settlement, 330 of a payment.
#[test]
fn the_bytes_that_a_rollup_publishes_are_charged_beside_its_gas() {
    let mut known = Known::default();
    known.wei[1].1.data_wei = 2 * GWEI;
    let fee = |input, output| known.fee(input, output, NOW);
    assert_eq!(fee("USDC.base", "USD"), Some((3_660 + 8_100, 2)));
    assert_eq!(fee("USDC", "USDC.base"), Some((366_000 + 1_500 + 1_980, 3)));
    assert_eq!(fee("USDC", "USD"), Some((366_000, 1)), "its L1 pays for none");
}

#[test]
fn a_pair_without_a_chain_or_with_one_that_has_no_coin_keeps_the_configured_fee() {
    let known = Known { wei: vec![], references: vec![], unlisted: None };
    let configured = Some((CONFIGURED.get(), 0));
    assert_eq!(known.fee("USD", "EUR", NOW), configured);
    assert_eq!(known.fee("USDC.other", "USD", NOW), configured);
    assert_eq!(known.fee("USDC", "USD", NOW), None);
}

#[test]
fn a_pair_is_not_quoted_without_a_fresh_fee_and_a_fresh_price() {
    let quoted = |known: &Known, now| known.fee("USDC", "USD", now).is_some();
    let known = Known::default();
    assert!(quoted(&known, LATER.plus_millis(-1)));
    assert!(!quoted(&known, LATER));
    let stale = GasPrice { wei: GWEI, data_wei: 0, valid_until: NOW };
    assert!(!quoted(&Known { wei: vec![("anvil", stale)], ..Known::default() }, NOW));
    assert!(!quoted(&Known { wei: vec![], ..Known::default() }, NOW));
    let priced = |price, until| Known {
        references: vec![("WETH", "USDC", reference(price, until))],
        ..Known::default()
    };
    assert!(quoted(&priced("3000", LATER), NOW));
    assert!(!quoted(&priced("3000", NOW), NOW), "stale");
    assert!(!quoted(&priced("0", LATER), NOW), "no price");
    // A listed pair whose price was withdrawn is not replaced by another source's price.
    assert!(!quoted(&Known { references: vec![], ..Known::default() }, NOW));
    let mut dear = priced("79228162514264337593543950335", LATER);
    assert!(quoted(&dear, NOW));
    dear.wei = vec![("anvil", GasPrice { wei: u128::MAX, data_wei: 0, valid_until: LATER })];
    assert!(!quoted(&dear, NOW), "beyond all amounts");
    // Neither does one chain of two.
    let home = Known {
        wei: vec![("anvil", GasPrice { wei: GWEI, data_wei: 0, valid_until: LATER })],
        ..Known::default()
    };
    assert!(home.fee("USDC", "USDC.base", NOW).is_none() && quoted(&home, NOW));
}
