//! A history is a database as the service leaves it: what the service compares with itself agrees.

use dvp_benches::history::{self, HistorySize};
use dvp_core::ledger::reconciliation::{PATIENCE, compare_bank};
use dvp_testing::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn the_books_of_a_history_agree() {
    let harness = Harness::new(history::market()).await;
    let size = HistorySize { ended: 1_500, open: 40 };
    history::fill(&harness, size).await.unwrap();
    harness.check_books().await;
    let now = harness.engine.context().clock.now();
    let bank = compare_bank(harness.pool(), now, PATIENCE).await.unwrap().unwrap();
    assert_eq!(bank.breaks, []);
    for state in
        ["completed", "payout_failed", "conversion_failed", "cancelled", "expired", "failed", "reversed"]
    {
        let count: i64 = sqlx::query_scalar("select count(*) from execution where state_name = $1")
            .bind(state)
            .fetch_one(harness.pool())
            .await
            .unwrap();
        assert!(count > 5, "{count} orders are {state}");
    }
    let feed = "select position - (select count(*) from event_record) from feed_counter";
    assert_eq!(harness.count(feed).await, 0, "positions have no gaps");
    assert!(harness.count("select count(*) from intent where reason is not null").await > 50);
}
