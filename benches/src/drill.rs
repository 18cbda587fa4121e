//! What every drill is: it starts a service under a load, disturbs it, checks the promises, and reports what it counted.
//! Each seed is a run of its own; the report is the sum of all.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Map, Value, json};

use crate::dice::Dice;
use crate::progress;

/// The time limit for a start, for the service to write again, and for the last orders.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A way to disturb the service, and the promises that must hold afterwards.
pub trait Drill {
    const NAME: &'static str;
    const AT_ONCE: usize = 1;

    /// What is done with a seed beside the check at its end; the drill calls [`progress::done`] for each.
    fn rounds(&self) -> u32 {
        0
    }

    /// Runs a seed in a directory of its own. An error, or a panic, names the promise that was broken.
    fn run_in(&self, seed: u64, dir: &Path) -> impl Future<Output = anyhow::Result<Report>>;

    fn run(&self, seed: u64) -> impl Future<Output = anyhow::Result<Report>> {
        in_directory(seed, async move |dir| self.run_in(seed, dir).await)
    }
}

// The arguments of every drill; a doc comment here would be shown as that of the program.
#[derive(Debug, Clone, Args)]
pub struct Seeds {
    /// The first seed.
    #[arg(long, default_value_t = 1, global = true)]
    pub seed: u64,
    /// So many seeds, one after the other.
    #[arg(long, default_value_t = 1, global = true)]
    pub count: u64,
    /// One JSON object at the end instead of sentences.
    #[arg(long, global = true)]
    pub json: bool,
}

// The program under fire.
#[derive(Debug, Clone, Default, Args)]
pub struct Program {
    /// The program under fire; that beside this one unless another is named.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl Program {
    pub fn at(binary: impl Into<PathBuf>) -> Self {
        Self { binary: Some(binary.into()) }
    }

    /// A test is in a folder below the program's.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        let here = std::env::current_exe()?;
        let beside = here.ancestors().skip(1).take(2).map(|folder| folder.join("dvp"));
        let named = self.binary.clone().map_or_else(|| beside.collect(), |named| vec![named]);
        let found = named.into_iter().find(|program| program.exists());
        found.context("the program is not there: build it with `cargo build -p dvp`")
    }
}

/// Runs the seeds, prints the sum of their reports, and says whether every promise was kept.
pub async fn run<D: Drill>(drill: D, seeds: &Seeds) -> anyhow::Result<bool> {
    progress::show(D::NAME);
    progress::expect((u64::from(drill.rounds()) + 1).saturating_mul(seeds.count));
    let (began, mut sum, mut broken) = (Instant::now(), Report::default(), Vec::new());
    let all = seeds.seed..seeds.seed.saturating_add(seeds.count);
    let one = async |seed| (seed, AssertUnwindSafe(drill.run(seed)).catch_unwind().await);
    let mut runs = futures_util::stream::iter(all).map(one).buffer_unordered(D::AT_ONCE);
    while let Some((seed, ended)) = runs.next().await {
        match ended {
            Ok(Ok(report)) => sum.add(report),
            Ok(Err(error)) => broken.push(format!("seed {seed}: {error:#}")),
            Err(panic) => broken.push(format!("seed {seed}: {}", said(&*panic))),
        }
        broken.extend(sum.broken.drain(..).map(|line| format!("seed {seed}: {line}")));
        progress::done(format!("seed {seed}, {} broken", broken.len()));
    }
    let seconds = began.elapsed().as_secs();
    let mut out = std::io::stdout().lock();
    if seeds.json {
        let head = json!({"drill": D::NAME, "seeds": seeds.count, "seconds": seconds, "broken": broken});
        let fields =
            head.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
        writeln!(out, "{}", Value::Object(fields.chain(sum.json()).collect::<Map<_, _>>()))?;
    } else {
        let count = broken.len();
        writeln!(out, "{}: {} seeds in {seconds} s, {count} promises broken", D::NAME, seeds.count)?;
        write!(out, "{sum}")?;
        broken.iter().try_for_each(|line| writeln!(out, "broken: {line}"))?;
    }
    Ok(broken.is_empty())
}

pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panicked")
}

/// The last lines, without those of requests that were answered as they should be.
pub(crate) fn tail(log: &str, lines: usize) -> String {
    let all: Vec<&str> = log.lines().filter(|line| !line.contains("request answered status=2")).collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

pub(crate) fn with_log<T>(outcome: anyhow::Result<T>, tail: impl FnOnce() -> String) -> anyhow::Result<T> {
    outcome.map_err(|error| anyhow::anyhow!("{error:#}\n{}", tail()))
}

/// The directory is kept when a promise is broken.
async fn in_directory(
    seed: u64,
    run: impl AsyncFnOnce(&Path) -> anyhow::Result<Report>,
) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir()?;
    let outcome = run(dir.path()).await;
    if outcome.as_ref().is_ok_and(|report| report.broken.is_empty()) {
        return outcome;
    }
    let kept = dir.keep();
    outcome.with_context(|| format!("seed {seed}; logs and data are left in {}", kept.display()))
}

/// Disturbs in rounds: the faults one after the other, beginning with one that the dice pick.
pub(crate) async fn in_rounds<F: Copy + fmt::Debug>(
    faults: &[F],
    rounds: u32,
    dice: &mut Dice,
    report: &mut Report,
    mut round: impl AsyncFnMut(F, &mut Dice, &mut Report) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let first = dice.index(faults.len());
    for (n, fault) in (1..=rounds).zip(faults.iter().cycle().skip(first)) {
        let name = name_of(fault);
        round(*fault, dice, report).await.with_context(|| format!("round {n}, {name}"))?;
        report.kind("rounds", &name, 1);
        progress::done(format!("round {n}, {name}"));
    }
    Ok(())
}

/// The name of a variant as the reports write it: `WithoutEtcd` is `withoutEtcd`.
pub(crate) fn name_of(variant: &impl fmt::Debug) -> String {
    let name = format!("{variant:?}");
    let first = name.get(..1).unwrap_or_default().to_lowercase();
    format!("{first}{}", name.get(1..).unwrap_or_default())
}

/// Looks again and again until there is an answer; after `limit` the error says what there was not.
pub(crate) async fn until<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{what}: not within {limit:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a drill counted, by the names of its JSON.
#[derive(Debug, Clone, Default)]
pub struct Report {
    entries: BTreeMap<&'static str, Entry>,
    pub broken: Vec<String>,
}

#[derive(Debug, Clone)]
enum Entry {
    Sum(u64),
    Longest(Duration),
    Kinds(BTreeMap<String, u64>),
    List(Vec<Value>),
}

impl Report {
    pub fn count(&mut self, name: &'static str, count: impl TryInto<u64>) {
        let count = count.try_into().unwrap_or(u64::MAX);
        self.merge(name, Entry::Sum(count));
    }

    pub fn longest(&mut self, name: &'static str, time: Duration) {
        self.merge(name, Entry::Longest(time));
    }

    pub fn kind(&mut self, name: &'static str, kind: &str, count: u64) {
        self.merge(name, Entry::Kinds(BTreeMap::from([(kind.to_owned(), count)])));
    }

    /// Lines are shown as they are; tables as JSON.
    pub fn list(&mut self, name: &'static str, value: Value) {
        self.merge(name, Entry::List(vec![value]));
    }

    fn merge(&mut self, name: &'static str, more: Entry) {
        match (self.entries.get_mut(name), more) {
            (Some(Entry::Sum(sum)), Entry::Sum(more)) => *sum = sum.saturating_add(more),
            (Some(Entry::Longest(longest)), Entry::Longest(more)) => *longest = more.max(*longest),
            (Some(Entry::Kinds(kinds)), Entry::Kinds(more)) => {
                more.into_iter().for_each(|(kind, more)| *kinds.entry(kind).or_default() += more);
            }
            (Some(Entry::List(list)), Entry::List(more)) => list.extend(more),
            (_, more) => drop(self.entries.insert(name, more)),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        other.entries.into_iter().for_each(|(name, entry)| self.merge(name, entry));
        self.broken.extend(other.broken);
    }

    /// A count; 0 of what was not counted.
    pub fn get(&self, name: &str) -> u64 {
        match self.entries.get(name) {
            Some(Entry::Sum(sum)) => *sum,
            Some(Entry::Kinds(kinds)) => kinds.values().sum(),
            Some(Entry::Longest(_) | Entry::List(_)) | None => 0,
        }
    }

    pub fn kinds(&self, name: &str) -> Vec<&str> {
        match self.entries.get(name) {
            Some(Entry::Kinds(kinds)) => kinds.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    pub fn expect_some(&self, names: &[&str]) {
        names.iter().for_each(|name| assert!(self.get(name) > 0, "{name} is 0 in {self:?}"));
    }

    fn json(self) -> impl Iterator<Item = (String, Value)> {
        self.entries.into_iter().map(|(name, entry)| {
            let value = match entry {
                Entry::Sum(sum) => json!(sum),
                Entry::Longest(time) => json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                Entry::Kinds(kinds) => json!(kinds),
                Entry::List(list) => Value::Array(list),
            };
            (name.to_owned(), value)
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, entry) in &self.entries {
            match entry {
                Entry::Sum(sum) => writeln!(f, "{name}: {sum}")?,
                Entry::Longest(time) => writeln!(f, "{name}: {}", time.as_millis())?,
                Entry::Kinds(kinds) => {
                    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
                    writeln!(f, "{name}: {}", kinds.join(", "))?;
                }
                Entry::List(list) => list.iter().try_for_each(|value| match value.as_str() {
                    Some(line) => writeln!(f, "{line}"),
                    None => writeln!(f, "{name}: {value}"),
                })?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up_by_name_and_a_maximum_stays_one() {
        let report = |orders: u64, outage| {
            let mut report = Report::default();
            report.count("orders", orders);
            report.longest("longestOutageMs", Duration::from_millis(outage));
            report.kind("rounds", "killed", 1);
            report.list("runs", json!(orders));
            report
        };
        let mut sum = report(3, 900);
        sum.add(report(4, 200));
        assert_eq!((sum.get("orders"), sum.get("rounds"), sum.kinds("rounds")), (7, 2, vec!["killed"]));
        let json: Map<_, _> = sum.json().collect();
        let expected = json!({"longestOutageMs": 900, "orders": 7, "rounds": {"killed": 2}, "runs": [3, 4]});
        assert_eq!(Value::Object(json), expected);
    }

    #[test]
    fn a_fault_is_named_as_its_variant() {
        #[derive(Debug)]
        struct WithoutEtcd;
        assert_eq!(name_of(&WithoutEtcd), "withoutEtcd");
    }
}
