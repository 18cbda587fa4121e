//! What operators pause stops new orders and legs that were never called, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::pause::Scope;
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::pauses::{self, Decided};

use crate::house::{House, order};

const BY: Decided<'_> = Decided { operator: "jo", reason: "to be sure" };

async fn pause(house: &House, scope: Scope, target: &str) {
    let mut conn = house.pool().acquire().await.unwrap();
    assert!(pauses::insert(&mut conn, scope, target, BY).await.unwrap());
    assert!(!pauses::insert(&mut conn, scope, target, BY).await.unwrap(), "it is paused already");
}

async fn resume(house: &House, scope: Scope, target: &str) {
    let mut conn = house.pool().acquire().await.unwrap();
    assert!(pauses::delete(&mut conn, scope, target, BY).await.unwrap());
    assert!(!pauses::delete(&mut conn, scope, target, BY).await.unwrap(), "it goes on already");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_refuses_the_next_order_and_reserves_nothing() {
    let house = House::new().await;
    let partner = house.tenant.partner_id.clone();
    for (scope, target) in [
        (Scope::Everything, ""),
        (Scope::Partner, partner.as_str()),
        (Scope::Pair, "USDC/USD"),
        (Scope::Provider, "north"),
        (Scope::Chain, "anvil"),
    ] {
        pause(&house, scope, target).await;
        // At once: no process has had time to look.
        match house.submit(order("000123450000")).await {
            Outcome::Rejected { reason: Reason::NoLiquidity, .. } => {}
            other => panic!("{scope:?} {target}: {other:?}"),
        }
        resume(&house, scope, target).await;
    }
    let reserved = "select count(*) from account_balance where reserved <> 0";
    assert_eq!(house.count(reserved).await, 0);
    for (scope, target) in [
        (Scope::Partner, "ptn_other"),
        (Scope::Pair, "USD/USDC"),
        (Scope::Provider, "south"),
        (Scope::Chain, "other"),
        (Scope::Rail, "offramp"),
    ] {
        pause(&house, scope, target).await;
        house.accept(order("000123450000")).await;
    }
    let changes = "select count(*) from pause_change";
    assert_eq!(house.count(changes).await, 15);
    assert!(sqlx::query("delete from pause_change").execute(house.pool()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn quotes_offer_nothing_that_is_paused() {
    let house = House::new().await;
    let liquidity = &house.engine.context().liquidity;
    let offers = || liquidity.snapshot().pair("USDC", "USD").map_or(0, |pair| pair.offers.len());
    let before = offers();
    assert!(before > 0);
    pause(&house, Scope::Provider, "north").await;
    liquidity.load_pauses(house.pool()).await.unwrap();
    assert!(offers() < before, "the provider's offer is gone");
    resume(&house, Scope::Provider, "north").await;
    liquidity.load_pauses(house.pool()).await.unwrap();
    assert_eq!(offers(), before);
}

async fn calls(house: &House, reference: &str, leg: &str) -> i64 {
    let (calls,): (i64,) = sqlx::query_as(
        "select coalesce(sum(r.calls), 0)::bigint from simulated_rail r where r.leg = $1 and r.reference = \
         encode(sha256(convert_to($2 || ':' || $1, 'UTF8')), 'hex')",
    )
    .bind(leg)
    .bind(reference)
    .fetch_one(house.pool())
    .await
    .unwrap();
    calls
}

async fn wait_until_paused(house: &House, reference: &str) {
    house
        .wait_for("a paused leg", || async {
            let heard: Option<(Option<String>,)> =
                sqlx::query_as("select heard from effect where reference = $1")
                    .bind(reference)
                    .fetch_optional(house.pool())
                    .await
                    .unwrap();
            heard.and_then(|(heard,)| heard).filter(|heard| heard == "paused")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_payout_commits_nobody_and_a_called_one_is_followed() {
    let house = House::new().await;
    let rails = Arc::new(SimulatedRails::new(house.pool().clone()));
    house.work_with(rails.clone(), rails);
    // Called before the pause: it passes through in_progress for two seconds.
    let called = house.accept(order("000123450001")).await.reference;
    house.play_until(&called, |kind| kind == "fill").await;
    house
        .wait_for("the call", || async { (calls(&house, &called, "payout").await == 1).then_some(()) })
        .await;
    pause(&house, Scope::Rail, "payout").await;
    let later = house.accept(order("000123450000")).await.reference;
    house.play_until(&later, |kind| kind == "create").await;
    wait_until_paused(&house, &later).await;
    house.play_until(&called, |kind| kind == "settle").await;
    house.wait_for_state(&called, "completed").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((calls(&house, &later, "offramp").await, calls(&house, &later, "payout").await), (0, 0));
    let (fills,): (i64,) =
        sqlx::query_as("select count(*) from chain_command where reference = $1 and kind = 'fill'")
            .bind(&later)
            .fetch_one(house.pool())
            .await
            .unwrap();
    assert_eq!(fills, 0, "committed to a payout that may not begin");
    resume(&house, Scope::Rail, "payout").await;
    house.play_until(&later, |kind| kind == "settle").await;
    house.wait_for_state(&later, "completed").await;
    house.check_books().await;
}
