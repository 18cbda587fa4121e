//! Delivers new events to the long-polls of their partner.
//!
//! One follower a process, started by the first waiting reader. It reads which partners have new events, and, once
//! for all of its readers, the events of each partner with waiting readers. A reader queries the database itself
//! only when the follower has not kept all events since the reader's last look.
//!
//! Kept by `api/tests/it/places.rs::an_event_is_read_once_for_all_long_polls_of_its_partner`.

mod recent;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dvp_store::database::notify::Notifications;
use dvp_store::orders::events::{self, EventFilter, StoredEvent};
use dvp_store::orders::feed;
use dvp_store::orders::intents::Tenant;
use dvp_store::workers::{Worker, supervise_until};
use dvp_store::{Fault, PgConnection, PgPool, StoreError};
use metrics::counter;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{error, warn};

use self::recent::Recent;

const CHANNEL: &str = "dvp_feed";
/// After a failure.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The feed is read this often even without a notification.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Notifications within this time lead to one look.
const BREATH: Duration = Duration::from_millis(20);
/// New events of one partner read at once. When there are more, its readers query the database.
const PAGE: i64 = 128;

#[derive(Default)]
pub(crate) struct FeedWatch {
    readers: Arc<Mutex<Readers>>,
}

#[derive(Default)]
struct Readers {
    is_followed: bool,
    /// Events up to here were given to the readers. `None`: no reader waits, or the follower has failed.
    position: Option<i64>,
    waiting: HashMap<Tenant, watch::Sender<Recent>>,
}

pub(crate) struct Subscription {
    recent: watch::Receiver<Recent>,
    /// The reader has looked at all events up to here. `None`: the follower has not said where the feed stands.
    looked_to: Option<i64>,
}

impl FeedWatch {
    /// Subscribes to a tenant's new events. The caller reads those that exist already, afterwards.
    pub(crate) fn subscribe(&self, pool: &PgPool, tenant: &Tenant) -> Subscription {
        let mut readers = self.readers.lock();
        if !readers.is_followed {
            readers.is_followed = true;
            let (pool, readers) = (pool.clone(), Arc::downgrade(&self.readers));
            tokio::spawn(async move {
                let is_over = || readers.strong_count() == 0;
                supervise_until(Worker::Caches, is_over, || follow(pool.clone(), readers.clone())).await;
            });
        }
        let Readers { position, waiting, .. } = &mut *readers;
        let begin = || watch::Sender::new(position.map_or_else(Recent::default, Recent::from));
        let recent = waiting.entry(tenant.clone()).or_insert_with(begin).subscribe();
        let looked_to = recent.borrow().to();
        Subscription { recent, looked_to }
    }
}

impl Subscription {
    /// Waits until the tenant may have new events.
    pub(crate) async fn changed(&mut self) {
        if self.recent.changed().await.is_err() {
            // The service ends; the reader's own deadline ends the wait.
            std::future::pending().await
        }
    }

    /// Whether [`Subscription::changed`] is known to tell of every event since the reader's last look.
    pub(crate) const fn is_followed(&self) -> bool {
        self.looked_to.is_some()
    }

    /// The events since the reader's last look that the filter selects. `None`: the reader must query the database.
    pub(crate) fn take(&mut self, filter: &EventFilter) -> Option<Vec<Arc<StoredEvent>>> {
        let recent = self.recent.borrow_and_update();
        let found = self.looked_to.and_then(|looked_to| recent.select(looked_to, filter));
        self.looked_to = recent.to();
        found
    }
}

/// Ends with the last handle of the API.
async fn follow(pool: PgPool, readers: Weak<Mutex<Readers>>) {
    let mut notifications = Notifications::new(pool.clone(), &[CHANNEL]);
    let follower = Follower { pool, readers };
    loop {
        // Events that were not passed to all readers before a failure are read by the readers after it.
        let Some(readers) = follower.readers.upgrade() else { return };
        readers.lock().position = None;
        drop(readers);
        let Err(error) = follower.look_when_notified(&mut notifications).await else { return };
        warn!(%error, "feed poll for long-polls failed, retrying in 1 s");
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

struct Follower {
    pool: PgPool,
    readers: Weak<Mutex<Readers>>,
}

impl Follower {
    /// Returns when the API has ended.
    async fn look_when_notified(&self, notifications: &mut Notifications) -> Result<(), StoreError> {
        loop {
            notifications.listen().await;
            if !self.look().await? {
                return Ok(());
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, notifications.next()).await;
            tokio::time::sleep(BREATH).await;
            // Notifications that arrived meanwhile are served by the same look.
            while let Ok(Some(_)) = tokio::time::timeout(Duration::ZERO, notifications.next()).await {}
        }
    }

    /// Gives new events to the readers of their tenants. `false`: the API has ended.
    async fn look(&self) -> Result<bool, StoreError> {
        let Some(readers) = self.readers.upgrade() else { return Ok(false) };
        let position = {
            let mut readers = readers.lock();
            readers.waiting.retain(|_, reader| reader.receiver_count() > 0);
            if readers.waiting.is_empty() {
                readers.position = None;
                return Ok(true);
            }
            readers.position
        };
        let mut conn = self.pool.acquire().await?;
        let Some(position) = position else {
            let position = feed::load_last_position(&mut conn).await?;
            let mut readers = readers.lock();
            readers.position = Some(position);
            // Events may have been written between a reader's own look and this one: every reader looks again.
            let begin = |reader: &watch::Sender<Recent>| drop(reader.send_replace(Recent::from(position)));
            readers.waiting.values().for_each(begin);
            return Ok(true);
        };
        let (tenants, newest) = feed::list_tenants_after(&mut conn, position).await?;
        let mut due = Vec::new();
        {
            let mut readers = readers.lock();
            // A reader that subscribes from here on begins after these events.
            readers.position = Some(newest);
            for tenant in tenants {
                let known = readers.waiting.get(&tenant).map(|reader| reader.borrow().to());
                due.extend(known.map(|to| (tenant, to.unwrap_or(position))));
            }
        }
        for (tenant, after) in due {
            let page = read(&mut conn, &tenant, after).await?;
            if let Some(reader) = readers.lock().waiting.get(&tenant) {
                reader.send_if_modified(|recent| give(recent, page, newest));
            }
        }
        Ok(true)
    }
}

/// The tenant's events after a position. `None`: too many to keep, or one of them cannot be read; the tenant's own
/// queries show which.
async fn read(
    conn: &mut PgConnection,
    tenant: &Tenant,
    after: i64,
) -> Result<Option<Vec<StoredEvent>>, StoreError> {
    counter!("dvp_rest_feed_reads_total", "reader" => "follower").increment(1);
    match events::list_after(conn, &tenant.partner_id, tenant.livemode, after, PAGE).await {
        Ok(page) if i64::try_from(page.len()) == Ok(PAGE) => Ok(None),
        Ok(page) => Ok(Some(page)),
        Err(error) if error.fault() == Fault::Data => {
            let (partner, livemode) = (&tenant.partner_id, tenant.livemode);
            error!(%error, partner, livemode, "event could not be decoded for long-polls; the partner's requests read the database instead");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether the tenant's readers have to look.
fn give(recent: &mut Recent, page: Option<Vec<StoredEvent>>, newest: i64) -> bool {
    match page {
        Some(page) => recent.extend(page, newest),
        None => {
            *recent = Recent::from(newest);
            true
        }
    }
}
