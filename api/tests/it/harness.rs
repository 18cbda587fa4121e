//! A served API with two partners, and a client that signs as a partner would.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use alloy::signers::local::PrivateKeySigner;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use dvp_api::delivery::names::{LookUp, Names};
use dvp_api::{Api, Clock, WebhookRules, router};
use dvp_core::context::now;
use dvp_core::operators::instructions;
use dvp_core::operators::keys::SCOPES;
use dvp_core::secrets::mac;
use dvp_domain::address::OwnContracts;
use dvp_domain::asset::Pair;
use dvp_domain::beneficiary::PayoutMethod;
use dvp_domain::intent::Permit;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_domain::reconcile::{Break, BreakKind, SuggestedAction};
use dvp_domain::time::Timestamp;
use dvp_store::ledger::balances;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::beneficiaries::{
    NewBeneficiary, NewDestination, insert_beneficiary, insert_destination,
};
use dvp_store::partners::registry;
use dvp_store::partners::registry::NewKey;
use dvp_store::reconcile::{self, AtBlock, NewRun};
use dvp_testing::market::{ESCROW, TOKEN, pair};
use dvp_testing::{Harness, Market, orders};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use uuid::Uuid;

use crate::contract;

/// Stands for the resolver: `private.example` has a private address among its own.
struct OwnNames;

impl Names for OwnNames {
    fn look_up<'a>(&'a self, name: &'a str) -> LookUp<'a> {
        let mut found = vec!["8.8.8.8".parse().unwrap()];
        found.extend((name == "private.example").then(|| "10.0.0.1".parse::<std::net::IpAddr>().unwrap()));
        Box::pin(async move { Ok(found) })
    }
}

/// The credentials issued to a partner.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) api_key: String,
    pub(crate) secret: String,
}

/// The API over the harness. Two partners have keys.
pub(crate) struct ApiHarness {
    harness: Harness,
    router: Router,
    /// The API's clock stands still here, until it is moved.
    pub(crate) now: Timestamp,
    clock: Arc<AtomicI64>,
    pub(crate) acme: Keys,
    pub(crate) acme_live: Keys,
    pub(crate) globex: Keys,
}

impl Deref for ApiHarness {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.harness
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The message of an error of this code, in the envelope and nothing else.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/json"));
        let body = self.json();
        let error = &body["error"];
        assert_eq!((&body["success"], &error["code"]), (&json!(false), &json!(code)), "{body}");
        assert_eq!(error["docUrl"], format!("/docs/errors/{code}"), "{body}");
        if self.header("x-idempotency-replayed").is_none() {
            assert_eq!(error["requestId"].as_str(), self.header("x-request-id"), "{body}");
        }
        error["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }
}

#[derive(Clone)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        Self { method, path: path.into(), headers: vec![], body: vec![] }
    }

    pub(crate) fn get(keys: &Keys, path: &str) -> Self {
        Self::new("GET", path).with("X-API-Key", &keys.api_key)
    }

    pub(crate) fn delete(keys: &Keys, path: &str) -> Self {
        Self::new("DELETE", path).with("X-API-Key", &keys.api_key)
    }

    /// A JSON write with a fresh idempotency key.
    pub(crate) fn post(keys: &Keys, path: &str, body: &Value) -> Self {
        Self::new("POST", path)
            .with("X-API-Key", &keys.api_key)
            .with("X-Idempotency-Key", &Uuid::new_v4().to_string())
            .with("Content-Type", "application/json")
            .body(body.to_string())
    }

    /// A write of webhook management, without an idempotency key.
    pub(crate) fn manage(keys: &Keys, method: &'static str, path: &str, body: &Value) -> Self {
        let call = Self::new(method, path).with("X-API-Key", &keys.api_key);
        if body.is_null() {
            call
        } else {
            call.with("Content-Type", "application/json").body(body.to_string())
        }
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a header, in place of an earlier one.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).and(name, value)
    }

    /// Adds a header beside an earlier one.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|header| !header.0.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        &self.headers.iter().find(|header| header.0.eq_ignore_ascii_case(name)).unwrap().1
    }

    /// Signs the call in its current form, at a time.
    pub(crate) fn signed(self, keys: &Keys, at: u64) -> Self {
        let nonce = Uuid::new_v4().simple().to_string();
        self.signed_with(keys, &at.to_string(), &nonce)
    }

    pub(crate) fn signed_with(self, keys: &Keys, at: &str, nonce: &str) -> Self {
        let text = [format!("{}{}{at}{nonce}", self.method, self.path).as_bytes(), &self.body].concat();
        let signature = hex::encode(mac(keys.secret.as_bytes(), &text));
        self.with("X-Signature", &signature).with("X-Timestamp", at).with("X-Nonce", nonce)
    }
}

fn market() -> Market {
    let bounded = |min: u128, max: u128, pair: Pair| Pair {
        min_input: Minor::new(min),
        max_input: Some(Minor::new(max)),
        ..pair
    };
    let pairs = vec![
        bounded(1_000_000, 500_000_000_000, pair("USDC", "USD", "1")),
        bounded(100, 1_000_000_000, pair("USD", "EUR", "0.92")),
    ];
    Market::new(pairs).with_funds("north", "USD", 100_000_000).with_funds("north", "EUR", 100_000_000)
}

fn reading(millis: &Arc<AtomicI64>) -> Clock {
    let millis = millis.clone();
    Arc::new(move || Timestamp::from_millis(millis.load(Ordering::Relaxed)))
}

impl ApiHarness {
    /// With the contract's rules for webhooks, and names of its own.
    pub(crate) async fn new() -> Self {
        let names = Arc::new(OwnNames);
        Self::with_webhooks(WebhookRules { names, ..WebhookRules::default() }).await
    }

    pub(crate) async fn with_webhooks(webhook_rules: WebhookRules) -> Self {
        let harness = Harness::new(market()).await;
        let now = now();
        let clock = Arc::new(AtomicI64::new(now.millis()));
        let api = Api::with_clock(harness.engine.clone(), reading(&clock)).with_webhook_rules(webhook_rules);
        let blank = Keys { id: String::new(), api_key: String::new(), secret: String::new() };
        let mut api = Self {
            harness,
            router: router(api, CancellationToken::new()),
            now,
            clock,
            acme: blank.clone(),
            acme_live: blank.clone(),
            globex: blank,
        };
        api.acme = api.issue("acme", 100_000, "test", &SCOPES).await;
        api.acme_live = api.issue("acme", 100_000, "live", &SCOPES).await;
        api.globex = api.issue("globex", 100_000, "test", &SCOPES).await;
        api
    }

    pub(crate) async fn issue(&self, partner: &str, limit: i64, env: &'static str, scopes: &[&str]) -> Keys {
        let vault = &self.engine.context().vault;
        let id = format!("key_{}", Uuid::new_v4().simple());
        let api_key = format!("svc_{env}_{}", Uuid::new_v4().simple());
        let secret = Uuid::new_v4().to_string();
        let mut conn = self.pool().acquire().await.unwrap();
        let partner_id = format!("ptn_{partner}");
        let partner_id =
            registry::ensure_partner(&mut conn, &partner_id, partner, "enterprise", limit).await.unwrap();
        let key = NewKey {
            key_id: id.clone(),
            partner_id,
            env,
            key_hash: vault.api_key_hash(&api_key),
            hash_key: vault.current_id().to_owned(),
            key_prefix: api_key.chars().take(12).collect(),
            sealed_secret: vault.seal(&id, secret.as_bytes()).unwrap(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        };
        registry::ensure_key(&mut conn, &key).await.unwrap();
        Keys { id, api_key, secret }
    }

    /// Gives acme's test environment a prefunded balance and standing instructions for its outputs.
    pub(crate) async fn prefund(&self) {
        let mut conn = self.pool().acquire().await.unwrap();
        let (id, livemode) = ("ptn_acme".to_owned(), false);
        let owner = Owner::Partner { id: id.clone(), livemode };
        balances::deposit(&mut conn, "wire-1", &owner, "USD", Minor::new(50_000_000)).await.unwrap();
        let tenant = Tenant { partner_id: id, livemode };
        let to = ("EUR", "bene_acme:dest_eur");
        instructions::set_at_once(&mut conn, &tenant, to, ("jo", "agreement"), &OwnContracts::default())
            .await
            .unwrap();
    }

    /// A recipient of acme's, `bene_new:dest_new`, that nobody has verified yet.
    pub(crate) async fn register_recipient(&self) {
        let mut conn = self.pool().acquire().await.unwrap();
        let (id, partner_id) = ("bene_new", "ptn_acme");
        let new =
            NewBeneficiary { id, partner_id, name: "Jane Doe", country: "US", address: None, operator: "jo" };
        insert_beneficiary(&mut conn, &new).await.unwrap();
        let new = NewDestination {
            id: "dest_new",
            beneficiary_id: id,
            account: "000123456789",
            currency: "USD",
            method: PayoutMethod::Ach,
            swift_code: None,
            bank: Some("USABA021000021"),
            operator: "jo",
        };
        insert_destination(&mut conn, &new).await.unwrap();
    }

    /// Another process of the service on the same database, its door.
    pub(crate) fn another_process(&self) -> Router {
        router(Api::with_clock(self.another_engine(), reading(&self.clock)), CancellationToken::new())
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Moves the API's clock on and tells its time in Unix seconds.
    pub(crate) fn pass(&self, seconds: i64) -> u64 {
        let millis = self.clock.fetch_add(seconds * 1000, Ordering::Relaxed) + seconds * 1000;
        Timestamp::from_millis(millis).unix_secs()
    }

    pub(crate) async fn send(&self, call: &Call) -> Answer {
        self.send_to(self.router(), call).await
    }

    pub(crate) async fn get(&self, keys: &Keys, path: &str) -> Answer {
        self.send(&Call::get(keys, path)).await
    }

    pub(crate) async fn post(&self, keys: &Keys, path: &str, body: &Value) -> Answer {
        self.send(&Call::post(keys, path, body)).await
    }

    /// A write of webhook management without an idempotency key.
    pub(crate) async fn manage(&self, keys: &Keys, method: &'static str, path: &str, body: &Value) -> Answer {
        self.send(&Call::manage(keys, method, path, body)).await
    }

    /// Through another process's door.
    pub(crate) async fn send_to(&self, door: Router, call: &Call) -> Answer {
        let mut request = Request::builder().method(call.method).uri(&call.path);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let response = door.oneshot(request.body(Body::from(call.body.clone())).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let answer = Answer { status: parts.status, headers: parts.headers, text };
        contract::hold(call.method, &call.path, &answer);
        answer
    }

    /// A signed submission.
    pub(crate) fn intent(&self, keys: &Keys, body: &Value) -> Call {
        Call::post(keys, "/v1/intents", body).signed(keys, self.now.unix_secs())
    }

    pub(crate) async fn submit(&self, keys: &Keys, body: &Value) -> Answer {
        self.send(&self.intent(keys, body)).await
    }

    /// Keeps a comparison with the chain that found these breaks of an execution.
    pub(crate) async fn found(&self, reference: &str, kinds: &[BreakKind]) {
        let found = |kind: &BreakKind| Break {
            kind: *kind,
            reference: Some(reference.to_owned()),
            entity: None,
            detail: "made up".to_owned(),
            action: SuggestedAction::Page,
            difference: None,
        };
        let run = NewRun {
            at: Some(AtBlock { chain_id: 31_337, number: 1, hash: vec![1; 32], secs: 1 }),
            subjects: 1,
            queries: 0,
            started_at: now().to_utc(),
            breaks: kinds.iter().map(found).collect(),
        };
        let mut tx = self.pool().begin().await.unwrap();
        reconcile::insert_run(&mut tx, &run).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// The body of an order of 100 USDC for USD, by a wallet of its own.
pub(crate) fn order() -> Value {
    let wallet = PrivateKeySigner::random();
    let id = Uuid::new_v4().to_string();
    let mut body = json!({
        "intentId": id, "clientReference": format!("ref-{id}"), "user": format!("{:#x}", wallet.address()),
        "inputAsset": {"type": "erc20", "symbol": "USDC", "address": TOKEN, "chain": "anvil"},
        "outputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
        "inputAmountMinor": "100000000", "minOutputAmountMinor": "9900",
        "deadline": now().plus_millis(3_600_000), "settlementType": "hybrid",
        "beneficiary": {"account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
    });
    body["permit"] = permit(&wallet, json!({}));
    body
}

/// The body of an indicative quote of 100 USDC in USD.
pub(crate) fn quote() -> Value {
    json!({"requestId": "r-1", "actorId": "desk", "source": "USDC", "target": "USD", "amount": "100",
           "side": "sell"})
}

/// The body of a firm quote for 100 USDC in USD.
pub(crate) fn firm() -> Value {
    json!({"requestId": "r-2", "actorId": "desk", "amountMinor": "100000000", "amountType": "source",
           "inputAsset": {"type": "erc20", "symbol": "USDC"}, "outputAsset": {"type": "fiat", "symbol": "USD"}})
}

/// The body of an order of the older surface.
pub(crate) fn older() -> Value {
    json!({
        "pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "100.00", "strategy": "instant",
        "constraints": {"maxSlippageBps": 100, "maxFeeBps": 100}, "clientRef": "mine",
    })
}

/// A permit really signed by a wallet, with some fields other than usual.
pub(crate) fn permit(wallet: &PrivateKeySigner, changes: Value) -> Value {
    let mut fields = json!({
        "token": TOKEN, "amountMinor": "100000000", "spender": ESCROW, "nonce": "0",
        "deadline": now().unix_secs() + 7200, "signature": "",
    });
    fields.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let unsigned: Permit = serde_json::from_value(fields.clone()).unwrap();
    fields["signature"] = orders::sign(wallet, unsigned).signature.into();
    fields
}

/// A body with a field set by its JSON pointer, or removed.
pub(crate) fn changed(mut body: Value, pointer: &str, value: Option<Value>) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => parent.insert(name.into(), value),
        None => parent.remove(name),
    };
    body
}
