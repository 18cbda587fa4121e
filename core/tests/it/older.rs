//! Orders of the older surface and several workers.

use chrono::Utc;
use dvp_core::engine::SubmitCommand;
use dvp_core::legacy::{
    API_KEY_DISABLED, LegacyConstraints, LegacyPair, LegacyRequest, Strategy, beginning, turns,
};
use dvp_core::liquidity::Liquidity;
use dvp_domain::intent::Side;
use dvp_domain::money::Minor;
use dvp_store::orders::legacy::NewLegacyIntent;
use dvp_store::partners;

use crate::scenes::{self, engines};
use crate::scenes::{key_of, registry};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order_for};
use dvp_testing::wait::wait_for;

/// Keeps a scheduled order of 100 USD for EUR, whose time has come.
async fn keep_scheduled(harness: &Harness) {
    let strategy = Strategy::Scheduled;
    let request = LegacyRequest {
        pair: LegacyPair { source: "USD".into(), target: "EUR".into() },
        side: Side::Sell,
        amount: "100.00".into(),
        amount_minor: Minor::new(10_000),
        strategy,
        constraints: LegacyConstraints {
            max_slippage_bps: 100,
            max_fee_bps: 100,
            settlement_pref: "auto".into(),
            ttl_ms: 3_600_000,
        },
    };
    let now = Utc::now();
    let (stage, _, expires_at) = beginning(strategy, now, 3_600_000);
    let new = NewLegacyIntent {
        tenant: harness.tenant.clone(),
        intent_id: "older".into(),
        request: serde_json::to_value(request).unwrap(),
        source: "USD".into(),
        target: "EUR".into(),
        strategy: strategy.as_str(),
        client_ref: None,
        account: "bene_acme:dest_eur".into(),
        stage,
        created_at: now,
        expires_at,
        run_at: now,
    };
    let key = key_of(&harness.tenant, uuid::Uuid::new_v4(), "/v1/intents");
    harness.engine.keep_legacy_intent(new, key).await.unwrap();
}

async fn due_again(harness: &Harness) {
    let due = "update legacy_intent set run_at = now(), lease_until = null";
    sqlx::query(due).execute(harness.pool()).await.unwrap();
}

async fn stage(harness: &Harness) -> String {
    let row: (String,) =
        sqlx::query_as("select stage from legacy_intent").fetch_one(harness.pool()).await.unwrap();
    row.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_outlasts_its_lease_executes_nothing_once_another_worker_has_decided() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    keep_scheduled(&harness).await;
    let [slow, fast] = engines(&harness, 2).try_into().ok().unwrap();
    let without_offers = harness.engine_with(Liquidity::configured(&registry(), []));

    // The first worker's writer waits for a balance with an order of somebody else, and the turn's intent behind it.
    let mut held = harness.pool().begin().await.unwrap();
    sqlx::query("select from account_balance for update").execute(&mut *held).await.unwrap();
    let request = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "1" });
    let command = SubmitCommand { tenant: harness.tenant.clone(), request, idempotency: None, fix: None };
    let ahead = tokio::spawn({
        let engine = slow.clone();
        async move { engine.submit(command).await }
    });
    wait_for("the writer at the lock", || async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                           and wait_event_type = 'Lock'";
        (harness.count(waiting).await > 0).then_some(())
    })
    .await;
    let first = tokio::spawn(async move { turns(&slow).await });
    wait_for("the first turn's intent", || async { (stage(&harness).await == "submitting").then_some(()) })
        .await;

    // Its lease ends. A second worker sees no offer, and lets the order wait for its next window.
    due_again(&harness).await;
    assert_eq!(turns(&without_offers).await.unwrap(), 1);
    assert_eq!(stage(&harness).await, "queued");

    held.rollback().await.unwrap();
    ahead.await.unwrap().unwrap();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(stage(&harness).await, "queued");

    // The next window executes it, for the first time.
    due_again(&harness).await;
    assert_eq!(turns(&fast).await.unwrap(), 1);
    assert_eq!(stage(&harness).await, "submitted");
    let executions = "select count(*) from intent where intent_id like 'older%' and reference is not null";
    assert_eq!(harness.count(executions).await, 1);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_waits_is_rejected_once_its_partner_is_disabled() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    keep_scheduled(&harness).await;
    let mut tx = harness.pool().begin().await.unwrap();
    let partner = &harness.tenant.partner_id;
    assert!(partners::switch_partner(&mut tx, partner, false, "jo", "a test").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(turns(&harness.engine).await.unwrap(), 1);
    let order: (String, String) =
        sqlx::query_as("select stage, code from legacy_intent").fetch_one(harness.pool()).await.unwrap();
    assert_eq!(order, ("rejected".to_owned(), API_KEY_DISABLED.to_owned()));
    assert_eq!(harness.count("select count(*) from intent").await, 0);
}
