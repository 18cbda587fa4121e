//! One item of a worker loop fails at a step, in every way: all others finish at their usual pace, the item is listed,
//! and it finishes once the failure is lifted.

use std::time::{Duration, Instant};

use dvp_store::workers::inject::{FailureKind, InjectedFailure};
use dvp_store::workers::set_aside::{self, SetAside};
use dvp_store::workers::{Step, Worker};
use sqlx::PgPool;
use tokio::task::JoinHandle;

use crate::wait::wait_for;

/// Items that nothing happens to.
const OTHERS: usize = 4;
/// The others may take this many times as long as without failures, and so much more, on a busy machine.
const TIMES: u32 = 4;
const MORE: Duration = Duration::from_secs(4);

/// The time between two starts of a loop whose interval is long, and how often it is started.
const BETWEEN_STARTS: Duration = Duration::from_secs(8);
const STARTS_MAX: u32 = 12;

/// The steps of a loop.
pub fn steps(worker: Worker) -> impl Iterator<Item = Step> {
    Step::ALL.iter().copied().filter(move |step| step.worker() == worker)
}

/// [`others_go_on`] at each step of a loop.
pub async fn each_step(worker: Worker, scene: &impl FailingScene) {
    for step in steps(worker) {
        others_go_on(scene, step).await;
    }
}

/// [`named_others_go_on`] at each step of a loop.
pub async fn each_named_step(worker: Worker, scene: &impl NamedScene) {
    for step in steps(worker) {
        named_others_go_on(scene, step).await;
    }
}

/// A loop, and items for it.
pub trait FailingScene {
    fn pool(&self) -> &PgPool;

    /// Makes an item while the loop does not run. Returns what identifies it at the steps.
    fn make(&self) -> impl Future<Output = String>;

    /// How long the loop waits for an item by its rules.
    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Starts the loop; it stops when the handle is aborted.
    fn start(&self) -> JoinHandle<()>;

    /// Whether the loop has finished an item.
    fn is_done(&self, item: &str) -> impl Future<Output = bool>;

    /// Whether the list's row is about an item.
    fn is_listed_as(&self, row: &SetAside, item: &str) -> bool {
        row.item == item || row.about == item
    }
}

/// A task that stops when this is dropped.
#[derive(Debug)]
pub struct Running(pub JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The loop that was stopped before had one.
pub async fn free_leases(pool: &PgPool) {
    sqlx::query("update lease set expires_at = clock_timestamp()").execute(pool).await.unwrap();
}

async fn made(scene: &impl FailingScene, count: usize) -> Vec<String> {
    let mut made = Vec::with_capacity(count);
    for _ in 0..count {
        made.push(scene.make().await);
    }
    made
}

async fn done(scene: &impl FailingScene, items: &[String]) {
    for item in items {
        wait_for(item, || async { scene.is_done(item).await.then_some(()) }).await;
    }
}

/// What `dvp work list` and the console's *Set aside* list.
async fn listed(pool: &PgPool) -> Vec<SetAside> {
    let mut conn = pool.acquire().await.unwrap();
    set_aside::list(&mut conn, 1_000).await.unwrap()
}

const RULES: &str = include_str!("../../../deploy/prometheus/rules/causes.yml");

/// The alarm of what is set aside is about the loop, and what its gauge shows is above the threshold. Commands have an
/// alarm of their own, of their age.
pub async fn assert_alarm(pool: &PgPool, worker: &str, failing: usize) {
    let mut conn = pool.acquire().await.unwrap();
    let counts = set_aside::count(&mut conn).await.unwrap();
    let shown = counts.iter().find(|(name, _)| name == worker).map_or(0, |(_, count)| *count);
    assert!(shown >= i64::try_from(failing).unwrap(), "{worker}: {failing} are set aside, {counts:?}");
    let rule = RULES.lines().find(|line| line.contains("dvp_set_aside_items")).expect("an alarm");
    let threshold: i64 = rule.rsplit('>').next().unwrap().trim().parse().unwrap();
    if rule.contains(&format!("loop!=\"{worker}\"")) {
        assert!(RULES.contains("dvp_chain_command_oldest_seconds"), "{worker} has no alarm");
    } else {
        assert!(shown > threshold || failing == 0, "{worker}: {shown} of {rule}");
    }
}

/// Makes an item fail at the step in each way that can happen there.
pub async fn others_go_on(scene: &impl FailingScene, step: Step) {
    let worker = step.worker().as_str();
    let usual = {
        let items = made(scene, OTHERS).await;
        let began = Instant::now();
        let _running = Running(scene.start());
        done(scene, &items).await;
        began.elapsed()
    };
    let kinds: Vec<FailureKind> = FailureKind::ALL.into_iter().filter(|kind| kind.is_of(step)).collect();
    let mut failing = made(scene, kinds.len() + OTHERS).await;
    let mut others = failing.split_off(kinds.len());
    let injected: Vec<(FailureKind, String, InjectedFailure)> = kinds
        .into_iter()
        .zip(failing)
        .map(|(kind, item)| (kind, item.clone(), InjectedFailure::new(step, item, kind)))
        .collect();
    let is_poisoned = |(kind, ..): &&(FailureKind, String, InjectedFailure)| *kind == FailureKind::Poison;
    // Poison is no failure: it is cleaned.
    others.extend(injected.iter().filter(is_poisoned).map(|(_, item, _)| item.clone()));
    let failing: Vec<&(FailureKind, String, InjectedFailure)> =
        injected.iter().filter(|one| !is_poisoned(one)).collect();
    let began = Instant::now();
    let _running = Running(scene.start());
    done(scene, &others).await;
    let took = began.elapsed();
    assert!(
        took <= usual * TIMES + scene.patience() + MORE,
        "{worker} {step:?}: others took {took:?}, usually {usual:?}"
    );
    for (kind, item, _) in &failing {
        let what = format!("{worker} {step:?} {kind:?} to be listed");
        wait_for(&what, || async {
            listed(scene.pool())
                .await
                .iter()
                .any(|row| row.worker == worker && scene.is_listed_as(row, item))
                .then_some(())
        })
        .await;
        assert!(!scene.is_done(item).await, "{step:?} {kind:?}");
    }
    for (kind, _, injected) in &injected {
        assert!(injected.hits() > 0, "{step:?} {kind:?} was never reached");
    }
    assert_alarm(scene.pool(), worker, failing.len()).await;
    let items: Vec<String> = failing.iter().map(|(_, item, _)| item.clone()).collect();
    drop(injected);
    done(scene, &items).await;
    for item in &items {
        wait_for("the list to be empty", || async {
            let is_listed = listed(scene.pool())
                .await
                .iter()
                .any(|row| row.worker == worker && scene.is_listed_as(row, item));
            (!is_listed).then_some(())
        })
        .await;
    }
}

/// A loop whose items are always the same, such as tables, and known by name.
pub trait NamedScene {
    fn pool(&self) -> &PgPool;

    /// What identifies each item at the step: the one that will fail, and others.
    fn items(&self, step: Step) -> Vec<String>;

    /// How long the others wait for an item by the loop's rules.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Starts the loop; it stops when the handle is aborted.
    fn start(&self) -> JoinHandle<()>;
}

fn hits(counted: &[InjectedFailure]) -> Vec<u64> {
    counted.iter().map(InjectedFailure::hits).collect()
}

/// Waits until each item has been worked on since `before`. Returns how long that took.
async fn once(counted: &[InjectedFailure], before: &[u64], beside: &str) -> Duration {
    let began = Instant::now();
    wait_for(&format!("others to be worked on beside {beside}"), || async {
        counted.iter().zip(before).all(|(one, before)| one.hits() > *before).then_some(())
    })
    .await;
    began.elapsed()
}

async fn is_listed(scene: &impl NamedScene, step: Step) -> bool {
    listed(scene.pool()).await.iter().any(|row| row.worker == step.worker().as_str())
}

/// Makes the first item fail at the step in each way that can happen there.
pub async fn named_others_go_on(scene: &impl NamedScene, step: Step) {
    let items = scene.items(step);
    let (failing, others) = items.split_first().expect("a loop with items");
    let counted: Vec<InjectedFailure> =
        others.iter().map(|item| InjectedFailure::new(step, item, FailureKind::Counted)).collect();
    let usual = {
        let before = hits(&counted);
        let _running = Running(scene.start());
        once(&counted, &before, "nothing").await
    };
    for kind in FailureKind::ALL.into_iter().filter(|kind| kind.is_of(step)) {
        let injected = InjectedFailure::new(step, failing, kind);
        let before = hits(&counted);
        let running = Running(scene.start());
        let took = once(&counted, &before, &format!("{step:?} {kind:?}")).await;
        let most = usual * TIMES + scene.patience() + MORE;
        assert!(took <= most, "{step:?} {kind:?}: others took {took:?}, usually {usual:?}");
        if kind == FailureKind::Poison {
            // It is cleaned.
            let reached = || async { (injected.hits() > 0).then_some(()) };
            wait_for("poison to be reached", reached).await;
            assert!(!is_listed(scene, step).await);
            continue;
        }
        let what = format!("{step:?} {kind:?} to be listed");
        wait_for(&what, || async { is_listed(scene, step).await.then_some(()) }).await;
        assert_alarm(scene.pool(), step.worker().as_str(), 1).await;
        assert!(injected.hits() > 0, "{step:?} {kind:?} was never reached");
        drop((injected, running));
        // Started again, so that no interval is waited for.
        let mut starts = 0;
        while is_listed(scene, step).await {
            let (_running, began) = (Running(scene.start()), Instant::now());
            while began.elapsed() < BETWEEN_STARTS && is_listed(scene, step).await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            starts += 1;
            assert!(starts < STARTS_MAX, "{step:?} {kind:?} stays in the list");
        }
    }
}
