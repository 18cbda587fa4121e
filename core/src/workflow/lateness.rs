//! Runs every 15 s: counts overdue payouts and debts, for alarms, and requests the refund of failed orders whose
//! timelock has expired.

use std::time::Duration;

use dvp_store::chain::commands;
use dvp_store::orders::operations;
use metrics::gauge;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::engine::{Engine, EngineError};

const EVERY: Duration = Duration::from_secs(15);
/// The tolerated lag of the chain's clock.
const OVER_SECS: i64 = 60;

/// Reports the number of overdue payouts of locked tokens and of debts; requests the due refunds.
pub(super) async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    let mut before = (0, 0);
    while !*stop.borrow() {
        match counted(engine).await {
            Ok(now) => {
                tell(before, now);
                before = now;
            }
            Err(error) => warn!(%error, "counting overdue payouts failed, retrying in 15 s"),
        }
        match refund(engine).await {
            Ok(0) => {}
            Ok(refunds) => info!(refunds, "timelocks of failed orders expired; refunds requested"),
            Err(error) => warn!(%error, "requesting refunds failed, retrying in 15 s"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.changed() => {}
        }
    }
}

fn tell(before: (i64, i64), now: (i64, i64)) {
    let number = |count: i64| f64::from(i32::try_from(count).unwrap_or(i32::MAX));
    let (overdue, owed) = now;
    gauge!("dvp_payouts_overdue").set(number(overdue));
    gauge!("dvp_debts").set(number(owed));
    if overdue > before.0 || owed > before.1 {
        error!(
            overdue,
            owed, "payouts are overdue without a final answer; see `dvp execution list --stuck-for-secs 0`"
        );
    } else if now != before {
        info!(overdue, owed, "fewer payouts are overdue");
    }
}

async fn refund(engine: &Engine) -> Result<u64, EngineError> {
    let mut conn = engine.pool.acquire().await?;
    Ok(commands::insert_refunds(&mut conn, OVER_SECS).await?)
}

async fn counted(engine: &Engine) -> Result<(i64, i64), EngineError> {
    let mut conn = engine.pool.acquire().await?;
    Ok(operations::count_late_payouts(&mut conn).await?)
}
