//! The contracts' protection against tokens that violate the standard.

use crate::support::{FUNDS, Order, Scene, name};
use alloy::primitives::{Address, B256, TxKind, U256};
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::escrow::Escrow;
use dvp_chain_indexer::contracts::payouts::Payouts;
use dvp_chain_indexer::contracts::settler::IntentSettler;

alloy::sol!(
    #[derive(Debug)]
    OddToken,
    "contracts/artifacts/OddToken.json"
);

const NONE: u8 = 0;
const SAYS_NOTHING: u8 = 1;
const REFUSES: u8 = 2;
const ONLY_SAYS_SO: u8 = 3;
const REENTERS: u8 = 4;
const PAUSED: u8 = 5;
const KEEPS_A_FEE: u8 = 6;
const TAKES_MORE: u8 = 7;
const BURNS_GAS: u8 = 8;
const REVERTS_WITH_MEGABYTES: u8 = 9;

/// An order in the odd token (0 decimals), which the maker holds and has approved.
async fn odd_order(scene: &Scene, id: u8) -> Order {
    let code = OddToken::BYTECODE.clone();
    let at = scene.send(&scene.admin, TxKind::Create, code).await.contract_address;
    let at = at.unwrap_or_else(|| panic!("no token"));
    let mint = OddToken::mintCall { to: scene.maker.address(), value: U256::from(1_000) };
    assert!(scene.succeeds(&scene.admin, at, &mint).await);
    let approve = OddToken::approveCall { spender: scene.deployment.permit, value: U256::MAX };
    assert!(scene.succeeds(&scene.maker, at, &approve).await);
    Order { token: at, ..scene.order(id).await }
}

/// The same, locked and filled, with a second one like it.
async fn two_filled(scene: &Scene, id: u8) -> [Order; 2] {
    let first = odd_order(scene, id).await;
    let second = Order { id: B256::repeat_byte(id + 1), nonce: first.nonce + U256::from(1), ..first.clone() };
    for order in [&first, &second] {
        let create = scene.create_call(order, scene.signed(order));
        assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &create).await);
        assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &scene.fill_call(order)).await);
    }
    [first, second]
}

async fn turn(scene: &Scene, token: Address, oddity: u8, target: Address, call: Vec<u8>) {
    let turn = OddToken::turnCall { to: oddity, target, call: call.into() };
    assert!(scene.succeeds(&scene.admin, token, &turn).await);
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
    let order = odd_order(&scene, 1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    let (settler, relayer) = (scene.deployment.settler, scene.relayer.address());
    for (oddity, outcome) in [
        (REFUSES, "SafeERC20FailedOperation"),
        (ONLY_SAYS_SO, "AmountNotReceived"),
        (KEEPS_A_FEE, "AmountNotReceived"),
        (SAYS_NOTHING, "ok"),
    ] {
        turn(&scene, order.token, oddity, Address::ZERO, Vec::new()).await;
        assert_eq!(name(scene.revert_of(relayer, settler, &create).await), outcome);
    }
    assert!(scene.succeeds(&scene.relayer, settler, &create).await, "a token without a return value");
    assert_eq!(held(&scene, order.token, scene.deployment.escrow).await, U256::from(100));
}

#[tokio::test]
async fn an_amount_that_a_token_refuses_to_pay_is_owed_to_its_payee_only() {
    let scene = Scene::new().await;
    let (settler, at, solver) = (scene.deployment.settler, scene.deployment.escrow, scene.solver.address());
    for oddity in [REFUSES, PAUSED, BURNS_GAS, REVERTS_WITH_MEGABYTES] {
        let [order, other] = two_filled(&scene, oddity * 2).await;
        turn(&scene, order.token, oddity, Address::ZERO, Vec::new()).await;
        assert!(scene.succeeds(&scene.relayer, settler, &scene.settle_call(&order)).await, "{oddity}");
        assert_eq!(owed(&scene, solver, order.token).await, U256::from(100));
        let withdraw = Escrow::withdrawCall { account: solver, token: order.token };
        assert!(scene.revert_of(scene.admin.address(), at, &withdraw).await.is_some(), "{oddity}");

        turn(&scene, order.token, NONE, Address::ZERO, Vec::new()).await;
        assert!(scene.succeeds(&scene.admin, at, &withdraw).await, "it is not lost");
        assert!(!scene.succeeds(&scene.admin, at, &withdraw).await, "paid twice");
        assert_eq!(held(&scene, order.token, solver).await, U256::from(100));
        assert!(scene.succeeds(&scene.relayer, settler, &scene.settle_call(&other)).await);
        assert_eq!(held(&scene, order.token, at).await, U256::ZERO);
    }
}

#[tokio::test]
async fn a_frozen_maker_does_not_prevent_an_order_from_ending() {
    let scene = Scene::new().await;
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let order = odd_order(&scene, 1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.relayer, settler, &create).await);
    let maker = scene.maker.address();
    freeze(&scene, order.token, maker, true).await;
    assert!(scene.succeeds(&scene.relayer, settler, &scene.cancel_call(&order)).await);
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
    for gas in (60_000..=320_000).step_by(10_000) {
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

#[tokio::test]
async fn a_token_that_takes_more_than_it_pays_takes_nothing_from_other_orders() {
    let scene = Scene::new().await;
    let [order, other] = two_filled(&scene, 1).await;
    let (at, anyone) = (scene.deployment.escrow, scene.admin.address());
    for (oddity, outcome) in [(TAKES_MORE, "AmountNotPaid"), (ONLY_SAYS_SO, "AmountNotPaid")] {
        turn(&scene, order.token, oddity, Address::ZERO, Vec::new()).await;
        assert_eq!(name(scene.revert_of(anyone, at, &scene.release_call(&order)).await), outcome);
    }
    turn(&scene, order.token, NONE, Address::ZERO, Vec::new()).await;
    for order in [&order, &other] {
        assert!(scene.succeeds(&scene.admin, at, &scene.release_call(order)).await);
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
        (settler, scene.cancel_call(&second).abi_encode()),
        (settler, scene.settle_call(&second).abi_encode()),
    ];
    // The token may call as a relayer, and every call is still refused.
    let role = scene.view(settler, IntentSettler::RELAYER_ROLECall {}).await;
    let grant = IntentSettler::grantRoleCall { role, account: order.token };
    assert!(scene.succeeds(&scene.admin, settler, &grant).await);
    for (target, back) in backs {
        turn(&scene, order.token, REENTERS, target, back).await;
        let create = scene.create_call(&third, scene.signed(&third));
        assert!(scene.succeeds(&scene.relayer, settler, &create).await);
        assert!(scene.succeeds(&scene.relayer, settler, &scene.cancel_call(&third)).await);
        third.id = alloy::primitives::keccak256(third.id);
        third.nonce += U256::from(1);
    }
    assert!(scene.succeeds(&scene.relayer, settler, &scene.settle_call(&order)).await);
    assert!(!scene.view(order.token, OddToken::reenteredCall {}).await, "a call got through");
    assert_eq!(held(&scene, order.token, at).await, U256::from(100), "the second is still there");
    assert_eq!(held(&scene, order.token, scene.solver.address()).await, U256::from(100));
}

#[tokio::test]
async fn a_payout_of_an_odd_token_is_complete_or_not_made() {
    let scene = Scene::new().await;
    let order = odd_order(&scene, 1).await;
    let (at, payer) = (scene.deployment.payouts, scene.solver.address());
    let mint = OddToken::mintCall { to: payer, value: U256::from(1_000) };
    assert!(scene.succeeds(&scene.admin, order.token, &mint).await);
    let approve = OddToken::approveCall { spender: at, value: U256::MAX };
    assert!(scene.succeeds(&scene.solver, order.token, &approve).await);
    scene.set_cap(order.token, 1_000).await;
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
        turn(&scene, order.token, oddity, Address::ZERO, Vec::new()).await;
        let found = name(scene.revert_of(by, at, &pay).await);
        assert!(found.starts_with(outcome), "{oddity}: {found}");
    }
    turn(&scene, order.token, REENTERS, at, pay.abi_encode()).await;
    let role = scene.view(at, Payouts::RELAYER_ROLECall {}).await;
    let grant = Payouts::grantRoleCall { role, account: order.token };
    assert!(scene.succeeds(&scene.admin, at, &grant).await);
    assert!(scene.succeeds(&scene.relayer, at, &pay).await);
    assert!(!scene.view(order.token, OddToken::reenteredCall {}).await, "a call got through");
    assert_eq!(held(&scene, order.token, scene.maker.address()).await, U256::from(1_010));
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS, "the other token is where it was");
}
