//! The contracts' protection against tokens that violate the standard.

use crate::support::odd::*;
use crate::support::{FUNDS, Order, Scene, name};
use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::{escrow::Escrow, payouts::Payouts};

/// An order in an odd token, locked and filled, and a second one like it.
async fn two_filled(scene: &Scene, id: u8) -> [Order; 2] {
    let first = scene.odd_order(id).await;
    let second = Order { id: B256::repeat_byte(id + 1), nonce: first.nonce + U256::from(1), ..first.clone() };
    for order in [&first, &second] {
        scene.lock(order).await;
        scene.fill(order).await;
    }
    [first, second]
}

async fn freeze(scene: &Scene, token: Address, account: Address, to: bool) {
    let freeze = OddToken::freezeCall { account, to };
    assert!(scene.succeeds(&scene.admin, token, &freeze).await);
}

async fn held(scene: &Scene, token: Address, owner: Address) -> U256 {
    scene.view(token, OddToken::balanceOfCall { owner }).await
}

async fn owed(scene: &Scene, account: Address, token: Address) -> U256 {
    scene.view(scene.deployment.escrow, Escrow::owedCall { account, token }).await
}

#[tokio::test]
async fn a_token_is_locked_only_if_it_was_transferred() {
    let scene = Scene::new().await;
    let order = scene.odd_order(1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    let (settler, relayer) = (scene.deployment.settler, scene.relayer.address());
    for (oddity, outcome) in [
        (REFUSES, "SafeERC20FailedOperation"),
        (ONLY_SAYS_SO, "AmountNotReceived"),
        (KEEPS_A_FEE, "AmountNotReceived"),
        (SAYS_NOTHING, "ok"),
    ] {
        scene.turn(order.token, oddity).await;
        assert_eq!(scene.outcome_of(relayer, settler, &create).await, outcome);
    }
    assert!(scene.succeeds(&scene.relayer, settler, &create).await, "a token without a return value");
    assert_eq!(held(&scene, order.token, scene.deployment.escrow).await, U256::from(100));
}

#[tokio::test]
async fn an_amount_that_a_token_refuses_to_pay_is_owed_to_its_payee_only() {
    let scene = Scene::new().await;
    let (settler, at, solver) = (scene.deployment.settler, scene.deployment.escrow, scene.solver.address());
    let anyone = scene.admin.address();
    let oddities = [
        REFUSES,
        ONLY_SAYS_SO,
        PAUSED,
        TAKES_MORE,
        BURNS_GAS,
        REVERTS_WITH_MEGABYTES,
        IS_INVALID,
        REVERTS_WITH_NOTHING,
        HIDES_BALANCES,
    ];
    for oddity in oddities {
        let [order, other] = two_filled(&scene, oddity * 2).await;
        scene.turn(order.token, oddity).await;
        assert!(scene.succeeds(&scene.relayer, settler, &scene.settle_call(&order)).await, "{oddity}");
        assert_eq!(owed(&scene, solver, order.token).await, U256::from(100));
        let withdraw = Escrow::withdrawCall { account: solver, token: order.token };
        let refused = scene.revert_of(anyone, at, &withdraw).await;
        assert!(refused.is_some(), "{oddity}");
        assert!(oddity != TAKES_MORE || name(refused) == "AmountNotPaid");

        scene.turn(order.token, NONE).await;
        assert_eq!(held(&scene, order.token, at).await, U256::from(200), "{oddity}: nothing is taken");
        assert!(scene.succeeds(&scene.admin, at, &withdraw).await, "it is not lost");
        assert!(!scene.succeeds(&scene.admin, at, &withdraw).await, "paid twice");
        assert_eq!(held(&scene, order.token, solver).await, U256::from(100));
        scene.settle(&other).await;
        assert_eq!(held(&scene, order.token, at).await, U256::ZERO);
    }
}

#[tokio::test]
async fn a_frozen_maker_does_not_prevent_an_order_from_ending() {
    let scene = Scene::new().await;
    let (at, order, maker) = (scene.deployment.escrow, scene.odd_order(1).await, scene.maker.address());
    scene.lock(&order).await;
    freeze(&scene, order.token, maker, true).await;
    scene.cancel(&order).await;
    assert_eq!(owed(&scene, maker, order.token).await, U256::from(100));
    freeze(&scene, order.token, maker, false).await;
    let withdraw = Escrow::withdrawCall { account: maker, token: order.token };
    assert!(scene.succeeds(&scene.admin, at, &withdraw).await);
    assert_eq!(held(&scene, order.token, maker).await, U256::from(1_000));
}

#[tokio::test]
async fn a_caller_short_of_gas_cannot_turn_a_payment_into_a_debt() {
    let scene = Scene::new().await;
    let [order, _] = two_filled(&scene, 1).await;
    let at = scene.deployment.escrow;
    let release = scene.release_call(&order);
    let mut refused = 0;
    for gas in (60_000..=450_000).step_by(10_000) {
        let by = scene.admin.address();
        match scene.revert_with_gas(by, at, &release, gas).await {
            Some(_) => refused += 1,
            None => {
                assert!(gas > 230_000, "{gas}");
                let receipt = scene.send_with_gas(&scene.admin, at, &release, gas).await;
                assert!(receipt.status());
                assert_eq!(owed(&scene, scene.solver.address(), order.token).await, U256::ZERO, "{gas}");
                break;
            }
        }
    }
    assert!(refused > 5, "{refused}");
    assert_eq!(held(&scene, order.token, scene.solver.address()).await, U256::from(100));
}

/// As a rebasing token does, or one that was changed into such.
#[tokio::test]
async fn what_a_token_pays_short_stays_owed_and_ends_the_order() {
    let scene = Scene::new().await;
    let (at, solver) = (scene.deployment.escrow, scene.solver.address());
    for (oddity, paid, debt) in [(ROUNDS_DOWN, 99, 1), (KEEPS_A_FEE, 99, 0), (RETURNS_MEGABYTES, 100, 0)] {
        let [order, other] = two_filled(&scene, oddity * 2).await;
        scene.turn(order.token, oddity).await;
        scene.settle(&order).await;
        assert_eq!(held(&scene, order.token, solver).await, U256::from(paid), "{oddity}");
        assert_eq!(owed(&scene, solver, order.token).await, U256::from(debt), "{oddity}");
        assert_eq!(
            held(&scene, order.token, at).await,
            U256::from(100 + debt),
            "the other order's, and the debt"
        );
        scene.turn(order.token, NONE).await;
        assert!(scene.succeeds(&scene.admin, at, &scene.release_call(&other)).await);
        let withdraw = Escrow::withdrawCall { account: solver, token: order.token };
        assert_eq!(scene.succeeds(&scene.admin, at, &withdraw).await, debt > 0, "{oddity}");
        assert_eq!(held(&scene, order.token, at).await, U256::ZERO, "{oddity}");
    }
}

#[tokio::test]
async fn only_the_escrow_makes_its_payments() {
    let scene = Scene::new().await;
    let [order, _] = two_filled(&scene, 1).await;
    let (token, to, amount) = (order.token, scene.admin.address(), order.amount);
    let pay = Escrow::payCall { token, to, amount };
    for by in [scene.admin.address(), scene.relayer.address(), scene.deployment.settler] {
        assert_eq!(scene.outcome_of(by, scene.deployment.escrow, &pay).await, "OnlyItself");
    }
}

#[tokio::test]
async fn a_reentrant_token_changes_nothing() {
    let scene = Scene::new().await;
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let [order, second] = two_filled(&scene, 1).await;
    let mut third = Order { id: B256::repeat_byte(3), ..order.clone() };
    third.nonce = scene.permit_nonce().await;
    let withdraw = Escrow::withdrawCall { account: scene.solver.address(), token: order.token };
    let backs = [
        (at, scene.release_call(&order).abi_encode()),
        (at, scene.release_call(&second).abi_encode()),
        (at, scene.refund_call(&second).abi_encode()),
        (at, withdraw.abi_encode()),
        (at, Escrow::payCall { token: order.token, to: order.token, amount: order.amount }.abi_encode()),
        (settler, scene.cancel_call(&second).abi_encode()),
        (settler, scene.settle_call(&second).abi_encode()),
    ];
    // The token may call as a relayer, and every call is still refused.
    scene.make_relayer(settler, order.token).await;
    for (target, back) in backs {
        scene.turn_to_call(order.token, REENTERS, target, back).await;
        scene.lock(&third).await;
        scene.cancel(&third).await;
        third.id = alloy::primitives::keccak256(third.id);
        third.nonce += U256::from(1);
    }
    scene.settle(&order).await;
    assert!(!scene.view(order.token, OddToken::reenteredCall {}).await, "a call got through");
    assert_eq!(held(&scene, order.token, at).await, U256::from(100), "the second is still there");
    assert_eq!(held(&scene, order.token, scene.solver.address()).await, U256::from(100));
}

#[tokio::test]
async fn a_payout_of_an_odd_token_is_complete_or_not_made() {
    let scene = Scene::new().await;
    let order = scene.odd_order(1).await;
    let (at, payer) = (scene.deployment.payouts, scene.solver.address());
    let mint = OddToken::mintCall { to: payer, value: U256::from(1_000) };
    assert!(scene.succeeds(&scene.admin, order.token, &mint).await);
    scene.allow_payouts(order.token, 1_000).await;
    let pay = Payouts::payCall {
        payment: Payouts::Payment { token: order.token, ..scene.payment(1, 10) },
        authorization: Default::default(),
    };
    let by = scene.relayer.address();
    for (oddity, outcome) in [
        (REFUSES, "SafeERC20FailedOperation"),
        (ONLY_SAYS_SO, "AmountNotReceived"),
        (KEEPS_A_FEE, "AmountNotReceived"),
        (PAUSED, "revert"),
        (SAYS_NOTHING, "ok"),
    ] {
        scene.turn(order.token, oddity).await;
        let found = scene.outcome_of(by, at, &pay).await;
        assert!(found.starts_with(outcome), "{oddity}: {found}");
    }
    scene.turn_to_call(order.token, REENTERS, at, pay.abi_encode()).await;
    scene.make_relayer(at, order.token).await;
    assert!(scene.succeeds(&scene.relayer, at, &pay).await);
    assert!(!scene.view(order.token, OddToken::reenteredCall {}).await, "a call got through");
    assert_eq!(held(&scene, order.token, scene.maker.address()).await, U256::from(1_010));
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS, "the other token is where it was");
}
