//! An engine over a database of its own, with one partner and the money of a market.

use std::sync::Arc;
use std::time::Duration;

use dvp_core::chain::{WalletReader, WalletReaders};
use dvp_core::context::{ChainConfig, Chains, Clock, Context};
use dvp_core::engine::Engine;
use dvp_core::liquidity::Liquidity;
use dvp_core::operators::operations::{Action, OperatorDecision, Resolution, ResolveError, resolve};
use dvp_core::screening::Screening;
use dvp_core::secrets::Vault;
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::{Accepted, ORDER_PLACES, Outcome, Writer};
use dvp_domain::abandonment::CoolDownRules;
use dvp_domain::asset::Asset;
use dvp_domain::intent::IntentRequest;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_domain::status::ExecutionView;
use dvp_domain::time::Timestamp;
use dvp_rails::{CheckPayout, Rail};
use dvp_sandbox::embedded::TestDatabase;
use dvp_sandbox::rails::{self as simulated, SimulatedRails};
use dvp_store::database::pools::Pools;
use dvp_store::ledger::balances;
use dvp_store::ledger::check::{Compared, Findings, compare};
use dvp_store::orders::executions::RefType;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::registry;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgPool, SqlSafeStr};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::market::{ANCHOR, CHAIN_ID, ESCROW, GATE, Market, PERMIT, master_key};
use crate::node::Node;
use crate::orders::submit;
use crate::time::VirtualTime;
use crate::wait::wait_for;

/// A row that a test selects.
pub trait Selected: for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<R: for<'r> FromRow<'r, PgRow> + Send + Unpin> Selected for R {}

/// A migrated database, which goes with its owner.
pub trait Database {
    fn pool(&self) -> &PgPool;
}

impl Database for TestDatabase {
    fn pool(&self) -> &PgPool {
        self.pool()
    }
}

/// An engine, its dependencies, and a partner. Its workers stop when it is dropped.
pub struct Harness<D = TestDatabase> {
    pub database: D,
    pub engine: Engine,
    pub node: Arc<Node>,
    /// The test side of the partner `acme`.
    pub tenant: Tenant,
    pub market: Market,
    time: VirtualTime,
    /// The task of the engine's writer.
    pub writing: JoinHandle<()>,
    stop: Stop,
}

/// Tells the workers to stop.
struct Stop(watch::Sender<bool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Harness {
    pub async fn new(market: Market) -> Self {
        Self::over(TestDatabase::create().await, market).await
    }

    /// With virtual time, which starts at a time in the future.
    pub async fn in_virtual_time(market: Market, start: Timestamp) -> Self {
        let database = TestDatabase::create().await;
        VirtualTime::install(database.pool()).await;
        let liquidity = configured(&market);
        let harness = Self::set_up(database, market, liquidity).await;
        harness.advance(VirtualTime::until(start)).await;
        harness
    }

    /// With prices of the test's.
    pub async fn with_liquidity(market: Market, liquidity: impl FnOnce(&PgPool) -> Liquidity) -> Self {
        let database = TestDatabase::create().await;
        let liquidity = liquidity(database.pool());
        Self::set_up(database, market, liquidity).await
    }
}

impl<D: Database> Harness<D> {
    /// Over a database that has no rows yet.
    pub async fn over(database: D, market: Market) -> Self {
        let liquidity = configured(&market);
        Self::set_up(database, market, liquidity).await
    }

    async fn set_up(database: D, market: Market, liquidity: Liquidity) -> Self {
        let pool = database.pool().clone();
        let mut conn = pool.acquire().await.unwrap();
        let partner =
            registry::ensure_partner(&mut conn, "ptn_acme", "acme", "enterprise", 1_000_000).await.unwrap();
        for (provider, asset, amount) in &market.funds {
            balances::insert_opening(&mut conn, provider, asset, Minor::new(*amount)).await.unwrap();
        }
        drop(conn);
        let node = Arc::<Node>::default();
        let time = VirtualTime::default();
        let context = context(&market, liquidity, time.clock());
        let (engine, writing) = engine(pool, context, Arc::clone(&node) as Arc<dyn WalletReader>);
        let tenant = Tenant { partner_id: partner, livemode: false };
        Self { database, engine, node, tenant, market, time, writing, stop: Stop(watch::Sender::new(false)) }
    }

    pub fn pool(&self) -> &PgPool {
        self.database.pool()
    }

    /// The clock of its engines.
    pub fn clock(&self) -> Clock {
        self.time.clock()
    }

    /// Advances virtual time.
    pub async fn advance(&self, by: Duration) {
        self.time.advance(self.pool(), by).await;
    }

    /// Stops the workers, and leaves the database.
    pub fn into_database(self) -> D {
        self.database
    }

    /// The context of another process of the service: the same configuration and prices of its own.
    pub fn context(&self) -> Arc<Context> {
        context(&self.market, configured(&self.market), self.time.clock())
    }

    /// Another engine, as another process on the same database has it: nothing in memory.
    pub fn another_engine(&self) -> Engine {
        self.engine_over(Arc::clone(&self.node) as Arc<dyn WalletReader>)
    }

    /// Another engine over a chain of the test's.
    pub fn engine_over(&self, wallets: Arc<dyn WalletReader>) -> Engine {
        self.engine_of(configured(&self.market), wallets, Screening::default()).0
    }

    /// Another engine over prices of the test's.
    pub fn engine_with(&self, liquidity: Liquidity) -> Engine {
        let wallets = Arc::clone(&self.node) as Arc<dyn WalletReader>;
        self.engine_of(liquidity, wallets, Screening::default()).0
    }

    /// Another engine over prices, a chain and a screening of the test's, and the task of its writer.
    pub fn engine_of(
        &self,
        liquidity: Liquidity,
        wallets: Arc<dyn WalletReader>,
        screening: Screening,
    ) -> (Engine, JoinHandle<()>) {
        let context = context_under(&self.market, liquidity, self.time.clock(), screening);
        engine(self.pool().clone(), context, wallets)
    }

    /// Another engine whose orders are screened.
    pub fn engine_under(&self, screening: Screening) -> Engine {
        let wallets = Arc::clone(&self.node) as Arc<dyn WalletReader>;
        self.engine_of(configured(&self.market), wallets, screening).0
    }

    /// Another engine whose parts have the connections of a process.
    pub fn engine_in(&self, pools: &Pools) -> Engine {
        engine(pools.clone(), self.context(), Arc::clone(&self.node) as Arc<dyn WalletReader>).0
    }

    /// Keeps the facts of known wallets fresh, as a running service does.
    pub fn refresh_wallets(&self) {
        tokio::spawn(self.engine.wallets().clone().run(self.pool().clone(), self.stopped()));
    }

    /// True once the harness is dropped.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.0.subscribe()
    }

    /// Starts the workflow's workers over simulated rails.
    pub fn start_workers(&self) -> JoinHandle<()> {
        let rails = Arc::new(SimulatedRails::new(self.pool().clone()));
        self.start_workers_over(rails.clone(), rails)
    }

    /// The same with a payout rail of the test's.
    pub fn start_workers_paying(&self, payout: Arc<dyn Rail>) -> JoinHandle<()> {
        self.start_workers_over(Arc::new(SimulatedRails::new(self.pool().clone())), payout)
    }

    /// The same over rails of the test's. Aborting the handle stops them at any await point.
    pub fn start_workers_over(&self, offramp: Arc<dyn Rail>, payout: Arc<dyn Rail>) -> JoinHandle<()> {
        self.start_workers_using(RailUse::of(offramp), RailUse::of(payout))
    }

    /// The same with so many calls at a time, and intervals.
    pub fn start_workers_using(&self, offramp: RailUse, payout: RailUse) -> JoinHandle<()> {
        tokio::spawn(workflow::run(self.engine.clone(), offramp, payout, self.stopped()))
    }

    /// A second partner.
    pub async fn other_tenant(&self) -> Tenant {
        let mut conn = self.pool().acquire().await.unwrap();
        let id = registry::ensure_partner(&mut conn, "ptn_globex", "globex", "enterprise", 1_000_000).await;
        Tenant { partner_id: id.unwrap(), livemode: false }
    }

    /// The partner as an owner of money.
    pub fn partner(&self) -> Owner {
        Owner::Partner { id: self.tenant.partner_id.clone(), livemode: self.tenant.livemode }
    }

    /// Gives a provider more money.
    pub async fn fund(&self, provider: &str, asset: &str, amount: u128) {
        let mut conn = self.pool().acquire().await.unwrap();
        balances::insert_opening(&mut conn, provider, asset, Minor::new(amount)).await.unwrap();
    }

    /// Deposits money of the partner's. Returns the deposit's id.
    pub async fn deposit(&self, asset: &str, amount: u128) -> String {
        let mut conn = self.pool().acquire().await.unwrap();
        let id = uuid::Uuid::new_v4().to_string();
        balances::deposit(&mut conn, &id, &self.partner(), asset, Minor::new(amount)).await.unwrap();
        id
    }

    /// An owner's available and reserved balances.
    pub async fn balance(&self, owner: &Owner, asset: &str) -> (u128, u128) {
        let mut conn = self.pool().acquire().await.unwrap();
        let held = balances::find(&mut conn, owner, asset).await.unwrap();
        (held.available.get(), held.reserved.get())
    }

    /// The sum of the entries of one kind of owner, as text.
    pub async fn account(&self, kind: &str, asset: &str) -> String {
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

    /// Every posting's entries sum to zero in each asset, and every kept balance is the sum of its entries.
    pub async fn check_books(&self) {
        let unbalanced = "select count(*) from (select asset from ledger_entry group by reference, step, asset \
                          having sum(amount) <> 0) u";
        assert_eq!(self.count(unbalanced).await, 0);
        let mut conn = self.pool().acquire().await.unwrap();
        for compared in [Compared::SinceClosing, Compared::Whole] {
            assert_eq!(compare(&mut conn, compared).await.unwrap(), Findings::default(), "{compared:?}");
        }
    }

    pub async fn submit(&self, request: IntentRequest) -> Outcome {
        submit(&self.engine, &self.tenant, request).await.unwrap()
    }

    /// Submits an order that has to be accepted.
    pub async fn accept(&self, request: IntentRequest) -> Accepted {
        match self.submit(request).await {
            Outcome::Accepted(accepted) => *accepted,
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// The single number that a statement selects.
    pub async fn count(&self, sql: &'static str) -> i64 {
        self.row::<(i64,)>(sql).await.0
    }

    /// The only row that a statement selects.
    pub async fn row<R: Selected>(&self, sql: impl SqlSafeStr) -> R {
        sqlx::query_as(sql).fetch_one(self.pool()).await.unwrap()
    }

    /// The only row that a statement selects about `$1`.
    pub async fn row_of<R: Selected>(&self, sql: impl SqlSafeStr, of: &str) -> R {
        sqlx::query_as(sql).bind(of).fetch_one(self.pool()).await.unwrap()
    }

    /// The rows that a statement selects.
    pub async fn rows<R: Selected>(&self, sql: impl SqlSafeStr) -> Vec<R> {
        sqlx::query_as(sql).fetch_all(self.pool()).await.unwrap()
    }

    /// The rows that a statement selects about `$1`.
    pub async fn rows_of<R: Selected>(&self, sql: impl SqlSafeStr, of: &str) -> Vec<R> {
        sqlx::query_as(sql).bind(of).fetch_all(self.pool()).await.unwrap()
    }

    /// Runs a statement. Returns how many rows it changed.
    pub async fn run(&self, sql: impl SqlSafeStr) -> u64 {
        sqlx::query(sql).execute(self.pool()).await.unwrap().rows_affected()
    }

    /// Runs a statement about `$1`.
    pub async fn run_of(&self, sql: impl SqlSafeStr, of: &str) -> u64 {
        sqlx::query(sql).bind(of).execute(self.pool()).await.unwrap().rows_affected()
    }

    /// Waits until a statement selects this number.
    pub async fn wait_for_count(&self, sql: &'static str, expected: i64) {
        wait_for(sql, || async { (self.count(sql).await == expected).then_some(()) }).await;
    }

    pub async fn wait_for_state(&self, reference: &str, state: &str) {
        wait_for(state, || async { (self.state(reference).await == state).then_some(()) }).await;
    }

    /// An execution as its partner sees it.
    pub async fn view(&self, reference: &str) -> ExecutionView {
        let found = self.engine.execution(&self.tenant, RefType::ExecutionId, reference).await;
        found.unwrap().unwrap()
    }

    /// The state of an execution.
    pub async fn state(&self, reference: &str) -> String {
        self.row_of::<(String,)>("select state_name from execution where reference = $1", reference).await.0
    }

    /// What an operator decides about an execution.
    pub async fn decide(
        &self,
        operator: &str,
        reference: &str,
        action: Action,
    ) -> Result<OperatorDecision, ResolveError> {
        let (reason, evidence) = ("the bank called", "statement 17");
        let mut conn = self.pool().acquire().await.unwrap();
        resolve(&mut conn, &Resolution { reference, action, operator, reason, evidence }).await
    }

    /// One operator requests, and another one carries it out. Of an order that goes on meanwhile they look again.
    pub async fn both_decide(&self, reference: &str, action: Action) {
        wait_for("both decisions about one version", || async {
            // The other one's request about an earlier version stands until the next look.
            let jo = self.decide("jo", reference, action.clone()).await.unwrap();
            if !jo.is_proposal {
                return Some(());
            }
            match self.decide("mika", reference, action.clone()).await {
                Err(ResolveError::Moved) => None,
                decided => (!decided.unwrap().is_proposal).then_some(()),
            }
        })
        .await;
    }

    /// The types of an execution's events, in order.
    pub async fn events(&self, reference: &str) -> Vec<String> {
        let types = "select type from event where reference = $1 order by sequence";
        self.rows_of::<(String,)>(types, reference).await.into_iter().map(|row| row.0).collect()
    }
}

/// The same reader for every chain.
pub fn readers(context: &Context, reader: &Arc<dyn WalletReader>) -> WalletReaders {
    context.chains.iter().map(|chain| (chain.chain_id, Arc::clone(reader))).collect()
}

fn configured(market: &Market) -> Liquidity {
    Liquidity::configured(&market.registry, market.providers.iter().cloned())
}

fn engine(
    pools: impl Into<Pools>,
    context: Arc<Context>,
    wallets: Arc<dyn WalletReader>,
) -> (Engine, JoinHandle<()>) {
    let pools = pools.into();
    let (writer, writing) = Writer::start(pools.orders.clone(), Arc::clone(&context));
    let wallets = readers(&context, &wallets);
    (Engine::new(pools, writer, context, wallets), writing)
}

fn context(market: &Market, liquidity: Liquidity, clock: Clock) -> Arc<Context> {
    context_under(market, liquidity, clock, Screening::default())
}

fn context_under(market: &Market, liquidity: Liquidity, clock: Clock, screening: Screening) -> Arc<Context> {
    let mut home = ChainConfig::new("anvil", CHAIN_ID, ESCROW, ANCHOR, PERMIT, "Permit").unwrap();
    let deals_in_coin = market.registry.assets.iter().any(Asset::is_native);
    home.taking.gate = deals_in_coin.then(|| GATE.to_owned());
    Arc::new(Context {
        cell: market.cell,
        liquidity: Arc::new(liquidity),
        registry: market.registry.clone(),
        payout_provider: simulated::PROVIDER.into(),
        chains: Chains::new(home, market.further_chains.clone(), &market.registry),
        windows: market.windows,
        vault: Vault::with_keys(vec![master_key("2026", 7), master_key("2025", 6)]).unwrap(),
        clock,
        rest_millis: simulated::rest_millis,
        check_payout: CheckPayout::new(simulated::check_payout),
        screening,
        cool_down: CoolDownRules::default(),
        order_places: ORDER_PLACES,
    })
}
