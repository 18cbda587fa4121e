//! The delivery log, deliveries that were requested again, and how long both are kept.

use dvp_store::PgConnection;
use dvp_store::database::partitions::{self, DayTable};
use dvp_store::webhooks::deliveries;
use dvp_testing::receiver::Reply;
use dvp_testing::wait::wait_for;
use serde_json::{Value, json};

use super::{PATH, Scene};
use crate::harness::Call;

#[tokio::test]
async fn the_log_is_paged_and_filtered() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.insert(0, scene.ping().await);
    }
    scene.received(5).await;
    let ask = async |query: String| {
        let call = Call::get(&scene.harness.acme, &format!("{PATH}/deliveries{query}"));
        scene.harness.send(&call).await.ok(200)
    };
    let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = ask(query.clone()).await;
        seen.extend(
            page["data"].as_array().unwrap().iter().map(|one| one["eventId"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["nextCursor"].as_str() else { break };
        query = format!("?limit=2&since={next}");
    }
    assert_eq!(seen, sent);
    assert_eq!(ask(format!("?eventId={}", sent[3])).await["data"].as_array().unwrap().len(), 1);
    assert_eq!(ask("?state=failed".into()).await["data"], json!([]));
    for (query, code) in
        [("state=lost", "INVALID_PARAMETER"), ("since=1", "INVALID_CURSOR"), ("limit=0", "INVALID_PARAMETER")]
    {
        let call = Call::get(&scene.harness.acme, &format!("{PATH}/deliveries?{query}"));
        scene.harness.send(&call).await.refused(400, code);
    }
    let other_partner = Call::get(&scene.harness.globex, &format!("{PATH}/deliveries"));
    scene.harness.send(&other_partner).await.refused(404, "NOT_FOUND");
}

#[tokio::test]
async fn events_over_64_kib_are_not_sent() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    scene.accept().await;
    scene.received(1).await;
    let (event,): (String,) = scene.harness.row("select event_id from event").await;
    let path = format!("/v1/events/{event}");
    let fill = async |bytes: usize| {
        let filled = "update event set object = \
                      jsonb_set(object::jsonb, '{beneficiary,bank}', to_jsonb(repeat('x', $1::int)))::json";
        scene.harness.run_of(filled, &bytes.to_string()).await;
        scene.harness.get(&scene.harness.acme, &path).await.text.len()
    };
    let frame = fill(0).await;
    let resend = Call::manage(&scene.harness.acme, "POST", &format!("{path}/resend"), &Value::Null);
    assert_eq!(fill(64 * 1024 - frame).await, 64 * 1024);
    scene.harness.send(&resend).await.ok(202);
    assert_eq!(scene.received(2).await[1].body.len(), 64 * 1024);
    fill(64 * 1024 - frame + 1).await;
    scene.harness.send(&resend).await.ok(202);
    let latest = scene.log().await.remove(0);
    assert_eq!((&latest["state"], &latest["attempts"]), (&json!("failed"), &json!([])), "{latest}");
    // Later deliveries are sent; this one is not.
    let ping = scene.ping().await;
    assert_eq!(scene.received(3).await[2].event_id(), ping);
}

#[tokio::test]
async fn a_replay_sends_the_events_observed_in_its_period() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    for _ in 0..4 {
        scene.accept().await;
    }
    scene.received(4).await;
    // One an hour, from ten o'clock on.
    let hours = "update event set occurred_at = occurred_at - interval '3 days', \
                                     observed_at = date_trunc('day', now()) - interval '1 day' \
                                                + make_interval(hours => 9 + position::int4)";
    scene.harness.run(hours).await;
    let listed = scene.harness.get(&scene.harness.acme, "/v1/events").await.ok(200);
    let of = |n: usize, field: &str| listed["data"][n][field].as_str().unwrap().to_owned();
    let replay = async |body: Value| {
        let call = Call::manage(&scene.harness.acme, "POST", &format!("{PATH}/replay"), &body);
        scene.harness.send(&call).await
    };
    let (from, to) = (of(1, "observedAt"), of(3, "observedAt"));
    let accepted = replay(json!({"from": from, "to": to})).await.ok(202);
    assert!(accepted["replayId"].as_str().unwrap().starts_with("rpl_"), "{accepted}");
    let again: Vec<String> =
        scene.received(6).await[4..].iter().map(|got| got.event_id().to_owned()).collect();
    let mut expected = [of(1, "id"), of(2, "id")];
    expected.sort();
    let mut sorted = again.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    let origins: Vec<Value> = scene.log().await.iter().map(|one| one["origin"].clone()).collect();
    assert_eq!(origins[..2], ["replay", "replay"]);
    // Of these types there were none; the next delivery is a ping.
    replay(json!({"from": from, "to": to, "types": ["payout.completed"]})).await.ok(202);
    scene.harness.wait_for_count("select count(*) from webhook_replay", 0).await;
    let ping = scene.ping().await;
    assert_eq!(scene.received(7).await[6].event_id(), ping);
    for (body, code) in [
        (json!({"from": to, "to": from}), "INVALID_PARAMETER"),
        (json!({"from": from}), "INVALID_PARAMETER"),
        (json!({"from": "yesterday", "to": to}), "INVALID_PARAMETER"),
        (json!({"from": from, "to": to, "types": ["intent.lost"]}), "INVALID_TYPE"),
    ] {
        replay(body).await.refused(400, code);
    }
}

#[tokio::test]
async fn deliveries_are_retained_as_long_as_events() {
    let scene = Scene::new(|n, _| Reply::Status(if n == 0 { 500 } else { 200 })).await;
    scene.accept().await;
    scene.attempted(1).await;
    let young = scene.ping().await;
    scene.skip_pauses().await;
    scene.received(3).await;
    wait_for("both logged", || async {
        let log = scene.log().await;
        log.iter().all(|one| one["state"] == "delivered").then_some(())
    })
    .await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    create_earlier_days(&mut conn).await;
    for statement in [
        "update webhook_delivery_log set ended_at = ended_at - interval '16 days' where origin = 'feed'",
        "update webhook_attempt_log set at = at - interval '16 days'",
    ] {
        sqlx::query(statement).execute(&mut *conn).await.unwrap();
    }
    assert_eq!(scene.log().await.len(), 2, "no statement deletes rows");
    for _ in 0..3 {
        deliveries::drop_old_day(&mut conn).await.unwrap();
    }
    let kept = scene.log().await;
    assert_eq!(kept.iter().map(|one| &one["eventId"]).collect::<Vec<_>>(), [&young]);
    assert_eq!(kept[0]["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(scene.harness.count("select count(*) from webhook_attempt_log").await, 0);
    // Waiting deliveries are deleted too: their events have left the feed.
    scene.accept().await;
    scene.received(4).await;
    scene.attempted(1).await;
    let age = "insert into webhook_queue (endpoint_id, partner_id, event_id, type, origin, body, due_at, created_at) \
               select endpoint_id, partner_id, 'evt_old', type, origin, '{}', now() + interval '1 hour', \
                      now() - interval '15 days' from webhook_delivery_log limit 1";
    scene.harness.run(age).await;
    scene.harness.run("update webhook_queue set id = 0").await;
    assert_eq!(deliveries::trim(&mut conn, 100).await.unwrap(), 1);
    assert_eq!(scene.log().await.len(), 2);
}

/// Creates the partitions of the last weeks, as after three weeks.
async fn create_earlier_days(conn: &mut PgConnection) {
    let today = chrono::Utc::now().date_naive();
    for table in DayTable::WEBHOOK_LOG {
        for days in 0..=16 {
            partitions::create_day(conn, table, today - chrono::Days::new(days)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_missing_day_of_the_log_is_created_before_the_outcome_is_written_again() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let drop_days = "do $$ declare day regclass; begin \
         for day in select partition from partition_days('webhook_delivery_log') \
                    union all select partition from partition_days('webhook_attempt_log') loop \
             execute format('drop table %s', day); \
         end loop; end $$";
    scene.harness.run(drop_days).await;
    let ping = scene.ping().await;
    let logged = scene.attempted(1).await;
    assert_eq!((&logged["state"], &logged["eventId"]), (&json!("delivered"), &json!(ping)));
    assert_eq!(scene.received(1).await.len(), 1, "it was not sent again");
    let days = "select count(*) from partition_days('webhook_delivery_log')";
    assert_eq!(scene.harness.count(days).await, 1);
}

#[tokio::test]
async fn an_unwritable_outcome_repeats_the_delivery() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let refuse = "alter table webhook_delivery_log add constraint refused check (origin <> 'test')";
    scene.harness.run(refuse).await;
    let ping = scene.ping().await;
    let got = scene.received(2).await;
    assert!(got.iter().all(|one| one.event_id() == ping && one.body == got[0].body));
    let logged = scene.log().await.remove(0);
    assert_eq!((&logged["state"], &logged["attempts"]), (&json!("pending"), &json!([])));
    scene.harness.run("alter table webhook_delivery_log drop constraint refused").await;
    let logged = scene.attempted(1).await;
    assert_eq!(logged["state"], "delivered");
}
