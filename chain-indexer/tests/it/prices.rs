//! Pools and feeds as the liquidity sources read them, against the contracts on a real node.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

use crate::support::{Scene, raw};
use alloy::primitives::{I256, U256};
use dvp_chain_indexer::ChainPrices;
use dvp_chain_indexer::contracts::{feed, pool, token};
use dvp_chain_indexer::deploy::{self, DeployPlan, MarketPlan, TokenSpec};
use dvp_core::chain::{FeedReader as _, PoolReader as _};
use dvp_domain::liquidity::curve::Pool;
use dvp_domain::money::Minor;
use serde_json::json;

async fn market(scene: &Scene) -> (deploy::MarketContracts, MarketPlan) {
    let plan = DeployPlan {
        tokens: vec![TokenSpec { symbol: "WETH".into(), name: "Wrapped Ether".into(), decimals: 18 }],
        ..DeployPlan::default()
    };
    let url = scene.node.rpc_url();
    let deployed = deploy::deploy(&url, &scene.admin, &plan, Some(scene.deployment.clone())).await.unwrap();
    let weth = deployed.tokens.iter().find(|token| token.symbol == "WETH").unwrap().address;
    let plan = MarketPlan {
        reserves: [(weth, U256::from(1_000_000_007_u64)), (scene.token, U256::from(3_000_000_000_001_u64))],
        pool_fee_bps: 30,
        feed_description: "WETH / USDC".into(),
        feed_decimals: 8,
        price: I256::try_from(300_000_000_000_i64).unwrap(),
    };
    let (market, sent) = deploy::deploy_market(&url, &scene.admin, &plan, None).await.unwrap();
    sent.mined().await.unwrap();
    (market, plan)
}

fn over(scenes: &[&Scene]) -> ChainPrices {
    let urls: Vec<String> = scenes.iter().map(|scene| scene.node.rpc_url()).collect();
    ChainPrices::over(urls.iter().map(String::as_str)).unwrap()
}

#[tokio::test]
async fn our_arithmetic_equals_the_pools_to_the_unit() {
    let scene = Scene::new().await;
    let (market, _) = market(&scene).await;
    let prices = over(&[&scene]);
    let read = prices.reserves(&market.pool.to_string()).await.unwrap();
    assert_eq!((read.reserve0, read.reserve1, read.fee_bps), (1_000_000_007, 3_000_000_000_001, 30));
    assert_eq!(read.token1, format!("{:#x}", scene.token));
    let (there, back) = (Minor::new(read.reserve0), Minor::new(read.reserve1));
    let ours = Pool::new(back, there, read.fee_bps).unwrap();
    for amount in [1_u64, 3_000, 3_019, 12_345_678, 999_999_999_999, u64::MAX] {
        let call =
            pool::ConstantProductPool::quoteCall { tokenIn: scene.token, amountIn: U256::from(amount) };
        let theirs = scene.view(market.pool, call).await;
        assert_eq!(U256::from(ours.forward(Minor::new(amount.into())).get()), theirs, "{amount}");
    }
}

#[tokio::test]
async fn a_swap_moves_the_reserves_as_quoted_with_the_smallest_input() {
    let scene = Scene::new().await;
    let (market, _) = market(&scene).await;
    let prices = over(&[&scene]);
    let before = prices.reserves(&market.pool.to_string()).await.unwrap();
    let ours = Pool::new(Minor::new(before.reserve1), Minor::new(before.reserve0), before.fee_bps).unwrap();
    let wanted = Minor::new(100_000);
    let input = U256::from(ours.inverse(wanted).unwrap().get());
    let approve = token::TestToken::approveCall { spender: market.pool, value: U256::MAX };
    assert!(scene.succeeds(&scene.maker, scene.token, &approve).await);
    let swap = |amount| pool::ConstantProductPool::swapCall {
        tokenIn: scene.token,
        amountIn: amount,
        minOut: U256::from(wanted.get()),
        to: scene.maker.address(),
    };
    let maker = scene.maker.address();
    assert!(scene.revert_of(maker, market.pool, &swap(input - U256::from(1))).await.is_some());
    assert!(scene.succeeds(&scene.maker, market.pool, &swap(input)).await);
    let after = prices.reserves(&market.pool.to_string()).await.unwrap();
    assert_eq!(before.reserve0 - after.reserve0, wanted.get());
    assert_eq!(U256::from(after.reserve1 - before.reserve1), input);
}

#[tokio::test]
async fn a_feeds_price_is_read_as_set_and_set_again_at_each_start() {
    let scene = Scene::new().await;
    let (market, plan) = market(&scene).await;
    let url = scene.node.rpc_url();
    let prices = over(&[&scene]);
    let said = prices.latest_round(&market.feed.to_string()).await.unwrap();
    let updated_at = scene.now().await;
    assert_eq!((said.answer, said.decimals, said.updated_at), (300_000_000_000, 8, updated_at));
    assert_eq!(said.block.time, updated_at);
    let lower = MarketPlan { price: I256::try_from(-1).unwrap(), ..plan };
    let (again, sent) =
        deploy::deploy_market(&url, &scene.admin, &lower, Some(market.clone())).await.unwrap();
    sent.mined().await.unwrap();
    assert_eq!(again, market, "what is there stays");
    assert_eq!(prices.latest_round(&market.feed.to_string()).await.unwrap().answer, -1);
    let by_another = feed::PriceFeed::submitCall { answer: I256::ONE };
    assert!(scene.revert_of(scene.maker.address(), market.feed, &by_another).await.is_some());
    assert!(prices.latest_round(&scene.token.to_string()).await.is_err(), "no feed at all");
}

/// Two nodes with the same contracts at the same addresses: the first has stopped.
#[tokio::test]
async fn the_newest_block_of_any_endpoint_is_read_and_its_time_is_its_age() {
    let (frozen, live) = (Scene::new().await, Scene::new().await);
    let ((market, plan), (same, _)) = (market(&frozen).await, market(&live).await);
    assert_eq!(market, same);
    let (pool, feed) = (market.pool.to_string(), market.feed.to_string());
    let stopped_at = frozen.now().await;
    let _: serde_json::Value = raw(&live.provider, "evm_increaseTime", json!([30])).await;
    let moved = MarketPlan { price: I256::try_from(299_000_000_000_i64).unwrap(), ..plan };
    let (_, sent) =
        deploy::deploy_market(&live.node.rpc_url(), &live.admin, &moved, Some(same)).await.unwrap();
    sent.mined().await.unwrap();

    let read = over(&[&frozen]).latest_round(&feed).await.unwrap();
    assert_eq!((read.answer, read.block.time), (300_000_000_000, stopped_at), "its age can be told");
    assert_eq!(over(&[&frozen]).reserves(&pool).await.unwrap().block.time, stopped_at);
    for scenes in [[&frozen, &live], [&live, &frozen]] {
        let read = over(&scenes).latest_round(&feed).await.unwrap();
        assert_eq!((read.answer, read.block.time), (299_000_000_000, live.now().await));
        assert!(over(&scenes).reserves(&pool).await.unwrap().block.time >= stopped_at + 30);
    }
    // A node whose clock is wrong does not hide the others; alone it has no price.
    let _: serde_json::Value = raw(&live.provider, "evm_increaseTime", json!([3600])).await;
    let _: serde_json::Value = raw(&live.provider, "evm_mine", json!([])).await;
    assert_eq!(over(&[&live, &frozen]).latest_round(&feed).await.unwrap().block.time, stopped_at);
    assert!(over(&[&live]).latest_round(&feed).await.is_err());
}
