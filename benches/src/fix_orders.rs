//! NewOrderSingle to its committed ExecutionReport through the whole gateway, beside the engine with the same orders in
//! the same run; latency beside a durable commit of one row.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dvp_fix::codec::{Body, MsgType, Parser};
use dvp_fix::{UtcNanos, tag};
use dvp_fix_gateway::{FixGateway, GatewayConfig};
use dvp_store::fix::{self, NewFixSession};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, per_second, within};
use crate::fix_client::{self, Client, Driven, Workload};
use crate::harness::{ACCOUNT, DurableHarness, fiat_order};
use crate::proc;
use crate::progress;
use crate::submit::{ORDERS_A_SECOND, commits, submissions};

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

pub async fn measure(seconds: u64, archives_messages: bool) -> anyhow::Result<Vec<Figure>> {
    progress::expect(2 + 2 * 2);
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start_for_fiat(dir.path()).await?;
    let gateway = Gateway::start(&harness, archives_messages).await?;
    let mut figures = Vec::new();
    // Before and after the busy parts, each beside commits of the same moment: what was written for tens of thousands
    // of orders keeps the disk busy for a while, and a commit waits for it.
    let one_at_a_time = async |of| {
        let commits = commits(&harness, seconds, 1).await?;
        let (_, latencies) = gateway.drive(1, 1, seconds, Goal::Accepted).await?;
        anyhow::Ok(latency(of, &latencies, &commits))
    };
    figures.extend(one_at_a_time("FIX order").await?);
    let made_beforehand = usize::try_from(seconds)?.saturating_mul(ORDERS_A_SECOND);
    for part in &PARTS {
        let callers = part.sessions * part.window;
        let orders = (0..made_beforehand).map(|_| fiat_order()).collect();
        let before = Worked::by(harness.database.postgres.pid());
        let engine = submissions(&harness, orders, seconds, callers).await?;
        let floor = measured_since(&before, engine, seconds);
        let (measured, _) = gateway.drive(part.sessions, part.window, seconds, Goal::Accepted).await?;
        figures.extend(part.beside("FIX orders", measured, floor));
    }
    figures.extend(one_at_a_time("FIX order after the busy parts").await?);
    gateway.stop().await?;
    harness.stop().await?;
    Ok(figures)
}

/// The gateway of a harness on loopback, with its sessions.
pub struct Gateway {
    addr: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    postmaster: u32,
}

impl Gateway {
    pub async fn start(harness: &DurableHarness, archives_messages: bool) -> anyhow::Result<Self> {
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
        let config = GatewayConfig { archives_messages, ..GatewayConfig::default() };
        let (gateway, addr) = FixGateway::bind(addr, engine, pool, config).await?;
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(gateway.run(shutdown.clone()));
        // Sessions are taken in the background: the gateway is ready when it admits one.
        tokio::task::spawn_blocking(move || admitted(addr, 0)).await??;
        Ok(Self { addr, shutdown, task, postmaster: harness.database.postgres.pid() })
    }

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

fn latency(of: &str, ours: &[Duration], floor: &[Duration]) -> [Figure; 2] {
    let at = |all: &[Duration], share: usize| {
        let mut all = all.to_vec();
        all.sort_unstable();
        u64::try_from(within(&all, share).as_nanos()).unwrap_or(u64::MAX)
    };
    let figure = |what, share| Figure::new(format!("{of}, {what}"), at(ours, share), "ns", at(floor, share));
    [figure("median", 50), figure("p99", 99)]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// It is accepted: ExecType(150) is New.
    Accepted,
    /// It is paid: ExecType(150) is Trade.
    Filled,
}

struct Orders {
    goal: Goal,
    parser: Parser,
    /// When the unanswered orders were sent, by ClOrdID.
    sent: HashMap<Vec<u8>, Instant>,
    /// From writing each order to the report that it was sent for.
    latencies: Vec<Duration>,
}

impl Orders {
    fn new(goal: Goal) -> Self {
        Self { goal, parser: Parser::new(), sent: HashMap::new(), latencies: Vec::new() }
    }
}

impl Workload for Orders {
    fn write_order(&mut self, client: &mut Client, at: UtcNanos) {
        // Sequence numbers begin at 1 in each run; a ClOrdID must never repeat.
        let id = format!("{}-{}-{}", client.comp_id, at.0, client.seq);
        let order = Body::new().field(1, ACCOUNT).field(11, &id).field(38, "100").field(40, "2");
        let order = order.field(44, "0.5").field(54, "2").field(55, "USD/EUR").field(59, "0");
        let order = order.field(60, at.to_millis_text());
        client.write(MsgType::NEW_ORDER_SINGLE, &order, at);
        self.sent.insert(id.into_bytes(), Instant::now());
    }

    fn is_answer(&mut self, frame: &[u8]) -> anyhow::Result<bool> {
        let message = self.parser.parse(frame)?;
        if message.msg_type() == b"0" {
            return Ok(false);
        }
        ensure!(message.msg_type() == b"8", "not a report: {}", message.redacted());
        // A report of the connection before: our Logon reset the numbers before the service knew that it was read.
        if message.is_yes(tag::POSS_RESEND) {
            return Ok(false);
        }
        match (message.get(150), self.goal) {
            (Some(b"0"), Goal::Accepted) | (Some(b"F"), Goal::Filled) => {}
            (Some(b"0" | b"I"), Goal::Filled) => return Ok(false),
            _ => bail!("an order was not taken: {}", message.redacted()),
        }
        let id = message.get(11).context("a report without ClOrdID")?;
        let at = self.sent.remove(id).context("a report of an unknown order")?;
        self.latencies.push(at.elapsed());
        Ok(true)
    }
}
