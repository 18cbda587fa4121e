//! An engine with one partner, a provider and a FIX session each of every version; the chain side is played.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use alloy::signers::local::PrivateKeySigner;
use dvp_core::engine::Engine;
use dvp_core::liquidity::{ConfiguredProvider, Liquidity};
use dvp_domain::{asset::Pair, intent::Permit, money::Minor};
use dvp_fix::codec::Message;
use dvp_fix_gateway::{FixGateway, ForwardConfig, GatewayConfig, ListenerConfig, SlowConsumer};
use dvp_store::fix::{
    NewFixSession,
    settings::{FixSessionSettings, find_settings, update_settings},
    upsert_session,
};
use dvp_testing::{
    Harness, Market, chain,
    market::{Price, TOKEN, north, pair},
    orders::{Terms, order_for, permit, sign},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::client::Client;

/// Username(553) and Password(554) of every session.
pub(crate) const LOGON: &str = "553=acme|554=secret";
/// BeginString, CompID and the rest of the Logon of each session.
pub(crate) const VERSIONS: [Version; 3] = [FIX_42, ("FIX.4.4", "ACME", LOGON), FIXT];
pub(crate) const FIX_42: Version = ("FIX.4.2", "ACME42", "95=6|96=secret");
pub(crate) const FIXT: Version = ("FIXT.1.1", "ACME50", "553=acme|554=secret|1137=9");
type Version = (&'static str, &'static str, &'static str);
/// The terms of an order whose limit the market meets.
pub(crate) const LIMIT: &str = "40=2|44=0.99";

/// The session whose settings tests change.
pub(crate) const SESSION: &str = "FIX.4.4:DVP->ACME";

/// The harness with a FIX session of every version.
pub(crate) struct FixHarness {
    harness: Harness,
}

impl Deref for FixHarness {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.harness
    }
}

impl DerefMut for FixHarness {
    fn deref_mut(&mut self) -> &mut Harness {
        &mut self.harness
    }
}

pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    /// The further listeners.
    pub(crate) listener_addrs: Vec<SocketAddr>,
    /// Where other processes forward connections to it.
    pub(crate) forward_address: Option<String>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Gateway {
    /// A client that is logged on to the session whose settings tests change.
    pub(crate) async fn client(&self) -> Client {
        self.client_of(("FIX.4.4", "ACME", LOGON)).await
    }

    pub(crate) async fn client_of(&self, (begin_string, comp_id, logon): Version) -> Client {
        let mut client = Client::connect(self.addr, begin_string, comp_id).await;
        client.log_on(logon).await;
        client
    }

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

/// The usual scene: a gateway, and a client that is logged on.
pub(crate) async fn logged_on() -> (FixHarness, Gateway, Client) {
    let harness = FixHarness::new().await;
    let (gateway, client) = harness.logged_on().await;
    (harness, gateway, client)
}

/// Adds a session of the partner, and returns its id.
pub(crate) async fn add_session(harness: &Harness, begin_string: &str, client: &str) -> String {
    add_session_of(harness, &harness.tenant.partner_id, begin_string, client).await
}

/// Adds a session of any partner.
pub(crate) async fn add_session_of(
    harness: &Harness,
    partner_id: &str,
    begin_string: &str,
    client: &str,
) -> String {
    let vault = &harness.engine.context().vault;
    let session_id = format!("{begin_string}:DVP->{client}");
    let session = NewFixSession {
        partner_id: partner_id.to_owned(),
        livemode: false,
        begin_string: begin_string.into(),
        client_comp_id: client.into(),
        service_comp_id: "DVP".into(),
        default_appl_ver_id: (begin_string == "FIXT.1.1").then(|| "9".to_owned()),
        username: "acme".into(),
        password_hash: vault.fix_password_hash(&session_id, "secret"),
        password_key: vault.current_id().to_owned(),
    };
    let mut conn = harness.pool().acquire().await.unwrap();
    upsert_session(&mut conn, &session).await.unwrap();
    session_id
}

fn market() -> Market {
    let pair = Pair {
        min_input: Minor::new(1_000_000),
        max_input: Some(Minor::new(500_000_000_000)),
        ..pair("USDC", "USD", "1")
    };
    Market::new(vec![pair]).with_funds("north", "USD", 100_000_000_000)
}

impl FixHarness {
    pub(crate) async fn new() -> Self {
        Self::over(Harness::new(market()).await).await
    }

    /// The price is the test's.
    pub(crate) async fn priced(price: &Price) -> Self {
        let market = market();
        let (north, price) = (ConfiguredProvider::new(north()), price.clone());
        let liquidity = Liquidity::new(market.registry.clone(), vec![Arc::new(north)], vec![Arc::new(price)]);
        Self::over(Harness::with_liquidity(market, |_| liquidity).await).await
    }

    async fn over(harness: Harness) -> Self {
        super::secrecy::watch_log();
        for (begin_string, client, _) in VERSIONS {
            add_session(&harness, begin_string, client).await;
        }
        harness.refresh_wallets();
        Self { harness }
    }

    /// The state of another process: empty caches.
    pub(crate) fn forget(&mut self) {
        self.engine = self.another_engine();
    }

    pub(crate) async fn logged_on(&self) -> (Gateway, Client) {
        let gateway = self.gateway().await;
        let client = gateway.client().await;
        (gateway, client)
    }

    pub(crate) async fn execute(&self, statement: &'static str) {
        sqlx::query(statement).execute(self.pool()).await.unwrap();
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
        self.gateway_over(self.engine.clone(), listeners, change).await
    }

    /// The gateway of another process, which shares the sessions with others.
    pub(crate) async fn process(
        &self,
        listeners: Vec<ListenerConfig>,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Gateway {
        let listen = "127.0.0.1:0".parse().unwrap();
        let engine = self.another_engine();
        let change = |config: &mut GatewayConfig| {
            config.forward = Some(ForwardConfig { listen, address: None });
            change(config);
        };
        self.gateway_over(engine, listeners, change).await
    }

    async fn gateway_over(
        &self,
        engine: Engine,
        listeners: Vec<ListenerConfig>,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Gateway {
        let mut config = GatewayConfig {
            lease_ttl: Duration::from_secs(8),
            refresh: Duration::from_millis(100),
            refusal_delay: Duration::from_millis(20),
            slow_consumer: SlowConsumer { stall_max: Duration::from_millis(1500), ..SlowConsumer::default() },
            ..GatewayConfig::default()
        };
        change(&mut config);
        let any = "127.0.0.1:0".parse().unwrap();
        let pool = self.pool().clone();
        let (mut gateway, addr) = FixGateway::bind(any, engine, pool, config).await.unwrap();
        let mut listener_addrs = Vec::new();
        for listener in listeners {
            listener_addrs.push(gateway.listen(any, listener).await.unwrap());
        }
        let forward_address = gateway.forward_address().map(str::to_owned);
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(gateway.run(shutdown.clone()));
        Gateway { addr, listener_addrs, forward_address, shutdown, task }
    }

    /// Starts the workflow and plays the chain side: every command succeeds.
    pub(crate) fn settle_everything(&self) {
        self.start_workers();
        tokio::spawn(chain::succeed_always(self.pool().clone(), self.stopped()));
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
        let terms = Terms { input: ("USDC", 100_000_000), output: "USD", account: "12345678" };
        let mut request = order_for(&terms);
        request.client_reference = Some(client_reference.to_owned());
        self.accept(request).await.reference
    }
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
    let Permit { deadline, signature, .. } = sign(wallet, permit(TOKEN, 100_000_000, nonce));
    let time = Client::utc().to_millis_text();
    format!(
        "11={cl_ord_id}|21=1|38=100|{terms}|54=2|55=USDC/USD|60={time}|20001={nonce}|20002={deadline}|\
         20003={signature}|20010=Jane Doe|20011={account}|20012=US|20013=ach"
    )
}

/// Sends an order, and returns the report that it is new.
pub(crate) async fn place(client: &mut Client, cl_ord_id: &str, account: &str, terms: &str) -> Message {
    client.send("D", &order(cl_ord_id, account, terms)).await;
    client.report(cl_ord_id, "0").await
}

pub(crate) fn cancel(id: &str, orig: &str) -> String {
    format!("11={id}|41={orig}|54=2|55=USDC/USD|60={}", Client::utc().to_millis_text())
}

/// A NewOrderSingle's body: buys 100 USDC with money, for which no node is queried. The order has no seller.
pub(crate) fn purchase(cl_ord_id: &str) -> String {
    let time = Client::utc().to_millis_text();
    format!(
        "11={cl_ord_id}|21=1|38=100|40=2|44=1.05|54=1|55=USDC/USD|60={time}|20010=Jane Doe|20011=12345678|20012=US|\
         20013=ach|20020=0xdddddddddddddddddddddddddddddddddddddddd"
    )
}
