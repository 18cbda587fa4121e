//! Hostile peers at both interfaces: the promises to a well-behaved partner hold regardless of them.
//!
//! The well-behaved partner sends orders at a fixed rate over REST and over FIX, first alone, then
//! among hostile peers that a seed chooses: sessions of another partner with values that no field should have,
//! unauthenticated callers at both interfaces, half-open requests, long-polls, more valid orders than its share, and
//! poisoned orders: accepted ones that fail later. Its own orders are answered and settled at their usual pace, no loop
//! of the service is late, and each poisoned order is refused by name, ends, or is listed with its alarm.
//! The hostile load is paced, so that it tests isolation and not how two processors are shared by more work than they
//! can do.

mod fix_peers;
mod latency;
mod loops;
mod poison;
mod promises;
mod receivers;
mod rest_peers;
mod steady;
mod target;
mod unauthenticated;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use dvp_fix_gateway::dictionaries::find;
use dvp_testing::receiver::{Authority, Receiver};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::latency::{Action, Recorder, Summary};
use self::loops::Watch;
use self::poison::ground::Ground;
use self::poison::verdict::Inspector;
use self::poison::{Accepted, Poisoning, Sent};
use self::promises::Promises;
use self::steady::{Steady, Terms, on_a_thread};
use self::target::{Peer, Target};
use crate::crash::check;
use crate::crash::fix::SessionTranscript;
use crate::crash::process::{Process, text};
use crate::crash::rest::Placed;
use crate::drill::{Drill, Program, Report, name_of, until, with_log};
use crate::proc::Vitals;
use crate::progress;

/// Before anything is measured: caches fill, code is paged in.
const WARM_UP: Duration = Duration::from_secs(3);
/// For an answer that is late when its phase ends.
const LATE: Duration = Duration::from_secs(60);
/// For the last orders to end once the hostile peers are gone.
const PATIENCE: Duration = Duration::from_secs(180);
/// For connections of peers that are gone to be closed: a request's head may take 20 s.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
/// Connections to the database and webhook clients may have been opened meanwhile.
const DESCRIPTORS_MORE: usize = 64;
/// The memory that legitimate work may use for a while: nonces, idempotency keys, messages to resend.
const RESIDENT_MORE: u64 = 48 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerKind {
    FixFields,
    FixOrders,
    FixVolleys,
    FixNoise,
    /// What comes before any Logon.
    Garbage,
    /// With invalid credentials.
    Logons,
    /// Connections that come and go.
    Storms,
    /// Requests that never become whole.
    HalfOpen,
    UnknownKeys,
    RestBodies,
    RestOrders,
    LongPolls,
    PoisonedRest,
    PoisonedFix,
    Receivers,
}

// How much the hostile peers do.
#[derive(Debug, Clone, Copy, Args)]
pub struct Load {
    /// Stretches every pause of a hostile peer: a service without optimisation gets more time for the same.
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    pub slower: u32,
    /// Messages with the same fault in one volley.
    #[arg(skip = 200_usize)]
    pub volley: usize,
    /// Valid orders in one burst, at each interface.
    #[arg(skip = 30_usize)]
    pub burst: usize,
    #[arg(skip = 200_usize)]
    pub long_polls: usize,
    #[arg(skip = 100_usize)]
    pub half_open: usize,
    /// Poisoned orders at each interface, at most: one of each field before the second of any. All when not given.
    #[arg(long, value_name = "COUNT", default_value_t = usize::MAX, hide_default_value = true)]
    pub poisoned: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many times that of the quiet phase the worst latency of an answer, and the median and the 99th percentile of
    /// a settlement, may be among hostile peers. `None`: other work shares the machine, so latencies are not compared,
    /// and a caller who is asked to try again does so.
    pub ratio_max: Option<u32>,
    /// The longest any answer may take.
    pub answer_max: Duration,
    /// How long a poisoned order may take to its end, from the end of the hostile phase.
    pub ends_within: Duration,
}

impl Limits {
    /// A coin that is never deposited is waited for until the path's end.
    const ALONE: Self = Self {
        ratio_max: Some(3),
        answer_max: Duration::from_secs(10),
        ends_within: Duration::from_secs(400),
    };
}

#[derive(Debug, Clone, Args)]
pub struct HostileDrill {
    /// How long the well-behaved partner is alone, and then among hostile peers.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub seconds: u64,
    /// Orders a second of the well-behaved partner at each interface.
    #[arg(long, default_value_t = 20)]
    pub rate: u32,
    /// Orders of the well-behaved partner of each kind that are followed to their settlement at a time.
    #[arg(long, default_value_t = 3)]
    pub settling: usize,
    #[command(flatten)]
    pub load: Load,
    /// Only these kinds of hostile peers take part.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub only: Vec<PeerKind>,
    /// A bank that is paid by files in place of the simulated one; for poisoned orders.
    #[arg(long)]
    pub bank_files: bool,
    /// How long the partner is alone, if not as long as among hostile peers.
    #[arg(skip)]
    pub quiet: Option<Duration>,
    #[arg(skip = Limits::ALONE)]
    pub limits: Limits,
    #[command(flatten)]
    pub program: Program,
}

impl Drill for HostileDrill {
    const NAME: &'static str = "hostile";

    async fn run_in(&self, seed: u64, dir: &Path) -> anyhow::Result<Report> {
        among_hostile_peers(self, seed, dir).await
    }
}

#[derive(Debug, Default)]
struct Seen {
    quiet: BTreeMap<Action, Summary>,
    hostile: BTreeMap<Action, Summary>,
    /// After a third of the hostile phase, at its end, and when all its peers are gone.
    vitals: [Vitals; 3],
}

impl Seen {
    fn phases(&self, action: Action) -> [Summary; 2] {
        [&self.quiet, &self.hostile].map(|phase| phase.get(&action).copied().unwrap_or_default())
    }

    fn report(&self, report: &mut Report) {
        for action in Action::value_variants() {
            let [quiet, hostile] = self.phases(*action).map(Summary::json);
            report.list("actions", json!({"action": name_of(action), "quiet": quiet, "hostile": hostile}));
        }
        for vitals in self.vitals {
            report.list("residentBytes", json!(vitals.resident_bytes));
        }
    }
}

async fn among_hostile_peers(plan: &HostileDrill, seed: u64, dir: &Path) -> anyhow::Result<Report> {
    let (authority, certificate) = (Authority::new(), dir.join("authority.pem"));
    std::fs::write(&certificate, authority.pem())?;
    let (mut process, target) = Target::start(plan, dir, &certificate).await?;
    let (promises, recorder) = (Promises::new(plan.limits.ratio_max.is_none()), Recorder::default());
    let terms = Terms {
        target: target.clone(),
        recorder: recorder.clone(),
        promises: promises.clone(),
        interval: Duration::from_secs(1) / plan.rate.max(1),
        settling: plan.settling,
        stop: CancellationToken::new(),
    };
    let _measured = receivers::measured(&authority, &target, &recorder).await?;
    let steady = Steady::start(&terms)?;
    tokio::time::sleep(WARM_UP).await;
    let before = Vitals::of(target.pid)?;
    let (time, mut report) = (Duration::from_secs(plan.seconds), Report::default());
    recorder.begin();
    progress::phase("the partner alone", plan.quiet.unwrap_or(time), String::new).await;
    let mut observed = Seen { quiet: recorder.end(LATE).await, ..Seen::default() };

    let peers = Hostile::start(plan, seed, &target, authority, &promises)?;
    let lateness_max = if plan.limits.ratio_max.is_some() { 1 } else { 4 };
    let watch = Watch::start(&target, &promises, lateness_max);
    recorder.begin();
    let poisoned = || format!(", {} poisoned orders sent", *peers.poisoned.borrow());
    progress::phase("among hostile peers, its beginning", time / 3, poisoned).await;
    let warm = Vitals::of(target.pid).context("the service is gone")?;
    progress::phase("among hostile peers", time - time / 3, poisoned).await;
    observed.hostile = recorder.end(LATE).await;
    let end = Vitals::of(target.pid).context("the service is gone")?;
    let done = peers.stop(&promises).await?;
    done.iter().for_each(|(kind, sent)| report.kind("done", kind, sent.count));
    let accepted: Vec<Accepted> = done.into_values().flat_map(|sent| sent.accepted).collect();
    watch.end().await?.into_iter().for_each(|(name, worst)| report.list("loops", json!({ name: worst })));
    progress::note(format!("{} poisoned orders were accepted: waiting for their ends", accepted.len()));
    let patience = plan.limits.ends_within;
    let inspector = Inspector { process: &process, target: &target, promises: &promises, patience };
    let endings = with_log(inspector.look(&accepted).await, || process.log_tail())?;
    endings.ended.iter().for_each(|(state, count)| report.kind("poisonedEnded", state, *count));
    endings.listed.iter().for_each(|(what, count)| report.kind("poisonedListed", what, *count));
    report.count("poisonedResting", endings.resting);

    terms.stop.cancel();
    let joined = with_log(steady.join().await, || process.log_tail());
    promises.check(process.is_running()?, "the service runs", || process.log_tail());
    let after = closed(target.pid, before.descriptors + DESCRIPTORS_MORE).await?;
    observed.vitals = [warm, end, after];
    check_vitals(before, &observed, &promises);
    check_latencies(plan, &observed, &promises);
    observed.report(&mut report);
    check_log(&process, &promises);
    match joined {
        Ok((placed, transcript)) => {
            let excused = promises.excused();
            promises.check(excused <= placed.len(), "most requests are answered at once", || {
                format!("{excused} were asked to try again, {} orders were placed", placed.len())
            });
            if let Err(error) = check_books(&target, &placed, &transcript).await {
                promises.broken("the books hold", || format!("{error:#}"));
            }
        }
        Err(error) => {
            promises.broken("the well-behaved partner is served to the end", || format!("{error:#}"))
        }
    }
    process.stop().await?;
    report.broken = promises.lines();
    Ok(report)
}

/// The service's process once the connections of departed peers are closed, or will not be.
async fn closed(pid: u32, descriptors: usize) -> anyhow::Result<Vitals> {
    let vitals = || Vitals::of(pid).context("the service is gone");
    let is_closed = async || Ok((vitals()?.descriptors <= descriptors).then_some(()));
    let _ = until(CLOSED_WITHIN, "connections are closed", is_closed).await;
    vitals()
}

fn check_vitals(before: Vitals, seen: &Seen, promises: &Promises) {
    let [warm, end, after] = seen.vitals;
    let is_flat = end.resident_bytes <= warm.resident_bytes.saturating_add(RESIDENT_MORE);
    promises.check(is_flat, "memory is flat among hostile peers", || format!("{warm:?}, then {end:?}"));
    let is_closed = after.descriptors <= before.descriptors + DESCRIPTORS_MORE;
    let case = || format!("{before:?} before, {after:?} {CLOSED_WITHIN:?} after");
    promises.check(is_closed, "connections of peers that are gone are closed", case);
    promises.check(after.threads <= before.threads + 64, "threads do not pile up", case);
}

fn check_latencies(plan: &HostileDrill, seen: &Seen, promises: &Promises) {
    for action in Action::value_variants().iter().copied() {
        let [quiet, hostile] = seen.phases(action);
        let case = || format!("{action:?}: {quiet:?}, then {hostile:?}");
        // Orders with permits wait for the chain: a short phase may have none, and no settlement. Each lane promises that
        // every order of its own settles.
        let is_measured = quiet.count > 0 && hostile.count > 0;
        let is_rare = matches!(action, Action::RestToken | Action::FixToken) || action.is_settlement();
        promises.check(is_measured || is_rare, "each action is measured in both phases", case);
        if action.is_settlement() || action == Action::Webhook {
            if let Some(ratio) = plan.limits.ratio_max {
                let is_usual = |quiet: Duration, hostile: Duration| hostile <= quiet * ratio;
                let is_kept = is_usual(quiet.median, hostile.median) && is_usual(quiet.p99, hostile.p99);
                let promise = format!("median and p99 are at most {ratio} times those without hostile peers");
                promises.check(is_kept, &promise, case);
                promises.check(is_measured, "each kind of order is settled in both phases", case);
            }
            continue;
        }
        promises.check(hostile.worst <= plan.limits.answer_max, "no answer takes too long", case);
        if let (Some(ratio), Action::Rest | Action::Fix) = (plan.limits.ratio_max, action) {
            let promise = format!("the worst latency is below {ratio} times that without hostile peers");
            promises.check(hostile.worst < quiet.worst * ratio, &promise, case);
        }
    }
}

/// Errors about what operators find in a list, with an alarm: a refused command of the chain, a file of the bank, a
/// conversion whose payment was refused.
const LISTED: [&str; 3] =
    ["see `dvp chain command list`", "moved to quarantine", "kind=\"converted_not_used\""];

fn check_log(process: &Process, promises: &Promises) {
    let log = process.log();
    for line in log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")) {
        if promises.is_excused_in_log(line) || LISTED.iter().any(|listed| line.contains(listed)) {
            continue;
        }
        promises.broken("nothing that a peer does is an error in the service's log", || line.to_owned());
    }
}

/// Every order has ended, the books agree, and the well-behaved partner received the stored messages.
async fn check_books(
    target: &Target,
    placed: &[Placed],
    transcript: &SessionTranscript,
) -> anyhow::Result<()> {
    let mut conn = PgConnection::connect(text(&target.ready, "/databaseUrl")?).await?;
    // The receipts of hostile orders are anchored later; that takes nothing from anybody.
    // A hostile peer's order may rest for days.
    check::settled(&mut conn, check::Until::EndedOrResting, PATIENCE).await?;
    check::check_rest(&mut conn, placed).await?;
    check::check_fix(&mut conn, transcript).await
}

/// The hostile peers at work, on one thread, which bounds their processor time.
struct Hostile {
    stop: CancellationToken,
    /// The poisoned orders that were sent so far.
    poisoned: Arc<watch::Sender<u64>>,
    thread: std::thread::JoinHandle<anyhow::Result<BTreeMap<String, Sent>>>,
}

type Work = JoinSet<anyhow::Result<(String, Sent)>>;

impl Hostile {
    fn start(
        plan: &HostileDrill,
        seed: u64,
        target: &Target,
        authority: Authority,
        promises: &Promises,
    ) -> anyhow::Result<Self> {
        let (stop, poisoned) = (CancellationToken::new(), Arc::new(watch::Sender::new(0)));
        let crowd = Crowd {
            seed,
            plan: plan.clone(),
            target: target.clone(),
            promises: promises.clone(),
            poisoned: Arc::clone(&poisoned),
            stop: stop.clone(),
        };
        let thread = on_a_thread("hostile", move || async move {
            let mut work = Work::new();
            crowd.fix(&mut work)?;
            crowd.unauthenticated(&mut work)?;
            crowd.rest(&mut work)?;
            crowd.poisoned(&mut work, authority)?;
            let mut done: BTreeMap<String, Sent> = BTreeMap::new();
            while let Some(ended) = work.join_next().await {
                let (name, sent) = ended??;
                let all = done.entry(name).or_default();
                all.count += sent.count;
                all.accepted.extend(sent.accepted);
            }
            Ok(done)
        })?;
        Ok(Self { stop, poisoned, thread })
    }

    async fn stop(self, promises: &Promises) -> anyhow::Result<BTreeMap<String, Sent>> {
        self.stop.cancel();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        let done =
            joined.map_err(|_| anyhow::anyhow!("a hostile peer panicked"))?.context("a hostile peer")?;
        for (name, sent) in &done {
            promises.check(sent.count > 0, "each kind of hostile peer did something", || name.clone());
        }
        Ok(done)
    }
}

struct Crowd {
    seed: u64,
    plan: HostileDrill,
    target: Target,
    promises: Promises,
    poisoned: Arc<watch::Sender<u64>>,
    stop: CancellationToken,
}

impl Crowd {
    /// Lets peers of a kind take part, unless they are left out.
    fn add<S: Into<Sent>>(
        &self,
        work: &mut Work,
        kind: PeerKind,
        peers: impl Future<Output = anyhow::Result<S>> + Send + 'static,
    ) {
        if self.plan.only.is_empty() || self.plan.only.contains(&kind) {
            work.spawn(async move { Ok((name_of(&kind), peers.await?.into())) });
        }
    }

    fn peer(&self, session: usize, millis: u64) -> anyhow::Result<Peer> {
        let login = self.target.hostile_sessions.get(session).context("a hostile session")?;
        Ok(Peer {
            target: self.target.clone(),
            login: login.clone(),
            promises: self.promises.clone(),
            seed: self.seed.wrapping_add(millis).wrapping_add(u64::try_from(session)?),
            pause: Duration::from_millis(millis) * self.plan.load.slower.max(1),
            stop: self.stop.clone(),
        })
    }

    fn fix(&self, work: &mut Work) -> anyhow::Result<()> {
        // As the first sessions are.
        for (session, version) in ["FIX44", "FIX42", "FIX50SP2"].into_iter().enumerate() {
            let (peer, dictionary) = (self.peer(session, 150)?, find(version).context("a dictionary")?);
            self.add(work, PeerKind::FixFields, fix_peers::walk(peer, dictionary));
        }
        let (burst, volley) = (self.plan.load.burst, self.plan.load.volley);
        self.add(work, PeerKind::FixOrders, fix_peers::flood(self.peer(3, 2_000)?, burst));
        self.add(work, PeerKind::FixVolleys, fix_peers::volleys(self.peer(4, 2_000)?, volley));
        self.add(work, PeerKind::FixNoise, fix_peers::noise(self.peer(5, 100)?));
        Ok(())
    }

    fn unauthenticated(&self, work: &mut Work) -> anyhow::Result<()> {
        let with_pause = |millis| self.peer(5, millis);
        self.add(work, PeerKind::Garbage, with_pause(70)?.garbage());
        self.add(work, PeerKind::Logons, with_pause(60)?.logons());
        self.add(work, PeerKind::Storms, with_pause(1_000)?.storms(25));
        self.add(work, PeerKind::HalfOpen, with_pause(1)?.half_open(self.plan.load.half_open));
        Ok(())
    }

    fn rest(&self, work: &mut Work) -> anyhow::Result<()> {
        let with_pause = |millis| self.peer(6, millis);
        let Load { burst, long_polls, .. } = self.plan.load;
        self.add(work, PeerKind::UnknownKeys, with_pause(500)?.unknown_keys(20));
        self.add(work, PeerKind::RestBodies, with_pause(40)?.bodies());
        self.add(work, PeerKind::RestOrders, with_pause(1_500)?.flood(burst));
        self.add(work, PeerKind::LongPolls, with_pause(1)?.long_polls(long_polls));
        Ok(())
    }

    /// Orders that fail after their acceptance, and receivers that fail.
    fn poisoned(&self, work: &mut Work, authority: Authority) -> anyhow::Result<()> {
        let poisoning = Poisoning {
            peer: self.peer(6, 0)?,
            ground: Ground::of(&self.target.ready)?,
            // The last ones are answered, cancelled and spoiled within the phase.
            within: Duration::from_secs(self.plan.seconds) * 4 / 5,
            orders: self.plan.load.poisoned,
            count: Arc::clone(&self.poisoned),
        };
        self.add(work, PeerKind::PoisonedRest, poisoning.clone().rest());
        self.add(work, PeerKind::PoisonedFix, poisoning.fix());
        let (target, stop) = (self.target.clone(), self.stop.clone());
        self.add(work, PeerKind::Receivers, async move {
            let receivers = receivers::hostile(&authority, &target).await?;
            stop.cancelled().await;
            let requests: usize = receivers.iter().map(Receiver::count).sum();
            Ok(u64::try_from(requests)?)
        });
        Ok(())
    }
}
