//! The errors of programs that we start ourselves. The messages are for the person at the terminal: each
//! names the file or program and, where there is one, the remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Why an embedded program could not be found, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A file or directory could not be used.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The failed action, as a verb: `create`, `read`, …
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A program exists but could not be run at all.
    #[error("cannot run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Neither the machine nor the package manager has the program.
    #[error("{program} was not found ({looked}); {advice}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The places that were searched, and the reasons for their failure.
        looked: String,
        /// The package to install.
        advice: String,
    },
    /// The package was fetched but is not what we expect, or npm failed.
    #[error("cannot fetch {package}: {reason}")]
    Fetch {
        /// Package and version.
        package: String,
        /// npm's output, or the fault of the package.
        reason: String,
    },
    /// The program ended before it was ready.
    #[error("{program} stopped while starting ({status}); the end of its log:\n{log_tail}")]
    Exited {
        /// The program.
        program: String,
        /// Its exit status in words.
        status: String,
        /// The last lines it wrote.
        log_tail: String,
    },
    /// The program runs but does not answer.
    #[error("{program} was not ready within {deadline_secs} s; the end of its log:\n{log_tail}")]
    NotReady {
        /// The program.
        program: String,
        /// How long we waited, in seconds.
        deadline_secs: u64,
        /// The last lines it wrote.
        log_tail: String,
    },
    /// The program ignores every signal.
    #[error("{program} (process {pid}) did not stop within {deadline_secs} s")]
    WontStop {
        /// The program.
        program: String,
        /// Its process id.
        pid: u32,
        /// How long we waited, in seconds.
        deadline_secs: u64,
    },
    /// Another process of ours owns the directory.
    #[error("{} is in use by another running process", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory holds something that we neither understand nor dare to delete.
    #[error("{} cannot be used: {reason}", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// Its fault.
        reason: String,
    },
    /// The database is up but refused a statement.
    #[error("the embedded database refused a statement")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("the embedded database refused a migration")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A thread of ours panicked or its runtime is going away.
    #[error("a background task of the embedded programs ended early")]
    Task(#[from] tokio::task::JoinError),
}

impl EmbeddedError {
    /// For `map_err`: an I/O error with the action and the path.
    pub fn file<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::File { action, path: path.to_owned(), source }
    }
}
