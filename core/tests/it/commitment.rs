//! The chain is committed before a payout is requested, and an unanswered payout is never both paid and refunded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use chrono::Utc;
use dvp_domain::chain::ChainFact;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_store::chain::{Retried, retry_command};
use dvp_store::orders::operations::{ExecutionFilter, count_late_payouts, list};

use crate::guard::{entity_of, failure_code};
use crate::scenes::{self, is_near_its_timelock, is_settled};
use dvp_testing::Harness;
use dvp_testing::chain::{failed, request_refunds};
use dvp_testing::orders::order;

/// A bank that accepts a payment immediately and gives no final answer until the test makes it.
#[derive(Default)]
struct Slow {
    calls: AtomicU32,
    has_paid: AtomicBool,
    has_refused: AtomicBool,
}

impl Slow {
    fn answer(&self) -> RailAnswer {
        if self.has_paid.load(Ordering::Relaxed) {
            RailAnswer::Done(LegDone { provider_reference: "B1".into(), occurred_at: Utc::now().into() })
        } else if self.has_refused.load(Ordering::Relaxed) {
            RailAnswer::Failed { code: "AC04".into(), message: "closed".into(), retryable: false }
        } else {
            RailAnswer::InProgress { provider_reference: "B1".into() }
        }
    }
}

impl Rail for Slow {
    fn submit<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok::<_, RailError>(self.answer()) })
    }

    fn status<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async { Ok::<_, RailError>(RailStatus::Known(self.answer())) })
    }
}

async fn with_slow_bank() -> (Harness, Arc<Slow>, String) {
    let (harness, bank) = (scenes::harness().await, Arc::new(Slow::default()));
    harness.start_workers_paying(bank.clone());
    let reference = harness.accept(order("000123456789")).await.reference;
    (harness, bank, reference)
}

/// The kinds of all commands, in their order.
pub(crate) async fn commands(harness: &Harness) -> Vec<String> {
    let rows: Vec<(String,)> = harness.rows("select kind from chain_command order by id").await;
    rows.into_iter().map(|row| row.0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_payout_is_called_before_the_commitment_is_seen() {
    let (harness, bank, reference) = with_slow_bank().await;
    harness.play_until(&reference, |kind| kind == "create").await;
    harness.wait_for_state(&reference, "committing").await;
    assert_eq!(
        harness.events(&reference).await,
        ["intent.accepted", "offramp.initiated", "offramp.completed"]
    );
    assert_eq!(harness.count("select count(*) from effect").await, 0, "no payout is due");
    assert_eq!(commands(&harness).await, ["create", "fill"]);
    harness.report_fact(&entity_of(&harness, &reference).await, &ChainFact::Cancelled).await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(bank.calls.load(Ordering::Relaxed), 0);
    assert_eq!(failure_code(&harness, &reference).await, "lock_refunded");
    assert_eq!(harness.events(&reference).await[3..], ["payout.initiated", "payout.failed"]);
    assert_eq!(commands(&harness).await, ["create", "fill"], "there is nothing to give back");
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    assert_eq!(harness.account("house", "USDC").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commitment_that_cannot_succeed_fails_the_payout_and_returns_funds() {
    let (harness, bank, reference) = with_slow_bank().await;
    harness.play_until(&reference, |kind| kind == "create").await;
    harness.wait_for_state(&reference, "committing").await;
    harness.report_fact(&entity_of(&harness, &reference).await, &failed("fill", "fill_rejected")).await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(failure_code(&harness, &reference).await, "fill_rejected");
    assert_eq!(commands(&harness).await, ["create", "fill", "cancel"]);
    harness.report_fact(&entity_of(&harness, &reference).await, &ChainFact::Cancelled).await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true' \
                    and state #>> '{lock,refund_tx}' like '0x%'";
    harness.wait_for_count(refunded, 1).await;
    assert_eq!(bank.calls.load(Ordering::Relaxed), 0);
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_conversion_returns_the_funds_at_once() {
    let (harness, reference) = scenes::begun("000123450003").await;
    harness.play_until(&reference, |kind| kind == "cancel").await;
    let refunded = "select count(*) from execution where state_name = 'conversion_failed' \
                    and state #>> '{lock,refunded}' = 'true'";
    harness.wait_for_count(refunded, 1).await;
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_included_again_after_its_order_failed_is_returned_again() {
    let (harness, reference) = scenes::played("000123450003", "create", "conversion_failed").await;
    let (entity, _) = harness.command(&reference, "create").await;
    harness.command(&reference, "cancel").await;
    let failed = "update chain_command set state = 'failed', done_at = now() where kind = 'cancel'";
    harness.run(failed).await;
    harness.report_fact(&entity, &ChainFact::LockLost).await;
    harness.play(&reference, "create").await;
    let pending = "select count(*) from chain_command where kind = 'cancel' and state = 'pending'";
    harness.wait_for_count(pending, 1).await;
    assert_eq!(harness.count("select count(*) from chain_fact where consumed_at is null").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_is_not_tried_again_while_its_order_does_not_know_of_the_failure() {
    let harness = scenes::harness().await;
    let workers = harness.start_workers();
    let reference = harness.accept(order("000123456789")).await.reference;
    let (entity, _) = harness.command(&reference, "create").await;
    harness.wait_for_state(&reference, "locking").await;
    workers.abort();
    let pool = harness.pool();
    let id = harness.count("update chain_command set state = 'failed', done_at = now() returning id").await;
    harness.report_fact(&entity, &failed("create", "lock_rejected")).await;
    let retry = async || {
        let mut tx = pool.begin().await.unwrap();
        retry_command(&mut tx, id, "jo", "once more").await.unwrap()
    };
    assert_eq!(retry().await, Retried::OrderGoneOn, "the lock would be made for an order that has ended");
    sqlx::query("update chain_fact set retracted_at = now()").execute(pool).await.unwrap();
    assert_eq!(retry().await, Retried::Now);
}

/// Waits until the bank has confirmed the payout without a final answer.
async fn wait_for_an_answer(harness: &Harness, reference: &str) {
    harness.wait_for_state(reference, "paying").await;
    let requested = "select count(*) from effect where kind = 'payout' and last_result = 'in progress'";
    harness.wait_for_count(requested, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commitment_reverted_during_a_payout_is_reported_and_may_return() {
    let (harness, bank, reference) = with_slow_bank().await;
    harness.play_until(&reference, |kind| kind == "fill").await;
    wait_for_an_answer(&harness, &reference).await;
    let (entity, _) = harness.command(&reference, "fill").await;
    const LOST: &str = "select count(*) from execution where state #>> '{lock,filled}' = 'false'";
    const FILLED: &str = "select count(*) from execution where state #>> '{lock,filled}' = 'true'";
    harness.report_fact(&entity, &ChainFact::FillLost).await;
    harness.wait_for_count(LOST, 1).await;
    harness.wait_for_state(&reference, "paying").await;
    harness.play(&reference, "fill").await;
    harness.wait_for_count(FILLED, 1).await;
    bank.has_paid.store(true, Ordering::Relaxed);
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(bank.calls.load(Ordering::Relaxed), 1);
    harness.check_books().await;
}

/// A payout that the bank has accepted without a final answer, near its timelock.
async fn without_a_word() -> (Harness, Arc<Slow>, String) {
    let (harness, bank, reference) = with_slow_bank().await;
    harness.play_until(&reference, |kind| kind == "fill").await;
    wait_for_an_answer(&harness, &reference).await;
    is_near_its_timelock(&harness, &reference).await;
    assert_eq!(commands(&harness).await, ["create", "fill", "settle"]);
    assert_ne!(harness.account("debt", "USD").await, "0");
    harness.check_books().await;
    (harness, bank, reference)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_payout_is_settled_before_the_timelock_and_owed() {
    let (harness, bank, reference) = without_a_word().await;
    is_settled(&harness, &reference).await;
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    bank.has_paid.store(true, Ordering::Relaxed);
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(bank.calls.load(Ordering::Relaxed), 1);
    let reported = harness.events(&reference).await;
    assert_eq!(reported[3..], ["payout.initiated", "payout.in_progress", "payout.completed"]);
    assert_eq!(harness.account("debt", "USD").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_payout_is_listed_and_counted_before_it_is_settled() {
    let (harness, _bank, reference) = with_slow_bank().await;
    harness.play_until(&reference, |kind| kind == "fill").await;
    wait_for_an_answer(&harness, &reference).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(count_late_payouts(&mut conn).await.unwrap(), (0, 0));
    let overdue = "update execution set state = jsonb_set(state, '{lock,deadlines,overdue_at}', '0')";
    harness.run(overdue).await;
    assert_eq!(count_late_payouts(&mut conn).await.unwrap(), (1, 0));
    let filter = ExecutionFilter { stuck_for_secs: Some(3600), state: None, after: None, limit: 10 };
    let listed = list(&mut conn, &filter).await.unwrap();
    assert!(listed[0].alarm.as_deref().unwrap().contains("no final answer"), "{listed:?}");
    is_near_its_timelock(&harness, &reference).await;
    assert_eq!(count_late_payouts(&mut conn).await.unwrap(), (0, 1));
    let listed = list(&mut conn, &filter).await.unwrap();
    assert!(listed[0].alarm.as_deref().unwrap().contains("owed"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owed_payout_that_the_bank_refuses_stays_a_debt() {
    let (harness, bank, reference) = without_a_word().await;
    harness.play_until(&reference, |kind| kind == "settle").await;
    bank.has_refused.store(true, Ordering::Relaxed);
    let refused = "select count(*) from execution where state #>> '{failure,code}' = 'AC04' \
                   and state ->> 'settle_tx' is not null and terminal_at is null";
    harness.wait_for_count(refused, 1).await;
    assert_eq!(harness.count("select count(*) from effect").await, 0);
    assert_ne!(harness.account("debt", "USD").await, "0");
    assert_eq!(harness.events(&reference).await.last().unwrap(), "payout.in_progress");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn funds_of_a_failed_payout_are_refunded_once_after_their_timelock() {
    let (harness, bank, reference) = with_slow_bank().await;
    bank.has_refused.store(true, Ordering::Relaxed);
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "payout_failed").await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(request_refunds(&mut conn, 60).await, 0, "the timelock is not over");
    timelock_is_over(&harness).await;
    // The workers check as well: the first one requests the refund, and no other.
    request_refunds(&mut conn, 60).await;
    assert_eq!(request_refunds(&mut conn, 60).await, 0);
    assert_eq!(commands(&harness).await, ["create", "fill", "refund"]);
    harness.report_fact(&entity_of(&harness, &reference).await, &ChainFact::Refunded).await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true'";
    harness.wait_for_count(refunded, 1).await;
    assert_eq!(request_refunds(&mut conn, 60).await, 0);
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    harness.check_books().await;
}

/// The timelock of the only order is over.
async fn timelock_is_over(harness: &Harness) {
    let over = "update execution set state = jsonb_set(state, '{lock,timelock_expires_at}', \
                to_jsonb((extract(epoch from now())::int8 - 61) * 1000))";
    harness.run(over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_funds_of_a_debt_that_was_not_settled_in_time_are_refunded_once_its_payout_has_failed() {
    let (harness, bank, reference) = without_a_word().await;
    timelock_is_over(&harness).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(request_refunds(&mut conn, 60).await, 0, "the bank may have paid");
    bank.has_refused.store(true, Ordering::Relaxed);
    let refused = "select count(*) from execution where state #>> '{failure,code}' = 'AC04'";
    harness.wait_for_count(refused, 1).await;
    // The workers check as well.
    request_refunds(&mut conn, 60).await;
    assert_eq!(commands(&harness).await, ["create", "fill", "settle", "refund"]);
    assert_eq!(request_refunds(&mut conn, 60).await, 0);
    harness.report_fact(&entity_of(&harness, &reference).await, &ChainFact::Refunded).await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(harness.account("debt", "USD").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_funds_of_a_paid_order_that_was_not_settled_in_time_are_never_refunded_by_the_service() {
    let (harness, bank, reference) = with_slow_bank().await;
    bank.has_paid.store(true, Ordering::Relaxed);
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "releasing").await;
    timelock_is_over(&harness).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(request_refunds(&mut conn, 60).await, 0);
    assert_eq!(commands(&harness).await, ["create", "fill", "settle"]);
}
