//! A lock, a swap, a fill or a payment counts as the order's only when every field equals the order's command.

use dvp_domain::chain::{ChainFact, SwapTerms};

use crate::guard::failure_code;
use crate::kinds::{COIN_TO_TOKEN, DOLLARS_TO_TOKEN};
use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order_for;
use dvp_testing::wait::wait_for;

/// The fact is kept with the difference, and the order is unchanged.
async fn check_set_aside(harness: &Harness, reference: &str, state: &str, differs: &str) {
    let kept = "select coalesce((select differs from chain_fact where consumed_at is not null \
                and differs is not null order by id desc limit 1), '')";
    wait_for(differs, || async {
        let (kept,): (String,) = harness.row(kept).await;
        (kept == differs).then_some(())
    })
    .await;
    harness.wait_for_state(reference, state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_lock_is_set_aside_and_the_right_one_is_applied() {
    let (harness, reference) = scenes::begun("000123450006").await;
    let (entity, create) = harness.command(&reference, "create").await;
    let right = dvp_core::chain::expected::goal(&create);
    let ChainFact::Created { timelock, lock, .. } = right.clone() else { panic!("{right:?}") };
    harness.report_fact(&entity, &ChainFact::Created { timelock, amount: "1".into(), lock }).await;
    let differs = "amount is 1, but 100000000 was requested";
    check_set_aside(&harness, &reference, "locking", differs).await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted"]);
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    harness.report_fact(&entity, &right).await;
    harness.wait_for_state(&reference, "committing").await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_swap_or_release_is_set_aside_and_the_right_swap_applied() {
    let harness = scenes::harness().await;
    harness.fund("north", "USDC", 10_000_000_000).await;
    harness.start_workers();
    let reference = harness.accept(order_for(&COIN_TO_TOKEN)).await.reference;
    let (entity, swap) = harness.command(&reference, "swap").await;
    let right = dvp_core::chain::expected::goal(&swap);
    let ChainFact::Settled { swap: Some(terms) } = right.clone() else { panic!("{right:?}") };
    let less = SwapTerms { amount: "1".into(), ..*terms };
    harness.report_fact(&entity, &ChainFact::Settled { swap: Some(Box::new(less)) }).await;
    let differs = format!("amount is 1, but {} was requested", COIN_TO_TOKEN.input.1);
    check_set_aside(&harness, &reference, "locking", &differs).await;
    harness.report_fact(&entity, &ChainFact::Settled { swap: None }).await;
    check_set_aside(&harness, &reference, "locking", "swap is false, but true was requested").await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted"]);
    harness.report_fact(&entity, &right).await;
    harness.wait_for_state(&reference, "completed").await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_to_another_receiver_is_set_aside() {
    let harness = scenes::harness().await;
    harness.fund("north", "USDC", 10_000_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    harness.start_workers();
    let request = order_for(&DOLLARS_TO_TOKEN);
    let user = request.user.clone();
    let reference = harness.accept(request).await.reference;
    let (entity, transfer) = harness.command(&reference, "transfer").await;
    let right = dvp_core::chain::expected::goal(&transfer);
    let ChainFact::Transferred { payer, token, amount, .. } = right.clone() else { panic!("{right:?}") };
    let thief = "0x00000000000000000000000000000000000000aa";
    harness
        .report_fact(&entity, &ChainFact::Transferred { payer, receiver: thief.into(), token, amount })
        .await;
    let differs = format!("receiver is {thief}, but {user} was requested");
    check_set_aside(&harness, &reference, "paying", &differs).await;
    harness.report_fact(&entity, &right).await;
    harness.wait_for_state(&reference, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_lock_is_reverted_before_the_commitment_is_not_paid() {
    let (harness, reference) = scenes::played("000123456789", "create", "committing").await;
    let (entity, create) = harness.command(&reference, "create").await;
    let open_fills =
        "select count(*) from chain_command where kind = 'fill' and state in ('pending', 'sent')";
    assert_eq!(harness.count(open_fills).await, 1);
    harness.report_fact(&entity, &ChainFact::LockLost).await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(failure_code(&harness, &reference).await, "lock_lost");
    // The relayer carries out the oldest command first: included again, the lock must not be filled before its cancel.
    harness.report_fact(&entity, &dvp_core::chain::expected::goal(&create)).await;
    harness.command(&reference, "cancel").await;
    assert_eq!(harness.count(open_fills).await, 0);
    assert_eq!(harness.count("select count(*) from simulated_rail where leg = 'payout'").await, 0);
    harness.check_books().await;
}
