//! A database on three servers: the primary is found and followed, and nothing is read that a fail-over takes back.

use std::time::{Duration, Instant};

use dvp_sandbox::embedded::TestDatabase;
use dvp_sandbox::embedded::replicas::Replicas;
use dvp_store::database::lease::{Lease, LeaseGuard};
use dvp_store::database::notify::Notifications;
use dvp_store::database::pools::{PoolSizes, Pools};
use dvp_store::database::{Database, TlsFiles};
use dvp_store::{PgConnection, PgPool};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

/// A longer wait is a hang.
const HANGS: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

fn database(replicas: &Replicas) -> Database {
    Database::among(&replicas.urls(), &TlsFiles::default(), true).unwrap()
}

async fn open(replicas: &Replicas) -> Pools {
    Pools::open(&database(replicas), PoolSizes::of(PoolSizes::LEAST)).await.unwrap()
}

async fn create_table(replicas: &Replicas) {
    let mut admin = replicas.admin(replicas.primary()).await.unwrap();
    admin.execute("create table note (text text primary key)").await.unwrap();
}

/// Repeats until it succeeds.
async fn until<T, E, F: Future<Output = Result<T, E>>>(what: &str, work: impl Fn() -> F) -> T
where
    E: std::fmt::Display,
{
    let began = Instant::now();
    loop {
        match tokio::time::timeout(HANGS, work()).await.unwrap_or_else(|_| panic!("{what}: hangs")) {
            Ok(done) => return done,
            Err(error) => assert!(began.elapsed() < HANGS, "{what}: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn note(pool: &PgPool, text: &str) -> Result<(), sqlx::Error> {
    sqlx::query("insert into note values ($1)").bind(text).execute(pool).await.map(drop)
}

async fn notes(pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("select text from note order by text").fetch_all(pool).await
}

/// The port of the server that a pool is connected to.
async fn port(pool: &PgPool) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("select inet_server_port()").fetch_one(pool).await
}

fn port_of(replicas: &Replicas, number: usize) -> i32 {
    let url = replicas.direct_url(number);
    url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0.parse().unwrap()
}

/// Waits until a backend of the server waits for a standby's confirmation of a statement.
async fn waits_for_standby(admin: &mut PgConnection, statement: &str) -> i32 {
    let waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' and query like $1";
    let began = Instant::now();
    loop {
        let found: Option<i32> =
            sqlx::query_scalar(waiting).bind(statement).fetch_optional(&mut *admin).await.unwrap();
        if let Some(pid) = found {
            return pid;
        }
        assert!(began.elapsed() < HANGS, "nothing waits for a standby");
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_follow_the_primary() {
    let mut replicas = Replicas::start(3, true).await.unwrap();
    create_table(&replicas).await;
    replicas.kill(0).unwrap();
    let found = database(&replicas);
    let said = found.connect().await.map(drop).unwrap_err().to_string();
    assert!(said.contains("no server is the primary") && said.contains("it takes no writes"), "{said}");

    // A process that starts waits for a primary.
    let opening = tokio::spawn(async move { Pools::open(&found, PoolSizes::of(PoolSizes::LEAST)).await });
    let first = replicas.fail_over().await.unwrap();
    let pools = tokio::time::timeout(HANGS, opening).await.unwrap().unwrap().unwrap();
    let all = [&pools.orders, &pools.reads, &pools.lookups, &pools.background];
    for pool in all {
        assert_eq!(until("a pool", || port(pool)).await, port_of(&replicas, first));
    }
    note(&pools.orders, "first").await.unwrap();
    replicas.rebuild(0).await.unwrap();
    replicas.wait_for_standbys().await.unwrap();

    let mut news = Notifications::new(pools.background.clone(), &["news"]);
    news.listen().await;
    assert!(news.is_listening());
    replicas.freeze(first).unwrap();
    let lost = tokio::time::timeout(HANGS, news.next()).await.expect("a listener hangs");
    assert!(lost.is_none());
    let second = replicas.fail_over().await.unwrap();
    assert_ne!(second, first);
    // The former primary is back, and its role is taken.
    replicas.thaw(first).unwrap();
    for pool in all {
        assert_eq!(until("a pool", || port(pool)).await, port_of(&replicas, second));
    }
    // As the writer connects.
    let own = || async { PgConnection::connect_with(&pools.orders.connect_options()).await };
    let mut own = until("a connection beside the pools", own).await;
    let own: i32 = sqlx::query_scalar("select inet_server_port()").fetch_one(&mut own).await.unwrap();
    assert_eq!(own, port_of(&replicas, second));
    until("a write", || note(&pools.orders, "second")).await;
    assert_eq!(notes(&pools.reads).await.unwrap(), ["first", "second"]);
    while !news.is_listening() {
        news.listen().await;
        tokio::time::sleep(PAUSE).await;
    }
    until("a notification", || async { sqlx::query("notify news, 'received'").execute(&pools.orders).await })
        .await;
    let received = tokio::time::timeout(HANGS, news.next()).await.expect("a listener hangs");
    assert_eq!(received.unwrap().payload(), "received");
    drop(news);
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_no_standby_has_is_never_read() {
    let mut replicas = Replicas::start(3, true).await.unwrap();
    create_table(&replicas).await;
    let pools = open(&replicas).await;
    note(&pools.orders, "confirmed").await.unwrap();
    replicas.cut_peers(0);
    // A primary that was killed while commits waited for a standby shows them after its restart.
    let orders = pools.orders.clone();
    let revoked = tokio::spawn(async move { note(&orders, "revoked").await });
    waits_for_standby(&mut replicas.admin(0).await.unwrap(), "insert into note%").await;
    replicas.kill(0).unwrap();
    replicas.restart(0).await.unwrap();
    assert!(revoked.await.unwrap().is_err());
    let mut admin = replicas.admin(0).await.unwrap();
    let shown: Vec<String> =
        sqlx::query_scalar("select text from note order by text").fetch_all(&mut admin).await.unwrap();
    assert_eq!(shown, ["confirmed", "revoked"]);

    let reads = pools.reads.clone();
    let reading = tokio::spawn(async move {
        loop {
            match notes(&reads).await {
                Ok(found) if found == ["after", "confirmed"] => return,
                Ok(found) => assert_eq!(found, ["confirmed"]),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    let mut availability = pools.availability().clone();
    tokio::time::timeout(HANGS, availability.lost()).await.expect("the watch hangs");
    // Reads were attempted while only the restarted server could be connected to.
    for _ in 0..5 {
        let found = tokio::time::timeout(HANGS, notes(&pools.lookups)).await.expect("a read hangs");
        assert!(found.is_err(), "{found:?}");
    }
    replicas.fail_over().await.unwrap();
    until("a write", || note(&pools.orders, "after")).await;
    tokio::time::timeout(HANGS, reading).await.expect("reads hang").unwrap();
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_wait_was_cancelled_is_no_success() {
    let replicas = Replicas::start(3, true).await.unwrap();
    create_table(&replicas).await;
    let pools = open(&replicas).await;
    let mut admin = replicas.admin(0).await.unwrap();
    replicas.cut_peers(0);
    let orders = pools.orders.clone();
    let committing = tokio::spawn(async move {
        let mut tx = orders.begin().await?;
        sqlx::query("insert into note values ('cancelled')").execute(&mut *tx).await?;
        tx.commit().await
    });
    let pid = waits_for_standby(&mut admin, "COMMIT%").await;
    sqlx::query("select pg_cancel_backend($1)").bind(pid).execute(&mut admin).await.unwrap();
    let committed = tokio::time::timeout(HANGS, committing).await.expect("a commit hangs").unwrap();
    assert!(committed.is_err());
    // It is visible to others there, and no pool reads it before a standby has it.
    assert!(notes(&pools.reads).await.is_err());
    replicas.heal(0);
    let found = until("a read", || notes(&pools.reads)).await;
    assert_eq!(found, ["cancelled"]);
    pools.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_do_not_wait_for_standbys_are_refused() {
    let replicas = Replicas::start(2, false).await.unwrap();
    let said = database(&replicas).connect().await.map(drop).unwrap_err().to_string();
    assert!(said.contains("its commits do not wait for a standby"), "{said}");
    let accepted = Database::among(&replicas.urls(), &TlsFiles::default(), false).unwrap();
    let mut conn = accepted.connect().await.unwrap();
    conn.execute("create table note (text text)").await.unwrap();
}

/// What another server's clock does to the rows: it is ahead, or behind, by this much.
async fn shift_clock(pool: &PgPool, seconds: f64) {
    let shift = "update lease set expires_at = expires_at - make_interval(secs => $1)";
    sqlx::query(shift).bind(seconds).execute(pool).await.unwrap();
}

async fn guard(pool: &PgPool, lease: &Lease) -> bool {
    lease.guard(&mut pool.acquire().await.unwrap()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_decide_when_the_clock_of_the_new_primary_differs() {
    const HOUR: f64 = 3_600.0;
    let ttl = Duration::from_secs(60);
    let database = TestDatabase::create().await;
    let pool = database.pool();
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    let first = Lease::acquire(pool, "work", one, ttl).await.unwrap().unwrap();
    assert!(Lease::acquire(pool, "work", two, ttl).await.unwrap().is_none());

    // The clock is ahead: the lease seems to have expired while its owner works.
    shift_clock(pool, HOUR).await;
    assert!(!guard(pool, &first).await);
    let second = Lease::acquire(pool, "work", two, ttl).await.unwrap().unwrap();
    // The clock is behind: the former owner's time would not be over for long.
    shift_clock(pool, -HOUR).await;
    assert!(!guard(pool, &first).await && !first.renew(pool).await.unwrap());
    assert!(Lease::acquire(pool, "work", one, ttl).await.unwrap().is_none());
    first.release(pool).await.unwrap();
    assert!(guard(pool, &second).await, "a former owner released the lease of its successor");

    // Nobody took the lease over: its owner goes on, with a new fence, and nothing of before is written any more.
    let mut kept = LeaseGuard::try_acquire(pool, "other", one, Duration::ZERO).await.unwrap().unwrap();
    let before = kept.lease().clone();
    shift_clock(pool, HOUR).await;
    assert!(kept.keep(pool).await.unwrap());
    assert_eq!(kept.lease().fence, before.fence + 1);
    assert!(!before.renew(pool).await.unwrap() && !guard(pool, &before).await);
}
