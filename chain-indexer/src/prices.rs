//! Pools and price feeds for the liquidity sources: views at the latest block.
//!
//! This data makes prices, not settlements, so a block that is reorganised away costs a stale quote at worst.

use crate::contracts::feed::PriceFeed;
use crate::contracts::pool::ConstantProductPool;
use crate::rpc;
use alloy::eips::BlockId;
use alloy::primitives::Address;
use alloy::providers::DynProvider;
use alloy::sol_types::SolCall;
use alloy::transports::TransportError;
use dvp_core::chain::{ChainUnavailable, FeedReader, FeedRound, PoolReader, PoolReserves};
use std::pin::Pin;
use std::time::Duration;

/// The time limit of one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Reads a chain through one endpoint.
#[derive(Clone)]
pub struct ChainPrices {
    provider: DynProvider,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ChainUnavailable>> + Send + 'a>>;

impl ChainPrices {
    /// Does not connect yet.
    pub fn new(rpc_url: &str) -> Result<Self, TransportError> {
        Ok(Self { provider: rpc::connect(rpc_url)? })
    }

    async fn view<C: SolCall + Sync>(&self, to: Address, call: C) -> Result<C::Return, ChainUnavailable> {
        tokio::time::timeout(ANSWER_WITHIN, rpc::view(&self.provider, to, &call, BlockId::latest()))
            .await
            .map_err(|_| ChainUnavailable("no answer in time".to_owned()))?
            .map_err(|error| ChainUnavailable(error.to_string()))
    }

    async fn pool(&self, pool: &str) -> Result<PoolReserves, ChainUnavailable> {
        let at = address(pool)?;
        let reserves = self.view(at, ConstantProductPool::getReservesCall {}).await?;
        let token0 = self.view(at, ConstantProductPool::token0Call {}).await?;
        let token1 = self.view(at, ConstantProductPool::token1Call {}).await?;
        let fee = self.view(at, ConstantProductPool::feeBpsCall {}).await?;
        Ok(PoolReserves {
            token0: format!("{token0:#x}"),
            token1: format!("{token1:#x}"),
            reserve0: reserves.reserve0,
            reserve1: reserves.reserve1,
            fee_bps: u32::try_from(fee).map_err(|_| ChainUnavailable("a fee out of range".into()))?,
        })
    }

    async fn round(&self, feed: &str) -> Result<FeedRound, ChainUnavailable> {
        let at = address(feed)?;
        let decimals = self.view(at, PriceFeed::decimalsCall {}).await?;
        let round = self.view(at, PriceFeed::latestRoundDataCall {}).await?;
        let beyond = |_| ChainUnavailable("an answer out of range".into());
        Ok(FeedRound {
            answer: i128::try_from(round.answer)
                .map_err(|_| ChainUnavailable("an answer out of range".into()))?,
            decimals,
            updated_at: u64::try_from(round.updatedAt).map_err(beyond)?,
        })
    }
}

fn address(text: &str) -> Result<Address, ChainUnavailable> {
    text.parse().map_err(|_| ChainUnavailable(format!("{text} is no address")))
}

impl PoolReader for ChainPrices {
    fn reserves<'a>(&'a self, pool: &'a str) -> Answer<'a, PoolReserves> {
        Box::pin(self.pool(pool))
    }
}

impl FeedReader for ChainPrices {
    fn latest_round<'a>(&'a self, feed: &'a str) -> Answer<'a, FeedRound> {
        Box::pin(self.round(feed))
    }
}
