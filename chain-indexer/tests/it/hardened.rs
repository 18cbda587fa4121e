//! What the contracts withstand: odd tokens, every call in every state, random sequences; and what calls cost.

use crate::support::{FUNDS, Order, Scene, raw};
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::sol_types::{SolCall, SolInterface};
use dvp_chain_indexer::contracts::{anchor::ReceiptAnchor, escrow, permit, settler, token};
use escrow::Escrow;
use permit::Permit;
use serde_json::{Value, json};
use settler::IntentSettler;
use std::collections::BTreeMap;
use std::fmt::Write;

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

/// A moment after which all times of a test are the same in every run.
const EPOCH: u64 = 4_000_000_000;

/// What a revert is called; `ok` when there was none.
fn name(revert: Option<Bytes>) -> String {
    let Some(data) = revert else { return "ok".to_owned() };
    let debug = IntentSettler::IntentSettlerErrors::abi_decode(&data)
        .map(|error| format!("{error:?}"))
        .or_else(|_| Escrow::EscrowErrors::abi_decode(&data).map(|error| format!("{error:?}")))
        .or_else(|_| Permit::PermitErrors::abi_decode(&data).map(|error| format!("{error:?}")));
    debug.map_or_else(
        |_| format!("revert {data}"),
        |text| text.split('(').next().unwrap_or_default().trim().to_owned(),
    )
}

async fn at_epoch() -> Scene {
    let scene = Scene::new().await;
    scene.next_block_at(EPOCH).await;
    let _: Value = raw(&scene.provider, "evm_mine", json!([])).await;
    scene
}

/// An order in the odd token, which the maker holds and has approved.
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

async fn turn(scene: &Scene, token: Address, oddity: u8, target: Address, call: Vec<u8>) {
    let turn = OddToken::turnCall { to: oddity, target, call: call.into() };
    assert!(scene.succeeds(&scene.admin, token, &turn).await);
}

async fn held(scene: &Scene, token: Address, owner: Address) -> U256 {
    scene.view(token, OddToken::balanceOfCall { owner }).await
}

#[tokio::test]
async fn a_token_is_locked_only_if_it_moved() {
    let scene = Scene::new().await;
    let order = odd_order(&scene, 1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    let (settler, relayer) = (scene.deployment.settler, scene.relayer.address());
    for (oddity, outcome) in
        [(REFUSES, "SafeERC20FailedOperation"), (ONLY_SAYS_SO, "AmountNotReceived"), (SAYS_NOTHING, "ok")]
    {
        turn(&scene, order.token, oddity, Address::ZERO, Vec::new()).await;
        assert_eq!(name(scene.revert_of(relayer, settler, &create).await), outcome);
    }
    assert!(scene.succeeds(&scene.relayer, settler, &create).await, "a token without a return value");
    assert_eq!(held(&scene, order.token, scene.deployment.escrow).await, U256::from(100));
}

#[tokio::test]
async fn what_a_token_refuses_to_pay_out_stays_locked() {
    let scene = Scene::new().await;
    let order = odd_order(&scene, 1).await;
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let create = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.relayer, settler, &create).await);
    let release = Escrow::releaseCall { id: order.id, preimage: order.preimage };
    turn(&scene, order.token, REFUSES, Address::ZERO, Vec::new()).await;
    let refused = scene.revert_of(scene.admin.address(), at, &release).await;
    assert_eq!(name(refused), "SafeERC20FailedOperation");
    turn(&scene, order.token, NONE, Address::ZERO, Vec::new()).await;
    assert!(scene.succeeds(&scene.admin, at, &release).await, "it is not lost");
    assert_eq!(held(&scene, order.token, scene.solver.address()).await, U256::from(100));
}

#[tokio::test]
async fn a_token_that_calls_back_gets_nowhere() {
    let scene = Scene::new().await;
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let order = odd_order(&scene, 1).await;
    let mut second = Order { id: B256::repeat_byte(2), ..order.clone() };
    let create = scene.create_call(&order, scene.signed(&order));
    assert!(scene.succeeds(&scene.relayer, settler, &create).await);
    second.nonce = scene.permit_nonce().await;
    let create = scene.create_call(&second, scene.signed(&second));
    assert!(scene.succeeds(&scene.relayer, settler, &create).await);

    let release = |order: &Order| Escrow::releaseCall { id: order.id, preimage: order.preimage };
    for back in [release(&order).abi_encode(), release(&second).abi_encode()] {
        turn(&scene, order.token, REENTERS, at, back).await;
        let _outcome = scene.revert_of(scene.admin.address(), at, &release(&order)).await;
    }
    assert!(scene.succeeds(&scene.admin, at, &release(&order)).await);
    assert!(!scene.view(order.token, OddToken::reenteredCall {}).await, "a call got through");
    assert_eq!(held(&scene, order.token, at).await, U256::from(100), "the second is still there");
    assert_eq!(held(&scene, order.token, scene.solver.address()).await, U256::from(100));
}

/// Every call of the two contracts that moves funds, as the one who may make it.
async fn calls(scene: &Scene, order: &Order) -> [(&'static str, String); 6] {
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let (relayer, anyone) = (scene.relayer.address(), scene.admin.address());
    let (id, preimage) = (order.id, order.preimage);
    let mut fresh = order.clone();
    fresh.nonce = scene.permit_nonce().await;
    fresh.permit_deadline = order.timelock + 10_000;
    let create = scene.create_call(&fresh, scene.signed(&fresh));
    let fill = IntentSettler::fillCall { intentId: id, payoutRef: id };
    let settle = IntentSettler::settleCall { intentId: id, preimage };
    let cancel = IntentSettler::cancelCall { intentId: id };
    [
        ("create", name(scene.revert_of(relayer, settler, &create).await)),
        ("fill", name(scene.revert_of(relayer, settler, &fill).await)),
        ("settle", name(scene.revert_of(relayer, settler, &settle).await)),
        ("cancel", name(scene.revert_of(anyone, settler, &cancel).await)),
        ("release", name(scene.revert_of(anyone, at, &Escrow::releaseCall { id, preimage }).await)),
        ("refund", name(scene.revert_of(anyone, at, &Escrow::refundCall { id }).await)),
    ]
}

/// The transactions that lead from nothing to a state.
async fn reach(scene: &Scene, order: &Order, state: &str) {
    let settler = scene.deployment.settler;
    let send = async |input: Vec<u8>| {
        assert!(scene.send(&scene.relayer, TxKind::Call(settler), input).await.status(), "{state}");
    };
    let id = order.id;
    if state != "none" {
        send(scene.create_call(order, scene.signed(order)).abi_encode()).await;
    }
    if matches!(state, "filled" | "settled") {
        send(IntentSettler::fillCall { intentId: id, payoutRef: id }.abi_encode()).await;
    }
    match state {
        "settled" => {
            send(IntentSettler::settleCall { intentId: id, preimage: order.preimage }.abi_encode()).await;
        }
        "cancelled" => {
            scene.next_block_at(order.fill_deadline).await;
            send(IntentSettler::cancelCall { intentId: id }.abi_encode()).await;
        }
        "created, released" => {
            let release = Escrow::releaseCall { id, preimage: order.preimage };
            assert!(scene.succeeds(&scene.admin, scene.deployment.escrow, &release).await);
        }
        _ => {}
    }
}

#[tokio::test]
async fn every_call_in_every_state_does_what_the_table_says() {
    let scene = at_epoch().await;
    let mut table = String::new();
    for state in ["none", "created", "filled", "settled", "cancelled", "created, released"] {
        let snapshot: String = raw(&scene.provider, "evm_snapshot", json!([])).await;
        let order = scene.order(1).await;
        reach(&scene, &order, state).await;
        let times = [
            ("in time", order.fill_deadline - 1),
            ("from the fill deadline", order.fill_deadline + 1),
            ("before the timelock", order.timelock - 1),
            ("at the timelock", order.timelock),
        ];
        let now = scene.now().await;
        for (when, time) in times.into_iter().filter(|(_, time)| *time > now) {
            scene.next_block_at(time).await;
            let _: Value = raw(&scene.provider, "evm_mine", json!([])).await;
            for (call, outcome) in calls(&scene, &order).await {
                writeln!(table, "{state:18} {when:23} {call:8} {outcome}").unwrap_or_default();
            }
        }
        assert!(raw::<bool>(&scene.provider, "evm_revert", json!([snapshot])).await);
    }
    expect("contracts/states.txt", &table);
}

#[tokio::test]
async fn whatever_is_called_in_whatever_order_the_escrow_holds_what_is_open() {
    let scene = at_epoch().await;
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let mut orders = Vec::new();
    for id in 1..=4 {
        orders.push(scene.order(id).await);
    }
    let mut seed = 0x5eed_u64;
    let mut choose = |count: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % count
    };
    let mut ends: BTreeMap<B256, u8> = BTreeMap::new();
    let mut passed = 0;
    for _ in 0..120 {
        let order = &mut orders[usize::try_from(choose(4)).unwrap_or_default()];
        let (id, preimage) = (order.id, order.preimage);
        if choose(6) == 0 {
            let time = scene.now().await + 1 + choose(250);
            scene.next_block_at(time).await;
        }
        order.nonce = scene.permit_nonce().await;
        let (from, to, input) = match choose(7) {
            0 | 1 => (&scene.relayer, settler, scene.create_call(order, scene.signed(order)).abi_encode()),
            2 => (
                &scene.relayer,
                settler,
                IntentSettler::fillCall { intentId: id, payoutRef: id }.abi_encode(),
            ),
            3 => (&scene.relayer, settler, IntentSettler::settleCall { intentId: id, preimage }.abi_encode()),
            4 => (&scene.admin, settler, IntentSettler::cancelCall { intentId: id }.abi_encode()),
            5 => (&scene.admin, at, Escrow::releaseCall { id, preimage }.abi_encode()),
            _ => (&scene.admin, at, Escrow::refundCall { id }.abi_encode()),
        };
        passed += u32::from(scene.send(from, TxKind::Call(to), input).await.status());
        let mut open = 0;
        let mut paid = 0;
        for order in &orders {
            let slot = scene.view(at, Escrow::slotsCall { id: order.id }).await;
            open += if slot.state == 1 { 100 } else { 0 };
            paid += if slot.state == 2 { 100 } else { 0 };
            let end = ends.entry(order.id).or_insert(slot.state);
            assert!(*end == slot.state || *end < 2, "released or refunded, it became the other");
            *end = slot.state;
        }
        assert_eq!(scene.balance(at).await, open);
        assert_eq!(scene.balance(scene.solver.address()).await, paid);
        assert_eq!(scene.balance(scene.maker.address()).await, FUNDS - open - paid);
    }
    assert!(passed > 8, "hardly anything happened: {passed}");
}

#[tokio::test]
async fn calls_cost_what_the_snapshot_says() {
    let scene = at_epoch().await;
    let (settler, at, anchor) = (scene.deployment.settler, scene.deployment.escrow, scene.deployment.anchor);
    let mut gas = BTreeMap::new();
    let mut cost = async |what: &'static str, by_relayer: bool, to: Address, input: Vec<u8>| {
        let from = if by_relayer { &scene.relayer } else { &scene.admin };
        let receipt = scene.send(from, TxKind::Call(to), input).await;
        assert!(receipt.status(), "{what}");
        gas.insert(what, receipt.gas_used);
    };
    let mut orders = Vec::new();
    for (id, what) in (1_u8..).zip(["create, first of a wallet", "create", "create, third"]) {
        let order = Order {
            permit_deadline: EPOCH + 90_000,
            fill_deadline: EPOCH + 10_000,
            timelock: EPOCH + 20_000,
            ..scene.order(id).await
        };
        cost(what, true, settler, scene.create_call(&order, scene.signed(&order)).abi_encode()).await;
        orders.push(order);
    }
    let id = orders[0].id;
    cost("fill", true, settler, IntentSettler::fillCall { intentId: id, payoutRef: id }.abi_encode()).await;
    let preimage = orders[0].preimage;
    cost("settle", true, settler, IntentSettler::settleCall { intentId: id, preimage }.abi_encode()).await;
    let (id, preimage) = (orders[1].id, orders[1].preimage);
    cost("release", false, at, Escrow::releaseCall { id, preimage }.abi_encode()).await;
    let hash = B256::repeat_byte(0x5e);
    cost("anchor", true, anchor, ReceiptAnchor::anchorCall { contentHash: hash }.abi_encode()).await;
    cost("anchor, again", true, anchor, ReceiptAnchor::anchorCall { contentHash: hash }.abi_encode()).await;
    scene.next_block_at(EPOCH + 10_000).await;
    let id = orders[2].id;
    cost("cancel", false, settler, IntentSettler::cancelCall { intentId: id }.abi_encode()).await;
    let spender = scene.deployment.permit;
    let approve = token::TestToken::approveCall { spender, value: U256::MAX };
    cost("approve", false, scene.token, approve.abi_encode()).await;
    let snapshot = serde_json::to_string_pretty(&gas).unwrap_or_default();
    expect("contracts/gas.json", &format!("{snapshot}\n"));
}

/// Compares with a committed file, or writes it when `UPDATE_EXPECT` is set.
fn expect(path: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, actual, "{} differs; UPDATE_EXPECT=1 rewrites it", path.display());
}
