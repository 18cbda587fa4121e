//! Checks the ledger against itself: every kept balance equals the sum of its entries, and all entries of an asset sum to
//! zero.
//!
//! The database refuses every violation, so a finding was written past its checks. A minute after the last check the
//! kept balances are compared with the last closings and the entries since; once a day, and as long as that found
//! something, they are compared with all entries. The check pauses for twenty times its duration, at least a minute,
//! and one process at a time runs it.

use std::time::{Duration, Instant};

use dvp_store::ledger::check::{self as store, Compared, Disagreement, Findings, WholeCheck};
use dvp_store::workers::{self, Attended, Items, Step, Worker, in_database, pause};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::error;

use crate::engine::reads::SNAPSHOT;
use crate::engine::{Engine, EngineError};
use crate::workflow::figures::unix_seconds;

const REST: Duration = Duration::from_secs(60);
/// After a failure, which is set aside.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest time for one check, of the whole ledger at that.
const CHECK_MAX: Duration = Duration::from_secs(6 * 3600);
const LEDGER: &str = "ledger";
const SHARE: u32 = 20;

pub async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    let items = Items::new(engine.pool.clone(), Worker::LedgerCheck, CHECK_MAX);
    // The whole ledger is not compared again before this time, after it could not be.
    let mut whole_from = Instant::now();
    loop {
        let begun = Instant::now();
        let mut is_whole = false;
        let checking = check_due(engine, begun >= whole_from, &mut is_whole);
        let checked = items.attend(LEDGER, LEDGER, checking).await;
        let lasted = begun.elapsed();
        let rest = match checked {
            Attended::Done(()) => rest(lasted),
            Attended::Failed => {
                counter!("dvp_ledger_check_failures_total").increment(1);
                if is_whole {
                    whole_from = Instant::now() + rest(lasted);
                }
                AGAIN
            }
            Attended::SetAside | Attended::InProgress => AGAIN,
        };
        if !pause(rest, &mut stop).await {
            return;
        }
    }
}

fn rest(lasted: Duration) -> Duration {
    REST.max(lasted.saturating_mul(SHARE))
}

/// Compares what is due, and says whether that was the whole ledger. What the whole ledger has shown stays reported until
/// the whole ledger no longer does.
async fn check_due(engine: &Engine, may_be_whole: bool, is_whole: &mut bool) -> Result<(), EngineError> {
    workers::at(Step::LedgerCompare, in_database(&engine.pool, LEDGER)).await?;
    *is_whole = match find_whole(engine).await? {
        Some(WholeCheck { found: 1.., .. }) => true,
        Some(WholeCheck { is_a_day_old: false, .. }) => false,
        Some(_) | None => may_be_whole,
    };
    let compared = if *is_whole { Compared::Whole } else { Compared::SinceClosing };
    check(engine, compared).await.map(drop)
}

async fn find_whole(engine: &Engine) -> Result<Option<WholeCheck>, EngineError> {
    let last = store::find_whole(&mut *engine.pool.acquire().await?).await?;
    if let Some(WholeCheck { whole_at, .. }) = last {
        report_whole(f64::from(u32::try_from(whole_at.timestamp()).unwrap_or(u32::MAX)));
    }
    Ok(last)
}

fn report_whole(unix_seconds: f64) {
    gauge!("dvp_ledger_whole_check_last_success_timestamp_seconds").set(unix_seconds);
}

/// Checks once. `None`: another process is checking.
pub async fn check(engine: &Engine, compared: Compared) -> Result<Option<Findings>, EngineError> {
    let mut tx = engine.pool.begin_with(SNAPSHOT).await?;
    if !store::begin(&mut tx).await? {
        return Ok(None);
    }
    let findings = store::compare(&mut tx, compared).await?;
    tx.rollback().await?;
    if compared == Compared::Whole {
        store::record_whole(&mut *engine.pool.acquire().await?, &findings).await?;
        report_whole(unix_seconds());
    }
    for found in &findings.disagreements {
        let Disagreement { owner_kind, owner, asset, kept, posted } = found;
        error!(owner_kind, owner, asset, kept, posted, "a balance is not the sum of its ledger entries");
    }
    for (asset, sum) in &findings.unbalanced {
        error!(asset, sum, "the ledger's entries of an asset do not sum to zero");
    }
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    gauge!("dvp_ledger_disagreements").set(number(findings.disagreements.len()));
    gauge!("dvp_ledger_unbalanced_assets").set(number(findings.unbalanced.len()));
    counter!("dvp_ledger_checks_total").increment(1);
    gauge!("dvp_ledger_check_last_success_timestamp_seconds").set(unix_seconds());
    Ok(Some(findings))
}
