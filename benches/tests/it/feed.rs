//! A reader pages through the feed while sixteen writers commit, some of them slowly, and some give up: it sees every
//! event once, in order. Writers of other processes are other connections, too.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail it")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dvp_domain::event::EventType;
use dvp_store::PgPool;
use dvp_store::insert_batch::{self, AppendBatch};
use dvp_store::orders::events::{self, EventFilter, NewEvent};
use dvp_store::orders::intents::Tenant;
use dvp_testing::Harness;
use futures_util::future::join_all;

const WRITERS: u64 = 16;
const COMMITS: u64 = 30;
/// A reader without a new event for this time has missed one.
const PATIENCE: Duration = Duration::from_secs(120);

/// One writer: transactions of one event each. Some dawdle before the event, some between it and the commit, and some
/// give up and begin again.
async fn write(pool: &PgPool, tenant: &Tenant, writer: u64) {
    for commit in 0..COMMITS {
        let turn = writer * 7 + commit * 5;
        let attempts = if turn.is_multiple_of(10) { [true, false].as_slice() } else { &[false] };
        for gives_up in attempts {
            let mut tx = pool.begin().await.unwrap();
            if turn.is_multiple_of(8) {
                sqlx::query("select 1").execute(&mut *tx).await.unwrap();
                tokio::time::sleep(Duration::from_millis(turn % 20)).await;
            }
            let at = dvp_core::context::now().to_utc();
            let event = NewEvent {
                event_id: format!("evt_{}", uuid::Uuid::new_v4()),
                tenant: tenant.clone(),
                reference: format!("exe_{writer}"),
                intent_id: format!("intent-{writer}"),
                client_reference: None,
                sequence: i64::try_from(commit).unwrap() + 1,
                kind: EventType::IntentAccepted,
                occurred_at: at,
                observed_at: at,
                object: "{}".to_owned(),
            };
            let batch = AppendBatch { events: &[event], ..AppendBatch::default() };
            insert_batch::append(&mut tx, &batch).await.unwrap();
            if turn.is_multiple_of(16) {
                tokio::time::sleep(Duration::from_millis(turn % 10)).await;
            }
            match gives_up {
                true => tx.rollback().await.unwrap(),
                false => tx.commit().await.unwrap(),
            }
        }
    }
}

async fn read(pool: &PgPool, tenant: &Tenant) {
    let (mut after, mut last_new) = (0, Instant::now());
    let mut sequences: BTreeMap<String, i64> = BTreeMap::new();
    let expected = i64::try_from(WRITERS * COMMITS).unwrap();
    while after < expected {
        let filter = EventFilter { after, limit: 100, ..EventFilter::default() };
        let mut conn = pool.acquire().await.unwrap();
        for stored in events::list_for_tenant(&mut conn, tenant, &filter).await.unwrap() {
            assert_eq!(stored.position, after + 1, "a position was passed over");
            let last = sequences.entry(stored.event.intent_id.clone()).or_default();
            assert_eq!(stored.event.sequence, *last + 1, "{}", stored.event.intent_id);
            (after, *last, last_new) = (stored.position, stored.event.sequence, Instant::now());
        }
        assert!(last_new.elapsed() < PATIENCE, "{after} of {expected} events were ever seen");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_every_event_once_and_in_order_while_writers_commit_slowly() {
    let harness = Harness::new(dvp_benches::harness::market()).await;
    let (pool, tenant) = (harness.pool(), &harness.tenant);
    let writing = join_all((0..WRITERS).map(|writer| write(pool, tenant, writer)));
    tokio::join!(writing, read(pool, tenant));
    assert_eq!(
        harness.count("select position from feed_counter").await,
        i64::try_from(WRITERS * COMMITS).unwrap()
    );
}
