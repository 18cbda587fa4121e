//! An engine with one partner, a provider and a FIX session each of every version; the chain side is played.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use alloy::{
    primitives::Address,
    signers::{SignerSync as _, local::PrivateKeySigner},
};
use dvp_core::{
    chain::{ChainFact, ChainUnavailable, PermitNonces},
    context::{ChainFacts, Context, Windows, now},
    embedded::TestDatabase,
    engine::{Engine, SubmitCommand},
    liquidity::Liquidity,
    permit::PermitDomain,
    rails::simulated::{self, SimulatedRails},
    secrets::Vault,
    store::{
        balances,
        fix::{NewFixSession, upsert_session},
        fix_settings::{FixSessionSettings, find_settings, update_settings},
        intents::Tenant,
        partners,
    },
    workflow,
    writer::{Outcome, Writer},
};
use dvp_domain::{
    asset::{Asset, AssetKind, Pair, Registry},
    intent::Permit,
    liquidity::LiquidityProvider,
    money::Minor,
    pricing::FeeSchedule,
};
use dvp_fix_gateway::{DoorConfig, FixGateway, GatewayConfig, SlowConsumer};
use sqlx::PgPool;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";

/// The session whose settings tests change.
pub(crate) const SESSION: &str = "FIX.4.4:DVP->ACME";

/// Stands for the chain: every wallet's next nonce is zero.
struct NoncesOfNewWallets;

impl PermitNonces for NoncesOfNewWallets {
    fn permit_nonce<'a>(
        &'a self,
        _owner: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<u128, ChainUnavailable>> + Send + 'a>> {
        Box::pin(async { Ok(0) })
    }
}

pub(crate) struct House {
    database: TestDatabase,
    engine: Engine,
    stop: watch::Sender<bool>,
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    /// The further doors.
    pub(crate) doors_at: Vec<SocketAddr>,
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
        chain: ChainFacts::new(31337, ESCROW, ANCHOR, PERMIT, "Permit").unwrap(),
        windows: Windows { fill_secs: 3600, timelock_secs: 7200 },
        vault: Vault::new([7; 32]),
        rest_millis: simulated::rest_millis,
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
            };
            upsert_session(&mut conn, &session).await.unwrap();
        }
        drop(conn);
        let (writer, _) = Writer::start(pool.clone(), Arc::clone(&context));
        let engine = Engine::new(pool, writer, context, Arc::new(NoncesOfNewWallets));
        Self { database, engine, stop: watch::Sender::new(false) }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.database.pool()
    }

    pub(crate) async fn gateway(&self) -> Gateway {
        self.gateway_with(Vec::new()).await
    }

    /// A gateway with more doors than the plain one. `addrs` has them in this order.
    pub(crate) async fn gateway_with(&self, doors: Vec<DoorConfig>) -> Gateway {
        let config = GatewayConfig {
            lease_ttl: Duration::from_secs(3),
            refresh: Duration::from_millis(100),
            refusal_delay: Duration::from_millis(20),
            slow_consumer: SlowConsumer { stall_max: Duration::from_millis(1500), ..SlowConsumer::default() },
        };
        let any = "127.0.0.1:0".parse().unwrap();
        let pool = self.pool().clone();
        let (mut gateway, addr) = FixGateway::bind(any, self.engine.clone(), pool, config).await.unwrap();
        let mut doors_at = Vec::new();
        for door in doors {
            doors_at.push(gateway.listen(any, door).await.unwrap());
        }
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(gateway.run(shutdown.clone()));
        Gateway { addr, doors_at, shutdown, task }
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

    /// An order through the other door; answers its reference.
    pub(crate) async fn submit_otherwise(&self, client_reference: &str) -> String {
        let (permit, wallet) = signed_permit();
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
    let command: Option<(i64, String, Vec<u8>)> =
        sqlx::query_as("select id, kind, entity from chain_command where id > $1 order by id limit 1")
            .bind(after)
            .fetch_optional(pool)
            .await
            .unwrap_or(None);
    let Some((id, kind, entity)) = command else { return after };
    let fact = match kind.as_str() {
        "create" => ChainFact::Created { timelock: now().unix_secs() + 7200, amount: "1".into() },
        "fill" => ChainFact::Filled { payout_ref: String::new() },
        "settle" => ChainFact::Settled,
        _ => ChainFact::Anchored,
    };
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
    let (permit, _) = signed_permit();
    let Permit { deadline, signature, .. } = permit;
    let time = super::client::Client::utc().to_millis_text();
    format!(
        "11={cl_ord_id}|21=1|38=100|{terms}|54=2|55=USDC/USD|60={time}|20001=0|20002={deadline}|\
         20003={signature}|20010=Jane Doe|20011={account}|20012=US|20013=ach"
    )
}

/// A permit for 100 USDC, and the wallet of its own that signed it.
fn signed_permit() -> (Permit, String) {
    let wallet = PrivateKeySigner::random();
    let deadline = now().unix_secs() + 7200;
    let mut permit = Permit {
        token: TOKEN.into(),
        amount_minor: Minor::new(100_000_000),
        spender: ESCROW.into(),
        nonce: Minor::ZERO,
        deadline,
        signature: String::new(),
    };
    let contract: Address = PERMIT.parse().unwrap();
    let digest = PermitDomain::new("Permit", 31337, contract).digest(&permit).unwrap();
    permit.signature =
        format!("0x{}", hex::encode(wallet.sign_hash_sync(&digest.into()).unwrap().as_bytes()));
    (permit, format!("{:#x}", wallet.address()))
}
