//! Work that cannot be written: it is postponed, longer after each attempt, and retried separately from other work.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use dvp_domain::settlement::leg::back_off_ms;
use dvp_store::StoreError;
use dvp_store::orders::effects;
use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::engine::{Engine, EngineError};

/// The first and the longest delay.
const WAIT_MS: u64 = 1_000;
const WAIT_MAX_MS: u64 = 60_000;
/// The interval of counting postponed work.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Why a work item was not processed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The rows to read or to write violate a rule, or stay locked: the item is postponed.
    Unwritable(String),
    /// The database or the writer failed: the item is retried unchanged.
    Later(EngineError),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Corrupt(why) => Self::Unwritable(why),
            EngineError::Busy | EngineError::Unavailable(_) => Self::Later(error),
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        EngineError::from(error).into()
    }
}

/// A postponed work item.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutOff<'a> {
    /// `effect` or `fact`.
    pub(super) kind: &'static str,
    pub(super) id: i64,
    /// The subject of the item.
    pub(super) about: &'a str,
    /// Consecutive failed attempts, this one included.
    pub(super) attempts: u32,
}

impl PutOff<'_> {
    /// The present delay. The first failure raises an alarm; later ones are logged as unchanged.
    pub(super) fn wait(&self, why: &str) -> Duration {
        let Self { kind, id, about, attempts } = *self;
        let wait = back_off_ms(attempts, WAIT_MS, WAIT_MAX_MS, RandomState::new().hash_one(id));
        counter!("dvp_workflow_unwritable_total", "kind" => kind).increment(1);
        if attempts == 1 {
            error!(
                kind,
                id,
                about,
                error = why,
                wait_ms = wait,
                "work item cannot be written, retrying it alone at most 60 s apart"
            );
        } else {
            info!(kind, id, about, attempts, wait_ms = wait, "work item still cannot be written, will retry");
        }
        Duration::from_millis(wait)
    }
}

/// Reports the number of postponed work items.
pub(super) async fn count(engine: &Engine, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        match counted(engine).await {
            Ok((of_effects, of_facts)) => {
                let number = |count: i64| f64::from(i32::try_from(count).unwrap_or(i32::MAX));
                gauge!("dvp_workflow_suspects", "kind" => "effect").set(number(of_effects));
                gauge!("dvp_workflow_suspects", "kind" => "fact").set(number(of_facts));
            }
            Err(error) => warn!(%error, "counting unwritable work items failed, retrying in 5 s"),
        }
        tokio::select! {
            () = tokio::time::sleep(COUNT_EVERY) => {}
            _ = stop.changed() => {}
        }
    }
}

async fn counted(engine: &Engine) -> Result<(i64, i64), EngineError> {
    let mut conn = engine.pool.acquire().await?;
    Ok(effects::count_unwritten(&mut conn).await?)
}
