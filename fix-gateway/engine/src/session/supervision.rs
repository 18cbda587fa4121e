//! What an operator or a second connection wants to know: is this peer still there, and has it everything?

use std::time::Duration;

use crate::{codec::MsgType, tag};

use super::{Now, Session, State};

/// Silence that makes a peer suspect when no heartbeats were agreed upon.
const SUSPECT_WITHOUT_HEARTBEAT: Duration = Duration::from_secs(30);

impl Session {
    /// How long the peer has said nothing; `None` when there is no session.
    pub fn silence(&self, now: Now) -> Option<Duration> {
        self.link().map(|link| now.mono.saturating_duration_since(link.last_received))
    }

    /// Is something missing that was asked for?
    pub fn has_gap(&self) -> bool {
        self.link().is_some_and(|link| link.gap.is_some())
    }

    /// Somebody who may use the session wants to take it over. `false`: its connection is alive, as far as its last
    /// message tells. `true`: it has been silent for longer than its heartbeats allow; a TestRequest is out, and a
    /// peer that does not answer it is gone.
    pub fn probe(&mut self, now: Now) -> bool {
        let permille = self.config.test_request_after_permille;
        let Some(link) = self.link() else { return false };
        let allowed = link
            .heartbeat
            .map_or(SUSPECT_WITHOUT_HEARTBEAT, |interval| interval.saturating_mul(permille) / 1000);
        if now.mono.saturating_duration_since(link.last_received) < allowed {
            return false;
        }
        let is_asked = link.test_request_is_out;
        self.now = now;
        if !is_asked && matches!(self.state, State::LoggedOn(_)) {
            let id = self.config.texts.test_request_id;
            let body = self.body().field(tag::TEST_REQ_ID, id);
            self.emit(MsgType::TEST_REQUEST, body);
            if let Some(link) = self.link_mut() {
                link.test_request_is_out = true;
            }
        }
        true
    }
}
