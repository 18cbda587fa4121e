//! An order whose first leg is due when it is accepted begins in the commit of its acceptance.

use dvp_domain::pause::Scope;
use dvp_store::operators::pauses::{self, Decided};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order_for};

use crate::scenes;

const PAID: Terms<'static> = Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" };
/// Its payout never answers.
const UNANSWERED: Terms<'static> = Terms { account: "000123450007", ..PAID };
/// It rests before its first leg.
const RESTS: Terms<'static> = Terms { account: "000123450008", ..PAID };

/// With workers that have carried out an order.
async fn working() -> Harness {
    let harness = scenes::prefunded().await;
    harness.start_workers();
    let reference = harness.accept(order_for(&PAID)).await.reference;
    harness.wait_for_state(&reference, "completed").await;
    harness
}

/// State, version and sequence of an execution, and the numbers of its timers and of its legs.
async fn written(harness: &Harness, reference: &str) -> (String, i64, i64, i64, i64) {
    sqlx::query_as(
        "select state_name, version, last_sequence, \
                (select count(*) from effect f where f.reference = e.reference and kind = 'lock'), \
                (select count(*) from effect f where f.reference = e.reference and kind = 'payout') \
         from execution e where reference = $1",
    )
    .bind(reference)
    .fetch_one(harness.pool())
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_payout_is_due_begins_in_the_commit_of_its_acceptance() {
    let harness = working().await;
    let reference = harness.accept(order_for(&UNANSWERED)).await.reference;
    assert_eq!(written(&harness, &reference).await, ("paying".into(), 1, 2, 0, 1));
    assert_eq!(harness.events(&reference).await, ["intent.accepted", "payout.initiated"]);
    let sql = "select (select array_agg(distinct step) from ledger_entry where reference = $1), \
                (select last_occurred_at is null from execution where reference = $1), \
                (select bool_and(occurred_at = accepted_at and observed_at >= occurred_at) \
                 from event join execution using (reference) where reference = $1)";
    let (steps, first, in_order): (Vec<i64>, bool, bool) = harness.row_of(sql, &reference).await;
    assert_eq!((steps, first, in_order), (vec![1], true, true));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_rests_or_finds_no_worker_waits_for_its_timer() {
    let harness = scenes::prefunded().await;
    let unattended = harness.accept(order_for(&PAID)).await.reference;
    assert_eq!(written(&harness, &unattended).await, ("accepted".into(), 1, 1, 1, 0));
    harness.start_workers();
    harness.wait_for_state(&unattended, "completed").await;
    let resting = harness.accept(order_for(&RESTS)).await.reference;
    assert_eq!(written(&harness, &resting).await, ("accepted".into(), 1, 1, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_not_paid_at_once_while_its_payout_is_paused() {
    let harness = working().await;
    let by = Decided { operator: "jo", reason: "to be sure" };
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(pauses::insert(&mut conn, Scope::Rail, "payout", by).await.unwrap());
    let reference = harness.accept(order_for(&PAID)).await.reference;
    let paused =
        "select count(*) from effect where kind = 'payout' and not called and last_result = 'paused'";
    harness.wait_for_count(paused, 1).await;
    // The timer has begun it, and the work that its commit handed over knows of the pause.
    assert_eq!(written(&harness, &reference).await, ("paying".into(), 2, 2, 0, 1));
    assert!(pauses::delete(&mut conn, Scope::Rail, "payout", by).await.unwrap());
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(harness.count("select max(calls)::bigint from simulated_rail").await, 1);
    harness.check_books().await;
}
