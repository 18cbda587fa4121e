//! Notifications of the database that end a wait early.
//!
//! A notification contains no work: the waiting task reads the tables when it is woken and at its own interval, so a
//! lost notification only costs time.

use sqlx::PgPool;
use sqlx::postgres::PgListener;
pub use sqlx::postgres::PgNotification as Notification;
use tracing::{info, warn};

/// A connection that listens on channels, reconnected when it was lost.
pub struct Notifications {
    pool: PgPool,
    channels: Vec<String>,
    listener: Option<PgListener>,
    /// Whether a failure to listen was logged and is not over.
    reported: bool,
}

impl Notifications {
    /// Does not connect yet.
    pub fn new(pool: PgPool, channels: &[&str]) -> Self {
        let channels = channels.iter().map(|channel| (*channel).to_owned()).collect();
        Self { pool, channels, listener: None, reported: false }
    }

    /// Connects and listens, unless it already does. A failure is logged once; the caller tries again later.
    pub async fn listen(&mut self) {
        if self.listener.is_some() {
            return;
        }
        match self.connect().await {
            Ok(listener) => {
                self.listener = Some(listener);
                if std::mem::take(&mut self.reported) {
                    info!(channels = ?self.channels, "LISTEN recovered");
                }
            }
            Err(error) if !self.reported => {
                self.reported = true;
                warn!(%error, channels = ?self.channels, "LISTEN failed; polling until it recovers");
            }
            Err(_) => {}
        }
    }

    /// Whether it listens, as far as is known.
    pub const fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        // `next` reports a lost connection, so that the caller can read the missed changes.
        listener.eager_reconnect(false);
        listener.listen_all(self.channels.iter().map(String::as_str)).await?;
        Ok(listener)
    }

    /// Closes the connection, which may have stopped answering; the next [`listen`](Self::listen) opens another.
    pub fn disconnect(&mut self) {
        self.listener = None;
    }

    /// The next notification, or `None` when the connection was lost. Never returns while it does not listen. Safe to
    /// drop before it returns.
    pub async fn next(&mut self) -> Option<Notification> {
        let Some(listener) = &mut self.listener else { return std::future::pending().await };
        let lost = match listener.try_recv().await {
            Ok(Some(notification)) => return Some(notification),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let error = lost.map_or_else(|| "the connection was lost".to_owned(), |error| error.to_string());
        warn!(error, channels = ?self.channels, "LISTEN failed; polling until it recovers");
        (self.listener, self.reported) = (None, true);
        None
    }
}
