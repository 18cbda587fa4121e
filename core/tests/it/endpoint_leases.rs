//! Leases of webhook endpoints: the permission to send, and the outcomes that count.

use std::time::Duration;

use chrono::Utc;
use dvp_sandbox::embedded::TestDatabase;
use dvp_store::database::lease;
use dvp_store::webhooks::deliveries::{self, Ask, Attempt, Ended, LogFilter, NewDelivery, Next, Origin};
use dvp_store::webhooks::leases::{self, EndpointLease};
use dvp_store::{PgConnection, PgPool, partners::registry, webhooks};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(60);
const ENDED: Duration = Duration::ZERO;

/// Endpoints `whe_0` and so on of one partner.
async fn endpoints(conn: &mut PgConnection, count: usize) {
    registry::ensure_partner(conn, "ptn_acme", "acme", "enterprise", 1_000_000).await.unwrap();
    for n in 0..count {
        let key = "insert into api_key (id, partner_id, env, key_hash, key_prefix, sealed_secret, scopes, hash_key) \
                   values ($1, 'ptn_acme', 'test', sha256($1::bytea), 'p', '', '{}', '1')";
        sqlx::query(key).bind(format!("key_{n}")).execute(&mut *conn).await.unwrap();
        let endpoint = "insert into webhook_endpoint (id, key_id, partner_id, livemode, url, subscribed_types, \
                                                      api_version, sealed_secret, from_position) \
                        values ($1, $2, 'ptn_acme', false, 'https://example.com', '{payout.failed}', '1', '', 0)";
        let insert = sqlx::query(endpoint).bind(format!("whe_{n}")).bind(format!("key_{n}"));
        insert.execute(&mut *conn).await.unwrap();
    }
}

async fn harness(count: usize) -> TestDatabase {
    let database = TestDatabase::create().await;
    let mut conn = database.pool().acquire().await.unwrap();
    endpoints(&mut conn, count).await;
    let lease = "insert into endpoint_lease (endpoint_id) select id from webhook_endpoint";
    sqlx::query(lease).execute(&mut *conn).await.unwrap();
    database
}

async fn queue(pool: &PgPool, endpoint: &str) {
    queue_in(&mut pool.acquire().await.unwrap(), endpoint).await;
}

async fn queue_in(conn: &mut PgConnection, endpoint: &str) {
    let new = NewDelivery {
        endpoint_id: endpoint.to_owned(),
        partner_id: "ptn_acme".to_owned(),
        event_id: format!("evt_{endpoint}"),
        kind: "payout.failed".to_owned(),
        origin: Origin::Feed,
        body: "{}".to_owned(),
        trace: None,
    };
    deliveries::insert(conn, &[new]).await.unwrap();
}

async fn acquire(pool: &PgPool, owner: Uuid, ttl: Duration) -> Vec<EndpointLease> {
    leases::acquire(&mut pool.acquire().await.unwrap(), owner, ttl, 100).await.unwrap()
}

async fn renew(pool: &PgPool, owner: Uuid, held: &[EndpointLease]) -> leases::Renewed {
    let mut tx = pool.begin().await.unwrap();
    let renewed = leases::renew(&mut tx, owner, held, LONG).await.unwrap();
    tx.commit().await.unwrap();
    renewed
}

async fn due(pool: &PgPool, endpoint: &str) -> Vec<i64> {
    let ask = Ask { endpoint_id: endpoint.to_owned(), after: None, room: 100 };
    let found = deliveries::list_due(&mut pool.acquire().await.unwrap(), &[ask], &[], 100).await.unwrap();
    found.iter().map(|due| due.place.id).collect()
}

fn ended(id: i64, fence: i64, number: u32, next: Next) -> Ended {
    Ended { id, fence, next, attempt: Some(Attempt { number, at: Utc::now(), ..Attempt::default() }) }
}

#[tokio::test]
async fn an_outcome_is_written_only_under_its_leases_fence() {
    let database = harness(1).await;
    let pool = database.pool();
    queue(pool, "whe_0").await;
    let (slow, quick) = (Uuid::new_v4(), Uuid::new_v4());
    let slows = acquire(pool, slow, ENDED).await;
    let id = due(pool, "whe_0").await[0];
    let quicks = acquire(pool, quick, LONG).await;
    assert_eq!((slows[0].fence, quicks[0].fence), (1, 2));
    assert!(acquire(pool, slow, LONG).await.is_empty());
    let mut conn = pool.acquire().await.unwrap();
    for next in [Next::Delivered, Next::Failed, Next::Again(LONG)] {
        let late = deliveries::end(&mut conn, &slows, &[ended(id, 1, 1, next)]).await.unwrap();
        assert!(late.is_empty(), "{next:?}");
    }
    // An outcome under an old lease is not written together with current ones, either.
    let both = [slows[0].clone(), quicks[0].clone()];
    assert!(deliveries::end(&mut conn, &both, &[ended(id, 1, 1, Next::Delivered)]).await.unwrap().is_empty());
    assert_eq!(due(pool, "whe_0").await, [id]);
    let mine = deliveries::end(&mut conn, &both, &[ended(id, 2, 1, Next::Again(ENDED))]).await.unwrap();
    assert_eq!(mine, [id]);
    let mine = deliveries::end(&mut conn, &quicks, &[ended(id, 2, 2, Next::Delivered)]).await.unwrap();
    assert_eq!((mine, due(pool, "whe_0").await), (vec![id], vec![]));
    let filter = LogFilter { limit: 9, ..LogFilter::default() };
    let log = deliveries::list_log(&mut conn, "whe_0", &filter).await.unwrap();
    assert_eq!(log.iter().map(|one| (one.id, one.state.as_str())).collect::<Vec<_>>(), [(id, "delivered")]);
    let attempts = deliveries::list_attempts(&mut conn, "whe_0", &log).await.unwrap();
    assert_eq!(attempts.iter().map(|one| one.number).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn attempts_of_several_days_belong_to_their_delivery() {
    let database = harness(1).await;
    let mut conn = database.pool().acquire().await.unwrap();
    let log = async |conn: &mut PgConnection| {
        let filter = LogFilter { limit: 9, ..LogFilter::default() };
        let log = deliveries::list_log(conn, "whe_0", &filter).await.unwrap();
        let attempts = deliveries::list_attempts(conn, "whe_0", &log).await.unwrap();
        let ids: Vec<i64> = log.iter().map(|one| one.id).collect();
        (ids, attempts.iter().map(|one| (one.delivery_id, one.number)).collect::<Vec<_>>())
    };
    assert_eq!(log(&mut conn).await, (vec![], vec![]));
    for statement in [
        "select create_day_partition('webhook_delivery_log', (now() at time zone 'UTC')::date - n), \
                create_day_partition('webhook_attempt_log', (now() at time zone 'UTC')::date - n) \
         from generate_series(1, 7) n",
        "insert into webhook_delivery_log (id, endpoint_id, partner_id, event_id, type, origin, state, created_at, ended_at, \
                                           number, at, status, latency_ms) \
         select 10 + n, 'whe_0', 'ptn_acme', 'evt_' || n, 'payout.failed', 'feed', 'delivered', now() - n * interval '3 days', \
                now() - n * interval '1 day', 3, now(), 200, 5 from generate_series(1, 2) n",
        "insert into webhook_attempt_log (delivery_id, number, at, latency_ms) \
         values (11, 1, now() - interval '3 days', 5), (11, 2, now() - interval '2 days', 5), \
                (12, 1, now() - interval '6 days', 5), (12, 2, now() - interval '3 days', 5), \
                (13, 1, now() - interval '3 days', 5)",
    ] {
        sqlx::query(statement).execute(&mut *conn).await.unwrap();
    }
    assert_eq!(
        log(&mut conn).await,
        (vec![12, 11], vec![(11, 1), (11, 2), (11, 3), (12, 1), (12, 2), (12, 3)])
    );
    // One that still waits has made its attempts until now.
    drop(conn);
    queue(database.pool(), "whe_0").await;
    let mut conn = database.pool().acquire().await.unwrap();
    sqlx::query("update webhook_queue set created_at = now() - interval '2 days'")
        .execute(&mut *conn)
        .await
        .unwrap();
    let attempt = "insert into webhook_attempt_log (delivery_id, number, at, latency_ms) select id, 1, now(), 5 from webhook_queue";
    sqlx::query(attempt).execute(&mut *conn).await.unwrap();
    assert_eq!(log(&mut conn).await.1.len(), 7);
}

#[tokio::test]
async fn a_disabled_partner_is_sent_nothing_until_it_is_enabled() {
    let database = harness(2).await;
    let pool = database.pool();
    queue(pool, "whe_0").await;
    let (owner, other) = (Uuid::new_v4(), Uuid::new_v4());
    let held = acquire(pool, owner, LONG).await;
    assert_eq!((held.len(), due(pool, "whe_0").await.len()), (1, 1));
    let switch = async |is_enabled| {
        let mut tx = pool.begin().await.unwrap();
        assert!(registry::switch_partner(&mut tx, "ptn_acme", is_enabled, "jo", "revoked").await.unwrap());
        tx.commit().await.unwrap();
    };
    let found =
        async || webhooks::find_many(&mut pool.acquire().await.unwrap(), &["whe_0"]).await.unwrap().len();
    switch(false).await;
    // It is due neither for the owner nor for another process.
    assert_eq!((due(pool, "whe_0").await.len(), found().await), (0, 0));
    queue(pool, "whe_1").await;
    assert!(acquire(pool, other, LONG).await.is_empty());
    let kept: (i64,) = sqlx::query_as("select count(*) from webhook_queue").fetch_one(pool).await.unwrap();
    assert_eq!(kept.0, 2, "what is queued stays");
    switch(true).await;
    assert_eq!((due(pool, "whe_0").await.len(), found().await), (1, 1));
    assert_eq!(acquire(pool, other, LONG).await.len(), 1);
}

#[tokio::test]
async fn an_expired_lease_keeps_its_fence_until_it_is_acquired() {
    let database = harness(1).await;
    let pool = database.pool();
    queue(pool, "whe_0").await;
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let held = acquire(pool, first, ENDED).await;
    assert_eq!(renew(pool, first, &held).await.held, ["whe_0"]);
    assert!(acquire(pool, second, LONG).await.is_empty());
    leases::release(&mut pool.acquire().await.unwrap(), &held).await.unwrap();
    assert_eq!(acquire(pool, second, LONG).await.len(), 1);
    assert!(renew(pool, first, &held).await.held.is_empty());
    // A late release does not affect the new owner.
    leases::release(&mut pool.acquire().await.unwrap(), &held).await.unwrap();
    assert!(acquire(pool, first, LONG).await.is_empty());
    lease::release_all(&mut pool.acquire().await.unwrap()).await.unwrap();
    assert_eq!(acquire(pool, first, LONG).await.len(), 1);
}

#[tokio::test]
async fn processes_share_the_leases_of_endpoints_with_due_deliveries() {
    let database = harness(8).await;
    let pool = database.pool();
    for n in 0..6 {
        queue(pool, &format!("whe_{n}")).await;
    }
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    assert_eq!(renew(pool, first, &[]).await.share, 0);
    renew(pool, second, &[]).await;
    let firsts = acquire(pool, first, LONG).await;
    assert_eq!((firsts.len(), acquire(pool, first, LONG).await.len()), (3, 0));
    assert_eq!(acquire(pool, second, LONG).await.len(), 3);
    assert_eq!(renew(pool, first, &firsts).await.share, 3);
    // The first one leaves, and the other one takes them all.
    let mut conn = pool.acquire().await.unwrap();
    leases::release(&mut conn, &firsts).await.unwrap();
    leases::leave(&mut conn, first).await.unwrap();
    assert_eq!(acquire(pool, second, LONG).await.len(), 3);
}

#[tokio::test]
async fn a_queue_is_read_in_order_after_a_position_without_deliveries_in_flight() {
    let database = harness(2).await;
    let pool = database.pool();
    for endpoint in ["whe_0", "whe_0", "whe_0", "whe_1", "whe_0"] {
        queue(pool, endpoint).await;
    }
    let ids = due(pool, "whe_0").await;
    assert_eq!(ids.len(), 4);
    let mut conn = pool.acquire().await.unwrap();
    let ask = |endpoint: &str, after, room| Ask { endpoint_id: endpoint.to_owned(), after, room };
    let requested = [ask("whe_1", None, 9), ask("whe_0", None, 2)];
    let found = deliveries::list_due(&mut conn, &requested, &[ids[0]], 9).await.unwrap();
    assert_eq!(found.iter().map(|due| due.lease).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!([found[1].place.id, found[2].place.id], [ids[1], ids[2]]);
    let requested = [ask("whe_0", Some(found[1].place), 9)];
    let found = deliveries::list_due(&mut conn, &requested, &[], 1).await.unwrap();
    assert_eq!(found.iter().map(|due| due.place.id).collect::<Vec<_>>(), [ids[2]]);
    sqlx::query("update webhook_endpoint set is_active = false").execute(&mut *conn).await.unwrap();
    assert!(deliveries::list_due(&mut conn, &requested, &[], 9).await.unwrap().is_empty());
}

/// Outcomes lock their endpoints in the order of the ids, and the foreign key of a delivery those of the feed's order.
#[tokio::test]
async fn deliveries_are_inserted_in_any_order_while_the_endpoints_are_locked() {
    let database = harness(2).await;
    let pool = database.pool();
    let (mut inserting, mut writing) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    queue_in(&mut inserting, "whe_1").await;
    for tx in [&mut inserting, &mut writing] {
        sqlx::query("set local lock_timeout = '2s'").execute(&mut **tx).await.unwrap();
    }
    let locked = webhooks::lock_many(&mut writing, &["whe_0", "whe_1"]).await.unwrap();
    assert_eq!(locked.len(), 2);
    queue_in(&mut inserting, "whe_0").await;
    writing.commit().await.unwrap();
    inserting.commit().await.unwrap();
}
