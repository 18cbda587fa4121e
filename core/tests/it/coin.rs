//! Orders of a chain's coin reserve nothing until their deposit is there: then they are decided at the market.

use std::time::Duration;

use dvp_core::engine::CancelOutcome;
use dvp_core::ranges;
use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_testing::chain::failed;
use dvp_testing::market::{Price, pair};
use dvp_testing::orders::{self, Terms, order, order_for};
use dvp_testing::{Harness, Market};

use crate::guard::failure_code;
use crate::quote_holds;
use crate::scenes::priced;

pub(crate) const COIN: u128 = 1_000_000_000_000_000_000;

fn of_north() -> Owner {
    Owner::Provider("north".into())
}

async fn scene(usd: u128) -> (Harness, Price) {
    let price = Price::of("ETH", "USD", "3000");
    let pairs = vec![pair("ETH", "USD", "3000"), pair("USDC", "USD", "1")];
    let market = Market::new(pairs).with_funds("north", "USD", usd);
    let liquidity = priced(market.registry.clone(), &[&price, &Price::of("USDC", "USD", "1")]);
    let harness = Harness::with_liquidity(market, |_| liquidity).await;
    harness.start_workers();
    tokio::spawn(ranges::run(harness.engine.clone(), harness.stopped()));
    (harness, price)
}

/// An order of the coin for dollars.
fn of_coin(bounds: Bounds) -> IntentRequest {
    let of_token = order_for(&Terms { input: ("USDC", 1_000_000), output: "USD", account: "000123456789" });
    orders::of_coin(of_token, bounds)
}

/// One coin for at least this many cents.
fn sell(min_output: u128) -> IntentRequest {
    of_coin(Bounds::ExactInput { input: Minor::new(COIN), min_output: Minor::new(min_output) })
}

/// The user has deposited so much in all, as deep as it has to be.
pub(crate) async fn deposit(harness: &Harness, reference: &str, total: u128) {
    let sql = "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number) \
         values (31337, 100, sha256('h'), 90, 100) on conflict do nothing";
    harness.run(sql).await;
    sqlx::query(
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                entity, seq, deposit) \
         select 31337, sha256('b'), l.n, 50, now(), sha256('t'), decode(repeat('dd', 20), 'hex'), 'Deposited', e.entity, \
                l.n + 1, jsonb_build_object('depositor', lower(e.terms #>> '{request,user}'), 'total', $2) \
         from execution e, (select count(*) as n from chain_log) l where e.reference = $1",
    )
    .bind(reference)
    .bind(total.to_string())
    .execute(harness.pool())
    .await
    .unwrap();
}

async fn reserved(harness: &Harness) -> u128 {
    harness.balance(&of_north(), "USD").await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_without_a_deposit_keep_nothing_from_others() {
    // As much as two of them would take.
    let (harness, _) = scene(620_000).await;
    let mut references = Vec::new();
    for _ in 0..5 {
        references.push(harness.accept(sell(290_000)).await.reference);
    }
    assert_eq!(reserved(&harness).await, 0);
    harness.accept(order("000123456789")).await;
    let taken = reserved(&harness).await;
    assert!(taken > 0);
    for reference in &references {
        harness.wait_for_state(reference, "resting").await;
    }
    assert_eq!(
        harness
            .count("select count(*) from chain_command where kind = 'create' and deposit_until is not null")
            .await,
        0
    );
    // They can be cancelled, and leave nothing.
    let cancelled = harness.engine.cancel(&harness.tenant, &references[0], None).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    assert_eq!(harness.count("select count(*) from deposit_wait").await, 4);
    // Those whose deposits come first get what is left.
    for reference in &references[1..3] {
        deposit(&harness, reference, COIN).await;
        harness.wait_for_state(reference, "locking").await;
    }
    assert!(reserved(&harness).await > taken + 2 * 290_000);
    let commands = "select count(*) from chain_command where deposit_until is not null";
    assert_eq!(harness.count(commands).await, 2);
    deposit(&harness, &references[3], COIN).await;
    harness.wait_for_state(&references[3], "failed").await;
    assert_eq!(failure_code(&harness, &references[3]).await, "no_liquidity");
    assert_eq!(harness.count("select count(*) from abandonment").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_filled_at_the_price_when_its_deposit_is_there() {
    let (harness, price) = scene(10_000_000).await;
    let lower = harness.accept(sell(200_000)).await.reference;
    let refused = harness.accept(sell(290_000)).await.reference;
    let quick = harness.submit(sell(310_000)).await;
    assert!(matches!(quick, Outcome::Rejected { reason: Reason::BelowMinimumOutput, .. }), "{quick:?}");
    price.set(&harness.engine, "2500");
    // Too little, by a stranger's or in part, is waited for.
    deposit(&harness, &lower, COIN - 1).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    harness.wait_for_state(&lower, "resting").await;
    for reference in [&lower, &refused] {
        deposit(&harness, reference, COIN).await;
    }
    harness.wait_for_state(&lower, "locking").await;
    let sql = "select terms #>> '{output,amount}' from execution where reference = $1";
    let output: (String,) = harness.row_of(sql, &lower).await;
    let output: u128 = output.0.parse().unwrap();
    assert!((240_000..250_000).contains(&output), "{output}");
    harness.wait_for_state(&refused, "failed").await;
    assert_eq!(failure_code(&harness, &refused).await, "below_minimum_output");
    assert_eq!(reserved(&harness).await, output + 50, "with the payout's fee");
    assert_eq!(harness.count("select count(*) from deposit_wait").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_output_takes_what_it_costs_when_the_deposit_is_there() {
    let (harness, price) = scene(10_000_000).await;
    let bounds = Bounds::ExactOutput { output: Minor::new(100_000), max_input: Minor::new(COIN) };
    let reference = harness.accept(of_coin(bounds)).await.reference;
    // A third of a coin is enough at first, and not any more.
    price.set(&harness.engine, "2000");
    deposit(&harness, &reference, COIN / 5 * 2).await;
    harness.wait_for_count("select count(*) from deposit_wait where tried is not null", 1).await;
    harness.wait_for_state(&reference, "resting").await;
    deposit(&harness, &reference, COIN / 5 * 3).await;
    harness.wait_for_state(&reference, "locking").await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposit_that_is_taken_back_after_the_fill_is_counted() {
    let (harness, _) = scene(10_000_000).await;
    let reference = harness.accept(sell(290_000)).await.reference;
    deposit(&harness, &reference, COIN).await;
    harness.wait_for_state(&reference, "locking").await;
    let (entity, _) = harness.command(&reference, "create").await;
    harness.report_fact(&entity, &failed("create", "lock_rejected")).await;
    harness.wait_for_state(&reference, "failed").await;
    assert_eq!(harness.count("select count(*) from abandonment where kind = 'unfunded'").await, 1);
    assert_eq!(reserved(&harness).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firm_quote_holds_its_output_for_the_deposit_until_it_lapses() {
    let (harness, price) = scene(10_000_000).await;
    let (engine, acme) = (&harness.engine, &harness.tenant);
    let quoted = async || {
        let terms = quote_holds::quote_of(engine, acme, "ETH", COIN).await.unwrap();
        let request =
            IntentRequest { quote_id: Some(terms.quote_id.to_string()), ..sell(terms.priced.output.get()) };
        (terms, request)
    };
    let (terms, request) = quoted().await;
    let accepted = harness.accept(request.clone()).await;
    assert_eq!(accepted.plan.path.expires_at, terms.valid_until);
    assert_eq!((reserved(&harness).await, harness.count("select count(*) from quote_hold").await), (0, 1));
    // It is used once.
    let again =
        harness.submit(IntentRequest { intent_id: "again".into(), client_reference: None, ..request }).await;
    assert!(matches!(again, Outcome::Rejected { reason: Reason::QuoteAlreadyUsed, .. }), "{again:?}");
    price.set(&harness.engine, "2000");
    deposit(&harness, &accepted.reference, COIN).await;
    harness.wait_for_state(&accepted.reference, "locking").await;
    assert_eq!(reserved(&harness).await, terms.priced.gross_output.get(), "at its price");
    assert_eq!(harness.count("select count(*) from quote_hold").await, 0);
    // Another one lapses without its deposit.
    let (_, request) = quoted().await;
    let reference = harness.accept(request).await.reference;
    harness.wait_for_state(&reference, "expired").await;
    assert_eq!(harness.count("select count(*) from unused_hold where held > 0").await, 1);
    harness.check_books().await;
}
