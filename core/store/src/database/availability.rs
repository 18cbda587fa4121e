//! The availability of the database: checked once a second, and published to all tasks that must not wait for it.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _, PgConnection, Row as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::barrier::{Answer, BARRIER};
use super::primary::Primary;

/// The interval of the check.
const EVERY: Duration = Duration::from_secs(1);
/// The time limit of one check. The database is unavailable after two consecutive failures, the second on a new
/// connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// The server's connection limit is reached: it is available, but accepts no connection from this process.
const TOO_MANY_CONNECTIONS: &str = "53300";

/// Whether the database is available, by the last check. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Availability(watch::Receiver<bool>);

impl Availability {
    /// Without a watch the database counts as available.
    pub fn unwatched() -> Self {
        Self(watch::channel(true).1)
    }

    /// For tests: the caller sets the value.
    pub fn reported() -> (watch::Sender<bool>, Self) {
        let (tell, reported) = watch::channel(true);
        (tell, Self(reported))
    }

    pub fn is_available(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the database is unavailable, immediately when it already is.
    pub async fn lost(&mut self) {
        self.until(false).await;
    }

    /// Returns when the database is available, immediately when it already is.
    pub async fn available(&mut self) {
        self.until(true).await;
    }

    async fn until(&mut self, wanted: bool) {
        if self.0.wait_for(|available| *available == wanted).await.is_err() {
            // Without a watch the value never changes.
            std::future::pending::<()>().await;
        }
    }
}

/// The check of all servers of a database.
pub(crate) struct Watch {
    /// A connection to each server, in the order of the configuration.
    pub(super) probes: Vec<PgConnectOptions>,
    /// The servers, for display.
    pub(super) places: Vec<String>,
    pub(super) primary: Primary,
    /// Whether the check is a barrier.
    pub(super) has_barrier: bool,
}

/// The connection that the last check used.
type Kept = Option<(usize, PgConnection)>;

impl Watch {
    /// Checks until the value is no longer used.
    pub(crate) async fn run(self, tell: watch::Sender<bool>) {
        let (mut kept, database) = (None, self.places.join(", "));
        let mut beat = interval(EVERY);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beat.tick() => {}
                () = tell.closed() => return,
            }
            let checked = self.check(&mut kept).await;
            let was_available = *tell.borrow();
            match checked {
                Ok(server) => {
                    if self.primary.follow(server) {
                        info!(server = self.place(server), "database primary found, connections go to it");
                    }
                    if !was_available {
                        info!(database, "database available again");
                    }
                    tell.send_replace(true);
                }
                Err(reason) if was_available => {
                    warn!(
                        database,
                        reason,
                        "database unavailable: requests are refused and connections closed; checking every second"
                    );
                    self.primary.lose();
                    tell.send_replace(false);
                }
                Err(_) => {}
            }
        }
    }

    fn place(&self, server: usize) -> &str {
        self.places.get(server).map_or("", String::as_str)
    }

    /// The available primary: tries the kept connection, then a new one to each server. An error has the reason of
    /// each.
    async fn check(&self, kept: &mut Kept) -> Result<usize, String> {
        if let Some((server, mut conn)) = kept.take()
            && let Ok(Ok(())) = timeout(PATIENCE, prove(&mut conn, &self.primary, self.has_barrier)).await
        {
            *kept = Some((server, conn));
            return Ok(server);
        }
        let mut tried = JoinSet::new();
        for (server, options) in self.probes.iter().cloned().enumerate() {
            let (primary, has_barrier) = (self.primary.clone(), self.has_barrier);
            tried.spawn(async move { (server, connect(&options, &primary, has_barrier).await) });
        }
        let mut reasons = BTreeMap::new();
        while let Some(Ok((server, found))) = tried.join_next().await {
            match found {
                Ok(conn) => {
                    *kept = conn.map(|conn| (server, conn));
                    return Ok(server);
                }
                Err(reason) => reasons.insert(server, reason),
            };
        }
        Err(reasons.into_values().collect::<Vec<_>>().join("; "))
    }
}

/// Connects and proves that the server is the primary. `None`: it is, and accepts no connection.
async fn connect(
    options: &PgConnectOptions,
    primary: &Primary,
    has_barrier: bool,
) -> Result<Option<PgConnection>, String> {
    let fresh = async {
        let mut conn = options.connect().await?;
        if !has_barrier {
            prove(&mut conn, primary, false).await?;
        }
        // The relay has admitted the server.
        Ok::<_, sqlx::Error>(conn)
    };
    match timeout(PATIENCE, fresh).await {
        Ok(Ok(conn)) => Ok(Some(conn)),
        Ok(Err(error)) => {
            let code = error.as_database_error().and_then(|error| error.code());
            // A standby has a limit, too.
            if code.as_deref() == Some(TOO_MANY_CONNECTIONS) && !has_barrier {
                Ok(None)
            } else {
                Err(reason_of(&error))
            }
        }
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

fn reason_of(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Whether the server of a connection takes writes, by a barrier where there is one.
async fn prove(conn: &mut PgConnection, primary: &Primary, has_barrier: bool) -> Result<(), sqlx::Error> {
    let refused = |reason: String| sqlx::Error::Io(std::io::Error::other(reason));
    if !has_barrier {
        let takes_writes = "select not current_setting('transaction_read_only')::bool";
        let takes_writes: bool = sqlx::query_scalar(takes_writes).fetch_one(conn).await?;
        let reason = || refused("it takes no writes, as a standby does not".to_owned());
        return if takes_writes { Ok(()) } else { Err(reason()) };
    }
    let floor = primary.floor();
    let rows = conn.fetch_all(sqlx::raw_sql(BARRIER)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let column = |at| Ok(row.try_get_raw(at)?.as_str().ok().map(str::to_owned));
    let columns = (0..row.len()).map(column).collect::<Result<Vec<_>, sqlx::Error>>()?;
    let answer = Answer::of(&columns).ok_or_else(|| refused("no answer to the barrier".to_owned()))?;
    primary.admit(answer, floor).map_err(refused)
}
