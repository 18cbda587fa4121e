//! A partner: API key, signing secret and wallets, using REST as the contract says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, U256};
use alloy::providers::{Provider, ProviderBuilder};
use alloy::rpc::types::TransactionRequest;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, eip712_domain};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use uuid::Uuid;

alloy::sol! {
    struct PermitSingle { address token; uint256 amount; address spender; uint256 nonce; uint256 deadline; }
    function nonces(address owner) returns (uint256);
}

/// The permits that were signed.
static SIGNED: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Partner {
    base: String,
    key: String,
    secret: String,
    token: String,
    chain: String,
    client: reqwest::Client,
}

fn text(service: &impl AsRef<Value>, pointer: &str) -> String {
    service.as_ref().pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Partner {
    /// The partner of a running service, from its ready file or the same fields.
    pub(crate) fn of(service: &impl AsRef<Value>) -> Self {
        Self {
            base: text(service, "/http"),
            key: text(service, "/partner/apiKey"),
            secret: text(service, "/partner/signingSecret"),
            token: text(service, "/chain/tokens/0/address"),
            chain: text(service, "/chain/name"),
            client: reqwest::Client::new(),
        }
    }

    /// The same partner, at another process.
    pub(crate) fn at(&self, base: &str) -> Self {
        let Self { key, secret, token, chain, client, .. } = self;
        Self {
            base: base.to_owned(),
            key: key.clone(),
            secret: secret.clone(),
            token: token.clone(),
            chain: chain.clone(),
            client: client.clone(),
        }
    }

    /// A caller with these credentials.
    pub(crate) fn with_keys(service: &impl AsRef<Value>, key: &str, secret: &str) -> Self {
        Self { key: key.into(), secret: secret.into(), ..Self::of(service) }
    }

    async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let request = self.client.get(format!("{}{path}", self.base)).header("X-API-Key", &self.key);
        Self::answer(request).await
    }

    fn write(&self, path: &str) -> reqwest::RequestBuilder {
        self.write_as(path, Uuid::new_v4())
    }

    fn write_as(&self, path: &str, operation: Uuid) -> reqwest::RequestBuilder {
        self.client
            .post(format!("{}{path}", self.base))
            .header("X-API-Key", &self.key)
            .header("Content-Type", "application/json")
            .header("X-Idempotency-Key", operation.to_string())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        Self::answer(self.write(path).body(body.to_string())).await
    }

    fn assets(&self) -> (Value, Value) {
        let input = json!({"type": "erc20", "symbol": "USDC", "address": self.token, "chain": self.chain});
        (input, json!({"type": "fiat", "symbol": "USD", "currency": "USD"}))
    }

    pub(crate) async fn firm_quote(&self, amount: &str) -> (u16, Value) {
        let (input, output) = self.assets();
        let body = json!({"requestId": Uuid::new_v4(), "actorId": "a", "inputAsset": input, "outputAsset": output,
                          "amountMinor": amount, "amountType": "source"});
        self.post("/v1/quotes/firm", &body).await
    }

    pub(crate) async fn submit(&self, body: &Value) -> (u16, Value) {
        self.submit_raw(body.to_string().as_bytes(), None).await
    }

    /// Submits an order that is accepted, again while the service is unavailable, as it is while it starts.
    pub(crate) async fn submit_accepted(&self, body: &Value) -> Value {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            match self.submit(body).await {
                (202, accepted) => return accepted,
                (503, _) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(200)).await,
                (status, refused) => panic!("{status} {refused}"),
            }
        }
    }

    /// Submits an order under an idempotency key. `None`: the process did not answer.
    pub(crate) async fn try_submit(&self, body: &Value, operation: Uuid) -> Option<(u16, Value)> {
        let body = body.to_string();
        let request = self.signed(self.write_as("/v1/intents", operation), body.as_bytes(), None);
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().await.ok()?))
    }

    /// Signs and sends; `signature` takes the place of the right one.
    pub(crate) async fn submit_raw(&self, body: &[u8], signature: Option<&str>) -> (u16, Value) {
        Self::answer(self.signed(self.write("/v1/intents"), body, signature)).await
    }

    fn signed(
        &self,
        request: reqwest::RequestBuilder,
        body: &[u8],
        signature: Option<&str>,
    ) -> reqwest::RequestBuilder {
        let (at, nonce) = (unix_secs().to_string(), Uuid::new_v4().simple().to_string());
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(self.secret.as_bytes()).unwrap();
        mac.update(format!("POST/v1/intents{at}{nonce}").as_bytes());
        mac.update(body);
        let right = hex::encode(mac.finalize().into_bytes());
        request
            .header("X-Timestamp", at)
            .header("X-Nonce", nonce)
            .header("X-Signature", signature.unwrap_or(&right))
            .body(body.to_vec())
    }

    /// An order of 100 USDC for USD by one of the service's wallets, with its permit signed.
    pub(crate) async fn order(&self, service: &impl AsRef<Value>, wallet: usize, account: &str) -> Value {
        self.order_from(service, wallet, account, 0).await
    }

    /// The same with a permit nonce that is no lower than this: a fork may have given one back that is used already.
    pub(crate) async fn order_from(
        &self,
        service: &impl AsRef<Value>,
        wallet: usize,
        account: &str,
        nonce_at_least: u64,
    ) -> Value {
        let key = text(service, &format!("/chain/wallets/{wallet}/privateKey"));
        let wallet: PrivateKeySigner = key.parse().unwrap();
        let address = |pointer: &str| -> Address { text(service, pointer).parse().unwrap() };
        let contract = address("/chain/contracts/permit");
        let provider = ProviderBuilder::new().connect_http(text(service, "/chain/rpcUrl").parse().unwrap());
        let call = noncesCall { owner: wallet.address() }.abi_encode();
        let request = TransactionRequest::default().to(contract).input(call.into());
        let nonce =
            U256::from_be_slice(&provider.call(request).await.unwrap()).max(U256::from(nonce_at_least));
        // No two permits are equal: one that a failed lock made public serves its own payee only.
        let deadline = unix_secs() + 7200 + SIGNED.fetch_add(1, Ordering::Relaxed);
        let permit = PermitSingle {
            token: address("/chain/tokens/0/address"),
            amount: U256::from(100_000_000_u64),
            spender: address("/chain/contracts/escrow"),
            nonce,
            deadline: U256::from(deadline),
        };
        let chain_id = service.as_ref().pointer("/chain/chainId").unwrap().as_u64().unwrap();
        let domain = eip712_domain! { name: "Permit", version: "1", chain_id: chain_id, verifying_contract: contract, };
        let signature = wallet.sign_typed_data_sync(&permit, &domain).unwrap();
        let (input, output) = self.assets();
        let id = Uuid::new_v4().to_string();
        json!({
            "intentId": id, "clientReference": format!("ref-{id}"), "user": wallet.address().to_string(),
            "inputAsset": input, "outputAsset": output,
            "inputAmountMinor": "100000000", "minOutputAmountMinor": "9900",
            "deadline": (unix_secs() + 3600) * 1000, "settlementType": "hybrid",
            "beneficiary": {"account": account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
            "permit": {
                "token": self.token, "amountMinor": "100000000",
                "spender": text(service, "/chain/contracts/escrow"), "nonce": nonce.to_string(),
                "deadline": deadline, "signature": format!("0x{}", hex::encode(signature.as_bytes())),
            },
        })
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        let request = self.client.delete(format!("{}{path}", self.base)).header("X-API-Key", &self.key);
        Self::answer(request).await
    }

    /// An order from the first wallet that a bank pays out by files, to its receipt.
    pub(crate) async fn completed_by_a_bank(&self, service: &impl AsRef<Value>, account: &str) {
        let mut order = self.order(service, 0, account).await;
        order["beneficiary"]["bank"] = "USABA021000021".into();
        self.submit_accepted(&order).await;
        let reference = order["clientReference"].as_str().unwrap();
        let execution = self.wait_until(reference, |e| !e["finality"].is_null()).await;
        assert_eq!(execution["status"], "completed");
        let (_, receipt) = self.get(&format!("/v1/executions/{reference}/receipt")).await;
        assert_eq!(receipt["provider"], "iso20022-bank");
        assert!(receipt["payout"]["bankRef"].as_str().unwrap().starts_with("BK"), "{receipt}");
    }

    /// Polls an execution until it looks as wanted.
    pub(crate) async fn wait_until(&self, reference: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(&format!("/v1/executions/{reference}"), wanted).await
    }

    /// Waits until reads are answered: a process on a busy machine opens its connections one by one.
    pub(crate) async fn is_served(&self) {
        self.wait_for("/v1/events", |page| page["data"].is_array()).await;
    }

    /// Polls a read until its answer looks as wanted.
    pub(crate) async fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(180);
        loop {
            let (_, answer) = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "waited too long: {answer}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
