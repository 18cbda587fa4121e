//! A constant-product pair (Uniswap v2).

use super::{At, TransportError, batched_answer, batched_view};
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
        let token0 = batched_view(&mut batch, pool, &token0Call {}, self.id())?;
        let token1 = batched_view(&mut batch, pool, &token1Call {}, self.id())?;
        let reserves = batched_view(&mut batch, pool, &getReservesCall {}, self.id())?;
        let price0 = batched_view(&mut batch, pool, &price0CumulativeLastCall {}, self.id())?;
        let price1 = batched_view(&mut batch, pool, &price1CumulativeLastCall {}, self.id())?;
        batch.send().await?;
        let reserves = batched_answer::<getReservesCall>(reserves).await?;
        Ok(PairReading {
            block: self.price_block(),
            tokens: [
                format!("{:#x}", batched_answer::<token0Call>(token0).await?),
                format!("{:#x}", batched_answer::<token1Call>(token1).await?),
            ],
            state: PairState {
                reserve0: reserves.reserve0.to(),
                reserve1: reserves.reserve1.to(),
                accumulated_at: reserves.blockTimestampLast,
                cumulative: [
                    batched_answer::<price0CumulativeLastCall>(price0).await?,
                    batched_answer::<price1CumulativeLastCall>(price1).await?,
                ],
            },
        })
    }
}
