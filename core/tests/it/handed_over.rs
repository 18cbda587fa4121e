//! Work is handed over as operators have decided by the commit, and no message passes over one that failed.

use std::future::Future;
use std::sync::Arc;

use dvp_core::engine::{Engine, EngineError, SubmitCommand};
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::{Done, FixChain, FixPart, Outcome};
use dvp_domain::intent::IntentRequest;
use dvp_domain::pause::Scope;
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::operators::pauses::{self, Decided};
use dvp_store::partners::beneficiaries::disable_destination;
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_for};
use sqlx::{Postgres, Transaction};
use tokio::task::JoinHandle;

use crate::beneficiaries;
use crate::scenes::{self, PATIENT, fix_session, part_of, unnumbered, unwritable_part_of};

fn engine(harness: &Harness) -> Engine {
    scenes::engine_over(harness, harness.pool().clone(), PATIENT)
}

fn submit(
    harness: &Harness,
    engine: &Engine,
    request: IntentRequest,
    fix: Option<FixPart>,
) -> JoinHandle<Result<Done, EngineError>> {
    let (engine, tenant) = (engine.clone(), harness.tenant.clone());
    let command = SubmitCommand { tenant, request, idempotency: None, fix };
    tokio::spawn(async move { engine.submit(command).await })
}

async fn is_accepted(sent: JoinHandle<Result<Done, EngineError>>) -> bool {
    matches!(sent.await.unwrap().unwrap().outcome, Outcome::Accepted(_))
}

/// Holds what a batch changes last: no batch is committed until it is dropped.
async fn hold(harness: &Harness, lock: &'static str) -> Transaction<'static, Postgres> {
    let mut held = harness.pool().begin().await.unwrap();
    sqlx::query(lock).execute(&mut *held).await.unwrap();
    held
}

const FEED: &str = "select from feed_counter for update";
const SESSION: &str = "select from fix_session for update";

/// Waits until a batch waits for what is held.
async fn wait_for_first(harness: &Harness) {
    let waiting = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock' and state = 'active'";
    harness.wait_for_count(waiting, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_does_not_pass_over_one_that_failed() {
    let harness = scenes::harness().await;
    let session = fix_session(harness.pool(), &harness.tenant, "BAD").await;
    let chain = FixChain::from_loaded(1);
    // Both begin with the same outbound number, so the numbers alone do not show that the second follows on the first.
    let parts = [unnumbered(unwritable_part_of(&session, &chain, 1)), part_of(&session, &chain, 1, b"after")];
    let [failing, after] = parts;
    let engine = engine(&harness);
    let held = hold(&harness, SESSION).await;
    let first = submit(&harness, &engine, order("000123456789"), Some(failing));
    wait_for_first(&harness).await;
    let second = submit(&harness, &engine, order("000123456789"), Some(after));
    held.rollback().await.unwrap();
    assert!(first.await.unwrap().is_err());
    assert!(second.await.unwrap().is_err());
    assert_eq!(harness.count("select next_in from fix_session").await, 1);
    assert_eq!(harness.count("select count(*) from execution").await, 0);
}

/// Dollars for euros to a registered account.
fn registered_euros() -> IntentRequest {
    order_for(&Terms { input: ("USD", 100_000), output: "EUR", account: "bene_1:dest_eur" })
}

/// A process whose payouts of euros begin with the acceptance of their orders; one is completed.
async fn with_euros() -> (Harness, Engine) {
    let harness = scenes::harness().await;
    beneficiaries::enter(&harness, &harness.tenant.partner_id).await;
    beneficiaries::enter_account_in_euros(&harness).await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    let engine = engine(&harness);
    let rails = Arc::new(SimulatedRails::new(harness.pool().clone()));
    let (offramp, payout) = (RailUse::of(rails.clone()), RailUse::of(rails));
    tokio::spawn(workflow::run(engine.clone(), offramp, payout, harness.stopped()));
    // Its payout has left a free place, which the next one takes with the commit of its order.
    assert!(is_accepted(submit(&harness, &engine, registered_euros(), None)).await);
    harness.wait_for_count("select count(*) from execution where state_name = 'completed'", 1).await;
    (harness, engine)
}

/// Holds the feed while an order waits with a payout, and lets an operator decide meanwhile.
async fn decide_while_a_payout_waits(harness: &Harness, engine: &Engine, decide: impl Future<Output = bool>) {
    let held = hold(harness, FEED).await;
    let order = submit(harness, engine, registered_euros(), None);
    wait_for_first(harness).await;
    assert!(decide.await);
    held.rollback().await.unwrap();
    assert!(is_accepted(order).await);
}

const PAYOUTS: &str = "select count(*) from simulated_rail where leg = 'payout'";

#[tokio::test(flavor = "multi_thread")]
async fn work_is_handed_over_under_the_pauses_of_the_moment_of_the_commit() {
    let (harness, engine) = with_euros().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let by = Decided { operator: "jo", reason: "to be sure" };
    let pause = async { pauses::insert(&mut conn, Scope::Rail, "payout", by).await.unwrap() };
    decide_while_a_payout_waits(&harness, &engine, pause).await;
    let paused =
        "select count(*) from effect where kind = 'payout' and not called and last_result = 'paused'";
    harness.wait_for_count(paused, 1).await;
    assert_eq!(harness.count(PAYOUTS).await, 1);
    assert!(pauses::delete(&mut conn, Scope::Rail, "payout", by).await.unwrap());
    harness.wait_for_count("select count(*) from execution where state_name = 'completed'", 2).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_disabled_before_the_commit_is_not_paid() {
    let (harness, engine) = with_euros().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let disable =
        async { disable_destination(&mut conn, "dest_eur", "kim", "account closed").await.unwrap() };
    decide_while_a_payout_waits(&harness, &engine, disable).await;
    harness.wait_for_count("select count(*) from execution where state_name = 'payout_failed'", 1).await;
    assert_eq!(harness.count(PAYOUTS).await, 1, "the operator has had an answer");
    harness.check_books().await;
}
