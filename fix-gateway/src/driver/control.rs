//! Operators' control of a running session: to end it, to test it, or to change its numbers.

use std::time::Duration;

use dvp_fix::SeqNum;
use tokio::sync::oneshot;
use tracing::info;

use super::{Broken, CloseReason, Driver, reached::Reached};
use crate::application::{Application, Numbers, Renumbering};

/// How long an operator's command waits for the peer's Logout.
const END_MAX: Duration = Duration::from_secs(3);
/// How long a session that ends waits for the peer's Logout, so that another process has it within two seconds of a stop.
const DRAIN_MAX: Duration = Duration::from_millis(1500);
const OPERATOR_TEXT: &str = "logged out by an operator";

/// A command, and the channel for its result.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) ask: Ask,
    /// The result, as text.
    pub(crate) answer: oneshot::Sender<Result<String, String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Log the peer out with this text, and end the session.
    End { text: &'static str },
    /// End the session as soon as its peer disconnects: it is started again with its new settings.
    EndWhenIdle,
    /// Log the peer out; it may log on again.
    LogOut,
    /// Log the peer out, and reset both numbers to 1.
    Reset,
    /// Log the peer out, and set both numbers. `with_reset`: messages that the peer has not received are renumbered
    /// from `next_out` on; without it `next_out` does not decrease.
    SetNumbers { next_in: SeqNum, next_out: SeqNum, with_reset: bool },
    /// Close the connection without a Logout; the peer may connect again.
    Disconnect,
    /// Send a TestRequest, which the peer answers with a Heartbeat.
    TestRequest,
}

impl<A: Application> Driver<A> {
    pub(super) async fn controlled(&mut self, control: Control) -> Result<(), Broken> {
        match control.ask {
            Ask::End { text } => {
                // The caller waits for the session's end, not for the answer.
                let _ = control.answer.send(Ok("ending".to_owned()));
                self.begin_end(text).await
            }
            Ask::EndWhenIdle => {
                let _ = control.answer.send(Ok("ending once no peer is connected".to_owned()));
                self.ends_when_idle = true;
                Ok(())
            }
            Ask::Disconnect => {
                let is_connected = self.peer.is_some();
                let outcome = if is_connected { Ok("disconnected") } else { Err("no peer is connected") };
                let _ = control.answer.send(said(outcome));
                if is_connected { Err(Broken::Connection(CloseReason::Operator)) } else { Ok(()) }
            }
            Ask::TestRequest => {
                let outcome = self.session.request_test(self.now);
                let outcome = outcome.map(|()| "TestRequest sent").map_err(|_| "the peer is not logged on");
                let _ = control.answer.send(said(outcome));
                self.drain(None).await
            }
            Ask::LogOut | Ask::Reset | Ask::SetNumbers { .. } => {
                if self.errand.is_some() {
                    let _ = control.answer.send(Err("another command is being carried out".to_owned()));
                    return Ok(());
                }
                let deadline = self.now.mono + END_MAX;
                self.errand = Some((control, deadline));
                self.newcomer = None;
                if self.session.log_out(self.now, OPERATOR_TEXT).is_ok() {
                    return self.drain(None).await;
                }
                if self.peer.is_some() && !self.session.is_logged_on() {
                    // The session is logging on or out: the peer gets no Logout.
                    return Err(Broken::Connection(CloseReason::Operator));
                }
                Ok(())
            }
        }
    }

    /// Logs the peer out, for good. Waits for its answer and for the commits in flight.
    pub(super) async fn begin_end(&mut self, text: &str) -> Result<(), Broken> {
        let now = self.now;
        self.draining = Some(now.mono + DRAIN_MAX);
        self.newcomer = None;
        if self.session.log_out(now, text).is_ok() {
            self.drain(None).await?;
        }
        self.write_out().await
    }

    /// Executes the command that waited for the connection to end.
    pub(super) async fn run_errand(&mut self) -> Result<(), Broken> {
        let Some((Control { ask, answer }, _)) = self.errand.take() else { return Ok(()) };
        let done = match ask {
            Ask::End { .. } | Ask::EndWhenIdle | Ask::LogOut | Ask::Disconnect | Ask::TestRequest => {
                Ok(Ok("logged out".to_owned()))
            }
            Ask::Reset => self.renumber(SeqNum::FIRST, SeqNum::FIRST).await.map(|kept| Ok(renumbered(kept))),
            Ask::SetNumbers { next_in, next_out, with_reset: true } => {
                self.renumber(next_in, next_out).await.map(|kept| Ok(renumbered(kept)))
            }
            Ask::SetNumbers { next_in, next_out, with_reset: false } => {
                self.set_numbers(next_in, next_out).await
            }
        };
        match done {
            Ok(said) => {
                info!(session = self.name, ?ask, outcome = ?said, "operator command completed");
                let _ = answer.send(said);
                Ok(())
            }
            Err(broken) => {
                let _ = answer.send(Err("the store failed; whether it was done is unknown".to_owned()));
                Err(broken)
            }
        }
    }

    /// Without a connection: sets the numbers. Returns the number of messages that were kept.
    async fn renumber(&mut self, next_in: SeqNum, next_out: SeqNum) -> Result<u64, Broken> {
        let kept = self.begin_anew(next_in, next_out, next_out).await?;
        self.session.set_numbers(next_in, self.enqueued_out);
        self.settle().await?;
        Ok(kept)
    }

    async fn set_numbers(
        &mut self,
        next_in: SeqNum,
        next_out: SeqNum,
    ) -> Result<Result<String, String>, Broken> {
        self.settle().await?;
        if next_out < self.session.next_out() {
            let lowest = self.session.next_out();
            return Ok(Err(format!(
                "next_out is {lowest}: a lower number would stand for two messages unless the session is reset"
            )));
        }
        let before = self.enqueued_out;
        self.session.set_numbers(next_in, next_out);
        let reach = self.reached.reach;
        let numbers = Numbers { next_in, next_out_before: before, next_out, reset: false, reach };
        let commit = self.app.set_numbers(numbers).await?;
        self.enqueued_out = next_out;
        self.unqueued_in = None;
        self.push_commit(commit, next_in);
        self.settle().await?;
        Ok(Ok(format!("next in {next_in}, next out {next_out}")))
    }

    /// Resets both numbers, and renumbers the messages that the peer has not received from `first_kept` on.
    pub(super) async fn begin_anew(
        &mut self,
        next_in: SeqNum,
        next_out: SeqNum,
        first_kept: SeqNum,
    ) -> Result<u64, Broken> {
        self.abandon().await?;
        let next_out_before = self.enqueued_out;
        let to = Renumbering { next_in, next_out_before, next_out, first_kept, reach: self.reached.reach };
        let (commit, kept) = self.app.renumber(to).await?;
        let numbers = to.numbers(kept);
        self.enqueued_out = numbers.next_out;
        self.reached = Reached::begin(numbers.reach);
        self.push_commit(commit, next_in);
        if kept > 0 {
            info!(
                session = self.name,
                kept, "sequence numbers reset; messages the peer has not received are renumbered"
            );
        }
        Ok(kept)
    }
}

fn said(outcome: Result<&str, &str>) -> Result<String, String> {
    outcome.map(str::to_owned).map_err(str::to_owned)
}

fn renumbered(kept: u64) -> String {
    format!("reset; {kept} messages that the peer has not seen were kept")
}
