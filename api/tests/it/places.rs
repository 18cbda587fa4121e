//! How the places of a process are shared between partners.

use axum::Router;
use dvp_api::{Api, Limits, router};
use futures_util::future::join_all;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use dvp_testing::wait::wait_for;
use tokio_util::sync::CancellationToken;

use crate::harness::{ApiHarness, Call, Keys, order};

fn door(harness: &ApiHarness, limits: Limits) -> Router {
    router(Api::new(harness.engine.clone()).with_limits(limits), CancellationToken::new())
}

async fn newest(harness: &ApiHarness, keys: &Keys) -> String {
    let page = harness.get(keys, "/v1/events?limit=100").await.ok(200);
    page["nextCursor"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn idle_long_polls_hold_no_permit_and_wake_for_their_partners_events() {
    let harness = ApiHarness::new().await;
    let waiting = 40;
    let limits =
        Limits { in_flight: 2, in_flight_per_partner: 2, waiting_per_partner: waiting, ..Limits::default() };
    let door = door(&harness, limits);
    let since = newest(&harness, &harness.acme).await;
    let path = |wait: u32| format!("/v1/events?wait={wait}&since={since}");
    let (poll, probe) = (Call::get(&harness.acme, &path(8)), Call::get(&harness.acme, &path(1)));
    // A poll that got no permit, or no event, is repeated until it returns an event.
    let polls = join_all((0..waiting).map(|_| {
        wait_for("an event", || async {
            let answer = harness.send_to(door.clone(), &poll).await;
            let events = (answer.status == 200).then(|| answer.json()["data"].as_array().unwrap().len());
            events.filter(|events| *events > 0)
        })
    }));
    let others = async {
        // One too many is refused: all the others wait at the same time, with two places between them.
        let refused = wait_for("all to wait", || async {
            let answer = harness.send_to(door.clone(), &probe).await;
            (answer.status == 429).then_some(answer)
        })
        .await;
        assert!(refused.header("retry-after").is_some());
        for keys in [&harness.globex, &harness.acme] {
            wait_for("a place", || async {
                let answer = harness.send_to(door.clone(), &Call::get(keys, "/v1/pairs")).await;
                (answer.status == 200).then_some(())
            })
            .await;
        }
        harness.submit(&harness.globex, &order()).await.ok(202);
        harness.submit(&harness.acme, &order()).await.ok(202);
    };
    let (received, ()) = tokio::join!(polls, others);
    assert_eq!(received, vec![1; waiting]);
}

fn reads_by(metrics: &PrometheusHandle, reader: &str) -> u64 {
    let metrics = metrics.render();
    let figure = format!("dvp_rest_feed_reads_total{{reader=\"{reader}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&figure)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn an_event_is_read_once_for_all_long_polls_of_its_partner() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let harness = ApiHarness::new().await;
    let waiting = 40;
    let door = door(&harness, Limits { waiting_per_partner: waiting, ..Limits::default() });
    let keys = harness.issue("many", 100_000, "test", &["events:read", "intents:write"]).await;
    let since = newest(&harness, &keys).await;
    let body = order();
    let filters = [
        String::new(),
        format!("&intentId={}", body["intentId"].as_str().unwrap()),
        "&type=intent.accepted".to_owned(),
        "&limit=1".to_owned(),
    ];
    let calls = (0..waiting).map(|n| {
        let filter = filters.get(n % filters.len()).unwrap();
        Call::get(&keys, &format!("/v1/events?wait=8&since={since}{filter}"))
    });
    let (calls, probe): (Vec<Call>, _) =
        (calls.collect(), Call::get(&keys, &format!("/v1/events?wait=1&since={since}")));
    let polls = join_all(calls.iter().map(|call| {
        wait_for("an event", || async {
            // The probe below may have the last place for a while.
            let answer = harness.send_to(door.clone(), call).await;
            let page = (answer.status == 200).then(|| answer.json());
            page.filter(|page| !page["data"].as_array().unwrap().is_empty())
        })
    }));
    let order = async {
        // One too many is refused: all the others wait.
        wait_for("all to wait", || async {
            (harness.send_to(door.clone(), &probe).await.status == 429).then_some(())
        })
        .await;
        let before = reads_by(&metrics, "request");
        harness.submit(&keys, &body).await.ok(202);
        before
    };
    let (pages, before) = tokio::join!(polls, order);
    for page in &pages {
        let events = page["data"].as_array().unwrap();
        assert_eq!((events.len(), &events[0]["intentId"]), (1, &body["intentId"]));
        assert_eq!(page["hasMore"], false);
    }
    let by_requests = reads_by(&metrics, "request") - before;
    assert!(by_requests < 40, "{by_requests} requests read the event for themselves");
    assert!(reads_by(&metrics, "follower") >= 1);
}
