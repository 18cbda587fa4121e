//! The configuration limits a rail's concurrent calls and sets the interval of queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::Utc;
use dvp_core::workflow::{self, RailUse};
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::inventory::Inventory;
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};
use dvp_store::orders::operations::{self, Nudge};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order_for};
use dvp_testing::wait::wait_for;
use tokio::sync::watch;

use crate::scenes;

/// A payout rail that takes some time for each call, and may never finish.
#[derive(Debug, Default)]
struct Clerk {
    is_endless: bool,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Clerk {
    fn answer(&self) -> RailAnswer {
        let provider_reference = "clerk".to_owned();
        if self.is_endless {
            return RailAnswer::InProgress { provider_reference };
        }
        RailAnswer::Done(LegDone { provider_reference, occurred_at: Utc::now().into() })
    }
}

impl Rail for Clerk {
    fn submit<'a>(&'a self, _: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async {
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            Ok(self.answer())
        })
    }

    fn status<'a>(&'a self, _: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async { Ok(RailStatus::Known(self.answer())) })
    }
}

async fn six_orders() -> Harness {
    let harness = scenes::harness().await;
    accept_six(&harness).await;
    harness
}

async fn accept_six(harness: &Harness) {
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 100_000_000).await;
    for _ in 0..6 {
        let terms = Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" };
        harness.accept(order_for(&terms)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rail_gets_at_most_its_configured_number_of_concurrent_calls() {
    let most_of = |concurrency: u16| async move {
        let (harness, clerk) = (six_orders().await, Arc::new(Clerk::default()));
        let payout = RailUse { concurrency, ..RailUse::of(clerk.clone()) };
        harness.start_workers_using(RailUse::of(Arc::new(Inventory)), payout);
        let completed = "select count(*) from execution where state_name = 'completed'";
        harness.wait_for_count(completed, 6).await;
        clerk.most_at_once.load(Ordering::SeqCst)
    };
    assert_eq!(most_of(2).await, 2);
    assert!(most_of(128).await > 2, "only the limit serializes the calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leg_in_progress_is_queried_at_the_configured_interval() {
    let (harness, clerk) = (six_orders().await, Arc::new(Clerk { is_endless: true, ..Clerk::default() }));
    let payout = RailUse { poll_max: Duration::from_secs(1), ..RailUse::of(clerk) };
    harness.start_workers_using(RailUse::of(Arc::new(Inventory)), payout);
    // By then the usual interval has grown to more than four seconds.
    harness.wait_for_count("select count(*) from effect where kind = 'payout' and attempts >= 6", 6).await;
    let later = "select count(*) from effect where run_at > now() + interval '1 second'";
    assert_eq!(harness.count(later).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_stop_leave_no_claimed_work() {
    let (harness, clerk) = (scenes::harness().await, Arc::new(Clerk::default()));
    let (stop, stopped) = watch::channel(false);
    let payout = RailUse { concurrency: 2, ..RailUse::of(clerk.clone()) };
    let workers = tokio::spawn(workflow::run(
        harness.engine.clone(),
        RailUse::of(Arc::new(Inventory)),
        payout,
        stopped,
    ));
    accept_six(&harness).await;
    let called = || async { (clerk.at_once.load(Ordering::SeqCst) > 0).then_some(()) };
    wait_for("a call in progress", called).await;
    stop.send_replace(true);
    workers.await.unwrap();
    assert_eq!(harness.count("select count(*) from effect where claimed_until is not null").await, 0);
    // Others take up what is left.
    harness.start_workers_using(RailUse::of(Arc::new(Inventory)), RailUse::of(clerk));
    harness.wait_for_count("select count(*) from execution where state_name = 'completed'", 6).await;
}

/// A bank whose final answer comes to the database while a query is answered with what was known before.
struct Slow {
    pool: sqlx::PgPool,
    known: AtomicUsize,
}

/// What the bank knows of a payment.
const NOTHING: usize = 0;
const ANSWER_ON_ITS_WAY: usize = 1;
const ANSWER: usize = 2;

impl Rail for Slow {
    fn submit<'a>(&'a self, _: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async { Ok(RailAnswer::InProgress { provider_reference: "slow".into() }) })
    }

    fn status<'a>(&'a self, _: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async {
            let provider_reference = "slow".to_owned();
            let known = self.known.load(Ordering::SeqCst);
            if known == ANSWER {
                let done = LegDone { provider_reference, occurred_at: Utc::now().into() };
                return Ok(RailStatus::Known(RailAnswer::Done(done)));
            }
            if known == ANSWER_ON_ITS_WAY {
                self.known.store(ANSWER, Ordering::SeqCst);
                let mut conn = self.pool.acquire().await.unwrap();
                let one = "select reference from effect";
                let reference: String = sqlx::query_scalar(one).fetch_one(&mut *conn).await.unwrap();
                operations::nudge(&mut conn, &reference, Some("payout"), &Nudge::Now, 0).await.unwrap();
            }
            Ok(RailStatus::Known(RailAnswer::InProgress { provider_reference }))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leg_made_due_while_it_is_queried_is_queried_again_at_once() {
    let harness = scenes::harness().await;
    let slow = Arc::new(Slow { pool: harness.pool().clone(), known: NOTHING.into() });
    let rarely = RailUse { poll_max: Duration::from_secs(3_600), ..RailUse::of(slow.clone()) };
    harness.start_workers_using(RailUse::of(Arc::new(Inventory)), rarely);
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 100_000_000).await;
    let terms = Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" };
    let reference = harness.accept(order_for(&terms)).await.reference;
    // So often queried before that the next query is half an hour later, or more.
    let often = "update effect set attempts = 20, run_at = now() + interval '1 h' \
                 where claimed_until is null and last_result = 'in progress'";
    wait_for("a query", || async { (harness.run(often).await > 0).then_some(()) }).await;
    slow.known.store(ANSWER_ON_ITS_WAY, Ordering::SeqCst);
    harness.run("update effect set run_at = now()").await;
    harness.wait_for_state(&reference, "completed").await;
}
