//! Deadlines: heartbeats, test requests, timeouts.
//!
//! FIX 4.4 volume 2, "Heartbeat": one goes out after HeartBtInt(108) without any other message. While a TestRequest is
//! out no heartbeat is: the TestRequest has shown that we live.

use std::time::{Duration, Instant};

use crate::codec::MsgType;

use super::{
    Now, Session, State,
    config::{GAP_PATIENCE, GIVE_UP_AFTER_PERMILLE, TEST_REQUEST_AFTER_PERMILLE},
};

/// When something is due on a link.
#[derive(Default)]
struct Deadlines {
    heartbeat: Option<Instant>,
    test_request: Option<Instant>,
    give_up: Option<Instant>,
    gap: Option<Instant>,
}

impl Session {
    /// The time at which to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.deadlines();
        [self.logout_deadline(), self.calendar.due, due.heartbeat, due.test_request, due.give_up, due.gap]
            .into_iter()
            .flatten()
            .min()
    }

    /// Time has passed. Calling it early or twice does no harm.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now.mono);
        if is_due(self.calendar.due) {
            self.keep_schedule();
        }
        let due = self.deadlines();
        // No answer to our Logout or TestRequest: the peer would not read another message.
        if is_due(self.logout_deadline()) || is_due(due.give_up) {
            return self.hang_up();
        }
        if is_due(due.gap) {
            return self.give_gap_up();
        }
        if is_due(due.test_request) {
            self.send_test_request();
        } else if is_due(due.heartbeat) {
            let body = self.body();
            self.emit(MsgType::HEARTBEAT, body);
        }
    }

    /// The driver was busy and read nothing until now: silence counts from here on.
    pub fn resume_listening(&mut self, now: Now) {
        if let Some(link) = self.link_mut() {
            link.last_received = link.last_received.max(now.mono);
        }
    }

    const fn logout_deadline(&self) -> Option<Instant> {
        match self.state {
            State::LoggingOut { deadline, .. } => Some(deadline),
            State::Idle
            | State::AwaitingLogon
            | State::Authenticating { .. }
            | State::Resetting { .. }
            | State::LoggedOn(_) => None,
        }
    }

    fn deadlines(&self) -> Deadlines {
        let link = match &self.state {
            State::LoggedOn(link) => link,
            // After our Logout there is nothing to keep alive.
            State::Idle
            | State::AwaitingLogon
            | State::Authenticating { .. }
            | State::Resetting { .. }
            | State::LoggingOut { .. } => {
                return Deadlines::default();
            }
        };
        if self.is_resending() {
            // The driver reads nothing meanwhile, and the resent messages prove that we are alive.
            return Deadlines::default();
        }
        let gap = link.gap.map(|gap| gap.moved_at + GAP_PATIENCE);
        let Some(interval) = link.heartbeat else { return Deadlines { gap, ..Deadlines::default() } };
        let times = |permille: u32| -> Duration { interval.saturating_mul(permille) / 1000 };
        let unless_probed = |deadline| (!link.test_request_is_out).then_some(deadline);
        Deadlines {
            heartbeat: unless_probed(link.last_sent + interval),
            test_request: unless_probed(link.last_received + times(TEST_REQUEST_AFTER_PERMILLE)),
            give_up: Some(link.last_received + times(GIVE_UP_AFTER_PERMILLE)),
            gap,
        }
    }
}
