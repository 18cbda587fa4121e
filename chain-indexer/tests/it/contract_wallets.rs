//! Wallets that are contracts: what their owners sign, what they answer, and what a wallet takes back.

use crate::support::{Chain, Order, Running, Scene, key, name, raw, until};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall as _;
use alloy::sol_types::SolConstructor as _;
use alloy::sol_types::SolEvent as _;
use dvp_chain_indexer::ChainWallets;
use dvp_chain_indexer::contracts::permit::Permit;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_chain_indexer::contracts::test_wallet::TestWallet;
use dvp_chain_indexer::contracts::token::TestToken;
use dvp_chain_indexer::rpc::{self, Simulated};
use dvp_core::chain::{Confirmation, SignedHash, WalletReader as _};
use dvp_domain::chain::ChainFact;
use serde_json::{Value, json};
use std::time::Duration;

const BY_SIGNATURES: u8 = 0;
const REFUSES: u8 = 1;
const REVERTS: u8 = 2;
const BURNS_GAS: u8 = 3;
const RETURNS_MEGABYTES: u8 = 4;
const RETURNS_NOTHING: u8 = 5;
const ONLY_WITH_MUCH_GAS: u8 = 6;
const ONLY_IN_SIMULATIONS: u8 = 7;

/// The owners of every wallet here, ascending by their addresses, as the wallet wants their signatures.
fn owners() -> [PrivateKeySigner; 3] {
    let mut owners = [key(0x71), key(0x72), key(0x73)];
    owners.sort_by_key(PrivateKeySigner::address);
    owners
}

/// A funded wallet of which so many owners sign, and which has approved the permit contract.
async fn wallet(scene: &Scene, threshold: u64) -> Address {
    let constructor = TestWallet::constructorCall {
        owners: owners().map(|owner| owner.address()).to_vec(),
        threshold_: U256::from(threshold),
    };
    let code = [TestWallet::BYTECODE.to_vec(), constructor.abi_encode()].concat();
    let wallet = scene.send(&scene.admin, TxKind::Create, code).await.contract_address.unwrap();
    let mint = TestToken::mintCall { to: wallet, amount: U256::from(1_000) };
    assert!(scene.succeeds(&scene.admin, scene.token, &mint).await);
    let approve = TestToken::approveCall { spender: scene.deployment.permit, value: U256::MAX };
    act(scene, wallet, scene.token, approve.abi_encode()).await;
    wallet
}

/// A call of the wallet, by an owner.
async fn act(scene: &Scene, wallet: Address, target: Address, call: Vec<u8>) {
    let [owner, ..] = owners();
    let _: Value =
        raw(&scene.provider, "anvil_setBalance", json!([owner.address(), "0xde0b6b3a7640000"])).await;
    let act = TestWallet::actCall { target, value: U256::ZERO, call_: call.into() };
    assert!(scene.succeeds(&owner, wallet, &act).await);
}

async fn turn(scene: &Scene, wallet: Address, answer: u8) {
    assert!(scene.succeeds(&scene.admin, wallet, &TestWallet::turnCall { to: answer }).await);
}

/// The signatures of so many owners.
async fn by_owners(scene: &Scene, order: &Order, count: usize) -> Vec<u8> {
    let hash = scene.permit_digest(order, scene.deployment.escrow);
    let message = scene.view(order.payer(), TestWallet::messageHashCall { hash }).await;
    let signed = |owner: &PrivateKeySigner| owner.sign_hash_sync(&message).unwrap().as_bytes().to_vec();
    owners().iter().take(count).flat_map(signed).collect()
}

async fn order(scene: &Scene, id: u8, wallet: Address) -> Order {
    let nonce = scene.permit_nonce_of(wallet).await;
    Order { wallet: Some(wallet), nonce, ..scene.order(id).await }
}

async fn outcome(scene: &Scene, order: &Order, signature: Vec<u8>) -> String {
    let create = scene.create_call(order, signature);
    scene.outcome_of(scene.relayer.address(), scene.deployment.settler, &create).await
}

#[tokio::test]
async fn a_contract_pays_with_the_signatures_of_its_owners() {
    let scene = Scene::new().await;
    let at = scene.deployment.settler;
    for (id, threshold) in [(1, 1_u8), (2, 2)] {
        let wallet = wallet(&scene, threshold.into()).await;
        let order = order(&scene, id, wallet).await;
        let signature = by_owners(&scene, &order, threshold.into()).await;
        assert_eq!(signature.len(), usize::from(threshold) * 65);
        let create = scene.create_call(&order, signature);
        assert!(scene.succeeds(&scene.relayer, at, &create).await);
        assert_eq!(scene.permit_nonce_of(wallet).await, order.nonce + U256::from(1));
        match threshold {
            1 => {
                scene.fill(&order).await;
                scene.settle(&order).await;
                assert_eq!(scene.balance(wallet).await, 900);
                assert_eq!(scene.balance(scene.solver.address()).await, 100);
            }
            _ => {
                assert!(scene.succeeds(&scene.relayer, at, &scene.cancel_call(&order)).await);
                assert_eq!(scene.balance(wallet).await, 1_000, "it goes back to the contract");
            }
        }
    }
}

#[tokio::test]
async fn what_a_contract_does_not_confirm_locks_nothing() {
    let scene = Scene::new().await;
    let (one, other) = (wallet(&scene, 2).await, wallet(&scene, 2).await);
    let order = order(&scene, 1, one).await;
    let signature = by_owners(&scene, &order, 2).await;
    assert_eq!(outcome(&scene, &order, signature.clone()).await, "ok");
    let anothers = Order { wallet: Some(other), ..order.clone() };
    assert_eq!(outcome(&scene, &anothers, signature.clone()).await, "SignatureRefused", "of the same owners");
    assert_eq!(outcome(&scene, &order, signature[..65].to_vec()).await, "SignatureRefused", "one of two");
    assert_eq!(outcome(&scene, &order, signature.repeat(2)).await, "SignatureRefused");
    let [owner, ..] = owners();
    let plain = scene.sign(&owner, &order, scene.deployment.escrow);
    assert_eq!(outcome(&scene, &order, plain).await, "SignatureRefused", "an owner's own");
    let more = Order { amount: U256::from(101), permitted: U256::from(101), ..order.clone() };
    assert_eq!(outcome(&scene, &more, signature.clone()).await, "SignatureRefused");
    for answer in [REFUSES, REVERTS, BURNS_GAS, RETURNS_MEGABYTES, RETURNS_NOTHING, ONLY_WITH_MUCH_GAS] {
        turn(&scene, one, answer).await;
        assert_eq!(outcome(&scene, &order, signature.clone()).await, "SignatureRefused", "{answer}");
    }
    turn(&scene, one, BY_SIGNATURES).await;
    let at = scene.deployment.settler;
    let create = scene.create_call(&order, signature.clone());
    assert!(scene.succeeds(&scene.relayer, at, &create).await);
    let again = Order { id: B256::repeat_byte(9), ..order };
    assert_eq!(outcome(&scene, &again, signature).await, "InvalidNonce", "used up");
}

#[tokio::test]
async fn a_wallet_that_burns_gas_costs_its_batch_nothing_but_its_order() {
    let scene = Scene::new().await;
    let burning = wallet(&scene, 1).await;
    turn(&scene, burning, BURNS_GAS).await;
    let bad = order(&scene, 0x70, burning).await;
    let signature = by_owners(&scene, &bad, 1).await;
    let good = scene.orders(1, 6).await;
    let mut items: Vec<_> =
        good.iter().map(|order| scene.create_params(order, scene.signed(order))).collect();
    items.insert(3, scene.create_params(&bad, signature));
    let call = IntentSettler::createManyCall { items, itemGas: U256::from(500_000), atLeast: U256::from(7) };
    let receipt = scene.send_with_gas(&scene.relayer, scene.deployment.settler, &call, 8_000_000).await;
    assert!(receipt.status());
    let logs = receipt.logs().iter();
    let failed: Vec<(B256, String)> = logs
        .filter_map(|log| IntentSettler::ItemFailed::decode_log(&log.inner).ok())
        .map(|event| (event.data.id, name(Some(event.data.reason.clone()))))
        .collect();
    assert_eq!(failed, [(bad.id, "SignatureRefused".to_owned())]);
    for order in &good {
        assert_eq!(scene.state(order.id).await, 1);
    }
    assert_eq!(scene.state(bad.id).await, 0);
    assert_eq!(scene.balance(burning).await, 1_000);
}

#[tokio::test]
async fn a_caller_short_of_gas_cannot_make_a_wallet_refuse() {
    let scene = Scene::new().await;
    let wallet = wallet(&scene, 1).await;
    let order = order(&scene, 1, wallet).await;
    let digest = scene.permit_digest(&order, scene.deployment.escrow);
    let signature = by_owners(&scene, &order, 1).await;
    turn(&scene, wallet, BURNS_GAS).await;
    let call = Permit::confirmsCall { owner: wallet, digest, signature: signature.into() };
    let mut answers = Vec::new();
    for gas in (200_000..320_000).step_by(2_000) {
        let answer = rpc::simulate(
            &scene.provider,
            scene.relayer.address(),
            scene.deployment.permit,
            call.abi_encode().into(),
            gas,
            BlockId::latest(),
        );
        answers.push(match answer.await.unwrap() {
            Simulated::Succeeds(_) => "answered".to_owned(),
            Simulated::Reverts { data, .. } => name(Some(data)),
        });
    }
    let short = answers.iter().take_while(|answer| *answer == "CheckOutOfGas").count();
    assert!((20..50).contains(&short), "{answers:?}");
    assert!(answers[short..].iter().all(|answer| answer == "answered"), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_confirms_in_simulations_only_costs_three_transactions() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    let wallet = wallet(scene, 1).await;
    let order = order(scene, 1, wallet).await;
    let signature = by_owners(scene, &order, 1).await;
    turn(scene, wallet, ONLY_IN_SIMULATIONS).await;
    assert_eq!(outcome(scene, &order, signature.clone()).await, "ok");
    chain.command("two-faced", scene.signed_command(&order, signature)).await;
    let _running = Running::start(&chain);
    until("three failures", async || chain.rows::<(i32,)>("select tries from chain_command").await == [(3,)])
        .await;
    // A fourth transaction would go after eight seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(chain.rows::<(String,)>("select state from chain_command").await, [("pending".to_owned(),)]);
    scene.mine_at(order.lock_by + 1).await;
    chain.state("two-faced", "create", "failed").await;
    let facts = chain.facts(order.id).await;
    let [ChainFact::CommandFailed { code, .. }] = facts.as_slice() else { panic!("{facts:?}") };
    assert_eq!(code, "permit_refused");
    assert_eq!(scene.balance(wallet).await, 1_000);
    assert_eq!(chain.attempts().await.len(), 3, "each costs gas");
}

#[tokio::test]
async fn an_account_that_delegates_to_a_contract_signs_with_its_own_key() {
    let scene = Scene::new().await;
    let delegate = wallet(&scene, 1).await;
    let order = scene.order(1).await;
    // EIP-7702.
    let code = Bytes::from([&[0xef, 0x01, 0x00], delegate.as_slice()].concat());
    let _: Value = raw(&scene.provider, "anvil_setCode", json!([order.payer(), code])).await;
    assert_eq!(outcome(&scene, &order, scene.signed(&order)).await, "ok");
    let [owner, ..] = owners();
    let anothers = scene.sign(&owner, &order, scene.deployment.escrow);
    assert_eq!(outcome(&scene, &order, anothers).await, "SignatureRefused");
}

#[tokio::test]
async fn a_wallet_takes_its_permits_back_and_later_ones_follow() {
    let scene = Scene::new().await;
    let permit = scene.deployment.permit;
    let first = scene.order(1).await;
    let third = Order { id: B256::repeat_byte(3), nonce: first.nonce + U256::from(2), ..first.clone() };
    assert_eq!(outcome(&scene, &third, scene.signed(&third)).await, "InvalidNonce", "two are missing");
    let invalidate = |to: U256| Permit::invalidateCall { next: to };
    let back = invalidate(first.nonce);
    assert_eq!(scene.outcome_of(scene.maker.address(), permit, &back).await, "InvalidNonce", "not backwards");
    let far = invalidate(first.nonce + U256::from(65_536));
    assert_eq!(scene.outcome_of(scene.maker.address(), permit, &far).await, "TooManyInvalidated");
    let sent = scene.send(&scene.maker, TxKind::Call(permit), invalidate(third.nonce).abi_encode()).await;
    let event = Permit::Invalidated::decode_log(&sent.logs()[0].inner).unwrap();
    assert_eq!((event.owner, event.next), (scene.maker.address(), third.nonce));
    assert_eq!(outcome(&scene, &first, scene.signed(&first)).await, "InvalidNonce", "taken back");
    assert_eq!(outcome(&scene, &third, scene.signed(&third)).await, "ok", "no longer stranded");
    assert_eq!(scene.permit_nonce_of(scene.solver.address()).await, U256::ZERO, "of others nothing changes");
}

#[tokio::test]
async fn the_service_asks_a_wallet_as_the_contract_does() {
    let scene = Scene::new().await;
    let wallet = wallet(&scene, 2).await;
    let order = order(&scene, 1, wallet).await;
    let digest = scene.permit_digest(&order, scene.deployment.escrow).0;
    let signature = by_owners(&scene, &order, 2).await;
    let url = scene.node.rpc_url();
    let reader = ChainWallets::over([url.as_str()], scene.deployment.permit).unwrap();
    let confirm = async |owner: Address, signature: Vec<u8>| {
        reader.confirm(&format!("{owner:#x}"), &SignedHash { digest, signature }).await.unwrap()
    };
    assert_eq!(confirm(wallet, signature.clone()).await, Confirmation::Confirmed);
    assert_eq!(confirm(wallet, signature[..65].to_vec()).await, Confirmation::Refused);
    assert_eq!(confirm(scene.maker.address(), signature.clone()).await, Confirmation::NoContract);
    for answer in [REFUSES, REVERTS, BURNS_GAS, RETURNS_MEGABYTES, RETURNS_NOTHING, ONLY_WITH_MUCH_GAS] {
        turn(&scene, wallet, answer).await;
        assert_eq!(confirm(wallet, signature.clone()).await, Confirmation::Refused, "{answer}");
    }
    assert_eq!(confirm(scene.token, signature).await, Confirmation::Refused, "a contract that is no wallet");
    let nowhere = ChainWallets::over(["http://127.0.0.1:1"], scene.deployment.permit).unwrap();
    let signed = SignedHash { digest, signature: vec![0; 65] };
    assert!(nowhere.confirm(&format!("{wallet:#x}"), &signed).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_changes_its_mind_costs_nobody_but_its_order() {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    let (steady, fickle) = (wallet(scene, 2).await, wallet(scene, 2).await);
    let orders = [(1, steady), (2, fickle)].map(|(id, wallet)| order(scene, id, wallet));
    let [first, second] = orders;
    let (first, second) = (first.await, second.await);
    let third = scene.order(3).await;
    for (reference, order) in [("steady", &first), ("fickle", &second)] {
        let signature = by_owners(scene, order, 2).await;
        chain.command(reference, scene.signed_command(order, signature)).await;
    }
    chain.command("account", scene.create_command(&third)).await;
    turn(scene, fickle, REFUSES).await;
    let _running = Running::start(&chain);
    chain.all_created([&first, &third]).await;
    chain.state("fickle", "create", "failed").await;
    let facts = chain.facts(second.id).await;
    let [ChainFact::CommandFailed { code, message, .. }] = facts.as_slice() else { panic!("{facts:?}") };
    assert_eq!(code, "permit_refused");
    assert!(message.contains("does not confirm the permit's signature"), "{message}");
    assert_eq!(scene.balance(fickle).await, 1_000);
    assert_eq!(scene.balance(steady).await, 900);
}
