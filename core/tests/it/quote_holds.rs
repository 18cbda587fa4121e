//! Firm quotes hold their output: an issued quote that is used in time is accepted, and no output is promised twice.

use std::sync::Arc;

use dvp_core::engine::{Engine, SubmitCommand};
use dvp_core::ledger_operations::{LedgerError, request};
use dvp_core::requests::Maker;
use dvp_core::writer::{IdempotencyPart, Outcome, Refusal};
use dvp_domain::decision::Reason;
use dvp_domain::intent::{ActorType, Bounds, IntentRequest, Side};
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::quote::{AmountType, FirmRequest, FirmTerms};
use dvp_store::orders::idempotency::{RecordId, StoredResponse};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::quotes::NewFirmQuote;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use futures_util::future::join_all;
use uuid::Uuid;

use crate::scenes::{self, engines};

/// The output for 100 USDC.
const ONE: u128 = 9_985;

fn north() -> Owner {
    Owner::Provider("north".into())
}

/// Requests a firm quote of 100 USDC and stores it; `None` where its output cannot be held.
pub(crate) async fn quote(engine: &Engine, tenant: &Tenant) -> Option<FirmTerms> {
    let registry = &engine.context().registry;
    let requested = FirmRequest {
        input: registry.find("USDC").unwrap(),
        output: registry.find("USD").unwrap(),
        amount: Minor::new(100_000_000),
        amount_type: AmountType::Source,
        side: Side::Sell,
        actor: ActorType::Institution,
    };
    let terms = engine.firm_quote(&requested).await.unwrap()?;
    let new = NewFirmQuote { tenant: tenant.clone(), request_id: "r".into(), terms: terms.clone() };
    let id = RecordId {
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        method: "POST".into(),
        path: "/v1/quotes/firm".into(),
        key: Uuid::new_v4(),
    };
    let render = Arc::new(|outcome: &Outcome| StoredResponse { status: 200, body: format!("{outcome:?}") });
    let key = IdempotencyPart { id, fingerprint: [9; 32], render };
    let outcome = engine.keep_firm_quote(new, key).await.unwrap().outcome;
    match outcome {
        Outcome::Written => Some(terms),
        Outcome::Refused(Refusal::NotHeld) => None,
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
    let command = SubmitCommand { tenant: tenant.clone(), request, idempotency: None, fix: None };
    engine.submit(command).await.unwrap().outcome
}

async fn other_partner(harness: &Harness) -> Tenant {
    sqlx::query("insert into partner (id, name, tier, limit_per_minute) values ('ptn_other', 'other', 'standard', 100)")
        .execute(harness.pool())
        .await
        .unwrap();
    Tenant { partner_id: "ptn_other".into(), livemode: harness.tenant.livemode }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quotes_hold_is_its_own_until_it_is_used_or_expires() {
    let harness = scenes::harness_with(ONE * 2).await;
    let (engine, acme) = (&harness.engine, harness.tenant.clone());
    let other = other_partner(&harness).await;
    let held = quote(engine, &acme).await.expect("half of the balance");
    assert!(quote(engine, &acme).await.is_none(), "a partner holds half of it at most");
    let second = quote(engine, &other).await.expect("the other half");
    assert!(quote(engine, &other).await.is_none());
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
    let other = other_partner(&harness).await;
    let takers = (0..TAKERS * 2).map(|n| {
        let engine = engines[n % engines.len()].clone();
        let tenant = if n % 2 == 0 { harness.tenant.clone() } else { other.clone() };
        tokio::spawn(async move {
            let Some(terms) = quote(&engine, &tenant).await else {
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
