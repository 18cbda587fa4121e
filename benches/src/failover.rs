//! The database under fire: orders come through both interfaces, webhooks and a bank's files go out, and all the while
//! the primary of three replicating PostgreSQL servers is killed, frozen, cut off, or restarted without its standbys; a
//! standby is promoted, and the former primary comes back as it was before it is made a standby. Afterwards every
//! acknowledged order must exist and be settled once, and everything that was reported must be stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_domain::event::EventType;
use dvp_sandbox::embedded::replicas::Replicas;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;

use crate::crash::Ready;
use crate::crash::clients::{Clients, Seen};
use crate::crash::dice::Dice;
use crate::crash::fix::FixClient;
use crate::crash::process::Process;
use crate::crash::recipients::Recipients;
use crate::crash::rest::{RestCaller, Wallet, text};
use crate::crash::{books, check};
use crate::receiver::{Authority, Manner, Receiver, Reply};

/// The servers of a drill. With one standby down, commits wait for the other.
const SERVERS: usize = 3;
/// The time limit for the service to write again, and for the last orders.
const PATIENCE: Duration = Duration::from_secs(300);
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

/// The counts of a drill.
#[derive(Debug, Clone, Default)]
pub struct FailoverReport {
    /// Rounds by their fault.
    pub rounds: BTreeMap<&'static str, u32>,
    pub orders: usize,
    pub completed: usize,
    pub fix_messages: usize,
    pub resent: usize,
    pub payments: usize,
    pub events_delivered: usize,
    /// From a fault to the first commit at the new primary.
    pub longest_outage: Duration,
}

impl FailoverReport {
    pub fn add(&mut self, other: &Self) {
        for (fault, rounds) in &other.rounds {
            *self.rounds.entry(fault).or_default() += rounds;
        }
        self.orders += other.orders;
        self.completed += other.completed;
        self.fix_messages += other.fix_messages;
        self.resent += other.resent;
        self.payments += other.payments;
        self.events_delivered += other.events_delivered;
        self.longest_outage = self.longest_outage.max(other.longest_outage);
    }
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
    let authority = Authority::new().map_err(|error| anyhow::anyhow!("{error}"))?;
    let receiver = Receiver::start(&authority, Manner::default(), |_, _| Reply::Status(200)).await;
    let receiver = receiver.map_err(|error| anyhow::anyhow!("{error}"))?;
    let ca = dir.join("receiver.pem");
    std::fs::write(&ca, authority.pem())?;
    let mut args = vec!["--bank-files".to_owned(), "--webhook-allow-private".to_owned()];
    args.extend(["--webhook-ca".to_owned(), ca.display().to_string()]);
    args.extend(replicas.urls().into_iter().flat_map(|url| ["--database-url".to_owned(), url]));
    if plan.asynchronous {
        args.push("--asynchronous-database".to_owned());
    }
    let mut process = Process::start_with(&plan.binary, dir, args)?;
    let ready = process.ready_within(PATIENCE).await?;
    let recipients = Recipients::register_prompt(&process)?;
    subscribe(&ready, &receiver.url("127.0.0.1")).await?;
    let place = watch::Sender::new(Some(Arc::new(ready.clone())));
    let clients = begin(plan, &ready, &recipients, &place)?;
    let mut report = FailoverReport::default();
    let fire = fire(plan, &mut replicas, &mut process, &mut report).await;
    fire.with_context(|| process.log_tail())?;
    let ended = clients.end(PATIENCE).await.with_context(|| process.log_tail())?;
    let ended = checked(&replicas, &process, &ready, &recipients, &receiver, &ended, &mut report).await;
    ended.with_context(|| process.log_tail())?;
    process.stop().await?;
    Ok(report)
}

/// Registers the receiver for all events of the first partner.
pub(crate) async fn subscribe(ready: &Value, url: &str) -> anyhow::Result<()> {
    let types = EventType::ALL.map(EventType::as_str);
    let request = reqwest::Client::new()
        .post(format!("{}/v1/webhook_endpoints", text(ready, "/http")?))
        .header("X-API-Key", text(ready, "/partner/apiKey")?)
        .json(&json!({"url": url, "subscribedTypes": types}));
    let answer = request.send().await?;
    let status = answer.status();
    ensure!(status == 201, "the webhook endpoint was answered with {status}: {}", answer.text().await?);
    Ok(())
}

/// Two callers without a wallet and two with one over REST, and one of each over FIX.
fn begin(
    plan: &FailoverPlan,
    ready: &Value,
    recipients: &Recipients,
    place: &watch::Sender<Ready>,
) -> anyhow::Result<Clients> {
    let mut clients = Clients::new();
    for (n, wallet) in [None, None, Some(0), Some(2)].into_iter().enumerate() {
        let wallet = wallet.map(|n| Wallet::of(ready, n)).transpose()?;
        let caller = u64::try_from(if wallet.is_some() { n - 2 } else { n })?;
        let dice = Dice::new(plan.seed ^ (1 + u64::try_from(n)?) << 32);
        let (place, closing) = (place.subscribe(), clients.closing());
        clients.call(RestCaller::new(place, closing, wallet, recipients.clone(), (caller, dice))?);
    }
    for (n, wallet) in [(0, Some(1)), (1, None)] {
        let wallet = wallet.map(|n| Wallet::of(ready, n)).transpose()?;
        let dice = Dice::new(plan.seed ^ (9 + u64::try_from(n)?) << 32);
        clients.connect(FixClient::new(ready, n, wallet, recipients.clone(), dice)?, place.subscribe());
    }
    Ok(clients)
}

async fn fire(
    plan: &FailoverPlan,
    replicas: &mut Replicas,
    process: &mut Process,
    report: &mut FailoverReport,
) -> anyhow::Result<()> {
    let mut dice = Dice::new(plan.seed);
    let first = usize::try_from(dice.roll(u64::try_from(FAULTS.len())?))?;
    for (round, fault) in (0..plan.rounds).zip(FAULTS.iter().cycle().skip(first)) {
        tokio::time::sleep(Duration::from_millis(500 + dice.roll(2_000))).await;
        ensure!(process.is_running()?, "the service ended by itself");
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

/// The feed's last position.
async fn position(admin: &mut PgConnection) -> anyhow::Result<i64> {
    check::count(admin, "select position from feed_counter").await
}

/// Compares what the clients, the bank and the webhook receiver saw with what is stored.
async fn checked(
    replicas: &Replicas,
    process: &Process,
    ready: &Value,
    recipients: &Recipients,
    receiver: &Receiver,
    seen: &Seen,
    report: &mut FailoverReport,
) -> anyhow::Result<()> {
    let url = replicas.direct_url(replicas.primary());
    let mut conn = PgConnection::connect(&url).await?;
    let deadline = Instant::now() + PATIENCE;
    let bank = process.data_dir().join("bank/bank");
    check::settled(&mut conn, check::Until::Ended, deadline).await?;
    books::await_returns(&mut conn, &bank, deadline).await?;
    let ready = {
        let mut ready = ready.clone();
        ready["databaseUrl"] = url.into();
        ready
    };
    let checked = check::check(&ready, &seen.placed, &seen.transcripts, deadline).await?;
    report.orders = checked.orders;
    report.completed = checked.completed;
    report.fix_messages = seen.transcripts.iter().map(|one| one.received.len()).sum();
    report.resent = seen.transcripts.iter().map(|one| one.repeats).sum();
    report.payments = books::check(&mut conn, &bank, None, recipients).await?.payments;
    report.events_delivered = check_webhooks(&mut conn, receiver, deadline).await?;
    Ok(())
}

/// The receiver got exactly the stored events of its partner.
pub(crate) async fn check_webhooks(
    conn: &mut PgConnection,
    receiver: &Receiver,
    deadline: Instant,
) -> anyhow::Result<usize> {
    loop {
        let stored: Vec<(String, String, String)> = sqlx::query_as(
            "select e.event_id, e.type, e.reference from event e join partner p on p.id = e.partner_id \
             where p.name = 'acme' order by e.event_id",
        )
        .fetch_all(&mut *conn)
        .await?;
        let stored: BTreeMap<String, (String, String)> =
            stored.into_iter().map(|(id, kind, reference)| (id, (kind, reference))).collect();
        let mut missing = stored.clone();
        for got in receiver.got() {
            let body: Value = serde_json::from_str(&got.body).context("a webhook's body")?;
            let id = body["id"].as_str().unwrap_or_default();
            let kind = stored.get(id).map(|(kind, _)| kind.as_str());
            ensure!(kind.is_some() && kind == body["type"].as_str(), "delivered and not stored: {body}");
            missing.remove(id);
        }
        if missing.is_empty() {
            return Ok(stored.len());
        }
        ensure!(Instant::now() < deadline, "{} events were not delivered: {missing:?}", missing.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
