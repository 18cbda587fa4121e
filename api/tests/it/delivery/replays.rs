//! Replays: one at a time for each endpoint, by turns, and none into a long queue.

use dvp_testing::receiver::{ReceiverManner, Reply};
use serde_json::{Value, json};

use super::{PATH, Scene};
use crate::harness::{Answer, Keys, order};
use crate::webhooks::register;

const OPEN: &str = "select count(*) from webhook_replay";
const QUEUED: &str = "select count(*) from webhook_queue where origin = 'replay'";

async fn replay(scene: &Scene, keys: &Keys, range: &Value) -> Answer {
    scene.harness.manage(keys, "POST", &format!("{PATH}/replay"), range).await
}

fn since(from: &str) -> Value {
    json!({"from": from, "to": "2100-01-01T00:00:00Z"})
}

#[tokio::test]
async fn overlapping_replays_of_an_endpoint_queue_each_event_once() {
    let mut scene = Scene::before_delivery(ReceiverManner::default(), |_, _| Reply::Status(500)).await;
    scene.accept().await;
    let acme = scene.harness.acme.clone();
    let first = replay(&scene, &acme, &since("2020-01-01T00:00:00.0000001Z")).await.ok(202);
    assert_eq!(replay(&scene, &acme, &since("2020-01-01T00:00:00.0000001Z")).await.ok(202), first);
    replay(&scene, &acme, &since("2021-01-01T00:00:00Z")).await.refused(409, "ALREADY_EXISTS");
    let mut narrow = since("2020-01-01T00:00:00.0000001Z");
    narrow["types"] = json!(["intent.accepted"]);
    replay(&scene, &acme, &narrow).await.refused(409, "ALREADY_EXISTS");
    assert_eq!(scene.harness.count(OPEN).await, 1);
    scene.start_delivery();
    scene.harness.wait_for_count(OPEN, 0).await;
    let events = "select count(distinct event_id) from webhook_queue where origin = 'replay'";
    assert_eq!((scene.harness.count(QUEUED).await, scene.harness.count(events).await), (1, 1));
    // After its end there is place for another.
    replay(&scene, &acme, &since("2021-01-01T00:00:00Z")).await.ok(202);
}

#[tokio::test]
async fn a_replay_is_served_while_another_endpoints_goes_on() {
    let mut scene = Scene::before_delivery(ReceiverManner::default(), |_, _| Reply::Status(500)).await;
    let globex = scene.harness.globex.clone();
    register(&scene.harness, &globex, &scene.receiver.url("127.0.0.1")).await;
    scene.harness.submit(&globex, &order()).await.ok(202);
    // It has more pieces than can be served in the time of the test.
    scene
        .harness
        .run(
            "insert into webhook_replay (endpoint_id, position, until, from_time, to_time) \
         select w.id, 0, 1000000000000000, '2020-01-01Z', '2100-01-01Z' \
         from webhook_endpoint w join partner p on p.id = w.partner_id where p.name = 'acme'",
        )
        .await;
    replay(&scene, &globex, &since("2020-01-01T00:00:00Z")).await.ok(202);
    assert_eq!(scene.harness.count(OPEN).await, 2);
    scene.start_delivery();
    scene.harness.wait_for_count(OPEN, 1).await;
    let queued = "select count(*) from webhook_queue q join partner p on p.id = q.partner_id \
                  where q.origin = 'replay' and p.name = 'globex'";
    assert_eq!(scene.harness.count(queued).await, 1);
}

#[tokio::test]
async fn a_replay_waits_while_its_endpoints_queue_is_long() {
    let mut scene = Scene::before_delivery(ReceiverManner::default(), |_, _| Reply::Status(500)).await;
    scene.accept().await;
    scene
        .harness
        .run(
            "insert into webhook_queue (endpoint_id, partner_id, event_id, type, origin, body, due_at) \
         select id, partner_id, 'evt_' || n, 'payout.failed', 'feed', '{}', now() + interval '1 day' \
         from webhook_endpoint, generate_series(1, 5001) n",
        )
        .await;
    let acme = scene.harness.acme.clone();
    replay(&scene, &acme, &since("2020-01-01T00:00:00Z")).await.ok(202);
    scene.start_delivery();
    let waiting = "select count(*) from webhook_replay where due_at > clock_timestamp()";
    scene.harness.wait_for_count(waiting, 1).await;
    assert_eq!(scene.harness.count(QUEUED).await, 0);
    scene.harness.run("delete from webhook_queue where type = 'payout.failed'").await;
    scene.harness.run("update webhook_replay set due_at = clock_timestamp()").await;
    scene.harness.wait_for_count(OPEN, 0).await;
    assert_eq!(scene.harness.count(QUEUED).await, 1);
}
