//! The pools that prices are read from: their code, their tokens, and how far back their average price reaches.

use alloy::eips::BlockId;
use alloy::primitives::Address;
use alloy::providers::{DynProvider, Provider};
use alloy::transports::RpcError;
use dvp_core::liquidity::PoolKind;

use super::{Defect, Expected, ExpectedPool, Finding, all};
use crate::contracts::uniswap::{UniswapV2Pair, UniswapV3Pool};
use crate::rpc::{self, view_now};

const MEASURED_BLOCKS: u64 = 100;

pub(super) async fn check(provider: &DynProvider, expected: &Expected) -> Option<Finding> {
    let of = async |pool: &ExpectedPool| checked(provider, pool).await.map_err(|defect| defect.of(&pool.id));
    let ids: Vec<&str> = expected.pools.iter().map(|pool| pool.id.as_str()).collect();
    let well = format!("tokens and averages of {}", ids.join(", "));
    let finding = all("pools", well, expected.pools.iter().map(of)).await;
    (!expected.pools.is_empty()).then_some(finding)
}

async fn checked(provider: &DynProvider, pool: &ExpectedPool) -> Result<(), Defect> {
    let address = pool.address;
    if provider.get_code_at(address).await?.is_empty() {
        return Err(Defect::Contradiction(format!("there is no contract at {address}")));
    }
    let token0 = view_now(provider, address, &UniswapV2Pair::token0Call {}).await?;
    let token1 = view_now(provider, address, &UniswapV2Pair::token1Call {}).await?;
    let is_pair = |(base, quote): &(Address, Address)| {
        (*base, *quote) == (token0, token1) || (*base, *quote) == (token1, token0)
    };
    if !pool.pairs.iter().any(is_pair) {
        let said = format!("its tokens {token0} and {token1} are no pair of the configuration");
        return Err(Defect::Contradiction(said));
    }
    match pool.kind {
        PoolKind::UniswapV2 { .. } => {
            let reserves = view_now(provider, address, &UniswapV2Pair::getReservesCall {}).await?;
            if reserves.reserve0.is_zero() || reserves.reserve1.is_zero() {
                return Err(Defect::Lack("it has no reserves".to_owned()));
            }
            Ok(())
        }
        PoolKind::UniswapV3 => observations(provider, pool).await,
    }
}

/// A v3 pool keeps as many observations as its cardinality, and may write one in each block.
async fn observations(provider: &DynProvider, pool: &ExpectedPool) -> Result<(), Defect> {
    let (address, window) = (pool.address, pool.window_secs);
    let slot = view_now(provider, address, &UniswapV3Pool::slot0Call {}).await?;
    let kept = slot.observationCardinality;
    let lack = |said: String| {
        Defect::Lack(format!("{said}; anybody can raise it (increaseObservationCardinalityNext)"))
    };
    let observe = UniswapV3Pool::observeCall { secondsAgos: vec![window, 0] };
    match view_now(provider, address, &observe).await {
        Ok(_) => {}
        Err(RpcError::ErrorResp(_)) => {
            let said = format!("its {kept} observations do not reach back {window} s");
            return Err(lack(said));
        }
        Err(error) => return Err(error.into()),
    }
    let head = rpc::head(provider).await?;
    let before = BlockId::number(head.number.0.saturating_sub(MEASURED_BLOCKS));
    let Some(before) = rpc::block(provider, before).await? else { return Ok(()) };
    let blocks = head.number.0.saturating_sub(before.number.0).max(1);
    let seconds = head.timestamp.saturating_sub(before.timestamp).max(1);
    let needed = u64::from(window).saturating_mul(blocks).div_ceil(seconds);
    if u64::from(kept.max(slot.observationCardinalityNext)) < needed {
        let said = format!("it keeps {kept} observations, and {needed} blocks may come in {window} s");
        return Err(lack(said));
    }
    Ok(())
}
