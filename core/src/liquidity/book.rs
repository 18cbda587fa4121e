//! The internal order book: resting orders of providers, filled by the best rate first, and the oldest first at equal
//! rates.

use std::time::Duration;

use dvp_domain::liquidity::{Curve, Deliverer, Offer, Policy, Reference, Rung, Venue};
use dvp_domain::time::Timestamp;
use dvp_store::orders::resting_orders::{self, RestingOrder};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use sqlx::PgPool;

use super::{Boxed, LiquiditySource, PairAssets, SourceError};
use crate::clock::now;

#[derive(Debug, Clone)]
pub struct BookConfig {
    pub id: String,
    pub policy: Policy,
    pub refresh_every: Duration,
    /// How long read resting orders stay valid. Their remaining amounts are read again, under lock, when an order
    /// commits.
    pub good_for: Duration,
    pub candidate_ttl_sec: u32,
}

impl Default for BookConfig {
    fn default() -> Self {
        Self {
            id: "book".into(),
            policy: Policy::default(),
            refresh_every: Duration::from_millis(250),
            good_for: Duration::from_secs(10),
            candidate_ttl_sec: 5,
        }
    }
}

pub struct OrderBook {
    config: BookConfig,
    pool: PgPool,
    read: RwLock<Option<(Vec<RestingOrder>, Timestamp)>>,
}

impl OrderBook {
    pub fn new(config: BookConfig, pool: PgPool) -> Self {
        Self { config, pool, read: RwLock::default() }
    }

    async fn read(&self) -> Result<(), SourceError> {
        let unavailable = |error: &dyn std::fmt::Display| SourceError::Unavailable(error.to_string());
        let requested = now();
        let mut conn = self.pool.acquire().await.map_err(|error| unavailable(&error))?;
        let levels = resting_orders::list_open(&mut conn).await.map_err(|error| unavailable(&error))?;
        *self.read.write() = Some((levels, requested));
        Ok(())
    }
}

fn rung(level: &RestingOrder, pair: PairAssets<'_>) -> Option<Rung> {
    let deliverer = Deliverer { provider_id: level.provider_id.clone(), wallet: level.wallet.clone() };
    let rung = Rung::new(deliverer, level.rate, level.remaining, (pair.input, pair.output))?;
    Some(Rung { level_id: Some(level.id), ..rung })
}

impl LiquiditySource for OrderBook {
    fn id(&self) -> &str {
        &self.config.id
    }

    fn offer(&self, pair: PairAssets<'_>, _reference: Option<&Reference>) -> Option<Offer> {
        let read = self.read.read();
        let (levels, at) = read.as_ref()?;
        let of_pair = |level: &&RestingOrder| {
            level.input_asset == pair.input.symbol && level.output_asset == pair.output.symbol
        };
        let mut rungs: Vec<Rung> =
            levels.iter().filter(of_pair).filter_map(|level| rung(level, pair)).collect();
        if rungs.is_empty() {
            return None;
        }
        // Stable: at equal rates the oldest stays first.
        rungs.sort_by_key(|rung| std::cmp::Reverse(rung.ratio));
        let good_for = i64::try_from(self.config.good_for.as_millis()).unwrap_or(i64::MAX);
        let depth = Value::from(rungs.len());
        Some(Offer {
            source: self.config.id.clone(),
            venue: Venue::OrderBook,
            curve: Curve::Ladder(rungs),
            policy: self.config.policy,
            full_depth_bps: 0,
            valid_until: at.plus_millis(good_for),
            ttl_sec: self.config.candidate_ttl_sec,
            // Another taker can take a resting order.
            firm_ttl_sec: None,
            latency_ms: None,
            answer: None,
            metadata: Map::from_iter([("orderbookDepth".to_owned(), depth)]),
        })
    }

    fn refresh_every(&self) -> Option<Duration> {
        Some(self.config.refresh_every)
    }

    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(self.read())
    }
}
