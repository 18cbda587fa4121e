//! Connections to the database.
//!
//! ```text
//! unix socket   sqlx ────────────────────────────────────────────────> PostgreSQL
//! TCP           sqlx ──> relay, a task of this process ── TCP, TLS ──> PostgreSQL
//! ```
//!
//! sqlx offers no socket options, no time limit for an answer, and adds a configured authority to the system's instead
//! of trusting it alone. The module `relay` provides all three in one place, for every connection of the process: those
//! of the pools, the listeners and the writer. No query to a vanished host waits longer than its pool allows.
//!
//! Invariant: a connection to another machine is encrypted, and host name and certificate are verified. No setting
//! disables this.

mod address;
mod availability;
pub mod health;
mod relay;
pub mod session;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection as _, PgConnection};

pub use self::address::{AddressError, TlsFiles};
pub use self::availability::Availability;
pub(super) use self::availability::watch_over;
use self::relay::Upstream;

/// The time limits of a connection. The server ends what takes longer; when the server does not answer, the connection
/// is closed a little later.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// A statement.
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
    /// For every transport except a Unix socket.
    upstream: Option<Arc<Upstream>>,
}

impl Database {
    /// The database of a URL.
    ///
    /// # Errors
    /// Fails when the URL is invalid or requests less protection than its host needs, or when a file cannot be used.
    pub fn at(url: &str, files: &TlsFiles) -> Result<Self, AddressError> {
        let (options, upstream) = address::read(url, files)?;
        Ok(Self { options, upstream: upstream.map(Arc::new) })
    }

    /// A database of this machine by its unix socket.
    pub const fn by_socket(options: PgConnectOptions) -> Self {
        Self { options, upstream: None }
    }

    /// Host and port, for display.
    pub fn place(&self) -> String {
        self.upstream.as_ref().map_or_else(|| "a unix socket".to_owned(), |upstream| upstream.place())
    }

    /// One connection without time limits, for a command.
    ///
    /// # Errors
    /// Fails when the database does not accept the connection.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.unbounded()?).await
    }

    /// Options for connections without time limits, for a command.
    ///
    /// # Errors
    /// Fails when this machine has no socket left.
    pub fn unbounded(&self) -> Result<PgConnectOptions, sqlx::Error> {
        self.reached(self.options.clone(), None, &Availability::unwatched())
    }

    /// Options for connections with these limits, which are closed when the database is found unavailable.
    pub(super) fn bounded(
        &self,
        bounds: &Timeouts,
        availability: &Availability,
    ) -> Result<PgConnectOptions, sqlx::Error> {
        let millis = |time: Duration| time.as_millis().to_string();
        let options = self.options.clone().options([
            ("statement_timeout", millis(bounds.statement)),
            ("lock_timeout", millis(bounds.lock)),
            ("idle_in_transaction_session_timeout", millis(bounds.idle_in_transaction)),
        ]);
        self.reached(options, Some(bounds.statement + ANSWER_MARGIN), availability)
    }

    fn reached(
        &self,
        options: PgConnectOptions,
        answer: Option<Duration>,
        availability: &Availability,
    ) -> Result<PgConnectOptions, sqlx::Error> {
        let Some(upstream) = &self.upstream else { return Ok(options) };
        let socket = relay::open(Arc::clone(upstream), options.get_port(), answer, availability.clone())?;
        // The server then closes its side of an abandoned connection within seconds and releases its locks.
        let options = options.options([
            ("tcp_keepalives_idle", "5"),
            ("tcp_keepalives_interval", "2"),
            ("tcp_keepalives_count", "3"),
            ("tcp_user_timeout", "10000"),
        ]);
        Ok(options.socket(socket).ssl_mode(PgSslMode::Disable))
    }
}
