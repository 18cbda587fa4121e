//! Deliveries of several processes, and of one that stopped or died.

use std::collections::BTreeSet;
use std::time::Duration;

use dvp_api::delivery::Delivery;
use dvp_testing::receiver::Reply;
use dvp_testing::wait::wait_for;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{PATH, Scene, config};
use crate::webhooks::register;

#[tokio::test]
async fn deliveries_of_a_dead_worker_are_sent_again_with_the_same_id() {
    let mut scene = Scene::new(|n, _| if n < 3 { Reply::Never } else { Reply::Status(200) }).await;
    let mut sent: Vec<String> = Vec::new();
    for _ in 0..3 {
        sent.push(scene.ping().await);
    }
    scene.received(3).await;
    // Dies in the middle: nothing of it is written.
    scene.harness.run("update endpoint_lease set fence = fence + 1").await;
    scene.start_delivery();
    let delivered = async || scene.log().await.iter().filter(|one| one["state"] == "delivered").count();
    wait_for("all of them", || async { (delivered().await == 3).then_some(()) }).await;
    let mut got: Vec<String> = scene.receiver.got().iter().map(|one| one.event_id().to_owned()).collect();
    got.sort();
    got.dedup();
    sent.sort();
    assert_eq!(got, sent);
    assert!(scene.log().await.iter().all(|one| one["attempts"].as_array().unwrap().len() == 1));
}

#[tokio::test]
async fn two_processes_share_the_endpoints_and_send_everything_once() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let harness = &scene.harness;
    for keys in [&harness.acme_live, &harness.globex] {
        register(harness, keys, &scene.receiver.url("127.0.0.1")).await;
    }
    let stop = CancellationToken::new();
    let other = Delivery::new(harness.engine.clone(), config(&scene.authority)).unwrap();
    tokio::spawn(other.run(stop.clone()));
    let owners = "select count(distinct owner) from endpoint_lease where expires_at > now()";
    let mut sent = BTreeSet::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while harness.count(owners).await < 2 {
        assert!(tokio::time::Instant::now() < deadline, "one process holds all leases");
        for keys in [&harness.acme, &harness.acme_live, &harness.globex] {
            let ping = harness.manage(keys, "POST", &format!("{PATH}/test"), &Value::Null).await.ok(202);
            sent.insert(ping["eventId"].as_str().unwrap().to_owned());
        }
    }
    let got = scene.received(sent.len()).await;
    let ids: BTreeSet<String> = got.iter().map(|one| one.event_id().to_owned()).collect();
    assert_eq!((got.len(), ids), (sent.len(), sent));
    stop.cancel();
}

#[tokio::test]
async fn a_stopped_process_hands_its_endpoints_over() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let harness = &scene.harness;
    scene.stop.cancel();
    // Leases that would last longer than this test.
    let process = || {
        let mut config = config(&scene.authority);
        config.limits.lease = Duration::from_secs(3600);
        let delivery = Delivery::new(harness.engine.clone(), config).unwrap();
        let stop = CancellationToken::new();
        (tokio::spawn(delivery.run(stop.clone())), stop)
    };
    let held =
        "select count(*) from endpoint_lease where expires_at > clock_timestamp() + interval '30 minutes'";
    let (first, stop_first) = process();
    scene.ping().await;
    scene.received(1).await;
    harness.wait_for_count(held, 1).await;
    let (second, stop_second) = process();
    wait_for("two senders", || async {
        let senders = "select count(*) from webhook_sender where alive_until > clock_timestamp()";
        (harness.count(senders).await >= 2).then_some(())
    })
    .await;
    stop_first.cancel();
    first.await.unwrap();
    scene.ping().await;
    scene.received(2).await;
    stop_second.cancel();
    second.await.unwrap();
    assert_eq!(harness.count(held).await, 0);
}

#[tokio::test]
async fn a_lease_that_is_taken_during_a_stop_is_released() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let harness = &scene.harness;
    let lock_leases = async || {
        let mut locking = harness.pool().begin().await.unwrap();
        let lock = "lock table endpoint_lease in access exclusive mode";
        sqlx::query(lock).execute(&mut *locking).await.unwrap();
        locking
    };
    let polled = "select least(count(*), 1) from pg_stat_activity where datname = current_database() \
                  and query like '%with due as%update endpoint_lease%' and state = 'idle'";
    harness.wait_for_count(polled, 1).await;
    let locking = lock_leases().await;
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and query like '%with due as%update endpoint_lease%' and wait_event_type = 'Lock'";
    harness.wait_for_count(waiting, 1).await;
    scene.ping().await;
    let earlier = "update webhook_queue set due_at = due_at - interval '1 hour'";
    harness.run(earlier).await;
    scene.stop.cancel();
    tokio::time::sleep(Duration::from_millis(200)).await;
    locking.commit().await.unwrap();
    let senders = "select count(*) from webhook_sender";
    harness.wait_for_count(senders, 0).await;
    // Behind every statement that was sent before.
    lock_leases().await.commit().await.unwrap();
    assert_eq!(harness.count("select max(fence) from endpoint_lease").await, 1, "the poll took the lease");
    let held = "select count(*) from endpoint_lease where expires_at > clock_timestamp()";
    assert_eq!(harness.count(held).await, 0);
}
