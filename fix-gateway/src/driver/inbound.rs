//! Processes inbound frames one by one, as long as there is room for their results.

use std::time::Duration;

use dvp_fix::{SeqNum, codec::MessageRef, tag};
use tracing::{debug, warn};

use super::{Broken, CloseReason, Driver, OUT_MAX, peer::Admitted};
use crate::{
    application::Application,
    connection::{Frame, Inbound},
};

/// When one message took longer than this, durable output is written before the next one is processed.
const UNWRITTEN_MAX: Duration = Duration::from_millis(5);
/// A session that has worked this long without waiting for anything lets other tasks of its thread run first.
const TURN_MAX: Duration = Duration::from_millis(1);

impl<A: Application> Driver<A> {
    /// Processes complete frames of the input, as long as there is room in flight.
    pub(super) async fn read_frames(&mut self) -> Result<(), Broken> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        // Taken out while its frames are processed, so that no frame is copied.
        let mut inbound = std::mem::take(&mut peer.connection.inbound);
        let done = self.take_frames(&mut inbound).await;
        if let Some(peer) = &mut self.peer {
            peer.connection.inbound = inbound;
        }
        done
    }

    async fn take_frames(&mut self, inbound: &mut Inbound) -> Result<(), Broken> {
        let mut began = self.now.mono;
        while self.may_take_more() {
            let Some(peer) = &self.peer else { return Ok(()) };
            match inbound.next(peer.connection.frame_max) {
                Ok(Some(frame)) => self.frame(frame).await?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    warn!(session = self.name, %error, "connection closed: a frame is too long");
                    return Err(Broken::Connection(CloseReason::FrameTooLong));
                }
            }
            self.encode_ready();
            if self.out.len() >= OUT_MAX {
                self.write_out().await?;
            }
            self.keep_time().await?;
            if self.now.mono.saturating_duration_since(began) >= TURN_MAX {
                tokio::task::yield_now().await;
                self.read_clocks();
                began = self.now.mono;
            }
        }
        Ok(())
    }

    /// Between two frames: processes due deadlines, and writes durable output. A peer that never pauses, or a slow
    /// application, delays a heartbeat by one message at most.
    async fn keep_time(&mut self) -> Result<(), Broken> {
        let before = self.now.mono;
        self.read_clocks();
        if self.session.poll_timeout().is_some_and(|due| due <= self.now.mono) {
            self.session.handle_timeout(self.now);
            self.drain(None).await?;
        } else if self.now.mono.saturating_duration_since(before) < UNWRITTEN_MAX {
            return Ok(());
        }
        while let Some(done) = self.next_committed().await {
            self.committed(done)?;
        }
        self.write_out().await
    }

    /// The message's content about our earlier messages.
    fn note_evidence(&mut self, message: MessageRef<'_>) {
        match message.msg_type() {
            b"5" => {
                let all_is_written = self.all_is_written();
                self.reached.logged_out(all_is_written);
            }
            b"2" => {
                if let Some(begin) = message.get(tag::BEGIN_SEQ_NO).and_then(SeqNum::parse) {
                    self.reached.resend_requested(begin);
                }
            }
            _ => {}
        }
    }

    /// Is there no output of the session waiting to be written?
    fn all_is_written(&self) -> bool {
        self.out.is_done() && self.fetch.is_none() && !self.session.is_resending()
    }

    async fn frame(&mut self, frame: Frame<'_>) -> Result<(), Broken> {
        match frame {
            Frame::Message(message) => {
                let now = self.now;
                let Some(peer) = &mut self.peer else { return Ok(()) };
                let admitted = peer.count(message.msg_type(), now.mono);
                self.last_in = Some(now.utc);
                if admitted != Admitted::Ignored
                    && let Some(recorder) = &mut self.recorder
                {
                    recorder.read(now.utc, message.bytes());
                }
                match admitted {
                    Admitted::Processed => {}
                    Admitted::Ignored => return Ok(()),
                    Admitted::RateExceeded => return self.cut_off(now).await,
                }
                self.note_evidence(message);
                self.session.handle_message(now, message);
                self.drain(Some(message)).await?;
                if self.session.is_logged_on() {
                    let all_is_written = self.all_is_written();
                    self.reached.received(self.now.mono, all_is_written);
                }
                Ok(())
            }
            Frame::TooLong(Some(discarded)) => {
                warn!(session = self.name, seq = %discarded.seq, "a message that is too long was discarded");
                self.session.handle_discarded(self.now, &discarded);
                self.drain(None).await
            }
            Frame::TooLong(None) => {
                debug!(session = self.name, "a message that is too long and garbled was discarded");
                self.session.handle_garbled(self.now);
                self.drain(None).await
            }
            Frame::Garbled(error) => {
                debug!(session = self.name, %error, "garbled message ignored");
                self.session.handle_garbled(self.now);
                self.drain(None).await
            }
        }
    }
}
