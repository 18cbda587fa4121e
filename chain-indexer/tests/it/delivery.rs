//! Delivery of tokens: swaps, payouts without a lock; caps, deadlines and required signatures.

use crate::support::{FUNDS, Order, Scene, key};
use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::signers::SignerSync;
use alloy::sol_types::{SolEvent, SolStruct, eip712_domain};
use dvp_chain_indexer::contracts::{payouts::Payouts, settler::IntentSettler};
use dvp_core::chain::expected::binding;
use dvp_domain::chain::OutputArgs;

alloy::sol! {
    /// The structure that a payer's authorizer signs.
    struct Payment {
        bytes32 id;
        address payer;
        address receiver;
        address token;
        uint256 amount;
        uint64 notAfter;
    }
}

fn pay(payment: Payouts::Payment) -> Payouts::payCall {
    Payouts::payCall { payment, authorization: Bytes::new() }
}

fn swap(scene: &Scene, order: &Order, receiver: Address, amount: u64) -> IntentSettler::swapCall {
    IntentSettler::swapCall { params: scene.swap_params(order, scene.output(receiver, amount)) }
}

async fn created(scene: &Scene, id: u8) -> Order {
    let order = scene.order(id).await;
    scene.lock(&order).await;
    order
}

#[tokio::test]
async fn a_swap_moves_both_sides_at_once_and_emits_all_three_events() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    let (at, order, receiver) = (scene.deployment.settler, scene.order(1).await, key(0xcc).address());
    let call = swap(&scene, &order, receiver, 40);
    let receipt = scene.send_with_gas(&scene.relayer, at, &call, 500_000).await;
    assert!(receipt.status());
    let reported = |topic: B256| receipt.logs().iter().filter(|log| log.topic0() == Some(&topic)).count();
    assert_eq!(reported(IntentSettler::Created::SIGNATURE_HASH), 1);
    assert_eq!(reported(IntentSettler::Filled::SIGNATURE_HASH), 1);
    assert_eq!(reported(IntentSettler::Settled::SIGNATURE_HASH), 1);
    assert_eq!(reported(Payouts::Paid::SIGNATURE_HASH), 1);
    assert_eq!(scene.balance(receiver).await, 40);
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS - 100);
    assert_eq!(scene.balance(scene.solver.address()).await, 1_060);
    assert_eq!(scene.balance(scene.deployment.escrow).await, 0, "nothing was held");
    assert_eq!(scene.state(order.id).await, 3);
    assert_eq!(scene.outcome_of(scene.relayer.address(), at, &call).await, "WrongState");
}

#[tokio::test]
async fn a_swap_that_cannot_deliver_takes_nothing() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    let (at, order, receiver) = (scene.deployment.settler, scene.order(1).await, key(0xcc).address());
    for (amount, outcome) in [(1_101, "revert"), (0, "ZeroAmount"), (FUNDS + 1, "CapExceeded")] {
        let call = swap(&scene, &order, receiver, amount);
        let found = scene.outcome_of(scene.relayer.address(), at, &call).await;
        assert!(found.starts_with(outcome), "{amount}: {found}");
        assert!(!scene.succeeds(&scene.relayer, at, &call).await);
    }
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS);
    assert_eq!(scene.permit_nonce().await, U256::ZERO, "the permit is not used up");
    let late = Order { lock_by: scene.now().await - 1, ..order };
    let found = scene.outcome_of(scene.relayer.address(), at, &swap(&scene, &late, receiver, 1)).await;
    assert_eq!(found, "LockByPassed");
}

#[tokio::test]
async fn a_payout_is_made_by_the_relayer_only_once_per_id_and_in_time() {
    let scene = Scene::new().await;
    scene.fund_solver(100).await;
    let (at, relayer) = (scene.deployment.payouts, scene.relayer.address());
    let before = scene.balance(scene.maker.address()).await;
    let refusal = async |payment| scene.outcome_of(relayer, at, &pay(payment)).await;
    let unauthorized = scene.outcome_of(scene.admin.address(), at, &pay(scene.payment(1, 10))).await;
    assert_eq!(unauthorized, "AccessControlUnauthorizedAccount");
    assert_eq!(refusal(scene.payment(1, 0)).await, "ZeroAmount");
    let late = Payouts::Payment { notAfter: scene.now().await - 1, ..scene.payment(1, 10) };
    assert_eq!(refusal(late).await, "TooLate");
    let to_itself = Payouts::Payment { receiver: scene.solver.address(), ..scene.payment(1, 10) };
    assert_eq!(refusal(to_itself).await, "AmountNotReceived");
    assert!(scene.succeeds(&scene.relayer, at, &pay(scene.payment(1, 10))).await);
    assert_eq!(refusal(scene.payment(1, 10)).await, "AlreadyPaid");
    assert!(!scene.succeeds(&scene.relayer, at, &pay(scene.payment(2, 91))).await, "more than there is");
    assert_eq!(scene.balance(scene.maker.address()).await - before, 10);
    let direct = Payouts::deliverCall {
        id: B256::repeat_byte(3),
        payer: scene.solver.address(),
        receiver: relayer,
        token: scene.token,
        amount: U256::from(1),
    };
    for by in [relayer, scene.admin.address()] {
        assert_eq!(scene.outcome_of(by, at, &direct).await, "OnlySettler");
    }
}

#[tokio::test]
async fn a_locked_order_is_never_paid_out_beside_its_settlement() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    let (settler, at, relayer) =
        (scene.deployment.settler, scene.deployment.payouts, scene.relayer.address());
    let order = created(&scene, 1).await;
    let refusal =
        async |id| scene.outcome_of(relayer, at, &pay(Payouts::Payment { id, ..scene.payment(1, 10) })).await;
    assert_eq!(refusal(order.id).await, "LockedHere");
    scene.fill(&order).await;
    assert_eq!(refusal(order.id).await, "LockedHere");
    scene.settle(&order).await;
    assert_eq!(refusal(order.id).await, "LockedHere");
    let cancelled = created(&scene, 2).await;
    scene.cancel(&cancelled).await;
    assert_eq!(refusal(cancelled.id).await, "LockedHere");
    let swapped = scene.order(3).await;
    let call = swap(&scene, &swapped, key(0xcc).address(), 1);
    assert!(scene.succeeds(&scene.relayer, settler, &call).await);
    assert_eq!(refusal(swapped.id).await, "LockedHere");

    // Conversely, a paid order is not swapped.
    assert!(scene.succeeds(&scene.relayer, at, &pay(scene.payment(4, 10))).await);
    let paid = scene.order(4).await;
    let call = swap(&scene, &paid, key(0xcc).address(), 1);
    assert_eq!(scene.outcome_of(relayer, settler, &call).await, "AlreadyPaid");
}

#[tokio::test]
async fn a_payer_pays_at_most_its_cap_a_day() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    scene.set_cap(scene.token, 100).await;
    let (at, relayer) = (scene.deployment.payouts, scene.relayer.address());
    // Noon of some day, so that the test does not run across midnight.
    let noon = (scene.now().await / 86_400 + 1) * 86_400 + 43_200;
    scene.next_block_at(noon).await;
    assert!(scene.succeeds(&scene.relayer, at, &pay(scene.payment(1, 60))).await);
    let refusal = async |id, amount| scene.outcome_of(relayer, at, &pay(scene.payment(id, amount))).await;
    assert_eq!(refusal(2, 41).await, "CapExceeded");
    assert_eq!(refusal(2, 40).await, "ok");
    let order = scene.order(9).await;
    let swapped =
        scene.outcome_of(relayer, scene.deployment.settler, &swap(&scene, &order, relayer, 41)).await;
    assert_eq!(swapped, "CapExceeded", "a swap counts too");
    scene.set_cap(scene.token, 59).await;
    assert_eq!(refusal(2, 1).await, "CapExceeded", "a lower cap holds at once");
    scene.set_cap(scene.token, 100).await;
    scene.mine_at(noon + 43_200).await;
    assert_eq!(refusal(2, 100).await, "ok", "the next day");
    assert_eq!(refusal(2, 101).await, "CapExceeded");
    let other = Payouts::Payment { payer: scene.maker.address(), ..scene.payment(3, 1) };
    assert_eq!(scene.outcome_of(relayer, at, &pay(other)).await, "CapExceeded", "no cap, no payment");
}

#[tokio::test]
async fn a_payer_with_an_authorizer_requires_its_signature() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    let (at, relayer, authorizer) = (scene.deployment.payouts, scene.relayer.address(), key(0xd1));
    let set = Payouts::setAuthorizerCall { authorizer: authorizer.address() };
    assert!(scene.succeeds(&scene.solver, at, &set).await);
    let payment = scene.payment(1, 10);
    let domain = eip712_domain! {
        name: "Payouts",
        version: "1",
        chain_id: scene.deployment.chain_id,
        verifying_contract: at,
    };
    let message = Payment {
        id: payment.id,
        payer: payment.payer,
        receiver: payment.receiver,
        token: payment.token,
        amount: payment.amount,
        notAfter: payment.notAfter,
    };
    let hash = message.eip712_signing_hash(&domain);
    let signed = |by: &alloy::signers::local::PrivateKeySigner| -> Bytes {
        by.sign_hash_sync(&hash).map(|signature| signature.as_bytes().to_vec()).unwrap_or_default().into()
    };
    let refusal = async |payment: Payouts::Payment, authorization| {
        scene.outcome_of(relayer, at, &Payouts::payCall { payment, authorization }).await
    };
    assert_eq!(refusal(payment.clone(), Bytes::new()).await, "ECDSAInvalidSignatureLength");
    assert_eq!(refusal(payment.clone(), signed(&scene.relayer)).await, "NotAuthorized");
    let more = Payouts::Payment { amount: U256::from(11), ..payment.clone() };
    assert_eq!(refusal(more, signed(&authorizer)).await, "NotAuthorized");
    let elsewhere = Payouts::Payment { receiver: relayer, ..payment.clone() };
    assert_eq!(refusal(elsewhere, signed(&authorizer)).await, "NotAuthorized");
    let call = Payouts::payCall { payment, authorization: signed(&authorizer) };
    assert!(scene.succeeds(&scene.relayer, at, &call).await);
    assert!(!scene.succeeds(&scene.relayer, at, &call).await, "a signature is good once");
}

#[tokio::test]
async fn the_computed_commitments_are_the_contracts() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    let order = created(&scene, 1).await;
    let slot = scene.view(
        scene.deployment.escrow,
        dvp_chain_indexer::contracts::escrow::Escrow::slotOfCall { id: order.id },
    );
    let ours = dvp_chain_indexer::orders::commitment(&scene.terms(&order));
    assert_eq!(slot.await.commitment[..], ours[..31]);
    assert_ne!(ours, keccak256([]));
    let output = scene.output(key(0xcc).address(), 40);
    let args = OutputArgs {
        token: output.token.to_string(),
        receiver: output.receiver.to_string(),
        amount: output.amount.to_string(),
    };
    let swapped = scene.order(2).await;
    let call = IntentSettler::swapCall { params: scene.swap_params(&swapped, output.clone()) };
    let receipt = scene.send_with_gas(&scene.relayer, scene.deployment.settler, &call, 500_000).await;
    let reported = receipt.logs().iter().find_map(|log| IntentSettler::Created::decode_log(&log.inner).ok());
    let bound = binding(&args, &output.agreed.to_string());
    assert_eq!(bound, reported.map(|log| log.terms.to_string()), "the core's binding");
}
