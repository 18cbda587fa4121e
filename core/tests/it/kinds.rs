//! Orders of every kind, from acceptance to their end, and what they leave in the books.

use dvp_core::engine::{CancelOutcome, ReceiptLookup};
use dvp_core::writer::Outcome;
use dvp_domain::chain::ChainFact;
use dvp_domain::decision::Reason;
use dvp_domain::ledger::Owner;
use dvp_store::orders::executions::RefType;
use serde_json::Value;

use crate::house::{House, Wanted, order_for};

const DOLLARS_TO_EUROS: Wanted<'static> =
    Wanted { input: ("USD", 100_000), output: "EUR", account: "000123456789" };

fn provider(id: &str) -> Owner {
    Owner::Provider(id.into())
}

async fn receipt(house: &House, reference: &str) -> Value {
    house
        .wait_for("the receipt", || async {
            let found = house.engine.receipt(&house.tenant, RefType::ExecutionId, reference).await.unwrap();
            match found {
                ReceiptLookup::Found(body) => Some(body),
                ReceiptLookup::NotFound | ReceiptLookup::NotIssued | ReceiptLookup::Unreadable => None,
            }
        })
        .await
}

async fn entity(house: &House) -> Vec<u8> {
    let row: (Vec<u8>,) =
        sqlx::query_as("select entity from execution").fetch_one(house.pool()).await.unwrap();
    row.0
}

async fn commands(house: &House) -> Vec<String> {
    let rows: Vec<(String,)> =
        sqlx::query_as("select kind from chain_command order by id").fetch_all(house.pool()).await.unwrap();
    rows.into_iter().map(|row| row.0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn money_for_money_is_prefunded_and_paid_without_lock_or_offramp() {
    let house = House::new().await;
    house.fund("north", "EUR", 1_000_000).await;
    house.prefund("USD", 150_000).await;
    house.work();
    let reference = house.accept(order_for(&DOLLARS_TO_EUROS)).await.reference;
    house.play_chain(&reference).await;
    house.wait_for_state(&reference, "completed").await;
    assert_eq!(house.events(&reference).await, ["intent.accepted", "payout.initiated", "payout.completed"]);
    assert_eq!(commands(&house).await, ["anchor"]);
    let receipt = receipt(&house, &reference).await;
    assert!(receipt["offramp"].is_null());
    // 1000.00 less 5 bps, at 0.92 less 10 bps, less 0.50.
    assert_eq!(receipt["payout"]["amountMinor"], "91812");
    assert_eq!(house.balance(&house.partner(), "USD").await, (50_000, 0));
    assert_eq!(house.balance(&provider("north"), "EUR").await, (1_000_000 - 91_862, 0));
    assert_eq!(house.balance(&provider("north"), "USD").await, (100_000_000_000 + 99_950, 0));
    assert_eq!(house.account("fees", "USD").await, "50");
    assert_eq!(house.account("fees", "EUR").await, "50");
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_that_several_providers_share_reserves_and_pays_each_its_part() {
    let house = House::new().await;
    house.fund("north", "EUR", 50_000).await;
    house.fund("south", "EUR", 50_000).await;
    house.prefund("USD", 100_000).await;
    let accepted = house.accept(order_for(&DOLLARS_TO_EUROS)).await;
    assert_eq!(accepted.plan.slices.len(), 2);
    let of = |id: &str| {
        let theirs = accepted.plan.slices.iter().filter(|slice| slice.provider_id == id);
        theirs.fold((0, 0), |sum, slice| (sum.0 + slice.input.get(), sum.1 + slice.output.get()))
    };
    for id in ["north", "south"] {
        assert_eq!(house.balance(&provider(id), "EUR").await, (50_000 - of(id).1, of(id).1));
    }
    house.work();
    house.play_chain(&accepted.reference).await;
    house.wait_for_state(&accepted.reference, "completed").await;
    for id in ["north", "south"] {
        assert_eq!(house.balance(&provider(id), "EUR").await, (50_000 - of(id).1, 0));
    }
    assert_eq!(house.balance(&provider("south"), "USD").await, (of("south").0, 0));
    assert_eq!(of("north").0 + of("south").0, 99_950);
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_for_tokens_are_swapped_in_one_transaction() {
    let house = House::new().await;
    house.fund("north", "USDC", 10_000_000_000).await;
    house.work();
    let input = 1_000_000_000_000_000_000;
    let request = order_for(&Wanted { input: ("WETH", input), output: "USDC", account: "" });
    let user = request.user.clone();
    let accepted = house.accept(request).await;
    house.play_chain(&accepted.reference).await;
    house.wait_for_state(&accepted.reference, "completed").await;
    let straight =
        ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"];
    assert_eq!(house.events(&accepted.reference).await, straight);
    assert_eq!(commands(&house).await, ["swap", "anchor"]);
    let (payload,): (Value,) = sqlx::query_as("select payload from chain_command where kind = 'swap'")
        .fetch_one(house.pool())
        .await
        .unwrap();
    assert_eq!(
        (&payload["maker"], &payload["amount"]),
        (&Value::from(user.as_str()), &input.to_string().into())
    );
    assert_eq!(payload["output"]["receiver"], user);
    assert_eq!(payload["output"]["amount"], accepted.plan.priced.output.to_string());
    assert_eq!(payload["solver"], accepted.plan.solver_wallet);
    let receipt = receipt(&house, &accepted.reference).await;
    assert_eq!(receipt["payout"]["currency"], "USDC");
    assert_eq!(receipt["offramp"]["fromAsset"], "WETH");
    assert_eq!(house.account("escrow", "WETH").await, "0");
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_for_tokens_is_converted_and_transferred_without_a_lock() {
    let house = House::new().await;
    house.fund("north", "USDC", 10_000_000_000).await;
    house.prefund("USD", 100_000).await;
    house.work();
    let accepted =
        house.accept(order_for(&Wanted { input: ("USD", 100_000), output: "USDC", account: "" })).await;
    house.play_chain(&accepted.reference).await;
    house.wait_for_state(&accepted.reference, "completed").await;
    let straight =
        ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"];
    assert_eq!(house.events(&accepted.reference).await, straight);
    assert_eq!(commands(&house).await, ["transfer", "anchor"]);
    assert!(receipt(&house, &accepted.reference).await["offramp"].is_object());
    assert_eq!(house.balance(&house.partner(), "USD").await, (0, 0));
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_that_fails_gives_partner_and_provider_back_what_they_had() {
    let house = House::new().await;
    house.fund("north", "EUR", 1_000_000).await;
    house.prefund("USD", 100_000).await;
    house.work();
    let wanted = Wanted { account: "000123450002", ..DOLLARS_TO_EUROS };
    let reference = house.accept(order_for(&wanted)).await.reference;
    house.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(house.events(&reference).await, ["intent.accepted", "payout.initiated", "payout.failed"]);
    assert_eq!(house.balance(&house.partner(), "USD").await, (100_000, 0));
    assert_eq!(house.balance(&provider("north"), "EUR").await, (1_000_000, 0));
    assert_eq!(house.account("fees", "USD").await, "0");
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_can_never_succeed_fails_the_payout() {
    let house = House::new().await;
    house.fund("north", "USDC", 10_000_000_000).await;
    house.prefund("USD", 100_000).await;
    house.work();
    let accepted =
        house.accept(order_for(&Wanted { input: ("USD", 100_000), output: "USDC", account: "" })).await;
    house.wait_for_state(&accepted.reference, "paying").await;
    let message = "the wallet holds 0 and 1 are needed".to_owned();
    let (command, code) = ("transfer".to_owned(), "insufficient_funds".to_owned());
    house.fact(&entity(&house).await, &ChainFact::CommandFailed { command, code, message }).await;
    house.wait_for_state(&accepted.reference, "payout_failed").await;
    assert_eq!(house.balance(&house.partner(), "USD").await, (100_000, 0));
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_or_expired_order_frees_what_it_was_promised() {
    let house = House::new().await;
    house.fund("north", "EUR", 1_000_000).await;
    house.prefund("USD", 200_000).await;
    let wanted = Wanted { account: "000123450008", ..DOLLARS_TO_EUROS };
    let cancelled = house.accept(order_for(&wanted)).await.reference;
    let mut late = order_for(&wanted);
    late.deadline = dvp_core::context::now().plus_millis(700);
    let expired = house.accept(late).await.reference;
    assert_eq!(house.balance(&house.partner(), "USD").await, (0, 200_000));
    let done = house.engine.cancel(&house.tenant, &cancelled, None).await.unwrap();
    assert_eq!(done, CancelOutcome::Cancelled);
    house.work();
    house.wait_for_state(&expired, "expired").await;
    assert_eq!(house.balance(&house.partner(), "USD").await, (200_000, 0));
    assert_eq!(house.balance(&provider("north"), "EUR").await, (1_000_000, 0));
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_orders_never_promise_more_than_the_partner_prefunded() {
    let house = House::new().await;
    house.fund("north", "EUR", 100_000_000).await;
    house.prefund("USD", 5 * 100_000 + 99_999).await;
    let sends = (0..40).map(|_| house.submit(order_for(&DOLLARS_TO_EUROS)));
    let outcomes = futures_util::future::join_all(sends).await;
    let accepted = outcomes.iter().filter(|o| matches!(o, Outcome::Accepted(_))).count();
    let refused = outcomes
        .iter()
        .filter(|o| matches!(o, Outcome::Rejected { reason: Reason::NoLiquidity, .. }))
        .count();
    assert_eq!((accepted, refused), (5, 35));
    assert_eq!(house.balance(&house.partner(), "USD").await, (99_999, 500_000));
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_can_never_succeed_moves_nothing() {
    let house = House::new().await;
    house.fund("north", "USDC", 10_000_000_000).await;
    house.work();
    let input = 1_000_000_000_000_000_000;
    let request = order_for(&Wanted { input: ("WETH", input), output: "USDC", account: "" });
    let reference = house.accept(request).await.reference;
    house.wait_for_state(&reference, "locking").await;
    let (command, code) = ("swap".to_owned(), "permit_expired".to_owned());
    let failed = ChainFact::CommandFailed { command, code, message: "too late".into() };
    house.fact(&entity(&house).await, &failed).await;
    house.wait_for_state(&reference, "failed").await;
    assert_eq!(house.events(&reference).await, ["intent.accepted", "intent.failed"]);
    assert_eq!(house.balance(&provider("north"), "USDC").await, (10_000_000_000, 0));
    house.check_books().await;
}
