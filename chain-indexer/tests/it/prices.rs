//! Feeds, and blocks, as the liquidity sources read them, against the contracts on a real node.

use std::sync::Arc;

use crate::refusals::Formal;
use crate::support::answers::serve;
use crate::support::{Scene, raw};
use alloy::primitives::{I256, U256};
use dvp_chain_indexer::ChainPrices;
use dvp_chain_indexer::contracts::feed;
use dvp_chain_indexer::deploy::{self, MarketPlan};
use dvp_core::chain::{FeedReader as _, PoolReader as _};
use serde_json::json;

async fn market(scene: &Scene) -> (deploy::MarketContracts, MarketPlan) {
    let (url, weth) = (scene.node.rpc_url(), scene.deploy_weth().await);
    let plan = MarketPlan {
        reserves: [(weth, U256::from(1_000_000_007_u64)), (scene.token, U256::from(3_000_000_000_001_u64))],
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
    assert_eq!(over(&[&frozen]).pair(&pool).await.unwrap().block.time, stopped_at);
    for scenes in [[&frozen, &live], [&live, &frozen]] {
        let read = over(&scenes).latest_round(&feed).await.unwrap();
        assert_eq!((read.answer, read.block.time), (299_000_000_000, live.now().await));
        assert!(over(&scenes).pair(&pool).await.unwrap().block.time >= stopped_at + 30);
    }
    // A node whose clock is wrong does not hide the others; alone it has no price.
    live.pass(3_600).await;
    assert_eq!(over(&[&live, &frozen]).latest_round(&feed).await.unwrap().block.time, stopped_at);
    assert!(over(&[&live]).latest_round(&feed).await.is_err());
}

/// Also where the calls of a batch name the block.
#[tokio::test]
async fn prices_are_read_in_whatever_form_an_endpoint_takes_a_block() {
    let scene = Scene::new().await;
    let (market, _) = market(&scene).await;
    for wants_object in [true, false] {
        let url = serve(Arc::new(Formal(scene.provider.clone(), wants_object))).await;
        let prices = ChainPrices::over([url.as_str()].into_iter()).unwrap();
        let round = prices.latest_round(&market.feed.to_string()).await.unwrap();
        assert_eq!(round.answer, 300_000_000_000, "{wants_object}");
        assert_eq!(prices.pair(&market.pool.to_string()).await.unwrap().block.number, round.block.number);
    }
}
