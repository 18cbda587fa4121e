//! A pool with liquidity and a price feed, for the sandbox and the tests.

use super::batch::{DeployBatch, Sent};
use super::{DeployError, with_args};
use crate::contracts::feed::PriceFeed;
use crate::contracts::pool::ConstantProductPool;
use crate::contracts::token::TestToken;
use crate::rpc;
use alloy::primitives::{Address, I256, U256};
use alloy::providers::Provider;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolConstructor};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarketContracts {
    pub pool: Address,
    pub feed: Address,
}

#[derive(Debug, Clone)]
pub struct MarketPlan {
    /// Test tokens, with the pool's reserve of each.
    pub reserves: [(Address, U256); 2],
    pub feed_description: String,
    pub feed_decimals: u8,
    /// In units of the feed's decimals; set again at each call, so that the feed is fresh.
    pub price: I256,
}

/// Deploys what is missing and sets the feed's price. `admin` owns the feed. Not awaited.
pub async fn deploy_market(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    plan: &MarketPlan,
    record: Option<MarketContracts>,
) -> Result<(MarketContracts, Sent), DeployError> {
    let provider = rpc::connect(rpc_url)?;
    let mut batch = DeployBatch::start(&provider, admin).await?;
    let live = match &record {
        Some(known) => !provider.get_code_at(known.feed).await?.is_empty(),
        None => false,
    };
    let contracts = match record {
        Some(known) if live => known,
        Some(_) | None => {
            let [(token0_, amount0), (token1_, amount1)] = plan.reserves;
            let args = ConstantProductPool::constructorCall { token0_, token1_ }.abi_encode();
            let pool = batch.create("the pool", with_args(&ConstantProductPool::BYTECODE, &args)).await?;
            for (token, amount) in [(token0_, amount0), (token1_, amount1)] {
                let call = TestToken::mintCall { to: pool, amount };
                batch.call("mint to the pool", token, call.abi_encode()).await?;
            }
            batch.call("sync", pool, ConstantProductPool::syncCall {}.abi_encode()).await?;
            let args = PriceFeed::constructorCall {
                description_: plan.feed_description.clone(),
                decimals_: plan.feed_decimals,
                owner_: admin.address(),
            };
            let code = with_args(&PriceFeed::BYTECODE, &args.abi_encode());
            let feed = batch.create("the price feed", code).await?;
            MarketContracts { pool, feed }
        }
    };
    let said = PriceFeed::submitCall { answer: plan.price };
    batch.call("say the price", contracts.feed, said.abi_encode()).await?;
    Ok((contracts, batch.into_sent()))
}
