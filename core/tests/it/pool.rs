//! A connection that is returned to the pool has no open transaction.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use dvp_sandbox::embedded::TestDatabase;
use dvp_store::database::pool::pool_options;
use sqlx::Acquire as _;

#[tokio::test]
async fn an_abandoned_begin_does_not_leave_a_transaction_open() {
    let database = TestDatabase::create().await;
    // One connection, so that the next user gets the abandoned one.
    let pool = pool_options().max_connections(1).connect_with(database.connect_options()).await.unwrap();
    let other = database.pool();
    sqlx::query("create table kept (round integer)").execute(other).await.unwrap();
    let mut given_up = 0;
    // The answer is sometimes there immediately: repeat until some were abandoned.
    for round in 0..1000 {
        if given_up >= 5 {
            break;
        }
        let mut conn = pool.acquire().await.unwrap();
        {
            // BEGIN is sent with the first poll; its answer is not awaited.
            let mut begin = pin!(conn.begin());
            let first = begin.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            given_up += u32::from(first.is_pending());
        }
        drop(conn);
        sqlx::query("insert into kept values ($1)").bind(round).execute(&pool).await.unwrap();
        let kept: (i64,) = sqlx::query_as("select count(*) from kept").fetch_one(other).await.unwrap();
        assert_eq!(kept.0, i64::from(round) + 1);
    }
}
