//! A database host that vanishes: packets are dropped without an error.

use std::time::Duration;

use dvp_sandbox::embedded::TestDatabase;
use dvp_sandbox::embedded::black_hole::BlackHole;
use dvp_store::database::pools::{PoolSizes, Pools};
use dvp_store::database::{Database, TlsFiles};
use dvp_store::{PgConnection, PgPool};
use sqlx::postgres::PgListener;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

/// A longer wait is a hang.
const HANGS: Duration = Duration::from_secs(120);

async fn way_to(database: &TestDatabase) -> (BlackHole, Pools) {
    let (_, rest) = database.url().split_once('@').unwrap();
    let (server, _) = rest.split_once('/').unwrap();
    let way = BlackHole::on_the_way_to(server.to_owned()).await.unwrap();
    let reached = Database::at(&way.url(database.url()).unwrap(), &TlsFiles::default()).unwrap();
    let pools = Pools::open(&reached, PoolSizes::of(PoolSizes::LEAST)).await.unwrap();
    (way, pools)
}

async fn ask(pool: &PgPool) -> Result<i32, sqlx::Error> {
    let requested = sqlx::query_scalar("select 1").fetch_one(pool);
    tokio::time::timeout(HANGS, requested).await.expect("the question hangs")
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, work).await.unwrap_or_else(|_| panic!("{what}: waited too long"))
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_for_a_vanished_host_end_with_errors_and_recover() {
    let database = TestDatabase::create().await;
    let (way, pools) = way_to(&database).await;
    let all = [&pools.orders, &pools.reads, &pools.lookups, &pools.background];
    // Each pool has a connection in the middle of a transaction, and an idle one.
    let mut used = Vec::new();
    for pool in all {
        let (first, second) = tokio::join!(pool.begin(), pool.acquire());
        used.push(first.unwrap());
        drop(second);
    }
    let mut own = PgConnection::connect_with(&pools.orders.connect_options()).await.unwrap();
    let mut listener = PgListener::connect_with(&pools.background).await.unwrap();
    listener.eager_reconnect(false);
    listener.listen("news").await.unwrap();

    way.swallow();
    for tx in &mut used {
        let requested = sqlx::query("select 1").execute(&mut **tx);
        assert!(soon("a transaction", requested).await.is_err());
    }
    assert!(soon("a connection beside the pools", own.ping()).await.is_err());
    assert!(soon("a listener", listener.try_recv()).await.unwrap().is_none());
    let mut availability = pools.availability().clone();
    soon("the watch", availability.lost()).await;
    for pool in all {
        assert!(ask(pool).await.is_err());
    }
    let options = pools.orders.connect_options();
    let new = PgConnection::connect_with(&options);
    let said = soon("a new connection", new).await.map(drop).unwrap_err().to_string();
    assert!(said.contains("no connection within") || said.contains("no answer within"), "{said}");
    drop(used);

    way.forward();
    soon("the watch", availability.available()).await;
    for pool in all {
        assert_eq!(ask(pool).await.unwrap(), 1);
    }
    soon("a listener", listener.listen("more")).await.unwrap();
    drop(listener);
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_lost_connections_transaction_are_released_in_seconds() {
    let database = TestDatabase::create().await;
    let (way, pools) = way_to(&database).await;
    let all = [&pools.orders, &pools.reads, &pools.lookups, &pools.background];
    let mut open = Vec::new();
    for (pool, key) in all.into_iter().zip(1_i64..) {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("select pg_advisory_xact_lock($1)").bind(key).execute(&mut *tx).await.unwrap();
        open.push(tx);
    }

    way.swallow();
    let mut admin = PgConnection::connect(database.url()).await.unwrap();
    for key in (1_i64..).take(all.len()) {
        let lock = sqlx::query("select pg_advisory_lock($1)").bind(key).execute(&mut admin);
        soon("a lock", lock).await.unwrap();
    }
    drop(open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_accepts_and_does_not_answer_is_an_error_in_bounded_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://dvp:x@{}/dvp", silent.local_addr().unwrap());
    for mode in ["", "?sslmode=verify-full"] {
        let reached = Database::at(&format!("{url}{mode}"), &TlsFiles::default());
        let Ok(reached) = reached else { panic!("{url}{mode}: {:?}", reached.map(drop)) };
        let opened = soon("a pool", Pools::open(&reached, PoolSizes::of(PoolSizes::LEAST))).await;
        assert!(opened.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_cancels_statements_beyond_their_pools_limits() {
    let database = TestDatabase::create().await;
    let (_way, pools) = way_to(&database).await;
    let setting = |pool: &PgPool, name: &'static str| {
        let pool = pool.clone();
        async move {
            let requested = sqlx::query_scalar::<_, String>("select current_setting($1)").bind(name);
            requested.fetch_one(&pool).await.unwrap()
        }
    };
    for (pool, statement, lock, idle) in [
        (&pools.orders, "5s", "3s", "10s"),
        (&pools.reads, "9s", "3s", "10s"),
        (&pools.lookups, "2s", "2s", "5s"),
        (&pools.background, "10min", "30s", "15s"),
    ] {
        assert_eq!(setting(pool, "statement_timeout").await, statement);
        assert_eq!(setting(pool, "lock_timeout").await, lock);
        assert_eq!(setting(pool, "idle_in_transaction_session_timeout").await, idle);
        assert_eq!(setting(pool, "tcp_user_timeout").await, "10000");
        assert_eq!(setting(pool, "jit").await, "off");
    }
    let slow = sqlx::query("select pg_sleep(60)").execute(&pools.lookups);
    let said = soon("a slow statement", slow).await.unwrap_err();
    assert_eq!(said.as_database_error().and_then(|error| error.code()).as_deref(), Some("57014"));
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_counts_as_unavailable() {
    let database = TestDatabase::create().await;
    let mut admin = database.pool().acquire().await.unwrap();
    let (name,): (String,) =
        sqlx::query_as("select current_database()").fetch_one(&mut *admin).await.unwrap();
    let reached = Database::by_socket(database.connect_options());
    let pools = Pools::open(&reached, PoolSizes::of(PoolSizes::LEAST)).await.unwrap();
    let mut availability = pools.availability().clone();
    soon("the watch", availability.available()).await;
    let set =
        |value| AssertSqlSafe(format!("alter database {name} set default_transaction_read_only = {value}"));
    admin.execute(set("on")).await.unwrap();
    // Existing connections continue; a standby has no such connections.
    let others = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    admin.execute(others).await.unwrap();
    soon("the watch", availability.lost()).await;
    admin.execute(set("off")).await.unwrap();
    soon("the watch", availability.available()).await;
    pools.close().await;
}
