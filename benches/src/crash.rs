//! The service under fire: orders come through both interfaces while the real program is killed with SIGKILL and started
//! again, at moments that a seed picks, in the middle of its start too. Afterwards nothing may be lost, nothing
//! doubled, and every FIX client must hold what the database says it was told.

pub(crate) mod check;
pub(crate) mod dice;
pub(crate) mod fix;
pub(crate) mod process;
pub(crate) mod rest;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::dice::Dice;
use self::fix::FixClient;
use self::process::Process;
use self::rest::{RestCaller, Wallet};

/// What the clients are told of the service: the ready file while it runs.
type Ready = Option<Arc<serde_json::Value>>;

/// One drill.
#[derive(Debug, Clone)]
pub struct CrashPlan {
    /// The program under fire.
    pub binary: PathBuf,
    pub seed: u64,
    pub kills: u32,
}

/// What was done and held.
#[derive(Debug, Clone, Default)]
pub struct CrashReport {
    pub kills: u32,
    pub starts_cut_short: u32,
    pub orders: usize,
    pub completed: usize,
    pub fix_messages: usize,
    pub resent: usize,
}

/// How long the last orders may take to end once nobody kills any more.
const PATIENCE: Duration = Duration::from_secs(300);
/// A start that takes longer is stuck.
const START_WITHIN: Duration = Duration::from_secs(300);

/// Runs a drill in a directory of its own. An error names the promise that was broken.
pub async fn run(plan: &CrashPlan) -> anyhow::Result<CrashReport> {
    let dir = tempfile::tempdir()?;
    let outcome = under_fire(plan, dir.path()).await;
    if outcome.is_err() {
        let kept = dir.keep();
        return outcome
            .with_context(|| format!("seed {}; everything is left in {}", plan.seed, kept.display()));
    }
    outcome
}

async fn under_fire(plan: &CrashPlan, dir: &Path) -> anyhow::Result<CrashReport> {
    let mut dice = Dice::new(plan.seed);
    let mut process = Process::start(&plan.binary, dir)?;
    let first = process.ready_within(START_WITHIN).await?;
    let place = watch::Sender::new(Some(Arc::new(first.clone())));
    let closing = watch::Sender::new(false);
    let (mut callers, mut clients) = (JoinSet::new(), JoinSet::new());
    for (n, wallet) in [None, None, Some(0)].into_iter().enumerate() {
        let wallet = wallet.map(|n| Wallet::of(&first, n)).transpose()?;
        let dice = Dice::new(plan.seed ^ (1 + u64::try_from(n)?) << 32);
        let caller = RestCaller::new(place.subscribe(), closing.subscribe(), wallet, dice)?;
        callers.spawn(caller.run());
    }
    for (n, wallet) in [(0, Some(1)), (1, None)] {
        let wallet = wallet.map(|n| Wallet::of(&first, n)).transpose()?;
        let dice = Dice::new(plan.seed ^ (9 + u64::try_from(n)?) << 32);
        let client = FixClient::new(&first, n, wallet, dice)?;
        clients.spawn(client.run(place.subscribe(), closing.subscribe()));
    }
    let mut report = CrashReport::default();
    while report.kills < plan.kills {
        tokio::time::sleep(Duration::from_millis(30 + dice.roll(1_800))).await;
        ensure!(process.is_running()?, "the service ended by itself\n{}", process.log_tail());
        process.kill().await?;
        place.send_replace(None);
        report.kills += 1;
        // Some starts are not waited for.
        while report.kills < plan.kills && dice.roll(5) == 0 {
            process.start_again()?;
            tokio::time::sleep(Duration::from_millis(dice.roll(2_500))).await;
            process.kill().await?;
            report.kills += 1;
            report.starts_cut_short += 1;
        }
        process.start_again()?;
        let ready = process.ready_within(START_WITHIN).await?;
        place.send_replace(Some(Arc::new(ready)));
    }
    // Nobody kills any more: what was asked for is answered, what was begun ends.
    tokio::time::sleep(Duration::from_millis(500)).await;
    closing.send_replace(true);
    let mut placed = Vec::new();
    let wait = async {
        while let Some(orders) = callers.join_next().await {
            placed.extend(orders??);
        }
        let mut told = Vec::new();
        while let Some(one) = clients.join_next().await {
            told.push(one??);
        }
        anyhow::Ok(told)
    };
    let told = match tokio::time::timeout(PATIENCE, wait).await {
        Ok(told) => told?,
        Err(_) => anyhow::bail!("clients wait in vain for their answers\n{}", process.log_tail()),
    };
    let ready = place.borrow().clone().context("the service is up")?;
    let checked = check::check(&ready, &placed, &told, Instant::now() + PATIENCE).await;
    let checked = checked.with_context(|| process.log_tail())?;
    report.orders = checked.orders;
    report.completed = checked.completed;
    report.fix_messages = told.iter().map(|one| one.heard.len()).sum();
    report.resent = told.iter().map(|one| one.repeats).sum();
    process.stop().await?;
    Ok(report)
}
