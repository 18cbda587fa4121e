//! What happens after acceptance: due effects are carried out, facts from the chain are taken in, and each moves its
//! settlement by one step.
//!
//! Effects are claimed under a lease with a fence; facts are consumed by the transaction of the step they lead to.
//! Both may be seen twice and by several processes: the settlement's version lets one of them through. What cannot be
//! written stays due and is put off, longer each time.

mod effects;
mod facts;
mod lateness;
mod putting_off;
mod step;

use std::sync::Arc;
use std::time::Duration;

use dvp_rails::Rail;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tracing::warn;

use crate::engine::Engine;

/// How long to wait at most when nothing wakes a worker.
const POLL: Duration = Duration::from_millis(200);
/// How long to wait after the database failed.
const BACK_OFF: Duration = Duration::from_millis(500);

/// The workers of a process. Ends when `stop` turns true, after the work in hand.
pub async fn run(engine: Engine, offramp: Arc<dyn Rail>, payout: Arc<dyn Rail>, stop: watch::Receiver<bool>) {
    let rails = effects::Rails { offramp, payout };
    tokio::join!(
        effects::run(&engine, &rails, stop.clone()),
        facts::run(&engine, stop.clone()),
        putting_off::count(&engine, stop.clone()),
        lateness::run(&engine, stop)
    );
}

/// Waits for a notification, the poll interval or the stop, whichever is first.
struct Wake {
    listener: Option<PgListener>,
    channel: &'static str,
    stop: watch::Receiver<bool>,
}

impl Wake {
    async fn new(engine: &Engine, channel: &'static str, stop: watch::Receiver<bool>) -> Self {
        let mut wake = Self { listener: None, channel, stop };
        wake.listen(engine).await;
        wake
    }

    async fn listen(&mut self, engine: &Engine) {
        self.listener = match PgListener::connect_with(&engine.pool).await {
            Ok(mut listener) => listener.listen(self.channel).await.ok().map(|()| listener),
            Err(error) => {
                warn!(%error, channel = self.channel, "no notifications; polling");
                None
            }
        };
    }

    fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// `false`: stop.
    async fn wait(&mut self, at_most: Duration) -> bool {
        let notified = async {
            match &mut self.listener {
                Some(listener) => listener.recv().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let lost = tokio::select! {
            heard = notified => !heard,
            () = tokio::time::sleep(at_most) => false,
            _ = self.stop.changed() => false,
        };
        if lost {
            self.listener = None;
        }
        !self.stopped()
    }
}
