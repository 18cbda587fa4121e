//! The session's connection and its end: second connections, the end of the process, message rates.

use std::time::Duration;

use dvp_fix::session::Now;
use tracing::{info, warn};

use super::{Broken, CloseReason, DRAIN_TEXT, Driver, RATE_TEXT};
use crate::{application::Application, connection::Attach};

/// How long a silent connection has to answer when a second connection arrives.
const PROBE_WAIT: Duration = Duration::from_secs(2);

impl<A: Application> Driver<A> {
    /// The present connection stays, unless its peer has been silent for too long and does not answer now.
    pub(super) async fn second_connection(&mut self, attach: Box<Attach>) -> Result<(), Broken> {
        let now = self.now;
        let peer = attach.connection.peer;
        // Silence counts only while the socket is read.
        if self.newcomer.is_none() && self.may_take_more() && self.session.probe(now) {
            info!(session = self.name, %peer, "second connection waits while the first is tested");
            self.newcomer = Some((attach, now.mono + PROBE_WAIT));
            return self.drain(None).await;
        }
        info!(session = self.name, %peer, "second connection refused");
        Ok(())
    }

    /// Has the present connection proved to be alive since a second one arrived?
    pub(super) fn judge_newcomer(&mut self) {
        let Some((attach, decided_at)) = &self.newcomer else { return };
        let now = self.now;
        let waited = PROBE_WAIT.saturating_sub(decided_at.saturating_duration_since(now.mono));
        if self.session.silence(now).is_some_and(|silence| silence < waited) {
            info!(session = self.name, peer = %attach.connection.peer, "second connection refused");
            self.newcomer = None;
        }
    }

    /// The process that forwards the connection stops: the peer is to connect again, and its answer is still awaited.
    pub(super) async fn forwarder_stops(&mut self) -> Result<(), Broken> {
        if self.session.log_out(self.now, DRAIN_TEXT).is_err() {
            // Not logged on, or already logging out.
            return Err(Broken::Connection(CloseReason::Draining));
        }
        self.drain(None).await
    }

    /// The peer exceeds its message rate: it gets a Logout, and its answer is still awaited.
    pub(super) async fn cut_off(&mut self, now: Now) -> Result<(), Broken> {
        warn!(session = self.name, "message rate exceeded, logging out");
        if let Some(peer) = &mut self.peer {
            peer.cut_off();
        }
        if self.session.log_out(now, RATE_TEXT).is_err() {
            // Not logged on, or already logging out.
            return Err(Broken::Connection(CloseReason::RateExceeded));
        }
        self.drain(None).await
    }
}
