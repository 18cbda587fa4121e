//! Callers over REST: each retries with the same key until it has its response.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alloy::primitives::Address;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, bail, ensure};
use dvp_core::chain::permit::PermitDomain;
use dvp_core::context::now;
use dvp_domain::intent::Permit;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use super::Ready;
use super::process::text;
use super::recipients::Recipients;
use crate::dice::Dice;
use crate::http::Keys;

pub(crate) struct Placed {
    pub intent_id: String,
    pub status: u16,
    /// The execution's reference when it was accepted.
    pub reference: Option<String>,
}

/// What the first order of the first caller pays, in tokens. The amount of every other one says which it is.
pub(super) const FIRST: u64 = 10_000_000;

/// The amount of a caller's order: callers and orders are numbered from zero.
pub(super) const fn numbered(caller: u64, order: u64) -> u64 {
    FIRST + 10 * (caller * 1_000 + order)
}

static PERMITS: AtomicU64 = AtomicU64::new(0);

/// A wallet of the sandbox, which orders one thing at a time.
#[derive(Clone)]
pub(crate) struct Wallet {
    signer: PrivateKeySigner,
    token: String,
    escrow: String,
    domain: PermitDomain,
    permit: String,
}

impl Wallet {
    pub(crate) fn of(ready: &Value, n: usize) -> anyhow::Result<Self> {
        Self::with_signer(ready, text(ready, &format!("/chain/wallets/{n}/privateKey"))?.parse()?)
    }

    pub(crate) fn with_signer(ready: &Value, signer: PrivateKeySigner) -> anyhow::Result<Self> {
        let permit = text(ready, "/chain/contracts/permit")?;
        let chain_id = ready.pointer("/chain/chainId").and_then(Value::as_u64).context("chainId")?;
        Ok(Self {
            signer,
            token: text(ready, "/chain/tokens/0/address")?.to_owned(),
            escrow: text(ready, "/chain/contracts/escrow")?.to_owned(),
            domain: PermitDomain::new("Permit", chain_id, Address::from_str(permit)?),
            permit: permit.to_owned(),
        })
    }

    pub(crate) async fn nonce(&self, client: &reqwest::Client, rpc: &str) -> anyhow::Result<u64> {
        let owner = hex::encode(self.signer.address());
        let call = json!({"to": self.permit, "data": format!("0x7ecebe00{owner:0>64}")});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]});
        let answer: Value = client.post(rpc).json(&request).send().await?.json().await?;
        let word = answer["result"].as_str().context("nonces")?.trim_start_matches("0x");
        Ok(u64::from_str_radix(word.trim_start_matches('0'), 16).unwrap_or(0))
    }

    pub(crate) async fn permit(
        &self,
        client: &reqwest::Client,
        rpc: &str,
        amount: u64,
    ) -> anyhow::Result<Permit> {
        self.permit_with(self.nonce(client, rpc).await?, amount)
    }

    pub(crate) fn permit_with(&self, nonce: u64, amount: u64) -> anyhow::Result<Permit> {
        self.signed(serde_json::from_value(self.unsigned(nonce, amount)?)?)
    }

    pub(crate) fn unsigned(&self, nonce: u64, amount: u64) -> anyhow::Result<Value> {
        // No two permits are equal: one that a failed lock made public serves its own payee only.
        let deadline = now().unix_secs() + 7200 + PERMITS.fetch_add(1, Ordering::Relaxed);
        Ok(json!({
            "token": self.token, "amountMinor": amount.to_string(), "spender": self.escrow,
            "nonce": nonce.to_string(), "deadline": deadline, "signature": "",
        }))
    }

    /// A permit with any content, signed by this wallet.
    pub(crate) fn signed(&self, permit: Permit) -> anyhow::Result<Permit> {
        let digest = self.domain.digest(&permit).context("the permit's digest")?;
        let signature = self.signer.sign_hash_sync(&digest.into())?;
        Ok(Permit { signature: format!("0x{}", hex::encode(signature.as_bytes())), ..permit })
    }

    pub(crate) fn address(&self) -> String {
        self.signer.address().to_string()
    }
}

/// An order of 100 USD for euros.
pub(crate) fn fiat_order(account: &str) -> anyhow::Result<Value> {
    let id = Uuid::new_v4().to_string();
    let beneficiary = json!({"account": account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach"});
    Ok(json!({
        "intentId": id, "clientReference": format!("ref-{id}"), "user": "acme",
        "inputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
        "outputAsset": {"type": "fiat", "symbol": "EUR", "currency": "EUR"},
        "inputAmountMinor": "10000", "minOutputAmountMinor": "1", "settlementType": "hybrid",
        "deadline": (now().unix_secs() + 3600) * 1000, "beneficiary": beneficiary,
    }))
}

/// Makes it an order of the permit's tokens for dollars.
pub(crate) fn pay_with_token(order: &mut Value, wallet: &Wallet, permit: &Permit) -> anyhow::Result<()> {
    order["user"] = json!(wallet.address());
    order["inputAsset"] =
        json!({"type": "erc20", "symbol": "USDC", "address": wallet.token, "chain": "anvil"});
    order["outputAsset"] = json!({"type": "fiat", "symbol": "USD", "currency": "USD"});
    order["inputAmountMinor"] = json!(permit.amount_minor);
    order["permit"] = serde_json::to_value(permit)?;
    Ok(())
}

/// Makes an order that pays with a token one for the sandbox's other token, delivered to the same wallet.
pub(crate) fn deliver_token(order: &mut Value, token: &str) -> anyhow::Result<()> {
    order["outputAsset"] = json!({"type": "erc20", "symbol": "WETH", "address": token, "chain": "anvil"});
    order.as_object_mut().context("an order is an object")?.remove("beneficiary");
    Ok(())
}

/// Puts bounds in place of the flat amounts: what is paid at most, and the output's target and limit.
pub(crate) fn bound(order: &mut Value, cap: u64, [target, limit]: [&str; 2]) -> anyhow::Result<()> {
    let fields = order.as_object_mut().context("an order is an object")?;
    fields.remove("inputAmountMinor");
    fields.remove("minOutputAmountMinor");
    order["input"] = json!({"limitAmountMinor": cap.to_string()});
    order["output"] = json!({"targetAmountMinor": target, "limitAmountMinor": limit});
    Ok(())
}

pub(crate) async fn up(place: &mut watch::Receiver<Ready>) -> anyhow::Result<std::sync::Arc<Value>> {
    let ready = place.wait_for(Option::is_some).await?.clone();
    ready.context("the service is up")
}

pub(crate) struct RestCaller {
    place: watch::Receiver<Ready>,
    closing: watch::Receiver<bool>,
    client: reqwest::Client,
    wallet: Option<Wallet>,
    recipients: Recipients,
    dice: Dice,
    /// Its number among those with a wallet, or those without.
    caller: u64,
    orders: u64,
    traffic: Arc<Traffic>,
}

/// The submissions of a caller, for the drill that stops processes.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// The process that has a submission now.
    at: Mutex<Option<String>>,
    /// Connections that ended without an answer before the time limit of a request.
    unanswered: AtomicUsize,
}

impl Traffic {
    pub(crate) fn is_at(&self, http: &str) -> bool {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(http)
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Relaxed)
    }
}

impl RestCaller {
    pub(crate) fn new(
        place: watch::Receiver<Ready>,
        closing: watch::Receiver<bool>,
        wallet: Option<Wallet>,
        recipients: Recipients,
        (caller, dice): (u64, Dice),
    ) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).build()?;
        let traffic = Arc::default();
        Ok(Self { place, closing, client, wallet, recipients, dice, caller, orders: 0, traffic })
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// The service's place, with the submission noted as being there before the place can change.
    async fn go_there(&mut self) -> anyhow::Result<Arc<Value>> {
        loop {
            up(&mut self.place).await?;
            let mut at = self.traffic.at.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(ready) = self.place.borrow().clone() else { continue };
            *at = Some(text(&ready, "/http")?.to_owned());
            return Ok(ready);
        }
    }

    pub(crate) async fn run(mut self) -> anyhow::Result<Vec<Placed>> {
        let mut placed = Vec::new();
        while !*self.closing.borrow() {
            let body = self.order().await?;
            let key = Uuid::new_v4().to_string();
            let (status, answer) = self.submit_until_answered(&body, &key).await?;
            ensure!(matches!(status, 202 | 422), "an order was answered with {status}: {answer}");
            let intent_id = body["intentId"].as_str().unwrap_or_default().to_owned();
            let reference = answer["reference"].as_str().map(str::to_owned);
            ensure!(reference.is_some() == (status == 202), "{status} without its reference: {answer}");
            // A repetition gets the same response.
            if self.dice.roll(4) == 0 {
                let (again, repeated) = self.submit_until_answered(&body, &key).await?;
                ensure!((again, &repeated) == (status, &answer), "{answer} became {repeated}");
            }
            if let (Some(reference), true) = (&reference, self.wallet.is_some()) {
                self.wait_for_end(reference).await?;
            }
            placed.push(Placed { intent_id, status, reference });
            tokio::time::sleep(Duration::from_millis(20 + self.dice.roll(150))).await;
        }
        Ok(placed)
    }

    async fn order(&mut self) -> anyhow::Result<Value> {
        let currency = if self.wallet.is_some() { "USD" } else { "EUR" };
        let number = self.orders;
        self.orders += 1;
        let recipient = match (&self.wallet, number) {
            (None, 0) => self.recipients.first(self.caller, &mut self.dice)?,
            _ => self.recipients.pick(currency, &mut self.dice)?,
        };
        let mut order = fiat_order(&recipient.name)?;
        if let Some(details) = recipient.details.as_ref().filter(|_| self.dice.roll(2) == 0) {
            order["beneficiary"] = details.clone();
        }
        let Some(wallet) = self.wallet.clone() else { return Ok(order) };
        let amount = numbered(self.caller, number);
        let permit = loop {
            let ready = up(&mut self.place).await?;
            let rpc = text(&ready, "/chain/rpcUrl")?;
            match wallet.permit(&self.client, rpc, amount).await {
                Ok(permit) => break permit,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        pay_with_token(&mut order, &wallet, &permit)?;
        Ok(order)
    }

    async fn submit_until_answered(&mut self, body: &Value, key: &str) -> anyhow::Result<(u16, Value)> {
        loop {
            let ready = self.go_there().await?;
            let answered = self.submit(&ready, body, key).await;
            *self.traffic.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
            match answered {
                // A 503, or a key in progress, leaves the outcome unknown: retry.
                Ok((503 | 429, _)) => {}
                Ok((409, answer)) if answer["error"]["code"] == "IDEMPOTENCY_KEY_PROCESSING" => {}
                Ok(answered) => return Ok(answered),
                Err(error) => {
                    let is_timeout = error.downcast_ref().is_some_and(reqwest::Error::is_timeout);
                    self.traffic.unanswered.fetch_add(usize::from(!is_timeout), Ordering::Relaxed);
                }
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    async fn submit(&self, ready: &Value, body: &Value, key: &str) -> anyhow::Result<(u16, Value)> {
        let place = (text(ready, "/http")?, "/v1/intents");
        let request = Keys::of(&ready["partner"])?.post(&self.client, place, key, body.to_string())?;
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.json().await?))
    }

    /// A wallet's next permit has its next nonce: one order at a time.
    async fn wait_for_end(&mut self, reference: &str) -> anyhow::Result<()> {
        for _ in 0..3_000 {
            let ready = up(&mut self.place).await?;
            let url = format!("{}/v1/executions/{reference}?refType=executionId", text(&ready, "/http")?);
            let request = self.client.get(url).header("X-API-Key", text(&ready, "/partner/apiKey")?);
            if let Ok(response) = request.send().await
                && let Ok(execution) = response.json::<Value>().await
                && matches!(execution["status"].as_str(), Some("completed" | "failed"))
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{reference} does not end")
    }
}
