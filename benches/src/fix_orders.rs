//! NewOrderSingle to its committed ExecutionReport through the whole gateway, beside `POST /v1/intents` and the engine
//! with the same orders in the same run; latency beside a durable commit of one row; then to Filled, with settlement in
//! the same process.

mod orders;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dvp_core::workflow::{self, RailUse};
use dvp_fix_gateway::{FixGateway, GatewayConfig};
use dvp_rails::Rail;
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::fix::{self, NewFixSession};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::orders::Goal;
use self::orders::Orders;
use crate::figure::{Figure, per_second};
use crate::fix_client::{self, Client, Driven};
use crate::harness::{DurableHarness, fiat_order};
use crate::http::{Served, drive, request};
use crate::proc;
use crate::progress;
use crate::submit::{ORDERS_A_SECOND, submissions};

/// How long the gateway may take to admit its first session.
const ADMITTED_WITHIN: Duration = Duration::from_secs(20);
const USERNAME: &str = "acme";
const PASSWORD: &str = "password";

/// The number of sessions, the orders in flight of each, and their name in the figures.
pub(crate) struct Part {
    pub(crate) sessions: usize,
    pub(crate) window: usize,
    pub(crate) name: &'static str,
}

pub(crate) const PARTS: [Part; 2] = [
    Part { sessions: 1, window: 64, name: "one session" },
    Part { sessions: 8, window: 32, name: "eight sessions" },
];

/// A rate, and the processor time of an order in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    orders_a_second: u64,
    service: u64,
    postgres: u64,
    client: u64,
}

/// The processor time so far of this process and of a harness's PostgreSQL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worked {
    postmaster: u32,
    this: Duration,
    postgres: Duration,
}

impl Worked {
    pub(crate) fn by(postmaster: u32) -> Self {
        Self {
            postmaster,
            this: proc::worked_by_this_process(),
            postgres: proc::worked_by_server(postmaster),
        }
    }

    /// The cost of an order since then, with the client's part separate.
    pub(crate) fn each(&self, orders: usize, elapsed: Duration, client: Duration) -> Measured {
        let now = Self::by(self.postmaster);
        let each = |time: Duration| {
            let nanos = time.as_nanos().checked_div(u128::try_from(orders).unwrap_or(0)).unwrap_or(0);
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        Measured {
            orders_a_second: per_second(orders, elapsed),
            service: each(now.this.saturating_sub(self.this).saturating_sub(client)),
            postgres: each(now.postgres.saturating_sub(self.postgres)),
            client: each(client),
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The gateway archives messages.
    pub archives: bool,
    /// Settlement is measured, too.
    pub settles: bool,
}

/// Measures each part for `seconds`, first acceptance alone and then with settlement.
pub async fn measure(seconds: u64, subject: Subject) -> anyhow::Result<Vec<Figure>> {
    // A part is measured at the engine, over REST and over FIX.
    progress::expect(2 + 3 * 2 + if subject.settles { 1 + 2 } else { 0 });
    let (mut figures, accepted) = acceptance(seconds, subject).await?;
    if subject.settles {
        figures.extend(settlement(seconds, accepted, subject).await?);
    }
    Ok(figures)
}

/// Without the worker: the engine, REST and FIX with the same orders, and one order at a time beside one commit.
async fn acceptance(seconds: u64, subject: Subject) -> anyhow::Result<(Vec<Figure>, [Measured; 2])> {
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start_for_fiat(dir.path()).await?;
    let served = Served::start(&harness).await?;
    let gateway = Gateway::start(&harness, subject).await?;
    let mut figures = Vec::new();
    // Before and after the busy parts, each beside commits of the same moment: what was written for tens of thousands
    // of orders keeps the disk busy for a while, and a commit waits for it.
    let one_at_a_time = async |of| {
        let commits = commits(&harness, seconds).await?;
        let (_, latencies) = gateway.drive(1, 1, seconds, Goal::Accepted).await?;
        anyhow::Ok(latency(of, &latencies, &commits))
    };
    figures.extend(one_at_a_time("FIX order").await?);
    let mut all = [Measured::default(); 2];
    for (part, measured) in PARTS.iter().zip(&mut all) {
        let callers = part.sessions * part.window;
        let orders = (0..made_beforehand(seconds)?).map(|_| fiat_order()).collect();
        let before = Worked::by(harness.database.postgres.pid());
        let engine = submissions(&harness, orders, seconds, callers).await?;
        let floor = measured_since(&before, engine, seconds);
        figures.push(rest(&served, part, seconds, engine).await?);
        *measured = gateway.drive(part.sessions, part.window, seconds, Goal::Accepted).await?.0;
        figures.extend(part.beside("FIX orders", *measured, floor));
    }
    figures.extend(one_at_a_time("FIX order after the busy parts").await?);
    gateway.stop().await?;
    served.stop.cancel();
    harness.stop().await?;
    Ok((figures, all))
}

fn made_beforehand(seconds: u64) -> anyhow::Result<usize> {
    Ok(usize::try_from(seconds)?.saturating_mul(ORDERS_A_SECOND))
}

/// `POST /v1/intents` by as many callers as there are orders on their way, beside the engine.
async fn rest(served: &Served, part: &Part, seconds: u64, engine: u64) -> anyhow::Result<Figure> {
    let callers = part.sessions * part.window;
    let (count, keys) = (made_beforehand(seconds)?, served.keys.clone());
    let requests = tokio::task::spawn_blocking(move || {
        (0..count).map(|_| request(&fiat_order(), &keys)).collect::<anyhow::Result<Vec<_>>>()
    });
    let requests = Mutex::new(requests.await??);
    let next = || requests.lock().ok().and_then(|mut requests| requests.pop());
    let value = drive(served.address, seconds, callers, 202, next).await?;
    Ok(Figure::new(format!("REST orders, {callers} callers"), value, "orders/s", engine))
}

/// With settlement in the same process, beside acceptance alone. A database of its own: what was accepted before would
/// be settled first.
async fn settlement(seconds: u64, accepted: [Measured; 2], subject: Subject) -> anyhow::Result<Vec<Figure>> {
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start_for_fiat(dir.path()).await?;
    let (stop, settled) = settling_by(&harness, Arc::new(SimulatedRails::new(harness.pool().clone())));
    let gateway = Gateway::start(&harness, subject).await?;
    let mut figures = Vec::new();
    let commits = commits(&harness, seconds).await?;
    let (_, latencies) = gateway.drive(1, 1, seconds, Goal::Filled).await?;
    figures.extend(latency("FIX order to Filled", &latencies, &commits));
    for (part, floor) in PARTS.iter().zip(accepted) {
        let measured = gateway.drive(part.sessions, part.window, seconds, Goal::Filled).await?.0;
        figures.extend(part.beside("FIX orders to Filled", measured, floor));
    }
    gateway.stop().await?;
    stop.send_replace(true);
    settled.await?;
    harness.stop().await?;
    Ok(figures)
}

/// Settles the harness's orders by a rail in this process, until told to stop.
pub(crate) fn settling_by(
    harness: &DurableHarness,
    rails: Arc<dyn Rail>,
) -> (watch::Sender<bool>, JoinHandle<()>) {
    let stop = watch::Sender::new(false);
    let run = workflow::run(
        harness.engine.clone(),
        RailUse::of(rails.clone()),
        RailUse::of(rails),
        stop.subscribe(),
    );
    (stop, tokio::spawn(run))
}

/// The gateway of a harness on loopback, with its sessions.
pub struct Gateway {
    addr: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    postmaster: u32,
}

impl Gateway {
    pub async fn start(harness: &DurableHarness, subject: Subject) -> anyhow::Result<Self> {
        let mut conn = harness.pool().acquire().await?;
        for n in 0..PARTS.iter().map(|part| part.sessions).max().unwrap_or(1) {
            let client = comp_id(n);
            let id = fix::session_id("FIX.4.4", "DVP", &client);
            let session = NewFixSession {
                partner_id: harness.tenant.partner_id.clone(),
                livemode: harness.tenant.livemode,
                begin_string: "FIX.4.4".into(),
                password_hash: harness.engine.context().vault.fix_password_hash(&id, PASSWORD),
                password_key: harness.engine.context().vault.current_id().to_owned(),
                client_comp_id: client,
                service_comp_id: "DVP".into(),
                default_appl_ver_id: None,
                username: USERNAME.into(),
            };
            fix::upsert_session(&mut conn, &session).await?;
        }
        drop(conn);
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let (engine, pool) = (harness.engine.clone(), harness.pool().clone());
        let config = GatewayConfig { archives_messages: subject.archives, ..GatewayConfig::default() };
        let (gateway, addr) = FixGateway::bind(addr, engine, pool, config).await?;
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(gateway.run(shutdown.clone()));
        // Sessions are taken in the background: the gateway is ready when it admits one.
        tokio::task::spawn_blocking(move || admitted(addr, 0)).await??;
        Ok(Self { addr, shutdown, task, postmaster: harness.database.postgres.pid() })
    }

    /// Runs the sessions concurrently, each on a thread of its own.
    pub(crate) async fn drive(
        &self,
        sessions: usize,
        window: usize,
        seconds: u64,
        goal: Goal,
    ) -> anyhow::Result<(Measured, Vec<Duration>)> {
        let addr = self.addr;
        let clients = tokio::task::spawn_blocking(move || {
            let client = |n| Ok((admitted(addr, n)?, Orders::new(goal)));
            (0..sessions).map(client).collect::<anyhow::Result<Vec<_>>>()
        });
        let clients = clients.await??;
        let before = Worked::by(self.postmaster);
        let time = Duration::from_secs(seconds);
        let driven = tokio::task::spawn_blocking(move || fix_client::drive(clients, time, window));
        let Driven { workloads, elapsed, worked } = driven.await??;
        progress::done(format!("{sessions} FIX sessions with {window} orders"));
        let latencies: Vec<Duration> = workloads.into_iter().flat_map(|orders| orders.latencies).collect();
        Ok((before.each(latencies.len(), elapsed, worked), latencies))
    }

    /// Sends orders over one session, and waits until they are filled.
    pub async fn fill(&self, orders: usize) -> anyhow::Result<()> {
        self.drive(1, orders, 0, Goal::Filled).await.map(drop)
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        self.task.await.context("the gateway")
    }
}

/// The client of a session, once the gateway has taken the session, and has seen the end of an earlier connection.
fn admitted(addr: SocketAddr, n: usize) -> anyhow::Result<Client> {
    let until = Instant::now() + ADMITTED_WITHIN;
    loop {
        match Client::log_on(addr, comp_id(n), Some((USERNAME, PASSWORD))) {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn comp_id(n: usize) -> String {
    format!("CLNT{n}")
}

/// The cost of an order since `before`, of a rate that was measured elsewhere.
fn measured_since(before: &Worked, orders_a_second: u64, seconds: u64) -> Measured {
    let orders = usize::try_from(orders_a_second.saturating_mul(seconds)).unwrap_or(usize::MAX);
    Measured { orders_a_second, ..before.each(orders, Duration::from_secs(seconds), Duration::ZERO) }
}

impl Part {
    pub(crate) fn beside(&self, orders: &str, ours: Measured, floor: Measured) -> [Figure; 4] {
        let of = format!("{orders}, {}", self.name);
        beside(&of, &format!(" with {}", self.window), ours, floor)
    }
}

/// A rate and the processor time of an order beside those of the floor; `how` tells the rate's load.
pub(crate) fn beside(of: &str, how: &str, ours: Measured, floor: Measured) -> [Figure; 4] {
    let cpu = |whose, value, floor| Figure::new(format!("{of}, CPU of {whose}"), value, "ns/order", floor);
    [
        Figure::new(format!("{of}{how}"), ours.orders_a_second, "orders/s", floor.orders_a_second),
        cpu("the service", ours.service, floor.service),
        cpu("PostgreSQL", ours.postgres, floor.postgres),
        cpu("the client", ours.client, floor.client),
    ]
}

/// Durable commits of one row, one after the other.
async fn commits(harness: &DurableHarness, seconds: u64) -> anyhow::Result<Vec<Duration>> {
    let mut conn = PgConnection::connect_with(&harness.database.postgres.connect_options()).await?;
    sqlx::query("create table if not exists floor (id uuid primary key, body text not null)")
        .execute(&mut conn)
        .await?;
    let (until, body) = (Instant::now() + Duration::from_secs(seconds), "x".repeat(1024));
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let at = Instant::now();
        sqlx::query("insert into floor values ($1, $2)")
            .bind(uuid::Uuid::new_v4())
            .bind(&body)
            .execute(&mut conn)
            .await?;
        latencies.push(at.elapsed());
    }
    conn.close().await?;
    Ok(latencies)
}

/// Median and 99th percentile beside those of a commit.
fn latency(of: &str, ours: &[Duration], floor: &[Duration]) -> [Figure; 2] {
    let at = |all: &[Duration], share: usize| {
        let mut all = all.to_vec();
        all.sort_unstable();
        let found = all.get(all.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
        u64::try_from(found.as_nanos()).unwrap_or(u64::MAX)
    };
    let figure = |what, share| Figure::new(format!("{of}, {what}"), at(ours, share), "ns", at(floor, share));
    [figure("median", 50), figure("p99", 99)]
}
