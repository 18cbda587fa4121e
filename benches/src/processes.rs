//! Several processes on one database: orders come through both interfaces of all of them, payments go through one
//! folder to a bank, and webhooks go out, while processes are killed, frozen, and restarted one after the other.
//! Afterwards every acknowledged order must exist and be settled once, the bank must have one file for each payment,
//! every number of FIX must stand for one message that its client has, and every event must have been delivered; a
//! restart in turn may refuse nothing, no fence is crossed, and what a process leaves another one takes.

mod bank;
mod fleet;
mod ground;
mod leases;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sqlx::{Connection as _, PgConnection};

use self::fleet::Fleet;
use self::ground::Ground;
pub use self::leases::Handovers;
use self::leases::LeaseWatch;
use crate::crash::clients::Clients;
use crate::crash::dice::Dice;
use crate::crash::fix::FixClient;
use crate::crash::rest::{RestCaller, Traffic, Wallet, text};
use crate::crash::{books, check};
use crate::failover::{check_webhooks, subscribe};
use crate::receiver::{Authority, Manner, Receiver, Reply};

/// What a process logs when it accepts a connection for a session of its own from another process.
const FORWARDED: &str = "forwarded connection accepted";
/// What a process logs when it has staged a payment's file and could not move it to the bank.
const NOT_MOVED: &str = "payment order is staged and may not have reached the bank yet";
/// The time limit for a start, a stop, and for the last orders.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One drill.
#[derive(Debug, Clone)]
pub struct ProcessesPlan {
    /// The program under fire.
    pub binary: PathBuf,
    pub seed: u64,
    pub processes: usize,
    pub rounds: u32,
    /// The time within which another process has a session, a chain or an endpoint that became free. `None`: it is
    /// reported only.
    pub handover: Option<Duration>,
}

/// The counts of a drill.
#[derive(Debug, Clone, Default)]
pub struct ProcessesReport {
    /// Rounds by their fault.
    pub rounds: BTreeMap<&'static str, u32>,
    pub orders: usize,
    pub completed: usize,
    pub fix_messages: usize,
    pub resent: usize,
    /// Connections that reached a process without their session.
    pub forwarded: usize,
    /// Payments that the bank was ordered to make.
    pub payments: usize,
    /// Of these, payments that came back.
    pub returned: usize,
    /// Files that were staged and that no payment names.
    pub unnamed_files: usize,
    /// Answers that the bank sent again, after others.
    pub repeated_answers: usize,
    pub events_delivered: usize,
    /// Leases that went from one process to another: of `fix` sessions, of a `chain`, of a `webhook` endpoint.
    pub handovers: BTreeMap<&'static str, Handovers>,
}

impl ProcessesReport {
    pub fn add(&mut self, other: &Self) {
        for (fault, rounds) in &other.rounds {
            *self.rounds.entry(fault).or_default() += rounds;
        }
        self.orders += other.orders;
        self.completed += other.completed;
        self.fix_messages += other.fix_messages;
        self.resent += other.resent;
        self.forwarded += other.forwarded;
        self.payments += other.payments;
        self.returned += other.returned;
        self.unnamed_files += other.unnamed_files;
        self.repeated_answers += other.repeated_answers;
        self.events_delivered += other.events_delivered;
        for (kind, handovers) in &other.handovers {
            self.handovers.entry(kind).or_default().add(*handovers);
        }
    }
}

/// What happens to the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Each is stopped and started again, one after the other.
    RestartedInTurn,
    /// One is killed and started again.
    Killed,
    /// One stops working and goes on, before or after others have taken over.
    Frozen,
    /// One is killed that has staged a payment's file and has not moved it to the bank; another one moves it.
    KilledWhileGiving,
    /// The same, and it goes on after another one has moved the file.
    FrozenWhileGiving,
}

const FAULTS: [Fault; 5] = [
    Fault::KilledWhileGiving,
    Fault::RestartedInTurn,
    Fault::Frozen,
    Fault::FrozenWhileGiving,
    Fault::Killed,
];

impl Fault {
    const fn as_str(self) -> &'static str {
        match self {
            Self::RestartedInTurn => "restartedInTurn",
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::KilledWhileGiving => "killedWhileGiving",
            Self::FrozenWhileGiving => "frozenWhileGiving",
        }
    }
}

/// Runs a drill in a directory of its own. An error names the promise that was broken.
pub async fn run(plan: &ProcessesPlan) -> anyhow::Result<ProcessesReport> {
    ensure!(plan.processes >= 2, "a drill of several processes needs two at least");
    let dir = tempfile::tempdir()?;
    let outcome = under_fire(plan, dir.path()).await;
    if outcome.is_err() {
        let kept = dir.keep();
        return outcome.with_context(|| format!("seed {}; the logs are in {}", plan.seed, kept.display()));
    }
    outcome
}

async fn under_fire(plan: &ProcessesPlan, dir: &Path) -> anyhow::Result<ProcessesReport> {
    let authority = Authority::new().map_err(|error| anyhow::anyhow!("{error}"))?;
    let receiver = Receiver::start(&authority, Manner::default(), |_, _| Reply::Status(200)).await;
    let receiver = receiver.map_err(|error| anyhow::anyhow!("{error}"))?;
    let dice = Dice::new(plan.seed ^ 20 << 32);
    let ground = Ground::prepare(&plan.binary, dir, plan.processes, &authority.pem(), dice).await?;
    let mut fleet = Fleet::start(ground, plan.processes, PATIENCE).await?;
    let outcome = drilled(plan, &mut fleet, &receiver).await;
    // The reason on both sides of the logs: whoever reads the ends or the beginning sees it.
    outcome.map_err(|error| anyhow::anyhow!("{error:#}\n{}\n{error:#}", fleet.log_tails()))
}

async fn drilled(
    plan: &ProcessesPlan,
    fleet: &mut Fleet,
    receiver: &Receiver,
) -> anyhow::Result<ProcessesReport> {
    let mut conn = PgConnection::connect(fleet.ground().database.url()).await?;
    // One session a process: each client connects to the process after that of its session, or to its own.
    let owners =
        "select count(distinct owner) from lease where name like 'fix:%' and expires_at > clock_timestamp()";
    let deadline = Instant::now() + PATIENCE;
    while check::count(&mut conn, owners).await? < i64::try_from(plan.processes)? {
        ensure!(Instant::now() < deadline, "the sessions are not shared");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    subscribe(&*fleet.ready(0)?, &receiver.url("127.0.0.1")).await?;
    let (clients, traffic) = begin(plan, fleet)?;
    // The first process has one of the sessions; the connections of the others are forwarded, before any fault.
    let deadline = Instant::now() + PATIENCE;
    while fleet.logged(FORWARDED) == 0 {
        ensure!(Instant::now() < deadline, "no connection is forwarded");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let mut report = ProcessesReport::default();
    let leases = LeaseWatch::start(fleet.ground().database.url()).await?;
    fire(plan, fleet, &traffic, &mut report).await?;
    let seen = clients.end(PATIENCE).await?;
    let deadline = Instant::now() + PATIENCE;
    let (bank, recipients) = (fleet.ground().bank.root().to_owned(), fleet.ground().recipients.clone());
    check::settled(&mut conn, check::Until::Ended, deadline).await?;
    books::await_returns(&mut conn, &bank, deadline).await?;
    report.repeated_answers = fleet.ground_mut().bank.end().await?;
    let checked = check::check(&*fleet.ready(0)?, &seen.placed, &seen.transcripts, deadline).await?;
    (report.orders, report.completed) = (checked.orders, checked.completed);
    report.fix_messages = seen.transcripts.iter().map(|one| one.received.len()).sum();
    report.resent = seen.transcripts.iter().map(|one| one.repeats).sum();
    let booked = books::check(&mut conn, &bank, None, &recipients).await?;
    (report.payments, report.returned) = (booked.payments, booked.returned);
    report.unnamed_files = booked.unnamed;
    report.events_delivered = check_webhooks(&mut conn, receiver, deadline).await?;
    report.handovers = leases.end().await?;
    if let Some(limit) = plan.handover {
        let late = report.handovers.values().find(|handovers| handovers.longest > limit);
        ensure!(late.is_none(), "a hand-over took longer than {limit:?}: {:?}", report.handovers);
    }
    for n in 0..fleet.size() {
        fleet.signal(n, "-TERM")?;
        fleet.ended(n, true, PATIENCE).await?;
    }
    // A process that has stopped holds nothing. What a killed one held has been taken over.
    let held: Vec<(String,)> = sqlx::query_as(
        "select name from lease where name like 'fix:%' and expires_at > clock_timestamp() \
         union all select endpoint_id from endpoint_lease where leased_until > clock_timestamp()",
    )
    .fetch_all(&mut conn)
    .await?;
    ensure!(held.is_empty(), "leases of stopped processes are left: {held:?}");
    report.forwarded = fleet.logged(FORWARDED);
    ensure!(fleet.logged("panicked") == 0, "a process panicked");
    Ok(report)
}

/// Two callers without a wallet and one with one over REST; a client for each session, one with a wallet. Returns also
/// the submissions of each caller.
fn begin(plan: &ProcessesPlan, fleet: &mut Fleet) -> anyhow::Result<(Clients, Vec<Arc<Traffic>>)> {
    let ready = fleet.ready(0)?;
    let (mut clients, mut traffic) = (Clients::new(), Vec::new());
    for (n, wallet) in [None, None, Some(0)].into_iter().enumerate() {
        let wallet = wallet.map(|n| Wallet::of(&ready, n)).transpose()?;
        let caller = u64::try_from(if wallet.is_some() { 0 } else { n })?;
        let dice = Dice::new(plan.seed ^ (1 + u64::try_from(n)?) << 32);
        let place = fleet.add_caller(n % fleet.size());
        let recipients = fleet.ground().recipients.clone();
        let caller = RestCaller::new(place, clients.closing(), wallet, recipients, (caller, dice))?;
        traffic.push(caller.traffic());
        clients.call(caller);
    }
    for n in 0..plan.processes {
        let wallet = if n == 0 { Some(Wallet::of(&ready, 1)?) } else { None };
        let dice = Dice::new(plan.seed ^ (9 + u64::try_from(n)?) << 32);
        let client = FixClient::new(&ready, n, wallet, fleet.ground().recipients.clone(), dice)?;
        // All begin at one process, which has one of their sessions.
        clients.connect(client, fleet.add_session(0));
    }
    Ok((clients, traffic))
}

async fn fire(
    plan: &ProcessesPlan,
    fleet: &mut Fleet,
    traffic: &[Arc<Traffic>],
    report: &mut ProcessesReport,
) -> anyhow::Result<()> {
    let mut dice = Dice::new(plan.seed);
    let first = usize::try_from(dice.roll(u64::try_from(FAULTS.len())?))?;
    for (round, fault) in (0..plan.rounds).zip(FAULTS.iter().cycle().skip(first)) {
        tokio::time::sleep(Duration::from_millis(500 + dice.roll(1_500))).await;
        fleet.check_running()?;
        fleet.shuffle(&mut dice)?;
        let done = one_round(*fault, fleet, traffic, &mut dice).await;
        done.with_context(|| format!("round {}, {}", round + 1, fault.as_str()))?;
        *report.rounds.entry(fault.as_str()).or_default() += 1;
    }
    Ok(())
}

async fn one_round(
    fault: Fault,
    fleet: &mut Fleet,
    traffic: &[Arc<Traffic>],
    dice: &mut Dice,
) -> anyhow::Result<()> {
    let pick = usize::try_from(dice.roll(u64::try_from(fleet.size())?))?;
    match fault {
        Fault::RestartedInTurn => {
            let unanswered = || traffic.iter().map(|one| one.unanswered()).sum::<usize>();
            let before = unanswered();
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
            tokio::time::sleep(Duration::from_millis(dice.roll(4_000))).await;
            fleet.start_again(pick, PATIENCE).await?;
            fleet.use_again(pick)?;
        }
        Fault::Frozen => {
            fleet.signal(pick, "-STOP")?;
            fleet.avoid(pick, true, dice)?;
            // A lease lasts ten seconds.
            tokio::time::sleep(Duration::from_millis(2_000 + dice.roll(13_000))).await;
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
    fleet.ground().bank.take_outbox_away()?;
    let (n, line) = fleet.first_to_log(NOT_MOVED, &ends, PATIENCE).await?;
    fleet.signal(n, if is_killed { "-KILL" } else { "-STOP" })?;
    if is_killed {
        fleet.ended(n, false, PATIENCE).await?;
    }
    fleet.avoid(n, true, dice)?;
    let payment = line.split_once("end_to_end_id=").and_then(|(_, rest)| rest.split_whitespace().next());
    let payment = payment.with_context(|| format!("no payment in `{line}`"))?.trim_matches('"').to_owned();
    ensure!(!fleet.ground().bank.is_given(&payment), "{payment} was moved to an outbox that was away");
    tokio::time::sleep(Duration::from_millis(dice.roll(4_000))).await;
    fleet.ground().bank.give_outbox_back()?;
    let deadline = Instant::now() + PATIENCE;
    while !fleet.ground().bank.is_given(&payment) {
        ensure!(Instant::now() < deadline, "no process moves {payment} to the bank");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if is_killed {
        fleet.start_again(n, PATIENCE).await?;
    } else {
        fleet.signal(n, "-CONT")?;
    }
    fleet.use_again(n)
}
