//! Legs that must not begin, rails that hang, processes that are suspended beyond their claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::context::now;
use dvp_domain::chain::ChainFact;
use dvp_domain::settlement::{RailAnswer, State};
use dvp_rails::{Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::Fault;
use dvp_store::orders::effects::{self, EffectEnd, EffectKind, EndedEffect};
use dvp_store::orders::executions::{self, StateChange};
use dvp_store::orders::operations::{self, Nudge};
use serde_json::json;
use tokio::sync::Mutex;

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

/// A rail that is down, and counts the attempts. It answers queries when the test says so: it knows no call.
#[derive(Default)]
struct Down {
    calls: AtomicU32,
    queries: AtomicU32,
    is_back: AtomicBool,
}

impl Rail for Down {
    fn submit<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Err(RailError::Down("closed".into())) })
    }

    fn status<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            if self.is_back.load(Ordering::Relaxed) {
                Ok(RailStatus::NeverSeen)
            } else {
                Err(RailError::Down("closed".into()))
            }
        })
    }
}

/// A rail that never answers for accounts ending in 6666, and records each call's time limit.
struct Hanging {
    inner: SimulatedRails,
    not_after: Mutex<Option<DateTime<Utc>>>,
}

impl Rail for Hanging {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async move {
            *self.not_after.lock().await = Some(request.not_after);
            if request.account.ends_with("6666") {
                std::future::pending::<()>().await;
            }
            self.inner.submit(request).await
        })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        self.inner.status(request)
    }
}

pub(crate) async fn entity_of(harness: &Harness, reference: &str) -> Vec<u8> {
    harness.row_of::<(Vec<u8>,)>("select entity from execution where reference = $1", reference).await.0
}

/// Reports the lock, with this much time left until anyone may cancel it, and some two hours to its timelock.
async fn lock_with(harness: &Harness, reference: &str, seconds_left: u64) {
    harness.wait_for_state(reference, "locking").await;
    sqlx::query(
        "update chain_command set payload = jsonb_set(payload, '{fill_deadline}', to_jsonb($1::int8))",
    )
    .bind(i64::try_from(now().unix_secs() + seconds_left).unwrap())
    .execute(harness.pool())
    .await
    .unwrap();
    harness.play(reference, "create").await;
}

pub(crate) async fn failure_code(harness: &Harness, reference: &str) -> String {
    let view = harness.view(reference).await;
    view.failure.unwrap().code
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_without_time_to_pay_and_release_does_not_begin() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let reference = harness.accept(order("000123456789")).await.reference;
    lock_with(&harness, &reference, 600).await;
    harness.wait_for_state(&reference, "conversion_failed").await;
    assert_eq!(failure_code(&harness, &reference).await, "fill_deadline_near");
    assert_eq!(harness.count("select count(*) from simulated_rail").await, 0);
    harness.report_fact(&entity_of(&harness, &reference).await, &ChainFact::Refunded).await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true'";
    harness.wait_for_count(refunded, 1).await;
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_whose_bank_was_down_until_it_was_too_late_fails_by_the_banks_word() {
    let harness = scenes::harness().await;
    let bank = Arc::new(Down::default());
    harness.start_workers_paying(bank.clone());
    let reference = harness.accept(order("000123456789")).await.reference;
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "paying").await;
    wait_for("a try", || async { (bank.calls.load(Ordering::Relaxed) > 1).then_some(()) }).await;
    // As if that much time had passed.
    let late = "update execution set state = jsonb_set(state, '{lock,deadlines,pay_before}', '0')";
    harness.run(late).await;
    let due = "update effect set run_at = now()";
    harness.run(due).await;
    wait_for("two queries", || async { (bank.queries.load(Ordering::Relaxed) > 1).then_some(()) }).await;
    // The database may have forgotten a call.
    harness.wait_for_state(&reference, "paying").await;
    bank.is_back.store(true, Ordering::Relaxed);
    // A query counts as a call that may be in flight.
    let long_ago = "update effect set called_at = now() - interval '1 minute', run_at = now()";
    harness.run(long_ago).await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(failure_code(&harness, &reference).await, "timelock_near");
    let reported = harness.events(&reference).await;
    assert_eq!(reported[2..], ["offramp.completed", "payout.initiated", "payout.failed"]);
    assert_eq!(harness.count("select count(*) from effect").await, 0);
    // The relayer does not return what is committed on the chain.
    assert_eq!(harness.count("select count(*) from chain_command where kind = 'cancel'").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_rail_does_not_delay_other_orders() {
    let harness = scenes::harness().await;
    let inner = SimulatedRails::new(harness.pool().clone());
    let hanging = Arc::new(Hanging { inner: inner.clone(), not_after: Mutex::new(None) });
    harness.start_workers_over(Arc::new(inner), hanging);
    let count = async |sql: &'static str, reference: &str| {
        sqlx::query_scalar::<_, i64>(sql).bind(reference).fetch_one(harness.pool()).await.unwrap()
    };
    // A slow machine may need longer than the ten seconds of a call.
    for _ in 0..3 {
        let stuck = harness.accept(order("000123456666")).await.reference;
        harness.play_until(&stuck, |kind| kind == "fill").await;
        harness.wait_for_state(&stuck, "paying").await;
        let called = "select count(*) from effect where kind = 'payout' and called and reference = $1";
        wait_for("the call", || async { (count(called, &stuck).await == 1).then_some(()) }).await;
        let swift = harness.accept(order("000123456789")).await.reference;
        harness.play_until(&swift, |kind| kind == "settle").await;
        harness.wait_for_state(&swift, "completed").await;
        let held = "select count(*) from effect where kind = 'payout' and lease_until > now() and attempts = 1 \
                    and reference = $1";
        if count(held, &stuck).await == 1 {
            return;
        }
    }
    panic!("no order ended while another one's call was still out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calls_time_limit_follows_its_claim() {
    let harness = scenes::harness().await;
    let inner = SimulatedRails::new(harness.pool().clone());
    let payout = Arc::new(Hanging { inner: inner.clone(), not_after: Mutex::new(None) });
    let workers = harness.start_workers_over(Arc::new(inner), payout.clone());
    let reference = harness.accept(order("000123456789")).await.reference;
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "releasing").await;
    let not_after = payout.not_after.lock().await.unwrap();
    assert!(not_after <= Utc::now() + TimeDelta::seconds(10));
    // No other worker takes the claims that follow.
    workers.abort();
    let _ = workers.await;
    // A claim has its time, by the database's clock, so that a worker that is suspended beyond it makes no call.
    harness.accept(order("000123450008")).await;
    harness.run("update effect set kind = 'payout', run_at = now()").await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let claimed = effects::claim(&mut conn, 0, 12, effects::Rooms::of_each(10)).await.unwrap();
    assert!(!claimed.is_empty());
    // A lease of zero duration has expired once the clock has moved.
    let again = wait_for("the claim to run out", || async {
        let mut conn = harness.pool().acquire().await.unwrap();
        let again = effects::claim(&mut conn, 0, 12, effects::Rooms::of_each(10)).await.unwrap();
        (!again.is_empty()).then_some(again)
    })
    .await;
    for (first, second) in claimed.iter().zip(&again) {
        assert_eq!(first.called_at, second.called_at, "a second claim does not make the call younger");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_waiting_for_a_hung_rail_takes_no_other_works_place() {
    let harness = scenes::harness().await;
    harness.accept(order("0001")).await;
    sqlx::query(
        "insert into effect (reference, kind, run_at) \
         select 'exe_' || n, case when n <= 600 then 'payout' else 'offramp' end, now() - make_interval(secs => 1000 - n) \
         from generate_series(1, 601) as n",
    )
    .execute(harness.pool())
    .await
    .unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let rooms = effects::Rooms { own: 10, offramp: 10, payout: 20 };
    let claimed = effects::claim(&mut conn, 30, 12, rooms).await.unwrap();
    let count = |kind| claimed.iter().filter(|claim| claim.kind == kind).count();
    let counts = [EffectKind::Payout, EffectKind::Offramp, EffectKind::Lock].map(count);
    assert_eq!(counts, [20, 1, 1], "older payouts are not in the way");
}

/// The step commits or the decision does, never both: a decision that comes between the step's check of its claim and
/// its commit waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_waits_for_a_step_that_has_checked_its_claim() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123450000")).await.reference;
    let mut step = harness.pool().begin().await.unwrap();
    let timer: (i64, i64) = sqlx::query_as("select id, fence from effect where reference = $1")
        .bind(&reference)
        .fetch_one(&mut *step)
        .await
        .unwrap();
    let accepted = executions::find_by_reference(&mut step, &reference).await.unwrap().unwrap();
    let change = StateChange {
        reference: &reference,
        version: accepted.version,
        state: &State::Locking,
        last_sequence: accepted.last_sequence,
        last_occurred_at: accepted.last_occurred_at,
        claim: Some(timer),
    };
    assert_eq!(executions::update(&mut step, &[change]).await.unwrap(), [reference.as_str()]);

    let mut decision = harness.pool().begin().await.unwrap();
    sqlx::query("set local lock_timeout = '200ms'").execute(&mut *decision).await.unwrap();
    let refusal = json!({"verdict": "refused"});
    let decided =
        operations::nudge(&mut decision, &reference, None, &Nudge::ScreeningResult(&refusal), 0).await;
    assert_eq!(decided.unwrap_err().fault(), Fault::Slow);
    decision.rollback().await.unwrap();

    effects::end(
        &mut step,
        &[EndedEffect { id: timer.0, fence: timer.1, end: EffectEnd::Done, calls: Vec::new() }],
    )
    .await
    .unwrap();
    step.commit().await.unwrap();
    let mut decision = harness.pool().acquire().await.unwrap();
    let decided =
        operations::nudge(&mut decision, &reference, None, &Nudge::ScreeningResult(&refusal), 0).await;
    assert!(!decided.unwrap(), "no work is due");
}
