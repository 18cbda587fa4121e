//! The rows that a FIX session's parts of a batch write, especially for resets.

use dvp_sandbox::embedded::TestDatabase;
use dvp_store::StoreError;
use dvp_store::fix;
use dvp_store::fix::rows::{FixNumbers, FixOutbound, FixReset, FixRows, Renumber};
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::registry;

use crate::scenes::fix_session;

const SESSION: &str = "FIX.4.4:DVP->ACME";

async fn database() -> TestDatabase {
    let database = TestDatabase::create().await;
    let mut conn = database.pool().acquire().await.unwrap();
    let partner_id = registry::ensure_partner(&mut conn, "ptn_acme", "acme", "standard", 100).await.unwrap();
    fix_session(database.pool(), &Tenant { partner_id, livemode: false }, "ACME").await;
    drop(conn);
    database
}

/// Numbers `before` up to `after`, and messages under `seqs`: quotes where the number is divisible by 5.
fn part(before: u64, after: u64, seqs: &[u64]) -> (FixNumbers, FixRows) {
    let outbound = seqs.iter().map(|&seq| FixOutbound {
        seq,
        msg_type: if seq % 5 == 0 { "S" } else { "8" }.into(),
        body: format!("17=e{seq}\u{1}").into_bytes(),
        sending_time: 1,
        fraction_digits: 3,
    });
    let rows = FixRows { outbound: outbound.collect(), ..FixRows::default() };
    let numbers = FixNumbers {
        session_id: SESSION.into(),
        owner: None,
        next_in: 1,
        next_out_before: before,
        next_out: after,
        seen_out: 0,
        written_out: after - 1,
        feed_position: None,
        renumber: None,
    };
    (numbers, rows)
}

fn reset(before: u64, reach: (u64, u64), kept: u64) -> (FixNumbers, FixRows) {
    let (part, rows) = part(before, 2 + kept, &[]);
    let (seen_out, written_out) = reach;
    let reset = FixReset { seen_out, written_out, first_kept: 2, kept, stale_types: vec!["S".into()] };
    (FixNumbers { renumber: Some(Renumber::Reset(reset)), written_out: 0, ..part }, rows)
}

async fn apply(database: &TestDatabase, parts: &[(FixNumbers, FixRows)]) -> Result<(), StoreError> {
    let mut tx = database.pool().begin().await?;
    let parts: Vec<(&FixNumbers, FixRows)> = parts.iter().map(|(part, rows)| (part, rows.clone())).collect();
    fix::apply_parts(&mut tx, &parts).await?;
    tx.commit().await?;
    Ok(())
}

/// `2 97=Y 17=e3`
async fn stored(database: &TestDatabase) -> Vec<String> {
    let mut conn = database.pool().acquire().await.unwrap();
    let messages = fix::list_outbound(&mut conn, SESSION, 1..=1000, 1000).await.unwrap();
    let line = |message: FixOutbound| {
        let body = String::from_utf8(message.body).unwrap();
        format!("{} {}", message.seq, body.trim_end_matches('\u{1}').replace('\u{1}', " "))
    };
    messages.into_iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_keeps_unseen_messages_in_order_and_marks_possible_resends() {
    let database = database().await;
    apply(&database, &[part(1, 9, &[2, 3, 5, 6, 7, 8])]).await.unwrap();
    apply(&database, &[reset(9, (3, 7), 3)]).await.unwrap();
    assert_eq!(stored(&database).await, ["2 97=Y 17=e6", "3 97=Y 17=e7", "4 17=e8"]);
    // A second one at once: marked once.
    apply(&database, &[reset(5, (0, 4), 3)]).await.unwrap();
    assert_eq!(stored(&database).await, ["2 97=Y 17=e6", "3 97=Y 17=e7", "4 97=Y 17=e8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_the_same_batch_before_a_reset_survive_it() {
    let database = database().await;
    let batch = [part(1, 4, &[2, 3]), reset(4, (2, 2), 1), part(3, 4, &[3])];
    apply(&database, &batch).await.unwrap();
    assert_eq!(stored(&database).await, ["2 17=e3", "3 17=e3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_with_a_wrong_message_count_is_stale_and_changes_nothing() {
    let database = database().await;
    apply(&database, &[part(1, 4, &[2, 3])]).await.unwrap();
    let failed = apply(&database, &[reset(4, (0, 0), 1)]).await;
    assert!(matches!(failed, Err(StoreError::Stale { .. })), "{failed:?}");
    assert_eq!(stored(&database).await, ["2 17=e2", "3 17=e3"]);
}
