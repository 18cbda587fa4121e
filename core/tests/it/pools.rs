//! Each part of the service has its own connections.

use dvp_store::database::Database;
use dvp_store::database::pools::{PoolSizes, Pools};
use dvp_store::orders::executions::RefType;
use dvp_store::{PgPool, PoolConnection};

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;

const SIZES: PoolSizes = PoolSizes { orders: 4, reads: 3, lookups: 2, background: 5 };

async fn open(harness: &Harness) -> Pools {
    let database = Database::by_socket((*harness.pool().connect_options()).clone());
    Pools::open(&database, SIZES).await.unwrap()
}

/// Takes all connections of a pool.
async fn take_all(pool: &PgPool, size: u32) -> Vec<PoolConnection> {
    let mut taken = Vec::new();
    for _ in 0..size {
        taken.push(pool.acquire().await.unwrap());
    }
    assert!(pool.try_acquire().is_none());
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_takes_nothing_from_the_others() {
    let harness = scenes::harness().await;
    let pools = open(&harness).await;
    let all = [
        (&pools.orders, SIZES.orders),
        (&pools.reads, SIZES.reads),
        (&pools.lookups, SIZES.lookups),
        (&pools.background, SIZES.background),
    ];
    for (n, (pool, size)) in all.into_iter().enumerate() {
        let taken = take_all(pool, size).await;
        for (m, (other, _)) in all.into_iter().enumerate() {
            if n != m {
                assert!(other.acquire().await.is_ok());
            }
        }
        drop(taken);
    }
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_open_before_the_first_caller() {
    let harness = scenes::harness().await;
    let pools = open(&harness).await;
    for pool in [&pools.orders, &pools.reads, &pools.lookups, &pools.background] {
        assert!(pool.size() >= 2);
    }
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_look_ups_and_background_work_at_their_limit_spare_orders() {
    let mut harness = scenes::harness().await;
    let pools = open(&harness).await;
    harness.engine = harness.engine_in(&pools);
    let reads = take_all(&pools.reads, SIZES.reads).await;
    let lookups = take_all(&pools.lookups, SIZES.lookups).await;
    let background = take_all(&pools.background, SIZES.background).await;
    let accepted = harness.accept(order("000123456789")).await;
    drop(reads);
    // And an order is read while order entry is at its limit.
    let orders = take_all(&pools.orders, SIZES.orders).await;
    let found =
        harness.engine.execution(&harness.tenant, RefType::ExecutionId, accepted.reference.as_str()).await;
    assert!(found.unwrap().is_some());
    drop((orders, lookups, background));
    // The service's own work reads by connections of its own.
    let reads = take_all(&pools.reads, SIZES.reads).await;
    let background = harness.engine.in_background();
    let found =
        background.execution(&harness.tenant, RefType::ExecutionId, accepted.reference.as_str()).await;
    assert!(found.unwrap().is_some());
    drop(reads);
}
