//! The archive of messages: complete, redacted, searchable, and never in a session's way.

use chrono::{DateTime, TimeDelta, Utc};
use dvp_store::fix::archive::{self, ArchivedMessage, Stretch, Wanted};

use super::harness::{FixHarness, LIMIT, SESSION, logged_on, order};

fn always() -> Stretch {
    Stretch { from: DateTime::UNIX_EPOCH, until: Utc::now() + TimeDelta::days(1), before: None }
}

async fn list(harness: &FixHarness, wanted: Wanted<'_>, stretch: Stretch) -> Vec<ArchivedMessage> {
    let mut conn = harness.pool().acquire().await.unwrap();
    archive::list_messages(&mut conn, SESSION, wanted, &stretch, 100).await.unwrap()
}

/// Direction, number and type of each, the oldest first.
fn seen(messages: &[ArchivedMessage]) -> Vec<(bool, i64, &str)> {
    let one = |message: &ArchivedMessage| (message.is_outbound, message.seq.unwrap());
    messages.iter().rev().map(|message| (one(message).0, one(message).1, message.msg_type.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_of_a_session_is_archived_without_its_secrets() {
    let (harness, gateway, mut client) = logged_on().await;
    client.ask("D", &order("first", "12345678", LIMIT), "8").await;
    client.send("F", "11=second|41=first|55=USDC/USD|54=2|38=100|60=20260101-00:00:00.000").await;
    client.expect_any(&["8", "9"]).await;
    client.send("2", "7=1|16=0").await;
    client.send("5", "").await;
    while client.expect_any(&["4", "5", "8", "9"]).await.text(35) != Some("5") {}
    gateway.stop().await;
    let all = list(&harness, Wanted::All, always()).await;
    let inbound: Vec<_> = seen(&all).into_iter().filter(|(is_outbound, ..)| !is_outbound).collect();
    assert_eq!(
        inbound,
        [(false, 1, "A"), (false, 2, "D"), (false, 3, "F"), (false, 4, "2"), (false, 5, "5")]
    );
    let resent = all.iter().filter(|message| message.content.contains("|43=Y|")).count();
    assert!(resent > 0, "what was sent again is there, too: {all:?}");
    for message in &all {
        assert!(!message.content.contains("secret") && !message.content.contains("12345678"), "{message:?}");
        assert!(!message.content.contains("Jane Doe"), "{message:?}");
    }
    assert!(all.iter().any(|message| message.content.contains("|554=***|")), "{all:?}");
    let first = list(&harness, Wanted::ClOrdId("first"), always()).await;
    assert!(seen(&first).starts_with(&[(false, 2, "D"), (true, 2, "8"), (false, 3, "F")]), "{first:?}");
    assert!(list(&harness, Wanted::ClOrdId("third"), always()).await.is_empty());
    let numbered = list(&harness, Wanted::Seq(2), always()).await;
    assert!(seen(&numbered).starts_with(&[(false, 2, "D"), (true, 2, "8")]), "{numbered:?}");
    let order_time = first.last().unwrap().at;
    let until = Stretch { until: order_time, ..always() };
    assert_eq!(seen(&list(&harness, Wanted::All, until).await), [(false, 1, "A"), (true, 1, "A")]);
    let from = Stretch { from: order_time, ..always() };
    assert_eq!(list(&harness, Wanted::All, from).await.len(), all.len() - 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_have_every_message_once() {
    let harness = FixHarness::new().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    // Three days, and several messages at the same moment.
    let begin = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let message = |n: i64| archive::NewMessage {
        session_id: SESSION.to_owned(),
        at: begin + TimeDelta::hours(n / 3 * 7),
        is_outbound: n % 2 == 0,
        seq: u64::try_from(n).ok(),
        msg_type: "0".to_owned(),
        cl_ord_id: (n == 4).then(|| "o-4".to_owned()),
        orig_cl_ord_id: None,
        content: format!("34={n}|"),
    };
    let messages: Vec<_> = (0..30).map(message).collect();
    for message in &messages {
        archive::create_day(&mut conn, message.at.date_naive()).await.unwrap();
    }
    archive::insert_messages(&mut conn, &messages).await.unwrap();
    let mut stretch = Stretch { from: begin, until: begin + TimeDelta::days(10), before: None };
    let mut found = Vec::new();
    loop {
        let page = archive::list_messages(&mut conn, SESSION, Wanted::All, &stretch, 4).await.unwrap();
        let Some(last) = page.last() else { break };
        stretch.before = Some((last.at, last.id));
        found.extend(page.iter().map(|message| message.seq.unwrap()));
    }
    assert_eq!(found, (0..30).rev().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_while_the_archive_cannot_be_written() {
    let harness = FixHarness::new().await;
    harness.execute("alter table fix_message rename to elsewhere").await;
    let (gateway, mut client) = harness.logged_on().await;
    for n in 0..20 {
        client.send("D", &order(&format!("o{n}"), "12345678", LIMIT)).await;
        assert_eq!(client.expect("8").await.text(39), Some("0"));
    }
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 20);
    assert_eq!(harness.count("select count(*) from elsewhere").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_begins_while_the_archive_is_read() {
    let harness = FixHarness::new().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let day = DateTime::from_timestamp(1_800_000_000, 0).unwrap().date_naive();
    archive::create_day(&mut conn, day).await.unwrap();
    let mut reader = harness.pool().begin().await.unwrap();
    sqlx::query("select count(*) from fix_message").execute(&mut *reader).await.unwrap();
    // An error instead of a wait that never ends.
    sqlx::query("set lock_timeout = '10s'").execute(&mut *conn).await.unwrap();
    archive::create_day(&mut conn, day.succ_opt().unwrap()).await.unwrap();
    reader.rollback().await.unwrap();
}
