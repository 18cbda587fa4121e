//! A batch begins while the one before it is written, and is written only if it would be decided in the same way after
//! it.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::signers::local::PrivateKeySigner;
use dvp_core::engine::{Engine, EngineError, SubmitCommand};
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::{Done, FixChain, FixPart, Outcome, WriterLimits};
use dvp_domain::intent::IntentRequest;
use dvp_domain::ledger::Owner;
use dvp_domain::pause::Scope;
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::beneficiaries::disable_destination;
use dvp_store::pauses::{self, Decided};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_by, order_for};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Postgres, Transaction};
use tokio::task::JoinHandle;

use crate::beneficiaries;
use crate::scenes::{self, PATIENT, fix_session, part_of, unnumbered, unwritable_part_of};

fn engine(harness: &Harness, turn: Duration) -> Engine {
    scenes::engine_over(harness, harness.pool().clone(), WriterLimits { turn, ..PATIENT })
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

/// Waits until another batch has written what it can before its turn.
async fn wait_for_early(harness: &Harness) {
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and state = 'idle in transaction' and query like 'with intents as (%'";
    harness.wait_for_count(waiting, 1).await;
}

fn euros() -> IntentRequest {
    order_for(&Terms { input: ("USD", 100_000), output: "EUR", account: "000123456789" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_decides_by_what_the_one_before_it_leaves() {
    // Enough for three orders.
    let harness = scenes::harness_with(9_985 * 3).await;
    harness.accept(order("000123456789")).await;
    let engine = engine(&harness, PATIENT.turn);
    let held = hold(&harness, FEED).await;
    let first = submit(&harness, &engine, order("000123456789"), None);
    wait_for_first(&harness).await;
    let second: Vec<_> = (0..2).map(|_| submit(&harness, &engine, order("000123456789"), None)).collect();
    wait_for_early(&harness).await;
    assert!(!first.is_finished());
    held.rollback().await.unwrap();
    assert!(is_accepted(first).await);
    let mut accepted = 0;
    for one in second {
        accepted += usize::from(is_accepted(one).await);
    }
    assert_eq!(accepted, 1);
    assert_eq!(harness.balance(&Owner::Provider("north".into()), "USD").await, (0, 9_985 * 3));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_that_another_process_changed_is_read_again() {
    let harness = scenes::harness().await;
    harness.deposit("USD", 100_000).await;
    let engine = engine(&harness, PATIENT.turn);
    let held = hold(&harness, FEED).await;
    let first = submit(&harness, &engine, order("000123456789"), None);
    wait_for_first(&harness).await;
    // Nobody has euros yet.
    let second = submit(&harness, &engine, euros(), None);
    wait_for_early(&harness).await;
    harness.fund("north", "EUR", 1_000_000).await;
    held.rollback().await.unwrap();
    assert!(is_accepted(first).await);
    assert!(is_accepted(second).await, "it was decided without the euros");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_after_one_that_failed_is_decided_again() {
    // Enough for one order.
    let harness = scenes::harness_with(9_985).await;
    let session = fix_session(&harness, &harness.tenant, "BAD").await;
    let part = unwritable_part_of(&session, &FixChain::from_loaded(1), 1);
    let engine = engine(&harness, PATIENT.turn);
    let held = hold(&harness, SESSION).await;
    let first = submit(&harness, &engine, order("000123456789"), Some(part));
    wait_for_first(&harness).await;
    let second = submit(&harness, &engine, order("000123456789"), None);
    wait_for_early(&harness).await;
    held.rollback().await.unwrap();
    assert!(first.await.unwrap().is_err());
    assert!(is_accepted(second).await, "it was decided after an order that does not exist");
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_began_early_does_not_pass_over_a_message_that_failed() {
    let harness = scenes::harness().await;
    let session = fix_session(&harness, &harness.tenant, "BAD").await;
    let chain = FixChain::from_loaded(1);
    // Both begin with the same outbound number, so the numbers alone do not show that the second follows on the first.
    let parts = [unnumbered(unwritable_part_of(&session, &chain, 1)), part_of(&session, &chain, 1, b"after")];
    let [failing, after] = parts;
    let engine = engine(&harness, PATIENT.turn);
    let held = hold(&harness, SESSION).await;
    let first = submit(&harness, &engine, order("000123456789"), Some(failing));
    wait_for_first(&harness).await;
    let second = submit(&harness, &engine, order("000123456789"), Some(after));
    wait_for_early(&harness).await;
    held.rollback().await.unwrap();
    assert!(first.await.unwrap().is_err());
    assert!(second.await.unwrap().is_err());
    assert_eq!(harness.count("select next_in from fix_session").await, 1);
    assert_eq!(harness.count("select count(*) from execution").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_gives_way_to_who_holds_up_the_one_before_it() {
    let harness = scenes::harness().await;
    let engine = engine(&harness, Duration::from_secs(3));
    let mut held = hold(&harness, FEED).await;
    let first = submit(&harness, &engine, order("000123456789"), None);
    wait_for_first(&harness).await;
    let request = order("000123456789");
    let intent_id = request.intent_id.clone();
    let second = submit(&harness, &engine, request, None);
    wait_for_early(&harness).await;
    // Another process uses the same intentId: it waits for the second batch, which waits for the first.
    let began = Instant::now();
    sqlx::query(
        "insert into intent (partner_id, livemode, intent_id, reason, request) values ($1, false, $2, 'x', '{}')",
    )
    .bind(&harness.tenant.partner_id)
    .bind(intent_id)
    .execute(&mut *held)
    .await
    .unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "another limit ended the wait");
    assert!(!first.is_finished());
    held.rollback().await.unwrap();
    assert!(is_accepted(first).await);
    assert!(is_accepted(second).await);
    harness.check_books().await;
}

/// Another process has locked the balances and then needs a row that the early batch has written. If both waited, all
/// orders of these balances would wait until the database finds the deadlock, which it does not here.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_gives_way_to_who_has_locked_its_balances() {
    let harness = scenes::harness().await;
    let options = PgConnectOptions::clone(&harness.pool().connect_options());
    let blind = PgPoolOptions::new().connect_lazy_with(options.options([("deadlock_timeout", "1h")]));
    let engine = scenes::engine_over(&harness, blind.clone(), PATIENT);
    let held = hold(&harness, FEED).await;
    let first = submit(&harness, &engine, order("000123456789"), None);
    wait_for_first(&harness).await;
    let request = order("000123456789");
    let intent_id = request.intent_id.clone();
    let second = submit(&harness, &engine, request, None);
    wait_for_early(&harness).await;
    // It gets the balances when the first batch is committed.
    let mut other = blind.begin().await.unwrap();
    sqlx::query("set local lock_timeout = '10s'").execute(&mut *other).await.unwrap();
    let lock = async {
        sqlx::query("select from account_balance where asset = 'USD' for update")
            .execute(&mut *other)
            .await
            .unwrap();
    };
    let release = async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                       and wait_event_type = 'Lock' and state = 'active'";
        harness.wait_for_count(waiting, 2).await;
        held.rollback().await.unwrap();
    };
    tokio::join!(lock, release);
    let inserted = sqlx::query(
        "insert into intent (partner_id, livemode, intent_id, reason, request) values ($1, false, $2, 'x', '{}')",
    )
    .bind(&harness.tenant.partner_id)
    .bind(intent_id)
    .execute(&mut *other)
    .await;
    // If the batch was the faster one to lock the balances, it is committed.
    if let Err(error) = inserted {
        assert!(error.as_database_error().is_some_and(|error| error.is_unique_violation()), "{error}");
    }
    other.rollback().await.unwrap();
    assert!(is_accepted(first).await);
    assert!(is_accepted(second).await);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_waits_for_the_nonce_before_its_own() {
    let harness = scenes::harness().await;
    let wallet = PrivateKeySigner::random();
    let terms = Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" };
    let engine = engine(&harness, PATIENT.turn);
    let held = hold(&harness, FEED).await;
    let first = submit(&harness, &engine, order_by(&wallet, 0, &terms), None);
    wait_for_first(&harness).await;
    let second = submit(&harness, &engine, order_by(&wallet, 1, &terms), None);
    // Long enough to be decided, if it did not wait.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished());
    held.rollback().await.unwrap();
    assert!(is_accepted(first).await);
    assert!(is_accepted(second).await);
}

/// Dollars for euros to a registered account.
fn registered_euros() -> IntentRequest {
    order_for(&Terms { input: ("USD", 100_000), output: "EUR", account: "bene_1:dest_eur" })
}

/// A process whose payouts of euros begin with the acceptance of their orders; one is completed.
async fn with_euros(turn: Duration) -> (Harness, Engine) {
    let harness = scenes::harness().await;
    beneficiaries::enter(&harness, &harness.tenant.partner_id).await;
    beneficiaries::enter_account_in_euros(&harness).await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    let engine = engine(&harness, turn);
    let rails = Arc::new(SimulatedRails::new(harness.pool().clone()));
    let (offramp, payout) = (RailUse::of(rails.clone()), RailUse::of(rails));
    tokio::spawn(workflow::run(engine.clone(), offramp, payout, harness.stopped()));
    // Its payout has left a free place, which the next one takes with the commit of its order.
    assert!(is_accepted(submit(&harness, &engine, registered_euros(), None)).await);
    harness.wait_for_count("select count(*) from execution where state_name = 'completed'", 1).await;
    (harness, engine)
}

/// Holds the feed while the second batch waits with a payout, and lets an operator decide meanwhile. Both are accepted.
async fn decide_while_a_payout_waits(harness: &Harness, engine: &Engine, decide: impl Future<Output = bool>) {
    let held = hold(harness, FEED).await;
    let first = submit(harness, engine, order("000123456789"), None);
    wait_for_first(harness).await;
    let second = submit(harness, engine, registered_euros(), None);
    wait_for_early(harness).await;
    assert!(decide.await);
    held.rollback().await.unwrap();
    assert!(is_accepted(first).await);
    assert!(is_accepted(second).await);
}

const PAYOUTS: &str = "select count(*) from simulated_rail where leg = 'payout'";

#[tokio::test(flavor = "multi_thread")]
async fn work_is_handed_over_under_the_pauses_of_the_moment_of_the_commit() {
    let (harness, engine) = with_euros(PATIENT.turn).await;
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
    let (harness, engine) = with_euros(PATIENT.turn).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let disable =
        async { disable_destination(&mut conn, "dest_eur", "kim", "account closed").await.unwrap() };
    decide_while_a_payout_waits(&harness, &engine, disable).await;
    harness.wait_for_count("select count(*) from execution where state_name = 'payout_failed'", 1).await;
    assert_eq!(harness.count(PAYOUTS).await, 1, "the operator has had an answer");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_disabled_while_the_feed_is_waited_for_is_not_paid() {
    let (harness, engine) = with_euros(PATIENT.turn).await;
    let held = hold(&harness, FEED).await;
    let order = submit(&harness, &engine, registered_euros(), None);
    wait_for_first(&harness).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(disable_destination(&mut conn, "dest_eur", "kim", "account closed").await.unwrap());
    held.rollback().await.unwrap();
    assert!(is_accepted(order).await);
    harness.wait_for_count("select count(*) from execution where state_name = 'payout_failed'", 1).await;
    assert_eq!(harness.count(PAYOUTS).await, 1);
    harness.check_books().await;
}
