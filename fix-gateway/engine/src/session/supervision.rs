//! The peer's state, for operators and for a second connection: silence, gaps, and whether it is alive.

use std::time::Duration;

use crate::{SeqNum, codec::MsgType, tag};

use super::{NotLoggedOn, Now, Session, config::TEST_REQUEST_AFTER_PERMILLE};

/// Silence that makes a peer suspect when no heartbeats were agreed upon.
const SUSPECT_WITHOUT_HEARTBEAT: Duration = Duration::from_secs(30);

impl Session {
    /// The time since the peer's last message; `None` when there is no session.
    pub fn silence(&self, now: Now) -> Option<Duration> {
        self.link().map(|link| now.mono.saturating_duration_since(link.last_received))
    }

    /// The first and the last message that are missing.
    pub fn gap(&self) -> Option<(SeqNum, SeqNum)> {
        let gap = self.link()?.gap.as_ref()?;
        Some((self.next_in(), gap.until()))
    }

    /// An authenticated peer wants to take the session over. `false`: its last message proves its connection alive.
    /// `true`: it has been silent for longer than its heartbeats allow; a TestRequest is out, and a
    /// peer that does not answer it is gone.
    pub fn probe(&mut self, now: Now) -> bool {
        let Some(link) = self.link() else { return false };
        let allowed = link.heartbeat.map_or(SUSPECT_WITHOUT_HEARTBEAT, |interval| {
            interval.saturating_mul(TEST_REQUEST_AFTER_PERMILLE) / 1000
        });
        if now.mono.saturating_duration_since(link.last_received) < allowed {
            return false;
        }
        let is_probed = link.test_request_is_out;
        self.now = now;
        if !is_probed && self.is_logged_on() {
            self.send_test_request();
        }
        true
    }

    /// An operator tests the connection: sends a TestRequest, whether or not one is out.
    pub fn request_test(&mut self, now: Now) -> Result<(), NotLoggedOn> {
        if !self.is_logged_on() {
            return Err(NotLoggedOn);
        }
        self.now = now;
        self.send_test_request();
        Ok(())
    }

    pub(super) fn send_test_request(&mut self) {
        let body = self.body().field(tag::TEST_REQ_ID, "TEST");
        self.emit(MsgType::TEST_REQUEST, body);
        if let Some(link) = self.link_mut() {
            link.test_request_is_out = true;
        }
    }
}
