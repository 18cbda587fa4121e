//! The network fee of a pair from the present fees of the chains it uses.
//!
//! ```text
//! fee = floor(sum over chains of: (gas × fee per gas + bytes × L1 fee per byte) × price of the chain's coin in the
//!             input asset)
//! ```
//!
//! A token that is paid in is settled on its chain; a token that is paid out on another chain than that, or for money,
//! is a payment on its own. Where every such chain has a coin, the fee is computed, and the pair is not quoted while a
//! fee or a price is unknown or stale. Otherwise the configured fee holds. The sum is exact and rounded down once.

use rust_decimal::Decimal;

use super::{Reference, Snapshot};
use crate::asset::{Asset, Registry};
use crate::fees::{GasCharge, GasUse};
use crate::money::{Minor, U512, power_of_ten};
use crate::time::Timestamp;

/// A coin's smallest unit is 10^-18 of it.
const COIN_EXPONENT: u32 = 18;
/// The most decimal places of a price.
const PRICE_SCALE: u32 = Decimal::MAX_SCALE;

/// Gas of an order of a token for money, in full batches, its anchor included: measured, and rounded up.
pub const SETTLEMENT_GAS: u64 = 125_000;
/// Gas of a payment in a token, in full batches: measured, and rounded up.
pub const PAYMENT_GAS: u64 = 50_000;
/// Bytes of the calls of an order of a token for money (640 to lock it, 320 to commit and 320 to release it, 32 for the
/// anchor), in full batches, and of a payment, with the share of their transactions; rounded up.
pub const SETTLEMENT_BYTES: u64 = 1_350;
pub const PAYMENT_BYTES: u64 = 330;

/// What an order costs on a chain, and the coin that pays for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainGas {
    /// The name that assets refer to.
    pub chain: String,
    /// The ticker of the asset whose price is the coin's.
    pub coin: String,
    /// Gas of an order whose input is locked on the chain, all its transactions together.
    pub settlement_gas: u64,
    /// Gas of the payment of an output on the chain.
    pub payment_gas: u64,
    /// The bytes of their transactions, for a chain whose data is paid for on its L1.
    pub settlement_bytes: u64,
    pub payment_bytes: u64,
}

impl ChainGas {
    /// A chain on which an order costs what was measured.
    pub fn measured(chain: &str, coin: &str) -> Self {
        Self {
            chain: chain.to_owned(),
            coin: coin.to_owned(),
            settlement_gas: SETTLEMENT_GAS,
            payment_gas: PAYMENT_GAS,
            settlement_bytes: SETTLEMENT_BYTES,
            payment_bytes: PAYMENT_BYTES,
        }
    }
}

/// The fee of a chain, in wei per gas, and of a byte of data on its L1, zero where it pays for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GasPrice {
    pub wei: u128,
    pub data_wei: u128,
    /// The time from which it is stale and not used.
    pub valid_until: Timestamp,
}

impl GasPrice {
    /// The price that the relayer pays: the base fee and its tip, which is at least the floor, within its cap.
    pub fn paid(base_fee: u128, tip: u128, (floor, cap): (u128, u128)) -> u128 {
        base_fee.saturating_add(tip.max(floor)).min(cap)
    }
}

/// A computed network fee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFee {
    /// In the input asset.
    pub amount: Minor,
    pub charges: Vec<GasCharge>,
    /// The time from which it is stale and not used.
    pub valid_until: Timestamp,
}

/// The network fee of a pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PairNetworkFee {
    /// As the pair's schedule has it.
    #[default]
    Configured,
    Computed(NetworkFee),
    /// A fee or a price is unknown: the pair is not quoted.
    Unknown,
}

impl PairNetworkFee {
    /// The fee now, with the chains' parts, if it is known; `configured` when it is not computed.
    pub(super) fn at(&self, now: Timestamp, configured: Minor) -> Option<(Minor, &[GasCharge])> {
        match self {
            Self::Configured => Some((configured, &[])),
            Self::Computed(fee) => (now < fee.valid_until).then_some((fee.amount, fee.charges.as_slice())),
            Self::Unknown => None,
        }
    }
}

/// Sets the network fee of every pair of the registry in a snapshot, whose reference prices are final. `gas_price` has
/// a chain's; `unlisted` has prices of coins against assets with which they are no pair of the registry.
pub fn apply(
    snapshot: &mut Snapshot,
    registry: &Registry,
    chains: &[ChainGas],
    gas_price: impl Fn(&str) -> Option<GasPrice>,
    unlisted: impl Fn(&str, &str) -> Option<Reference>,
) {
    if chains.is_empty() {
        return;
    }
    for pair in &registry.pairs {
        let Some((input, output)) = registry.find(&pair.base).zip(registry.find(&pair.quote)) else {
            continue;
        };
        let fee = match uses(input, output, chains) {
            None => PairNetworkFee::Configured,
            Some(uses) => {
                let price = |coin: &str| coin_price(coin, input, snapshot, registry, &unlisted);
                computed(&uses, input.exponent, &gas_price, price)
                    .map_or(PairNetworkFee::Unknown, PairNetworkFee::Computed)
            }
        };
        snapshot.pair_mut(&pair.base, &pair.quote).network_fee = fee;
    }
}

/// The chains that an order of a pair uses. `None`: it uses none, or one without a coin.
fn uses<'c>(input: &Asset, output: &Asset, chains: &'c [ChainGas]) -> Option<Vec<(GasUse, &'c ChainGas)>> {
    let settlement = input.chain().map(|chain| (GasUse::Settlement, chain));
    // A token for a token of the same chain is one transaction.
    let payment = output.chain().filter(|chain| input.chain() != Some(chain));
    let payment = payment.map(|chain| (GasUse::Payment, chain));
    let used = settlement.into_iter().chain(payment);
    let find =
        |(gas_use, name): (GasUse, &str)| Some((gas_use, chains.iter().find(|chain| chain.chain == name)?));
    let uses = used.map(find).collect::<Option<Vec<_>>>()?;
    (!uses.is_empty()).then_some(uses)
}

fn computed(
    uses: &[(GasUse, &ChainGas)],
    exponent: u8,
    gas_price: impl Fn(&str) -> Option<GasPrice>,
    price: impl Fn(&str) -> Option<Reference>,
) -> Option<NetworkFee> {
    let mut charges = Vec::with_capacity(uses.len());
    let mut valid_until = Timestamp::from_millis(i64::MAX);
    for (gas_use, chain) in uses {
        let (paid, coin) = (gas_price(&chain.chain)?, price(&chain.coin)?);
        valid_until = valid_until.min(paid.valid_until).min(coin.valid_until);
        let (gas, data_use, bytes) = match gas_use {
            GasUse::Payment => (chain.payment_gas, GasUse::PaymentData, chain.payment_bytes),
            _ => (chain.settlement_gas, GasUse::SettlementData, chain.settlement_bytes),
        };
        let charge = |gas_use, gas, wei| GasCharge {
            chain: chain.chain.clone(),
            gas_use,
            gas,
            wei_per_gas: Minor::new(wei),
            coin: chain.coin.clone(),
            coin_price: coin.price,
        };
        charges.push(charge(*gas_use, gas, paid.wei));
        if paid.data_wei > 0 {
            charges.push(charge(data_use, bytes, paid.data_wei));
        }
    }
    Some(NetworkFee { amount: amount(&charges, exponent)?, charges, valid_until })
}

/// The price of a coin in an asset: 1 for the coin itself, the reference price of their pair where they are one, with
/// the coin of any chain, or else what the sources of prices say of the two.
fn coin_price(
    coin: &str,
    asset: &Asset,
    snapshot: &Snapshot,
    registry: &Registry,
    unlisted: impl Fn(&str, &str) -> Option<Reference>,
) -> Option<Reference> {
    if asset.ticker() == coin {
        return Some(Reference { price: Decimal::ONE, valid_until: Timestamp::from_millis(i64::MAX) });
    }
    let is_coin = |symbol: &str| registry.find(symbol).is_some_and(|base| base.ticker() == coin);
    let listed = registry.pairs.iter().filter(|pair| pair.quote == asset.symbol && is_coin(&pair.base));
    let mut listed = listed.peekable();
    if listed.peek().is_none() {
        return unlisted(coin, &asset.symbol);
    }
    listed.find_map(|pair| snapshot.pair(&pair.base, &pair.quote)?.reference)
}

/// The fee of these charges in an asset with `exponent` decimal places, rounded down. `None`: beyond 2^128 - 1 minor
/// units, or a price that is not positive.
pub fn amount(charges: &[GasCharge], exponent: u8) -> Option<Minor> {
    let mut sum = U512::ZERO;
    for charge in charges {
        let price = charge.coin_price;
        let mantissa = u128::try_from(price.mantissa()).ok().filter(|mantissa| *mantissa > 0)?;
        // Of all prices at one scale, so that they can be added.
        let scale = power_of_ten(PRICE_SCALE.checked_sub(price.scale())?);
        let exact = U512::from(charge.gas)
            .checked_mul(U512::from(charge.wei_per_gas.get()))?
            .checked_mul(U512::from(mantissa))?
            .checked_mul(scale)?;
        sum = sum.checked_add(exact)?;
    }
    let (unit, whole) = (u32::from(exponent), COIN_EXPONENT.checked_add(PRICE_SCALE)?);
    let minor = match whole.checked_sub(unit) {
        Some(down) => sum.checked_div(power_of_ten(down))?,
        None => {
            let up = unit.checked_sub(whole).filter(|up| *up <= PRICE_SCALE)?;
            sum.checked_mul(power_of_ten(up))?
        }
    };
    u128::try_from(minor).ok().map(Minor::new)
}

#[cfg(test)]
mod tests;
