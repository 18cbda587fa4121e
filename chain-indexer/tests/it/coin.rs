//! The chain's coin: deposits for orders, and payments in it.

use crate::support::{Chain, FUNDS, Order, Running, Scene, eventually, key, until, vault};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::providers::Provider;
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::settler::{IntentSettler, Orders};
use dvp_chain_indexer::contracts::{coin::CoinGate, payouts::Payouts, test_coin::TestCoin, token::TestToken};
use dvp_chain_indexer::deploy::{CoinContracts, DeployPlan, deploy};
use dvp_chain_indexer::relayer::Relayer;
use dvp_chain_indexer::rpc;
use dvp_chain_indexer::signing::{Fees, Unsigned, sign};
use dvp_domain::chain::{ChainCommand, ChainFact, TransferCommand};
use dvp_store::chain as store;
use dvp_store::database::lease::Lease;

alloy::sol!(
    #[derive(Debug)]
    OddPayee,
    "contracts/artifacts/OddPayee.json"
);

/// Stands for the coin as a payment's token.
const COIN: Address = Address::new(alloy::hex!("eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"));
const ACCEPTS: u8 = 0;
const REFUSES: u8 = 1;
const BURNS_GAS: u8 = 2;
const RETURNS_MEGABYTES: u8 = 3;
const REVERTS_WITH_MEGABYTES: u8 = 4;
const REENTERS: u8 = 5;

/// An order of 100 wei of the coin.
async fn coin_order(scene: &Scene, id: u8) -> Order {
    Order { token: scene.coin().wrapped, ..scene.order(id).await }
}

fn create(scene: &Scene, order: &Order) -> IntentSettler::createCall {
    scene.create_call(order, Vec::new())
}

fn swap(scene: &Scene, order: &Order, output: Orders::Output) -> IntentSettler::swapCall {
    let mut params = scene.swap_params(order, output);
    params.permit.signature = Bytes::new();
    IntentSettler::swapCall { params }
}

async fn held(scene: &Scene, account: Address) -> u64 {
    scene.view(scene.coin().wrapped, TestToken::balanceOfCall { account }).await.to()
}

async fn deposited(scene: &Scene, id: B256, by: Address) -> u64 {
    scene.view(scene.coin().gate, CoinGate::depositsCall { id, depositor: by }).await.to()
}

async fn payee(scene: &Scene) -> Address {
    let receipt = scene.send(&scene.admin, TxKind::Create, OddPayee::BYTECODE.clone()).await;
    receipt.contract_address.unwrap_or_else(|| panic!("no payee"))
}

async fn turn(scene: &Scene, payee: Address, oddity: u8) {
    turn_to_call(scene, payee, oddity, Address::ZERO, Vec::new()).await;
}

async fn turn_to_call(scene: &Scene, payee: Address, oddity: u8, target: Address, call: Vec<u8>) {
    let turn = OddPayee::turnCall { to: oddity, target, call_: call.into() };
    assert!(scene.succeeds(&scene.admin, payee, &turn).await);
}

fn pay(scene: &Scene, id: u8, receiver: Address, amount: u64) -> Payouts::payCall {
    let payment = Payouts::Payment { token: COIN, receiver, ..scene.payment(id, amount) };
    Payouts::payCall { payment, authorization: Bytes::new() }
}

#[tokio::test]
async fn an_order_takes_its_makers_deposit_and_the_rest_goes_back_in_coin() {
    let scene = Scene::new().await;
    let (at, gate, order) = (scene.deployment.settler, scene.coin().gate, coin_order(&scene, 1).await);
    let (maker, relayer) = (scene.maker.address(), scene.relayer.address());
    let create = create(&scene, &order);
    assert!(scene.deposits(scene.admin.address(), order.id, 1_000).await, "a stranger under the same id");
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "DepositTooSmall");
    assert!(scene.deposits(maker, order.id, 60).await, "before the order exists");
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "DepositTooSmall");
    assert!(scene.deposits(maker, order.id, 70).await);
    assert!(scene.succeeds(&scene.relayer, at, &create).await);
    assert_eq!(held(&scene, scene.deployment.escrow).await, 100);
    assert_eq!(deposited(&scene, order.id, maker).await, 30);
    assert_eq!(held(&scene, gate).await, 1_030);
    assert_eq!(scene.permit_nonce().await, U256::ZERO, "no permit is used up");

    scene.fill(&order).await;
    scene.settle(&order).await;
    assert_eq!(held(&scene, scene.solver.address()).await, 100, "the solver has wrapped coin");

    assert!(scene.deposits(maker, order.id, 5).await, "after the order has ended");
    let before = scene.coin_of(key(9).address()).await;
    let reclaim = CoinGate::reclaimCall { id: order.id, to: key(9).address() };
    assert!(scene.succeeds(&scene.maker, gate, &reclaim).await);
    assert_eq!(scene.coin_of(key(9).address()).await, before + U256::from(35));
    assert_eq!(scene.outcome_of(maker, gate, &reclaim).await, "NothingDeposited", "twice");
    let theirs = CoinGate::reclaimCall { id: order.id, to: scene.admin.address() };
    assert!(scene.succeeds(&scene.admin, gate, &theirs).await);
    assert_eq!(held(&scene, gate).await, 0);
    assert_eq!(scene.view(gate, CoinGate::seqCall {}).await, 7, "every event has its number");
}

#[tokio::test]
async fn a_reclaimed_deposit_locks_nothing() {
    let scene = Scene::new().await;
    let (at, order) = (scene.deployment.settler, coin_order(&scene, 1).await);
    let (maker, relayer) = (scene.maker.address(), scene.relayer.address());
    assert!(scene.deposits(maker, order.id, 100).await);
    let create = create(&scene, &order);
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "ok");
    let reclaim = CoinGate::reclaimCall { id: order.id, to: maker };
    assert!(scene.succeeds(&scene.maker, scene.coin().gate, &reclaim).await);
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "DepositTooSmall");
    assert!(!scene.succeeds(&scene.relayer, at, &create).await);
    assert_eq!(scene.state(order.id).await, 0);

    assert!(scene.deposits(maker, order.id, 100).await, "deposited again");
    scene.mine_at(order.lock_by + 1).await;
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "LockByPassed");
    assert!(scene.succeeds(&scene.maker, scene.coin().gate, &reclaim).await, "it is not lost");
}

#[tokio::test]
async fn the_funds_of_a_cancelled_order_go_back_as_wrapped_coin() {
    let scene = Scene::new().await;
    let (at, maker) = (scene.deployment.settler, scene.maker.address());
    let [first, second] = [coin_order(&scene, 1).await, coin_order(&scene, 2).await];
    for order in [&first, &second] {
        assert!(scene.deposits(maker, order.id, 100).await);
        assert!(scene.succeeds(&scene.relayer, at, &create(&scene, order)).await);
    }
    scene.cancel(&first).await;
    assert_eq!(held(&scene, maker).await, 100);
    scene.next_block_at(second.timelock).await;
    assert!(scene.succeeds(&scene.admin, scene.deployment.escrow, &scene.refund_call(&second)).await);
    assert_eq!(held(&scene, maker).await, 200);
    assert_eq!(held(&scene, scene.deployment.escrow).await, 0);
}

#[tokio::test]
async fn a_deposit_pays_for_its_own_order_in_the_coin_only() {
    let scene = Scene::new().await;
    let (at, gate, order) = (scene.deployment.settler, scene.coin().gate, coin_order(&scene, 1).await);
    let (maker, relayer) = (scene.maker.address(), scene.relayer.address());
    assert!(scene.deposits(maker, order.id, 100).await);
    let other_token = Order { token: scene.token, ..order.clone() };
    assert_eq!(scene.outcome_of(relayer, at, &create(&scene, &other_token)).await, "NotTheCoin");
    let other_id = Order { id: B256::repeat_byte(2), ..order.clone() };
    assert_eq!(scene.outcome_of(relayer, at, &create(&scene, &other_id)).await, "DepositTooSmall");
    let other_maker = Order { maker: scene.solver.clone(), ..order.clone() };
    assert_eq!(scene.outcome_of(relayer, at, &create(&scene, &other_maker)).await, "DepositTooSmall");
    let (token, id) = (scene.coin().wrapped, order.id);
    let claim = CoinGate::claimCall { id, maker, token, to: relayer, amount: U256::from(100) };
    assert_eq!(scene.outcome_of(relayer, gate, &claim).await, "OnlyEscrow");

    assert!(!scene.deposits(maker, order.id, 0).await, "nothing");
    for contract in [gate, scene.deployment.payouts, scene.deployment.escrow] {
        assert!(!scene.send_coin(maker, contract, Vec::new(), 1).await.status(), "coin for no order");
    }
    assert_eq!(held(&scene, gate).await, 100);
}

#[tokio::test]
async fn a_depositor_that_is_a_contract_takes_its_coin_back_and_nobodys_else() {
    let scene = Scene::new().await;
    let (gate, id) = (scene.coin().gate, B256::repeat_byte(1));
    let depositor = payee(&scene).await;
    let act = |call: Vec<u8>| OddPayee::actCall { target: gate, call_: call.into() };
    let deposit = act(CoinGate::depositCall { id }.abi_encode()).abi_encode();
    assert!(scene.send_coin(scene.admin.address(), depositor, deposit, 100).await.status());
    assert!(scene.deposits(scene.maker.address(), id, 100).await);
    assert_eq!(deposited(&scene, id, depositor).await, 100);

    let back = |to| act(CoinGate::reclaimCall { id, to }.abi_encode());
    for to in [gate, scene.coin().wrapped, scene.deployment.payouts, scene.deployment.escrow] {
        assert_eq!(scene.outcome_of(key(9).address(), depositor, &back(to)).await, "CoinRefused");
    }
    turn(&scene, depositor, REFUSES).await;
    assert_eq!(scene.outcome_of(key(9).address(), depositor, &back(depositor)).await, "CoinRefused");
    // The call from within the payment is refused, and the payment stands.
    turn_to_call(&scene, depositor, REENTERS, gate, CoinGate::reclaimCall { id, to: depositor }.abi_encode())
        .await;
    assert!(scene.succeeds(&scene.admin, depositor, &back(depositor)).await);
    assert_eq!(scene.view(depositor, OddPayee::reenteredCall {}).await, U256::ZERO);
    assert_eq!(scene.coin_of(depositor).await, U256::from(100));
    assert_eq!(held(&scene, gate).await, 100, "the other deposit");
}

#[tokio::test]
async fn a_payment_in_the_coin_is_made_once_from_the_payers_wrapped_coin() {
    let scene = Scene::new().await;
    scene.fund_solver_in_coin(1_000).await;
    let (at, relayer, receiver) = (scene.deployment.payouts, scene.relayer.address(), key(0xcc).address());
    let call = pay(&scene, 1, receiver, 400);
    let receipt = scene.send(&scene.relayer, TxKind::Call(at), call.abi_encode()).await;
    let paid = receipt.logs().iter().find_map(|log| Payouts::Paid::decode_log(&log.inner).ok());
    assert_eq!(paid.map(|paid| (paid.token, paid.amount)), Some((COIN, U256::from(400))));
    assert_eq!(scene.coin_of(receiver).await, U256::from(400));
    assert_eq!(held(&scene, scene.solver.address()).await, 600);
    assert_eq!([held(&scene, at).await, scene.coin_of(at).await.to()], [0, 0], "nothing stays behind");
    assert_eq!(scene.outcome_of(relayer, at, &call).await, "AlreadyPaid");
    let too_much = pay(&scene, 2, receiver, 601);
    assert_eq!(scene.outcome_of(relayer, at, &too_much).await, "CapExceeded");
    // A payment in wrapped coin counts against the same cap.
    let wrapped = Payouts::Payment { token: scene.coin().wrapped, receiver, ..scene.payment(3, 600) };
    let call = Payouts::payCall { payment: wrapped, authorization: Bytes::new() };
    assert!(scene.succeeds(&scene.relayer, at, &call).await);
    assert_eq!(scene.outcome_of(relayer, at, &pay(&scene, 4, receiver, 1)).await, "CapExceeded");
}

#[tokio::test]
async fn a_receiver_that_refuses_is_not_paid_and_one_that_calls_back_changes_nothing() {
    let scene = Scene::new().await;
    scene.fund_solver_in_coin(1_000).await;
    let (at, relayer) = (scene.deployment.payouts, scene.relayer.address());
    let odd = payee(&scene).await;
    let call = pay(&scene, 1, odd, 10);
    for (oddity, outcome) in [
        (REFUSES, "CoinRefused"),
        (BURNS_GAS, "CoinRefused"),
        (REVERTS_WITH_MEGABYTES, "CoinRefused"),
        (RETURNS_MEGABYTES, "ok"),
    ] {
        turn(&scene, odd, oddity).await;
        assert_eq!(scene.outcome_of(relayer, at, &call).await, outcome, "{oddity}");
    }
    for receiver in [scene.coin().wrapped, scene.coin().gate, at, scene.deployment.escrow] {
        assert_eq!(scene.outcome_of(relayer, at, &pay(&scene, 1, receiver, 10)).await, "CoinRefused");
    }
    // The receiver may call as a relayer, and every call is still refused.
    scene.make_relayer(at, odd).await;
    turn_to_call(&scene, odd, REENTERS, at, pay(&scene, 2, odd, 10).abi_encode()).await;
    assert!(scene.succeeds(&scene.relayer, at, &call).await);
    assert_eq!(scene.view(odd, OddPayee::reenteredCall {}).await, U256::ZERO);
    assert_eq!(scene.coin_of(odd).await, U256::from(10));
    assert_eq!(held(&scene, scene.solver.address()).await, 990);

    // In a batch it fails alone.
    turn(&scene, odd, BURNS_GAS).await;
    let items = [(3, odd), (4, key(0xcd).address())].map(|(id, receiver)| {
        let Payouts::payCall { payment, authorization } = pay(&scene, id, receiver, 10);
        Payouts::PayParams { payment, authorization }
    });
    let many =
        Payouts::payManyCall { items: items.into(), itemGas: U256::from(400_000), atLeast: U256::from(1) };
    assert!(scene.succeeds(&scene.relayer, at, &many).await);
    assert_eq!(scene.coin_of(key(0xcd).address()).await, U256::from(10));
    assert_eq!(scene.coin_of(odd).await, U256::from(10));
}

#[tokio::test]
async fn a_swap_takes_the_coin_or_pays_it_and_both_sides_move_at_once() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    scene.fund_solver_in_coin(1_000).await;
    let (at, relayer, solver) = (scene.deployment.settler, scene.relayer.address(), scene.solver.address());
    let to_token = coin_order(&scene, 1).await;
    assert!(scene.deposits(scene.maker.address(), to_token.id, 100).await);
    let call = swap(&scene, &to_token, scene.output(key(0xcc).address(), 40));
    assert!(scene.succeeds(&scene.relayer, at, &call).await);
    assert_eq!(scene.balance(key(0xcc).address()).await, 40);
    assert_eq!(held(&scene, solver).await, 1_100);

    let to_coin = scene.order(2).await;
    let output = |receiver| Orders::Output { token: COIN, ..scene.output(receiver, 300) };
    let odd = payee(&scene).await;
    turn(&scene, odd, REFUSES).await;
    let refused = IntentSettler::swapCall { params: scene.swap_params(&to_coin, output(odd)) };
    assert_eq!(scene.outcome_of(relayer, at, &refused).await, "CoinRefused");
    assert!(!scene.succeeds(&scene.relayer, at, &refused).await);
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS, "neither side has moved");
    // From within the payment nobody comes into the settler, the payouts or the order's own funds.
    let other = coin_order(&scene, 3).await;
    assert!(scene.deposits(scene.maker.address(), other.id, 100).await);
    scene.make_relayer(at, odd).await;
    turn_to_call(&scene, odd, REENTERS, at, create(&scene, &other).abi_encode()).await;
    assert!(scene.succeeds(&scene.relayer, at, &refused).await);
    assert_eq!(scene.view(odd, OddPayee::reenteredCall {}).await, U256::ZERO);
    assert_eq!(scene.coin_of(odd).await, U256::from(300));
    assert_eq!(held(&scene, solver).await, 800);
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS - 100);
}

#[tokio::test]
async fn contracts_without_a_wrapped_coin_refuse_the_coin() {
    let mut scene = Scene::new().await;
    let solver = scene.solver.address();
    let plan = DeployPlan {
        relayers: vec![scene.relayer.address()],
        solvers: vec![solver],
        ..DeployPlan::default()
    };
    let order = coin_order(&scene, 1).await;
    let url = scene.node.rpc_url();
    scene.deployment = deploy(&url, &scene.admin, &plan, None).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scene.deployment.coin, None);
    let relayer = scene.relayer.address();
    let refused = scene.outcome_of(relayer, scene.deployment.settler, &create(&scene, &order)).await;
    assert_eq!(refused, "NoGate");
    let refused = scene.outcome_of(relayer, scene.deployment.payouts, &pay(&scene, 1, solver, 1)).await;
    assert_eq!(refused, "NoCoinHere");
    let record: serde_json::Value = serde_json::to_value(&scene.deployment).unwrap_or_default();
    assert!(record.get("coin").is_none(), "a record without a gate has no member for it");
}

#[tokio::test]
async fn a_deposit_for_a_gate_that_the_escrow_does_not_know_is_impossible() {
    let scene = Scene::new().await;
    let CoinContracts { wrapped, .. } = scene.coin();
    let args = alloy::sol_types::SolConstructor::abi_encode(&CoinGate::constructorCall {
        wrapped_: wrapped,
        escrow_: scene.deployment.escrow,
    });
    let code = [CoinGate::BYTECODE.as_ref(), &args].concat();
    assert!(!scene.send(&scene.admin, TxKind::Create, code).await.status(), "a second gate");
    let mint = TestCoin::mintCall { to: scene.maker.address(), amount: U256::from(1) };
    assert!(scene.succeeds(&scene.admin, wrapped, &mint).await);
}

/// A chain with a payment of 10 wei of the coin to a contract, as the engine requests it. Every block that is not among
/// the newest ones is final.
async fn paying_chain(not_after: u64) -> (Chain, Address) {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.scene.fund_solver_in_coin(1_000).await;
    let odd = payee(&chain.scene).await;
    chain.command("one", payment(&chain, 0x71, odd, not_after)).await;
    (chain, odd)
}

fn payment(chain: &Chain, id: u8, receiver: Address, not_after: u64) -> ChainCommand {
    let transfer = chain.scene.transfer(B256::repeat_byte(id), receiver, 10);
    ChainCommand::Transfer(Box::new(TransferCommand { token: COIN.to_string(), not_after, ..transfer }))
}

/// Another account signs the payment, is taken out of service, and its transaction is given up. Returns the
/// transaction's bytes.
async fn sign_and_give_up(chain: &Chain) -> Vec<u8> {
    let account = &chain.scene.other_relayer;
    let (chain_id, signer) = (chain.config.chain_id, account.address());
    chain.sign_as(account).await;
    let mut conn = chain.pool().acquire().await.unwrap();
    let (hash, sealed): (Vec<u8>, Vec<u8>) =
        sqlx::query_as("select hash, sealed from tx_attempt").fetch_one(&mut *conn).await.unwrap();
    assert_eq!(store::abandon_slots(&mut conn, chain_id, signer).await.unwrap(), 1);
    store::note_unable(&mut conn, chain_id, signer).await.unwrap();
    vault().open(&format!("tx:{}", B256::from_slice(&hash)), &sealed).unwrap()
}

async fn relayer(chain: &Chain) -> (Relayer, Lease) {
    (chain.relayer(), chain.lease("relayer").await)
}

/// The payment's state after a turn in which it was due.
async fn judged(chain: &Chain, (relayer, lease): &mut (Relayer, Lease)) -> String {
    chain.run("update chain_command set not_before = now()").await;
    relayer.turn(lease).await.unwrap();
    chain.one("select state from chain_command").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_was_never_signed_fails_when_its_receiver_refuses() {
    let (chain, odd) = paying_chain(u64::MAX).await;
    turn(&chain.scene, odd, REFUSES).await;
    assert_eq!(judged(&chain, &mut relayer(&chain).await).await, "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_payment_fails_only_at_a_final_block_after_its_last_second() {
    // The time of the node is the clock's.
    let not_after = dvp_core::context::now().unix_secs() + 3_600;
    let (chain, odd) = paying_chain(not_after).await;
    sign_and_give_up(&chain).await;
    turn(&chain.scene, odd, REFUSES).await;
    let mut another = relayer(&chain).await;
    assert_eq!(judged(&chain, &mut another).await, "pending", "its transaction may still be included");

    let _indexing = Running::indexer(&chain);
    let refused_at = chain.scene.now().await;
    eventually("the refusal is final", async || {
        chain.mined(1).await;
        let last = BlockId::number(chain.cursor().await?.final_number.0);
        let last = rpc::block(&chain.scene.provider, last).await.unwrap()?;
        (last.timestamp > refused_at).then_some(())
    })
    .await;
    assert_eq!(judged(&chain, &mut another).await, "pending", "a final refusal before the last second");

    chain.scene.pass(4_000).await;
    until("it fails", async || {
        chain.mined(1).await;
        judged(&chain, &mut another).await == "failed"
    })
    .await;
    let facts = chain.facts(B256::repeat_byte(0x71)).await;
    assert!(matches!(&facts[..], [ChainFact::CommandFailed { .. }]), "{facts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_that_become_expensive_fail_alone_in_their_batch() {
    let (chain, odd) = paying_chain(u64::MAX).await;
    for id in 0x81..0x8c {
        chain.command(&id.to_string(), payment(&chain, id, odd, u64::MAX)).await;
    }
    let good = key(0xcd).address();
    chain.command("last", payment(&chain, 0x90, good, u64::MAX)).await;
    let (mut relayer, lease) = relayer(&chain).await;
    chain.sign_as(&chain.scene.relayer).await;
    assert_eq!(chain.attempts().await.len(), 1, "all in one transaction");
    turn(&chain.scene, odd, BURNS_GAS).await;
    chain.run("update chain_command set not_before = now() + interval '1 hour'").await;
    relayer.turn(&lease).await.unwrap();
    chain.mined(1).await;
    assert_eq!(chain.scene.coin_of(good).await, U256::from(10));
    assert_eq!(chain.scene.coin_of(odd).await, U256::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_by_a_transaction_that_was_given_up_is_made_after_a_refusal() {
    let (chain, odd) = paying_chain(u64::MAX).await;
    let bytes = sign_and_give_up(&chain).await;
    turn(&chain.scene, odd, REFUSES).await;
    assert_eq!(judged(&chain, &mut relayer(&chain).await).await, "pending");
    turn(&chain.scene, odd, ACCEPTS).await;
    drop(chain.scene.provider.send_raw_transaction(&bytes).await.unwrap());
    until("it is paid", async || chain.scene.coin_of(odd).await == U256::from(10)).await;
    let _running = Running::start(&chain);
    chain.state("one", "transfer", "done").await;
    let facts = chain.facts(B256::repeat_byte(0x71)).await;
    assert!(matches!(&facts[..], [ChainFact::Transferred { .. }]), "{facts:?}");
}

/// Mines a block in which the receiver burns its gas and after which it accepts again, as every simulation sees it. The
/// node orders a block by fees.
async fn mine_while_it_burns(scene: &Scene, odd: Address) {
    let nonce = rpc::mined_nonce(&scene.provider, scene.admin.address(), BlockId::latest()).await.unwrap();
    let base_fee = u128::from(rpc::head(&scene.provider).await.unwrap().base_fee);
    let first = Fees { max_fee: 1_000_000_000_000, priority_fee: 2_000_000_000 };
    let last = Fees { max_fee: base_fee, priority_fee: 0 };
    for (nonce, oddity, fees) in [(nonce, BURNS_GAS, first), (nonce + 1, ACCEPTS, last)] {
        let call = OddPayee::turnCall { to: oddity, target: Address::ZERO, call_: Bytes::new() };
        let (chain_id, to) = (scene.deployment.chain_id, TxKind::Call(odd));
        let input = call.abi_encode().into();
        let tx = Unsigned { chain_id, nonce, to, input, gas_limit: 200_000, fees };
        let signed = sign(&scene.admin, tx).unwrap();
        drop(scene.provider.send_raw_transaction(&signed.raw).await.unwrap());
    }
    scene.mine().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_reverts_in_every_block_is_signed_ever_less_often() {
    let (chain, odd) = paying_chain(u64::MAX).await;
    let (mut relayer, lease) = relayer(&chain).await;
    chain.automine(false).await;
    for _ in 0..20 {
        relayer.turn(&lease).await.unwrap();
        mine_while_it_burns(&chain.scene, odd).await;
    }
    relayer.turn(&lease).await.unwrap();
    let has_reverted: bool = chain.one("select state <> 'done' and tries >= 1 from chain_command").await;
    assert!(has_reverted);
    assert_eq!(chain.scene.coin_of(odd).await, U256::ZERO);
    let signed = chain.attempts().await.len();
    assert!(signed <= 5, "{signed} transactions in 21 turns");
}
