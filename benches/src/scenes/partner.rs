//! A partner: API key, signing secret and wallets, using REST as the contract says.

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use uuid::Uuid;

use super::wait::answer;
use crate::crash::rest::{Wallet, fiat_order, pay_with_token};
use crate::http::Keys;

#[derive(Clone)]
pub struct Partner {
    base: String,
    keys: Keys,
    token: String,
    chain: String,
    client: reqwest::Client,
}

fn text(service: &impl AsRef<Value>, pointer: &str) -> String {
    service.as_ref().pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

impl Partner {
    /// The partner of a running service, from its ready file or the same fields.
    pub fn of(service: &impl AsRef<Value>) -> Self {
        Self {
            base: text(service, "/http"),
            keys: Keys::of(&service.as_ref()["partner"]).unwrap(),
            token: text(service, "/chain/tokens/0/address"),
            chain: text(service, "/chain/name"),
            client: reqwest::Client::new(),
        }
    }

    /// The same partner, at another process.
    pub fn at(&self, base: &str) -> Self {
        Self { base: base.to_owned(), ..self.clone() }
    }

    pub fn with_keys(service: &impl AsRef<Value>, key: &str, secret: &str) -> Self {
        Self { keys: Keys { api_key: key.into(), signing_secret: secret.into() }, ..Self::of(service) }
    }

    async fn sent(request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        request.header("X-API-Key", &self.keys.api_key)
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        Self::sent(self.request(Method::GET, path)).await
    }

    /// Posts, again under the same key while the service is unavailable.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let key = Uuid::new_v4().to_string();
        let request = || self.request(Method::POST, path).header("X-Idempotency-Key", &key).json(body);
        answer(async || Self::sent(request()).await, |(status, _)| *status != 503).await
    }

    fn assets(&self) -> (Value, Value) {
        let input = json!({"type": "erc20", "symbol": "USDC", "address": self.token, "chain": self.chain});
        (input, json!({"type": "fiat", "symbol": "USD", "currency": "USD"}))
    }

    pub async fn firm_quote(&self, amount: &str) -> (u16, Value) {
        let (input, output) = self.assets();
        let body = json!({"requestId": Uuid::new_v4(), "actorId": "a", "inputAsset": input, "outputAsset": output,
                          "amountMinor": amount, "amountType": "source"});
        self.post("/v1/quotes/firm", &body).await
    }

    pub async fn submit(&self, body: &Value) -> (u16, Value) {
        self.submit_raw(body.to_string().as_bytes(), None).await
    }

    /// Submits an order that is accepted, again while the service is unavailable, as it is while it starts.
    pub async fn submit_accepted(&self, body: &Value) -> Value {
        let (status, accepted) = answer(async || self.submit(body).await, |(status, _)| *status != 503).await;
        assert_eq!(status, 202, "{accepted}");
        accepted
    }

    /// Submits an order that is completed, and waits for its final receipt. Returns its reference.
    pub async fn settled(&self, body: &Value) -> String {
        let accepted = self.submit_accepted(body).await;
        let client = body["clientReference"].as_str().unwrap();
        let execution = self.wait_until(client, |e| !e["finality"].is_null()).await;
        assert_eq!(execution["status"], "completed", "{execution}");
        accepted["reference"].as_str().unwrap().to_owned()
    }

    /// Submits an order under an idempotency key. `None`: the process did not answer.
    pub async fn try_submit(&self, body: &Value, operation: Uuid) -> Option<(u16, Value)> {
        let response = self.signed(body.to_string(), operation).send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().await.ok()?))
    }

    /// Signs and sends; `signature` takes the place of the right one.
    pub async fn submit_raw(&self, body: &[u8], signature: Option<&str>) -> (u16, Value) {
        let name = HeaderName::from_static("x-signature");
        let other: HeaderMap = signature.map(|other| (name, other.parse().unwrap())).into_iter().collect();
        Self::sent(self.signed(body, Uuid::new_v4()).headers(other)).await
    }

    fn signed(&self, body: impl Into<Vec<u8>>, operation: Uuid) -> reqwest::RequestBuilder {
        let place = (&*self.base, "/v1/intents");
        self.keys.post(&self.client, place, &operation.to_string(), body).unwrap()
    }

    /// An order of 100 USDC for USD by one of the service's wallets, with its permit signed.
    pub async fn order(&self, service: &impl AsRef<Value>, wallet: usize, account: &str) -> Value {
        self.order_from(service, wallet, account, 0).await
    }

    /// The same with a permit nonce that is no lower than this: a fork may have given one back that is used already.
    pub async fn order_from(
        &self,
        service: &impl AsRef<Value>,
        wallet: usize,
        account: &str,
        nonce_at_least: u64,
    ) -> Value {
        let wallet = Wallet::of(service.as_ref(), wallet).unwrap();
        let nonce = wallet.nonce(&self.client, &text(service, "/chain/rpcUrl")).await.unwrap();
        let permit = wallet.permit_with(nonce.max(nonce_at_least), 100_000_000).unwrap();
        let mut order = fiat_order(account).unwrap();
        pay_with_token(&mut order, &wallet, &permit).unwrap();
        (order["inputAsset"], order["outputAsset"]) = self.assets();
        order["minOutputAmountMinor"] = json!("9900");
        order
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        Self::sent(self.request(Method::DELETE, path)).await
    }

    /// The same to an account that a bank pays by files.
    pub async fn order_at_the_bank(
        &self,
        service: &impl AsRef<Value>,
        wallet: usize,
        account: &str,
    ) -> Value {
        let mut order = self.order(service, wallet, account).await;
        order["beneficiary"]["bank"] = "USABA021000021".into();
        order
    }

    /// An order from the first wallet that a bank pays out by files, to its receipt.
    pub async fn completed_by_a_bank(&self, service: &impl AsRef<Value>, account: &str) {
        let reference = self.settled(&self.order_at_the_bank(service, 0, account).await).await;
        let path = format!("/v1/executions/{reference}/receipt?refType=executionId");
        let (_, receipt) = self.get(&path).await;
        assert_eq!(receipt["provider"], "iso20022-bank");
        assert!(receipt["payout"]["bankRef"].as_str().unwrap().starts_with("BK"), "{receipt}");
    }

    pub async fn wait_until(&self, reference: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(&format!("/v1/executions/{reference}"), wanted).await
    }

    /// Waits until reads are answered: a process on a busy machine opens its connections one by one.
    pub async fn is_served(&self) {
        self.wait_for("/v1/events", |page| page["data"].is_array()).await;
    }

    pub async fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        answer(async || self.get(path).await.1, wanted).await
    }
}
