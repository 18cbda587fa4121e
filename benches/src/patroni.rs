//! The fail-over as it is in production: three machines with PostgreSQL under Patroni and etcd, set up by the files in
//! `deploy/`. Patroni decides; the drill only makes machines fail and brings them back. Load and promises are those of
//! [`crate::failover`].

mod certificates;
mod cluster;
mod machine;
mod settings;
mod tools;
mod watchdog;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sqlx::{Connection as _, PgConnection};

use self::cluster::Cluster;
use crate::crash::dice::Dice;
use crate::failover::{FailoverReport, Load, PATIENCE, position};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longer than Patroni's `ttl`, `loop_wait` and `retry_timeout` together.
const LONG: Duration = Duration::from_secs(35);

/// One drill.
#[derive(Debug, Clone)]
pub struct PatroniPlan {
    /// The program under fire.
    pub binary: PathBuf,
    pub seed: u64,
    pub rounds: u32,
}

/// What happens to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Its machine loses power and is started after the promotion.
    Killed,
    /// Its machine stands still and goes on after the promotion.
    Frozen,
    /// Nothing reaches its machine until after the promotion.
    Isolated,
    /// Patroni hangs: the watchdog resets the machine.
    Hung,
    /// Only PostgreSQL is killed; Patroni starts it again or gives up the lead.
    ServerKilled,
    /// Patroni does not reach etcd, and the other machines answer it: it goes on.
    WithoutEtcd,
    /// An operator makes the synchronous standby the leader.
    SwitchedOver,
}

const FAULTS: [Fault; 7] = [
    Fault::Killed,
    Fault::Frozen,
    Fault::WithoutEtcd,
    Fault::Isolated,
    Fault::Hung,
    Fault::ServerKilled,
    Fault::SwitchedOver,
];

impl Fault {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::Isolated => "isolated",
            Self::Hung => "hung",
            Self::ServerKilled => "serverKilled",
            Self::WithoutEtcd => "withoutEtcd",
            Self::SwitchedOver => "switchedOver",
        }
    }
}

/// Runs a drill in a directory of its own. An error names the promise that was broken.
pub async fn run(plan: &PatroniPlan) -> anyhow::Result<FailoverReport> {
    let dir = tempfile::tempdir()?;
    let outcome = under_fire(plan, dir.path()).await;
    if outcome.is_err() {
        let kept = dir.keep();
        return outcome.with_context(|| format!("seed {}; the log is in {}", plan.seed, kept.display()));
    }
    outcome
}

async fn under_fire(plan: &PatroniPlan, dir: &Path) -> anyhow::Result<FailoverReport> {
    let mut cluster = Cluster::start(PATIENCE).await?;
    let mut load = Load::begin(&plan.binary, plan.seed, dir, cluster.arguments()).await?;
    let mut report = FailoverReport::default();
    let fire = fire(plan, &mut cluster, &mut load, &mut report).await;
    fire.map_err(|error| anyhow::anyhow!("{error:#}\n{}\n{}", cluster.log_tails(), load.log_tail()))?;
    let leader = cluster.healthy(PATIENCE).await?;
    load.end(cluster.url(leader)?, &mut report).await?;
    Ok(report)
}

async fn fire(
    plan: &PatroniPlan,
    cluster: &mut Cluster,
    load: &mut Load,
    report: &mut FailoverReport,
) -> anyhow::Result<()> {
    let mut dice = Dice::new(plan.seed);
    let first = usize::try_from(dice.roll(u64::try_from(FAULTS.len())?))?;
    for (round, fault) in (0..plan.rounds).zip(FAULTS.iter().cycle().skip(first)) {
        cluster.pause(Duration::from_millis(1_000 + dice.roll(3_000))).await?;
        load.check_running()?;
        let outage = one_round(*fault, cluster, &mut dice).await;
        let outage = outage.with_context(|| format!("round {}, {}", round + 1, fault.as_str()))?;
        report.longest_outage = report.longest_outage.max(outage);
        *report.rounds.entry(fault.as_str()).or_default() += 1;
    }
    Ok(())
}

/// One fault, what Patroni makes of it, and the return of the machine. Returns how long nothing was committed.
async fn one_round(fault: Fault, cluster: &mut Cluster, dice: &mut Dice) -> anyhow::Result<Duration> {
    let former = cluster.healthy(PATIENCE).await?;
    let mut began = Instant::now();
    match fault {
        Fault::Killed => cluster.machine_mut(former)?.power_off()?,
        Fault::Frozen => cluster.machine_mut(former)?.freeze()?,
        Fault::Isolated => cluster.isolate(former)?,
        Fault::Hung => {
            cluster.machine(former)?.hang_patroni()?;
            while cluster.machine(former)?.is_on() {
                ensure!(began.elapsed() < LONG, "the watchdog does not reset the machine");
                cluster.pause(LOOK_EVERY).await?;
            }
        }
        Fault::ServerKilled => cluster.machine(former)?.kill_postgres()?,
        Fault::WithoutEtcd => {
            cluster.machine(former)?.cut_etcd();
            cluster.pause(LONG).await?;
            began = Instant::now();
        }
        Fault::SwitchedOver => cluster.switch_over(former).await?,
    }
    let other = match fault {
        Fault::ServerKilled | Fault::WithoutEtcd => None,
        Fault::Killed | Fault::Frozen | Fault::Isolated | Fault::Hung | Fault::SwitchedOver => Some(former),
    };
    let promoted = cluster.primary_other_than(other, PATIENCE).await?;
    ensure!(
        fault != Fault::WithoutEtcd || promoted == former,
        "another leader, although failsafe_mode is on"
    );
    let mut admin = PgConnection::connect(&cluster.url(promoted)?).await?;
    let before = position(&mut admin).await?;
    // A former primary comes back at some time.
    cluster.pause(Duration::from_millis(dice.roll(3_000))).await?;
    cluster.restore()?;
    while position(&mut admin).await? == before {
        ensure!(began.elapsed() < PATIENCE, "the service does not write to the new primary");
        cluster.pause(LOOK_EVERY).await?;
    }
    let outage = began.elapsed();
    cluster.healthy(PATIENCE).await?;
    Ok(outage)
}
