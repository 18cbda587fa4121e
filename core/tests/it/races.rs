//! Several concurrent writers on one database, as several processes have them: nothing is promised twice.

use std::time::Duration;

use dvp_core::engine::Engine;
use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::ledger::Owner;
use dvp_store::ledger::balances;
use dvp_store::orders::effects;
use dvp_store::orders::executions::{self, StateChange};
use futures_util::future::join_all;

use crate::scenes::{self, engines};
use dvp_testing::orders::{Terms, order, order_for, submit};

const fn accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_interleaving_of_processes_reserves_more_than_the_balance() {
    let harness = scenes::harness_with(9_985 * 17 + 5_000).await;
    harness.fund("north", "EUR", 91_862 * 9 + 1).await;
    harness.fund("south", "EUR", 10_000).await;
    harness.deposit("USD", 100_000 * 7 + 99_999).await;
    let engines = engines(&harness, 4);
    let sent = (0..160).map(|n| {
        let euros = Terms { input: ("USD", 100_000), output: "EUR", account: "000123456789" };
        let request = if n % 2 == 0 { order("000123456789") } else { order_for(&euros) };
        let (engine, tenant) = (engines[n % engines.len()].clone(), harness.tenant.clone());
        tokio::spawn(async move { submit(&engine, &tenant, request).await.unwrap() })
    });
    let done: Vec<Outcome> = join_all(sent).await.into_iter().map(Result::unwrap).collect();
    let count = |is: fn(&Outcome) -> bool| done.iter().filter(|one| is(one)).count();
    assert_eq!(count(accepted), 17 + 7);
    let refused =
        |outcome: &Outcome| matches!(outcome, Outcome::Rejected { reason: Reason::NoLiquidity, .. });
    assert_eq!(count(refused), 160 - 17 - 7);
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (99_999, 700_000));
    assert_eq!(harness.balance(&Owner::Provider("north".into()), "USD").await, (5_000, 9_985 * 17));
    harness.check_books().await;
    let gaps = "select count(*) from (select position - lag(position) over (order by position) as step from event) s \
                where step <> 1";
    assert_eq!(harness.count(gaps).await, 0);
    let last = harness.count("select max(position) from event").await;
    assert_eq!((last, harness.count("select position from feed_counter").await), (17 + 7, 17 + 7));
}

/// An order waits for the batch of another process only if both need the same balance.
#[tokio::test(flavor = "multi_thread")]
async fn orders_of_other_balances_do_not_wait_for_a_batch_of_another_process() {
    let harness = scenes::harness_with(1_000_000).await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    let [first, second] = engines(&harness, 2).try_into().unwrap_or_else(|_| panic!("two engines"));
    let submit = |engine: &Engine, request| {
        let (engine, tenant) = (engine.clone(), harness.tenant.clone());
        tokio::spawn(async move { submit(&engine, &tenant, request).await.unwrap() })
    };
    // A batch that has not ended holds what the provider has of one asset.
    let mut batch = harness.pool().begin().await.unwrap();
    let held = (Owner::Provider("north".into()), "USD".to_owned());
    balances::lock(&mut batch, &[held].into()).await.unwrap();
    let waiting = submit(&first, order("000123456789"));
    let euros = Terms { input: ("USD", 100_000), output: "EUR", account: "000123456789" };
    for _ in 0..3 {
        let outcome = tokio::time::timeout(Duration::from_secs(20), submit(&second, order_for(&euros))).await;
        assert!(accepted(&outcome.expect("it waits for the other process").unwrap()));
    }
    assert!(!waiting.is_finished(), "a balance that is locked was used");
    batch.rollback().await.unwrap();
    assert!(accepted(&waiting.await.unwrap()));
    harness.check_books().await;
}

/// A cancel and a worker's step of one order: the order's row is locked before its due work, so that none waits for the
/// other.
#[tokio::test(flavor = "multi_thread")]
async fn the_row_of_an_order_is_locked_before_its_due_work() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123450008")).await.reference;
    let pool = harness.pool();
    let due = "select id, fence from effect where reference = $1 and kind = 'lock'";
    let claim: (i64, i64) = sqlx::query_as(due).bind(&reference).fetch_one(pool).await.unwrap();
    let mut cancel = pool.begin().await.unwrap();
    let changed = "update execution set version = version + 1 where reference = $1";
    sqlx::query(changed).bind(&reference).execute(&mut *cancel).await.unwrap();
    let step = tokio::spawn({
        let (pool, reference) = (pool.clone(), reference.clone());
        async move {
            let mut worker = pool.begin().await.unwrap();
            let execution = executions::find_by_reference(&mut worker, &reference).await.unwrap().unwrap();
            let change = StateChange {
                reference: &reference,
                version: execution.version,
                state: &execution.state,
                last_sequence: execution.last_sequence,
                last_occurred_at: execution.last_occurred_at,
                claim: Some(claim),
            };
            let updated = executions::update(&mut worker, &[change]).await.unwrap();
            worker.commit().await.unwrap();
            updated
        }
    });
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    harness.wait_for_count(waits, 1).await;
    sqlx::query("set local lock_timeout = '1s'").execute(&mut *cancel).await.unwrap();
    effects::delete_timers(&mut cancel, &[&reference]).await.unwrap();
    cancel.commit().await.unwrap();
    assert!(step.await.unwrap().is_empty(), "the order has changed since the worker read it");
}
