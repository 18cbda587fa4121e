//! Units that cannot be written: they fail immediately, with the units that depend on them, and hardly delay the
//! others.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use dvp_core::engine::{CancelOutcome, Engine, EngineError};
use dvp_core::writer::{FixChain, FixPart, IdempotencyPart, Outcome, WriterLimits};
use dvp_store::fix::rows::{FixRows, ParkedOrder, Parking};
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::intents::Tenant;
use futures_util::future::join_all;

use crate::proxy::{Mode, Proxy};
use crate::scenes::{self, PATIENT, engine_behind_proxy};
use crate::scenes::{fix_session, key_of, part_of, unnumbered, unwritable_part_of};
use dvp_testing::orders::{order, submit};

/// Submits orders of a tenant at the same time.
async fn accept_of(engine: &Engine, tenant: &Tenant, count: usize) -> usize {
    let done = join_all((0..count).map(|_| submit(engine, tenant, order("000123456789")))).await;
    done.iter().filter(|done| matches!(done, Ok(Outcome::Accepted(_)))).count()
}

/// Queues everything while the database does not answer, then lets it answer, so that the units form one batch.
async fn together<T>(proxy: &Proxy, work: impl Future<Output = T>) -> T {
    proxy.set(Mode::Hang);
    let release = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.set(Mode::Pass);
    };
    tokio::join!(work, release).0
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_bad_units_of_a_session_cost_few_transactions() {
    let harness = scenes::harness().await;
    let other = harness.other_tenant().await;
    let (engine, proxy) = engine_behind_proxy(&harness, WriterLimits::default()).await;
    let session = fix_session(harness.pool(), &other, "BAD").await;
    let chain = FixChain::from_loaded(1);
    let bad = (1..=200).map(|before| engine.commit_fix(&other, unwritable_part_of(&session, &chain, before)));
    let work = async { tokio::join!(join_all(bad), accept_of(&engine, &harness.tenant, 100)) };
    let (failed, accepted) = together(&proxy, work).await;
    assert_eq!(accepted, 100);
    assert!(matches!(failed[0], Err(EngineError::Corrupt(_))), "{:?}", failed[0]);
    assert!(failed[1..].iter().all(|one| matches!(one, Err(EngineError::Unavailable(_)))));
    // One bad unit of 300 is found in 2 log2 steps; the 199 that depend on it are not tried.
    assert!(proxy.transactions() <= 24, "{} transactions", proxy.transactions());
    // A later unit that depends on it fails without the database.
    let before = proxy.transactions();
    assert!(engine.commit_fix(&other, part_of(&session, &chain, 201, b"")).await.is_err());
    assert_eq!(proxy.transactions(), before);
    // A session that loads its numbers again continues.
    let chain = FixChain::from_loaded(1);
    engine.commit_fix(&other, part_of(&session, &chain, 1, b"x")).await.unwrap();
    assert_eq!(harness.count("select next_out from fix_session").await, 2);
    assert_eq!(harness.count("select count(*) from fix_order").await, 0);
}

/// A part that parks an order; the next one begins with the same outbound number.
fn parking_part_of(session: &str, chain: &FixChain, before: u64) -> FixPart {
    let parked = ParkedOrder {
        cl_ord_id: "parked".into(),
        trading_day: 0,
        message: b"35=D".to_vec(),
        received_at: Utc::now(),
        bounds: order("1").bounds,
    };
    let rows = FixRows { parking: vec![Parking::Park(parked)], ..FixRows::default() };
    FixPart { render: Arc::new(move |_| rows.clone()), ..unnumbered(part_of(session, chain, before, b"")) }
}

/// The part of the message after a parked one.
fn part_after(session: &str, chain: &FixChain, before: u64) -> FixPart {
    let mut part = part_of(session, chain, before, b"after");
    part.numbers.next_in += 1;
    part
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_passes_over_a_message_whose_order_could_not_be_parked() {
    let harness = scenes::harness().await;
    let limits = WriterLimits { statement: Duration::from_secs(3), ..WriterLimits::default() };
    let (engine, proxy) = engine_behind_proxy(&harness, limits).await;
    let (session, tenant) = (fix_session(harness.pool(), &harness.tenant, "ACME").await, &harness.tenant);
    for statement in [
        "create function stall() returns trigger language plpgsql as \
         $$ begin perform pg_sleep(20); return new; end $$",
        "create trigger stall before insert on fix_parked for each row execute function stall()",
    ] {
        harness.run(statement).await;
    }
    let chain = FixChain::from_loaded(1);
    let first = engine.commit_fix(tenant, parking_part_of(&session, &chain, 1));
    let second = engine.commit_fix(tenant, part_after(&session, &chain, 1));
    let (first, second) = together(&proxy, async { tokio::join!(first, second) }).await;
    assert!(matches!(first, Err(EngineError::Unavailable(_))), "{first:?}");
    assert!(matches!(second, Err(EngineError::Unavailable(_))), "{second:?}");
    // A message that was queued before the session knew.
    assert!(engine.commit_fix(tenant, part_after(&session, &chain, 1)).await.is_err());
    assert_eq!(harness.count("select next_in from fix_session").await, 1);
    assert_eq!(harness.count("select count(*) from fix_outbound").await, 0);

    harness.run("drop trigger stall on fix_parked").await;
    let chain = FixChain::from_loaded(1);
    engine.commit_fix(tenant, parking_part_of(&session, &chain, 1)).await.unwrap();
    engine.commit_fix(tenant, part_after(&session, &chain, 1)).await.unwrap();
    assert_eq!(harness.count("select next_in from fix_session").await, 3);
    assert_eq!(harness.count("select count(*) from fix_parked").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn independent_bad_units_are_separated_from_the_others() {
    let harness = scenes::harness().await;
    let bad_tenant = harness.other_tenant().await;
    let (engine, proxy) = engine_behind_proxy(&harness, WriterLimits::default()).await;
    let bad = |_| {
        let part = key_of(&bad_tenant, uuid::Uuid::new_v4(), "/v1/intents");
        let render = |_: &Outcome| StoredResponse { status: 202, body: "a\0b".into() };
        let part = IdempotencyPart { render: Arc::new(render), ..part };
        engine.keep_refusal(part)
    };
    let good = async {
        let accepted = accept_of(&engine, &harness.tenant, 100).await;
        (accepted, proxy.transactions())
    };
    let work = async { tokio::join!(join_all((0..200).map(bad)), good) };
    let (failed, (accepted, until_accepted)) = together(&proxy, work).await;
    assert_eq!(accepted, 100);
    assert!(failed.iter().all(|one| matches!(one, Err(EngineError::Corrupt(_)))));
    // At most two turns of the bad tenant; one after another they would be four hundred.
    assert!(until_accepted <= 100, "{until_accepted} transactions before the good ones were written");
    // From now on the two share no batch: the good ones are written at the first attempt.
    let before = proxy.transactions();
    let work = async { tokio::join!(bad(0), accept_of(&engine, &harness.tenant, 50)) };
    let (failed, accepted) = together(&proxy, work).await;
    assert!(failed.is_err());
    assert_eq!(accepted, 50);
    assert!(proxy.transactions() - before <= 6, "{} transactions", proxy.transactions() - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_waits_for_a_lock_fails_alone() {
    let harness = scenes::harness().await;
    // A transaction has time for the lock's limit more than once.
    let limits = WriterLimits { lock: Duration::from_secs(3), ..PATIENT };
    let (engine, _proxy) = engine_behind_proxy(&harness, limits).await;
    let locked = harness.accept(order("000123450008")).await.reference;
    let mut operator = harness.pool().begin().await.unwrap();
    sqlx::query("select from execution where reference = $1 for update")
        .bind(&locked)
        .execute(&mut *operator)
        .await
        .unwrap();
    let cancel = engine.cancel(&harness.tenant, &locked, None);
    let (cancelled, accepted) = tokio::join!(cancel, accept_of(&engine, &harness.tenant, 40));
    assert_eq!(accepted, 40);
    assert!(matches!(cancelled, Err(EngineError::Unavailable(_))), "{cancelled:?}");
    operator.rollback().await.unwrap();
    assert_eq!(engine.cancel(&harness.tenant, &locked, None).await.unwrap(), CancelOutcome::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_decision_postpones_only_its_own_effect() {
    let harness = scenes::harness().await;
    let broken = harness.accept(order("000123456789")).await.reference;
    let good = harness.accept(order("000123456789")).await.reference;
    for verdict in [r#"{"verdict": "unheard_of"}"#, r#"{"verdict": 1e400}"#] {
        sqlx::query("update effect set verdict = $2::text::jsonb where reference = $1")
            .bind(&broken)
            .bind(verdict)
            .execute(harness.pool())
            .await
            .unwrap();
    }
    harness.start_workers();
    let put_off = "select count(*) from effect where unwritten >= 2 and last_result like '%verdict%' and claimed_until is null";
    harness.wait_for_count(put_off, 1).await;
    harness.play_chain(&good).await;
    harness.wait_for_state(&good, "completed").await;
    assert_eq!(
        harness.count("select count(*) from chain_command c join effect e using (reference)").await,
        0
    );
    harness.run("update effect set verdict = null").await;
    harness.play_chain(&broken).await;
    harness.wait_for_state(&broken, "completed").await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_fact_blocks_no_other() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let first = harness.accept(order("000123456789")).await.reference;
    harness.wait_for_state(&first, "locking").await;
    sqlx::query(
        "insert into chain_fact (chain_id, entity, kind, payload) values (31337, $1, 'x', '{\"kind\": \"unheard_of\"}')",
    )
    .bind(&[9_u8; 32][..])
    .execute(harness.pool())
    .await
    .unwrap();
    harness.play_chain(&first).await;
    harness.wait_for_state(&first, "completed").await;
    let put_off =
        "select count(*) from chain_fact where unwritten > 0 and last_error like '%cannot be read%'";
    harness.wait_for_count(put_off, 1).await;
}
