//! A constant-product pair (Uniswap v2).

use super::{At, BatchedView, TransportError};
use crate::contracts::uniswap::UniswapV2Pair::{
    getReservesCall, price0CumulativeLastCall, price1CumulativeLastCall, token0Call, token1Call,
};
use alloy::primitives::Address;
use alloy::providers::Provider;
use alloy::rpc::client::BatchRequest;
use dvp_core::chain::PairReading;
use dvp_domain::liquidity::average::PairState;

impl At<'_> {
    pub(super) async fn pair(&self, pool: Address) -> Result<PairReading, TransportError> {
        let mut batch = BatchRequest::new(self.provider.client());
        let token0 = BatchedView::add(&mut batch, pool, token0Call {}, self.id())?;
        let token1 = BatchedView::add(&mut batch, pool, token1Call {}, self.id())?;
        let reserves = BatchedView::add(&mut batch, pool, getReservesCall {}, self.id())?;
        let price0 = BatchedView::add(&mut batch, pool, price0CumulativeLastCall {}, self.id())?;
        let price1 = BatchedView::add(&mut batch, pool, price1CumulativeLastCall {}, self.id())?;
        batch.send().await?;
        let reserves = reserves.answer(self.provider).await?;
        Ok(PairReading {
            block: self.price_block(),
            tokens: [
                format!("{:#x}", token0.answer(self.provider).await?),
                format!("{:#x}", token1.answer(self.provider).await?),
            ],
            state: PairState {
                reserve0: reserves.reserve0.to(),
                reserve1: reserves.reserve1.to(),
                accumulated_at: reserves.blockTimestampLast,
                cumulative: [price0.answer(self.provider).await?, price1.answer(self.provider).await?],
            },
        })
    }
}
