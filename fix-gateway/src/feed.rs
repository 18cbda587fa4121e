//! One follower of the feed for all sessions of a process.
//!
//! The follower reads new events once, each with the order of the session that placed it, and hands them to that session.
//! A session reads its events from the database when it begins, and again after the follower began anew or it had too
//! many events waiting; otherwise it sends the database no query. An acceptance is handed to nobody: the session that
//! sent the order reported it when it committed the order. Drop copies are notified of every new event of their partner
//! and read it from their own cursors. NOTIFY says when the feed grows; a lost notification costs the time until the next
//! look.
//!
//! Reports follow the feed by a durable cursor of each session, whether its peer is connected or not: the cursor
//! moves in the commit of the reports.
//!
//! Kept by `fix-gateway/tests/it/sessions.rs::reports_for_a_disconnected_peer_come_by_resend` and
//! `fix-gateway/tests/it/operators.rs::a_session_that_was_disabled_reports_events_that_have_left_the_feed`.

mod inbox;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use dvp_core::workflow::figures::wide;
use dvp_store::{
    PgPool, StoreError,
    database::notify::Notifications,
    fix::{self as store, RoutedEvent},
    orders::feed,
    workers::{self, Attended, Items, Step, Worker, in_database},
};
use metrics::gauge;
use parking_lot::Mutex;
use sqlx::{Postgres, pool::PoolConnection};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};
use tracing::error;

use self::inbox::Inbox;
pub(crate) use self::inbox::Taken;

/// The channel that the writer notifies when the feed grows.
const FEED_CHANNEL: &str = "dvp_feed";
/// The channel that announces a changed session, or a command for its owner.
const SESSION_CHANNEL: &str = "dvp_fix_session";
/// The feed is read this often even without a notification.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The pause after a failure, which is set aside.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest time to read what is new.
const READ_MAX: Duration = Duration::from_secs(30);
const FEED: &str = "feed";
/// Positions read at once.
const PAGE: i64 = 2000;
/// After this number of positions all sessions are notified, so that the cursors of those without events advance.
pub(crate) const NOTIFY_ALL_EVERY: i64 = 10_000;

/// A partner in one environment.
type Tenant = (String, bool);

/// The position of the feed and the sessions that follow it. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Drop copies, by partner.
    tenants: Mutex<HashMap<Tenant, watch::Sender<()>>>,
    /// Sessions that send orders, by id.
    inboxes: Mutex<HashMap<String, Arc<Inbox>>>,
    /// Events up to here are routed; 0 before the follower has begun.
    routed: AtomicI64,
}

/// What a session follows.
#[derive(Debug)]
pub(crate) struct Subscription {
    grown: watch::Receiver<()>,
    inbox: Option<(String, Arc<Inbox>)>,
    feed: Feed,
}

impl Subscription {
    /// Waits until there may be new events.
    pub(crate) async fn grown(&mut self) {
        if self.grown.changed().await.is_err() {
            // The process stops.
            std::future::pending().await
        }
    }

    /// The events up to this position have been handed over, and drop copies notified of them.
    pub(crate) fn routed(&self) -> i64 {
        self.feed.shared.routed.load(Ordering::Acquire)
    }

    /// At most `limit` of the events that were handed over and are after a position.
    pub(crate) fn take(&self, after: i64, limit: usize) -> Taken {
        self.inbox.as_ref().map_or(Taken::Unknown, |(_, inbox)| inbox.take(after, limit))
    }

    /// What was handed over is to be read from the database.
    pub(crate) fn lose(&self) {
        if let Some((_, inbox)) = &self.inbox {
            inbox.lose();
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some((session_id, inbox)) = &self.inbox {
            let mut inboxes = self.feed.shared.inboxes.lock();
            // Its next owner in this process may have subscribed already.
            if inboxes.get(session_id).is_some_and(|present| Arc::ptr_eq(present, inbox)) {
                inboxes.remove(session_id);
            }
        }
    }
}

impl Feed {
    /// For a session that reports its own orders.
    pub(crate) fn subscribe(&self, session_id: &str) -> Subscription {
        let inbox = Arc::<Inbox>::default();
        self.shared.inboxes.lock().insert(session_id.to_owned(), Arc::clone(&inbox));
        let grown = inbox.grown();
        Subscription { grown, inbox: Some((session_id.to_owned(), inbox)), feed: self.clone() }
    }

    /// For a drop copy of a partner: it reads the feed once it has subscribed, and then whenever it is notified.
    pub(crate) fn subscribe_to_partner(&self, partner_id: &str, livemode: bool) -> Subscription {
        let mut tenants = self.shared.tenants.lock();
        let grown = tenants.entry((partner_id.to_owned(), livemode)).or_default().subscribe();
        Subscription { grown, inbox: None, feed: self.clone() }
    }

    fn hand_over(&self, events: Vec<RoutedEvent>) {
        let tenants = self.shared.tenants.lock();
        let mut notified: Vec<(&str, bool)> =
            events.iter().map(|event| (event.partner_id.as_str(), event.livemode)).collect();
        notified.sort_unstable();
        notified.dedup();
        for (partner_id, livemode) in notified {
            if let Some(grown) = tenants.get(&(partner_id.to_owned(), livemode)) {
                grown.send_replace(());
            }
        }
        drop(tenants);
        let inboxes = self.shared.inboxes.lock();
        for (session_id, error) in events.iter().filter_map(|event| event.unreadable.as_ref()) {
            error!(session_id, error, "an event cannot be read, its session reads it again by itself");
            if let Some(inbox) = inboxes.get(session_id) {
                inbox.lose();
            }
        }
        for own in events.into_iter().filter_map(|event| event.own) {
            if let Some(inbox) = inboxes.get(&own.session_id) {
                inbox.put(own.event, own.order);
            }
        }
    }

    fn notify_partners(&self) {
        let mut tenants = self.shared.tenants.lock();
        tenants.retain(|_, grown| grown.receiver_count() > 0);
        for grown in tenants.values() {
            grown.send_replace(());
        }
    }

    /// Wakes every session, so that the cursors of those without events advance, too.
    fn notify_all(&self) {
        self.notify_partners();
        self.shared.inboxes.lock().values().for_each(|inbox| inbox.notify());
    }

    /// Some events may not be handed over.
    fn lose_all(&self) {
        self.notify_partners();
        self.shared.inboxes.lock().values().for_each(|inbox| inbox.lose());
    }

    // No code panics while it holds a map.
}

/// Follows the feed until it is dropped. `sessions_changed` is notified when a session may have changed.
pub(crate) async fn follow(feed: Feed, pool: PgPool, sessions_changed: Arc<Notify>) {
    let mut notifications = Notifications::new(pool.clone(), &[FEED_CHANNEL, SESSION_CHANNEL]);
    let mut follower =
        Follower { feed, pool, conn: None, sessions_changed, position: None, notified_all_at: 0 };
    let items = Items::new(follower.pool.clone(), Worker::FixFeed, READ_MAX);
    loop {
        let reading = async {
            workers::at(Step::FixFeedRead, in_database(&follower.pool, FEED)).await?;
            follower.read(&mut notifications).await
        };
        if matches!(items.attend(FEED, FEED, reading).await, Attended::Done(())) {
            follower.wait(&mut notifications).await;
        } else {
            // The connection may be in the middle of a statement.
            follower.conn = None;
            tokio::time::sleep(AGAIN).await;
        }
    }
}

struct Follower {
    feed: Feed,
    pool: PgPool,
    conn: Option<PoolConnection<Postgres>>,
    sessions_changed: Arc<Notify>,
    position: Option<i64>,
    notified_all_at: i64,
}

impl Follower {
    /// Reads until there is nothing more.
    async fn read(&mut self, notifications: &mut Notifications) -> Result<(), StoreError> {
        if !notifications.is_listening() {
            notifications.listen().await;
            // Notifications may have been missed while the connection was down.
            self.sessions_changed.notify_one();
        }
        while self.read_page().await? {}
        Ok(())
    }

    /// Reads one page. `true`: there may be more.
    async fn read_page(&mut self) -> Result<bool, StoreError> {
        // One that stays: each connection would plan the statement anew. It is given back when a statement fails.
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.pool.acquire().await?,
        };
        let Some(after) = self.position else {
            let position = feed::load_last_position(&mut conn).await?;
            self.conn = Some(conn);
            // First: a session that sees the position must know that it has to read what is before it.
            self.feed.lose_all();
            self.advance(position);
            self.notified_all_at = position;
            return Ok(true);
        };
        let page = store::list_routed(&mut conn, after, PAGE).await?;
        self.conn = Some(conn);
        let size = page.len();
        let Some(last) = page.last().map(|event| event.position) else { return Ok(false) };
        // First: a session that sees the position must have the events before it.
        self.feed.hand_over(page);
        self.advance(last);
        if last - self.notified_all_at >= NOTIFY_ALL_EVERY {
            self.notified_all_at = last;
            self.feed.notify_all();
        }
        Ok(i64::try_from(size) == Ok(PAGE))
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

    use super::inbox::tests::{order, stored};
    use super::*;

    async fn is_notified(subscription: &mut Subscription) -> bool {
        let mut grown = pin!(subscription.grown());
        poll_fn(|cx| Poll::Ready(grown.as_mut().poll(cx).is_ready())).await
    }

    fn event(position: i64, of: Option<&str>) -> RoutedEvent {
        let own = |session_id: &str| store::OwnEvent {
            session_id: session_id.to_owned(),
            event: stored(position),
            order: order(),
        };
        let own = of.map(own);
        RoutedEvent { position, partner_id: "acme".to_owned(), livemode: false, own, unreadable: None }
    }

    fn positions(taken: Taken) -> Vec<i64> {
        match taken {
            Taken::Events { events, .. } => events.iter().map(|(event, _)| event.position).collect(),
            Taken::Unknown => panic!("unknown"),
        }
    }

    #[tokio::test]
    async fn a_drop_copy_is_notified_of_its_partners_events_only() {
        let feed = Feed::default();
        let mut acme = feed.subscribe_to_partner("acme", false);
        let mut live = feed.subscribe_to_partner("acme", true);
        let mut other = feed.subscribe_to_partner("other", false);
        feed.hand_over(vec![event(1, None), event(2, Some("a session of no one here"))]);
        assert!(is_notified(&mut acme).await);
        assert!(!is_notified(&mut acme).await, "once");
        assert!(!is_notified(&mut live).await && !is_notified(&mut other).await);
        feed.notify_all();
        assert!(
            is_notified(&mut acme).await && is_notified(&mut live).await && is_notified(&mut other).await
        );
    }

    #[tokio::test]
    async fn an_event_is_handed_to_the_session_that_placed_its_order() {
        let feed = Feed::default();
        let (mut one, mut two) = (feed.subscribe("one"), feed.subscribe("two"));
        assert!(matches!(one.take(0, 9), Taken::Unknown), "what was before is read");
        assert!(matches!(two.take(0, 9), Taken::Unknown));
        feed.hand_over(vec![event(1, Some("one")), event(2, None), event(3, Some("one"))]);
        assert!(is_notified(&mut one).await && !is_notified(&mut two).await);
        assert_eq!(positions(one.take(0, 9)), [1, 3]);
        assert!(positions(two.take(0, 9)).is_empty());
        feed.lose_all();
        assert!(is_notified(&mut one).await && is_notified(&mut two).await);
        assert!(matches!(one.take(3, 9), Taken::Unknown) && matches!(two.take(3, 9), Taken::Unknown));
    }

    #[tokio::test]
    async fn a_session_that_ends_leaves_its_successor_alone() {
        let feed = Feed::default();
        let first = feed.subscribe("one");
        let second = feed.subscribe("one");
        drop(first);
        assert!(matches!(second.take(0, 9), Taken::Unknown));
        feed.hand_over(vec![event(1, Some("one"))]);
        assert_eq!(positions(second.take(0, 9)), [1]);
        drop(second);
        assert!(feed.shared.inboxes.lock().is_empty());
    }
}
