//! Operators' pauses stop new orders and legs that were never called, and nothing else.

use std::time::Duration;

use dvp_core::operators::pauses::{PauseSwitch, switch};
use dvp_core::operators::targets::Targets;
use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::pause::Scope;
use dvp_store::operators::pauses::{self, Decided};

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

const BY: Decided<'_> = Decided { operator: "jo", reason: "to be sure" };

async fn pause(harness: &Harness, scope: Scope, target: &str) {
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(pauses::insert(&mut conn, scope, target, BY).await.unwrap());
    assert!(!pauses::insert(&mut conn, scope, target, BY).await.unwrap(), "it is paused already");
}

async fn resume(harness: &Harness, scope: Scope, target: &str) {
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(pauses::delete(&mut conn, scope, target, BY).await.unwrap());
    assert!(!pauses::delete(&mut conn, scope, target, BY).await.unwrap(), "it goes on already");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_refuses_the_next_order_and_reserves_nothing() {
    let harness = scenes::harness().await;
    let partner = harness.tenant.partner_id.clone();
    for (scope, target) in [
        (Scope::Everything, ""),
        (Scope::Partner, partner.as_str()),
        (Scope::Pair, "USDC/USD"),
        (Scope::Provider, "north"),
        (Scope::Chain, "anvil"),
    ] {
        pause(&harness, scope, target).await;
        // Immediately: no process has read the pause yet.
        match harness.submit(order("000123450000")).await {
            Outcome::Rejected { reason: Reason::NoLiquidity, .. } => {}
            other => panic!("{scope:?} {target}: {other:?}"),
        }
        resume(&harness, scope, target).await;
    }
    let reserved = "select count(*) from account_balance where reserved <> 0";
    assert_eq!(harness.count(reserved).await, 0);
    for (scope, target) in [
        (Scope::Partner, "ptn_other"),
        (Scope::Pair, "USD/USDC"),
        (Scope::Provider, "south"),
        (Scope::Chain, "other"),
        (Scope::Rail, "offramp"),
    ] {
        pause(&harness, scope, target).await;
        harness.accept(order("000123450000")).await;
    }
    let changes = "select count(*) from pause_change";
    assert_eq!(harness.count(changes).await, 15);
    assert!(sqlx::query("delete from pause_change").execute(harness.pool()).await.is_err());
}

async fn calls(harness: &Harness, reference: &str, leg: &str) -> i64 {
    let (calls,): (i64,) = sqlx::query_as(
        "select coalesce(sum(r.calls), 0)::bigint from simulated_rail r where r.leg = $1 and r.reference = \
         encode(sha256(convert_to($2 || ':' || $1, 'UTF8')), 'hex')",
    )
    .bind(leg)
    .bind(reference)
    .fetch_one(harness.pool())
    .await
    .unwrap();
    calls
}

async fn wait_until_paused(harness: &Harness, reference: &str) {
    wait_for("a paused leg", || async {
        let last_result: Option<(Option<String>,)> =
            sqlx::query_as("select last_result from effect where reference = $1")
                .bind(reference)
                .fetch_optional(harness.pool())
                .await
                .unwrap();
        last_result.and_then(|(last_result,)| last_result).filter(|last_result| last_result == "paused")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_payout_prevents_commitment_and_a_called_one_is_followed() {
    let harness = scenes::harness().await;
    harness.start_workers();
    // Called before the pause: it passes through in_progress for two seconds.
    let called = harness.accept(order("000123450001")).await.reference;
    harness.play_until(&called, |kind| kind == "fill").await;
    wait_for("the call", || async { (calls(&harness, &called, "payout").await == 1).then_some(()) }).await;
    pause(&harness, Scope::Rail, "payout").await;
    let later = harness.accept(order("000123450000")).await.reference;
    harness.play_until(&later, |kind| kind == "create").await;
    wait_until_paused(&harness, &later).await;
    harness.play_until(&called, |kind| kind == "settle").await;
    harness.wait_for_state(&called, "completed").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((calls(&harness, &later, "offramp").await, calls(&harness, &later, "payout").await), (0, 0));
    let (fills,): (i64,) = harness
        .row_of("select count(*) from chain_command where reference = $1 and kind = 'fill'", &later)
        .await;
    assert_eq!(fills, 0, "committed to a payout that may not begin");
    resume(&harness, Scope::Rail, "payout").await;
    harness.play_until(&later, |kind| kind == "settle").await;
    harness.wait_for_state(&later, "completed").await;
    harness.check_books().await;
}

#[tokio::test]
async fn a_pause_is_of_something_that_exists() {
    let harness = scenes::harness().await;
    let targets = harness.market.targets();
    let mut conn = harness.pool().acquire().await.unwrap();
    for (scope, target, problem) in [
        (Scope::Partner, "acm", "there is no partner acm"),
        (Scope::Pair, "usdc/usd", "there is no pair usdc/usd, did you mean USDC/USD?"),
        (Scope::Pair, "EUR/WETH", "there is no pair EUR/WETH"),
        (Scope::Provider, "nort", "there is no provider nort, did you mean north?"),
        (Scope::Chain, "anvill", "there is no chain anvill, did you mean anvil?"),
        (Scope::Rail, "payouts", "the target of a rail is offramp or payout"),
    ] {
        for change in [PauseSwitch::Pause, PauseSwitch::Resume] {
            let refused = switch(&mut conn, &targets, change, scope, target, "jo", "test").await.unwrap_err();
            assert!(refused.to_string().starts_with(problem), "{refused}");
        }
    }
    assert_eq!(harness.count("select count(*) from pause").await, 0);
    for (scope, target) in [
        (Scope::Pair, "USDC/USD"),
        (Scope::Provider, "north"),
        (Scope::Chain, "anvil"),
        (Scope::Rail, "payout"),
    ] {
        let done =
            switch(&mut conn, &targets, PauseSwitch::Pause, scope, target, "jo", "test").await.unwrap();
        assert!(done.is_changed && done.target == target, "{done:?}");
    }
    // What is paused is resumed although it is gone.
    let without = Targets::default();
    let resumed = switch(&mut conn, &without, PauseSwitch::Resume, Scope::Chain, "anvil", "jo", "test").await;
    assert!(resumed.unwrap().is_changed);
    let paused = switch(&mut conn, &targets, PauseSwitch::Pause, Scope::Partner, "acme", "jo", "test").await;
    assert_eq!(paused.unwrap().target, harness.tenant.partner_id);
}
