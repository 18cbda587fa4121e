//! A lock, a swap, a fill or a payment counts as the order's only when every field is what the order asked for.

use dvp_domain::chain::{ChainFact, SwapTerms};

use crate::guard::failure_code;
use crate::house::{House, Wanted, order, order_for};

/// The fact is kept with what differs, and the order is where it was.
async fn check_set_aside(house: &House, reference: &str, state: &str, differs: &str) {
    let kept = "select coalesce((select differs from chain_fact where consumed_at is not null \
                and differs is not null order by id desc limit 1), '')";
    house
        .wait_for(differs, || async {
            let (kept,): (String,) = sqlx::query_as(kept).fetch_one(house.pool()).await.unwrap();
            (kept == differs).then_some(())
        })
        .await;
    house.wait_for_state(reference, state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_less_is_not_the_orders_and_the_right_one_still_is() {
    let house = House::new().await;
    house.work();
    let reference = house.accept(order("000123450006")).await.reference;
    let (entity, create) = house.command(&reference, "create").await;
    let right = dvp_core::chain::expected::goal(&create);
    let ChainFact::Created { timelock, lock, .. } = right.clone() else { panic!("{right:?}") };
    house.fact(&entity, &ChainFact::Created { timelock, amount: "1".into(), lock }).await;
    let differs = "amount is 1, and 100000000 was asked for";
    check_set_aside(&house, &reference, "locking", differs).await;
    assert_eq!(house.events(&reference).await, ["intent.accepted"]);
    assert_eq!(house.account("escrow", "USDC").await, "0");
    house.fact(&entity, &right).await;
    house.wait_for_state(&reference, "committing").await;
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_of_less_or_a_released_lock_is_not_the_orders_and_the_right_swap_still_is() {
    let house = House::new().await;
    house.fund("north", "USDC", 10_000_000_000).await;
    house.work();
    let input = 1_000_000_000_000_000_000;
    let request = order_for(&Wanted { input: ("WETH", input), output: "USDC", account: "" });
    let reference = house.accept(request).await.reference;
    let (entity, swap) = house.command(&reference, "swap").await;
    let right = dvp_core::chain::expected::goal(&swap);
    let ChainFact::Settled { swap: Some(terms) } = right.clone() else { panic!("{right:?}") };
    let less = SwapTerms { amount: "1".into(), ..*terms };
    house.fact(&entity, &ChainFact::Settled { swap: Some(Box::new(less)) }).await;
    let differs = format!("amount is 1, and {input} was asked for");
    check_set_aside(&house, &reference, "locking", &differs).await;
    house.fact(&entity, &ChainFact::Settled { swap: None }).await;
    check_set_aside(&house, &reference, "locking", "swap is false, and true was asked for").await;
    assert_eq!(house.events(&reference).await, ["intent.accepted"]);
    house.fact(&entity, &right).await;
    house.wait_for_state(&reference, "completed").await;
    house.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_to_somebody_else_is_not_the_orders() {
    let house = House::new().await;
    house.fund("north", "USDC", 10_000_000_000).await;
    house.prefund("USD", 1_000_000).await;
    house.work();
    let request = order_for(&Wanted { input: ("USD", 100_000), output: "USDC", account: "" });
    let user = request.user.clone();
    let reference = house.accept(request).await.reference;
    let (entity, transfer) = house.command(&reference, "transfer").await;
    let right = dvp_core::chain::expected::goal(&transfer);
    let ChainFact::Transferred { payer, token, amount, .. } = right.clone() else { panic!("{right:?}") };
    let thief = "0x00000000000000000000000000000000000000aa";
    house.fact(&entity, &ChainFact::Transferred { payer, receiver: thief.into(), token, amount }).await;
    let differs = format!("receiver is {thief}, and {user} was asked for");
    check_set_aside(&house, &reference, "paying", &differs).await;
    house.fact(&entity, &right).await;
    house.wait_for_state(&reference, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_lock_is_taken_back_before_the_commitment_pays_nobody() {
    let house = House::new().await;
    house.work();
    let reference = house.accept(order("000123456789")).await.reference;
    house.play_until(&reference, |kind| kind == "create").await;
    house.wait_for_state(&reference, "committing").await;
    let (entity, _) = house.command(&reference, "create").await;
    house.fact(&entity, &ChainFact::LockLost).await;
    house.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(failure_code(&house, &reference).await, "lock_lost");
    assert_eq!(house.count("select count(*) from simulated_rail where leg = 'payout'").await, 0);
    house.check_books().await;
}
