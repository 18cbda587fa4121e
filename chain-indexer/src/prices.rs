//! Pools and price feeds for the liquidity sources: views at one block, the newest that any endpoint of the chain has.
//!
//! This data makes prices, not settlements, so a block that is reorganised away costs a stale quote at worst. An
//! endpoint that has stopped answers with its last block: the readers of an answer count its age from the block's time.

mod pair;
mod ticks;

use crate::contracts::feed::PriceFeed;
use crate::rpc::{self, BatchedView, BlockHead};
use alloy::eips::BlockId;
use alloy::primitives::Address;
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::client::BatchRequest;
use alloy::transports::{TransportError, TransportErrorKind};
use dvp_core::chain::{
    ChainAnswer, ChainUnavailable, FeedReader, FeedRound, PairReading, PoolReader, PriceBlock, TicksReading,
};
use dvp_core::context::now;
use futures_util::future::join_all;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The time limit of one answer, all endpoints together.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The time limit of an endpoint that says its newest block.
const HEAD_WITHIN: Duration = Duration::from_secs(1);
/// The tolerated difference of the chain's clock.
const CLOCK_SKEW_SECS: u64 = 60;

#[derive(Clone)]
pub struct ChainPrices {
    providers: Arc<[DynProvider]>,
}

struct At<'a> {
    provider: &'a DynProvider,
    block: BlockHead,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

impl At<'_> {
    /// By hash: the block itself, or an error.
    fn id(&self) -> BlockId {
        self.block.hash.into()
    }

    const fn price_block(&self) -> PriceBlock {
        PriceBlock { number: self.block.number, time: self.block.timestamp }
    }

    async fn round(&self, feed: Address) -> Result<FeedRound, TransportError> {
        use PriceFeed::{decimalsCall, latestRoundDataCall};
        let mut batch = BatchRequest::new(self.provider.client());
        let decimals = BatchedView::add(&mut batch, feed, decimalsCall {}, self.id())?;
        let round = BatchedView::add(&mut batch, feed, latestRoundDataCall {}, self.id())?;
        batch.send().await?;
        let round = round.answer(self.provider).await?;
        Ok(FeedRound {
            block: self.price_block(),
            answer: i128::try_from(round.answer).map_err(|_| out_of_range("an answer"))?,
            decimals: decimals.answer(self.provider).await?,
            updated_at: u64::try_from(round.updatedAt).map_err(|_| out_of_range("an update time"))?,
        })
    }
}

fn out_of_range(what: &str) -> TransportError {
    TransportErrorKind::custom_str(&format!("{what} out of range"))
}

impl ChainPrices {
    /// Over the endpoints of one chain. Does not connect yet.
    pub fn over<'a>(rpc_urls: impl IntoIterator<Item = &'a str>) -> Result<Self, TransportError> {
        Ok(Self { providers: rpc_urls.into_iter().map(rpc::connect).collect::<Result<_, _>>()? })
    }

    /// The endpoints with their newest blocks, newest first. A block from the future is no block.
    async fn heads(&self) -> Result<Vec<At<'_>>, ChainUnavailable> {
        let head = async |provider| {
            let block = tokio::time::timeout(HEAD_WITHIN, rpc::head(provider)).await;
            let block = block.map_err(|_| ChainUnavailable("no answer in time".to_owned()))?;
            let block = block.map_err(|error| ChainUnavailable(rpc::told(&error)))?;
            if block.timestamp > now().unix_secs().saturating_add(CLOCK_SKEW_SECS) {
                return Err(ChainUnavailable("a block from the future".to_owned()));
            }
            Ok(At { provider, block })
        };
        let (mut heads, mut fault) = (Vec::new(), ChainUnavailable("no endpoint".to_owned()));
        for answer in join_all(self.providers.iter().map(head)).await {
            match answer {
                Ok(at) => heads.push(at),
                Err(error) => fault = error,
            }
        }
        heads.sort_by_key(|at| std::cmp::Reverse((at.block.timestamp, at.block.number)));
        if heads.is_empty() { Err(fault) } else { Ok(heads) }
    }

    /// Asks the endpoint with the newest block, then the next one.
    async fn ask<T: Send>(
        &self,
        question: impl for<'a> Fn(&'a At<'a>) -> Answer<'a, T> + Send + Sync,
    ) -> Result<T, ChainUnavailable> {
        let answered = async {
            let mut fault = ChainUnavailable("no endpoint".to_owned());
            for at in &self.heads().await? {
                match question(at).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => fault = ChainUnavailable(rpc::told(&error)),
                }
            }
            Err(fault)
        };
        let late = |_| Err(ChainUnavailable("no answer in time".to_owned()));
        tokio::time::timeout(ANSWER_WITHIN, answered).await.unwrap_or_else(late)
    }
}

fn address(text: &str) -> Result<Address, ChainUnavailable> {
    text.parse().map_err(|_| ChainUnavailable(format!("{text} is no address")))
}

impl PoolReader for ChainPrices {
    fn pair<'a>(&'a self, pool: &'a str) -> ChainAnswer<'a, PairReading> {
        Box::pin(async move {
            let pool = address(pool)?;
            self.ask(|at| Box::pin(at.pair(pool))).await
        })
    }

    fn ticks<'a>(&'a self, pool: &'a str, window_secs: u32) -> ChainAnswer<'a, TicksReading> {
        Box::pin(async move {
            let pool = address(pool)?;
            self.ask(|at| Box::pin(at.ticks(pool, window_secs))).await
        })
    }
}

impl FeedReader for ChainPrices {
    fn latest_round<'a>(&'a self, feed: &'a str) -> ChainAnswer<'a, FeedRound> {
        Box::pin(async move {
            let feed = address(feed)?;
            self.ask(|at| Box::pin(at.round(feed))).await
        })
    }
}
