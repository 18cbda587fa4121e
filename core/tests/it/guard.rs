//! Legs that must not begin, rails that hang, processes that sleep over their claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::context::now;
use dvp_domain::chain::ChainFact;
use dvp_domain::settlement::RailAnswer;
use dvp_rails::{Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::orders::effects;
use dvp_store::orders::executions::RefType;
use tokio::sync::Mutex;

use crate::house::{House, order};

/// A rail that is down, and counts how often it was tried.
#[derive(Default)]
struct Down(AtomicU32);

impl Rail for Down {
    fn submit<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Err(RailError::Down("closed".into())) })
    }

    fn status<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async { Err(RailError::Down("closed".into())) })
    }
}

/// A rail that never answers about accounts ending in 6666, and remembers until when it was asked to act.
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

pub(crate) async fn entity_of(house: &House, reference: &str) -> Vec<u8> {
    let row: (Vec<u8>,) = sqlx::query_as("select entity from execution where reference = $1")
        .bind(reference)
        .fetch_one(house.pool())
        .await
        .unwrap();
    row.0
}

/// The lock is seen, with so much time left until anyone may cancel it, and some two hours to its timelock.
async fn lock_with(house: &House, reference: &str, seconds_left: u64) {
    house.wait_for_state(reference, "locking").await;
    sqlx::query(
        "update chain_command set payload = jsonb_set(payload, '{fill_deadline}', to_jsonb($1::int8))",
    )
    .bind(i64::try_from(now().unix_secs() + seconds_left).unwrap())
    .execute(house.pool())
    .await
    .unwrap();
    let (entity, create) = house.command(reference, "create").await;
    house.fact(&entity, &dvp_core::chain::expected::goal(&create)).await;
}

pub(crate) async fn failure_code(house: &House, reference: &str) -> String {
    let view = house.engine.execution(&house.tenant, RefType::ExecutionId, reference).await.unwrap().unwrap();
    view.failure.unwrap().code
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_that_leaves_no_time_to_pay_and_release_does_not_begin() {
    let house = House::new().await;
    house.work();
    let reference = house.accept(order("000123456789")).await.reference;
    lock_with(&house, &reference, 600).await;
    house.wait_for_state(&reference, "conversion_failed").await;
    assert_eq!(failure_code(&house, &reference).await, "fill_deadline_near");
    assert_eq!(house.count("select count(*) from simulated_rail").await, 0);
    house.fact(&entity_of(&house, &reference).await, &ChainFact::Refunded).await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true'";
    house.wait_for("the refund", || async { (house.count(refunded).await == 1).then_some(()) }).await;
    assert_eq!(house.account("escrow", "USDC").await, "0");
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_whose_bank_stays_down_until_too_late_is_given_up_unpaid() {
    let house = House::new().await;
    let (bank, offramp) = (Arc::new(Down::default()), SimulatedRails::new(house.pool().clone()));
    house.work_with(Arc::new(offramp), bank.clone());
    let reference = house.accept(order("000123456789")).await.reference;
    house.play_until(&reference, |kind| kind == "fill").await;
    house.wait_for_state(&reference, "paying").await;
    house.wait_for("a try", || async { (bank.0.load(Ordering::Relaxed) > 1).then_some(()) }).await;
    // As if that much time had passed.
    let late = "update execution set state = jsonb_set(state, '{lock,deadlines,pay_before}', '0')";
    sqlx::query(late).execute(house.pool()).await.unwrap();
    house.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(failure_code(&house, &reference).await, "timelock_near");
    let told = house.events(&reference).await;
    assert_eq!(told[2..], ["offramp.completed", "payout.initiated", "payout.failed"]);
    assert_eq!(house.count("select count(*) from effect").await, 0);
    // What is committed on the chain no relayer gives back.
    assert_eq!(house.count("select count(*) from chain_command where kind = 'cancel'").await, 0);
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rail_that_hangs_holds_up_nobody_else() {
    let house = House::new().await;
    let inner = SimulatedRails::new(house.pool().clone());
    let hanging = Arc::new(Hanging { inner: inner.clone(), not_after: Mutex::new(None) });
    house.work_with(Arc::new(inner), hanging);
    let stuck = house.accept(order("000123456666")).await.reference;
    house.play_until(&stuck, |kind| kind == "fill").await;
    house.wait_for_state(&stuck, "paying").await;
    let called = "select count(*) from effect where kind = 'payout' and called";
    house.wait_for("the call", || async { (house.count(called).await == 1).then_some(()) }).await;
    let swift = house.accept(order("000123456789")).await.reference;
    house.play_until(&swift, |kind| kind == "settle").await;
    house.wait_for_state(&swift, "completed").await;
    let held = "select count(*) from effect where kind = 'payout' and lease_until > now() and attempts = 1";
    assert_eq!(house.count(held).await, 1, "the other one's call is still out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_may_act_only_so_long_after_its_claim_whenever_it_is_made() {
    let house = House::new().await;
    let inner = SimulatedRails::new(house.pool().clone());
    let payout = Arc::new(Hanging { inner: inner.clone(), not_after: Mutex::new(None) });
    let workers = house.mortal_workers_with(Arc::new(inner), payout.clone());
    let reference = house.accept(order("000123456789")).await.reference;
    house.play_until(&reference, |kind| kind == "fill").await;
    house.wait_for_state(&reference, "releasing").await;
    let not_after = payout.not_after.lock().await.unwrap();
    assert!(not_after <= Utc::now() + TimeDelta::seconds(10));
    // Nobody else takes the claims that follow.
    workers.abort();
    let _ = workers.await;
    // A claim says when it was made, by the database's clock, so that who sleeps over it asks for nothing any more.
    house.accept(order("000123450008")).await;
    sqlx::query("update effect set kind = 'payout', run_at = now()").execute(house.pool()).await.unwrap();
    let mut conn = house.pool().acquire().await.unwrap();
    let claimed = effects::claim(&mut conn, 0, 12, 10).await.unwrap();
    assert!(!claimed.is_empty());
    // A lease of no time has run out once the clock has moved.
    let again = house
        .wait_for("the claim to run out", || async {
            let mut conn = house.pool().acquire().await.unwrap();
            let again = effects::claim(&mut conn, 0, 12, 10).await.unwrap();
            (!again.is_empty()).then_some(again)
        })
        .await;
    for (first, second) in claimed.iter().zip(&again) {
        assert_eq!(first.called_at, second.called_at, "a second claim does not make the call younger");
    }
}
