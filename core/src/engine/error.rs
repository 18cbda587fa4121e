//! Why a request failed.

use dvp_store::{Fault, StoreError};

use crate::chain::ChainUnavailable;
use crate::writer::WriteError;

/// The request failed; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Too many requests are waiting: retry shortly.
    #[error("busy")]
    Busy,
    /// The database or the chain did not answer.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// A row violates a rule, either a stored one or one that cannot be written.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error.fault() {
            Fault::Data => Self::Corrupt(error.to_string()),
            Fault::Conflict | Fault::Slow | Fault::Unavailable => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<sqlx::Error> for EngineError {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl From<WriteError> for EngineError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Busy => Self::Busy,
            WriteError::Store(error) => error.into(),
            WriteError::Unavailable(why) | WriteError::Slow(why) => Self::Unavailable(why.to_string()),
            WriteError::Stopped | WriteError::Stale { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<ChainUnavailable> for EngineError {
    fn from(error: ChainUnavailable) -> Self {
        Self::Unavailable(error.to_string())
    }
}
