//! Work whose step cannot be written: it waits longer after each attempt and is tried apart from other work.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use dvp_domain::settlement::leg::back_off_ms;
use dvp_store::StoreError;
use dvp_store::orders::effects;
use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::engine::{Engine, EngineError};

/// The first wait, and the longest.
const WAIT_MS: u64 = 1_000;
const WAIT_MAX_MS: u64 = 60_000;
/// How often what waits is counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Why a piece of work was not carried out.
#[derive(Debug)]
pub(super) enum Failed {
    /// What was to be read or written breaks a rule, or something keeps it locked: it is put off.
    Unwritable(String),
    /// The database or the writer: the work is tried again as it is.
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

/// Work that was put off.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutOff<'a> {
    /// `effect` or `fact`.
    pub(super) kind: &'static str,
    pub(super) id: i64,
    /// What it is about.
    pub(super) about: &'a str,
    /// Attempts in a row that failed, this one included.
    pub(super) attempts: u32,
}

impl PutOff<'_> {
    /// How long it waits now. The first time is an alarm; later ones say that it still is as it was.
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

/// Shows how much work waits because it could not be written.
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
