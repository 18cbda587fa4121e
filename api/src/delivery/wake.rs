//! Wake-ups from the database. They only shorten a wait: whoever is woken looks for itself.

use std::time::Duration;

use dvp_store::{DatabaseError, PgListener, PgPool};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FEED: &str = "dvp_feed";
const DELIVERIES: &str = "dvp_webhook";
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Wake {
    pub(super) dispatcher: Notify,
    pub(super) workers: Notify,
}

pub(super) async fn listen(pool: &PgPool, wake: &Wake, shutdown: &CancellationToken) {
    loop {
        let heard: Result<(), DatabaseError> = tokio::select! {
            heard = hear(pool, wake) => heard,
            () = shutdown.cancelled() => return,
        };
        if let Err(error) = heard {
            warn!(%error, "webhook delivery hears nothing and looks by itself");
        }
        tokio::select! {
            () = tokio::time::sleep(LISTEN_AGAIN) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

async fn hear(pool: &PgPool, wake: &Wake) -> Result<(), DatabaseError> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([FEED, DELIVERIES]).await?;
    loop {
        let heard = listener.recv().await?;
        if heard.channel() == FEED { wake.dispatcher.notify_one() } else { wake.workers.notify_one() }
    }
}
