//! What has changed, for open pages, and throughput: the feed's events of each second, counted once as they come.
//! Positions of the feed have no gaps, so each event is read once, by its position.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dvp_store::database::changes::{self, Subject};
use dvp_store::database::notify::Notifications;
use dvp_store::database::pools::Pools;
use dvp_store::operators::overview::{self, FeedCounts};
use dvp_store::orders::feed;
use dvp_store::{PgPool, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The shortest time between two announcements to pages.
const GAP: Duration = Duration::from_millis(100);
/// The seconds that are kept.
const KEPT: usize = 600;
/// The most events that are read at once; earlier ones are not counted.
const READ_MAX: i64 = 50_000;

/// How often each subject was announced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Versions([u64; Subject::ALL.len()]);

impl Versions {
    fn count(&mut self, subjects: &[Subject]) {
        for (version, subject) in self.0.iter_mut().zip(Subject::ALL) {
            *version = version.wrapping_add(u64::from(subjects.contains(&subject)));
        }
    }

    /// The subjects that were announced since.
    pub(crate) fn since(&self, earlier: &Self) -> Vec<Subject> {
        let pairs = self.0.iter().zip(earlier.0).zip(Subject::ALL);
        pairs.filter(|((now, before), _)| **now != *before).map(|(_, subject)| subject).collect()
    }
}

/// The last minutes, a count for each second, the newest last. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    seconds: Arc<Mutex<VecDeque<FeedCounts>>>,
    versions: watch::Sender<Versions>,
    /// Cancelled when the counting ends.
    ended: CancellationToken,
}

/// The feed as it was last read.
#[derive(Default)]
struct Counted {
    position: Option<i64>,
    second: FeedCounts,
    is_failing: bool,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { seconds: Arc::default(), versions: watch::Sender::default(), ended: CancellationToken::new() }
    }

    pub(crate) fn seconds(&self) -> Vec<FeedCounts> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Announced changes, and the end of them.
    pub(crate) fn changes(&self) -> (watch::Receiver<Versions>, CancellationToken) {
        (self.versions.subscribe(), self.ended.clone())
    }

    /// What was announced up to now.
    pub(crate) fn versions(&self) -> Versions {
        *self.versions.borrow()
    }

    /// Announces and counts until `shutdown`.
    pub(crate) async fn run(self, pools: Pools, shutdown: CancellationToken) {
        let _ended = self.ended.clone().drop_guard();
        let channels = [changes::CHANNEL, changes::FEED_CHANNEL];
        let mut notifications = Notifications::new(pools.background.clone(), &channels);
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut changed, mut counted) = (Vec::new(), Counted::default());
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                notification = notifications.next() => {
                    let about = notification.and_then(|one| Subject::of(one.channel(), one.payload()));
                    changed.extend(about.filter(|subject| !changed.contains(subject)));
                    continue;
                }
                () = tokio::time::sleep_until(next), if !changed.is_empty() => {}
                _ = seconds.tick() => {
                    if !notifications.is_listening() {
                        // Anything may have changed while nothing was heard.
                        changed = Subject::ALL.to_vec();
                        notifications.listen().await;
                    }
                    self.keep(std::mem::take(&mut counted.second));
                }
            }
            next = Instant::now() + GAP;
            self.look(&pools.reads, &mut changed, &mut counted).await;
        }
    }

    fn keep(&self, second: FeedCounts) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.push_back(second);
        while seconds.len() > KEPT {
            seconds.pop_front();
        }
    }

    /// Counts new events and announces what has changed.
    async fn look(&self, pool: &PgPool, changed: &mut Vec<Subject>, counted: &mut Counted) {
        match self.count(pool, &mut counted.position).await {
            Ok(counts) => {
                counted.is_failing = false;
                counted.second = counted.second.plus(&counts);
                if counts.events > 0 && !changed.contains(&Subject::Feed) {
                    changed.push(Subject::Feed);
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut counted.is_failing, true) {
                    warn!(%error, "the console cannot count events, retrying every second");
                }
            }
        }
        let subjects = std::mem::take(changed);
        if !subjects.is_empty() {
            self.versions.send_modify(|versions| versions.count(&subjects));
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
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_announced_since_is_told() {
        let before = Versions::default();
        let mut now = before;
        now.count(&[Subject::Fix, Subject::Feed]);
        assert_eq!(now.since(&before), [Subject::Feed, Subject::Fix]);
        assert_eq!(now.since(&now), []);
    }
}
