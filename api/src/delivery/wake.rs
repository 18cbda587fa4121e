//! Notifications from the database. They only shorten a wait: the worker reads the tables in any case.

use std::time::Duration;

use dvp_store::PgPool;
use dvp_store::database::notify::{Notification, Notifications};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const FEED: &str = "dvp_feed";
const DELIVERIES: &str = "dvp_webhook";
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Wake {
    pub(super) dispatcher: Notify,
    pub(super) workers: Notify,
}

pub(super) async fn listen(pool: &PgPool, wake: &Wake, shutdown: &CancellationToken) {
    let mut notifications = Notifications::new(pool.clone(), &[FEED, DELIVERIES]);
    loop {
        tokio::select! {
            () = hear(&mut notifications, wake) => {}
            () = shutdown.cancelled() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(LISTEN_AGAIN) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// Runs until the connection is lost, or cannot be made.
async fn hear(notifications: &mut Notifications, wake: &Wake) {
    notifications.listen().await;
    while notifications.is_listening() {
        match notifications.next().await.as_ref().map(Notification::channel) {
            Some(FEED) => wake.dispatcher.notify_one(),
            Some(_) => wake.workers.notify_one(),
            None => {}
        }
    }
}
