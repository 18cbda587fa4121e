//! A served API with two partners, and a client that signs as a partner would.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::Address;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use dvp_api::delivery::names::{LookUp, Names};
use dvp_api::{Api, WebhookRules, router};
use dvp_core::chain::{ChainAnswer, ChainHead, WalletFacts, WalletKey, WalletReader, WalletReading};
use dvp_core::context::{ChainConfig, Context, Windows, now};
use dvp_core::engine::Engine;
use dvp_core::keys::SCOPES;
use dvp_core::liquidity::Liquidity;
use dvp_core::permit::PermitDomain;
use dvp_core::secrets::{MasterKey, Vault, mac};
use dvp_core::workflow;
use dvp_core::writer::Writer;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::chain::ChainCommand;
use dvp_domain::intent::Permit;
use dvp_domain::ledger::Owner;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::pricing::FeeSchedule;
use dvp_domain::reconcile::{Break, BreakKind, SuggestedAction};
use dvp_domain::time::Timestamp;
use dvp_sandbox::embedded::TestDatabase;
use dvp_sandbox::rails::{self as simulated, SimulatedRails};
use dvp_store::ledger::balances;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy;
use dvp_store::partners;
use dvp_store::partners::NewKey;
use dvp_store::reconcile::{self, NewRun};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::sync::watch;
use tower::ServiceExt;
use uuid::Uuid;

use crate::contract;

pub(crate) const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
pub(crate) const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";

const HEAD: ChainHead = ChainHead { number: 1, hash: [1; 32] };

/// Stands for the chain: the next permit nonce of every wallet, whose funds suffice.
#[derive(Default)]
struct NextNonce(AtomicU64);

impl WalletReader for NextNonce {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(async { Ok(HEAD) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        let facts = WalletFacts {
            nonce: u128::from(self.0.load(Ordering::Relaxed)),
            balance: u128::MAX,
            allowance: u128::MAX,
        };
        let reading = WalletReading { head: HEAD, facts: vec![facts; wallets.len()] };
        Box::pin(async { Ok(reading) })
    }
}

/// Stands for the resolver: `private.example` has a private address among its own.
struct OwnNames;

impl Names for OwnNames {
    fn look_up<'a>(&'a self, name: &'a str) -> LookUp<'a> {
        let mut found = vec!["8.8.8.8".parse().unwrap()];
        found.extend((name == "private.example").then(|| "10.0.0.1".parse::<std::net::IpAddr>().unwrap()));
        Box::pin(async move { Ok(found) })
    }
}

/// What a partner was issued.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) api_key: String,
    pub(crate) secret: String,
}

pub(crate) struct House {
    database: TestDatabase,
    engine: Engine,
    router: Router,
    next_nonce: Arc<NextNonce>,
    stop: watch::Sender<bool>,
    /// The API's clock stands still here, until it is moved.
    pub(crate) now: Timestamp,
    clock: Arc<AtomicI64>,
    pub(crate) acme: Keys,
    pub(crate) acme_live: Keys,
    pub(crate) globex: Keys,
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
        let message = body["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(body, json!({"success": false, "error": {"code": code, "message": message}}));
        message
    }

    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }
}

/// A request in the making.
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

    /// A JSON write with a fresh idempotency key.
    pub(crate) fn post(keys: &Keys, path: &str, body: &Value) -> Self {
        Self::new("POST", path)
            .with("X-API-Key", &keys.api_key)
            .with("X-Idempotency-Key", &Uuid::new_v4().to_string())
            .with("Content-Type", "application/json")
            .body(body.to_string())
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

    /// The value of a header that was set.
    pub(crate) fn header(&self, name: &str) -> &str {
        &self.headers.iter().find(|header| header.0.eq_ignore_ascii_case(name)).unwrap().1
    }

    /// Signs what the call is now, at a time.
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

fn pair(base: &str, quote: &str, price: &str, fees: FeeSchedule) -> Pair {
    let min_input = Minor::new(if base == "USDC" { 1_000_000 } else { 100 });
    let max = if base == "USDC" { 500_000_000_000 } else { 1_000_000_000 };
    let max_input = Some(Minor::new(max));
    Pair {
        base: base.into(),
        quote: quote.into(),
        reference_price: price.parse().ok(),
        fees,
        min_input,
        max_input,
    }
}

pub(crate) fn master_key(id: &str, byte: u8) -> MasterKey {
    MasterKey { id: id.to_owned(), key: [byte; 32] }
}

fn context() -> Context {
    let token = AssetKind::Erc20 { chain: "anvil".into(), address: TOKEN.into() };
    let fiat = AssetKind::Fiat { currency: "USD".into() };
    let fees = FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(50),
        network_fee_minor: Minor::new(30_000),
    };
    let registry = Registry {
        assets: vec![
            Asset { symbol: "USDC".into(), exponent: 6, kind: token },
            Asset { symbol: "USD".into(), exponent: 2, kind: fiat },
            Asset { symbol: "EUR".into(), exponent: 2, kind: AssetKind::Fiat { currency: "EUR".into() } },
        ],
        pairs: vec![pair("USDC", "USD", "1", fees), pair("USD", "EUR", "0.92", fees)],
    };
    let provider = LiquidityProvider {
        full_depth_bps: 100,
        ..LiquidityProvider::new("north", "0x0000000000000000000000000000000000000001", 10)
    };
    Context {
        liquidity: Arc::new(Liquidity::configured(&registry, [provider])),
        registry,
        payout_provider: simulated::PROVIDER.into(),
        chain: ChainConfig::new(31337, ESCROW, ANCHOR, PERMIT, "Permit").unwrap(),
        windows: Windows { fill_secs: 3600, margin_secs: 3600, payout: simulated::PAYOUT_TIME },
        vault: Vault::with_keys(vec![master_key("2026", 7), master_key("2025", 6)]).unwrap(),
        rest_millis: simulated::rest_millis,
        check_payout: simulated::check_payout,
    }
}

impl House {
    /// With the contract's rules for webhooks, and names of its own.
    pub(crate) async fn new() -> Self {
        let names = Arc::new(OwnNames);
        Self::with_webhooks(WebhookRules { names, ..WebhookRules::default() }).await
    }

    pub(crate) async fn with_webhooks(webhook_rules: WebhookRules) -> Self {
        let database = TestDatabase::create().await;
        let pool = database.pool().clone();
        let mut conn = pool.acquire().await.unwrap();
        balances::insert_opening(&mut conn, "north", "USD", Minor::new(100_000_000)).await.unwrap();
        balances::insert_opening(&mut conn, "north", "EUR", Minor::new(100_000_000)).await.unwrap();
        drop(conn);
        let context = Arc::new(context());
        let (writer, _) = Writer::start(pool.clone(), context.clone());
        let next_nonce = Arc::new(NextNonce::default());
        let engine = Engine::new(pool, writer, context, next_nonce.clone());
        let now = now();
        let clock = Arc::new(AtomicI64::new(now.millis()));
        let read = clock.clone();
        let api = Api::with_clock(
            engine.clone(),
            Arc::new(move || Timestamp::from_millis(read.load(Ordering::Relaxed))),
        )
        .with_webhook_rules(webhook_rules);
        let blank = Keys { id: String::new(), api_key: String::new(), secret: String::new() };
        let mut house = Self {
            database,
            engine,
            router: router(api),
            next_nonce,
            stop: watch::Sender::new(false),
            now,
            clock,
            acme: blank.clone(),
            acme_live: blank.clone(),
            globex: blank,
        };
        house.acme = house.issue("acme", 100_000, "test", &SCOPES).await;
        house.acme_live = house.issue("acme", 100_000, "live", &SCOPES).await;
        house.globex = house.issue("globex", 100_000, "test", &SCOPES).await;
        house
    }

    pub(crate) async fn issue(&self, partner: &str, limit: i64, env: &'static str, scopes: &[&str]) -> Keys {
        let vault = &self.engine.context().vault;
        let id = format!("key_{}", Uuid::new_v4().simple());
        let api_key = format!("svc_{env}_{}", Uuid::new_v4().simple());
        let secret = Uuid::new_v4().to_string();
        let mut conn = self.pool().acquire().await.unwrap();
        let partner_id = format!("ptn_{partner}");
        let partner_id =
            partners::ensure_partner(&mut conn, &partner_id, partner, "enterprise", limit).await.unwrap();
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
        partners::ensure_key(&mut conn, &key).await.unwrap();
        Keys { id, api_key, secret }
    }

    /// Gives acme's test side money of its own and somewhere to send what it buys.
    pub(crate) async fn prefund(&self) {
        let mut conn = self.pool().acquire().await.unwrap();
        let (id, livemode) = ("ptn_acme".to_owned(), false);
        let owner = Owner::Partner { id: id.clone(), livemode };
        balances::deposit(&mut conn, "wire-1", &owner, "USD", Minor::new(50_000_000)).await.unwrap();
        let tenant = Tenant { partner_id: id, livemode };
        legacy::upsert_instruction(&mut conn, &tenant, "EUR", "bene_acme:dest_eur").await.unwrap();
    }

    /// Another process of the service on the same database, its door.
    pub(crate) fn another_process(&self) -> Router {
        let context = Arc::new(context());
        let (writer, _) = Writer::start(self.pool().clone(), Arc::clone(&context));
        let engine = Engine::new(self.pool().clone(), writer, context, self.next_nonce.clone());
        let read = self.clock.clone();
        let clock = Arc::new(move || Timestamp::from_millis(read.load(Ordering::Relaxed)));
        router(Api::with_clock(engine, clock))
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.database.pool()
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// What the chain says is the next permit nonce of every wallet.
    pub(crate) fn set_next_nonce(&self, nonce: u64) {
        self.next_nonce.0.store(nonce, Ordering::Relaxed);
    }

    /// Moves the API's clock on and tells its time in Unix seconds.
    pub(crate) fn pass(&self, seconds: i64) -> u64 {
        let millis = self.clock.fetch_add(seconds * 1000, Ordering::Relaxed) + seconds * 1000;
        Timestamp::from_millis(millis).unix_secs()
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine.clone()
    }

    pub(crate) async fn send(&self, call: &Call) -> Answer {
        self.send_to(self.router(), call).await
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

    /// Starts the workflow's workers.
    pub(crate) fn work(&self) {
        let rails = Arc::new(SimulatedRails::new(self.pool().clone()));
        tokio::spawn(workflow::run(self.engine(), rails.clone(), rails, self.stop.subscribe()));
    }

    /// Plays the chain side of one execution: every command succeeds, as the indexer would report it.
    pub(crate) async fn play_chain(&self, reference: &str) {
        for kind in ["create", "fill", "settle", "anchor"] {
            let (entity, command) = self
                .wait_for(kind, || async {
                    sqlx::query_as::<_, (Vec<u8>, Json<ChainCommand>)>(
                        "select entity, payload from chain_command where reference = $1 and kind = $2",
                    )
                    .bind(reference)
                    .bind(kind)
                    .fetch_optional(self.pool())
                    .await
                    .unwrap()
                })
                .await;
            let fact = dvp_core::chain::expected::goal(&command);
            sqlx::query(
                "insert into chain_fact \
                 (chain_id, entity, kind, payload, block_hash, tx_hash, log_index, block_time) \
                 values (31337, $1, $2, $3, sha256(random()::text::bytea), sha256(random()::text::bytea), 0, now())",
            )
            .bind(entity)
            .bind(kind)
            .bind(serde_json::to_value(fact).unwrap())
            .execute(self.pool())
            .await
            .unwrap();
        }
    }

    /// Asks until there is an answer; fails loudly after a while.
    pub(crate) async fn wait_for<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> T {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            assert!(Instant::now() < deadline, "waited too long for {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Keeps a comparison with the chain that found these breaks of an execution.
    pub(crate) async fn found(&self, reference: &str, kinds: &[BreakKind]) {
        let found = |kind: &BreakKind| Break {
            kind: *kind,
            reference: Some(reference.to_owned()),
            entity: None,
            detail: "made up".to_owned(),
            action: SuggestedAction::Page,
        };
        let run = NewRun {
            chain_id: 31_337,
            block_number: 1,
            block_hash: vec![1; 32],
            block_secs: 1,
            subjects: 1,
            asked: 0,
            started_at: now().to_utc(),
            breaks: kinds.iter().map(found).collect(),
        };
        let mut tx = self.pool().begin().await.unwrap();
        reconcile::insert_run(&mut tx, &run).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_as::<_, (i64,)>(sql).fetch_one(self.pool()).await.unwrap().0
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.send_replace(true);
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

/// A permit really signed by a wallet, with some fields other than usual.
pub(crate) fn permit(wallet: &PrivateKeySigner, changes: Value) -> Value {
    let mut fields = json!({
        "token": TOKEN, "amountMinor": "100000000", "spender": ESCROW, "nonce": "0",
        "deadline": now().unix_secs() + 7200, "signature": "",
    });
    fields.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let unsigned: Permit = serde_json::from_value(fields.clone()).unwrap();
    let domain = PermitDomain::new("Permit", 31337, PERMIT.parse::<Address>().unwrap());
    let signature = wallet.sign_hash_sync(&domain.digest(&unsigned).unwrap().into()).unwrap();
    fields["signature"] = format!("0x{}", hex::encode(signature.as_bytes())).into();
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
