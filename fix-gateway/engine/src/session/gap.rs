//! Missing inbound numbers: the queue of later messages, the resend requests, and when a gap is given up.
//!
//! One ResendRequest(2) per gap. It is repeated on evidence only: when the peer, sending again, has gone past the
//! message we wait for, that message was lost on the way. Numbers ascend within one pass of the peer; a lower number
//! begins the next pass. Messages beyond the gap wait in a bounded queue; those that do not fit are found missing, and
//! requested, once the gap is closed.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    SeqNum,
    codec::{Message, MessageRef, MsgType},
    tag,
};

use super::{Output, Session, Violation, config::SAME_REQUEST_MAX};

/// Messages that were requested, or that the peer sends without a request. Closed when `until` has been processed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// The next expected number at the last request.
    begin: SeqNum,
    until: SeqNum,
    /// The end of the requested chunk, when gaps are requested in chunks.
    chunk_end: Option<SeqNum>,
    /// The chunk has been processed, and the next one is to be requested.
    is_chunk_through: bool,
    /// How often everything from `begin` on was requested.
    requests: u32,
    /// The highest number of the pass under way; 0 before its first message beyond the gap.
    passed: SeqNum,
    /// When a number was processed last, or the gap was found.
    pub(super) moved_at: Instant,
}

impl Gap {
    pub(super) const fn until(&self) -> SeqNum {
        self.until
    }
}

/// Messages beyond a gap.
#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: BTreeMap<SeqNum, Queued>,
    bytes: usize,
}

#[derive(Debug)]
enum Queued {
    Message(Box<Message>),
    /// Already acted upon; only its number is still to be counted.
    Done,
}

impl Queue {
    fn insert(&mut self, seq: SeqNum, queued: Queued) {
        self.bytes += queued.bytes();
        if let Some(replaced) = self.messages.insert(seq, queued) {
            self.bytes -= replaced.bytes();
        }
    }

    fn take(&mut self, seq: SeqNum) -> Option<Queued> {
        // Left behind by a SequenceReset.
        while self.messages.first_key_value().is_some_and(|(first, _)| *first < seq) {
            if let Some((_, left)) = self.messages.pop_first() {
                self.bytes -= left.bytes();
            }
        }
        let queued = self.messages.remove(&seq)?;
        self.bytes -= queued.bytes();
        Some(queued)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Queued {
    fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.view().bytes().len(),
            Self::Done => 0,
        }
    }
}

impl Session {
    /// A message beyond the missing ones.
    pub(super) fn too_high(&mut self, message: MessageRef<'_>, seq: SeqNum) {
        let (queue_max, bytes_max) = (self.config.queue_max, self.config.queue_bytes_max);
        let Some(link) = self.link_mut() else { return };
        let bytes = link.queue.bytes.saturating_add(message.bytes().len());
        if link.queue.messages.len() < queue_max && bytes <= bytes_max {
            link.queue.insert(seq, Queued::Message(Box::new(message.to_owned())));
        }
        if link.gap.is_none() {
            self.request_gap(seq);
        } else if message.is_yes(tag::POSS_DUP_FLAG) {
            self.passed_over(seq);
        }
    }

    /// A message that was acted upon regardless of its number, and that is beyond the missing ones.
    pub(super) fn done_early(&mut self, seq: SeqNum) {
        self.count_when_due(seq);
        if self.link().is_some_and(|link| link.gap.is_none()) {
            self.request_gap(seq);
        }
    }

    /// The number is counted when its turn comes.
    pub(super) fn count_when_due(&mut self, seq: SeqNum) {
        let queue_max = self.config.queue_max;
        let Some(link) = self.link_mut() else { return };
        if link.queue.messages.len() < queue_max {
            link.queue.insert(seq, Queued::Done);
        }
    }

    /// The peer, sending again, is at `seq`, past the message we wait for.
    fn passed_over(&mut self, seq: SeqNum) {
        let next_in = self.next_in;
        let Some(gap) = self.link_mut().and_then(|link| link.gap.as_mut()) else { return };
        if seq > gap.until {
            return;
        }
        let requests = if next_in > gap.begin {
            0
        } else if gap.passed == SeqNum(0) || seq <= gap.passed {
            gap.requests
        } else {
            // More of a pass of which it is known that it lost the message.
            gap.passed = seq;
            return;
        };
        let until = gap.until;
        self.request_resend(until, requests, seq);
    }

    /// Requests everything from the next expected number on, up to before `received`.
    pub(super) fn request_gap(&mut self, received: SeqNum) {
        self.request_resend(received.previous(), 0, SeqNum(0));
    }

    /// Everything up to before `received` is missing, and the peer sends it without a request.
    pub(super) fn await_gap(&mut self, received: SeqNum) {
        let (begin, moved_at) = (self.next_in, self.now.mono);
        if let Some(link) = self.link_mut() {
            let (until, passed) = (received.previous(), SeqNum(0));
            let (chunk_end, is_chunk_through) = (None, false);
            link.gap = Some(Gap { begin, until, chunk_end, is_chunk_through, requests: 0, passed, moved_at });
        }
    }

    fn request_resend(&mut self, until: SeqNum, requests: u32, passed: SeqNum) {
        if requests >= SAME_REQUEST_MAX {
            return self.give_gap_up();
        }
        let (begin, moved_at) = (self.next_in, self.now.mono);
        let chunk = self.config.resend_request_chunk;
        let chunk_end = chunk
            .map(|chunk| SeqNum(begin.0.saturating_add(chunk.max(1)).saturating_sub(1)))
            .filter(|end| *end < until);
        let Some(link) = self.link_mut() else { return };
        let moved_at = match &link.gap {
            // A request is no progress.
            Some(gap) if requests > 0 => gap.moved_at,
            _ => moved_at,
        };
        let (requests, is_chunk_through) = (requests + 1, false);
        link.gap = Some(Gap { begin, until, chunk_end, is_chunk_through, requests, passed, moved_at });
        // 0 means "everything", including messages sent meanwhile. The last chunk is open-ended, too.
        let end = chunk_end.unwrap_or(SeqNum(0));
        let body = self.body().number(tag::BEGIN_SEQ_NO, begin.0).number(tag::END_SEQ_NO, end.0);
        self.emit(MsgType::RESEND_REQUEST, body);
    }

    pub(super) fn give_gap_up(&mut self) {
        if let Some(link) = self.link_mut() {
            link.gap = None;
        }
        self.begin_logout(Some("Missing messages were not resent"), None);
    }

    /// `seq` has been processed: closes the gap when that was its end, or notes that its next chunk is due.
    pub(super) fn note_progress(&mut self, seq: SeqNum) {
        let now = self.now.mono;
        let Some(link) = self.link_mut() else { return };
        let Some(gap) = &mut link.gap else { return };
        gap.moved_at = now;
        gap.is_chunk_through |= gap.chunk_end.is_some_and(|end| seq >= end);
        if seq >= gap.until {
            link.gap = None;
        }
    }

    /// Requests the next chunk if that is due. Only after earlier deliveries are processed: the request persists
    /// the numbers with it, and they must not be durable before the effects.
    pub(super) fn request_next_chunk(&mut self) -> bool {
        let gap = self.link().and_then(|link| link.gap).filter(|gap| gap.is_chunk_through);
        let Some(gap) = gap else { return false };
        self.request_resend(gap.until, 0, SeqNum(0));
        true
    }

    /// Processes one queued message if its turn has come. Says whether there was one.
    pub(super) fn process_queued(&mut self) -> bool {
        let next = self.next_in;
        let Some(link) = self.link_mut() else { return false };
        match link.queue.take(next) {
            None => return false,
            Some(Queued::Message(message)) => {
                if self.process(message.view(), next) {
                    self.outputs.push_back(Output::Deliver { seq: next, queued: Some(message) });
                }
            }
            Some(Queued::Done) => {
                self.next_in = next.next();
                self.note_progress(next);
                self.persist();
            }
        }
        true
    }

    /// SequenceReset without GapFillFlag(123): its own number is ignored, and so is everything that waits: its
    /// numbers were given before the reset.
    pub(super) fn sequence_reset(&mut self, message: MessageRef<'_>) {
        match new_seq_no(message) {
            Some(new) if new >= self.next_in => {
                self.next_in = new;
                if let Some(link) = self.link_mut() {
                    link.gap = None;
                    link.queue.clear();
                }
                self.persist();
            }
            _ => self.respond(message, Violation::ResetBackwards),
        }
    }

    /// A gap fill whose turn it is.
    pub(super) fn gap_fill(&mut self, message: MessageRef<'_>, seq: SeqNum) {
        match new_seq_no(message) {
            Some(new) if new > seq => {
                self.next_in = new;
                self.note_progress(new.previous());
                self.persist();
            }
            _ => self.respond(message, Violation::ResetBackwards),
        }
    }
}

fn new_seq_no(message: MessageRef<'_>) -> Option<SeqNum> {
    message.get(tag::NEW_SEQ_NO).and_then(SeqNum::parse)
}
