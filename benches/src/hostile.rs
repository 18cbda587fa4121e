//! Hostile peers at both interfaces: the promises to a well-behaved partner hold regardless of them.
//!
//! The well-behaved partner sends orders at a fixed rate over REST and over FIX, first alone, then
//! among hostile peers that a seed chooses: sessions of another partner with values that no field should have,
//! unauthenticated callers at both interfaces, half-open requests, long-polls, and more valid orders than its share.
//! The hostile load is paced, so that it tests isolation and not how two processors are shared by more work than they
//! can do.

mod dictionary;
mod fix_peers;
mod latency;
mod promises;
mod rest_peers;
mod steady;
mod target;
mod unauthenticated;
mod values;
mod vitals;
mod wire;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::latency::{Interface, Summary};
pub use self::vitals::Vitals;

use self::fix_peers::Peer;
use self::latency::Recorder;
use self::promises::Promises;
use self::rest_peers::HostileCaller;
use self::steady::{Steady, Terms};
use self::target::Target;
use self::unauthenticated::Unauthenticated;
use crate::crash::check;
use crate::crash::process::Process;
use crate::crash::rest::text;

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

/// A kind of hostile peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerKind {
    FixFields,
    FixOrders,
    FixVolleys,
    FixNoise,
    Garbage,
    Logons,
    Storms,
    HalfOpen,
    UnknownKeys,
    RestBodies,
    RestOrders,
    LongPolls,
}

impl PeerKind {
    const fn name(self) -> &'static str {
        match self {
            Self::FixFields => "FIX fields",
            Self::FixOrders => "FIX orders",
            Self::FixVolleys => "FIX volleys",
            Self::FixNoise => "FIX noise",
            Self::Garbage => "unauthenticated garbage",
            Self::Logons => "unauthenticated logons",
            Self::Storms => "connections that come and go",
            Self::HalfOpen => "half-open requests",
            Self::UnknownKeys => "unknown API keys",
            Self::RestBodies => "REST bodies",
            Self::RestOrders => "REST orders",
            Self::LongPolls => "long-polls",
        }
    }
}

/// How much the hostile peers do.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Stretches every pause of a hostile peer: a service without optimisation gets more time for the same.
    pub slower: u32,
    /// Messages with the same fault in one volley.
    pub volley: usize,
    /// Valid orders in one burst, at each interface.
    pub burst: usize,
    pub long_polls: usize,
    pub half_open: usize,
}

/// One drill.
#[derive(Debug, Clone)]
pub struct HostilePlan {
    /// The program whose sandbox is drilled.
    pub binary: PathBuf,
    pub seed: u64,
    pub quiet: Duration,
    pub hostile: Duration,
    /// Orders a second of the well-behaved partner at each interface.
    pub rate: u32,
    pub load: Load,
    /// The kinds of hostile peers that take part; all of them when empty.
    pub only: Vec<PeerKind>,
    /// How many times the worst latency of the quiet phase the worst among hostile peers may be. `None`: other work
    /// shares the machine, so latencies are not compared, and a caller who is asked to try again does so.
    pub ratio_max: Option<u32>,
    /// The longest any answer may take.
    pub answer_max: Duration,
}

/// The observations, and the broken promises.
#[derive(Debug, Clone, Default)]
pub struct HostileReport {
    pub quiet: BTreeMap<Interface, Summary>,
    pub hostile: BTreeMap<Interface, Summary>,
    /// After a third of the hostile phase, at its end, and when all its peers are gone.
    pub vitals: [Vitals; 3],
    /// The counts of each kind of hostile peer.
    pub done: BTreeMap<&'static str, u64>,
    pub broken: Vec<String>,
}

/// Runs a drill in a directory of its own. An error: it could not be run to its end.
pub async fn run(plan: &HostilePlan) -> anyhow::Result<HostileReport> {
    let dir = tempfile::tempdir()?;
    let outcome = among_hostile_peers(plan, dir.path()).await;
    if outcome.as_ref().map_or(true, |report| !report.broken.is_empty()) {
        let kept = dir.keep();
        return outcome
            .with_context(|| format!("seed {}; everything is left in {}", plan.seed, kept.display()));
    }
    outcome
}

async fn among_hostile_peers(plan: &HostilePlan, dir: &Path) -> anyhow::Result<HostileReport> {
    let (mut process, target) = Target::start(&plan.binary, dir).await?;
    let (promises, recorder) = (Promises::new(plan.ratio_max.is_none()), Recorder::default());
    let terms = Terms {
        target: target.clone(),
        recorder: recorder.clone(),
        promises: promises.clone(),
        interval: Duration::from_secs(1) / plan.rate.max(1),
        stop: CancellationToken::new(),
    };
    let steady = Steady::start(&terms)?;
    tokio::time::sleep(WARM_UP).await;
    let before = Vitals::of(target.pid)?;
    recorder.begin();
    tokio::time::sleep(plan.quiet).await;
    let mut report = HostileReport { quiet: recorder.end(LATE).await, ..HostileReport::default() };

    let peers = Hostile::start(plan, &target, &promises)?;
    recorder.begin();
    tokio::time::sleep(plan.hostile / 3).await;
    let warm = Vitals::of(target.pid).context("the service is gone")?;
    tokio::time::sleep(plan.hostile - plan.hostile / 3).await;
    report.hostile = recorder.end(LATE).await;
    let end = Vitals::of(target.pid).context("the service is gone")?;
    report.done = peers.stop(&promises).await?;

    terms.stop.cancel();
    let joined = steady.join().await.with_context(|| process.log_tail());
    promises.check(process.is_running()?, "the service runs", || process.log_tail());
    let after = closed(target.pid, before.descriptors + DESCRIPTORS_MORE).await?;
    report.vitals = [warm, end, after];
    check_vitals(before, &report, &promises);
    check_latencies(plan, &report, &promises);
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

/// The service's process once the connections of departed peers are closed.
async fn closed(pid: u32, descriptors: usize) -> anyhow::Result<Vitals> {
    let until = Instant::now() + CLOSED_WITHIN;
    loop {
        let now = Vitals::of(pid).context("the service is gone")?;
        if now.descriptors <= descriptors || Instant::now() > until {
            return Ok(now);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

fn check_vitals(before: Vitals, report: &HostileReport, promises: &Promises) {
    let [warm, end, after] = report.vitals;
    let is_flat = end.resident_bytes <= warm.resident_bytes.saturating_add(RESIDENT_MORE);
    promises.check(is_flat, "memory is flat among hostile peers", || format!("{warm:?}, then {end:?}"));
    let is_closed = after.descriptors <= before.descriptors + DESCRIPTORS_MORE;
    let case = || format!("{before:?} before, {after:?} {CLOSED_WITHIN:?} after");
    promises.check(is_closed, "connections of peers that are gone are closed", case);
    promises.check(after.threads <= before.threads + 64, "threads do not pile up", case);
}

fn check_latencies(plan: &HostilePlan, report: &HostileReport, promises: &Promises) {
    for interface in Interface::ALL {
        let of = |phase: &BTreeMap<Interface, Summary>| phase.get(&interface).copied().unwrap_or_default();
        let (quiet, hostile) = (of(&report.quiet), of(&report.hostile));
        let case = || format!("{}: {quiet:?}, then {hostile:?}", interface.name());
        // Orders with permits wait for the chain: a short phase may have none.
        let is_measured = quiet.count > 0 && hostile.count > 0;
        let is_rare = matches!(interface, Interface::RestToken | Interface::FixToken);
        promises.check(is_measured || is_rare, "each interface is measured in both phases", case);
        promises.check(hostile.worst <= plan.answer_max, "no answer takes too long", case);
        if let (Some(ratio), Interface::Rest | Interface::Fix) = (plan.ratio_max, interface) {
            let promise = format!("the worst latency is below {ratio} times that without hostile peers");
            promises.check(hostile.worst < quiet.worst * ratio, &promise, case);
        }
    }
}

fn check_log(process: &Process, promises: &Promises) {
    let log = process.log();
    for line in log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")) {
        if promises.is_excused_in_log(line) {
            continue;
        }
        promises.broken("nothing that a peer does is an error in the service's log", || line.to_owned());
    }
}

/// Every order has ended, the books agree, and the well-behaved partner received the stored messages.
async fn check_books(
    target: &Target,
    placed: &[crate::crash::rest::Placed],
    transcript: &crate::crash::fix::SessionTranscript,
) -> anyhow::Result<()> {
    let mut conn = PgConnection::connect(text(&target.ready, "/databaseUrl")?).await?;
    // The receipts of hostile orders are anchored later; that takes nothing from anybody.
    // A hostile peer's order may rest for days.
    check::settled(&mut conn, check::Until::EndedOrResting, Instant::now() + PATIENCE).await?;
    check::check_rest(&mut conn, placed).await?;
    check::check_fix(&mut conn, transcript).await
}

/// The hostile peers at work, on one thread, which bounds their processor time.
struct Hostile {
    stop: CancellationToken,
    thread: std::thread::JoinHandle<anyhow::Result<BTreeMap<&'static str, u64>>>,
}

type Work = JoinSet<anyhow::Result<(&'static str, u64)>>;

impl Hostile {
    fn start(plan: &HostilePlan, target: &Target, promises: &Promises) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let crowd = Crowd {
            seed: plan.seed,
            load: plan.load,
            only: plan.only.clone(),
            target: target.clone(),
            promises: promises.clone(),
            stop: stop.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("hostile".to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut work = Work::new();
                crowd.fix(&mut work)?;
                crowd.unauthenticated(&mut work)?;
                crowd.rest(&mut work);
                let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
                while let Some(ended) = work.join_next().await {
                    let (name, count) = ended??;
                    *done.entry(name).or_default() += count;
                }
                Ok(done)
            })
        })?;
        Ok(Self { stop, thread })
    }

    async fn stop(self, promises: &Promises) -> anyhow::Result<BTreeMap<&'static str, u64>> {
        self.stop.cancel();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        let done =
            joined.map_err(|_| anyhow::anyhow!("a hostile peer panicked"))?.context("a hostile peer")?;
        for (name, count) in &done {
            promises.check(*count > 0, "each kind of hostile peer did something", || (*name).to_owned());
        }
        Ok(done)
    }
}

/// The common parameters of hostile peers.
struct Crowd {
    seed: u64,
    load: Load,
    only: Vec<PeerKind>,
    target: Target,
    promises: Promises,
    stop: CancellationToken,
}

impl Crowd {
    /// Lets peers of a kind take part, unless they are left out.
    fn add(
        &self,
        work: &mut Work,
        kind: PeerKind,
        peers: impl Future<Output = anyhow::Result<u64>> + Send + 'static,
    ) {
        if self.only.is_empty() || self.only.contains(&kind) {
            work.spawn(async move { Ok((kind.name(), peers.await?)) });
        }
    }

    fn pause(&self, millis: u64) -> Duration {
        Duration::from_millis(millis) * self.load.slower
    }

    fn peer(&self, session: usize, millis: u64) -> anyhow::Result<Peer> {
        let login = self.target.hostile_sessions.get(session).context("a hostile session")?;
        Ok(Peer {
            fix: self.target.fix,
            // An address of its own: wrong Logons of unauthenticated peers may lock theirs out.
            from: Ipv4Addr::new(127, 0, 0, 20),
            login: login.clone(),
            promises: self.promises.clone(),
            seed: self.seed.wrapping_add(u64::try_from(session)?),
            pause: self.pause(millis),
            stop: self.stop.clone(),
        })
    }

    fn fix(&self, work: &mut Work) -> anyhow::Result<()> {
        for (session, dictionary) in self.target.dictionaries.iter().enumerate() {
            let (peer, dictionary) = (self.peer(session, 150)?, dictionary.clone());
            self.add(work, PeerKind::FixFields, fix_peers::walk(peer, dictionary));
        }
        let (burst, volley) = (self.load.burst, self.load.volley);
        let peer = self.peer(3, 2_000)?;
        self.add(work, PeerKind::FixOrders, fix_peers::flood(peer, burst));
        let peer = self.peer(4, 2_000)?;
        self.add(work, PeerKind::FixVolleys, fix_peers::volleys(peer, volley));
        let peer = self.peer(5, 100)?;
        self.add(work, PeerKind::FixNoise, fix_peers::noise(peer));
        Ok(())
    }

    fn unauthenticated(&self, work: &mut Work) -> anyhow::Result<()> {
        let stale = self.target.hostile_sessions.last().context("a hostile session")?;
        let with_pause = |millis| Unauthenticated {
            http: self.target.http,
            fix: self.target.fix,
            good_sessions: self.target.good_sessions.clone(),
            stale: stale.clone(),
            promises: self.promises.clone(),
            seed: self.seed.wrapping_add(100 + millis),
            pause: self.pause(millis),
            stop: self.stop.clone(),
        };
        let (garbage, logons) = (with_pause(70), with_pause(60));
        self.add(work, PeerKind::Garbage, garbage.garbage());
        self.add(work, PeerKind::Logons, logons.logons());
        let storms = with_pause(1_000);
        self.add(work, PeerKind::Storms, storms.storms(25));
        let (half_open, count) = (with_pause(1), self.load.half_open);
        self.add(work, PeerKind::HalfOpen, half_open.half_open(count));
        Ok(())
    }

    fn rest(&self, work: &mut Work) {
        let caller = |millis| HostileCaller {
            http: self.target.http,
            keys: self.target.hostile.clone(),
            promises: self.promises.clone(),
            seed: self.seed.wrapping_add(200 + millis),
            pause: self.pause(millis),
            stop: self.stop.clone(),
        };
        let Load { burst, long_polls, .. } = self.load;
        let (unknown, bodies, flood) = (caller(500), caller(40), caller(1_500));
        let polls = caller(1);
        self.add(work, PeerKind::UnknownKeys, unknown.unknown_keys(20));
        self.add(work, PeerKind::RestBodies, bodies.bodies());
        self.add(work, PeerKind::RestOrders, flood.flood(burst));
        self.add(work, PeerKind::LongPolls, polls.long_polls(long_polls));
    }
}
