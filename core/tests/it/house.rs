//! A core with one partner, one provider and wallets that can sign.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::primitives::Address;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use dvp_core::chain::{ChainAnswer, ChainHead, WalletFacts, WalletKey, WalletReader, WalletReading};
use dvp_core::context::{ChainConfig, Context, Windows, now};
use dvp_core::engine::{Engine, SubmitCommand};
use dvp_core::liquidity::Liquidity;
use dvp_core::secrets::Vault;
use dvp_core::workflow;
use dvp_core::writer::{Accepted, IdempotencyPart, Outcome, Writer, WriterLimits};
use dvp_core::writer::{FixChain, FixPart};
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_domain::intent::{IntentRequest, Permit};
use dvp_domain::ledger::Owner;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::pricing::FeeSchedule;
use dvp_rails::Rail;
use dvp_sandbox::embedded::TestDatabase;
use dvp_sandbox::rails::{self as simulated, SimulatedRails};
use dvp_store::fix::NewFixSession;
use dvp_store::fix::rows::{FixNumbers, FixOrder, FixOutbound, FixRows};
use dvp_store::ledger::{self, balances};
use dvp_store::orders::idempotency::{RecordId, StoredResponse};
use dvp_store::orders::intents::Tenant;
use dvp_store::pools::Pools;
use dvp_store::{fix, partners};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Json;
use tokio::sync::watch;

use crate::proxy::Proxy;

pub(crate) const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
pub(crate) const WETH: &str = "0x00000000000000000000000000000000000000bb";
pub(crate) const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";

const HEAD: ChainHead = ChainHead { number: 1, hash: [1; 32] };

/// Stands for the chain: every wallet's next nonce is zero, and its funds suffice.
struct RichNewWallets;

impl WalletReader for RichNewWallets {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(async { Ok(HEAD) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        let facts = WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };
        let reading = WalletReading { head: HEAD, facts: vec![facts; wallets.len()] };
        Box::pin(async { Ok(reading) })
    }
}

pub(crate) struct House {
    database: TestDatabase,
    pub(crate) engine: Engine,
    pub(crate) tenant: Tenant,
    stop: watch::Sender<bool>,
}

pub(crate) fn registry() -> Registry {
    let fees = FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(50),
        network_fee_minor: Minor::new(30_000),
    };
    let token = |address: &str| AssetKind::Erc20 { chain: "anvil".into(), address: address.into() };
    let fiat = |code: &str| AssetKind::Fiat { currency: code.into() };
    let pair = |base: &str, quote: &str, price: &str| Pair {
        base: base.into(),
        quote: quote.into(),
        reference_price: price.parse().ok(),
        fees,
        min_input: Minor::new(if base == "USDC" { 1_000_000 } else { 0 }),
        max_input: None,
    };
    Registry {
        assets: vec![
            Asset { symbol: "USDC".into(), exponent: 6, kind: token(TOKEN) },
            Asset { symbol: "WETH".into(), exponent: 18, kind: token(WETH) },
            Asset { symbol: "USD".into(), exponent: 2, kind: fiat("USD") },
            Asset { symbol: "EUR".into(), exponent: 2, kind: fiat("EUR") },
        ],
        pairs: vec![
            pair("USDC", "USD", "1"),
            pair("WETH", "USDC", "2000"),
            pair("USD", "EUR", "0.92"),
            pair("USD", "USDC", "1"),
        ],
    }
}

pub(crate) fn north() -> LiquidityProvider {
    LiquidityProvider {
        full_depth_bps: 100,
        ..LiquidityProvider::new("north", "0x0000000000000000000000000000000000000001", 10)
    }
}

fn south() -> LiquidityProvider {
    LiquidityProvider {
        pairs: vec![("USD".into(), "EUR".into())],
        ..LiquidityProvider::new("south", "0x0000000000000000000000000000000000000002", 20)
    }
}

fn context(liquidity: Liquidity) -> Context {
    Context {
        liquidity: Arc::new(liquidity),
        registry: registry(),
        payout_provider: simulated::PROVIDER.into(),
        chain: ChainConfig::new(31337, ESCROW, ANCHOR, PERMIT, "Permit").unwrap(),
        windows: Windows { fill_secs: 3600, margin_secs: 3600, payout: simulated::PAYOUT_TIME },
        vault: Vault::new([7; 32]),
        rest_millis: simulated::rest_millis,
        check_payout: simulated::check_payout,
    }
}

impl House {
    /// `usd` is the provider's balance in minor units.
    pub(crate) async fn with_balance(usd: u128) -> Self {
        Self::with_liquidity(&[("north", usd)], |_| Liquidity::configured(&registry(), [north(), south()]))
            .await
    }

    /// `held` is what each provider holds of US dollars, in minor units.
    pub(crate) async fn with_liquidity(
        held: &[(&str, u128)],
        liquidity: impl FnOnce(&PgPool) -> Liquidity,
    ) -> Self {
        let database = TestDatabase::create().await;
        let pool = database.pool().clone();
        let mut conn = pool.acquire().await.unwrap();
        let id =
            partners::ensure_partner(&mut conn, "ptn_acme", "acme", "enterprise", 1_000_000).await.unwrap();
        for (provider, usd) in held {
            balances::insert_opening(&mut conn, provider, "USD", Minor::new(*usd)).await.unwrap();
        }
        drop(conn);
        let context = Arc::new(context(liquidity(&pool)));
        let (writer, _) = Writer::start(pool.clone(), Arc::clone(&context));
        let engine = Engine::new(pool, writer, context, Arc::new(RichNewWallets));
        let tenant = Tenant { partner_id: id, livemode: false };
        Self { database, engine, tenant, stop: watch::Sender::new(false) }
    }

    /// Engines with a writer each, as other processes on the same database have them.
    pub(crate) fn engines(&self, count: usize) -> Vec<Engine> {
        (0..count).map(|_| self.engine_over(Arc::new(RichNewWallets))).collect()
    }

    /// An engine of its own over a chain of the test's.
    pub(crate) fn engine_over(&self, wallets: Arc<dyn WalletReader>) -> Engine {
        let context = Arc::new(context(Liquidity::configured(&registry(), [north(), south()])));
        let (writer, _) = Writer::start(self.pool().clone(), Arc::clone(&context));
        Engine::new(self.pool().clone(), writer, context, wallets)
    }

    /// An engine of its own over prices of the test's.
    pub(crate) fn engine_with(&self, liquidity: Liquidity) -> Engine {
        let context = Arc::new(context(liquidity));
        let (writer, _) = Writer::start(self.pool().clone(), Arc::clone(&context));
        Engine::new(self.pool().clone(), writer, context, Arc::new(RichNewWallets))
    }

    /// An engine whose parts have the connections of a process.
    pub(crate) fn engine_in(&self, pools: &Pools) -> Engine {
        let context = Arc::new(context(Liquidity::configured(&registry(), [north(), south()])));
        let (writer, _) = Writer::start(pools.orders.clone(), Arc::clone(&context));
        Engine::new(pools.clone(), writer, context, Arc::new(RichNewWallets))
    }

    /// An engine whose writer reaches the database through a proxy, and nothing else does.
    pub(crate) async fn engine_behind_proxy(&self, limits: WriterLimits) -> (Engine, Proxy) {
        let direct: PgConnectOptions = self.database.url().parse().unwrap();
        let proxy = Proxy::before(direct).await;
        let liquidity = Liquidity::configured(&registry(), [north(), south()]);
        let context = Arc::new(context(liquidity));
        let (writer, _) = Writer::start_with(proxy.pool(), Arc::clone(&context), limits);
        (Engine::new(self.pool().clone(), writer, context, Arc::new(RichNewWallets)), proxy)
    }

    /// A second partner.
    pub(crate) async fn other_tenant(&self) -> Tenant {
        let mut conn = self.pool().acquire().await.unwrap();
        let id = partners::ensure_partner(&mut conn, "ptn_globex", "globex", "enterprise", 1_000_000).await;
        Tenant { partner_id: id.unwrap(), livemode: false }
    }

    pub(crate) async fn new() -> Self {
        Self::with_balance(100_000_000_000).await
    }

    /// Gives a provider a balance.
    pub(crate) async fn fund(&self, provider: &str, asset: &str, amount: u128) {
        let mut conn = self.pool().acquire().await.unwrap();
        balances::insert_opening(&mut conn, provider, asset, Minor::new(amount)).await.unwrap();
    }

    pub(crate) fn partner(&self) -> Owner {
        Owner::Partner { id: self.tenant.partner_id.clone(), livemode: self.tenant.livemode }
    }

    /// Prefunds the partner.
    pub(crate) async fn prefund(&self, asset: &str, amount: u128) {
        let mut conn = self.pool().acquire().await.unwrap();
        let id = uuid::Uuid::new_v4().to_string();
        balances::deposit(&mut conn, &id, &self.partner(), asset, Minor::new(amount)).await.unwrap();
    }

    /// What an owner has free and promised.
    pub(crate) async fn balance(&self, owner: &Owner, asset: &str) -> (u128, u128) {
        let mut conn = self.pool().acquire().await.unwrap();
        let held = balances::find(&mut conn, owner, asset).await.unwrap();
        (held.available.get(), held.reserved.get())
    }

    /// The sum of an account's entries, as text.
    pub(crate) async fn account(&self, kind: &str, asset: &str) -> String {
        let row: (String,) = sqlx::query_as(
            "select coalesce(sum(amount), 0)::numeric(39, 0)::text from ledger_entry \
             where owner_kind = $1 and asset = $2",
        )
        .bind(kind)
        .bind(asset)
        .fetch_one(self.pool())
        .await
        .unwrap();
        row.0
    }

    /// Every asset's entries sum to zero, and every kept balance is the sum of its entries.
    pub(crate) async fn check_books(&self) {
        let unbalanced = "select count(*) from (select asset from ledger_entry group by reference, step, asset \
                          having sum(amount) <> 0) u";
        assert_eq!(self.count(unbalanced).await, 0);
        let mut conn = self.pool().acquire().await.unwrap();
        assert_eq!(ledger::list_disagreements(&mut conn).await.unwrap(), []);
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.database.pool()
    }

    /// Starts the workflow's workers.
    pub(crate) fn work(&self) {
        let rails = Arc::new(SimulatedRails::new(self.pool().clone()));
        self.work_with(rails.clone(), rails);
    }

    /// The same with rails of one's own.
    pub(crate) fn work_with(&self, offramp: Arc<dyn Rail>, payout: Arc<dyn Rail>) {
        drop(self.mortal_workers_with(offramp, payout));
    }

    /// Workers that can be stopped dead, between any two lines.
    pub(crate) fn mortal_workers(&self) -> tokio::task::JoinHandle<()> {
        let rails = Arc::new(SimulatedRails::new(self.pool().clone()));
        self.mortal_workers_with(rails.clone(), rails)
    }

    /// The same with rails of one's own.
    pub(crate) fn mortal_workers_with(
        &self,
        offramp: Arc<dyn Rail>,
        payout: Arc<dyn Rail>,
    ) -> tokio::task::JoinHandle<()> {
        tokio::spawn(workflow::run(self.engine.clone(), offramp, payout, self.stop.subscribe()))
    }

    pub(crate) async fn submit(&self, request: IntentRequest) -> Outcome {
        let command = SubmitCommand { tenant: self.tenant.clone(), request, idempotency: None, fix: None };
        self.engine.submit(command).await.unwrap().outcome
    }

    pub(crate) async fn accept(&self, request: IntentRequest) -> Accepted {
        match self.submit(request).await {
            Outcome::Accepted(accepted) => *accepted,
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Puts a fact into the database as the indexer does.
    pub(crate) async fn fact(&self, entity: &[u8], fact: &ChainFact) {
        sqlx::query(
            "insert into chain_fact (chain_id, entity, kind, payload, block_hash, tx_hash, log_index, block_time) \
             values (31337, $1, 'x', $2, sha256(random()::text::bytea), sha256(random()::text::bytea), 0, now())",
        )
        .bind(entity)
        .bind(serde_json::to_value(fact).unwrap())
        .execute(self.pool())
        .await
        .unwrap();
    }

    /// A command of an execution, once it is there, with its entity.
    pub(crate) async fn command(&self, reference: &str, kind: &str) -> (Vec<u8>, ChainCommand) {
        let (entity, Json(command)) = self
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
        (entity, command)
    }

    /// Plays the chain side for one execution: every command succeeds.
    pub(crate) async fn play_chain(&self, reference: &str) {
        self.play_until(reference, |kind| kind == "anchor").await;
    }

    /// Plays the chain side until a command of a kind was carried out.
    pub(crate) async fn play_until(&self, reference: &str, last: impl Fn(&str) -> bool) {
        let mut done = 0;
        loop {
            let (id, kind, entity, command) = self
                .wait_for("a command", || async {
                    sqlx::query_as::<_, (i64, String, Vec<u8>, Json<ChainCommand>)>(
                        "select id, kind, entity, payload from chain_command where reference = $1 and id > $2 order by id",
                    )
                    .bind(reference)
                    .bind(done)
                    .fetch_optional(self.pool())
                    .await
                    .unwrap()
                })
                .await;
            done = id;
            let fact = dvp_core::chain::expected::goal(&command);
            self.fact(&entity, &fact).await;
            if last(&kind) {
                return;
            }
        }
    }

    pub(crate) async fn wait_for_state(&self, reference: &str, state: &str) {
        self.wait_for(state, || async {
            let found: (String,) = sqlx::query_as("select state_name from execution where reference = $1")
                .bind(reference)
                .fetch_one(self.pool())
                .await
                .unwrap();
            (found.0 == state).then_some(())
        })
        .await;
    }

    /// Asks until there is an answer; fails loudly after a while.
    pub(crate) async fn wait_for<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            assert!(Instant::now() < deadline, "waited too long for {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_as::<_, (i64,)>(sql).fetch_one(self.pool()).await.unwrap().0
    }

    pub(crate) async fn events(&self, reference: &str) -> Vec<String> {
        let rows: Vec<(String,)> =
            sqlx::query_as("select type from event where reference = $1 order by sequence")
                .bind(reference)
                .fetch_all(self.pool())
                .await
                .unwrap();
        rows.into_iter().map(|row| row.0).collect()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// What an order is about, beside who places it.
pub(crate) struct Wanted<'a> {
    pub(crate) input: (&'a str, u128),
    pub(crate) output: &'a str,
    pub(crate) account: &'a str,
}

/// A best-effort order of any kind, by a wallet of its own.
pub(crate) fn order_for(wanted: &Wanted<'_>) -> IntentRequest {
    order_by(&PrivateKeySigner::random(), 0, wanted)
}

/// A best-effort order of a wallet, with a permit of the nonce.
pub(crate) fn order_by(wallet: &PrivateKeySigner, nonce: u128, wanted: &Wanted<'_>) -> IntentRequest {
    let (symbol, input) = wanted.input;
    let id = uuid::Uuid::new_v4().to_string();
    let asset = |symbol: &str| match symbol {
        "USD" | "EUR" => serde_json::json!({"type": "fiat", "symbol": symbol}),
        _ => serde_json::json!({"type": "erc20", "symbol": symbol}),
    };
    let token = if symbol == "WETH" { WETH } else { TOKEN };
    let permit = serde_json::json!({
        "token": token, "amountMinor": input.to_string(), "spender": ESCROW, "nonce": nonce.to_string(),
        "deadline": now().unix_secs() + 7200, "signature": "",
    });
    let prefunded = matches!(symbol, "USD" | "EUR");
    let permit = (!prefunded).then(|| sign(wallet, serde_json::from_value(permit).unwrap()));
    serde_json::from_value(serde_json::json!({
        "intent_id": id, "client_reference": format!("ref-{id}"), "user": format!("{:#x}", wallet.address()),
        "input_asset": asset(symbol), "output_asset": asset(wanted.output),
        "bounds": {"exact_input": {"input": input.to_string(), "min_output": "1"}},
        "quote_id": null, "deadline": now().plus_millis(600_000), "settlement_type": "hybrid",
        "output_recipient": null,
        "beneficiary":
            {"account": wanted.account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
        "permit": permit, "actor_type": "institution", "side": "sell", "metadata": null,
    }))
    .unwrap()
}

/// An order of 100 USDC for USD, by a wallet of its own, paid to `account`.
pub(crate) fn order(account: &str) -> IntentRequest {
    order_of(100_000_000, account)
}

pub(crate) fn order_of(input: u128, account: &str) -> IntentRequest {
    order_for(&Wanted { input: ("USDC", input), output: "USD", account })
}

/// Signs a permit with a wallet.
pub(crate) fn sign(wallet: &PrivateKeySigner, permit: Permit) -> Permit {
    let contract: Address = PERMIT.parse().unwrap();
    let domain = dvp_core::permit::PermitDomain::new("Permit", 31337, contract);
    let signature = wallet.sign_hash_sync(&domain.digest(&permit).unwrap().into()).unwrap();
    Permit { signature: format!("0x{}", hex::encode(signature.as_bytes())), ..permit }
}

/// A FIX session of a partner, with numbers that begin at 1. Returns its id.
pub(crate) async fn fix_session(house: &House, tenant: &Tenant, client: &str) -> String {
    let session = NewFixSession {
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        begin_string: "FIX.4.4".into(),
        client_comp_id: client.into(),
        service_comp_id: "DVP".into(),
        default_appl_ver_id: None,
        username: client.into(),
        password_hash: [0; 32],
        password_key: "1".into(),
    };
    let mut conn = house.pool().acquire().await.unwrap();
    fix::upsert_session(&mut conn, &session).await.unwrap();
    session.session_id()
}

/// The part of a session's message that takes the session from one outbound number to the next and stores a report.
pub(crate) fn part_of(session_id: &str, chain: &FixChain, before: u64, body: &[u8]) -> FixPart {
    let report = FixOutbound { seq: before, msg_type: "8".into(), body: body.to_vec(), sending_time: 0 };
    let rows = FixRows { outbound: vec![report], ..FixRows::default() };
    FixPart {
        numbers: FixNumbers {
            session_id: session_id.to_owned(),
            next_in: before + 1,
            next_out_before: before,
            next_out: before + 1,
            seen_out: 0,
            written_out: 0,
            feed_position: None,
            renumber: None,
        },
        cl_ord_id: None,
        render: Arc::new(move |_| rows.clone()),
        chain: chain.clone(),
    }
}

/// A part whose rows the database refuses: text may not hold a NUL.
pub(crate) fn unwritable_part_of(session_id: &str, chain: &FixChain, before: u64) -> FixPart {
    let order = FixOrder {
        cl_ord_id: "a\0b".into(),
        reference: None,
        intent_id: "i".into(),
        details: serde_json::json!({}),
    };
    let rows = FixRows { orders: vec![order], ..FixRows::default() };
    FixPart { render: Arc::new(move |_| rows.clone()), ..part_of(session_id, chain, before, b"") }
}

/// An idempotency key of a partner, whose answer is the outcome as text.
pub(crate) fn key_of(tenant: &Tenant, uuid: uuid::Uuid, path: &str) -> IdempotencyPart {
    let id = RecordId {
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        method: "POST".into(),
        path: path.into(),
        key: uuid,
    };
    let render = |outcome: &Outcome| StoredResponse { status: 202, body: format!("{outcome:?}") };
    IdempotencyPart { id, fingerprint: [1; 32], render: Arc::new(render) }
}
