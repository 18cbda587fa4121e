//! Executes the session's outputs in order.

use dvp_fix::{SeqNum, codec::MessageRef, session::Output};
use tracing::info;

use super::{Broken, Driver, Pending, RATE_TEXT};
use crate::application::{Application, Numbers, Turn};

impl<A: Application> Driver<A> {
    /// Executes the session's outputs, in order. `handed_in` is the message they are about.
    pub(super) async fn drain(&mut self, handed_in: Option<MessageRef<'_>>) -> Result<(), Broken> {
        let mut has_fetched = false;
        loop {
            if let Some(slice) = self.fetch {
                if has_fetched || !self.may_fetch() {
                    // The next slice waits until the peer has taken the previous one, for the resend pace, and for
                    // other events that are due.
                    break;
                }
                has_fetched = true;
                self.fetch = None;
                let stored = self.app.stored(slice).await?;
                self.read_clocks();
                self.session.handle_stored(self.now, stored);
            }
            let Some(output) = self.session.poll_output() else { break };
            self.carry_out(output, handed_in).await?;
        }
        self.flush_batch().await
    }

    async fn carry_out(&mut self, output: Output, handed_in: Option<MessageRef<'_>>) -> Result<(), Broken> {
        match output {
            Output::Authenticate(_) => {
                let is_genuine = match (&mut self.peer, handed_in) {
                    (Some(peer), Some(logon)) => peer.may_log_on(&self.name, logon).await,
                    _ => false,
                };
                self.read_clocks();
                self.session.handle_authentication(self.now, is_genuine);
            }
            Output::Persist { next_in, .. } => self.unqueued_in = Some(next_in),
            Output::Transmit(message) => self.batch.push(message),
            Output::LoggedOn => {
                if let Some(peer) = &mut self.peer {
                    peer.connection.trust();
                }
                info!(session = self.name, next_in = %self.session.next_in(), "logged on");
                self.app.connected(true);
            }
            Output::Reset { first_kept } => {
                self.wait_for_reset().await;
                let kept = self.begin_anew(SeqNum::FIRST, SeqNum::FIRST, first_kept).await?;
                self.resets.count(kept, self.now.mono);
                self.session.handle_kept(kept);
            }
            Output::Epoch(epoch) => {
                self.settle().await?;
                self.app.begin_epoch(epoch).await?;
            }
            Output::Deliver { queued, .. } => {
                if let Some(message) = queued.as_ref().map(|queued| queued.view()).or(handed_in) {
                    self.deliver(message).await?;
                }
            }
            Output::Fetch(slice) => {
                // Messages in flight belong to the range, too: a gap fill over them would lose them for the peer.
                self.settle().await?;
                self.fetch = Some(slice);
            }
            Output::Disconnect => {
                self.flush_batch().await?;
                self.pending.push_back(Pending::Close);
            }
        }
        Ok(())
    }

    async fn deliver(&mut self, message: MessageRef<'_>) -> Result<(), Broken> {
        let settled = if self.app.is_about_earlier(message) { self.settle().await } else { Ok(()) };
        let connection = match settled {
            Err(Broken::Store(error)) => return Err(error.into()),
            // The session has counted the message, and the peer will not send it again: it is delivered in any case.
            connection @ (Ok(()) | Err(Broken::Connection(_))) => connection,
        };
        self.flush_batch().await?;
        let now = self.now.mono;
        let may_act = self.peer.as_mut().is_none_or(|peer| peer.may_act(|| now));
        let (app, mut turn) = self.turn();
        let commit = if may_act || is_refusal(message) {
            app.deliver(message, &mut turn).await?
        } else {
            app.refuse(message, RATE_TEXT, &mut turn).await?
        };
        self.unqueued_in = None;
        self.push_commit(commit, self.session.next_in());
        // No input was read while the application worked, so the time does not count as the peer's silence.
        self.read_clocks();
        self.session.resume_listening(self.now);
        connection
    }

    pub(super) fn turn(&mut self) -> (&mut A, Turn<'_>) {
        let Self { app, session, enqueued_out, reached, .. } = self;
        (app, Turn::new(session, enqueued_out, &mut reached.reach, self.now))
    }

    /// Queues the commit of this turn's numbers, followed by the session messages that need it.
    pub(super) async fn flush_batch(&mut self) -> Result<(), Broken> {
        // A resend repeats numbers and needs no commit of its own.
        let has_new = self.batch.iter().any(|message| message.orig_sending_time.is_none());
        let is_due = has_new || self.pending.is_empty();
        if let Some(next_in) = self.unqueued_in.filter(|_| is_due) {
            let (app, mut turn) = self.turn();
            let commit = app.persist(Numbers { next_in, ..turn.numbers() }).await?;
            self.unqueued_in = None;
            self.push_commit(commit, next_in);
        }
        self.pending.extend(self.batch.drain(..).map(Pending::Message));
        Ok(())
    }
}

/// A BusinessMessageReject is never answered with another.
fn is_refusal(message: MessageRef<'_>) -> bool {
    message.msg_type() == b"j"
}
