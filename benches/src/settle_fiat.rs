//! Orders of money for money through their whole life: over REST until the feed has `payout.completed`, over FIX until
//! the report of the fill. Settled by the simulated rails, whose books are in the database, beside a rail in memory,
//! which shows what the service itself costs.

mod rail;
mod rest;
mod statements;

use std::sync::Arc;

use dvp_rails::Rail;
use dvp_sandbox::embedded::Options;
use dvp_sandbox::rails::SimulatedRails;

use self::rail::MemoryRail;
use self::statements::{StatementFigure, Statements};
use crate::figure::Figures;
use crate::fix_orders::{Gateway, Goal, Measured, PARTS, Subject, beside, settling_by};
use crate::harness::DurableHarness;
use crate::http::Served;
use crate::progress;

/// Orders that are settled before the clock starts, so that plans and caches exist on every connection.
const WARM_UP: usize = 2_000;
/// The same over FIX.
const WARM_UP_SECONDS: u64 = 3;
/// Rounds of autovacuum are as far apart as PostgreSQL has them, and not 5 s as in a sandbox, where they gather a new
/// database's statistics: here `analyze` does, before the clock starts.
const SETTINGS: [&str; 3] = [
    "shared_preload_libraries=pg_stat_statements",
    "pg_stat_statements.track_planning=on",
    "autovacuum_naptime=60s",
];
/// Unsettled orders of the callers of REST.
const REST_WINDOW: usize = 64;

/// Measures each part for `seconds` with each rail. The floor of a figure is the one with the rail in memory.
pub async fn measure(seconds: u64) -> anyhow::Result<Figures> {
    progress::expect(2 * 6);
    let mut statements = Vec::new();
    let [rest_floor, floor @ ..] = settled_by(RailKind::Memory, seconds, &mut statements).await?;
    let [rest, ours @ ..] = settled_by(RailKind::Simulated, seconds, &mut statements).await?;
    let over_rest = beside("fiat orders over REST", &format!(", {REST_WINDOW} unsettled"), rest, rest_floor);
    let parts = PARTS.iter().zip(ours.into_iter().zip(floor));
    let over_fix = parts.flat_map(|(part, (ours, floor))| part.beside("fiat orders over FIX", ours, floor));
    let figures = over_rest.into_iter().chain(over_fix).map(|figure| figure.json());
    let lines = statements.iter().map(StatementFigure::json).chain(figures).collect();
    Ok(Figures { lines, missed: String::new() })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RailKind {
    Memory,
    Simulated,
}

impl RailKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Simulated => "simulated",
        }
    }
}

async fn settled_by(
    kind: RailKind,
    seconds: u64,
    statements: &mut Vec<StatementFigure>,
) -> anyhow::Result<[Measured; 3]> {
    let dir = tempfile::tempdir()?;
    let settings = SETTINGS.map(str::to_owned).to_vec();
    let harness =
        DurableHarness::start_for_fiat_under(dir.path(), Options { settings, ..Options::default() }).await?;
    let log = Statements::begin(harness.pool(), kind.as_str()).await?;
    let rail: Arc<dyn Rail> = match kind {
        RailKind::Memory => Arc::new(MemoryRail::default()),
        RailKind::Simulated => Arc::new(SimulatedRails::new(harness.pool().clone())),
    };
    let (stop, settled) = settling_by(&harness, rail);
    let served = Served::start(&harness).await?;
    let mut all = [Measured::default(); 3];

    let mut follower = rest::Follower::connect(&served).await?;
    follower.settle(&harness, &served, REST_WINDOW, rest::Until::sent(WARM_UP)).await?;
    log.begin_part().await?;
    let until = rest::Until::after(seconds)?;
    let (orders, measured) = follower.settle(&harness, &served, REST_WINDOW, until).await?;
    all[0] = measured;
    statements.extend(log.read("REST", orders).await?);
    served.stop.cancel();

    // Not before: its sessions read the feed of all the partner's orders.
    let gateway = Gateway::start(&harness, Subject { archives: true, settles: true }).await?;
    for ((part, name), measured) in
        PARTS.iter().zip(["FIX, one session", "FIX, eight sessions"]).zip(&mut all[1..])
    {
        gateway.drive(part.sessions, part.window, WARM_UP_SECONDS, Goal::Filled).await?;
        log.begin_part().await?;
        let (cost, latencies) = gateway.drive(part.sessions, part.window, seconds, Goal::Filled).await?;
        *measured = cost;
        statements.extend(log.read(name, latencies.len()).await?);
    }
    gateway.stop().await?;
    stop.send_replace(true);
    settled.await?;
    harness.stop().await?;
    Ok(all)
}
