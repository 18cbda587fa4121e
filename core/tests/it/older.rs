//! Orders of the legacy API and several workers.

use chrono::Utc;
use dvp_core::engine::Engine;
use dvp_core::legacy::{
    API_KEY_DISABLED, LegacyConstraints, LegacyFigures, LegacyPair, LegacyRequest, LegacyView, Strategy,
    beginning, run_with, turns,
};
use dvp_core::liquidity::Liquidity;
use dvp_domain::intent::Side;
use dvp_domain::money::Minor;
use dvp_store::orders::legacy::NewLegacyIntent;
use dvp_store::partners::registry;

use crate::scenes::{self, engines, key_of, priced, registry};
use dvp_testing::Harness;
use dvp_testing::market::Price;
use dvp_testing::orders::{Terms, order_for, submit};
use dvp_testing::wait::{wait_for, wait_until};

/// Stores an order of 100 USD for EUR that is due.
async fn keep(harness: &Harness, strategy: Strategy) {
    keep_as(harness, strategy, "older").await;
}

/// The same under an id.
pub(crate) async fn keep_as(harness: &Harness, strategy: Strategy, id: &str) {
    let tenant = &harness.tenant;
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
    let created_at = Utc::now();
    let (stage, _, expires_at) = beginning(strategy, created_at, 3_600_000);
    let new = NewLegacyIntent {
        tenant: tenant.clone(),
        intent_id: id.into(),
        request: serde_json::to_value(request).unwrap(),
        source: "USD".into(),
        target: "EUR".into(),
        strategy: strategy.as_str(),
        client_ref: None,
        account: "bene_acme:dest_eur".into(),
        stage,
        created_at,
        expires_at,
        run_at: created_at,
    };
    let key = key_of(tenant, uuid::Uuid::new_v4(), "/v1/intents");
    harness.engine.keep_legacy_intent(new, key).await.unwrap();
}

async fn due_again(harness: &Harness) {
    let due = "update legacy_intent set run_at = now(), claimed_until = null";
    harness.run(due).await;
}

/// Money on both sides, and a price that the test sets.
async fn scene(price: &Price) -> Harness {
    let harness = scenes::harness_over(&[], |_| priced(registry(), &[price])).await;
    harness.deposit("USD", 1_000_000).await;
    harness
}

/// Starts a process, which has looked for orders once.
async fn start(harness: &Harness, engine: &Engine) -> LegacyView {
    let view = LegacyView::default();
    tokio::spawn(run_with(engine.clone(), view.clone(), harness.stopped()));
    wait_until("the first look", || view.figures().queries > 0).await;
    view
}

/// Publishes unchanged prices until they were compared several times. Nothing else was done meanwhile.
async fn nothing_happens(harness: &Harness, view: &LegacyView) {
    let before = view.figures();
    wait_until("comparisons", || {
        harness.engine.context().liquidity.publish();
        view.figures().compared >= before.compared + 5
    })
    .await;
    let after = view.figures();
    assert_eq!(after, LegacyFigures { compared: after.compared, ..before });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_order_causes_no_query_until_the_price_changes() {
    let price = Price::of("USD", "EUR", "0.92");
    let harness = scene(&price).await;
    harness.fund("north", "EUR", 1_000_000).await;
    let view = start(&harness, &harness.engine).await;
    keep(&harness, Strategy::Optimized).await;
    wait_until("its evaluation", || view.figures().evaluated == 1).await;
    nothing_happens(&harness, &view).await;
    // The second half of its lifetime, after a better offer was seen in the first.
    let seen = "update legacy_intent set best_output = 9500, created_at = created_at - interval '40 min', \
                expires_at = expires_at - interval '40 min'";
    harness.run(seen).await;
    price.set(&harness.engine, "0.93");
    wait_until("its second evaluation", || view.figures().evaluated == 2).await;
    nothing_happens(&harness, &view).await;
    assert_eq!(stage(&harness).await, "solving", "less than was seen");
    price.set(&harness.engine, "0.97");
    wait_until("its third evaluation", || view.figures().evaluated == 3).await;
    assert_eq!(stage(&harness).await, "submitted");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_order_is_evaluated_when_a_provider_gets_money_and_after_a_restart() {
    let price = Price::of("USD", "EUR", "0.92");
    let harness = scene(&price).await;
    let view = start(&harness, &harness.engine).await;
    keep(&harness, Strategy::Scheduled).await;
    wait_until("its evaluation", || view.figures().evaluated == 1).await;
    assert_eq!(stage(&harness).await, "queued");
    nothing_happens(&harness, &view).await;
    // A process that starts cannot know what changed before: it evaluates the order at the next epoch.
    let far = "select count(*) from legacy_intent where run_at > now() + interval '11 s'";
    assert_eq!(harness.count(far).await, 1);
    start(&harness, &harness.another_engine()).await;
    harness.wait_for_count(far, 0).await;
    harness.fund("north", "EUR", 1_000_000).await;
    wait_for("its execution", || async { (stage(&harness).await == "submitted").then_some(()) }).await;
    harness.check_books().await;
}

async fn stage(harness: &Harness) -> String {
    let row: (String,) = harness.row("select stage from legacy_intent").await;
    row.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_beyond_its_claim_executes_nothing_after_another_worker_decided() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    keep(&harness, Strategy::Scheduled).await;
    let [slow, fast] = engines(&harness, 2).try_into().ok().unwrap();
    let without_offers = harness.engine_with(Liquidity::configured(&registry(), []));

    // The first worker's writer waits for a balance with another order, and the turn's intent behind it.
    let mut held = harness.pool().begin().await.unwrap();
    sqlx::query("select from account_balance for update").execute(&mut *held).await.unwrap();
    let request = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "1" });
    let ahead = tokio::spawn({
        let (engine, tenant) = (slow.clone(), harness.tenant.clone());
        async move { submit(&engine, &tenant, request).await }
    });
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                       and wait_event_type = 'Lock'";
    harness.wait_for_count(waiting, 1).await;
    let first = tokio::spawn(async move { turns(&slow).await });
    wait_for("the first turn's intent", || async { (stage(&harness).await == "submitting").then_some(()) })
        .await;

    // Its claim ends. A second worker sees no offer, and postpones the order to its next window.
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
async fn a_waiting_order_is_rejected_once_its_partner_is_disabled() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    keep(&harness, Strategy::Scheduled).await;
    let mut tx = harness.pool().begin().await.unwrap();
    let partner = &harness.tenant.partner_id;
    assert!(registry::switch_partner(&mut tx, partner, false, "jo", "a test").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(turns(&harness.engine).await.unwrap(), 1);
    let order: (String, String) = harness.row("select stage, code from legacy_intent").await;
    assert_eq!(order, ("rejected".to_owned(), API_KEY_DISABLED.to_owned()));
    assert_eq!(harness.count("select count(*) from intent").await, 0);
}
