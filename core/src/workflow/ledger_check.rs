//! Checks the ledger against itself: every kept balance equals the sum of its entries, and all entries of an asset sum to
//! zero.
//!
//! The database refuses every violation, so a finding was written past its checks. A minute after the last check the
//! kept balances are compared with the last closings and the entries since; once a day, and as long as that found
//! something, they are compared with all entries. The check pauses for twenty times its duration, at least a minute,
//! and one process at a time runs it.

use std::time::{Duration, Instant};

use dvp_store::ledger::check::{self as store, Compared, Disagreement, Findings, WholeCheck};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::{error, warn};

use crate::engine::{Engine, EngineError};
use crate::figures::unix_seconds;
use crate::reads::SNAPSHOT;

const REST: Duration = Duration::from_secs(60);
const SHARE: u32 = 20;

pub(super) async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    // The whole ledger is not compared again before this time, after it could not be.
    let mut whole_from = Instant::now();
    while !*stop.borrow() {
        let begun = Instant::now();
        let checked = check_due(engine, begun >= whole_from).await;
        let lasted = begun.elapsed();
        let rest = match checked {
            Ok(()) => rest(lasted),
            Err(failed) => {
                counter!("dvp_ledger_check_failures_total").increment(1);
                warn!(error = %failed.error, whole = failed.is_whole, "ledger check failed");
                if failed.is_whole {
                    whole_from = Instant::now() + rest(lasted);
                }
                REST
            }
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = stop.changed() => {}
        }
    }
}

fn rest(lasted: Duration) -> Duration {
    REST.max(lasted.saturating_mul(SHARE))
}

struct Failed {
    error: EngineError,
    is_whole: bool,
}

/// Compares what is due. What the whole ledger has shown stays reported until the whole ledger no longer does.
async fn check_due(engine: &Engine, may_be_whole: bool) -> Result<(), Failed> {
    let last = find_whole(engine).await.map_err(|error| Failed { error, is_whole: false })?;
    let is_whole = match last {
        Some(WholeCheck { found: 1.., .. }) => true,
        Some(WholeCheck { is_a_day_old: false, .. }) => false,
        Some(_) | None => may_be_whole,
    };
    let compared = if is_whole { Compared::Whole } else { Compared::SinceClosing };
    check(engine, compared).await.map(drop).map_err(|error| Failed { error, is_whole })
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
