//! The database under fire: orders come through both interfaces, webhooks and a bank's files go out, and all the while
//! the primary of three replicating PostgreSQL servers is killed, frozen, cut off, or restarted without its standbys; a
//! standby is promoted, and the former primary comes back as it was before it is made a standby. Afterwards every
//! acknowledged order must exist and be settled once, and everything that was reported must be stored.

mod load;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_sandbox::embedded::replicas::Replicas;

pub use self::load::FailoverReport;
pub(crate) use self::load::{Load, PATIENCE, check_webhooks, position, subscribe};
use crate::crash::check;
use crate::crash::dice::Dice;

/// The servers of a drill. With one standby down, commits wait for the other.
const SERVERS: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One drill.
#[derive(Debug, Clone)]
pub struct FailoverPlan {
    /// The program under fire.
    pub binary: PathBuf,
    pub seed: u64,
    pub rounds: u32,
    /// Commits do not wait for a standby: a drill that must fail.
    pub asynchronous: bool,
}

/// What happens to the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It is killed, and restarted after the promotion.
    Killed,
    /// It stops, and goes on after the promotion.
    Frozen,
    /// Neither the service nor the standbys reach it until after the promotion.
    Isolated,
    /// The standbys do not reach it, and the service does.
    WithoutStandbys,
    /// The same; then it is killed while commits wait, and restarted: now they are visible, and no standby has them.
    RestartedWithoutStandbys,
}

const FAULTS: [Fault; 5] =
    [Fault::RestartedWithoutStandbys, Fault::Frozen, Fault::Killed, Fault::Isolated, Fault::WithoutStandbys];

impl Fault {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::Isolated => "isolated",
            Self::WithoutStandbys => "withoutStandbys",
            Self::RestartedWithoutStandbys => "restartedWithoutStandbys",
        }
    }
}

/// Runs a drill in a directory of its own. An error names the promise that was broken.
pub async fn run(plan: &FailoverPlan) -> anyhow::Result<FailoverReport> {
    let dir = tempfile::tempdir()?;
    let outcome = under_fire(plan, dir.path()).await;
    if outcome.is_err() {
        let kept = dir.keep();
        return outcome.with_context(|| format!("seed {}; the log is in {}", plan.seed, kept.display()));
    }
    outcome
}

async fn under_fire(plan: &FailoverPlan, dir: &Path) -> anyhow::Result<FailoverReport> {
    let mut replicas = Replicas::start(SERVERS, !plan.asynchronous).await?;
    let urls = replicas.urls().into_iter().flat_map(|url| ["--database-url".to_owned(), url]);
    let asynchronous = plan.asynchronous.then(|| "--asynchronous-database".to_owned());
    let database = urls.chain(asynchronous).collect();
    let mut load = Load::begin(&plan.binary, plan.seed, dir, database).await?;
    let mut report = FailoverReport::default();
    let fire = fire(plan, &mut replicas, &mut load, &mut report).await;
    fire.with_context(|| load.log_tail())?;
    load.end(replicas.direct_url(replicas.primary()), &mut report).await?;
    Ok(report)
}

async fn fire(
    plan: &FailoverPlan,
    replicas: &mut Replicas,
    load: &mut Load,
    report: &mut FailoverReport,
) -> anyhow::Result<()> {
    let mut dice = Dice::new(plan.seed);
    let first = usize::try_from(dice.roll(u64::try_from(FAULTS.len())?))?;
    for (round, fault) in (0..plan.rounds).zip(FAULTS.iter().cycle().skip(first)) {
        tokio::time::sleep(Duration::from_millis(500 + dice.roll(2_000))).await;
        load.check_running()?;
        let outage = one_round(*fault, replicas, &mut dice).await;
        let outage = outage.with_context(|| format!("round {}, {}", round + 1, fault.as_str()))?;
        report.longest_outage = report.longest_outage.max(outage);
        *report.rounds.entry(fault.as_str()).or_default() += 1;
    }
    Ok(())
}

/// One fault, one fail-over, and the return of the former primary. Returns how long nothing was committed.
async fn one_round(fault: Fault, replicas: &mut Replicas, dice: &mut Dice) -> anyhow::Result<Duration> {
    let former = replicas.primary();
    let began = Instant::now();
    match fault {
        Fault::Killed => replicas.kill(former)?,
        Fault::Frozen => replicas.freeze(former)?,
        Fault::Isolated => {
            replicas.cut_peers(former);
            replicas.cut_clients(former);
        }
        Fault::WithoutStandbys => replicas.cut_peers(former),
        Fault::RestartedWithoutStandbys => {
            replicas.cut_peers(former);
            commits_wait(replicas, former).await?;
            replicas.kill(former)?;
            replicas.restart(former).await?;
            // Time to connect to it and to report what it shows.
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    }
    // Whoever decides about a fail-over waits for a while.
    tokio::time::sleep(Duration::from_millis(dice.roll(3_000))).await;
    let promoted = replicas.fail_over().await?;
    let before = position(&mut replicas.admin(promoted).await?).await?;
    match fault {
        Fault::Killed => replicas.restart(former).await?,
        Fault::Frozen => replicas.thaw(former)?,
        Fault::Isolated => replicas.heal(former),
        Fault::WithoutStandbys | Fault::RestartedWithoutStandbys => {}
    }
    let mut admin = replicas.admin(promoted).await?;
    while position(&mut admin).await? == before {
        ensure!(began.elapsed() < PATIENCE, "the service does not write to the new primary");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let outage = began.elapsed();
    tokio::time::sleep(Duration::from_millis(dice.roll(2_000))).await;
    replicas.rebuild(former).await?;
    replicas.wait_for_standbys().await?;
    Ok(outage)
}

/// Waits until commits wait for a standby; those of asynchronous replication never do.
async fn commits_wait(replicas: &Replicas, server: usize) -> anyhow::Result<()> {
    let mut admin = replicas.admin(server).await?;
    let deadline = Instant::now() + Duration::from_secs(2);
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    while check::count(&mut admin, waiting).await? == 0 && Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
