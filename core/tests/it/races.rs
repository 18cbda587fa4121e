//! Several concurrent writers on one database, as several processes have them: nothing is promised twice.

use std::collections::HashMap;
use std::time::Duration;

use dvp_core::engine::{Engine, SubmitCommand};
use dvp_core::writer::{Done, IdempotencyPart, Outcome, Refusal, UsedKey};
use dvp_domain::decision::Reason;
use dvp_domain::intent::IntentRequest;
use dvp_domain::ledger::Owner;
use dvp_store::ledger::balances;
use dvp_store::orders::effects;
use dvp_store::orders::executions::{self, StateChange};
use dvp_store::orders::intents::Tenant;
use futures_util::future::join_all;

use crate::quote_holds::{quote, with_quote};
use crate::scenes::{self, engines, key_of};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_for, submit};

/// A caller's request, to any engine.
struct Sent {
    request: IntentRequest,
    key: Option<IdempotencyPart>,
}

async fn send_all(harness: &Harness, engines: &[Engine], sent: Vec<Sent>) -> Vec<Done> {
    let submissions = sent.into_iter().enumerate().map(|(n, Sent { request, key })| {
        let engine = engines[n % engines.len()].clone();
        let command = SubmitCommand { tenant: harness.tenant.clone(), request, idempotency: key, fix: None };
        tokio::spawn(async move { engine.submit(command).await.unwrap() })
    });
    join_all(submissions).await.into_iter().map(Result::unwrap).collect()
}

fn count(done: &[Done], is: impl Fn(&Outcome) -> bool) -> usize {
    done.iter().filter(|one| is(&one.outcome)).count()
}

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
    let sent = (0..160)
        .map(|n| {
            let euros = Terms { input: ("USD", 100_000), output: "EUR", account: "000123456789" };
            let request = if n % 2 == 0 { order("000123456789") } else { order_for(&euros) };
            Sent { request, key: None }
        })
        .collect();
    let done = send_all(&harness, &engines, sent).await;
    assert_eq!(count(&done, accepted), 17 + 7);
    let refused =
        |outcome: &Outcome| matches!(outcome, Outcome::Rejected { reason: Reason::NoLiquidity, .. });
    assert_eq!(count(&done, refused), 160 - 17 - 7);
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

#[tokio::test(flavor = "multi_thread")]
async fn no_interleaving_of_processes_uses_a_firm_quote_twice() {
    let harness = scenes::harness().await;
    let engines = engines(&harness, 4);
    let mut quotes = Vec::new();
    for _ in 0..6 {
        quotes.push(quote(&harness.engine, &harness.tenant).await.unwrap());
    }
    let sent = (0..120).map(|n| Sent { request: with_quote(&quotes[n % quotes.len()]), key: None }).collect();
    let done = send_all(&harness, &engines, sent).await;
    assert_eq!(count(&done, accepted), quotes.len());
    let used =
        |outcome: &Outcome| matches!(outcome, Outcome::Rejected { reason: Reason::QuoteAlreadyUsed, .. });
    assert_eq!(count(&done, used), 120 - quotes.len());
    let other = Tenant { livemode: true, ..harness.tenant.clone() };
    let outcome = submit(&harness.engine, &other, with_quote(&quotes[0])).await.unwrap();
    assert!(matches!(outcome, Outcome::Rejected { reason: Reason::QuoteNotFound, .. }), "{outcome:?}");
    let used = "select count(distinct used_by) from firm_quote where used_by is not null";
    assert_eq!(harness.count(used).await, 6);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_interleaving_of_processes_makes_two_intents_of_one_key_or_id() {
    let harness = scenes::harness().await;
    let engines = engines(&harness, 4);
    let requests: Vec<(IntentRequest, uuid::Uuid)> =
        (0..12).map(|_| (order("000123456789"), uuid::Uuid::new_v4())).collect();
    let sent = (0..240)
        .map(|n| {
            let (request, uuid) = &requests[n % requests.len()];
            // Some come without the key: the intentId alone must suffice.
            let key = (n % 5 != 0).then(|| key_of(&harness.tenant, *uuid, "/v1/intents"));
            Sent { request: request.clone(), key }
        })
        .collect();
    let done = send_all(&harness, &engines, sent).await;
    assert_eq!(count(&done, accepted), requests.len());
    let others = |outcome: &Outcome| {
        matches!(
            outcome,
            Outcome::KeyUsed(UsedKey::Replayed(_) | UsedKey::Processing)
                | Outcome::Refused(
                    Refusal::DuplicateIntent | Refusal::DuplicateClientReference | Refusal::InvalidPermit(_)
                )
        )
    };
    assert_eq!(count(&done, others), 240 - requests.len());
    assert_eq!(harness.count("select count(*) from execution").await, 12);
    let mut references: HashMap<String, usize> = HashMap::new();
    for one in &done {
        if let Outcome::Accepted(accepted) = &one.outcome {
            *references.entry(accepted.reference.clone()).or_default() += 1;
        }
    }
    assert!(references.values().all(|times| *times == 1));
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
