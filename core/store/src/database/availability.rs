//! The availability of the database: checked once a second, and published to all tasks that must not wait for it.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

/// How often the database is asked.
const EVERY: Duration = Duration::from_secs(1);
/// The time limit of one check. The database is unavailable after two consecutive failures, the second on a new
/// connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// The server's connection limit is reached: it is available, though not to us.
const TOO_MANY_CONNECTIONS: &str = "53300";

/// Whether the database is available, as far as is known. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Availability(watch::Receiver<bool>);

impl Availability {
    /// Without a watch the database counts as available.
    pub fn unwatched() -> Self {
        Self(watch::channel(true).1)
    }

    /// For tests: the caller sets the value.
    pub fn told() -> (watch::Sender<bool>, Self) {
        let (tell, told) = watch::channel(true);
        (tell, Self(told))
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

    /// Returns when the database becomes unavailable after this call.
    pub(super) async fn lost_anew(&mut self) {
        if !self.is_available() {
            self.available().await;
        }
        self.lost().await;
    }

    async fn until(&mut self, wanted: bool) {
        if self.0.wait_for(|available| *available == wanted).await.is_err() {
            // Without a watch the value never changes.
            std::future::pending::<()>().await;
        }
    }
}

/// Checks until the value is no longer used.
pub(crate) async fn watch_over(options: PgConnectOptions, place: String, tell: watch::Sender<bool>) {
    let mut kept = None;
    let mut beat = interval(EVERY);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            () = tell.closed() => return,
        }
        let failed = ask(&options, &mut kept).await;
        let available = failed.is_none();
        let before = tell.send_replace(available);
        match failed {
            Some(reason) if before => warn!(
                database = place,
                reason,
                "database unavailable: requests are refused and connections closed; checking every second"
            ),
            None if !before => info!(database = place, "database available again"),
            Some(_) | None => {}
        }
    }
}

/// Why it is unavailable, or `None`: tries the kept connection, then a new one.
async fn ask(options: &PgConnectOptions, kept: &mut Option<PgConnection>) -> Option<String> {
    if let Some(mut conn) = kept.take()
        && let Ok(Ok(true)) = timeout(PATIENCE, takes_writes(&mut conn)).await
    {
        *kept = Some(conn);
        return None;
    }
    let fresh = async {
        let mut conn = options.connect().await?;
        let writable = takes_writes(&mut conn).await?;
        Ok::<_, sqlx::Error>((conn, writable))
    };
    match timeout(PATIENCE, fresh).await {
        Ok(Ok((conn, true))) => {
            *kept = Some(conn);
            None
        }
        Ok(Ok((_, false))) => Some("it takes no writes, as a standby does not".to_owned()),
        Ok(Err(error)) => {
            let code = error.as_database_error().and_then(|error| error.code());
            if code.as_deref() == Some(TOO_MANY_CONNECTIONS) { None } else { Some(error.to_string()) }
        }
        Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

async fn takes_writes(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select not current_setting('transaction_read_only')::bool").fetch_one(conn).await
}
