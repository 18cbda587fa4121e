//! Batches: items are independent, and none fails because of another one or of a caller short of gas.

use crate::support::{Order, Scene, name};
use alloy::primitives::{B256, Bytes, TxKind, U256};
use alloy::rpc::types::TransactionReceipt;
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::payouts::Payouts;
use dvp_chain_indexer::contracts::settler::IntentSettler;

alloy::sol!(
    #[derive(Debug)]
    OddToken,
    "contracts/artifacts/OddToken.json"
);

const ITEM_GAS: u64 = 500_000;
const REENTERS: u8 = 4;
const BURNS_GAS: u8 = 8;
const REVERTS_WITH_MEGABYTES: u8 = 9;

/// Orders with the maker's next permits.
async fn orders(scene: &Scene, count: u8) -> Vec<Order> {
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
    IntentSettler::createManyCall { items, itemGas: U256::from(ITEM_GAS) }
}

/// The ids of the items that failed, with their reasons.
fn failed(receipt: &TransactionReceipt) -> Vec<(B256, Bytes)> {
    let events =
        receipt.logs().iter().filter_map(|log| IntentSettler::ItemFailed::decode_log(&log.inner).ok());
    events.map(|event| (event.data.id, event.data.reason)).collect()
}

async fn state(scene: &Scene, order: &Order) -> u8 {
    scene.view(scene.deployment.settler, IntentSettler::stateOfCall { intentId: order.id }).await
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
    let call = create(&scene, &orders);
    let receipt = scene.send(&scene.relayer, TxKind::Call(scene.deployment.settler), call.abi_encode()).await;
    assert!(receipt.status());
    let failed: Vec<_> = failed(&receipt).into_iter().map(|(id, why)| (id, name(Some(why)))).collect();
    assert_eq!(failed, [(orders[1].id, "PermitExpired".into()), (orders[0].id, "WrongState".into())]);
    let mut states = Vec::new();
    for order in &orders[..4] {
        states.push(state(&scene, order).await);
    }
    assert_eq!(states, [1, 0, 1, 1]);
    assert_eq!(scene.balance(scene.deployment.escrow).await, 300);
}

#[tokio::test]
async fn a_hostile_token_in_a_batch_harms_only_its_own_item() {
    for oddity in [BURNS_GAS, REVERTS_WITH_MEGABYTES, REENTERS] {
        let scene = Scene::new().await;
        let mut orders = orders(&scene, 3).await;
        let odd = scene.send(&scene.admin, TxKind::Create, OddToken::BYTECODE.clone()).await;
        let odd = odd.contract_address.unwrap();
        let mint = OddToken::mintCall { to: scene.maker.address(), value: U256::from(1_000) };
        assert!(scene.succeeds(&scene.admin, odd, &mint).await);
        let approve = OddToken::approveCall { spender: scene.deployment.permit, value: U256::MAX };
        assert!(scene.succeeds(&scene.maker, odd, &approve).await);
        orders[1].token = odd;
        // The reentrant one cancels the first item and has the role for it; its own lock succeeds.
        let role = scene.view(scene.deployment.settler, IntentSettler::RELAYER_ROLECall {}).await;
        let grant = IntentSettler::grantRoleCall { role, account: odd };
        assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &grant).await);
        let back = scene.cancel_call(&orders[0]).abi_encode();
        let turn = OddToken::turnCall { to: oddity, target: scene.deployment.settler, call: back.into() };
        assert!(scene.succeeds(&scene.admin, odd, &turn).await);
        if oddity != REENTERS {
            orders[2].nonce = orders[1].nonce;
        }
        let call = create(&scene, &orders);
        let receipt =
            scene.send(&scene.relayer, TxKind::Call(scene.deployment.settler), call.abi_encode()).await;
        assert!(receipt.status(), "{oddity}");
        let expected = if oddity == REENTERS { vec![] } else { vec![orders[1].id] };
        let ids: Vec<B256> = failed(&receipt).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, expected, "{oddity}");
        assert!(failed(&receipt).iter().all(|(_, reason)| reason.len() <= 132));
        assert_eq!(state(&scene, &orders[0]).await, 1, "{oddity}");
        assert_eq!(state(&scene, &orders[2]).await, 1, "{oddity}");
        assert!(!scene.view(odd, OddToken::reenteredCall {}).await);
    }
}

#[tokio::test]
async fn with_too_little_gas_the_whole_batch_reverts_without_failed_items() {
    let scene = Scene::new().await;
    let orders = orders(&scene, 4).await;
    let (at, call) = (scene.deployment.settler, create(&scene, &orders));
    let mut reverted = 0;
    for gas in (100_000..1_100_000).step_by(25_000) {
        let receipt = scene.send_with_gas(&scene.relayer, at, &call, gas).await;
        assert_eq!(failed(&receipt), [], "with {gas}");
        if receipt.status() {
            assert_eq!(scene.balance(scene.deployment.escrow).await, 400);
            break;
        }
        reverted += 1;
        assert_eq!(scene.balance(scene.deployment.escrow).await, 0);
    }
    assert!(reverted > 5);
    assert_eq!(state(&scene, &orders[3]).await, 1, "never enough");
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
    let call = Payouts::payManyCall { items, itemGas: U256::from(ITEM_GAS) };
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
        assert_eq!(name(scene.revert_of(by, at, &item).await), "OnlyItself");
    }
    let many = create(&scene, &[order]);
    let refused = scene.revert_of(scene.admin.address(), at, &many).await;
    assert_eq!(name(refused), "AccessControlUnauthorizedAccount");
    let item = Payouts::payItemCall {
        params: Payouts::PayParams { payment: scene.payment(1, 1), authorization: Bytes::new() },
    };
    let refused = scene.revert_of(scene.relayer.address(), scene.deployment.payouts, &item).await;
    assert_eq!(name(refused), "OnlyItself");
}
