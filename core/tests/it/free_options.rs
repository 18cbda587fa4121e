//! What an accepted order or a firm quote is worth to a taker that never means to pay, and what it costs: too many of them,
//! and the next ones are refused for a while. Others are not.

use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use dvp_core::context::now;
use dvp_core::engine::{CancelOutcome, Engine};
use dvp_core::screening::{ListConfig, Screening};
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::abandonment::{CoolDown, CoolDownRules, CoolDownScope};
use dvp_domain::intent::IntentRequest;
use dvp_domain::screening::ScreeningResult;
use dvp_store::orders::abandonments;
use dvp_store::orders::intents::Tenant;
use dvp_testing::Harness;
use dvp_testing::chain::failed;
use dvp_testing::orders::{self, Terms, order_at, order_by, order_for};

use crate::quote_holds::{quote, with_quote};
use crate::scenes;
use crate::screening::{held, work};

const RULES: CoolDownRules = CoolDownRules {
    window_secs: 3600,
    orders_of_wallet: 5,
    orders_of_partner: 50,
    orders_share_bps: 1_000,
    quotes_share_bps: 1_000,
};

fn of(wallet: &PrivateKeySigner, nonce: u128) -> IntentRequest {
    order_by(wallet, nonce, &Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" })
}

async fn submit(engine: &Engine, tenant: &Tenant, request: IntentRequest) -> Result<String, CoolDown> {
    match orders::submit(engine, tenant, request).await.unwrap() {
        Outcome::Accepted(accepted) => Ok(accepted.reference),
        Outcome::Refused(Refusal::CoolingDown(cool_down)) => Err(cool_down),
        other => panic!("{other:?}"),
    }
}

/// The chain finds the wallet empty.
async fn empty(harness: &Harness, reference: &str, code: &str) {
    harness.wait_for_state(reference, "locking").await;
    let (entity, _) = harness.command(reference, "create").await;
    harness.report_fact(&entity, &failed("create", code)).await;
    harness.wait_for_state(reference, "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_is_emptied_after_each_acceptance_cools_down() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let (engine, acme) = (&harness.engine, &harness.tenant);
    let wallet = PrivateKeySigner::random();
    for round in 0..RULES.orders_of_wallet {
        let reference = submit(engine, acme, of(&wallet, 0)).await.unwrap();
        let code = ["insufficient_funds", "permit_nonce_used", "permit_refused"][round as usize % 3];
        empty(&harness, &reference, code).await;
    }
    let refused = submit(engine, acme, of(&wallet, 0)).await.unwrap_err();
    assert_eq!(refused.scope, CoolDownScope::Wallet);
    assert!((3_590..=3_600).contains(&refused.retry_after_secs), "{refused:?}");
    assert!(refused.until > now());
    // The same wallet through another partner and another process; no other wallet.
    let other = harness.other_tenant().await;
    let engines = [harness.engine.clone(), harness.another_engine()];
    for (engine, tenant) in engines.iter().zip([&other, acme]) {
        assert_eq!(submit(engine, tenant, of(&wallet, 0)).await.unwrap_err().scope, CoolDownScope::Wallet);
    }
    submit(engine, acme, of(&PrivateKeySigner::random(), 0)).await.unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let listed = abandonments::list_cooling(&mut conn, 10).await.unwrap();
    let listed: Vec<_> =
        listed.iter().map(|row| (row.scope.as_str(), row.subject.as_str(), row.orders)).collect();
    assert_eq!(listed, [("wallet", wallet.address().to_string().to_lowercase().as_str(), 5)]);
    // A while later its orders are accepted again.
    harness.run("update cool_down set until = now() - interval '1 second'").await;
    submit(engine, acme, of(&wallet, 0)).await.unwrap();
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_with_many_wallets_cools_down_and_a_busy_one_does_not() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let (engine, acme) = (&harness.engine, &harness.tenant);
    // As many as are not too many, each of its own wallet.
    let earlier = "insert into abandonment (reference, partner_id, wallet, kind, at) \
                   select $1 || n, $1, '0x' || n, 'unfunded', clock_timestamp() - interval '1 minute' * (n % 50) \
                   from generate_series(1, $2) n";
    let other = harness.other_tenant().await;
    for tenant in [acme, &other] {
        sqlx::query(earlier).bind(&tenant.partner_id).bind(49).execute(harness.pool()).await.unwrap();
    }
    let last = submit(engine, acme, of(&PrivateKeySigner::random(), 0)).await.unwrap();
    empty(&harness, &last, "insufficient_funds").await;
    let refused = submit(engine, acme, of(&PrivateKeySigner::random(), 0)).await.unwrap_err();
    assert_eq!(refused.scope, CoolDownScope::Partner);
    // Until the oldest leaves the sliding time.
    assert!((550..=3_600).contains(&refused.retry_after_secs), "{refused:?}");
    // Also orders of money.
    harness.deposit("USD", 1_000_000).await;
    harness.fund("north", "EUR", 1_000_000).await;
    let money = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
    assert_eq!(submit(engine, acme, money).await.unwrap_err().scope, CoolDownScope::Partner);
    // Another one has as many, of ten times as many orders.
    let accepted = "insert into execution (reference, partner_id, livemode, intent_id, client_reference, entity, terms, \
                                           state_name, state, last_sequence, accepted_at, version, terminal_at) \
                    select 'exe_' || n, $2, livemode, 'of ' || n, null, sha256(n::text::bytea), terms, state_name, state, \
                           last_sequence, accepted_at, version, clock_timestamp() \
                    from execution, generate_series(1, 500) n where reference = $1";
    sqlx::query(accepted).bind(&last).bind(&other.partner_id).execute(harness.pool()).await.unwrap();
    let last = submit(engine, &other, of(&PrivateKeySigner::random(), 0)).await.unwrap();
    empty(&harness, &last, "insufficient_funds").await;
    submit(engine, &other, of(&PrivateKeySigner::random(), 0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancels_of_held_orders_are_counted_and_others_are_not() {
    let harness = scenes::harness().await;
    let list = tempfile::NamedTempFile::new().unwrap();
    let wallet = PrivateKeySigner::random();
    std::fs::write(list.path(), format!("account: {}\n", wallet.address())).unwrap();
    let config = ListConfig { file: list.path().to_owned(), on_match: ScreeningResult::Hold };
    let engine = harness.engine_under(Screening::new(Some(config), None, Duration::from_secs(3600)).unwrap());
    let acme = &harness.tenant;
    // Before it was screened.
    let reference = submit(&engine, acme, of(&wallet, 0)).await.unwrap();
    assert_eq!(engine.cancel(acme, &reference, None).await.unwrap(), CancelOutcome::Cancelled);
    assert_eq!(harness.count("select count(*) from abandonment").await, 0);
    work(&harness, &engine);
    for _ in 0..RULES.orders_of_wallet {
        let reference = submit(&engine, acme, of(&wallet, 0)).await.unwrap();
        held(&harness, &reference).await;
        assert_eq!(engine.cancel(acme, &reference, None).await.unwrap(), CancelOutcome::Cancelled);
    }
    let refused = submit(&engine, acme, of(&wallet, 0)).await.unwrap_err();
    assert_eq!(refused.scope, CoolDownScope::Wallet);
    assert_eq!(harness.count("select count(*) from abandonment where kind = 'cancelled_held'").await, 5);
    submit(&engine, acme, of(&PrivateKeySigner::random(), 0)).await.unwrap();
}

/// The firm quotes of a partner that renews them without a pause for half of what a provider has, until one is refused.
async fn renewals(harness: &Harness, tenant: &Tenant) -> (u32, CoolDown) {
    let mut issued = 0;
    loop {
        match quote(&harness.engine, tenant).await {
            Ok(terms) => {
                issued += 1;
                let left = terms.valid_until.millis() - harness.clock().now().millis();
                harness.advance(Duration::from_millis(left.unsigned_abs()) + Duration::from_secs(3)).await;
            }
            Err(Refusal::CoolingDown(cool_down)) => return (issued, cool_down),
            Err(other) => panic!("{other:?} after {issued}"),
        }
        assert!(issued < 1_000, "half of the provider for ever");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn firm_quotes_that_are_renewed_and_never_used_are_refused_after_a_while() {
    const ONE: u128 = 9_985;
    let start = now().plus_millis(86_400_000);
    let harness = Harness::in_virtual_time(scenes::market().with_funds("north", "USD", ONE * 2), start).await;
    let (engine, acme) = (&harness.engine, &harness.tenant);
    let other = harness.other_tenant().await;
    let began = harness.clock().now();
    let (issued, refused) = renewals(&harness, acme).await;
    let held_for = harness.clock().now().millis() - began.millis();
    // A tenth of it on average over the hour.
    assert!(issued > 10 && held_for < 20 * 60_000, "{issued} quotes in {held_for} ms");
    assert_eq!(refused.scope, CoolDownScope::Quotes);
    assert!(quote(engine, &other).await.is_ok(), "another partner");
    let terms = Terms { input: ("USDC", 50_000_000), output: "USD", account: "000123456789" };
    let unquoted = order_at(harness.clock().now(), &PrivateKeySigner::random(), 0, &terms);
    let unquoted = submit(engine, acme, unquoted).await.unwrap();
    assert_eq!(engine.cancel(acme, &unquoted, None).await.unwrap(), CancelOutcome::Cancelled);
    let mut conn = harness.pool().acquire().await.unwrap();
    let listed = abandonments::list_cooling(&mut conn, 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|row| (row.scope.as_str(), row.provider_id.as_str())).collect();
    assert_eq!(listed, [("quotes", "north")]);
    drop(conn);
    // Quotes are given again at the time that was named.
    harness.advance(Duration::from_secs(refused.retry_after_secs - 2)).await;
    let still = quote(engine, acme).await.unwrap_err();
    assert!(matches!(still, Refusal::CoolingDown(_)), "{still:?}");
    harness.advance(Duration::from_secs(3)).await;
    quote(engine, acme).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn firm_quotes_that_are_used_are_not_counted() {
    let harness = scenes::harness_with(9_985 * 400).await;
    let (engine, acme) = (&harness.engine, &harness.tenant);
    for _ in 0..100 {
        let terms = quote(engine, acme).await.unwrap();
        submit(engine, acme, with_quote(&terms)).await.unwrap();
    }
    assert_eq!(harness.count("select sum(held)::int8 from unused_hold").await, 0);
    harness.check_books().await;
}
