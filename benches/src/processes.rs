//! Several processes on one database: orders come through both interfaces of all of them, payments go through one
//! folder to a bank, and webhooks go out, while processes are killed, frozen, and restarted one after the other.
//! Afterwards every acknowledged order must exist and be settled once, the bank must have one file for each payment,
//! every number of FIX must stand for one message that its client has, and every event must have been delivered; a
//! restart in turn may refuse nothing, no fence is crossed, and what a process leaves another one takes.

mod bank;
mod fleet;
mod ground;
mod leases;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use dvp_testing::receiver::Receiver;
use sqlx::{Connection as _, PgConnection};

use self::fleet::Fleet;
use self::ground::Ground;
use self::leases::LeaseWatch;
use crate::crash::check;
use crate::crash::load::{Clients, Door, Outside, Who, receiver, subscribe};
use crate::crash::process::text;
use crate::dice::Dice;
use crate::drill::{Drill, PATIENCE, Program, Report, in_rounds, until};
use crate::http::Keys;

/// What a process logs when it accepts a connection for a session of its own from another process.
const FORWARDED: &str = "forwarded connection accepted";
/// What a process logs when it has staged a payment's file and could not move it to the bank.
const NOT_MOVED: &str = "payment order is staged and may not have reached the bank yet";
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Args)]
pub struct ProcessesDrill {
    /// The number of processes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=4))]
    pub processes: u8,
    /// How often something happens to them with each seed.
    #[arg(long, default_value_t = 9)]
    pub rounds: u32,
    /// The time within which another process has a session, a chain or an endpoint that became free: after a clean
    /// stop, and after the end of a dead process's lease.
    #[arg(long, value_name = "MILLIS", default_value_t = 2_000)]
    pub handover: u64,
    /// The program of the next release: a restart in turn updates to it, beside the processes of the release before, and
    /// the one after goes back.
    #[arg(long, value_name = "FILE")]
    pub next: Option<PathBuf>,
    #[command(flatten)]
    pub program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// One is killed that has staged a payment's file and has not moved it to the bank; another one moves it.
    KilledWhileGiving,
    /// Each is stopped and started again, one after the other.
    RestartedInTurn,
    /// One stops working and goes on, before or after others have taken over.
    Frozen,
    /// One stops working that has a payment's file staged, and goes on after another one has moved it.
    FrozenWhileGiving,
    /// One is killed and started again.
    Killed,
}

impl Drill for ProcessesDrill {
    const NAME: &'static str = "processes";

    fn rounds(&self) -> u32 {
        self.rounds
    }

    async fn run_in(&self, seed: u64, dir: &Path) -> anyhow::Result<Report> {
        let ((receiver, pem), processes) = (receiver().await, usize::from(self.processes));
        let dice = Dice::new(seed ^ 20 << 32);
        let ground = Ground::prepare(self.program.path()?, dir, processes, &pem, dice).await?;
        let mut fleet = Fleet::start(ground, processes, PATIENCE).await?;
        fleet.releases = match &self.next {
            Some(next) => vec![next.clone(), self.program.path()?],
            None => Vec::new(),
        };
        let outcome = self.drilled(seed, &mut fleet, &receiver).await;
        // The reason on both sides of the logs: whoever reads the ends or the beginning sees it.
        outcome.map_err(|error| anyhow::anyhow!("{error:#}\n{}\n{error:#}", fleet.log_tails()))
    }
}

impl ProcessesDrill {
    async fn drilled(&self, seed: u64, fleet: &mut Fleet, receiver: &Receiver) -> anyhow::Result<Report> {
        let mut conn = PgConnection::connect(fleet.ground.service.database.url()).await?;
        // One session a process: each client connects to the process after that of its session, or to its own.
        let owners = "select count(distinct owner) from lease \
                      where name like 'fix:%' and expires_at > clock_timestamp()";
        until(PATIENCE, "the sessions are shared", async || {
            Ok((check::count(&mut conn, owners).await? >= i64::from(self.processes)).then_some(()))
        })
        .await?;
        let ready = fleet.ready(0)?;
        subscribe(text(&ready, "/http")?, &Keys::of(&ready["partner"])?, &receiver.url("127.0.0.1")).await?;
        let recipients = fleet.ground.recipients.clone();
        let mut sessions = vec![None; usize::from(self.processes)];
        sessions[0] = Some(1);
        let who = Who { callers: &[None, None, Some(0)], sessions: &sessions };
        let clients = Clients::start(seed, &ready, &recipients, &who, |door| match door {
            Door::Rest(n) => fleet.add(n % fleet.size(), false),
            // All begin at one process, which has one of their sessions.
            Door::Fix => fleet.add(0, true),
        })?;
        // The connections of the others are forwarded, before any fault.
        let is_forwarded = async || Ok((fleet.logged(FORWARDED) > 0).then_some(()));
        until(PATIENCE, "a connection is forwarded", is_forwarded).await?;
        let leases = LeaseWatch::start(fleet.ground.service.database.url()).await?;
        let (mut report, mut dice) = (Report::default(), Dice::new(seed));
        in_rounds(Fault::value_variants(), self.rounds, &mut dice, &mut report, async |fault, dice, _| {
            tokio::time::sleep(Duration::from_millis(500) + dice.millis(1_500)).await;
            fleet.check_running()?;
            fleet.shuffle(dice)?;
            one_round(fault, fleet, &clients, dice).await
        })
        .await?;
        report.count("updates", fleet.updates);
        let (ready, bank) = (fleet.ready(0)?, fleet.ground.bank.root.clone());
        let (bank, recipients) = (Some(&*bank), &recipients);
        let outside = Outside { ready: &ready, bank, desk: None, recipients, receiver };
        let seen = clients.end().await?;
        outside.ended().await?;
        report.count("repeatedAnswers", fleet.ground.bank.end().await?);
        outside.compared(&seen, &mut report).await?;
        let limit = Duration::from_millis(self.handover);
        for (kind, taken) in leases.end().await? {
            report.kind("handovers", kind, u64::try_from(taken.count)?);
            let longest = match kind {
                "fix" => "longestFixHandoverMs",
                "webhook" => "longestWebhookHandoverMs",
                _ => "longestChainHandoverMs",
            };
            report.longest(longest, taken.longest);
            ensure!(taken.longest <= limit, "a hand-over took longer than {limit:?}: {kind}, {taken:?}");
        }
        stopped(fleet, &mut conn).await?;
        report.count("forwarded", fleet.logged(FORWARDED));
        Ok(report)
    }
}

/// Stops all processes: none of them holds anything then, and what a killed one held has been taken over.
async fn stopped(fleet: &mut Fleet, conn: &mut PgConnection) -> anyhow::Result<()> {
    for n in 0..fleet.size() {
        fleet.signal(n, "-TERM")?;
        fleet.ended(n, true, PATIENCE).await?;
    }
    let held: Vec<(String,)> = sqlx::query_as(
        "select name from lease where name like 'fix:%' and expires_at > clock_timestamp() \
         union all select endpoint_id from endpoint_lease where expires_at > clock_timestamp()",
    )
    .fetch_all(conn)
    .await?;
    ensure!(held.is_empty(), "leases of stopped processes are left: {held:?}");
    ensure!(fleet.logged("panicked") == 0, "a process panicked");
    Ok(())
}

async fn one_round(
    fault: Fault,
    fleet: &mut Fleet,
    clients: &Clients,
    dice: &mut Dice,
) -> anyhow::Result<()> {
    let pick = dice.index(fleet.size());
    match fault {
        Fault::RestartedInTurn => {
            let traffic = &clients.traffic;
            let unanswered = || traffic.iter().map(|one| one.unanswered()).sum::<usize>();
            let before = unanswered();
            fleet.change_release();
            for n in 0..fleet.size() {
                // As a load balancer does: nothing new goes to a process that is about to stop. Peers of FIX stay.
                let ready = fleet.ready(n)?;
                let http = text(&ready, "/http")?;
                fleet.avoid(n, false, dice)?;
                while traffic.iter().any(|one| one.is_at(http)) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                fleet.signal(n, "-TERM")?;
                fleet.ended(n, true, PATIENCE).await?;
                fleet.avoid(n, true, dice)?;
                fleet.start_again(n, PATIENCE).await?;
                fleet.use_again(n)?;
                fleet.shuffle(dice)?;
            }
            // A database that is too slow for the machine is no refusal by a stop.
            let unanswered = unanswered() - before;
            let refused = fleet.refused_while_stopping();
            ensure!(unanswered == 0, "{unanswered} requests got no answer because of restarts in turn");
            ensure!(refused == 0, "{refused} requests were refused by processes that were stopping");
        }
        Fault::Killed => {
            fleet.signal(pick, "-KILL")?;
            fleet.ended(pick, false, PATIENCE).await?;
            fleet.avoid(pick, true, dice)?;
            tokio::time::sleep(dice.millis(4_000)).await;
            fleet.start_again(pick, PATIENCE).await?;
            fleet.use_again(pick)?;
        }
        Fault::Frozen => {
            fleet.signal(pick, "-STOP")?;
            fleet.avoid(pick, true, dice)?;
            // A lease lasts ten seconds.
            tokio::time::sleep(Duration::from_secs(2) + dice.millis(13_000)).await;
            fleet.signal(pick, "-CONT")?;
            fleet.use_again(pick)?;
        }
        Fault::KilledWhileGiving | Fault::FrozenWhileGiving => {
            stopped_while_giving(fault == Fault::KilledWhileGiving, fleet, dice).await?;
        }
    }
    Ok(())
}

/// Stops the process that has a payment's file staged while none can be moved. When they can be moved again, another
/// process moves it.
async fn stopped_while_giving(is_killed: bool, fleet: &mut Fleet, dice: &mut Dice) -> anyhow::Result<()> {
    let ends = fleet.log_ends();
    fleet.ground.bank.move_outbox(true)?;
    let (n, line) = fleet.first_to_log(NOT_MOVED, &ends, PATIENCE).await?;
    fleet.signal(n, if is_killed { "-KILL" } else { "-STOP" })?;
    if is_killed {
        fleet.ended(n, false, PATIENCE).await?;
    }
    fleet.avoid(n, true, dice)?;
    let payment = line.split_once("end_to_end_id=").and_then(|(_, rest)| rest.split_whitespace().next());
    let payment = payment.with_context(|| format!("no payment in `{line}`"))?.trim_matches('"').to_owned();
    ensure!(!fleet.ground.bank.is_given(&payment), "{payment} was moved to an outbox that was away");
    tokio::time::sleep(dice.millis(4_000)).await;
    fleet.ground.bank.move_outbox(false)?;
    until(PATIENCE, "a process moves the payment to the bank", async || {
        Ok(fleet.ground.bank.is_given(&payment).then_some(()))
    })
    .await
    .with_context(|| payment.clone())?;
    if is_killed {
        fleet.start_again(n, PATIENCE).await?;
    } else {
        fleet.signal(n, "-CONT")?;
    }
    fleet.use_again(n)
}
