//! A wallet that is a contract with two owners pays over REST and over FIX, as the documentation says.

use alloy::primitives::{Address, B256, U256};
use alloy::providers::{DynProvider, ProviderBuilder};
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::permit::Permit;
use dvp_chain_indexer::contracts::test_wallet::TestWallet;
use dvp_chain_indexer::contracts::token::TestToken;
use dvp_chain_indexer::rpc;
use dvp_core::chain::permit::PermitDomain;
use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

struct Scene {
    sandbox: Sandbox,
    partner: Partner,
    provider: DynProvider,
    wallet: Address,
    owners: Vec<PrivateKeySigner>,
}

impl Scene {
    async fn start() -> Self {
        let sandbox = Sandbox::start().await;
        let partner = Partner::of(&sandbox);
        let provider = ProviderBuilder::new().connect_http(sandbox.text("/chain/rpcUrl").parse().unwrap());
        let wallet = sandbox.text("/chain/contractWallet/address").parse().unwrap();
        let of = |n: usize| -> PrivateKeySigner {
            sandbox.text(&format!("/chain/contractWallet/owners/{n}/privateKey")).parse().unwrap()
        };
        let owners = vec![of(0), of(1)];
        assert!(owners[0].address() < owners[1].address(), "as the contract wants their signatures");
        Self { sandbox, partner, provider: alloy::providers::Provider::erased(provider), wallet, owners }
    }

    async fn view<C: SolCall>(&self, to: Address, call: C) -> C::Return {
        rpc::view_now(&self.provider, to, &call).await.unwrap()
    }

    fn address(&self, pointer: &str) -> Address {
        self.sandbox.text(pointer).parse().unwrap()
    }

    async fn held(&self) -> U256 {
        let token = self.address("/chain/tokens/0/address");
        self.view(token, TestToken::balanceOfCall { account: self.wallet }).await
    }

    async fn nonce(&self) -> U256 {
        self.view(self.address("/chain/contracts/permit"), Permit::noncesCall { owner: self.wallet }).await
    }

    /// An order of 100 USDC of the contract's for USD, signed by so many of its owners.
    async fn order(&self, owners: usize) -> Value {
        let mut order = self.partner.order(&self.sandbox, 0, "000123456789").await;
        order["user"] = json!(self.wallet.to_string());
        order["permit"]["nonce"] = json!(self.nonce().await.to_string());
        let chain_id = self.sandbox.as_ref()["chain"]["chainId"].as_u64().unwrap();
        let domain = PermitDomain::new("Permit", chain_id, self.address("/chain/contracts/permit"));
        let permit = serde_json::from_value(order["permit"].clone()).unwrap();
        let hash = B256::from(domain.digest(&permit).unwrap());
        let message = self.view(self.wallet, TestWallet::messageHashCall { hash }).await;
        let by = self.owners.iter().take(owners);
        let signature: Vec<u8> =
            by.flat_map(|owner| owner.sign_hash_sync(&message).unwrap().as_bytes()).collect();
        order["permit"]["signature"] = json!(format!("0x{}", alloy::hex::encode(signature)));
        order
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contract_with_two_owners_pays_over_rest_and_fix() {
    let scene = Scene::start().await;
    let before = scene.held().await;

    let one = scene.order(1).await;
    let (status, refused) = scene.partner.submit(&one).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("INVALID_PERMIT")), "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("not confirmed by user"), "{message}");
    let mut accounts = scene.order(2).await;
    accounts["user"] = json!(scene.owners[0].address().to_string());
    let (status, refused) = scene.partner.submit(&accounts).await;
    assert_eq!(status, 400, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("not a 65-byte hex value"), "{message}");

    let order = scene.order(2).await;
    assert_eq!(order["permit"]["signature"].as_str().unwrap().len(), 2 + 4 * 65);
    scene.partner.settled(&order).await;
    assert_eq!(scene.held().await, before - U256::from(100_000_000));
    let (status, again) = scene.partner.submit(&again_with(&order)).await;
    assert_eq!((status, &again["error"]["code"]), (400, &json!("INVALID_PERMIT")), "{again}");

    let mut fix = FixClient::log_on(&scene.sandbox).await;
    let wallet = scene.wallet.to_string();
    let ours = [(1, ""), (20021, wallet.as_str()), (20010, "Jane Doe"), (20011, "000123456789")];
    let ours = [&ours[..], &[(20012, "US"), (20013, "ach")]].concat();
    fix.sell("ONE", "", &scene.order(1).await["permit"], &ours).await;
    let refused = fix.report(|m| m.get(35) == "8" && m.get(11) == "ONE").await;
    assert_eq!(refused.get(39), "8");
    assert!(
        refused.get(58).contains("PermitSignature(20003) is not confirmed by user"),
        "{}",
        refused.get(58)
    );
    fix.sell("TWO", "", &scene.order(2).await["permit"], &ours).await;
    let filled =
        fix.report(|m| m.get(35) == "8" && m.get(11) == "TWO" && matches!(m.get(39), "2" | "8")).await;
    assert_eq!(filled.get(39), "2", "{}", filled.get(58));
    assert_eq!(scene.held().await, before - U256::from(200_000_000));
    scene.sandbox.stop().await;
}

/// The same permit in another intent.
fn again_with(order: &Value) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    let mut again = order.clone();
    again["intentId"] = json!(id);
    again["clientReference"] = json!(format!("ref-{id}"));
    again
}
