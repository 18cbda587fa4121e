//! A pool with concentrated liquidity (Uniswap v3): its state, the liquidity around its price, and its average tick.

use super::{At, BatchedView, TransportError, out_of_range};
use crate::contracts::uniswap::UniswapV3Pool::{
    feeCall, liquidityCall, observeCall, slot0Call, tickBitmapCall, tickSpacingCall, ticksCall, token0Call,
    token1Call,
};
use alloy::primitives::aliases::I24;
use alloy::primitives::{Address, U256};
use alloy::providers::Provider;
use alloy::rpc::client::BatchRequest;
use alloy::transports::RpcError;
use dvp_core::chain::TicksReading;
use dvp_domain::liquidity::curve::TickState;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const WORD_TICKS: i32 = 256;
/// Words read on each side of the price's own: ten percent of the price at the smallest spacing.
const WORDS_AROUND: i32 = 4;
const TICKS_AROUND: usize = 128;
const BATCH: usize = 64;

impl At<'_> {
    pub(super) async fn ticks(
        &self,
        pool: Address,
        window_secs: u32,
    ) -> Result<TicksReading, TransportError> {
        let mut batch = BatchRequest::new(self.provider.client());
        let token0 = BatchedView::add(&mut batch, pool, token0Call {}, self.id())?;
        let token1 = BatchedView::add(&mut batch, pool, token1Call {}, self.id())?;
        let fee = BatchedView::add(&mut batch, pool, feeCall {}, self.id())?;
        let spacing = BatchedView::add(&mut batch, pool, tickSpacingCall {}, self.id())?;
        let slot = BatchedView::add(&mut batch, pool, slot0Call {}, self.id())?;
        let liquidity = BatchedView::add(&mut batch, pool, liquidityCall {}, self.id())?;
        let observe = observeCall { secondsAgos: vec![window_secs, 0] };
        let observed = BatchedView::add(&mut batch, pool, observe, self.id())?;
        batch.send().await?;
        let slot = slot.answer(self.provider).await?;
        let tick = slot.tick.as_i32();
        let tick_spacing = spacing.answer(self.provider).await?.as_i32();
        if tick_spacing <= 0 {
            return Err(out_of_range("a tick spacing"));
        }
        // The pool answers with a revert when its observations do not reach back so far.
        let average_tick = match observed.answer(self.provider).await {
            Ok(observed) => average(&observed.tickCumulatives, window_secs),
            Err(RpcError::ErrorResp(_)) => None,
            Err(error) => return Err(error),
        };
        let (net, known) = self.liquidity_around(pool, tick, tick_spacing).await?;
        let state = TickState {
            sqrt_price: U256::from(slot.sqrtPriceX96).into_limbs(),
            tick,
            liquidity: liquidity.answer(self.provider).await?,
            tick_spacing,
            fee_pips: fee.answer(self.provider).await?.to(),
            net,
            known,
        };
        let tokens = [
            format!("{:#x}", token0.answer(self.provider).await?),
            format!("{:#x}", token1.answer(self.provider).await?),
        ];
        Ok(TicksReading { block: self.price_block(), tokens, state, average_tick })
    }

    /// The changes of liquidity around a tick, and the range of ticks whose changes these are.
    async fn liquidity_around(
        &self,
        pool: Address,
        tick: i32,
        spacing: i32,
    ) -> Result<(BTreeMap<i32, i128>, RangeInclusive<i32>), TransportError> {
        let own = tick.div_euclid(spacing).div_euclid(WORD_TICKS);
        let words: Vec<i16> =
            (own - WORDS_AROUND..=own + WORDS_AROUND).filter_map(|word| i16::try_from(word).ok()).collect();
        let (Some(first), Some(last)) = (words.first(), words.last()) else {
            return Err(out_of_range("a tick"));
        };
        let calls: Vec<_> = words.iter().map(|word| tickBitmapCall { word: *word }).collect();
        let bitmaps = self.views(pool, &calls).await?;
        let marked = |(word, bitmap): (&i16, &U256)| {
            let (word, bitmap) = (i32::from(*word), *bitmap);
            (0..WORD_TICKS)
                .filter(move |bit| usize::try_from(*bit).is_ok_and(|bit| bitmap.bit(bit)))
                .map(move |bit| (word * WORD_TICKS + bit) * spacing)
        };
        let marked: Vec<i32> = words.iter().zip(&bitmaps).flat_map(marked).collect();
        let mut known = i32::from(*first) * WORD_TICKS * spacing
            ..=(i32::from(*last) * WORD_TICKS + WORD_TICKS - 1) * spacing;
        let from = marked.partition_point(|at| *at <= tick);
        let (below, above) = marked.split_at(from);
        let below = &below[below.len().saturating_sub(TICKS_AROUND)..];
        let above = &above[..above.len().min(TICKS_AROUND)];
        // Where some are left out, what is known ends with the last one that is read.
        if let Some(lowest) = below.first().filter(|_| below.len() == TICKS_AROUND) {
            known = *lowest..=*known.end();
        }
        if let Some(highest) = above.last().filter(|_| above.len() == TICKS_AROUND) {
            known = *known.start()..=*highest;
        }
        let wanted: Vec<i32> = below.iter().chain(above).copied().collect();
        let call = |at: &i32| I24::try_from(*at).map(|tick| ticksCall { tick });
        let calls = wanted.iter().map(call).collect::<Result<Vec<_>, _>>();
        let calls = calls.map_err(|_| out_of_range("a tick"))?;
        let net = self.views(pool, &calls).await?.into_iter().map(|at| at.liquidityNet);
        Ok((wanted.into_iter().zip(net).collect(), known))
    }

    /// Many views of one contract, some to a request.
    async fn views<C: alloy::sol_types::SolCall + Clone>(
        &self,
        to: Address,
        calls: &[C],
    ) -> Result<Vec<C::Return>, TransportError> {
        let mut answers = Vec::with_capacity(calls.len());
        for calls in calls.chunks(BATCH) {
            let mut batch = BatchRequest::new(self.provider.client());
            let waiting = calls.iter().map(|call| BatchedView::add(&mut batch, to, call.clone(), self.id()));
            let waiting = waiting.collect::<Result<Vec<_>, _>>()?;
            batch.send().await?;
            for waiter in waiting {
                answers.push(waiter.answer(self.provider).await?);
            }
        }
        Ok(answers)
    }
}

/// The average tick between two sums of ticks times seconds, rounded down.
fn average(cumulative: &[alloy::primitives::aliases::I56], window_secs: u32) -> Option<i32> {
    let [then, now] = cumulative else { return None };
    // The sums run over.
    let passed = now.wrapping_sub(*then).as_i64();
    let window = i64::from(window_secs);
    (window > 0).then(|| passed.div_euclid(window)).and_then(|tick| i32::try_from(tick).ok())
}
