//! Commits in flight, the messages that follow them, and the output to the socket.

use std::{future::poll_fn, task::Poll, time::Instant};

use dvp_fix::{
    SeqNum,
    session::{Stored, Transmit},
};
use tracing::info;

use super::{Broken, CloseReason, Driver};
use crate::application::{Application, Commit, Unavailable};

/// The pending output, in order.
pub(super) enum Pending {
    /// `next_in` is durable with it.
    Commit {
        commit: Commit,
        generation: u64,
        next_in: SeqNum,
        since: Instant,
    },
    Message(Transmit),
    Close,
}

impl<A: Application> Driver<A> {
    pub(super) fn push_commit(&mut self, commit: Commit, next_in: SeqNum) {
        // Queueing may have taken time.
        self.read_clocks();
        let (generation, since) = (self.generation, self.now.mono);
        self.pending.push_back(Pending::Commit { commit, generation, next_in, since });
    }

    /// The commit at the front has ended. If it is durable, its messages take its place.
    pub(super) fn committed(&mut self, done: Result<Vec<Stored>, Unavailable>) -> Result<(), Broken> {
        // Removed in either case: a completed future must not be polled again.
        let front = self.pending.pop_front();
        let messages = done?;
        let Some(Pending::Commit { generation, next_in, since, .. }) = front else { return Ok(()) };
        self.metrics.committed(self.now.mono.saturating_duration_since(since));
        self.session.note_durable(next_in);
        if generation != self.generation || self.peer.is_none() {
            // Messages of an earlier connection are not written: the peer requests them.
            return Ok(());
        }
        for message in messages.into_iter().rev() {
            self.pending.push_front(Pending::Message(Transmit {
                seq: message.seq,
                msg_type: message.msg_type,
                body: message.body,
                sending_time: message.sending_time,
                orig_sending_time: None,
            }));
        }
        Ok(())
    }

    /// The result of the front commit, if it has ended. Commits end in groups; the output of a group is written at
    /// once.
    pub(super) async fn next_committed(&mut self) -> Option<Result<Vec<Stored>, Unavailable>> {
        self.encode_ready();
        let Some(Pending::Commit { commit, .. }) = self.pending.front_mut() else { return None };
        poll_fn(|cx| match commit.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Waits for everything in flight, and writes it.
    pub(super) async fn settle(&mut self) -> Result<(), Broken> {
        self.flush_batch().await?;
        loop {
            self.encode_ready();
            let Some(Pending::Commit { commit, .. }) = self.pending.front_mut() else { break };
            let done = commit.await;
            self.read_clocks();
            self.committed(done)?;
        }
        self.write_out().await
    }

    /// Waits for everything in flight, and writes none of it: the messages are renumbered.
    pub(super) async fn abandon(&mut self) -> Result<(), Broken> {
        self.batch.clear();
        self.unqueued_in = None;
        while let Some(pending) = self.pending.pop_front() {
            if let Pending::Commit { commit, next_in, .. } = pending {
                commit.await?;
                self.session.note_durable(next_in);
            }
        }
        self.read_clocks();
        Ok(())
    }

    /// Makes the received numbers durable when the connection has ended.
    pub(super) async fn keep_mark(&mut self) -> Result<(), Broken> {
        if self.peer.is_none() && self.is_loaded && self.reached.is_ahead() {
            let (app, mut turn) = self.turn();
            let commit = app.persist(turn.numbers()).await?;
            self.reached.queued();
            self.unqueued_in = None;
            self.push_commit(commit, self.session.next_in());
        }
        Ok(())
    }

    /// Encodes messages from the front of `pending` up to the first commit in flight or the close.
    pub(super) fn encode_ready(&mut self) {
        while let Some(Pending::Message(_)) = self.pending.front() {
            let Some(Pending::Message(message)) = self.pending.pop_front() else { return };
            if let Some(peer) = &mut self.peer {
                self.metrics.sent(&message);
                self.last_out = Some(self.now.utc);
                let buffer = self.out.buffer();
                let begin = buffer.len();
                self.session.encode(self.now, &message, buffer);
                let frame = buffer.get(begin..).unwrap_or_default();
                if let Some(recorder) = &mut self.recorder {
                    recorder.written(self.now.utc, frame);
                }
                let bytes = frame.len();
                self.reached.writing(message.seq);
                if message.orig_sending_time.is_some() {
                    peer.resent.spend(self.resend_pace, bytes, self.now.mono);
                }
            }
            self.session.recycle(message.body);
        }
    }

    /// Writes as much as the socket accepts, and closes the connection when the close is next. The rest is written as
    /// the peer takes it.
    pub(super) async fn write_out(&mut self) -> Result<(), Broken> {
        self.encode_ready();
        if let Some(peer) = self.peer.as_mut().filter(|_| !self.out.is_done()) {
            if let Err(error) = peer.connection.write_now(&mut self.out).await {
                info!(session = self.name, %error, "writing to the socket failed");
                return Err(Broken::Connection(CloseReason::PeerClosed));
            }
            if self.out.len() > self.slow_consumer.bytes_max {
                return Err(Broken::Connection(CloseReason::SlowConsumer));
            }
        }
        if matches!(self.pending.front(), Some(Pending::Close)) && self.out.is_done() {
            self.pending.pop_front();
            let reason =
                if self.draining.is_some() { CloseReason::Draining } else { CloseReason::SessionEnded };
            self.hang_up(reason).await;
        }
        Ok(())
    }
}
