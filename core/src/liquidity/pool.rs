//! A pool on the chain. Its state is read in the background; a provider with a balance of its own fills at the pool's
//! price, so that a fill never waits for a swap.
//!
//! One trade can move a pool's price, so its offers carry its time-weighted average price: from the pair's cumulative
//! prices as they were read before (v2), or from the pool's own observations (v3).

use std::sync::Arc;
use std::time::Duration;

use dvp_domain::asset::AssetKind;
use dvp_domain::liquidity::average::History;
use dvp_domain::liquidity::curve::{Pool, SwapDirection, tick_price};
use dvp_domain::liquidity::{AnswerId, Curve, Deliverer, Guard, Offer, Policy, Reference, Venue};
use dvp_domain::money::{Minor, Ratio};
use dvp_domain::time::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Map;

use super::references::read_until;
use super::taken::new_answer;
use super::{Boxed, LiquiditySource, PairAssets, SourceError};
use crate::chain::{PairReading, PoolReader, PriceBlock, TicksReading};
use crate::clock::now;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// A constant-product pair. The fee is in the code of its contract, and is not told.
    UniswapV2 { fee_bps: u32 },
    /// Concentrated liquidity.
    UniswapV3,
}

/// A pool and the provider that fills at its price.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub id: String,
    /// The name of the chain that it is on: tokens of other chains may have the same addresses.
    pub chain: String,
    /// The pool contract, `0x` and hex.
    pub address: String,
    pub kind: PoolKind,
    /// The time that the average price is made over, in seconds.
    pub window_secs: u32,
    /// How far the price may be from the average price and from the reference price, in basis points.
    pub deviation_bps: u32,
    /// The provider whose balance delivers.
    pub desk: Deliverer,
    pub policy: Policy,
    pub refresh_every: Duration,
    /// How long what was read stays valid, from the time of its block on.
    pub good_for: Duration,
    pub candidate_ttl_sec: u32,
}

/// One direction of a pool.
#[derive(Debug, Clone)]
struct Side {
    pool: Option<Pool>,
    average: Option<Ratio>,
    answer: AnswerId,
}

#[derive(Debug, Clone)]
struct Read {
    tokens: [String; 2],
    /// Token 0 is paid; token 1 is paid.
    sides: [Side; 2],
    block: PriceBlock,
    valid_until: Timestamp,
}

pub struct AmmPool {
    config: PoolConfig,
    reader: Arc<dyn PoolReader>,
    history: Mutex<History>,
    read: RwLock<Option<Read>>,
}

impl AmmPool {
    pub fn new(config: PoolConfig, reader: Arc<dyn PoolReader>) -> Self {
        let history = Mutex::new(History::new(config.window_secs));
        Self { config, reader, history, read: RwLock::default() }
    }

    async fn read(&self) -> Result<(), SourceError> {
        let PoolConfig { address, kind, window_secs, good_for, .. } = &self.config;
        let (block, tokens, sides) = match kind {
            PoolKind::UniswapV2 { fee_bps } => {
                let PairReading { block, tokens, state } = self.reader.pair(address).await.map_err(unread)?;
                let moment = state.at(block.time);
                let mut history = self.history.lock();
                if let Some(moment) = moment {
                    history.add(moment);
                }
                let averages = history.average();
                let reserves = [Minor::new(state.reserve0), Minor::new(state.reserve1)];
                let side = |paid: usize, given: usize| Side {
                    pool: Pool::product(reserves[paid], reserves[given], *fee_bps),
                    average: averages.map(|averages| averages[paid]),
                    answer: new_answer(),
                };
                (block, tokens, [side(0, 1), side(1, 0)])
            }
            PoolKind::UniswapV3 => {
                let answer = self.reader.ticks(address, *window_secs).await.map_err(unread)?;
                let TicksReading { block, tokens, state, average_tick } = answer;
                let side = |direction| Side {
                    pool: Pool::ticks(&state, direction),
                    average: average_tick.and_then(|tick| tick_price(tick, direction)),
                    answer: new_answer(),
                };
                (block, tokens, [SwapDirection::ZeroForOne, SwapDirection::OneForZero].map(side))
            }
        };
        let valid_until = read_until(block, *good_for, now())?;
        let mut read = Read { tokens, sides, block, valid_until };
        let mut newest = self.read.write();
        // The same block again has what it had before, less what orders have taken since.
        if let Some(before) = newest.as_ref().filter(|before| before.block == read.block) {
            for (side, before) in read.sides.iter_mut().zip(&before.sides) {
                side.answer = before.answer;
            }
        }
        *newest = Some(read);
        Ok(())
    }
}

fn unread(error: crate::chain::ChainUnavailable) -> SourceError {
    SourceError::Unavailable(error.to_string())
}

impl LiquiditySource for AmmPool {
    fn id(&self) -> &str {
        &self.config.id
    }

    fn offer(&self, pair: PairAssets<'_>, _reference: Option<&Reference>) -> Option<Offer> {
        let read = self.read.read();
        let Read { tokens: [token0, token1], sides: [zero_for_one, one_for_zero], valid_until, .. } =
            read.as_ref()?;
        let contract = |kind| contract(kind, &self.config.chain);
        let (input, output) = (contract(&pair.input.kind)?, contract(&pair.output.kind)?);
        let is = |token: &str, known: &str| token.eq_ignore_ascii_case(known);
        let side = if is(input, token0) && is(output, token1) {
            zero_for_one
        } else if is(input, token1) && is(output, token0) {
            one_for_zero
        } else {
            return None;
        };
        let guard = Guard { deviation_bps: self.config.deviation_bps, average: side.average };
        let deliverer = self.config.desk.clone();
        Some(Offer {
            source: self.config.id.clone(),
            venue: Venue::Pool,
            curve: Curve::Pool { deliverer, pool: side.pool.clone()?, guard },
            policy: self.config.policy,
            full_depth_bps: 0,
            valid_until: *valid_until,
            ttl_sec: self.config.candidate_ttl_sec,
            // Any account can trade with the pool at any time.
            firm_ttl_sec: None,
            latency_ms: None,
            answer: Some(side.answer),
            metadata: Map::new(),
        })
    }

    fn refresh_every(&self) -> Option<Duration> {
        Some(self.config.refresh_every)
    }

    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(self.read())
    }
}

fn contract<'a>(kind: &'a AssetKind, on: &str) -> Option<&'a str> {
    match kind {
        // A pool of a chain's coin is one of its wrapped coin.
        AssetKind::Erc20 { address: token, chain } | AssetKind::Native { wrapped: token, chain }
            if chain == on =>
        {
            Some(token)
        }
        AssetKind::Erc20 { .. } | AssetKind::Fiat { .. } | AssetKind::Native { .. } => None,
    }
}
