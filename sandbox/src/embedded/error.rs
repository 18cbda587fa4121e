//! The errors of programs that we start ourselves. The messages are for the person at the terminal: each
//! names the file or program and, where there is one, the remedy.

use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

/// Why an embedded program could not be found, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    #[error("cannot {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run {}", program.display())]
    Run {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{program} was not found ({looked}); {advice}")]
    Missing { program: &'static str, looked: String, advice: String },
    #[error("cannot fetch {package}: {reason}")]
    Fetch { package: String, reason: String },
    #[error("{program} stopped while starting ({status}); the end of its log:\n{log_tail}")]
    Exited { program: String, status: String, log_tail: String },
    #[error("{program} was not ready within {deadline_secs} s; the end of its log:\n{log_tail}")]
    NotReady { program: String, deadline_secs: u64, log_tail: String },
    #[error("{program} (process {pid}) did not stop within {deadline_secs} s")]
    WontStop { program: String, pid: u32, deadline_secs: u64 },
    #[error("{} is in use by another running process", dir.display())]
    InUse { dir: PathBuf },
    /// The directory holds something that we neither understand nor dare to delete.
    #[error("{} cannot be used: {reason}", dir.display())]
    Unusable { dir: PathBuf, reason: String },
    #[error("the embedded database refused a statement")]
    Database(#[from] sqlx::Error),
    #[error("the embedded database refused a migration")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("a background task of the embedded programs ended early")]
    Task(#[from] tokio::task::JoinError),
}

impl EmbeddedError {
    /// What was done with a file; `None` when there is none.
    pub(crate) fn if_there<T>(
        done: io::Result<T>,
        action: &'static str,
        path: &Path,
    ) -> Result<Option<T>, Self> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Self::file(action, path)(error)),
        }
    }

    pub(crate) fn locked(tried: Result<(), TryLockError>, file: &Path, dir: &Path) -> Result<(), Self> {
        match tried {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(Self::InUse { dir: dir.to_owned() }),
            Err(TryLockError::Error(error)) => Err(Self::file("lock", file)(error)),
        }
    }

    /// For `map_err`: an I/O error with the action and the path.
    pub fn file<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::File { action, path: path.to_owned(), source }
    }
}
