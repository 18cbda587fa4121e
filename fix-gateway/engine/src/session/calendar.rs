//! The session's place in its schedule.
//!
//! When a window ends, the session is logged out; when one begins, the numbers restart, whether or not the peer
//! is connected. The numbers carry the epoch of the window they were given in, so a restart resets nothing twice and
//! nothing late. The wall clock may be moved: a distant boundary is checked again every few seconds.

use std::time::{Duration, Instant};

use crate::{
    SeqNum,
    schedule::{Epoch, Position, Schedule},
};

use super::{Now, Output, Session, State};

/// The wall clock is consulted this often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Calendar {
    /// The window that the numbers belong to; `None` when that was never recorded.
    epoch: Option<Epoch>,
    is_open: bool,
    /// When to look again; `None` for a session without end.
    pub(super) due: Option<Instant>,
}

impl Calendar {
    pub(super) fn new(schedule: &Schedule, now: Now) -> Self {
        let is_endless = *schedule == Schedule::CONTINUOUS;
        Self { epoch: None, is_open: is_endless, due: (!is_endless).then_some(now.mono) }
    }
}

impl Session {
    /// The same session, whose numbers were given in this window of its schedule.
    #[must_use]
    pub const fn in_epoch(mut self, epoch: Option<Epoch>) -> Self {
        self.calendar.epoch = epoch;
        self
    }

    /// Does the schedule have a session now, and are the numbers this window's? Outside of it nothing new should be
    /// given a number: the next window would forget it.
    pub const fn is_open(&self) -> bool {
        self.calendar.is_open
    }

    /// Checks the schedule and carries out its boundaries.
    pub(super) fn keep_schedule(&mut self) {
        if self.calendar.due.is_none() {
            return;
        }
        let now = self.now;
        let (epoch, until) = match self.config.schedule.position(now.calendar) {
            Position::Open { epoch, until } => (Some(epoch), until),
            Position::Closed { until } => (None, Some(until)),
        };
        let wait =
            until.map_or(LOOK_AGAIN, |until| Duration::from_nanos(until.0.saturating_sub(now.calendar.0)));
        self.calendar.due = Some(now.mono + wait.min(LOOK_AGAIN));
        // A clock that was set back does not bring the last window back.
        let is_new = |epoch: Epoch| self.calendar.epoch.is_none_or(|known| epoch > known);
        match (epoch.filter(|epoch| is_new(*epoch)), &self.state) {
            (None, State::LoggedOn(_)) if epoch.is_none() => self.end_window(),
            (None, _) => self.calendar.is_open = epoch.is_some(),
            (Some(_), State::LoggedOn(_)) => self.end_window(),
            (Some(epoch), State::Idle | State::AwaitingLogon) => self.begin_window(epoch),
            // Checked again at logout or Logon.
            (Some(_), State::Authenticating { .. } | State::Resetting { .. } | State::LoggingOut { .. }) => {}
        }
    }

    fn begin_window(&mut self, epoch: Epoch) {
        // Numbers of an unknown window are kept.
        if self.calendar.epoch.is_some_and(|known| known != Epoch::ENDLESS) {
            self.next_in = SeqNum::FIRST;
            self.next_out = SeqNum::FIRST;
            self.outputs.push_back(Output::Reset { first_kept: SeqNum::FIRST });
        }
        self.calendar.epoch = Some(epoch);
        self.calendar.is_open = true;
        self.outputs.push_back(Output::Epoch(epoch));
    }

    fn end_window(&mut self) {
        self.calendar.is_open = false;
        self.begin_logout(Some("End of session"), Some(super::Status::LogoutComplete));
    }

    /// The connection has ended: carries out a pending reset.
    pub(super) const fn look_at_schedule_soon(&mut self) {
        if self.calendar.due.is_some() {
            self.calendar.due = Some(self.now.mono);
        }
    }
}
