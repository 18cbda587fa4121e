//! An engine with one partner, a provider and a FIX session each of every version; the chain side is played.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use alloy::{
    primitives::Address,
    signers::{SignerSync as _, local::PrivateKeySigner},
};
use dvp_core::{
    chain::{ChainAnswer, ChainHead, ChainUnavailable, WalletFacts, WalletKey, WalletReader, WalletReading},
    context::{ChainConfig, Context, Windows, now},
    engine::{Engine, SubmitCommand},
    liquidity::Liquidity,
    permit::PermitDomain,
    secrets::{MasterKey, Vault},
    workflow,
    writer::{Outcome, Writer},
};
use dvp_domain::chain::ChainCommand;
use dvp_domain::{
    asset::{Asset, AssetKind, Pair, Registry},
    intent::Permit,
    liquidity::LiquidityProvider,
    money::Minor,
    pricing::FeeSchedule,
};
use dvp_fix_gateway::{FixGateway, GatewayConfig, ListenerConfig, SlowConsumer};
use dvp_sandbox::{
    embedded::TestDatabase,
    rails::{self as simulated, SimulatedRails},
};
use dvp_store::{
    fix::{
        NewFixSession,
        settings::{FixSessionSettings, find_settings, update_settings},
        upsert_session,
    },
    ledger::balances,
    orders::intents::Tenant,
    partners,
};
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";

/// The session whose settings tests change.
pub(crate) const SESSION: &str = "FIX.4.4:DVP->ACME";

const HEAD: ChainHead = ChainHead { number: 1, hash: [1; 32] };

/// Stands for the chain: every wallet's next nonce is zero, and its funds suffice. The node answers while it is open,
/// waits while it is closed, and fails when it is told to.
pub(crate) struct Node {
    is_open: watch::Sender<bool>,
    fails: AtomicBool,
    asked: AtomicUsize,
}

impl Default for Node {
    fn default() -> Self {
        Self { is_open: watch::Sender::new(true), fails: AtomicBool::new(false), asked: AtomicUsize::new(0) }
    }
}

impl Node {
    /// Nobody is answered until it is opened.
    pub(crate) fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }

    pub(crate) fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    /// Look-ups so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    async fn answer(&self) -> Result<ChainHead, ChainUnavailable> {
        let mut is_open = self.is_open.subscribe();
        is_open.wait_for(|is_open| *is_open).await.unwrap();
        if self.fails.load(Ordering::SeqCst) {
            return Err(ChainUnavailable("told to fail".to_owned()));
        }
        Ok(HEAD)
    }
}

impl WalletReader for Node {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(self.answer())
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            let head = self.answer().await?;
            let facts = WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };
            Ok(WalletReading { head, facts: vec![facts; wallets.len()] })
        })
    }
}

pub(crate) struct House {
    database: TestDatabase,
    engine: Engine,
    pub(crate) node: Arc<Node>,
    stop: watch::Sender<bool>,
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    /// The further listeners.
    pub(crate) listener_addrs: Vec<SocketAddr>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Gateway {
    /// Ends it without any ceremony, as a kill does.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn engine(pool: &PgPool, context: Arc<Context>, node: &Arc<Node>) -> Engine {
    let (writer, _) = Writer::start(pool.clone(), Arc::clone(&context));
    Engine::new(pool.clone(), writer, context, Arc::clone(node) as Arc<dyn WalletReader>)
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
        ],
        pairs: vec![Pair {
            base: "USDC".into(),
            quote: "USD".into(),
            reference_price: "1".parse().ok(),
            fees,
            min_input: Minor::new(1_000_000),
            max_input: Some(Minor::new(500_000_000_000)),
        }],
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
    pub(crate) async fn new() -> Self {
        super::secrecy::watch_log();
        let database = TestDatabase::create().await;
        let pool = database.pool().clone();
        let context = Arc::new(context());
        let mut conn = pool.acquire().await.unwrap();
        let id =
            partners::ensure_partner(&mut conn, "ptn_acme", "acme", "enterprise", 1_000_000).await.unwrap();
        balances::insert_opening(&mut conn, "north", "USD", Minor::new(100_000_000_000)).await.unwrap();
        for (begin_string, client) in [("FIX.4.4", "ACME"), ("FIX.4.2", "ACME42"), ("FIXT.1.1", "ACME50")] {
            let session_id = format!("{begin_string}:DVP->{client}");
            let session = NewFixSession {
                partner_id: id.clone(),
                livemode: false,
                begin_string: begin_string.into(),
                client_comp_id: client.into(),
                service_comp_id: "DVP".into(),
                default_appl_ver_id: (begin_string == "FIXT.1.1").then(|| "9".to_owned()),
                username: "acme".into(),
                password_hash: context.vault.fix_password_hash(&session_id, "secret"),
                password_key: context.vault.current_id().to_owned(),
            };
            upsert_session(&mut conn, &session).await.unwrap();
        }
        drop(conn);
        let node = Arc::<Node>::default();
        let engine = engine(&pool, context, &node);
        let stop = watch::Sender::new(false);
        tokio::spawn(engine.wallets().clone().run(stop.subscribe()));
        Self { database, engine, node, stop }
    }

    /// What another process begins with: nothing in memory.
    pub(crate) fn forget(&mut self) {
        self.engine = engine(&self.pool().clone(), Arc::new(context()), &self.node);
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.database.pool()
    }

    pub(crate) async fn gateway(&self) -> Gateway {
        self.gateway_with(Vec::new()).await
    }

    /// A gateway with more listeners than the plain one. `addrs` has them in this order.
    pub(crate) async fn gateway_with(&self, listeners: Vec<ListenerConfig>) -> Gateway {
        self.gateway_as(listeners, |_| ()).await
    }

    /// A gateway whose configuration differs from that of the other tests.
    pub(crate) async fn gateway_as(
        &self,
        listeners: Vec<ListenerConfig>,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Gateway {
        let mut config = GatewayConfig {
            lease_ttl: Duration::from_secs(3),
            refresh: Duration::from_millis(100),
            refusal_delay: Duration::from_millis(20),
            slow_consumer: SlowConsumer { stall_max: Duration::from_millis(1500), ..SlowConsumer::default() },
            ..GatewayConfig::default()
        };
        change(&mut config);
        let any = "127.0.0.1:0".parse().unwrap();
        let pool = self.pool().clone();
        let (mut gateway, addr) = FixGateway::bind(any, self.engine.clone(), pool, config).await.unwrap();
        let mut listener_addrs = Vec::new();
        for listener in listeners {
            listener_addrs.push(gateway.listen(any, listener).await.unwrap());
        }
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(gateway.run(shutdown.clone()));
        Gateway { addr, listener_addrs, shutdown, task }
    }

    /// Starts the workflow and plays the chain side: every command succeeds.
    pub(crate) fn settle_everything(&self) {
        let rails = Arc::new(SimulatedRails::new(self.pool().clone()));
        tokio::spawn(workflow::run(self.engine.clone(), rails.clone(), rails, self.stop.subscribe()));
        let (pool, stop) = (self.pool().clone(), self.stop.subscribe());
        tokio::spawn(async move {
            let mut done = 0;
            while !*stop.borrow() {
                done = play_chain(&pool, done).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }

    /// Changes the settings of `FIX.4.4:DVP->ACME`; they hold from its next connection on.
    pub(crate) async fn change_settings(&self, change: impl FnOnce(&mut FixSessionSettings)) {
        let mut settings = FixSessionSettings::default();
        change(&mut settings);
        let mut conn = self.pool().acquire().await.unwrap();
        update_settings(&mut conn, SESSION, &settings).await.unwrap();
        assert_eq!(find_settings(&mut conn, SESSION).await.unwrap(), Some(settings));
    }

    /// A secret as it is kept for `FIX.4.4:DVP->ACME`.
    pub(crate) fn sealed(&self, secret: &[u8]) -> Vec<u8> {
        self.engine.context().vault.seal(SESSION, secret).unwrap()
    }

    /// An order through the other listener; answers its reference.
    pub(crate) async fn submit_otherwise(&self, client_reference: &str) -> String {
        let signer = PrivateKeySigner::random();
        let (permit, wallet) = (signed_permit(&signer, 0), format!("{:#x}", signer.address()));
        let request = serde_json::from_value(serde_json::json!({
            "intent_id": format!("intent-{wallet}"), "client_reference": client_reference,
            "user": wallet,
            "input_asset": {"type": "erc20", "symbol": "USDC"}, "output_asset": {"type": "fiat", "symbol": "USD"},
            "bounds": {"exact_input": {"input": "100000000", "min_output": "9900"}},
            "quote_id": null, "deadline": now().plus_millis(3_600_000), "settlement_type": "hybrid",
            "output_recipient": null,
            "beneficiary": {"account": "12345678", "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
            "permit": permit, "actor_type": "institution", "side": "sell", "metadata": null,
        }));
        let tenant = Tenant { partner_id: "ptn_acme".into(), livemode: false };
        let command = SubmitCommand { tenant, request: request.unwrap(), idempotency: None, fix: None };
        match self.engine.submit(command).await.unwrap().outcome {
            Outcome::Accepted(accepted) => accepted.reference,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_as::<_, (i64,)>(sql).fetch_one(self.pool()).await.unwrap().0
    }

    /// Looks until it is so; fails loudly after a while.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks until the count is this; fails loudly after a while.
    pub(crate) async fn wait_for_count(&self, sql: &'static str, expected: i64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self.count(sql).await;
            if found == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{sql}: {found}, not {expected}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn play_chain(pool: &PgPool, after: i64) -> i64 {
    let command: Option<(i64, Vec<u8>, Json<ChainCommand>)> =
        sqlx::query_as("select id, entity, payload from chain_command where id > $1 order by id limit 1")
            .bind(after)
            .fetch_optional(pool)
            .await
            .unwrap_or(None);
    let Some((id, entity, command)) = command else { return after };
    let fact = dvp_core::chain::expected::goal(&command);
    sqlx::query(
        "insert into chain_fact (chain_id, entity, kind, payload, block_hash, tx_hash, log_index, block_time) \
         values (31337, $1, 'x', $2, sha256(random()::text::bytea), sha256(random()::text::bytea), 0, now())",
    )
    .bind(&entity)
    .bind(serde_json::to_value(&fact).unwrap())
    .execute(pool)
    .await
    .unwrap();
    id
}

/// A NewOrderSingle's body: 100 USDC for USD by a wallet of its own, paid to `account`.
pub(crate) fn order(cl_ord_id: &str, account: &str, terms: &str) -> String {
    order_by(&PrivateKeySigner::random(), 0, cl_ord_id, account, terms)
}

/// The same by a wallet that is given, with its permit of this nonce.
pub(crate) fn order_by(
    wallet: &PrivateKeySigner,
    nonce: u128,
    cl_ord_id: &str,
    account: &str,
    terms: &str,
) -> String {
    let Permit { deadline, signature, .. } = signed_permit(wallet, nonce);
    let time = super::client::Client::utc().to_millis_text();
    format!(
        "11={cl_ord_id}|21=1|38=100|{terms}|54=2|55=USDC/USD|60={time}|20001={nonce}|20002={deadline}|\
         20003={signature}|20010=Jane Doe|20011={account}|20012=US|20013=ach"
    )
}

/// A NewOrderSingle's body: buys 100 USDC with money, for which no node is asked anything. Nobody sells it.
pub(crate) fn purchase(cl_ord_id: &str) -> String {
    let time = super::client::Client::utc().to_millis_text();
    format!(
        "11={cl_ord_id}|21=1|38=100|40=2|44=1.05|54=1|55=USDC/USD|60={time}|20010=Jane Doe|20011=12345678|20012=US|\
         20013=ach|20020=0x00000000000000000000000000000000000000dd"
    )
}

/// A permit for 100 USDC.
fn signed_permit(wallet: &PrivateKeySigner, nonce: u128) -> Permit {
    let mut permit = Permit {
        token: TOKEN.into(),
        amount_minor: Minor::new(100_000_000),
        spender: ESCROW.into(),
        nonce: Minor::new(nonce),
        deadline: now().unix_secs() + 7200,
        signature: String::new(),
    };
    let contract: Address = PERMIT.parse().unwrap();
    let digest = PermitDomain::new("Permit", 31337, contract).digest(&permit).unwrap();
    permit.signature =
        format!("0x{}", hex::encode(wallet.sign_hash_sync(&digest.into()).unwrap().as_bytes()));
    permit
}
