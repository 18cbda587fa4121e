//! The writer while the database is unavailable: every unit is answered, one connection at a time is tried, and the
//! writer recovers.

use std::time::Duration;

use dvp_core::engine::{Engine, EngineError};
use dvp_core::writer::FixChain;
use dvp_core::writer::{Outcome, WriterLimits};
use futures_util::future::join_all;

use crate::proxy::Mode;
use crate::scenes::{self, engine_behind_proxy};
use crate::scenes::{fix_session, key_of, part_of, unnumbered};
use dvp_testing::Harness;
use dvp_testing::wait::wait_for;

const IMPATIENT: WriterLimits = WriterLimits {
    connect: Duration::from_secs(5),
    transaction: Duration::from_secs(8),
    statement: Duration::from_secs(6),
    lock: Duration::from_secs(5),
};

async fn write_one(engine: &Engine, harness: &Harness) -> Result<(), EngineError> {
    let key = key_of(&harness.tenant, uuid::Uuid::new_v4(), "/v1/intents");
    engine.keep_refusal(key).await.map(|_| ())
}

async fn write_some(engine: &Engine, harness: &Harness, count: usize) -> Vec<Result<(), EngineError>> {
    join_all((0..count).map(|_| write_one(engine, harness))).await
}

fn all_unavailable(done: &[Result<(), EngineError>]) -> bool {
    done.iter().all(|one| matches!(one, Err(EngineError::Unavailable(_))))
}

/// Writes until it succeeds again.
async fn is_back(engine: &Engine, harness: &Harness) {
    wait_for("the database", || async { write_one(engine, harness).await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_caller_is_answered_while_one_connection_at_a_time_is_tried() {
    let harness = scenes::harness().await;
    let (engine, proxy) = engine_behind_proxy(&harness, IMPATIENT).await;
    write_one(&engine, &harness).await.unwrap();
    proxy.set(Mode::Refuse);
    let before = proxy.connections();
    for _ in 0..20 {
        let done = write_some(&engine, &harness, 100).await;
        assert!(all_unavailable(&done), "{done:?}");
    }
    // Two thousand units were answered; each attempt waits longer than the last one.
    assert!(proxy.connections() - before < 40, "{} connections", proxy.connections() - before);
    proxy.set(Mode::Pass);
    is_back(&engine, &harness).await;
    assert_eq!(harness.count("select count(*) from idempotency").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_database_and_its_return_are_noticed() {
    let harness = scenes::harness().await;
    let (engine, proxy) = engine_behind_proxy(&harness, IMPATIENT).await;
    write_one(&engine, &harness).await.unwrap();
    proxy.set(Mode::Hang);
    let done = write_some(&engine, &harness, 600).await;
    assert!(all_unavailable(&done), "{done:?}");
    proxy.set(Mode::Pass);
    is_back(&engine, &harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_fails_no_unit() {
    let harness = scenes::harness().await;
    let (engine, proxy) = engine_behind_proxy(&harness, IMPATIENT).await;
    write_one(&engine, &harness).await.unwrap();
    let own = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid() and client_port > 0";
    assert!(harness.count(own).await > 0);
    let done = write_some(&engine, &harness, 50).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_passes_over_a_message_that_an_outage_kept_from_being_written() {
    let harness = scenes::harness().await;
    let (engine, proxy) = engine_behind_proxy(&harness, IMPATIENT).await;
    let session = fix_session(harness.pool(), &harness.tenant, "ACME").await;
    let chain = FixChain::from_loaded(1);
    proxy.set(Mode::Refuse);
    let lost = unnumbered(part_of(&session, &chain, 1, b""));
    let lost = engine.commit_fix(&harness.tenant, lost).await;
    assert!(matches!(lost, Err(EngineError::Unavailable(_))));
    proxy.set(Mode::Pass);
    is_back(&engine, &harness).await;
    assert!(engine.commit_fix(&harness.tenant, part_of(&session, &chain, 1, b"after")).await.is_err());
    assert_eq!(harness.count("select next_in from fix_session").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_from_its_loaded_numbers_after_unavailable() {
    let harness = scenes::harness().await;
    let (engine, proxy) = engine_behind_proxy(&harness, IMPATIENT).await;
    let session = fix_session(harness.pool(), &harness.tenant, "ACME").await;
    let chain = FixChain::from_loaded(1);
    engine.commit_fix(&harness.tenant, part_of(&session, &chain, 1, b"a")).await.unwrap();
    proxy.set(Mode::Refuse);
    let lost = engine.commit_fix(&harness.tenant, part_of(&session, &chain, 2, b"lost")).await;
    assert!(matches!(lost, Err(EngineError::Unavailable(_))));
    proxy.set(Mode::Pass);
    is_back(&engine, &harness).await;
    // Units queued behind it, before the failure was known.
    assert!(engine.commit_fix(&harness.tenant, part_of(&session, &chain, 3, b"dependant")).await.is_err());
    let chain = FixChain::from_loaded(2);
    let done = engine.commit_fix(&harness.tenant, part_of(&session, &chain, 2, b"b")).await.unwrap();
    assert!(matches!(done.outcome, Outcome::Written));
    assert_eq!(harness.count("select next_out from fix_session").await, 3);
    assert_eq!(harness.count("select count(*) from fix_outbound").await, 2);
}
