//! The fail-over as it is in production: three machines with PostgreSQL under Patroni and etcd, set up by the files in
//! `deploy/`. Patroni decides; the drill only makes machines fail and brings them back. Load and promises are those of
//! [`crate::failover`].

mod cluster;
mod machine;
mod settings;
mod tools;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use sqlx::{Connection as _, PgConnection};

use self::cluster::{Cluster, LOOK_EVERY};
use crate::crash::load::{Load, position};
use crate::dice::Dice;
use crate::drill::{Drill, PATIENCE, Program, Report, in_rounds, with_log};
use crate::failover::LOAD;

/// Longer than Patroni's `ttl`, `loop_wait` and `retry_timeout` together.
const LONG: Duration = Duration::from_secs(35);

#[derive(Debug, Clone, Args)]
pub struct PatroniDrill {
    /// How often the leader fails with each seed.
    #[arg(long, default_value_t = 7)]
    pub rounds: u32,
    #[command(flatten)]
    pub program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// Its machine loses power and is started after the promotion.
    Killed,
    /// Its machine stands still and goes on after the promotion.
    Frozen,
    /// Patroni does not reach etcd, and the other machines answer it: it goes on.
    WithoutEtcd,
    /// Nothing reaches its machine until after the promotion.
    Isolated,
    /// Patroni hangs: the watchdog resets the machine.
    Hung,
    /// Only PostgreSQL is killed; Patroni starts it again or gives up the lead.
    ServerKilled,
    /// An operator makes the synchronous standby the leader.
    SwitchedOver,
}

impl Drill for PatroniDrill {
    const NAME: &'static str = "patroni";

    fn rounds(&self) -> u32 {
        self.rounds
    }

    async fn run_in(&self, seed: u64, dir: &Path) -> anyhow::Result<Report> {
        let mut cluster = Cluster::start(PATIENCE).await?;
        let mut load = Load::begin(self.program.path()?, seed, dir, cluster.arguments(), LOAD).await?;
        let (mut report, mut dice) = (Report::default(), Dice::new(seed));
        let fire = in_rounds(
            Fault::value_variants(),
            self.rounds,
            &mut dice,
            &mut report,
            async |fault, dice, report| {
                cluster.pause(Duration::from_secs(1) + dice.millis(3_000)).await?;
                load.check_running()?;
                report.longest("longestOutageMs", one_round(fault, &mut cluster, dice).await?);
                Ok(())
            },
        );
        let fire = fire.await;
        with_log(fire, || format!("{}\n{}", cluster.log_tails(), load.log_tail()))?;
        let leader = cluster.healthy(PATIENCE).await?;
        load.end(Some(cluster.url(leader)?), None, &mut report).await?;
        Ok(report)
    }
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
    cluster.pause(dice.millis(3_000)).await?;
    cluster.restore()?;
    while position(&mut admin).await? == before {
        ensure!(began.elapsed() < PATIENCE, "the service does not write to the new primary");
        cluster.pause(LOOK_EVERY).await?;
    }
    let outage = began.elapsed();
    cluster.healthy(PATIENCE).await?;
    Ok(outage)
}
