//! One follower of the feed for all sessions of a process.
//!
//! The follower reads the partner and the type of each new event once and notifies the sessions of that partner; each
//! session then reads its own events from its own cursor. A session whose partner has no new events sends the database
//! no query. An acceptance notifies drop copies only: the session that sent the order reported it when it committed the
//! order. NOTIFY says when the feed grows; a lost notification costs the time until the next look. When the follower
//! starts, or starts again, it notifies every session once, so that no event is missed between its first position and
//! theirs.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use dvp_core::figures::wide;
use dvp_store::{
    PgPool, StoreError,
    notify::Notifications,
    orders::events::{self, FeedEntry},
};
use metrics::gauge;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};
use tracing::warn;

/// The channel that the writer notifies when the feed grows.
const FEED_CHANNEL: &str = "dvp_feed";
/// The channel that announces a changed session, or a command for its owner.
const SESSION_CHANNEL: &str = "dvp_fix_session";
/// The feed is read this often even without a notification.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Positions read at once.
const PAGE: i64 = 2000;
/// After this number of positions all sessions are notified, so that the cursors of those without events advance.
pub(crate) const NOTIFY_ALL_EVERY: i64 = 10_000;

/// A partner in one environment.
type Tenant = (String, bool);

/// The events of its partner that wake a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Every event: the session is a drop copy.
    All,
    /// Every event but acceptances, which the session reports when it commits the order.
    AfterAcceptance,
}

/// The two notifications of a partner.
#[derive(Debug, Default)]
struct Senders {
    all: watch::Sender<()>,
    after_acceptance: watch::Sender<()>,
}

impl Senders {
    fn notify(&self, is_acceptance: bool) {
        self.all.send_replace(());
        if !is_acceptance {
            self.after_acceptance.send_replace(());
        }
    }

    fn have_receivers(&self) -> bool {
        self.all.receiver_count() + self.after_acceptance.receiver_count() > 0
    }
}

/// The position of the feed and the sessions that follow it. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    tenants: Mutex<HashMap<Tenant, Senders>>,
    /// Events up to here are routed; 0 before the follower has begun.
    routed: AtomicI64,
}

/// The notifications of one session.
#[derive(Debug)]
pub(crate) struct Subscription {
    grown: watch::Receiver<()>,
    feed: Feed,
}

impl Subscription {
    /// Waits until there may be new events of the tenant.
    pub(crate) async fn grown(&mut self) {
        if self.grown.changed().await.is_err() {
            // The process stops.
            std::future::pending().await
        }
    }

    /// Every session has been notified of the events up to this position that its [`Interest`] includes.
    pub(crate) fn routed(&self) -> i64 {
        self.feed.shared.routed.load(Ordering::Acquire)
    }
}

impl Feed {
    /// A session reads the feed once it has subscribed, and then whenever it is notified.
    pub(crate) fn subscribe(&self, partner_id: &str, livemode: bool, interest: Interest) -> Subscription {
        let mut tenants = self.lock();
        let senders = tenants.entry((partner_id.to_owned(), livemode)).or_default();
        let sender = match interest {
            Interest::All => &senders.all,
            Interest::AfterAcceptance => &senders.after_acceptance,
        };
        Subscription { grown: sender.subscribe(), feed: self.clone() }
    }

    fn notify(&self, events: &[FeedEntry]) {
        let tenants = self.lock();
        // `false` sorts first: of a partner's events, one that is no acceptance stands for all.
        let mut notified: Vec<(&str, bool, bool)> = events
            .iter()
            .map(|event| (event.partner_id.as_str(), event.livemode, event.is_acceptance))
            .collect();
        notified.sort_unstable();
        notified.dedup_by_key(|(partner_id, livemode, _)| (*partner_id, *livemode));
        for (partner_id, livemode, is_acceptance) in notified {
            if let Some(senders) = tenants.get(&(partner_id.to_owned(), livemode)) {
                senders.notify(is_acceptance);
            }
        }
    }

    fn notify_all(&self) {
        let mut tenants = self.lock();
        tenants.retain(|_, senders| senders.have_receivers());
        for senders in tenants.values() {
            senders.notify(false);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, Senders>> {
        // No code panics while it holds the map.
        self.shared.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the feed until it is dropped. `sessions_changed` is notified when a session may have changed.
pub(crate) async fn follow(feed: Feed, pool: PgPool, sessions_changed: Arc<Notify>) {
    let mut notifications = Notifications::new(pool.clone(), &[FEED_CHANNEL, SESSION_CHANNEL]);
    let mut follower = Follower { feed, pool, sessions_changed, position: None, notified_all_at: 0 };
    loop {
        if let Err(error) = follower.read_and_wait(&mut notifications).await {
            warn!(%error, "reading the feed failed, retrying in 1 s");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

struct Follower {
    feed: Feed,
    pool: PgPool,
    sessions_changed: Arc<Notify>,
    position: Option<i64>,
    notified_all_at: i64,
}

impl Follower {
    /// Reads until there is nothing more, then waits.
    async fn read_and_wait(&mut self, notifications: &mut Notifications) -> Result<(), StoreError> {
        if !notifications.is_listening() {
            notifications.listen().await;
            // Notifications may have been missed while the connection was down.
            self.sessions_changed.notify_one();
        }
        while self.read_page().await? {}
        self.wait(notifications).await;
        Ok(())
    }

    /// Reads one page. `true`: there may be more.
    async fn read_page(&mut self) -> Result<bool, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let Some(after) = self.position else {
            let position = events::load_position(&mut conn).await?;
            self.advance(position);
            self.notified_all_at = position;
            self.feed.notify_all();
            return Ok(true);
        };
        let page = events::list_positions(&mut conn, after, PAGE).await?;
        drop(conn);
        let Some(last) = page.last().map(|event| event.position) else { return Ok(false) };
        // Sessions are notified first: a session that sees the position must have been notified of the events before
        // it.
        self.feed.notify(&page);
        self.advance(last);
        if last - self.notified_all_at >= NOTIFY_ALL_EVERY {
            self.notified_all_at = last;
            self.feed.notify_all();
        }
        Ok(i64::try_from(page.len()) == Ok(PAGE))
    }

    fn advance(&mut self, position: i64) {
        self.position = Some(position);
        self.feed.shared.routed.store(position, Ordering::Release);
        gauge!("dvp_feed_follower_position", "follower" => "fix").set(wide(position));
    }

    /// Waits until the feed has grown, or for a while. Notifications that come together are one.
    async fn wait(&self, notifications: &mut Notifications) {
        let deadline = Instant::now() + LOOK_AGAIN;
        while let Ok(Some(received)) = timeout_at(deadline, notifications.next()).await {
            if received.channel() == FEED_CHANNEL {
                return;
            }
            self.sessions_changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future as _, poll_fn},
        pin::pin,
        task::Poll,
    };

    use super::*;

    async fn is_notified(subscription: &mut Subscription) -> bool {
        let mut grown = pin!(subscription.grown());
        poll_fn(|cx| Poll::Ready(grown.as_mut().poll(cx).is_ready())).await
    }

    fn event(position: i64, is_acceptance: bool) -> FeedEntry {
        FeedEntry { position, partner_id: "acme".to_owned(), livemode: false, is_acceptance }
    }

    #[tokio::test]
    async fn a_partner_is_notified_of_its_own_events_only() {
        let feed = Feed::default();
        let mut acme = feed.subscribe("acme", false, Interest::AfterAcceptance);
        let mut live = feed.subscribe("acme", true, Interest::AfterAcceptance);
        let mut other = feed.subscribe("other", false, Interest::All);
        feed.notify(&[event(1, false), event(2, false)]);
        assert!(is_notified(&mut acme).await);
        assert!(!is_notified(&mut acme).await, "once");
        assert!(!is_notified(&mut live).await && !is_notified(&mut other).await);
        feed.notify_all();
        assert!(
            is_notified(&mut acme).await && is_notified(&mut live).await && is_notified(&mut other).await
        );
    }

    #[tokio::test]
    async fn an_acceptance_notifies_drop_copies_only() {
        let feed = Feed::default();
        let mut session = feed.subscribe("acme", false, Interest::AfterAcceptance);
        let mut drop_copy = feed.subscribe("acme", false, Interest::All);
        feed.notify(&[event(1, true)]);
        assert!(is_notified(&mut drop_copy).await && !is_notified(&mut session).await);
        feed.notify(&[event(2, true), event(3, false), event(4, true)]);
        assert!(is_notified(&mut drop_copy).await && is_notified(&mut session).await);
    }
}
