//! Firm quotes hold their output: an issued quote that is used in time is accepted, and no output is promised twice.

use dvp_core::engine::Engine;
use dvp_core::operators::ledger_operations::{LedgerError, request};
use dvp_core::operators::requests::Maker;
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::decision::Reason;
use dvp_domain::intent::{ActorType, Bounds, IntentRequest, Side};
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::quote::{AmountType, FirmRequest, FirmTerms};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::quotes::NewFirmQuote;
use dvp_testing::orders::{self, order};
use futures_util::future::join_all;
use uuid::Uuid;

use crate::scenes::{self, engines, key_of};

/// The output for 100 USDC.
const ONE: u128 = 9_985;

fn north() -> Owner {
    Owner::Provider("north".into())
}

/// Requests a firm quote of 100 USDC and stores it, or says why its output cannot be held.
pub(crate) async fn quote(engine: &Engine, tenant: &Tenant) -> Result<FirmTerms, Refusal> {
    quote_of(engine, tenant, "USDC", 100_000_000).await
}

/// The terms of a firm quote for US dollars.
pub(crate) async fn firm_terms(engine: &Engine, symbol: &str, amount: u128) -> Option<FirmTerms> {
    let registry = &engine.context().registry;
    let requested = FirmRequest {
        input: registry.find(symbol).unwrap(),
        output: registry.find("USD").unwrap(),
        amount: Minor::new(amount),
        amount_type: AmountType::Source,
        side: Side::Sell,
        actor: ActorType::Institution,
    };
    engine.firm_quote(&requested).await.unwrap()
}

/// The same of another asset for US dollars.
pub(crate) async fn quote_of(
    engine: &Engine,
    tenant: &Tenant,
    symbol: &str,
    amount: u128,
) -> Result<FirmTerms, Refusal> {
    let terms = firm_terms(engine, symbol, amount).await.ok_or(Refusal::NotHeld)?;
    let new = NewFirmQuote { tenant: tenant.clone(), request_id: "r".into(), terms: terms.clone() };
    let key = key_of(tenant, Uuid::new_v4(), "/v1/quotes/firm");
    let outcome = engine.keep_firm_quote(new, key).await.unwrap().outcome;
    match outcome {
        Outcome::Written => Ok(terms),
        Outcome::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn with_quote(terms: &FirmTerms) -> IntentRequest {
    IntentRequest {
        quote_id: Some(terms.quote_id.to_string()),
        bounds: Bounds::ExactInput { input: terms.priced.input, min_output: terms.priced.output },
        ..order("000123456789")
    }
}

async fn submit(engine: &Engine, tenant: &Tenant, request: IntentRequest) -> Outcome {
    orders::submit(engine, tenant, request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quotes_hold_is_its_own_until_it_is_used_or_expires() {
    let harness = scenes::harness_with(ONE * 2).await;
    let (engine, acme) = (&harness.engine, harness.tenant.clone());
    let other = harness.other_tenant().await;
    let held = quote(engine, &acme).await.expect("half of the balance");
    assert!(quote(engine, &acme).await.is_err(), "a partner holds half of it at most");
    let second = quote(engine, &other).await.expect("the other half");
    assert!(quote(engine, &other).await.is_err());
    let refused = submit(engine, &acme, order("000123456789")).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    let taken = submit(engine, &acme, with_quote(&held)).await;
    assert!(matches!(taken, Outcome::Accepted(_)), "{taken:?}");
    assert_eq!(harness.balance(&north(), "USD").await, (ONE, ONE));
    assert_eq!(harness.count("select count(*) from quote_hold").await, 1);
    // The end of its validity does not release it while another process's clock may be behind.
    let lapse = "update quote_hold set valid_until = clock_timestamp() - make_interval(secs => $1)";
    sqlx::query(lapse).bind(1.0).execute(harness.pool()).await.unwrap();
    let refused = submit(engine, &acme, order("000123456789")).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    sqlx::query(lapse).bind(5.0).execute(harness.pool()).await.unwrap();
    let taken = submit(engine, &acme, order("000123456789")).await;
    assert!(matches!(taken, Outcome::Accepted(_)), "{taken:?}");
    // Its hold is released, and the output is used otherwise.
    let late = submit(engine, &other, with_quote(&second)).await;
    assert!(matches!(late, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{late:?}");
    assert_eq!(harness.balance(&north(), "USD").await, (0, ONE * 2));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_issued_quote_of_64_takers_is_accepted() {
    const TAKERS: usize = 64;
    let harness = scenes::harness_with(ONE * 2 * 40 + 17).await;
    let engines = engines(&harness, 3);
    let other = harness.other_tenant().await;
    let takers = (0..TAKERS * 2).map(|n| {
        let engine = engines[n % engines.len()].clone();
        let tenant = if n % 2 == 0 { harness.tenant.clone() } else { other.clone() };
        tokio::spawn(async move {
            let Ok(terms) = quote(&engine, &tenant).await else {
                // Without a quote: from the balance without holds.
                return (false, submit(&engine, &tenant, order("000123456789")).await);
            };
            tokio::task::yield_now().await;
            (true, submit(&engine, &tenant, with_quote(&terms)).await)
        })
    });
    let done: Vec<(bool, Outcome)> = join_all(takers).await.into_iter().map(Result::unwrap).collect();
    let issued = done.iter().filter(|(quoted, _)| *quoted).count();
    assert!(issued >= 40, "{issued} quotes were issued");
    for (quoted, outcome) in &done {
        assert!(!quoted || matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    let accepted = done.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Accepted(_))).count();
    assert!(accepted <= 80);
    assert_eq!(harness.count("select count(*) from quote_hold").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_balance_cannot_be_withdrawn() {
    let harness = scenes::harness_with(ONE * 2).await;
    quote(&harness.engine, &harness.tenant).await.unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let withdrawal =
        |amount| Operation::Withdrawal { owner: north(), asset: "USD".into(), amount: Minor::new(amount) };
    let maker = Maker { operator: "jo", reason: "requested", evidence: "wire 17" };
    let more = request(&mut conn, "W-1", &withdrawal(ONE + 1), maker).await;
    assert!(matches!(more, Err(LedgerError::Short(_))), "{more:?}");
    request(&mut conn, "W-2", &withdrawal(ONE), maker).await.unwrap();
}
