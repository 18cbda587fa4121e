//! What has changed, for open pages of the console. A notification names a subject and contains nothing else; triggers
//! send it for tables that change seldom, [`announce`] for rows that are written in batches.

use std::time::Duration;

use dvp_domain::names::names;
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use tracing::debug;

use crate::StoreError;

/// Notifications whose payload is a [`Subject`].
pub const CHANNEL: &str = "dvp_console";
/// Notifications of new events.
pub const FEED_CHANNEL: &str = "dvp_feed";

names! {
    /// A part of the database that pages show.
    pub enum Subject {
        Feed = "feed",
        Approvals = "approvals",
        Breaks = "breaks",
        Chains = "chains",
        Controls = "controls",
        Fix = "fix",
        Webhooks = "webhooks",
        Partners = "partners",
        Operators = "operators",
        Audit = "audit",
    }
}

impl Subject {
    pub fn of(channel: &str, payload: &str) -> Option<Self> {
        if channel == FEED_CHANNEL {
            return Some(Self::Feed);
        }
        Self::ALL.into_iter().find(|subject| subject.as_str() == payload)
    }
}

/// Notifies the consoles of rows that were committed before.
pub async fn announce(conn: &mut PgConnection, subject: Subject) -> Result<(), StoreError> {
    Ok(crate::database::session::notify(conn, CHANNEL, subject.as_str()).await?)
}

/// Announces a subject that changes often: after a change, and at most four times a second.
#[derive(Debug)]
pub struct Announcer {
    pool: PgPool,
    subject: Subject,
    is_due: bool,
    earliest: Instant,
}

impl Announcer {
    const GAP: Duration = Duration::from_millis(250);

    pub fn new(pool: PgPool, subject: Subject) -> Self {
        Self { pool, subject, is_due: false, earliest: Instant::now() }
    }

    /// Rows have been committed.
    pub const fn changed(&mut self) {
        self.is_due = true;
    }

    /// Returns when an announcement is due; never while there is none. Safe to drop before it returns.
    pub async fn due(&self) {
        if !self.is_due {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until(self.earliest).await;
    }

    /// Announces. A failure only delays open pages, which are read again after a while.
    pub async fn tell(&mut self) {
        (self.is_due, self.earliest) = (false, Instant::now() + Self::GAP);
        let done = async { announce(&mut *self.pool.acquire().await?, self.subject).await };
        if let Err(error) = done.await {
            debug!(%error, subject = self.subject.as_str(), "consoles were not notified of a change");
        }
    }
}
