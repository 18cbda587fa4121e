//! Orders of the chain's coin through REST and FIX: paid out in the coin, and paid for by a deposit.

use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, Bytes, U256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::sol_types::SolCall;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;
use crate::wait::answer;

alloy::sol! {
    function deposit(bytes32 id) payable;
    function deposits(bytes32 id, address depositor) returns (uint256);
}

/// A tenth of the coin.
const TENTH: u128 = 100_000_000_000_000_000;
const STRAIGHT: &str = "000123456789";

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

struct Scene {
    sandbox: Sandbox,
    partner: Partner,
    provider: DynProvider,
}

impl Scene {
    async fn start() -> Self {
        let sandbox = Sandbox::start().await;
        let partner = Partner::of(&sandbox);
        let rpc = sandbox.text("/chain/rpcUrl").parse().unwrap();
        let provider = ProviderBuilder::new().connect_http(rpc).erased();
        Self { sandbox, partner, provider }
    }

    fn wallet(&self, number: usize) -> Address {
        self.sandbox.text(&format!("/chain/wallets/{number}/address")).parse().unwrap()
    }

    /// An order of a tenth of the coin for US dollars, by a wallet.
    fn for_money(&self, wallet: usize) -> Value {
        let id = Uuid::new_v4().to_string();
        json!({
            "intentId": id, "clientReference": format!("ref-{id}"), "user": self.wallet(wallet).to_string(),
            "inputAsset": {"type": "native", "symbol": "ETH", "chain": "anvil"},
            "outputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
            "inputAmountMinor": TENTH.to_string(), "minOutputAmountMinor": "29000",
            "deadline": (unix_secs() + 3600) * 1000, "settlementType": "hybrid",
            "beneficiary": {"account": STRAIGHT, "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
        })
    }

    /// An order of another asset for the coin, which a new wallet receives.
    fn for_coin(mut order: Value, receiver: Address, min_output: u128) -> Value {
        order["outputAsset"] = json!({"type": "native", "symbol": "ETH"});
        order["outputRecipient"] = json!(receiver.to_string());
        order["minOutputAmountMinor"] = json!(min_output.to_string());
        order
    }

    async fn coin_of(&self, account: Address) -> u128 {
        self.provider.get_balance(account).await.unwrap().to()
    }

    /// Sends a transaction of a wallet of the sandbox, which the node signs for.
    async fn send(&self, from: Address, to: &Value, call: Vec<u8>, wei: u128) {
        let tx = json!({"from": from, "to": to, "data": Bytes::from(call), "value": U256::from(wei)});
        let hash: alloy::primitives::B256 =
            self.provider.raw_request("eth_sendTransaction".into(), json!([tx])).await.unwrap();
        let receipt = async || self.provider.get_transaction_receipt(hash).await.unwrap();
        assert!(answer(receipt, Option::is_some).await.unwrap().status());
    }

    /// Deposits what an accepted order waits for, or another amount.
    async fn deposit(&self, from: Address, due: &Value, wei: u128) {
        let id = due["id"].as_str().unwrap().parse().unwrap();
        self.send(from, &due["contract"], depositCall { id }.abi_encode(), wei).await;
    }

    async fn completed(&self, order: &Value) {
        let reference = order["clientReference"].as_str().unwrap();
        let execution = self.partner.wait_until(reference, |e| !e["finality"].is_null()).await;
        assert_eq!(execution["status"], "completed", "{execution}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_and_tokens_are_exchanged_for_the_coin() {
    let scene = Scene::start().await;
    // Money: from the partner's balance to a wallet that has nothing yet.
    let receiver = Address::from_slice(&Uuid::new_v4().as_bytes().repeat(2)[..20]);
    let mut order = Scene::for_coin(scene.for_money(0), receiver, TENTH / 10 * 9);
    order["inputAsset"] = json!({"type": "fiat", "symbol": "USD", "currency": "USD"});
    order["inputAmountMinor"] = json!("30000");
    let accepted = scene.partner.submit_accepted(&order).await;
    assert!(accepted["deposit"].is_null(), "{accepted}");
    scene.completed(&order).await;
    let paid = scene.coin_of(receiver).await;
    assert!((TENTH / 10 * 9..=TENTH).contains(&paid), "{paid}");
    // A token: pulled with its permit in the transaction that pays the coin.
    let order = scene.partner.order(&scene.sandbox, 1, STRAIGHT).await;
    let order = Scene::for_coin(order, receiver, TENTH / 10 * 3);
    scene.partner.settled(&order).await;
    let both = scene.coin_of(receiver).await;
    assert!((TENTH / 10 * 3..=TENTH / 3).contains(&(both - paid)), "{both} {paid}");
    // A contract that takes no coin is not paid, and the money is free again.
    let mut order = Scene::for_coin(scene.for_money(0), receiver, TENTH / 10 * 9);
    order["inputAsset"] = json!({"type": "fiat", "symbol": "USD", "currency": "USD"});
    order["inputAmountMinor"] = json!("30000");
    let refusing = "0x00000000000000000000000000000000c0ffee00";
    let code = (refusing, "0x60006000fd");
    scene.provider.raw_request::<_, ()>("anvil_setCode".into(), code).await.unwrap();
    order["outputRecipient"] = json!(refusing);
    scene.partner.submit_accepted(&order).await;
    let reference = order["clientReference"].as_str().unwrap();
    let execution = scene.partner.wait_until(reference, |e| e["status"] != "in_progress").await;
    assert_eq!(execution["status"], "failed", "{execution}");
    assert_eq!(scene.sandbox.one::<i64>("select count(*) from account_balance where reserved <> 0").await, 0);
    scene.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coin_is_sold_by_a_deposit_over_both_interfaces() {
    let scene = Scene::start().await;
    let wallet = scene.wallet(0);
    let mut permitted = scene.partner.order(&scene.sandbox, 0, STRAIGHT).await;
    permitted["inputAsset"] = json!({"type": "native", "symbol": "ETH"});
    let (status, refused) = scene.partner.submit(&permitted).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("INVALID_PERMIT")), "{refused}");
    let mut nobody = scene.for_money(0);
    nobody["user"] = json!("somebody");
    let (status, refused) = scene.partner.submit(&nobody).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("INVALID_PARAMETER")), "{refused}");
    let order = scene.for_money(0);
    let accepted = scene.partner.submit_accepted(&order).await;
    let due = &accepted["deposit"];
    assert_eq!((&due["chain"], &due["amountMinor"]), (&json!("anvil"), &json!(TENTH.to_string())), "{due}");
    assert_eq!(due["contract"], json!(scene.sandbox.text("/chain/coin/gate")));
    assert!(due["depositBy"].as_u64().unwrap() / 1000 > unix_secs() + 60, "{due}");
    // Nobody but the depositor is waited for: an order with a permit passes it.
    let other = scene.partner.order(&scene.sandbox, 1, STRAIGHT).await;
    scene.partner.settled(&other).await;
    scene.deposit(scene.wallet(2), due, TENTH).await;
    scene.deposit(wallet, due, TENTH / 2).await;
    let reference = order["clientReference"].as_str().unwrap();
    let (_, execution) = scene.partner.get(&format!("/v1/executions/{reference}")).await;
    assert_eq!(execution["phase"], "intent", "half and a stranger's deposit: {execution}");
    scene.deposit(wallet, due, TENTH / 2 + 7).await;
    scene.completed(&order).await;
    let id = due["id"].as_str().unwrap().parse().unwrap();
    let call = depositsCall { id, depositor: wallet }.abi_encode();
    let request = json!([{"to": due["contract"], "data": Bytes::from(call)}, "latest"]);
    let left: U256 = scene.provider.raw_request("eth_call".into(), request).await.unwrap();
    assert_eq!(left, U256::from(7), "what it did not need can be taken back");

    // For a token of the same chain it is one transaction.
    let mut order = scene.for_money(0);
    order["outputAsset"] = json!({"type": "erc20", "symbol": "USDC"});
    order["minOutputAmountMinor"] = json!("290000000");
    let accepted = scene.partner.submit_accepted(&order).await;
    scene.deposit(wallet, &accepted["deposit"], TENTH).await;
    scene.completed(&order).await;

    let mut fix = FixClient::log_on(&scene.sandbox).await;
    let (account, user) = ("bene_a:dest_10000000", wallet.to_string());
    let coin = [(55, "ETH/USD"), (38, "0.1"), (44, "2900")];
    fix.sell("ETH-0", account, &Value::Null, &coin).await;
    let rejected = fix.report(|report| report.get(11) == "ETH-0").await;
    assert!(
        rejected.get(150) == "8" && rejected.get(58).contains("UserWallet(20021)"),
        "{}",
        rejected.get(58)
    );
    fix.sell("ETH-1", account, &Value::Null, &[&coin[..], &[(20021, &user)]].concat()).await;
    let new = fix.report(|report| report.get(11) == "ETH-1" && report.get(150) == "0").await;
    assert_eq!(new.get(20112), TENTH.to_string());
    assert_eq!(new.get(20113).len(), 21, "{}", new.get(20113));
    let due = json!({"contract": new.get(20110), "id": new.get(20111)});
    scene.deposit(wallet, &due, TENTH).await;
    let filled = fix.report(|report| report.get(11) == "ETH-1" && report.get(150) == "F").await;
    assert_eq!((filled.get(39), filled.get(14), filled.get(20112)), ("2", "0.1", ""));
    let breaks = scene.sandbox.one::<i64>("select count(*) from reconciliation_break").await;
    assert_eq!(breaks, 0, "the books agree with the wallets");
    scene.sandbox.stop().await;
}
