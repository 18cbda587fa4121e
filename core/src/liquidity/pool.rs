//! A constant-product pool on the chain. Its reserves are read in the background; a provider with a balance of its own
//! fills at the pool's price, so that a fill never waits for a swap.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dvp_domain::asset::AssetKind;
use dvp_domain::liquidity::curve::Pool;
use dvp_domain::liquidity::{Curve, Deliverer, Offer, Policy, Reference, Venue};
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use serde_json::Map;

use super::references::read_until;
use super::{Boxed, LiquiditySource, PairAssets, SourceError};
use crate::chain::{PoolReader, PoolReserves};
use crate::clock::now;

/// A pool and the provider that fills at its price.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The source's id.
    pub id: String,
    /// The name of the chain that it is on: tokens of other chains may have the same addresses.
    pub chain: String,
    /// The pool contract, `0x` and hex.
    pub address: String,
    /// The provider whose balance delivers.
    pub desk: Deliverer,
    pub policy: Policy,
    pub refresh_every: Duration,
    /// How long read reserves stay valid, from their block's time on.
    pub good_for: Duration,
    pub candidate_ttl_sec: u32,
}

pub struct AmmPool {
    config: PoolConfig,
    reader: Arc<dyn PoolReader>,
    read: RwLock<Option<(PoolReserves, Timestamp)>>,
}

impl AmmPool {
    pub fn new(config: PoolConfig, reader: Arc<dyn PoolReader>) -> Self {
        Self { config, reader, read: RwLock::default() }
    }

    async fn read(&self) -> Result<(), SourceError> {
        let reserves = self.reader.reserves(&self.config.address).await;
        let reserves = reserves.map_err(|error| SourceError::Unavailable(error.to_string()))?;
        let until = read_until(reserves.block, self.config.good_for, now())?;
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = Some((reserves, until));
        Ok(())
    }
}

impl LiquiditySource for AmmPool {
    fn id(&self) -> &str {
        &self.config.id
    }

    fn offer(&self, pair: PairAssets<'_>, _reference: Option<&Reference>) -> Option<Offer> {
        let (reserves, valid_until) = self.read.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let contract = |kind| contract(kind, &self.config.chain);
        let (input, output) = (contract(&pair.input.kind)?, contract(&pair.output.kind)?);
        let is = |token: &str, known: &str| token.eq_ignore_ascii_case(known);
        let PoolReserves { token0, token1, reserve0, reserve1, fee_bps, block: _ } = &reserves;
        let (paid, given) = if is(input, token0) && is(output, token1) {
            (reserve0, reserve1)
        } else if is(input, token1) && is(output, token0) {
            (reserve1, reserve0)
        } else {
            return None;
        };
        let pool = Pool::new(Minor::new(*paid), Minor::new(*given), *fee_bps)?;
        Some(Offer {
            source: self.config.id.clone(),
            venue: Venue::Pool,
            curve: Curve::Pool { deliverer: self.config.desk.clone(), pool },
            policy: self.config.policy,
            full_depth_bps: 0,
            valid_until,
            ttl_sec: self.config.candidate_ttl_sec,
            // Any account can trade with the pool at any time.
            firm_ttl_sec: None,
            latency_ms: None,
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
        AssetKind::Erc20 { address, chain } if chain == on => Some(address),
        AssetKind::Erc20 { .. } | AssetKind::Fiat { .. } => None,
    }
}
