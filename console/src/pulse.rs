//! Throughput: the feed's events of each second, counted once as they come. Positions of the feed have no gaps, so each
//! event is read once, by its position.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dvp_store::orders::feed;
use dvp_store::overview::{self, FeedCounts};
use dvp_store::{PgPool, StoreError};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How often a second the feed's position is read.
const LOOKS: u32 = 4;
/// The seconds that are kept.
const KEPT: usize = 600;
/// The most events that are read at once; earlier ones are not counted.
const READ_MAX: i64 = 50_000;

/// The last minutes, a count for each second, the newest last. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    seconds: Arc<Mutex<VecDeque<FeedCounts>>>,
    /// The feed's position, as last read.
    position: watch::Sender<i64>,
    /// Cancelled when the counting ends.
    ended: CancellationToken,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { seconds: Arc::default(), position: watch::Sender::new(0), ended: CancellationToken::new() }
    }

    pub(crate) fn seconds(&self) -> Vec<FeedCounts> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Changes of the feed's position, and the end of the counting.
    pub(crate) fn changes(&self) -> (watch::Receiver<i64>, CancellationToken) {
        (self.position.subscribe(), self.ended.clone())
    }

    /// Counts until `shutdown`.
    pub(crate) async fn run(self, pool: PgPool, shutdown: CancellationToken) {
        let _ended = self.ended.clone().drop_guard();
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / LOOKS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut is_failing) = (None, false);
        let mut second = FeedCounts::default();
        for look in (1..=LOOKS).cycle() {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            match self.count(&pool, &mut last).await {
                Ok(counts) => {
                    is_failing = false;
                    second = second.plus(&counts);
                }
                Err(error) if !is_failing => {
                    is_failing = true;
                    warn!(%error, "the console cannot count events, retrying every second");
                }
                Err(_) => {}
            }
            if look == LOOKS {
                self.keep(std::mem::take(&mut second));
            }
        }
    }

    fn keep(&self, second: FeedCounts) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.push_back(second);
        while seconds.len() > KEPT {
            seconds.pop_front();
        }
    }

    /// The events since the last look.
    async fn count(&self, pool: &PgPool, last: &mut Option<i64>) -> Result<FeedCounts, StoreError> {
        let mut conn = pool.acquire().await?;
        let until = feed::load_last_position(&mut conn).await?;
        let after = last.unwrap_or(until).max(until.saturating_sub(READ_MAX));
        let counts = if after == until {
            FeedCounts::default()
        } else {
            overview::count_events(&mut conn, after, until).await?
        };
        *last = Some(until);
        self.position.send_if_modified(|position| std::mem::replace(position, until) != until);
        Ok(counts)
    }
}
