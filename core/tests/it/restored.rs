//! The database goes back to an earlier moment while chain and bank have gone on: the short form of `drill restore`, and
//! single orders.

use std::time::Duration;

use dvp_core::chain::expected::{difference, goal, other_times};
use dvp_core::context::now;
use dvp_core::engine::{CancelOutcome, KNOWN};
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_core::ranges;
use dvp_domain::intent::Bounds;
use dvp_domain::money::Minor;
use dvp_domain::screening::ScreeningResult;
use dvp_store::workers::{Worker, set_aside};
use dvp_testing::failing::assert_alarm;
use dvp_testing::market::{Price, pair};
use dvp_testing::orders::{Terms, of_coin, order, order_for, ranged};
use dvp_testing::restore::{RestorePlan, copy, run};
use dvp_testing::wait::wait_for;
use dvp_testing::{Harness, Market};
use serde_json::json;
use sqlx::types::Json;
use tokio::sync::watch;

use crate::coin::{COIN, deposit};
use crate::scenes::{self, priced};
use crate::screening::{NEVER, SOON, Service, held, work};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_every_order_ends_and_nothing_is_paid_twice() {
    let report = run(RestorePlan { seed: 1, orders: 12 }).await;
    println!("{report:?}");
    assert!(report.payments > 0 && report.paid_on_chain > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_rests_again_is_filled_as_its_chain_has_it_whatever_the_market_gives() {
    let prices = [Price::of("USDC", "USD", "1"), Price::of("ETH", "USD", "3000")];
    let pairs = vec![pair("USDC", "USD", "1"), pair("ETH", "USD", "3000")];
    let market = Market::new(pairs).with_funds("north", "USD", 10_000_000);
    let registry = market.registry.clone();
    let harness = Harness::with_liquidity(market, |_| priced(registry, &prices.each_ref())).await;
    let sold = Bounds::ExactInput { input: Minor::new(COIN), min_output: Minor::new(200_000) };
    let mut references = Vec::new();
    for request in [ranged(order("000123456789"), 9_940, 9_500, 60_000), of_coin(order("000123456789"), sold)]
    {
        references.push(harness.accept(request).await.reference);
    }
    deposit(&harness, &references[1], COIN).await;
    copy::save(harness.pool()).await;
    harness.start_workers();
    let before = watch::Sender::new(false);
    let running = tokio::spawn(ranges::run(harness.engine.clone(), before.subscribe()));
    let mut locks = Vec::new();
    for reference in &references {
        let (entity, create) = harness.command(reference, "create").await;
        locks.push((entity, goal(&create)));
    }
    running.abort();
    let _ = running.await;
    copy::restore(harness.pool()).await;
    for (n, (entity, lock)) in locks.iter().enumerate() {
        sqlx::query(
            "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                    entity, seq, fact) \
             values (31337, sha256('l'), $1, 60, now(), sha256('t'), decode(repeat('ee', 20), 'hex'), 'Created', $2, $1 + 1, $3)",
        )
        .bind(i64::try_from(n).unwrap())
        .bind(entity)
        .bind(Json(lock))
        .execute(harness.pool())
        .await
        .unwrap();
    }
    for (reference, (price, other)) in references.iter().zip(prices.iter().zip(["1.05", "3100"])) {
        price.set(&harness.engine, other);
        harness.wait_for_state(reference, "resting").await;
        let cancelled = harness.engine.cancel(&harness.tenant, reference, None).await.unwrap();
        assert_eq!(cancelled, CancelOutcome::TooLate);
    }
    let engine = harness.engine_with(priced(harness.market.registry.clone(), &prices.each_ref()));
    tokio::spawn(ranges::run(engine, harness.stopped()));
    for (reference, (_, lock)) in references.iter().zip(&locks) {
        let (_, again) = harness.command(reference, "create").await;
        let is_same = difference(lock, std::slice::from_ref(&again)).is_none();
        assert!(is_same || other_times(lock, std::slice::from_ref(&again)).is_some(), "{again:?} {lock:?}");
    }
    harness.check_books().await;
}

/// What ends an order before its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Partner,
    Screening,
    Cancelled,
    Refused,
    Deadline,
    Lapsed,
}

/// The rails' own books are not restored.
async fn restore_but_for_the_rails(harness: &Harness) {
    harness.run("create schema outside").await;
    harness.run("create table outside.rail as table simulated_rail").await;
    copy::restore(harness.pool()).await;
    harness.run("insert into simulated_rail select * from outside.rail").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_its_bank_or_desk_knows_does_not_end_before_its_beginning() {
    use Ending::{Cancelled, Deadline, Lapsed, Partner, Refused, Screening};
    for ending in [Partner, Screening, Cancelled, Refused, Deadline, Lapsed] {
        let market = scenes::market().with_funds("north", "USD", 100_000_000_000);
        let harness = Harness::in_virtual_time(market, now().plus_millis(1_000)).await;
        harness.fund("north", "EUR", 1_000_000).await;
        harness.fund("north", "USDC", 1_000_000_000).await;
        harness.deposit("USD", 1_000_000).await;
        let service = Service::saying(Some(json!({"verdict": "hold"}))).await;
        let first = harness.engine_under(service.screening(ScreeningResult::Hold, SOON));
        let working = work(&harness, &first);
        let mut references = Vec::new();
        for (output, account) in [("EUR", "000123456789"), ("USDC", "")] {
            let request = order_for(&Terms { input: ("USD", 10_000), output, account });
            references.push(harness.accept(request).await.reference);
        }
        for reference in &references {
            held(&harness, reference).await;
        }
        // Nobody works at the moment of the dump.
        working.abort();
        let _ = working.await;
        harness.run("update effect set claimed_until = null, called = false").await;
        copy::save(harness.pool()).await;
        service.say(Some(json!({"verdict": "pass"})));
        let working = work(&harness, &first);
        for (reference, state) in references.iter().zip(["completed", "paying"]) {
            harness.wait_for_state(reference, state).await;
        }
        working.abort();
        let _ = working.await;
        restore_but_for_the_rails(&harness).await;
        let late = match ending {
            Deadline => 601,
            Lapsed => 301,
            _ => 1,
        };
        harness.advance(Duration::from_secs(late)).await;
        service.say(Some(json!({"verdict": if ending == Screening { "fail" } else { "hold" }})));
        let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
        for reference in &references {
            match ending {
                Partner => {
                    let cancelled = engine.cancel(&harness.tenant, reference, None).await.unwrap();
                    assert_eq!(cancelled, CancelOutcome::TooLate);
                }
                Cancelled => drop(harness.decide("jo", reference, Action::Cancel).await.unwrap()),
                Refused | Lapsed => {
                    let refuse = Action::Refuse { code: "screening_refused".into() };
                    let action = if ending == Refused { refuse } else { Action::Release };
                    for operator in ["jo", "mika"] {
                        harness.decide(operator, reference, action.clone()).await.unwrap();
                    }
                }
                Deadline | Screening => {}
            }
        }
        work(&harness, &engine);
        for (reference, state) in references.iter().zip(["completed", "paying"]) {
            harness.wait_for_state(reference, state).await;
        }
        assert_eq!(harness.count("select max(executed)::bigint from simulated_rail").await, 1, "{ending:?}");
        harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_an_earlier_process_is_cancelled_once_the_rail_has_said_that_it_does_not_know_it() {
    let harness = scenes::prefunded().await;
    let service = Service::saying(Some(json!({"verdict": "hold"}))).await;
    let working = work(&harness, &harness.engine_under(service.screening(ScreeningResult::Hold, SOON)));
    let request = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
    let reference = harness.accept(request).await.reference;
    held(&harness, &reference).await;
    working.abort();
    let _ = working.await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, SOON));
    let cancelled = async || engine.cancel(&harness.tenant, &reference, None).await.unwrap();
    assert_eq!(cancelled().await, CancelOutcome::TooLate);
    work(&harness, &engine);
    wait_for("a cancellation", || async { (cancelled().await == CancelOutcome::Cancelled).then_some(()) })
        .await;
    assert_eq!(harness.count("select count(*) from simulated_rail").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_money_that_rests_is_cancelled_after_a_restart() {
    let harness = scenes::prefunded().await;
    let request = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
    let reference = harness.accept(ranged(request, 9_900, 9_000, 60_000)).await.reference;
    harness.wait_for_state(&reference, "resting").await;
    let engine = harness.another_engine();
    let cancelled = async || engine.cancel(&harness.tenant, &reference, None).await.unwrap();
    assert_eq!(cancelled().await, CancelOutcome::TooLate, "no worker could ask the rail");
    work(&harness, &engine);
    assert_eq!(cancelled().await, CancelOutcome::Cancelled);
    harness.check_books().await;
}

/// The amounts that an order was filled for.
async fn amounts(harness: &Harness, reference: &str) -> [Minor; 2] {
    let amounts =
        "select terms #>> '{input,amount}', terms #>> '{output,amount}' from execution where reference = $1";
    let rows = harness.rows_of::<(String, String)>(amounts, reference).await;
    [&rows[0].0, &rows[0].1].map(|amount| Minor::parse(amount).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_money_that_was_filled_before_a_restore_is_filled_again_by_two_operators_only() {
    let (euros, dollars) = (Price::of("USD", "EUR", "0.90"), Price::of("USD", "USDC", "0.90"));
    let market = scenes::market().with_funds("north", "EUR", 1_000_000);
    let market = market.with_funds("north", "USDC", 1_000_000_000);
    let registry = market.registry.clone();
    let harness = Harness::with_liquidity(market, |_| priced(registry, &[&euros, &dollars])).await;
    harness.deposit("USD", 1_000_000).await;
    let mut references = Vec::new();
    for (output, account, target, limit) in
        [("EUR", "000123456789", 9_300, 8_500), ("USDC", "", 93_000_000, 85_000_000)]
    {
        let request = order_for(&Terms { input: ("USD", 10_000), output, account });
        references.push(harness.accept(ranged(request, target, limit, 4_000)).await.reference);
    }
    copy::save(harness.pool()).await;
    let working = harness.start_workers();
    let filling = tokio::spawn(ranges::run(harness.engine.clone(), harness.stopped()));
    euros.set(&harness.engine, "0.95");
    dollars.set(&harness.engine, "0.95");
    let mut filled = Vec::new();
    for (reference, state) in references.iter().zip(["completed", "paying"]) {
        harness.wait_for_state(reference, state).await;
        filled.push(amounts(&harness, reference).await);
    }
    for task in [working, filling] {
        task.abort();
        let _ = task.await;
    }
    restore_but_for_the_rails(&harness).await;
    for price in [&euros, &dollars] {
        price.change("0.94");
    }
    let engine = harness.engine_with(priced(harness.market.registry.clone(), &[&euros, &dollars]));
    work(&harness, &engine);
    tokio::spawn(ranges::run(engine.clone(), harness.stopped()));
    for (reference, [input, output]) in references.iter().zip(&filled) {
        wait_for("the word of the rail", || async {
            let known = "select last_result from effect where reference = $1 and claimed_until is null \
                             and last_result like 'filled before a restore%'";
            harness.rows_of::<(String,)>(known, reference).await.pop()
        })
        .await;
        let mut conn = harness.pool().acquire().await.unwrap();
        let listed = set_aside::list(&mut conn, 100).await.unwrap();
        let is_listed = |row: &set_aside::SetAside| row.about == *reference && row.error == KNOWN;
        assert!(listed.iter().any(is_listed), "{listed:?}");
        assert_alarm(harness.pool(), Worker::Effects.as_str(), 1).await;
        let cancelled = engine.cancel(&harness.tenant, reference, None).await.unwrap();
        assert_eq!(cancelled, CancelOutcome::TooLate);
        assert_eq!(harness.state(reference).await, "resting");
        let other = Action::Fill { input: *input, output: Minor::new(1) };
        assert!(matches!(harness.decide("jo", reference, other).await, Err(ResolveError::OutOfRange(_))));
        let fill = Action::Fill { input: *input, output: *output };
        wait_for("the decision", || async { harness.decide("jo", reference, fill.clone()).await.ok() }).await;
        wait_for("its approval", || async { harness.decide("mika", reference, fill.clone()).await.ok() })
            .await;
    }
    for (reference, (state, was)) in references.iter().zip(["completed", "paying"].into_iter().zip(&filled)) {
        harness.wait_for_state(reference, state).await;
        assert_eq!(amounts(&harness, reference).await, *was);
    }
    assert_eq!(harness.count("select max(executed)::bigint from simulated_rail").await, 1);
    harness.check_books().await;
}
