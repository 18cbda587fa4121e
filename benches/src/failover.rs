//! A database on several servers whose primary fails: orders come through both interfaces while it is killed, frozen or
//! cut off, a standby is promoted, and the former primary comes back as it was before it is made a standby. Afterwards
//! every acknowledged order must exist and be settled once, and everything that was reported must be stored.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dvp_sandbox::embedded::replicas::Replicas;

use crate::crash::check;
use crate::crash::load::{Load, Who, position, written_since};
use crate::crash::recipients::Kind;
use crate::dice::Dice;
use crate::drill::{Drill, Program, Report, in_rounds, until, with_log};

/// The servers of a drill. With one standby down, commits wait for the other.
const SERVERS: usize = 3;
pub(crate) const LOAD: (Kind, Who<'static>) =
    (Kind::Prompt, Who { callers: &[None, None, Some(0), Some(2)], sessions: &[Some(1), None] });

#[derive(Debug, Clone, Args)]
pub struct FailoverDrill {
    /// How often the primary fails with each seed.
    #[arg(long, default_value_t = 10)]
    pub rounds: u32,
    /// Let commits not wait for a standby: the drill must then find lost orders.
    #[arg(long)]
    pub asynchronous: bool,
    #[command(flatten)]
    pub program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// The standbys do not reach it, and the service does; then it is killed while commits wait, and restarted: now they
    /// are visible, and no standby has them.
    RestartedWithoutStandbys,
    /// It stops, and goes on after the promotion.
    Frozen,
    /// It is killed, and restarted after the promotion.
    Killed,
    /// Neither the service nor the standbys reach it until after the promotion.
    Isolated,
    /// The standbys do not reach it, and the service does.
    WithoutStandbys,
}

impl Drill for FailoverDrill {
    const NAME: &'static str = "failover";

    fn rounds(&self) -> u32 {
        self.rounds
    }

    async fn run_in(&self, seed: u64, dir: &Path) -> anyhow::Result<Report> {
        let mut replicas = Replicas::start(SERVERS, !self.asynchronous).await?;
        let urls = replicas.urls().into_iter().flat_map(|url| ["--database-url".to_owned(), url]);
        let database = urls.chain(self.asynchronous.then(|| "--asynchronous-database".to_owned())).collect();
        let mut load = Load::begin(self.program.path()?, seed, dir, database, LOAD).await?;
        let (mut report, mut dice) = (Report::default(), Dice::new(seed));
        let fire = in_rounds(
            Fault::value_variants(),
            self.rounds,
            &mut dice,
            &mut report,
            async |fault, dice, report| {
                tokio::time::sleep(Duration::from_millis(500) + dice.millis(2_000)).await;
                load.check_running()?;
                report.longest("longestOutageMs", one_round(fault, &mut replicas, dice).await?);
                Ok(())
            },
        );
        with_log(fire.await, || load.log_tail())?;
        load.end(Some(replicas.direct_url(replicas.primary())), None, &mut report).await?;
        Ok(report)
    }
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
    tokio::time::sleep(dice.millis(3_000)).await;
    let promoted = replicas.fail_over().await?;
    let mut admin = replicas.admin(promoted).await?;
    let before = position(&mut admin).await?;
    match fault {
        Fault::Killed => replicas.restart(former).await?,
        Fault::Frozen => replicas.thaw(former)?,
        Fault::Isolated => replicas.heal(former),
        Fault::WithoutStandbys | Fault::RestartedWithoutStandbys => {}
    }
    written_since(&mut admin, before).await?;
    let outage = began.elapsed();
    tokio::time::sleep(dice.millis(2_000)).await;
    replicas.rebuild(former).await?;
    replicas.wait_for_standbys().await?;
    Ok(outage)
}

/// Waits until commits wait for a standby; those of asynchronous replication never do.
async fn commits_wait(replicas: &Replicas, server: usize) -> anyhow::Result<()> {
    let mut admin = replicas.admin(server).await?;
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    let is_waiting = async || Ok((check::count(&mut admin, waiting).await? > 0).then_some(()));
    let _ = until(Duration::from_secs(2), "commits wait", is_waiting).await;
    Ok(())
}
