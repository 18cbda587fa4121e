//! Checks the ledger against itself: every stored balance equals the sum of its entries, and all entries of an asset
//! sum to zero.
//!
//! The database refuses every violation, so a finding was written past its checks. Both queries read the whole ledger,
//! so the check pauses for twenty times its duration, at least a minute, and one process at a time runs it.

use std::time::{Duration, Instant};

use dvp_store::ledger;
use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::{error, warn};

use crate::engine::{Engine, EngineError};
use crate::figures::unix_seconds;
use crate::reads::SNAPSHOT;

const REST: Duration = Duration::from_secs(60);
const SHARE: u32 = 20;

pub(super) async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let begun = Instant::now();
        let checked = check(engine).await;
        if let Err(error) = &checked {
            counter!("dvp_ledger_check_failures_total").increment(1);
            warn!(%error, "ledger check failed, will retry in 60 s");
        }
        let rest = rest(begun.elapsed(), checked.is_ok());
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = stop.changed() => {}
        }
    }
}

/// One that failed has read little, however long it waited.
fn rest(lasted: Duration, has_checked: bool) -> Duration {
    if has_checked { REST.max(lasted.saturating_mul(SHARE)) } else { REST }
}

/// Checks once. `None`: another process is checking.
pub async fn check(engine: &Engine) -> Result<Option<usize>, EngineError> {
    let mut tx = engine.pool.begin_with(SNAPSHOT).await?;
    if !ledger::begin_check(&mut tx).await? {
        return Ok(None);
    }
    let disagreements = ledger::list_disagreements(&mut tx).await?;
    let unbalanced = ledger::list_unbalanced(&mut tx).await?;
    tx.rollback().await?;
    for found in &disagreements {
        let ledger::Disagreement { owner_kind, owner, asset, kept, posted } = found;
        error!(owner_kind, owner, asset, kept, posted, "a balance is not the sum of its ledger entries");
    }
    for (asset, sum) in &unbalanced {
        error!(asset, sum, "the ledger's entries of an asset do not sum to zero");
    }
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    gauge!("dvp_ledger_disagreements").set(number(disagreements.len()));
    gauge!("dvp_ledger_unbalanced_assets").set(number(unbalanced.len()));
    counter!("dvp_ledger_checks_total").increment(1);
    gauge!("dvp_ledger_check_last_success_timestamp_seconds").set(unix_seconds());
    Ok(Some(disagreements.len() + unbalanced.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_waited_for_a_lock_and_failed_is_repeated_soon() {
        assert_eq!(rest(Duration::from_secs(30), false), REST);
        assert_eq!(rest(Duration::from_secs(30), true), Duration::from_secs(600));
        assert_eq!(rest(Duration::from_secs(1), true), REST);
    }
}
