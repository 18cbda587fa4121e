//! Batches: items are independent, and none fails because of another one or of a caller short of gas.

use crate::support::odd::*;
use crate::support::{Order, Scene, name};
use alloy::eips::BlockId;
use alloy::primitives::{B256, Bytes, TxKind, U256};
use alloy::rpc::types::TransactionReceipt;
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::{payouts::Payouts, settler::IntentSettler};
use dvp_chain_indexer::rpc::{self, Simulated};

const ITEM_GAS: u64 = 500_000;
/// Orders with the maker's next permits.
pub(crate) async fn orders(scene: &Scene, count: u8) -> Vec<Order> {
    let first = scene.order(1).await;
    let made = |id: u8| Order {
        id: B256::repeat_byte(id),
        nonce: first.nonce + U256::from(id - 1),
        preimage: B256::repeat_byte(id ^ 0xff),
        ..first.clone()
    };
    (1..=count).map(made).collect()
}

fn create(scene: &Scene, orders: &[Order]) -> IntentSettler::createManyCall {
    let items = orders.iter().map(|order| scene.create_params(order, scene.signed(order))).collect();
    IntentSettler::createManyCall { items, itemGas: U256::from(ITEM_GAS), atLeast: U256::from(1) }
}

/// The ids of the items that failed, with their reasons.
fn failed(receipt: &TransactionReceipt) -> Vec<(B256, Bytes)> {
    let events =
        receipt.logs().iter().filter_map(|log| IntentSettler::ItemFailed::decode_log(&log.inner).ok());
    events.map(|event| (event.data.id, event.data.reason)).collect()
}

/// `Managed.Outcome`.
const FAILED: u8 = 1;
const DONE: u8 = 2;

async fn simulated(scene: &Scene, call: &IntentSettler::createManyCall) -> Vec<u8> {
    let (from, to) = (scene.relayer.address(), scene.deployment.settler);
    let input = call.abi_encode().into();
    match rpc::simulate(&scene.provider, from, to, input, 25_000_000, BlockId::latest()).await.unwrap() {
        Simulated::Succeeds(answer) => {
            IntentSettler::createManyCall::abi_decode_returns(&answer).unwrap().outcomes
        }
        Simulated::Reverts { message, .. } => panic!("{message}"),
    }
}

async fn states(scene: &Scene, orders: &[Order]) -> Vec<u8> {
    let mut states = Vec::new();
    for order in orders {
        states.push(scene.state(order.id).await);
    }
    states
}

/// The relayer's batch, which succeeds.
async fn send(scene: &Scene, call: &IntentSettler::createManyCall) -> TransactionReceipt {
    let receipt = scene.send(&scene.relayer, TxKind::Call(scene.deployment.settler), call.abi_encode()).await;
    assert!(receipt.status());
    receipt
}

#[tokio::test]
async fn a_failing_item_changes_nothing_and_reports_its_reason() {
    let scene = Scene::new().await;
    let mut orders = orders(&scene, 4).await;
    orders[1].permit_deadline = 1;
    // The third has the nonce that the second has not used; the fourth the one after.
    orders[2].nonce = orders[1].nonce;
    orders[3].nonce = orders[1].nonce + U256::from(1);
    let twice = orders[0].clone();
    orders.push(twice);
    let receipt = send(&scene, &create(&scene, &orders)).await;
    let failed: Vec<_> = failed(&receipt).into_iter().map(|(id, why)| (id, name(Some(why)))).collect();
    assert_eq!(failed, [(orders[1].id, "PermitExpired".into()), (orders[0].id, "WrongState".into())]);
    assert_eq!(states(&scene, &orders[..4]).await, [1, 0, 1, 1]);
    assert_eq!(scene.balance(scene.deployment.escrow).await, 300);
}

#[tokio::test]
async fn a_hostile_token_in_a_batch_harms_only_its_own_item() {
    let succeeds = [REENTERS, RETURNS_MEGABYTES];
    let fails = [BURNS_GAS, REVERTS_WITH_MEGABYTES, IS_INVALID, REVERTS_WITH_NOTHING];
    for oddity in fails.into_iter().chain(succeeds) {
        let scene = Scene::new().await;
        let mut orders = orders(&scene, 3).await;
        let odd = scene.odd_token().await;
        orders[1].token = odd;
        // The reentrant one cancels the first item and has the role for it; its own lock succeeds.
        scene.make_relayer(scene.deployment.settler, odd).await;
        let back = scene.cancel_call(&orders[0]).abi_encode();
        scene.turn_to_call(odd, oddity, scene.deployment.settler, back).await;
        if fails.contains(&oddity) {
            orders[2].nonce = orders[1].nonce;
        }
        let call = create(&scene, &orders);
        let expected = [DONE, if fails.contains(&oddity) { FAILED } else { DONE }, DONE];
        assert_eq!(simulated(&scene, &call).await, expected, "{oddity}");
        let receipt = send(&scene, &call).await;
        let expected = if fails.contains(&oddity) { vec![orders[1].id] } else { vec![] };
        let ids: Vec<B256> = failed(&receipt).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, expected, "{oddity}");
        assert!(failed(&receipt).iter().all(|(_, reason)| reason.len() <= 132));
        let states = states(&scene, &orders).await;
        assert_eq!((states[0], states[2]), (1, 1), "{oddity}");
        assert!(!scene.view(odd, OddToken::reenteredCall {}).await);
    }
}

#[tokio::test]
async fn with_too_little_gas_a_batch_ends_cleanly_before_the_item_it_has_no_gas_for() {
    let scene = Scene::new().await;
    let orders = orders(&scene, 4).await;
    let (at, call) = (scene.deployment.settler, create(&scene, &orders));
    let whole = IntentSettler::createManyCall { atLeast: U256::from(4), ..call.clone() };
    let (mut reverted, mut partly) = (0, 0);
    for gas in (500_000..1_100_000).step_by(10_000) {
        let refused = scene.revert_with_gas(scene.relayer.address(), at, &whole, gas).await;
        let receipt = scene.send_with_gas(&scene.relayer, at, &call, gas).await;
        assert_eq!(failed(&receipt), [], "with {gas}");
        let made = scene.balance(scene.deployment.escrow).await / 100;
        if !receipt.status() {
            assert_eq!((made, name(refused)), (0, "BatchOutOfGas".to_owned()), "with {gas}");
            reverted += 1;
            continue;
        }
        assert_eq!(refused.is_none(), made == 4, "with {gas}: {made}");
        if made == 4 {
            break;
        }
        partly += 1;
        let expected: Vec<u8> = (0..4).map(|index| u8::from(index < made)).collect();
        assert_eq!(states(&scene, &orders).await, expected, "in their order");
        // The items that a batch had no gas for are carried out by the next one.
        let receipt = send(&scene, &create(&scene, &orders[usize::try_from(made).unwrap()..])).await;
        assert_eq!(failed(&receipt), []);
        assert_eq!(scene.state(orders[3].id).await, 1);
        break;
    }
    assert!(reverted > 2 && partly == 1, "{reverted} reverted, {partly} were made in part");
}

/// A token that burns the gas of its items costs them alone, wherever they are.
#[tokio::test]
async fn items_that_burn_their_gas_leave_the_rest_untried_at_worst() {
    let scene = Scene::new().await;
    let mut orders = orders(&scene, 8).await;
    let odd = scene.odd_token().await;
    let (first, others) = orders.split_at_mut(4);
    for order in first.iter_mut() {
        order.token = odd;
    }
    // None of them uses its nonce.
    for (other, order) in others.iter_mut().zip(0_u64..) {
        other.nonce = first[0].nonce + U256::from(order);
    }
    scene.turn(odd, IS_INVALID).await;
    let at = scene.deployment.settler;
    let call = create(&scene, &orders);
    // Enough for eight items that go well, as in an estimate from before the token changed.
    let receipt = scene.send_with_gas(&scene.relayer, at, &call, 1_200_000).await;
    assert!(receipt.status(), "the batch does not revert");
    let burnt = failed(&receipt).len();
    assert!((1..4).contains(&burnt), "{burnt}");
    let rest = create(&scene, &orders[4..]);
    assert!(scene.send_with_gas(&scene.relayer, at, &rest, 1_200_000).await.status());
    assert_eq!(states(&scene, &orders[4..]).await, [1; 4]);
}

#[tokio::test]
async fn payments_in_a_batch_are_each_made_once_or_not_at_all() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    scene.set_cap(scene.token, 100).await;
    let item =
        |id, amount| Payouts::PayParams { payment: scene.payment(id, amount), authorization: Bytes::new() };
    let late = Payouts::PayParams {
        payment: Payouts::Payment { notAfter: 1, ..scene.payment(5, 1) },
        authorization: Bytes::new(),
    };
    let items = vec![item(1, 60), item(1, 1), item(2, 41), item(3, 40), late];
    let call = Payouts::payManyCall { items, itemGas: U256::from(ITEM_GAS), atLeast: U256::from(1) };
    let before = scene.balance(scene.maker.address()).await;
    let receipt = scene.send(&scene.relayer, TxKind::Call(scene.deployment.payouts), call.abi_encode()).await;
    let why: Vec<String> = failed(&receipt).into_iter().map(|(_, why)| name(Some(why))).collect();
    assert_eq!(why, ["AlreadyPaid", "CapExceeded", "TooLate"]);
    assert_eq!(scene.balance(scene.maker.address()).await - before, 100);
}

#[tokio::test]
async fn only_the_contracts_call_items_and_only_relayers_batches() {
    let scene = Scene::new().await;
    let order = scene.order(1).await;
    let params = scene.create_params(&order, scene.signed(&order));
    let at = scene.deployment.settler;
    let item = IntentSettler::createItemCall { params };
    for by in [scene.relayer.address(), scene.admin.address()] {
        assert_eq!(scene.outcome_of(by, at, &item).await, "OnlyItself");
    }
    let many = create(&scene, &[order]);
    let refused = scene.outcome_of(scene.admin.address(), at, &many).await;
    assert_eq!(refused, "AccessControlUnauthorizedAccount");
    let item = Payouts::payItemCall {
        params: Payouts::PayParams { payment: scene.payment(1, 1), authorization: Bytes::new() },
    };
    let refused = scene.outcome_of(scene.relayer.address(), scene.deployment.payouts, &item).await;
    assert_eq!(refused, "OnlyItself");
}
