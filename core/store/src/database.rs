//! Connections to the database.
//!
//! ```text
//! unix socket   sqlx ────────────────────────────────────────────────> PostgreSQL
//! TCP           sqlx ──> relay, a task of this process ── TCP, TLS ──> PostgreSQL, the primary of several servers
//! ```
//!
//! sqlx offers no socket options, no time limit for an answer, no list of servers, and adds a configured authority to
//! the system's instead of trusting it alone. The module `relay` provides all of it in one place, for every connection
//! of the process: those of the pools, the listeners and the writer. No query to a vanished host waits longer than its
//! pool allows.
//!
//! Invariants:
//! - a connection to another machine is encrypted, and host name and certificate are verified. No setting disables
//!   this;
//! - where servers replicate, nothing is read by a connection before a barrier has proved that its server is the
//!   primary and that a standby has everything that can be read (`barrier`, `primary`);
//! - no COMMIT is cancelled. One that is not answered in time is left to the server, and its outcome is read by a new
//!   connection.
//!
//! Kept by `core/tests/it/failover.rs::a_commit_that_no_standby_has_is_never_read` and
//! `core/tests/it/failover.rs::a_commit_whose_wait_was_cancelled_is_no_success`.

mod address;
mod availability;
mod barrier;
pub mod changes;
pub mod clock;
pub mod deployment;
pub mod fault;
pub mod health;
pub mod ids;
pub mod lease;
pub mod notify;
pub mod partitions;
pub mod pool;
pub mod pools;
mod primary;
mod relay;
pub mod retention;
pub mod session;
mod tls;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection as _, PgConnection};

pub use self::availability::Availability;
pub(super) use self::availability::Watch;
pub(super) use self::primary::Primary;
use self::relay::{Route, Upstream};

#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// The only trusted authorities; without it the system's.
    pub ca: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
}

impl TlsFiles {
    const fn is_empty(&self) -> bool {
        self.ca.is_none() && self.client_certificate.is_none() && self.client_key.is_none()
    }
}

/// Why the settings do not describe a safe connection. Each message begins with the setting to change.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("database.url: {0}")]
    Url(String),
    #[error("database.url: sslmode={mode} is less than verify-full, which {reason} needs")]
    Weak { mode: String, reason: String },
    #[error("database.url: {name} is not read; set {instead}")]
    Parameter { name: String, instead: &'static str },
    #[error("{setting}: {path}: {reason}", path = path.display())]
    File { setting: &'static str, path: PathBuf, reason: String },
    #[error("database.client_certificate and database.client_key are given together or not at all")]
    HalfAClient,
    #[error("database.ca: this machine has no certificate authorities of its own, so it must be given")]
    NoAuthorities,
    #[error("database.url: {0} is no host name that a certificate can be for")]
    HostName(String),
    #[error("database.urls: {0}")]
    Several(&'static str),
}

/// The time limits of a connection. The server ends what takes longer; when the server does not answer, the connection
/// is closed a little later.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub statement: Duration,
    /// Waiting for a lock.
    pub lock: Duration,
    /// Between two statements of a transaction.
    pub idle_in_transaction: Duration,
}

/// The additional time for an answer beyond the server's own limit.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// A database and how it is reached.
#[derive(Debug, Clone)]
pub struct Database {
    options: PgConnectOptions,
    /// The servers, of which one is the primary. None is listed for a Unix socket.
    servers: Arc<[Arc<Upstream>]>,
    requires_standby: bool,
}

impl Database {
    /// The database of a URL.
    ///
    /// # Errors
    /// Fails when the URL is invalid or requests less protection than its host needs, or when a file cannot be used.
    pub fn at(url: &str, files: &TlsFiles) -> Result<Self, AddressError> {
        let (options, upstream) = address::read(url, files)?;
        let servers = upstream.into_iter().map(Arc::new).collect();
        Ok(Self { options, servers, requires_standby: false })
    }

    /// A database on several servers that replicate, one URL each. With `requires_standby` a server whose commits do
    /// not wait for a standby is not used.
    ///
    /// # Errors
    /// As [`at`](Self::at), and when the URLs differ in more than host and port.
    pub fn among(urls: &[String], files: &TlsFiles, requires_standby: bool) -> Result<Self, AddressError> {
        let (options, servers) = address::read_all(urls, files)?;
        Ok(Self { options, servers: servers.into_iter().map(Arc::new).collect(), requires_standby })
    }

    /// A database of this machine by its unix socket.
    pub fn by_socket(options: PgConnectOptions) -> Self {
        Self { options, servers: Arc::default(), requires_standby: false }
    }

    /// Host and port of each server, for display.
    pub fn place(&self) -> String {
        if self.servers.is_empty() { "a unix socket".to_owned() } else { relay::places(&self.servers) }
    }

    /// Whether the primary is one of several servers.
    pub(super) fn has_alternatives(&self) -> bool {
        self.servers.len() > 1
    }

    /// Whether a connection begins with a barrier.
    fn has_barrier(&self) -> bool {
        self.requires_standby || self.has_alternatives()
    }

    /// A connection to the primary without time limits, for a command.
    ///
    /// # Errors
    /// Fails when no server is the primary and accepts the connection.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        Ok(self.find().await?.1)
    }

    /// Options for connections to the present primary without time limits, for a command.
    ///
    /// # Errors
    /// Fails when no server is the primary, or when this machine cannot open another socket.
    pub async fn unbounded(&self) -> Result<PgConnectOptions, sqlx::Error> {
        Ok(self.find().await?.0)
    }

    /// Tries the servers one after the other.
    async fn find(&self) -> Result<(PgConnectOptions, PgConnection), sqlx::Error> {
        let primary = self.primary();
        let mut failures = Vec::new();
        for server in 0..self.servers.len().max(1) {
            let options = self.reached(self.options.clone(), None, &primary, Some(server))?;
            match PgConnection::connect_with(&options).await {
                Ok(conn) => return Ok((options, conn)),
                Err(error) => failures.push(error),
            }
        }
        match failures.pop() {
            Some(error) if failures.is_empty() => Err(error),
            last => {
                let reasons: Vec<String> = failures.iter().chain(&last).map(ToString::to_string).collect();
                let reasons = format!("no server is the primary: {}", reasons.join("; "));
                Err(sqlx::Error::Io(std::io::Error::other(reasons)))
            }
        }
    }

    /// For the connections of a process.
    pub(super) fn primary(&self) -> Primary {
        Primary::among(self.servers.len(), self.requires_standby)
    }

    /// The check of the servers, which decides where connections go.
    pub(super) fn watch(&self, bounds: &Timeouts, primary: &Primary) -> Result<Watch, sqlx::Error> {
        let servers = 0..self.servers.len().max(1);
        let probes = servers.map(|server| self.limited(bounds, primary, Some(server)));
        let places = match self.servers.is_empty() {
            true => vec![self.place()],
            false => self.servers.iter().map(|server| server.place()).collect(),
        };
        Ok(Watch {
            probes: probes.collect::<Result<_, _>>()?,
            places,
            primary: primary.clone(),
            has_barrier: self.has_barrier(),
        })
    }

    /// Options for connections with these limits, which are closed when their server is no longer the primary.
    pub(super) fn bounded(
        &self,
        bounds: &Timeouts,
        primary: &Primary,
    ) -> Result<PgConnectOptions, sqlx::Error> {
        self.limited(bounds, primary, None)
    }

    fn limited(
        &self,
        bounds: &Timeouts,
        primary: &Primary,
        probed: Option<usize>,
    ) -> Result<PgConnectOptions, sqlx::Error> {
        let millis = |time: Duration| time.as_millis().to_string();
        let options = self.options.clone().options([
            ("statement_timeout", millis(bounds.statement)),
            ("lock_timeout", millis(bounds.lock)),
            ("idle_in_transaction_session_timeout", millis(bounds.idle_in_transaction)),
        ]);
        self.reached(options, Some(bounds.statement + ANSWER_MARGIN), primary, probed)
    }

    /// To the followed server, or to a certain one. Connections with limits to a certain one are probes.
    fn reached(
        &self,
        options: PgConnectOptions,
        answer: Option<Duration>,
        primary: &Primary,
        only: Option<usize>,
    ) -> Result<PgConnectOptions, sqlx::Error> {
        // Compiling a statement of a report or a comparison takes seconds, and running it milliseconds.
        let options = options.options([("jit", "off")]);
        if self.servers.is_empty() {
            return Ok(options);
        }
        let route = Route {
            servers: Arc::clone(&self.servers),
            primary: primary.clone(),
            only,
            has_barrier: self.has_barrier(),
            is_probe: only.is_some() && answer.is_some(),
        };
        let socket = relay::open(route, options.get_port(), answer)?;
        // The server then closes its side of an abandoned connection within seconds and releases its locks.
        let options = options.options([
            ("tcp_keepalives_idle", "5"),
            ("tcp_keepalives_interval", "2"),
            ("tcp_keepalives_count", "3"),
            ("tcp_user_timeout", "10000"),
        ]);
        // Whatever the server's or the role's own setting is.
        let options = match self.requires_standby {
            true => options.options([("synchronous_commit", "on")]),
            false => options,
        };
        Ok(options.socket(socket).ssl_mode(PgSslMode::Disable))
    }
}
