//! A step of an order rewrites neither its terms nor an index entry.

use dvp_testing::orders::order;
use sqlx::Connection as _;

use crate::scenes;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_a_heap_only_update_of_a_small_row() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    let mut conn = harness.pool().acquire().await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let moved = sqlx::query(
        "update execution set state_name = 'paying', state = state || '{\"a\": 1}', version = version + 1, \
                last_sequence = last_sequence + 1, last_occurred_at = now() where reference = $1",
    )
    .bind(&reference)
    .execute(&mut *tx)
    .await
    .unwrap();
    assert_eq!(moved.rows_affected(), 1);
    let (in_place, terms_inline): (i64, bool) = sqlx::query_as(
        "select pg_stat_get_xact_tuples_hot_updated('execution'::regclass), \
                (select pg_relation_size(reltoastrelid) = 0 from pg_class where relname = 'execution')",
    )
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    assert_eq!(in_place, 1, "an index depends on a column that every step changes");
    assert!(!terms_inline, "a step would copy the terms");
}
