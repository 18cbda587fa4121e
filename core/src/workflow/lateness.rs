//! Runs every 15 s: counts overdue payouts, debts and contradictions of the bank, for alarms; requests the refund of
//! failed orders whose timelock has expired, and the release of those whose payment the bank has made and whose timelock
//! is near.
//!
//! While the bank contradicts an order's end, the service returns no input.
//!
//! Kept by `core/tests/it/commitment.rs::an_unanswered_payout_is_settled_before_the_timelock_and_owed` and
//! `core/tests/it/bank_words.rs::a_refund_is_withdrawn_when_the_bank_makes_the_payment_and_requested_again_when_that_is_closed`.

use std::sync::Arc;
use std::time::Duration;

use dvp_store::chain::commands;
use dvp_store::orders::{bank, effects, operations};
use dvp_store::workers::{self, Apart, Step, Worker, in_database, pause};
use metrics::gauge;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{error, info};

use crate::engine::{Engine, EngineError};

const EVERY: Duration = Duration::from_secs(15);
/// The longest time for the count, and for the request of one refund.
const ITEM_MAX: Duration = Duration::from_secs(10);
/// The tolerated lag of the chain's clock.
const OVER_SECS: i64 = 60;
/// Orders read at a time.
const PAGE: i64 = 100;
const COUNT: &str = "overdue payouts";
const CONTRADICTIONS: &str = "contradictions of the bank";
const GUARD: &str = "releases before the timelock";
const REFUNDS: &str = "due refunds";

/// Overdue payouts, and debts.
type Counts = (i64, i64);

/// Reports the number of overdue payouts of locked tokens and of debts; requests the due refunds.
pub async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    let items = Apart::new(engine.pool.clone(), Worker::Lateness, ITEM_MAX);
    let before = Arc::<Mutex<Counts>>::default();
    loop {
        items.attend(COUNT, COUNT, count(engine.clone(), Arc::clone(&before))).await;
        items.attend(CONTRADICTIONS, CONTRADICTIONS, count_contradicted(engine.clone())).await;
        items.attend(GUARD, GUARD, guard(engine.clone())).await;
        refund(engine, &items).await;
        if !pause(EVERY, &mut stop).await {
            return;
        }
    }
}

/// Each order's refund is requested by itself.
async fn refund(engine: &Engine, items: &Apart) {
    let mut after = String::new();
    loop {
        let reading = list_due(engine.clone(), after.clone());
        let Some(due) = items.attend(REFUNDS, REFUNDS, reading).await.done() else { return };
        let Some(last) = due.last() else { return };
        after.clone_from(last);
        for reference in due {
            let requesting = request_refund(engine.clone(), reference.clone());
            items.attend(&reference, &reference, requesting).await;
        }
    }
}

async fn list_due(engine: Engine, after: String) -> Result<Vec<String>, EngineError> {
    let mut conn = engine.pool.acquire().await?;
    Ok(commands::list_due_refunds(&mut conn, OVER_SECS, &after, PAGE).await?)
}

async fn request_refund(engine: Engine, reference: String) -> Result<(), EngineError> {
    workers::at(Step::RefundWrite, &reference).await?;
    let mut conn = engine.pool.acquire().await?;
    if commands::insert_refund(&mut conn, OVER_SECS, &reference).await? {
        info!(reference, "timelock of a failed order expired; refund requested");
    }
    Ok(())
}

async fn count_contradicted(engine: Engine) -> Result<(), EngineError> {
    workers::at(Step::LatenessCount, in_database(&engine.pool, CONTRADICTIONS)).await?;
    let mut conn = engine.pool.acquire().await?;
    let count = bank::count_contradicted(&mut conn).await?;
    gauge!("dvp_payments_contradicted").set(f64::from(i32::try_from(count).unwrap_or(i32::MAX)));
    Ok(())
}

async fn guard(engine: Engine) -> Result<(), EngineError> {
    workers::at(Step::LatenessCount, in_database(&engine.pool, GUARD)).await?;
    let mut conn = engine.pool.acquire().await?;
    let orders = effects::insert_timelocks(&mut conn).await?;
    if orders > 0 {
        error!(
            orders,
            "the bank has made the payments of failed orders, nobody has decided, and the timelock is near: their funds \
             are released"
        );
    }
    Ok(())
}

async fn count(engine: Engine, before: Arc<Mutex<Counts>>) -> Result<(), EngineError> {
    workers::at(Step::LatenessCount, in_database(&engine.pool, COUNT)).await?;
    let mut conn = engine.pool.acquire().await?;
    let now = operations::count_late_payouts(&mut conn).await?;
    let mut before = before.lock();
    tell(*before, now);
    *before = now;
    Ok(())
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
