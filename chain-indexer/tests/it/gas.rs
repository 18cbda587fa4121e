//! The gas of calls and batches, and that an order's total stays below its limit.

use crate::support::{EPOCH, OPERATORS, Order, Scene, at_epoch, expect};
use alloy::primitives::{Address, B256, TxKind, U256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::settler::{IntentSettler, Orders};
use dvp_chain_indexer::contracts::{anchor::ReceiptAnchor, coin::CoinGate, payouts::Payouts};
use dvp_chain_indexer::deploy::CoinContracts;
use std::collections::BTreeMap;

/// Sizes of the measured batches; the last is a full one.
const SIZES: [usize; 4] = [1, 4, 12, FULL];
const FULL: usize = 32;
const ITEM_GAS: u64 = 500_000;
/// Gas of one order with its anchor, in full batches.
const TOKEN_TO_FIAT_MAX: u64 = 130_000;
const TOKEN_TO_TOKEN_MAX: u64 = 120_000;
/// Transactions of an order, in thousandths.
const TRANSACTIONS_MAX: u64 = 350;

/// Distinct numbers for ids and keys.
fn digest(number: usize) -> B256 {
    keccak256(u64::try_from(number).unwrap_or_default().to_be_bytes())
}

/// A scene with a second token for outputs, and the measured gas.
struct Bench {
    scene: Scene,
    token: Address,
    wallets: Vec<PrivateKeySigner>,
    next: usize,
    /// Gas of the transaction, and gas of an item.
    costs: BTreeMap<String, (u64, u64)>,
}

impl Bench {
    async fn new() -> Self {
        let scene = at_epoch().await;
        scene.fund_solver(1_000_000).await;
        let token = scene.second_token(1_000_000_000).await;
        Self { scene, token, wallets: Vec::new(), next: 0, costs: BTreeMap::new() }
    }

    /// From now on each order has its own wallet; the wallets are new to the contracts.
    async fn fresh_wallets(&mut self) {
        let mut wallets = Vec::new();
        for number in 0..FULL {
            wallets.push(self.scene.wallet(digest(1_000_000 + self.next + number), 1_000_000).await);
        }
        self.wallets = wallets;
    }

    /// The wallets' next orders, with the same times in every run.
    async fn orders(&mut self, count: usize) -> Vec<Order> {
        let mut orders = Vec::new();
        for wallet in self.wallets.iter().take(count) {
            self.next += 1;
            orders.push(Order {
                id: digest(self.next),
                maker: wallet.clone(),
                nonce: self.scene.permit_nonce_of(wallet.address()).await,
                permit_deadline: EPOCH + 90_000,
                lock_by: EPOCH + 9_000,
                fill_deadline: EPOCH + 10_000,
                timelock: EPOCH + 20_000,
                preimage: digest(2_000_000 + self.next),
                ..self.scene.order(1).await
            });
        }
        orders
    }

    fn output(&self, order: &Order) -> Orders::Output {
        Orders::Output { token: self.token, ..self.scene.output(order.maker.address(), 7) }
    }

    async fn measure<C: SolCall>(&mut self, what: &str, items: usize, to: Address, call: &C) -> u64 {
        let receipt = self.scene.send(&self.scene.relayer, TxKind::Call(to), call.abi_encode()).await;
        let count = u64::try_from(items).unwrap_or(u64::MAX);
        assert!(receipt.status(), "{what}");
        let failed = |topic: Option<&B256>| topic == Some(&IntentSettler::ItemFailed::SIGNATURE_HASH);
        assert!(!receipt.logs().iter().any(|log| failed(log.topic0())), "{what}: an item failed");
        self.costs.insert(what.to_owned(), (receipt.gas_used, receipt.gas_used / count));
        receipt.gas_used / count
    }

    async fn anchors(&mut self, orders: &[Order]) -> u64 {
        let hashes = orders.iter().map(|order| keccak256(order.preimage)).collect();
        let call = ReceiptAnchor::anchorManyCall { contentHashes: hashes };
        let (size, to) = (orders.len(), self.scene.deployment.anchor);
        self.measure(&format!("anchorMany of {size}"), size, to, &call).await
    }

    async fn creates(&mut self, orders: &[Order], whose: &str) -> u64 {
        let scene = &self.scene;
        let items = orders.iter().map(|order| scene.create_params(order, scene.signed(order))).collect();
        let call =
            IntentSettler::createManyCall { items, itemGas: U256::from(ITEM_GAS), atLeast: U256::from(1) };
        let (size, to) = (orders.len(), scene.deployment.settler);
        self.measure(&format!("createMany of {size}{whose}"), size, to, &call).await
    }

    async fn swaps(&mut self, orders: &[Order], whose: &str) -> u64 {
        let items = orders.iter().map(|order| self.scene.swap_params(order, self.output(order))).collect();
        let call =
            IntentSettler::swapManyCall { items, itemGas: U256::from(ITEM_GAS), atLeast: U256::from(1) };
        let (size, to) = (orders.len(), self.scene.deployment.settler);
        self.measure(&format!("swapMany of {size}{whose}"), size, to, &call).await
    }

    /// All transactions of token-to-fiat orders in batches of one size; returns the gas of an order.
    async fn token_to_fiat(&mut self, size: usize) -> u64 {
        let orders = self.orders(size).await;
        let create = self.creates(&orders, "").await;
        let (to, item_gas) = (self.scene.deployment.settler, U256::from(ITEM_GAS));
        let items = orders.iter().map(|order| IntentSettler::FillParams {
            intentId: order.id,
            order: self.scene.terms(order),
            payoutRef: keccak256(order.id),
        });
        let call =
            IntentSettler::fillManyCall { items: items.collect(), itemGas: item_gas, atLeast: U256::from(1) };
        let fill = self.measure(&format!("fillMany of {size}"), size, to, &call).await;
        let items = orders.iter().map(|order| IntentSettler::SettleParams {
            intentId: order.id,
            order: self.scene.terms(order),
            preimage: order.preimage,
        });
        let call = IntentSettler::settleManyCall {
            items: items.collect(),
            itemGas: item_gas,
            atLeast: U256::from(1),
        };
        let settle = self.measure(&format!("settleMany of {size}"), size, to, &call).await;
        create + fill + settle + self.anchors(&orders).await
    }

    /// The same for token-to-token orders, which are one swap and one anchor each.
    async fn token_to_token(&mut self, size: usize) -> u64 {
        let orders = self.orders(size).await;
        self.swaps(&orders, "").await + self.anchors(&orders).await
    }

    async fn payments(&mut self, size: usize) {
        let items = (0..size).map(|number| Payouts::PayParams {
            payment: Payouts::Payment {
                id: digest(3_000_000 + self.next + number),
                ..self.scene.payment(1, 7)
            },
            authorization: Default::default(),
        });
        let items = items.collect();
        self.pay_many(&format!("payMany of {size}"), items).await;
        self.next += size;
    }

    async fn pay_many(&mut self, what: &str, items: Vec<Payouts::PayParams>) {
        let (size, to) = (items.len(), self.scene.deployment.payouts);
        let call = Payouts::payManyCall { items, itemGas: U256::from(ITEM_GAS), atLeast: U256::from(1) };
        self.measure(what, size, to, &call).await;
    }

    /// Orders in the coin: deposits, locks and payments.
    async fn coin(&mut self) {
        let CoinContracts { gate, wrapped } = self.scene.coin();
        self.scene.fund_solver_in_coin(1_000_000).await;
        let orders = self.orders(2).await;
        for order in &orders {
            let (depositor, call) = (order.maker.address(), CoinGate::depositCall { id: order.id });
            let receipt = self.scene.send_coin(depositor, gate, call.abi_encode(), 1_000).await;
            self.costs.insert("deposit".into(), (receipt.gas_used, receipt.gas_used));
            let order = Order { token: wrapped, ..order.clone() };
            let call = self.scene.create_call(&order, Vec::new());
            self.measure("create from a deposit", 1, self.scene.deployment.settler, &call).await;
            let call = CoinGate::reclaimCall { id: order.id, to: depositor };
            let receipt = self.scene.send(&order.maker, TxKind::Call(gate), call.abi_encode()).await;
            self.costs.insert("reclaim".into(), (receipt.gas_used, receipt.gas_used));
        }
        let token = self.scene.view(self.scene.deployment.payouts, Payouts::COINCall {}).await;
        let items = (0..FULL).map(|number| Payouts::PayParams {
            payment: Payouts::Payment { token, id: digest(5_000_000 + number), ..self.scene.payment(1, 7) },
            authorization: Default::default(),
        });
        self.pay_many(&format!("payMany of {FULL}, in the coin"), items.collect()).await;
    }

    async fn singles(&mut self) {
        let (settler, escrow) = (self.scene.deployment.settler, self.scene.deployment.escrow);
        let orders = self.orders(5).await;
        for order in &orders[..4] {
            let call = self.scene.create_call(order, self.scene.signed(order));
            self.measure("create", 1, settler, &call).await;
        }
        for order in &orders[..3] {
            let call = self.scene.fill_call(order);
            self.measure("fill", 1, settler, &call).await;
        }
        let call = self.scene.settle_call(&orders[0]);
        self.measure("settle", 1, settler, &call).await;
        let call = self.scene.release_call(&orders[1]);
        self.measure("release", 1, escrow, &call).await;
        let call = self.scene.return_call(&orders[2], OPERATORS, EPOCH + 9_000);
        self.measure("returnFilled", 1, settler, &call).await;
        let call = self.scene.cancel_call(&orders[3]);
        self.measure("cancel", 1, settler, &call).await;
        let params = self.scene.swap_params(&orders[4], self.output(&orders[4]));
        self.measure("swap", 1, settler, &IntentSettler::swapCall { params }).await;
        let call = ReceiptAnchor::anchorCall { contentHash: orders[4].id };
        self.measure("anchor", 1, self.scene.deployment.anchor, &call).await;
        let payment = Payouts::Payment { id: digest(4_000_000 + self.next), ..self.scene.payment(1, 7) };
        let call = Payouts::payCall { payment, authorization: Default::default() };
        self.measure("pay", 1, self.scene.deployment.payouts, &call).await;
    }

    fn table(&self) -> String {
        let rows = self.costs.iter().map(|(what, (gas, item))| format!("{what:48} {gas:>9} {item:>9}\n"));
        format!("{:48} {:>9} {:>9}\n{}", "", "gas", "an item", rows.collect::<String>())
    }
}

#[tokio::test]
async fn gas_is_as_in_the_snapshot_and_within_the_limits() {
    let mut bench = Bench::new().await;
    // A wallet's first order costs more: it pays for the storage of its nonce, and of the balance that it receives.
    bench.fresh_wallets().await;
    let first = bench.orders(FULL).await;
    bench.creates(&first, ", each wallet's first").await;
    let first = bench.orders(FULL).await;
    bench.swaps(&first, ", each receiver's first of the token").await;
    bench.singles().await;
    bench.singles().await;
    let mut orders = [0; 2];
    for size in SIZES {
        orders[0] = bench.token_to_fiat(size).await;
        orders[1] = bench.token_to_token(size).await;
        bench.payments(size).await;
    }
    bench.coin().await;
    let [fiat, tokens] = orders;
    bench.costs.insert("one order, token to fiat, in full batches".into(), (fiat, fiat));
    bench.costs.insert("one order, token to token, in full batches".into(), (tokens, tokens));
    expect("contracts/gas.txt", &bench.table());
    let transactions = 4 * 1_000 / u64::try_from(FULL).unwrap_or(1);
    assert!(fiat <= TOKEN_TO_FIAT_MAX, "a token-to-fiat order costs {fiat}");
    assert!(tokens <= TOKEN_TO_TOKEN_MAX, "a token-to-token order costs {tokens}");
    assert!(transactions <= TRANSACTIONS_MAX, "{transactions} thousandths of a transaction an order");
}
