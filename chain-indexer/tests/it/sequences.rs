//! Random sequences of calls by all accounts, in batches and singly, while time passes and a token misbehaves.
//!
//! `DVP_CONTRACT_SEEDS=200` runs that many seeds instead of a few; a failure names its seed.

use crate::support::odd::{OddToken, PAUSED};
use crate::support::{FUNDS, OPERATORS, Order, Scene, key, raw, set_balance};
use alloy::primitives::{Address, B256, Bytes, TxKind, U256, keccak256};
use alloy::providers::Provider;
use alloy::rpc::types::Filter;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::{
    coin::CoinGate, escrow::Escrow, payouts::Payouts, settler::IntentSettler, token::TestToken,
};
use dvp_chain_indexer::deploy::CoinContracts;
use dvp_chain_indexer::sim::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SEEDS: u64 = 3;
const STEPS: usize = 70;
const ORDERS: u8 = 8;
const ITEM_GAS: u64 = 600_000;
const LOCKED: u8 = 1;
const FILLED: u8 = 2;
/// Stands for the coin as a payment's token.
const COIN: Address = Address::new(alloy::hex!("eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"));

fn one_in(rng: &mut Rng, count: u64) -> bool {
    rng.between(1, count) == 1
}

/// A transaction, and for a batch the equivalent single calls.
struct Tx {
    from: PrivateKeySigner,
    to: Address,
    input: Bytes,
    singly: Vec<Bytes>,
}

struct World {
    scene: Scene,
    rng: Rng,
    orders: Vec<Order>,
    /// The scene's token, which is correct, one that is not, and the wrapped coin.
    tokens: [Address; 3],
    start: u64,
    /// Calls that changed something.
    passed: u32,
    refused_items: u32,
}

impl World {
    async fn new(seed: u64) -> Self {
        let scene = Scene::new().await;
        let maker = scene.maker.address();
        let odd = scene.odd_token().await;
        for (to, value) in [(maker, FUNDS - 1_000), (scene.solver.address(), FUNDS)] {
            let mint = OddToken::mintCall { to, value: U256::from(value) };
            assert!(scene.succeeds(&scene.admin, odd, &mint).await);
        }
        scene.allow_payouts(odd, 500).await;
        scene.fund_solver(FUNDS).await;
        set_balance(&scene.provider, key(0xee).address()).await;
        let mut rng = Rng::new(seed);
        let tokens = [scene.token, odd, scene.coin().wrapped];
        scene.fund_solver_in_coin(500).await;
        let start = scene.now().await;
        let mut orders = Vec::new();
        for id in 1..=ORDERS {
            let fill_deadline = start + 60 + rng.between(0, 199);
            orders.push(Order {
                id: keccak256([id]),
                token: *rng.pick(&tokens),
                amount: U256::from(50 + rng.between(0, 49)),
                permit_deadline: start + 100_000,
                lock_by: start + 20 + rng.between(0, 199),
                fill_deadline,
                timelock: fill_deadline + 1 + rng.between(0, 199),
                ..scene.order(id).await
            });
        }
        Self { scene, rng, orders, tokens, start, passed: 0, refused_items: 0 }
    }

    fn any(&mut self) -> Order {
        self.rng.pick(&self.orders).clone()
    }

    /// An authorized account, and sometimes an unauthorized one.
    fn caller(&mut self, rightful: &PrivateKeySigner) -> PrivateKeySigner {
        if !one_in(&mut self.rng, 8) {
            return rightful.clone();
        }
        let scene = &self.scene;
        let others = [&scene.maker, &scene.solver, &scene.admin, &scene.relayer, &key(0xee)];
        (*self.rng.pick(&others)).clone()
    }

    fn is_coin(&self, order: &Order) -> bool {
        order.token == self.tokens[2]
    }

    /// The maker, or somebody else, deposits for an order or takes back what it has deposited.
    async fn deposit(&mut self) {
        let order = self.any();
        let by = if one_in(&mut self.rng, 4) { key(0xee) } else { self.scene.maker.clone() };
        if one_in(&mut self.rng, 3) {
            let call = CoinGate::reclaimCall { id: order.id, to: key(0xed).address() };
            let to = TxKind::Call(self.scene.coin().gate);
            self.passed += u32::from(self.scene.send(&by, to, call.abi_encode()).await.status());
        } else {
            let wei = 1 + self.rng.between(0, 149);
            assert!(self.scene.deposits(by.address(), order.id, wei).await);
        }
        self.holds().await;
    }

    async fn deposited(&self) -> U256 {
        let scene = &self.scene;
        let mut sum = U256::ZERO;
        for order in &self.orders {
            for depositor in [scene.maker.address(), key(0xee).address()] {
                let call = CoinGate::depositsCall { id: order.id, depositor };
                sum += scene.view(scene.coin().gate, call).await;
            }
        }
        sum
    }

    async fn create_params(&self, order: &Order, ahead: u64) -> IntentSettler::CreateParams {
        let nonce = self.scene.permit_nonce().await + U256::from(ahead);
        let order = Order { nonce, permitted: order.amount, ..order.clone() };
        // An order in the coin takes the maker's deposit.
        let signed = if self.is_coin(&order) { Vec::new() } else { self.scene.signed(&order) };
        self.scene.create_params(&order, signed)
    }

    async fn swap_params(&self, order: &Order, ahead: u64) -> IntentSettler::SwapParams {
        let nonce = self.scene.permit_nonce().await + U256::from(ahead);
        let order = Order { nonce, permitted: order.amount, ..order.clone() };
        let output = self.scene.output(self.scene.maker.address(), 5);
        let mut params = self.scene.swap_params(&order, output);
        if self.is_coin(&order) {
            params.permit.signature = Bytes::new();
        }
        params
    }

    /// A batch of one kind, with repeated items.
    async fn batch(&mut self) -> Tx {
        let (to, item_gas) = (self.scene.deployment.settler, U256::from(ITEM_GAS));
        let orders: Vec<Order> = (0..1 + self.rng.between(0, 4)).map(|_| self.any()).collect();
        let relayer = self.scene.relayer.clone();
        let mut singly: Vec<Vec<u8>> = Vec::new();
        let input = match self.rng.between(0, 3) {
            0 => {
                let mut items = Vec::new();
                for (ahead, order) in (0..).zip(&orders) {
                    items.push(self.create_params(order, ahead).await);
                }
                for params in items.clone() {
                    singly.push(IntentSettler::createCall { params }.abi_encode());
                }
                IntentSettler::createManyCall { items, itemGas: item_gas, atLeast: U256::from(1) }
                    .abi_encode()
            }
            1 => {
                let mut items = Vec::new();
                for order in &orders {
                    let terms = self.scene.terms(order);
                    singly.push(self.scene.fill_call(order).abi_encode());
                    items.push(IntentSettler::FillParams {
                        intentId: order.id,
                        order: terms,
                        payoutRef: order.id,
                    });
                }
                IntentSettler::fillManyCall { items, itemGas: item_gas, atLeast: U256::from(1) }.abi_encode()
            }
            2 => {
                let mut items = Vec::new();
                for order in &orders {
                    let preimage = if one_in(&mut self.rng, 6) { B256::ZERO } else { order.preimage };
                    let call = IntentSettler::settleCall { preimage, ..self.scene.settle_call(order) };
                    singly.push(call.abi_encode());
                    let (id, terms) = (order.id, self.scene.terms(order));
                    items.push(IntentSettler::SettleParams { intentId: id, order: terms, preimage });
                }
                IntentSettler::settleManyCall { items, itemGas: item_gas, atLeast: U256::from(1) }
                    .abi_encode()
            }
            _ => {
                let mut items = Vec::new();
                for (ahead, order) in (0..).zip(&orders) {
                    items.push(self.swap_params(order, ahead).await);
                }
                for params in items.clone() {
                    singly.push(IntentSettler::swapCall { params }.abi_encode());
                }
                IntentSettler::swapManyCall { items, itemGas: item_gas, atLeast: U256::from(1) }.abi_encode()
            }
        };
        let singly = singly.into_iter().map(Bytes::from).collect();
        Tx { from: relayer, to, input: input.into(), singly }
    }

    async fn single(&mut self) -> Tx {
        let order = self.any();
        let (settler, escrow) = (self.scene.deployment.settler, self.scene.deployment.escrow);
        let (relayer, other_account, admin) =
            (self.scene.relayer.clone(), key(0xee), self.scene.admin.clone());
        let scene = &self.scene;
        let (by, to, input) = match self.rng.between(0, 11) {
            0 | 1 => {
                let params = self.create_params(&order, 0).await;
                (relayer, settler, IntentSettler::createCall { params }.abi_encode())
            }
            2 | 3 => (relayer, settler, scene.fill_call(&order).abi_encode()),
            4 => (relayer, settler, scene.settle_call(&order).abi_encode()),
            5 => (relayer, settler, scene.cancel_call(&order).abi_encode()),
            6 => (other_account, escrow, scene.release_call(&order).abi_encode()),
            7 => (other_account, escrow, scene.refund_call(&order).abi_encode()),
            8 => {
                let by = if one_in(&mut self.rng, 2) { OPERATORS } else { [0xb1, 0xee] };
                let deadline = self.start + self.rng.between(0, 499);
                (other_account, settler, scene.return_call(&order, by, deadline).abi_encode())
            }
            9 => {
                let token = if self.is_coin(&order) { COIN } else { scene.token };
                let payment = Payouts::Payment { id: order.id, token, ..scene.payment(1, 2) };
                let call = Payouts::payCall { payment, authorization: Bytes::new() };
                (relayer, scene.deployment.payouts, call.abi_encode())
            }
            10 => {
                let accounts = [scene.maker.address(), scene.solver.address()];
                let (account, token) = (*self.rng.pick(&accounts), *self.rng.pick(&self.tokens));
                (other_account, escrow, Escrow::withdrawCall { account, token }.abi_encode())
            }
            _ => {
                let call = if one_in(&mut self.rng, 3) {
                    IntentSettler::pauseCall {}.abi_encode()
                } else {
                    IntentSettler::unpauseCall {}.abi_encode()
                };
                (admin, settler, call)
            }
        };
        Tx { from: self.caller(&by), to, input: input.into(), singly: Vec::new() }
    }

    /// The odd token freezes an account, pauses, or becomes correct.
    async fn misbehave(&mut self) {
        let scene = &self.scene;
        let account = *self.rng.pick(&[scene.maker.address(), scene.solver.address()]);
        let call = match self.rng.between(0, 3) {
            0 => OddToken::freezeCall { account, to: true }.abi_encode(),
            1 => OddToken::freezeCall { account, to: false }.abi_encode(),
            2 => turn(PAUSED),
            _ => turn(0),
        };
        assert!(scene.send(&scene.admin, TxKind::Call(self.tokens[1]), call).await.status());
    }

    async fn step(&mut self) {
        if one_in(&mut self.rng, 8) {
            return self.misbehave().await;
        }
        if one_in(&mut self.rng, 6) {
            return self.deposit().await;
        }
        let pass = if one_in(&mut self.rng, 4) { self.rng.between(0, 39) } else { 0 };
        let tx = if one_in(&mut self.rng, 3) { self.batch().await } else { self.single().await };
        let at = self.scene.now().await + 1 + pass;
        if !tx.singly.is_empty() {
            self.batch_is_its_items(&tx, at).await;
        }
        self.scene.next_block_at(at).await;
        let receipt = self.scene.send(&tx.from, TxKind::Call(tx.to), tx.input).await;
        self.passed += u32::from(receipt.status());
        let failed = |topic: Option<&B256>| topic == Some(&IntentSettler::ItemFailed::SIGNATURE_HASH);
        let refused = receipt.logs().iter().filter(|log| failed(log.topic0())).count();
        self.refused_items += u32::try_from(refused).unwrap_or_default();
        self.holds().await;
    }

    /// All balances and states that a call could have changed.
    async fn picture(&self) -> Vec<U256> {
        let scene = &self.scene;
        let mut seen = Vec::new();
        for order in &self.orders {
            let slot = scene.view(scene.deployment.escrow, Escrow::slotOfCall { id: order.id }).await;
            seen.push(U256::from(slot.slot));
            seen.push(U256::from_be_slice(&slot.commitment[..]));
        }
        for token in self.tokens {
            for account in [scene.maker.address(), scene.solver.address(), scene.deployment.escrow] {
                seen.push(scene.view(token, TestToken::balanceOfCall { account }).await);
                let owed = Escrow::owedCall { account, token };
                seen.push(scene.view(scene.deployment.escrow, owed).await);
            }
        }
        seen.push(scene.permit_nonce().await);
        seen.push(self.deposited().await);
        seen
    }

    /// The same calls one by one in one block have the same result as the batch: a failing item changes nothing for the
    /// others.
    async fn batch_is_its_items(&self, tx: &Tx, at: u64) {
        let scene = &self.scene;
        let mut pictures = Vec::new();
        for inputs in [std::slice::from_ref(&tx.input), &tx.singly] {
            let run = async || {
                // Each call would take a second: the clock is held still.
                let _: Value = raw(&scene.provider, "anvil_setBlockTimestampInterval", json!([0])).await;
                scene.next_block_at(at).await;
                for input in inputs {
                    let _receipt = scene.send(&tx.from, TxKind::Call(tx.to), input.clone()).await;
                }
                let _: Value = raw(&scene.provider, "anvil_removeBlockTimestampInterval", json!([])).await;
                self.picture().await
            };
            pictures.push(scene.undone(run).await);
        }
        assert_eq!(pictures[0], pictures[1], "a batch is not what its items are one by one");
    }

    /// The conditions after every call.
    async fn holds(&self) {
        let scene = &self.scene;
        let escrow = scene.deployment.escrow;
        for token in self.tokens {
            let mut due = U256::ZERO;
            for order in self.orders.iter().filter(|order| order.token == token) {
                let slot = scene.view(escrow, Escrow::slotOfCall { id: order.id }).await.slot;
                if slot == LOCKED || slot == FILLED {
                    due += order.amount;
                }
            }
            for account in [scene.maker.address(), scene.solver.address()] {
                due += scene.view(escrow, Escrow::owedCall { account, token }).await;
            }
            let held = scene.view(token, TestToken::balanceOfCall { account: escrow }).await;
            assert_eq!(held, due, "the escrow holds what is open and what is owed");
            for account in [scene.relayer.address(), scene.admin.address(), key(0xee).address()] {
                let held = scene.view(token, TestToken::balanceOfCall { account }).await;
                assert_eq!(held, U256::ZERO, "{account} has got something");
            }
        }
        let CoinContracts { gate, wrapped } = scene.coin();
        let held = scene.view(wrapped, TestToken::balanceOfCall { account: gate }).await;
        assert_eq!(held, self.deposited().await, "the gate holds what is deposited");
        for contract in [gate, scene.deployment.payouts, escrow, scene.deployment.settler] {
            assert_eq!(scene.coin_of(contract).await, U256::ZERO, "{contract} keeps coin");
        }
    }

    /// After the timelocks, with a correct token, everything goes to the maker or to the solver.
    async fn ends(&self) {
        let scene = &self.scene;
        let escrow = scene.deployment.escrow;
        let send =
            async |to: Address, input: Vec<u8>| scene.send(&scene.admin, TxKind::Call(to), input).await;
        let odd = self.tokens[1];
        assert!(send(odd, turn(0)).await.status());
        for account in [scene.maker.address(), scene.solver.address()] {
            assert!(send(odd, OddToken::freezeCall { account, to: false }.abi_encode()).await.status());
        }
        scene.next_block_at(scene.now().await + 1_000).await;
        for order in &self.orders {
            let slot = scene.view(escrow, Escrow::slotOfCall { id: order.id }).await.slot;
            if slot == LOCKED || slot == FILLED {
                assert!(
                    send(escrow, scene.refund_call(order).abi_encode()).await.status(),
                    "a way out is shut"
                );
            }
        }
        let CoinContracts { gate, wrapped } = scene.coin();
        for order in &self.orders {
            for by in [scene.maker.clone(), key(0xee)] {
                let left = CoinGate::depositsCall { id: order.id, depositor: by.address() };
                if scene.view(gate, left).await > U256::ZERO {
                    let call = CoinGate::reclaimCall { id: order.id, to: key(0xed).address() };
                    assert!(scene.succeeds(&by, gate, &call).await, "a deposit does not come back");
                }
            }
        }
        for token in self.tokens {
            for account in [scene.maker.address(), scene.solver.address()] {
                let owed = scene.view(escrow, Escrow::owedCall { account, token }).await;
                let paid = send(escrow, Escrow::withdrawCall { account, token }.abi_encode()).await.status();
                assert_eq!(paid, owed > U256::ZERO);
            }
            let held = scene.view(token, TestToken::balanceOfCall { account: escrow }).await;
            assert_eq!(held, U256::ZERO, "something stays behind");
            let mut both = U256::ZERO;
            for account in [scene.maker.address(), scene.solver.address()] {
                both += scene.view(token, TestToken::balanceOfCall { account }).await;
            }
            let all = match token == wrapped {
                true => scene.view(wrapped, TestToken::totalSupplyCall {}).await,
                false => U256::from(2 * FUNDS),
            };
            assert_eq!(both, all, "something went elsewhere");
        }
        self.events().await;
    }

    /// Numbers are dense, and no order pays both sides.
    async fn events(&self) {
        let at = &self.scene.deployment;
        let filter = Filter::new()
            .address(vec![at.escrow, at.settler, at.payouts, self.scene.coin().gate])
            .from_block(0);
        let mut last: BTreeMap<Address, u64> = BTreeMap::new();
        let mut ends: BTreeMap<B256, Vec<&str>> = BTreeMap::new();
        for log in self.scene.provider.get_logs(&filter).await.unwrap_or_default() {
            let unnumbered = ["RoleGranted(bytes32,address,address)", "RoleRevoked(bytes32,address,address)"];
            if unnumbered.iter().any(|name| log.topic0() == Some(&keccak256(name))) {
                continue;
            }
            if Escrow::Released::decode_log(&log.inner).is_ok() {
                ends.entry(log.topics()[1]).or_default().push("solver");
            }
            if Escrow::Refunded::decode_log(&log.inner).is_ok() {
                ends.entry(log.topics()[1]).or_default().push("maker");
            }
            let data = &log.data().data;
            let seq = numbered_last(&data[..], log.topic0());
            let next = last.entry(log.address()).or_default();
            assert_eq!(seq, *next + 1, "an event of {} without its number", log.address());
            *next = seq;
        }
        assert!(ends.values().all(|ends| ends.len() == 1), "{ends:?}");
        for (contract, seq) in last {
            assert_eq!(self.scene.view(contract, Escrow::seqCall {}).await, seq);
        }
    }
}

/// The number of an event, its last word. `ItemFailed` has its reason after it.
fn numbered_last(data: &[u8], topic: Option<&B256>) -> u64 {
    let word = if topic == Some(&IntentSettler::ItemFailed::SIGNATURE_HASH) {
        &data[32..64]
    } else {
        &data[data.len() - 32..]
    };
    U256::from_be_slice(word).saturating_to()
}

fn turn(to: u8) -> Vec<u8> {
    OddToken::turnCall { to, target: Address::ZERO, call: Bytes::new() }.abi_encode()
}

#[tokio::test(flavor = "multi_thread")]
async fn funds_stay_or_go_to_one_side_and_batches_equal_their_items() {
    let seeds = std::env::var("DVP_CONTRACT_SEEDS").ok().and_then(|count| count.parse().ok());
    let (mut passed, mut refused) = (0, 0);
    for seed in 0..seeds.unwrap_or(SEEDS) {
        println!("seed {seed}");
        let mut world = World::new(seed).await;
        for _ in 0..STEPS {
            world.step().await;
        }
        world.ends().await;
        passed += world.passed;
        refused += world.refused_items;
    }
    assert!(passed > 20 && refused > 5, "hardly anything happened: {passed} calls, {refused} items refused");
}
