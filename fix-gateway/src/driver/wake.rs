//! The events that wake a driver: stop, a deadline, a command, a connection, a commit, the socket, reports.
//!
//! Rare events are checked first, so that a peer that never pauses cannot delay a timer or a stop; socket and reports
//! take turns. A slice of a resend comes last, so that a long resend delays nothing else. Wakers stay registered from
//! one turn to the next.

use std::{
    future::{Future as _, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Instant,
};

use dvp_fix::session::Stored;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Control, Driver, Pending};
use crate::{
    application::{Application, Unavailable},
    connection::Attach,
};

pub(super) enum Event {
    Attached(Box<Attach>),
    /// So many bytes were read, or some were written.
    Progress(io::Result<usize>),
    Committed(Result<Vec<Stored>, Unavailable>),
    Timer,
    Reports,
    /// The connection may be read again.
    Read,
    Resend,
    /// The peer takes no bytes.
    Stalled,
    /// The present connection did not answer.
    TakeOver,
    /// The application has something to report.
    Chore,
    /// A command from outside.
    Control(Control),
    /// The connection did not end in time for the command.
    ErrandDue,
    /// The process that forwards the connection stops.
    ForwarderStops,
    Shutdown,
}

impl<A: Application> Driver<A> {
    pub(super) async fn next_event(&mut self, mut stop: Pin<&mut WaitForCancellationFutureOwned>) -> Event {
        let may_take_more = self.may_take_more();
        let is_draining = self.draining.is_some();
        // Events between two windows are reported in the next one: a number of this window would be dropped with it.
        let may_report = may_take_more && self.session.is_open() && !is_draining;
        let may_read = may_take_more && self.reads_at().is_none();
        let may_fetch = self.may_fetch();
        let due = self.first_due();
        self.turns = self.turns.wrapping_add(1);
        let reports_first = self.turns.is_multiple_of(2);
        let Self { app, alarm, attach, control, peer, out, pending, .. } = self;
        let mut reports = pin!(app.wait_for_reports());
        poll_fn(|cx| {
            if !is_draining && stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Shutdown);
            }
            if alarm.poll(cx, due.map(|(deadline, _)| deadline)).is_ready()
                && let Some((_, ring)) = due
            {
                return Poll::Ready(ring.event());
            }
            if !is_draining
                && let Some(command) = control
                && let Poll::Ready(command) = command.poll_recv(cx)
            {
                match command {
                    Some(command) => return Poll::Ready(Event::Control(command)),
                    // The sender of commands is gone.
                    None => *control = None,
                }
            }
            if !is_draining && let Poll::Ready(attached) = attach.poll_recv(cx) {
                return Poll::Ready(
                    attached.map_or(Event::Shutdown, |attach| Event::Attached(Box::new(attach))),
                );
            }
            if let Some(peer) = peer
                && peer.poll_stopping(cx).is_ready()
            {
                return Poll::Ready(Event::ForwarderStops);
            }
            if let Some(Pending::Commit { commit, .. }) = pending.front_mut()
                && let Poll::Ready(done) = commit.as_mut().poll(cx)
            {
                return Poll::Ready(Event::Committed(done));
            }
            if may_report && reports_first && reports.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Reports);
            }
            if let Some(peer) = peer
                && let Poll::Ready(done) = peer.connection.poll_progress(cx, out, may_read)
            {
                return Poll::Ready(Event::Progress(done));
            }
            if may_report && !reports_first && reports.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Reports);
            }
            if may_fetch {
                return Poll::Ready(Event::Resend);
            }
            Poll::Pending
        })
        .await
    }

    fn first_due(&self) -> Option<(Instant, Ring)> {
        let deadlines = [
            (self.draining, Ring::Shutdown),
            (self.session.poll_timeout(), Ring::Timer),
            (self.out.gives_up_at(self.slow_consumer), Ring::Stalled),
            (self.newcomer.as_ref().map(|(_, at)| *at), Ring::TakeOver),
            (self.reads_at().filter(|_| self.may_take_more()), Ring::Read),
            (self.resend_goes_on_at().filter(|_| !self.may_fetch()), Ring::Resend),
            (self.errand.as_ref().map(|(_, at)| *at), Ring::Errand),
            (self.app.poll_timeout().filter(|_| self.draining.is_none()), Ring::Chore),
        ];
        let due = deadlines.into_iter().filter_map(|(at, ring)| at.map(|at| (at, ring)));
        due.min_by_key(|(at, _)| *at)
    }
}

#[derive(Debug, Clone, Copy)]
enum Ring {
    Shutdown,
    Timer,
    Stalled,
    TakeOver,
    Read,
    Resend,
    Errand,
    Chore,
}

impl Ring {
    const fn event(self) -> Event {
        match self {
            Self::Shutdown => Event::Shutdown,
            Self::Timer => Event::Timer,
            Self::Stalled => Event::Stalled,
            Self::TakeOver => Event::TakeOver,
            Self::Read => Event::Read,
            Self::Resend => Event::Resend,
            Self::Errand => Event::ErrandDue,
            Self::Chore => Event::Chore,
        }
    }
}

/// A timer for a deadline that each message moves: it stays set to an earlier deadline, and is set again when it fires
/// too early, instead of at each message.
#[derive(Default)]
pub(super) struct Alarm {
    set: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Alarm {
    /// Does the timer stand for `deadline`? Never without a deadline.
    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        let (at, sleep) =
            self.set.get_or_insert_with(|| (deadline, Box::pin(tokio::time::sleep_until(deadline.into()))));
        if *at > deadline {
            *at = deadline;
            sleep.as_mut().reset(deadline.into());
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if *at == deadline {
                self.set = None;
                return Poll::Ready(());
            }
            *at = deadline;
            sleep.as_mut().reset(deadline.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn look(alarm: &mut Alarm, deadline: Option<Instant>) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        alarm.poll(&mut cx, deadline).is_ready()
    }

    #[tokio::test]
    async fn an_alarm_fires_at_its_current_deadline_only() {
        let mut alarm = Alarm::default();
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(!look(&mut alarm, Some(soon)));
        assert!(!look(&mut alarm, None), "what was due is not any more");
        let later = soon + Duration::from_millis(20);
        poll_fn(|cx| alarm.poll(cx, Some(later))).await;
        assert!(Instant::now() >= later);
        let never = later + Duration::from_secs(3600);
        assert!(!look(&mut alarm, Some(never)));
        let moved = later + Duration::from_millis(20);
        let rang = tokio::time::timeout(Duration::from_secs(60), poll_fn(|cx| alarm.poll(cx, Some(moved))));
        rang.await.expect("a deadline that moved to earlier");
        assert!(Instant::now() >= moved);
    }
}
