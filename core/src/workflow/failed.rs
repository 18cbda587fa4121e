//! Why a piece of work was not done. Except where the writer's queue is full, it is set aside: postponed, longer after
//! each attempt, and retried separately from other work.

use std::time::Duration;

use dvp_store::StoreError;
use dvp_store::workers::{ItemError, guarded};

use crate::engine::EngineError;

/// The longest time for one piece of work: two answers of a rail, and what is written about them.
pub(super) const WORK_MAX: Duration = Duration::from_secs(25);

/// Why a work item was not processed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// It fails in the same way again, as far as is known.
    #[error("{0}")]
    Unwritable(String),
    /// The database or the writer failed.
    #[error("{0}")]
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

/// Runs a piece of work within its time. A panic and a time-out are failures of this piece alone.
pub(super) async fn contained<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    guarded(WORK_MAX, work).await.map_err(|error| match error {
        ItemError::Failed(failed) => failed,
        ItemError::Panicked(_) | ItemError::TimedOut(_) => Failed::Unwritable(error.to_string()),
    })
}
