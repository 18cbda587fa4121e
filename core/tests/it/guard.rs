//! Rails that hang, processes that are suspended beyond their claims.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::settlement::{RailAnswer, State};
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};
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

pub(crate) async fn failure_code(harness: &Harness, reference: &str) -> String {
    let view = harness.view(reference).await;
    view.failure.unwrap().exact_code().to_owned()
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
        let held = "select count(*) from effect where kind = 'payout' and claimed_until > now() and attempts = 1 \
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
    let sql = "insert into effect (reference, kind, run_at) \
         select 'exe_' || n, case when n <= 600 then 'payout' else 'offramp' end, now() - make_interval(secs => 1000 - n) \
         from generate_series(1, 601) as n";
    harness.run(sql).await;
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
