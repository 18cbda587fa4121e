//! Facts of the chain that come before their order waits for them, as after a restore of the database: they are kept,
//! and each is applied when the order takes it.

use dvp_core::chain::expected;
use dvp_domain::chain::{BlockNumber, ChainCommand, ChainFact, LockTerms};
use dvp_store::chain::{publish_events, publish_late_events};

use crate::scenes;
use crate::settling::STRAIGHT;
use dvp_testing::orders::order;
use sqlx::types::Json;

const OPEN: &str = "select count(*) from chain_fact where consumed_at is null";

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_comes_during_the_payout_completes_the_order_after_it() {
    let harness = scenes::harness().await;
    harness.start_workers();
    // Its payout takes a few seconds.
    let reference = harness.accept(order("000123450001")).await.reference;
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "paying").await;
    let (entity, _) = harness.command(&reference, "create").await;
    harness.report_fact(&entity, &ChainFact::Settled { swap: None }).await;
    harness.wait_for_state(&reference, "completed").await;
    harness.play(&reference, "anchor").await;
    harness.wait_for_count(OPEN, 0).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_steps_that_were_forgotten_are_applied_as_the_order_comes_to_them() {
    let (harness, reference) = scenes::begun("000123456789").await;
    let (entity, create) = harness.command(&reference, "create").await;
    let ChainCommand::Create(_) = &create else { panic!("{create:?}") };
    // The same lock twice, and what followed it, in another order than the service would have it.
    for fact in [ChainFact::Settled { swap: None }, expected::goal(&create), expected::goal(&create)] {
        harness.report_fact(&entity, &fact).await;
    }
    harness.wait_for_state(&reference, "committing").await;
    harness.play(&reference, "fill").await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(harness.events(&reference).await, STRAIGHT, "each step once");
    harness.wait_for_count(OPEN, 0).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_that_an_ended_order_never_took_is_used_up() {
    let (harness, reference) = scenes::begun("000123450003").await;
    let (entity, create) = harness.command(&reference, "create").await;
    harness.report_fact(&entity, &ChainFact::Settled { swap: None }).await;
    harness.wait_for_count("select count(*) from chain_fact where early_at is not null", 1).await;
    assert_eq!(harness.count(OPEN).await, 1);
    harness.report_fact(&entity, &expected::goal(&create)).await;
    harness.wait_for_state(&reference, "conversion_failed").await;
    harness.wait_for_count(OPEN, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_from_before_its_command_gives_the_command_its_times() {
    let harness = scenes::harness().await;
    harness.start_workers();
    for (hours, follows) in [(0, false), (1, true)] {
        let reference = harness.accept(order("000123456789")).await.reference;
        let (entity, create) = harness.command(&reference, "create").await;
        let ChainFact::Created { timelock, amount, lock } = expected::goal(&create) else { panic!() };
        let lock = Box::new(LockTerms { fill_deadline: lock.fill_deadline - 60, ..*lock });
        let fact = ChainFact::Created { timelock: timelock - 60, amount, lock };
        scenes::report_on(&harness, 31_337, &entity, &fact, hours).await;
        if follows {
            harness.wait_for_state(&reference, "committing").await;
            let (_, adopted) = harness.command(&reference, "create").await;
            assert_eq!(expected::goal(&adopted), fact, "later calls repeat the times");
        } else {
            harness.wait_for_count("select count(*) from chain_fact where differs is not null", 1).await;
            harness.wait_for_state(&reference, "locking").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_committed_while_its_event_is_published_is_not_done_without_its_fact() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let mut references = Vec::new();
    for n in 1..=2_i64 {
        let reference = harness.accept(order("000123456789")).await.reference;
        let (entity, create) = harness.command(&reference, "create").await;
        sqlx::query(
            "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                    entity, seq, fact) \
             values (31337, sha256('b'), $1, 7, now(), sha256('t'), decode(repeat('ee', 20), 'hex'), 'Created', $2, $1, $3)",
        )
        .bind(n)
        .bind(entity)
        .bind(Json(expected::goal(&create)))
        .execute(harness.pool())
        .await
        .unwrap();
        references.push(reference);
    }
    // The second one's command comes between the statements that insert facts and complete commands.
    let scene = format!(
        "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number) \
             values (31337, 7, sha256('b'), 7, 7); \
         update chain_command set entity = sha256(entity) where reference = '{late}'; \
         create function commit_later() returns trigger language plpgsql as \
         $$ begin update chain_command set entity = e.entity from execution e \
                  where e.reference = '{late}' and chain_command.reference = e.reference; return null; end $$; \
         create trigger commit_later before insert on chain_fact for each statement execute function commit_later();",
        late = references[1]
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(scene)).execute(harness.pool()).await.unwrap();
    let mut tx = harness.pool().begin().await.unwrap();
    publish_events(&mut tx, 31_337, BlockNumber(6), BlockNumber(7)).await.unwrap();
    tx.commit().await.unwrap();
    harness.wait_for_state(&references[0], "committing").await;
    assert_eq!(
        harness.count("select count(*) from chain_command where kind = 'create' and state = 'pending'").await,
        1
    );
    harness.run("drop trigger commit_later on chain_fact").await;
    let mut tx = harness.pool().begin().await.unwrap();
    publish_late_events(&mut tx, 31_337).await.unwrap();
    tx.commit().await.unwrap();
    harness.wait_for_state(&references[1], "committing").await;
}
