//! Time that a test advances: the engine's clock, and the clock functions of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dvp_core::context::{Clock, now};
use dvp_domain::time::Timestamp;
use dvp_store::database::clock;
use sqlx::{Connection as _, PgConnection, PgPool};

/// How far the time of a harness is ahead of real time.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime {
    ahead_ms: Arc<AtomicI64>,
}

impl VirtualTime {
    /// A clock that shows it.
    pub fn clock(&self) -> Clock {
        let ahead_ms = Arc::clone(&self.ahead_ms);
        Clock::new(move || now().plus_millis(ahead_ms.load(Ordering::SeqCst)))
    }

    /// Replaces the clock functions of a database for the connections opened from here on.
    pub(crate) async fn install(pool: &PgPool) {
        let mut conn = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
        clock::install(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    }

    /// Advances the clock and the database, which needs [`install`](Self::install), and wakes the workers, which
    /// otherwise wait for their poll interval in real time.
    pub(crate) async fn advance(&self, pool: &PgPool, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap();
        let ahead = self.ahead_ms.fetch_add(millis, Ordering::SeqCst) + millis;
        clock::advance(&mut pool.acquire().await.unwrap(), ahead).await.unwrap();
    }

    pub(crate) fn until(start: Timestamp) -> Duration {
        let millis = start.millis() - now().millis();
        Duration::from_millis(u64::try_from(millis).expect("virtual time begins after the real one"))
    }
}
