//! Workers divide the chain's facts: each is claimed by one of them.

use std::time::Duration;

use dvp_domain::chain::ChainFact;
use dvp_store::chain::open_facts::{claim, consume};
use dvp_store::database::lease;
use dvp_testing::Harness;
use sqlx::types::chrono::Utc;
use uuid::Uuid;

use crate::scenes;

const CLAIM: Duration = Duration::from_secs(10);

/// The first byte of the entities that a worker claims, in order.
async fn claimed(harness: &Harness, worker: Uuid, limit: i64) -> Vec<u8> {
    let mut conn = harness.pool().acquire().await.unwrap();
    let facts = claim(&mut conn, worker, CLAIM, 0, limit).await.unwrap();
    facts.iter().map(|fact| fact.entity[0]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_is_one_workers_until_its_claim_ends() {
    let start = (Utc::now() + chrono::TimeDelta::days(1)).into();
    let harness = Harness::in_virtual_time(scenes::market(), start).await;
    for entity in [1, 1, 2, 3] {
        harness.report_fact(&[entity; 32], &ChainFact::Anchored).await;
    }
    let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    assert_eq!(claimed(&harness, one, 1).await, [1]);
    assert_eq!(claimed(&harness, other, 1).await, [2], "a later fact of the same entity waits");
    assert_eq!(claimed(&harness, other, 9).await, [2, 3]);
    assert_eq!(claimed(&harness, one, 9).await, [1, 1], "its own again");
    let mut conn = harness.pool().acquire().await.unwrap();
    let facts = claim(&mut conn, one, CLAIM, 0, 9).await.unwrap();
    consume(&mut conn, &[facts[0].id]).await.unwrap();
    assert_eq!(claimed(&harness, other, 9).await, [2, 3]);
    harness.advance(CLAIM + Duration::from_secs(1)).await;
    assert_eq!(claimed(&harness, other, 9).await, [1, 2, 3], "a worker that is gone holds nothing back");
    assert_eq!(claimed(&harness, one, 9).await, [0; 0]);
    lease::release_all(&mut conn).await.unwrap();
    assert_eq!(claimed(&harness, one, 9).await, [1, 2, 3]);
}
