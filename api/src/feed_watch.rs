//! Wakes readers who wait at the feed's end.
//!
//! One listener a process, started by the first reader who waits. A wake-up is a hint: readers look again after a
//! while without one.

use std::time::Duration;

use dvp_core::store::{DatabaseError, PgListener, PgPool};
use tokio::sync::{OnceCell, watch};
use tracing::warn;

const CHANNEL: &str = "dvp_feed";
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Counts what was heard.
#[derive(Default)]
pub(crate) struct FeedWatch {
    heard: OnceCell<watch::Receiver<u64>>,
}

impl FeedWatch {
    /// Changes whenever the feed may have grown.
    pub(crate) async fn subscribe(&self, pool: &PgPool) -> watch::Receiver<u64> {
        let start = || async {
            let (tell, heard) = watch::channel(0);
            tokio::spawn(listen(pool.clone(), tell));
            heard
        };
        self.heard.get_or_init(start).await.clone()
    }
}

/// Ends with the last receiver.
async fn listen(pool: PgPool, tell: watch::Sender<u64>) {
    loop {
        let heard = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(CHANNEL).await?;
            // Something may have happened before we listened.
            tell.send_modify(|count| *count = count.wrapping_add(1));
            loop {
                listener.recv().await?;
                tell.send_modify(|count| *count = count.wrapping_add(1));
            }
        };
        let failed: Result<(), DatabaseError> = tokio::select! {
            failed = heard => failed,
            () = tell.closed() => return,
        };
        if let Err(error) = failed {
            warn!(%error, "nobody hears of new events; waiting readers look by themselves");
        }
        tokio::select! {
            () = tokio::time::sleep(LISTEN_AGAIN) => {}
            () = tell.closed() => return,
        }
    }
}
