//! Orders of every kind, from acceptance to their end, and the resulting books.

use dvp_core::engine::{CancelOutcome, ReceiptLookup};
use dvp_domain::ledger::Owner;
use dvp_store::orders::executions::RefType;
use serde_json::Value;

use crate::commitment::commands;
use crate::guard::{entity_of, failure_code};
use crate::scenes;
use crate::settling::STRAIGHT;
use dvp_testing::Harness;
use dvp_testing::chain::failed;
use dvp_testing::orders::{Terms, order_for};
use dvp_testing::wait::wait_for;

const DOLLARS_TO_EUROS: Terms<'static> =
    Terms { input: ("USD", 100_000), output: "EUR", account: "000123456789" };

pub(crate) const DOLLARS_TO_TOKEN: Terms<'static> =
    Terms { input: ("USD", 100_000), output: "USDC", account: "" };
pub(crate) const COIN_TO_TOKEN: Terms<'static> =
    Terms { input: ("WETH", 1_000_000_000_000_000_000), output: "USDC", account: "" };

fn provider(id: &str) -> Owner {
    Owner::Provider(id.into())
}

pub(crate) async fn receipt(harness: &Harness, reference: &str) -> Value {
    wait_for("the receipt", || async {
        let found = harness.engine.receipt(&harness.tenant, RefType::ExecutionId, reference).await.unwrap();
        match found {
            ReceiptLookup::Found(body) => Some(body),
            ReceiptLookup::NotFound | ReceiptLookup::NotIssued | ReceiptLookup::Unreadable => None,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn money_for_money_is_prefunded_and_paid_without_lock_or_offramp() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 150_000).await;
    harness.start_workers();
    let reference = harness.accept(order_for(&DOLLARS_TO_EUROS)).await.reference;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted", "payout.initiated", "payout.completed"]);
    assert_eq!(commands(&harness).await, ["anchor"]);
    let receipt = receipt(&harness, &reference).await;
    assert!(receipt["offramp"].is_null());
    // 1000.00 less 5 bps, at 0.92 less 10 bps, less 0.50.
    assert_eq!(receipt["payout"]["amountMinor"], "91812");
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (50_000, 0));
    assert_eq!(harness.balance(&provider("north"), "EUR").await, (1_000_000 - 91_862, 0));
    assert_eq!(harness.balance(&provider("north"), "USD").await, (100_000_000_000 + 99_950, 0));
    assert_eq!(harness.account("fees", "USD").await, "50");
    assert_eq!(harness.account("fees", "EUR").await, "50");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_of_several_providers_reserves_and_pays_each_its_part() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 50_000).await;
    harness.fund("south", "EUR", 50_000).await;
    harness.deposit("USD", 100_000).await;
    let accepted = harness.accept(order_for(&DOLLARS_TO_EUROS)).await;
    assert_eq!(accepted.plan.slices.len(), 2);
    let of = |id: &str| {
        let theirs = accepted.plan.slices.iter().filter(|slice| slice.provider_id == id);
        theirs.fold((0, 0), |sum, slice| (sum.0 + slice.input.get(), sum.1 + slice.output.get()))
    };
    for id in ["north", "south"] {
        assert_eq!(harness.balance(&provider(id), "EUR").await, (50_000 - of(id).1, of(id).1));
    }
    harness.start_workers();
    harness.play_chain(&accepted.reference).await;
    harness.wait_for_state(&accepted.reference, "completed").await;
    for id in ["north", "south"] {
        assert_eq!(harness.balance(&provider(id), "EUR").await, (50_000 - of(id).1, 0));
    }
    assert_eq!(harness.balance(&provider("south"), "USD").await, (of("south").0, 0));
    assert_eq!(of("north").0 + of("south").0, 99_950);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_for_tokens_are_swapped_in_one_transaction() {
    let harness = scenes::harness().await;
    harness.fund("north", "USDC", 10_000_000_000).await;
    harness.start_workers();
    let request = order_for(&COIN_TO_TOKEN);
    let user = request.user.clone();
    let accepted = harness.accept(request).await;
    harness.play_chain(&accepted.reference).await;
    harness.wait_for_state(&accepted.reference, "completed").await;
    assert_eq!(harness.events(&accepted.reference).await, STRAIGHT);
    assert_eq!(commands(&harness).await, ["swap", "anchor"]);
    let (payload,): (Value,) = harness.row("select payload from chain_command where kind = 'swap'").await;
    assert_eq!(
        (&payload["maker"], &payload["amount"]),
        (&Value::from(user.as_str()), &COIN_TO_TOKEN.input.1.to_string().into())
    );
    assert_eq!(payload["output"]["receiver"], user);
    assert_eq!(payload["output"]["amount"], accepted.plan.priced.output.to_string());
    assert_eq!(payload["solver"], accepted.plan.solver_wallet);
    let receipt = receipt(&harness, &accepted.reference).await;
    assert_eq!(receipt["payout"]["currency"], "USDC");
    assert_eq!(receipt["offramp"]["fromAsset"], "WETH");
    assert_eq!(harness.account("escrow", "WETH").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_for_tokens_is_converted_and_transferred_without_a_lock() {
    let harness = scenes::harness().await;
    harness.fund("north", "USDC", 10_000_000_000).await;
    harness.deposit("USD", 100_000).await;
    harness.start_workers();
    let accepted = harness.accept(order_for(&DOLLARS_TO_TOKEN)).await;
    harness.play_chain(&accepted.reference).await;
    harness.wait_for_state(&accepted.reference, "completed").await;
    assert_eq!(harness.events(&accepted.reference).await, STRAIGHT);
    assert_eq!(commands(&harness).await, ["transfer", "anchor"]);
    assert!(receipt(&harness, &accepted.reference).await["offramp"].is_object());
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (0, 0));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_payout_returns_the_balances_of_partner_and_provider() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 100_000).await;
    harness.start_workers();
    let wanted = Terms { account: "000123450002", ..DOLLARS_TO_EUROS };
    let reference = harness.accept(order_for(&wanted)).await.reference;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted", "payout.initiated", "payout.failed"]);
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (100_000, 0));
    assert_eq!(harness.balance(&provider("north"), "EUR").await, (1_000_000, 0));
    assert_eq!(harness.account("fees", "USD").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_or_expired_order_releases_its_reservations() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 200_000).await;
    let wanted = Terms { account: "000123450008", ..DOLLARS_TO_EUROS };
    let cancelled = harness.accept(order_for(&wanted)).await.reference;
    let mut late = order_for(&wanted);
    late.deadline = dvp_core::context::now().plus_millis(4_000);
    let expired = harness.accept(late).await.reference;
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (0, 200_000));
    let done = harness.engine.cancel(&harness.tenant, &cancelled, None).await.unwrap();
    assert_eq!(done, CancelOutcome::Cancelled);
    harness.start_workers();
    harness.wait_for_state(&expired, "expired").await;
    assert_eq!(harness.events(&expired).await, ["intent.accepted", "intent.expired"]);
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (200_000, 0));
    assert_eq!(harness.balance(&provider("north"), "EUR").await, (1_000_000, 0));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_can_never_succeed_ends_its_order_and_frees_its_funds() {
    let harness = scenes::harness().await;
    harness.fund("north", "USDC", 10_000_000_000).await;
    harness.deposit("USD", 100_000).await;
    harness.start_workers();
    let dollars = Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" };
    let (locked, paid) =
        (("locking", "failed", "intent.failed"), ("paying", "payout_failed", "payout.failed"));
    for (command, code, terms, (waits, state, event)) in [
        ("create", "permit_expired", dollars, locked),
        ("swap", "permit_expired", COIN_TO_TOKEN, locked),
        ("transfer", "insufficient_funds", DOLLARS_TO_TOKEN, paid),
    ] {
        let reference = harness.accept(order_for(&terms)).await.reference;
        harness.wait_for_state(&reference, waits).await;
        harness.report_fact(&entity_of(&harness, &reference).await, &failed(command, code)).await;
        harness.wait_for_state(&reference, state).await;
        assert_eq!(harness.events(&reference).await.last().unwrap(), event, "{command}");
        assert_eq!(failure_code(&harness, &reference).await, code);
        assert_eq!(harness.count("select sum(reserved)::int8 from account_balance").await, 0, "{command}");
        harness.check_books().await;
    }
    assert_eq!(harness.balance(&harness.partner(), "USD").await, (100_000, 0));
    assert_eq!(harness.balance(&provider("north"), "USDC").await, (10_000_000_000, 0));
}
