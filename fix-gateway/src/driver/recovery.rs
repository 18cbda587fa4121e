//! The end of a connection, and recovery after a store failure.

use std::{sync::Arc, time::Duration};

use dvp_fix::{
    SeqNum,
    schedule::{Epoch, Schedule},
    session::Session,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Broken, CloseReason, Driver, Pending, peer::Peer, reached::Reached};
use crate::application::{Application, Reach, Unavailable};

/// The delay between attempts to load a session's numbers.
const RETRY: Duration = Duration::from_millis(500);

impl<A: Application> Driver<A> {
    /// Ends the connection. Commits in flight continue; their messages stay in the store.
    pub(super) async fn hang_up(&mut self, reason: CloseReason) {
        self.out.clear();
        self.batch.clear();
        self.fetch = None;
        self.pending.retain(|pending| matches!(pending, Pending::Commit { .. }));
        self.session.disconnected();
        self.app.connected(false);
        if let Some(Peer { connection, .. }) = self.peer.take() {
            info!(session = self.name, peer = %connection.peer, reason = reason.as_str(), "disconnected");
            self.metrics.disconnected(reason);
            connection.close().await;
        }
    }

    pub(super) async fn recover(&mut self, broken: Broken, shutdown: &CancellationToken) {
        match broken {
            Broken::Connection(reason) => self.hang_up(reason).await,
            Broken::Store(error) => {
                self.metrics.failed(&error);
                if error.is_data() {
                    self.hang_up(CloseReason::DataFailed).await;
                    error!(session = self.name, %error, "message rejected by the database because of its data; reloading sequence numbers");
                } else {
                    self.hang_up(CloseReason::StoreFailed).await;
                    warn!(session = self.name, %error, "commit failed; reloading sequence numbers");
                }
                self.load(shutdown).await;
            }
        }
    }

    /// Waits for the commits in flight, then loads the numbers. `false` when shutdown was requested before that.
    pub(super) async fn load(&mut self, shutdown: &CancellationToken) -> bool {
        while let Some(pending) = self.pending.pop_front() {
            if let Pending::Commit { commit, .. } = pending {
                // The store contains the result of either outcome.
                let _ = commit.await;
            }
        }
        self.unqueued_in = None;
        self.is_loaded = false;
        loop {
            match self.load_session().await {
                Ok((next_in, next_out, reach, epoch)) => {
                    self.reached = Reached::begin(reach);
                    let config = Arc::new(self.session.config().clone());
                    self.read_clocks();
                    self.session = Session::new(config, self.now, next_in, next_out).in_epoch(epoch);
                    self.enqueued_out = next_out;
                    self.is_loaded = true;
                    return true;
                }
                Err(error) => {
                    self.metrics.failed(&error);
                    warn!(session = self.name, %error, "loading sequence numbers failed, retrying in 0.5 s");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn load_session(&mut self) -> Result<(SeqNum, SeqNum, Reach, Option<Epoch>), Unavailable> {
        let (next_in, next_out) = self.app.load().await?;
        let reach = self.app.reach().await?;
        // The peer cannot have received a number beyond the last assigned one.
        let reach = Reach { seen: reach.seen.min(next_out.previous()), ..reach };
        let has_schedule = self.session.config().schedule != Schedule::CONTINUOUS;
        let epoch = if has_schedule { self.app.epoch().await? } else { None };
        Ok((next_in, next_out, reach, epoch))
    }
}
