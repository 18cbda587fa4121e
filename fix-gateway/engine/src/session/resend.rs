//! Answers to ResendRequest(2).
//!
//! Stored messages come from the driver in slices. Stored messages are sent again with PossDupFlag(43); runs of numbers
//! without a stored message, session messages above all, are covered by one SequenceReset-GapFill each. No other
//! message is sent in between: the session's own messages wait, within bounds.

use std::{collections::VecDeque, time::Instant};

use crate::{
    SeqNum,
    codec::{MessageRef, MsgType},
    tag,
};

use super::{Now, Output, ResendSlice, Session, Stored, Transmit, Violation, config::SAME_REQUEST_MAX};

#[derive(Debug, Clone, Copy)]
pub(super) struct Resend {
    /// The next number to look for.
    cursor: SeqNum,
    end: SeqNum,
    /// Where the run without stored messages began.
    gap_begin: Option<SeqNum>,
    /// Messages that a reset kept go out under their new numbers for the first time.
    is_first_time: bool,
}

/// The messages that the peer requested, and those still to be sent.
#[derive(Debug, Default)]
pub(super) struct Resends {
    active: Option<Resend>,
    /// Requested while another was under way; the latest counts.
    next: Option<(SeqNum, SeqNum)>,
    latest: Option<Request>,
    /// Our messages that wait behind a resend, their numbers taken and persisted.
    held: VecDeque<Transmit>,
}

/// The latest request, as it was put.
#[derive(Debug, Clone, Copy)]
struct Request {
    range: (SeqNum, SeqNum),
    times: u32,
    answered_at: Instant,
}

impl Session {
    /// Is a ResendRequest being answered? A driver that does other work between its slices keeps new messages back.
    pub fn is_resending(&self) -> bool {
        self.link().is_some_and(|link| link.resends.active.is_some())
    }

    /// Answered with any number of its own: otherwise two sides could wait for each other for ever.
    pub(super) fn resend_request(&mut self, message: MessageRef<'_>, seq: SeqNum) {
        let number = |tag| message.get(tag).and_then(SeqNum::parse);
        let (Some(begin), Some(end)) = (number(tag::BEGIN_SEQ_NO), number(tag::END_SEQ_NO)) else {
            return self.respond(message, Violation::ResendRangeWrong { tag: tag::BEGIN_SEQ_NO });
        };
        let last = self.next_out.previous();
        if begin < SeqNum::FIRST || begin > last {
            return self.respond(message, Violation::ResendRangeWrong { tag: tag::BEGIN_SEQ_NO });
        }
        if end != SeqNum(0) && begin > end {
            return self.respond(message, Violation::ResendRangeWrong { tag: tag::END_SEQ_NO });
        }
        match seq.cmp(&self.next_in) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                self.next_in = seq.next();
                self.note_progress(seq);
                self.persist();
            }
            std::cmp::Ordering::Greater => self.count_when_due(seq),
        }
        match self.is_wanted((begin, end)) {
            Ok(true) => self.resend((begin, end)),
            Ok(false) => {}
            Err(violation) => return self.respond(message, violation),
        }
        if seq > self.next_in {
            // After the answer, so that two gaps are closed one after the other.
            self.done_early(seq);
        }
    }

    /// Is this another request than the one before, or the same put again for a reason?
    fn is_wanted(&mut self, range: (SeqNum, SeqNum)) -> Result<bool, Violation> {
        let (now, window) = (self.now.mono, self.config.same_request_window);
        let Some(link) = self.link_mut() else { return Ok(false) };
        let is_active = link.resends.active.is_some();
        match &mut link.resends.latest {
            Some(latest) if latest.range == range => {
                let is_soon = now < latest.answered_at + window;
                if is_soon || is_active && !window.is_zero() {
                    return Ok(false);
                }
                if latest.times >= SAME_REQUEST_MAX {
                    return Err(Violation::SameRequestTooOften);
                }
                latest.times += 1;
                latest.answered_at = now;
            }
            latest => *latest = Some(Request { range, times: 1, answered_at: now }),
        }
        Ok(true)
    }

    /// Begins to send again, or notes that it is next.
    pub(super) fn resend(&mut self, (begin, end): (SeqNum, SeqNum)) {
        let last = self.next_out.previous();
        // 0 is "no end"; before 4.2 it was 999999, which some peers still send.
        let end = if end == SeqNum(0) || end > last { last } else { end };
        let Some(link) = self.link_mut() else { return };
        if link.resends.active.is_some() {
            link.resends.next = Some((begin, end));
            return;
        }
        link.resends.active = Some(Resend { cursor: begin, end, gap_begin: None, is_first_time: false });
        self.fetch_next();
    }

    /// Sends the `messages` that a reset kept, whose numbers follow our Logon's.
    pub(super) fn send_kept(&mut self, messages: u64) {
        let Some(more) = messages.checked_sub(1) else { return };
        let begin = self.next_out;
        let end = SeqNum(begin.0.saturating_add(more));
        self.next_out = end.next();
        self.persist();
        if let Some(link) = self.link_mut() {
            link.resends.active = Some(Resend { cursor: begin, end, gap_begin: None, is_first_time: true });
        }
        self.fetch_next();
    }

    fn fetch_next(&mut self) {
        let limit = self.slice_limit();
        let Some(resend) = self.link().and_then(|link| link.resends.active) else { return };
        self.outputs.push_back(Output::Fetch(ResendSlice { from: resend.cursor, to: resend.end, limit }));
    }

    fn slice_limit(&self) -> usize {
        self.config.resend_slice.max(1)
    }

    /// The driver's answer to [`Output::Fetch`]: the slice's messages, by ascending number. Fewer than its limit mean
    /// that no more of the range are stored.
    pub fn handle_stored(&mut self, now: Now, messages: Vec<Stored>) {
        self.now = now;
        let sending_time = self.stamp();
        let is_full = messages.len() >= self.slice_limit();
        let Some(mut resend) = self.link_mut().and_then(|link| link.resends.active) else { return };
        // At least one number further, so that every resend ends.
        let last = messages.last().map(|last| last.seq.max(resend.cursor).min(resend.end));
        let to = last.filter(|_| is_full).unwrap_or(resend.end);
        for message in messages {
            let is_stale = !message.resend || self.config.never_resent.contains(&message.msg_type);
            if message.seq < resend.cursor || message.seq > to || is_stale {
                continue;
            }
            if message.seq > resend.cursor {
                resend.gap_begin.get_or_insert(resend.cursor);
            }
            self.fill_gap(&mut resend, message.seq);
            resend.cursor = message.seq.next();
            self.outputs.push_back(Output::Transmit(Transmit {
                seq: message.seq,
                msg_type: message.msg_type,
                body: message.body,
                sending_time,
                orig_sending_time: (!resend.is_first_time).then_some(message.sending_time),
            }));
        }
        if resend.cursor <= to {
            resend.gap_begin.get_or_insert(resend.cursor);
            resend.cursor = to.next();
        }
        let is_done = to >= resend.end;
        if is_done {
            let after = resend.end.next();
            self.fill_gap(&mut resend, after);
        }
        if let Some(link) = self.link_mut() {
            link.resends.active = (!is_done).then_some(resend);
        }
        if is_done {
            self.resend_is_over();
        } else {
            self.fetch_next();
        }
    }

    fn fill_gap(&mut self, resend: &mut Resend, new_seq_no: SeqNum) {
        let Some(begin) = resend.gap_begin.take() else { return };
        let body = self.body().number(tag::NEW_SEQ_NO, new_seq_no.0).field(tag::GAP_FILL_FLAG, "Y");
        self.outputs.push_back(Output::Transmit(Transmit {
            seq: begin,
            msg_type: MsgType::SEQUENCE_RESET,
            body,
            sending_time: self.stamp(),
            orig_sending_time: Some(self.stamp()),
        }));
    }

    fn resend_is_over(&mut self) {
        self.release_held();
        if let Some(range) = self.link_mut().and_then(|link| link.resends.next.take()) {
            self.resend(range);
        }
    }

    /// Sends the messages that waited behind a resend.
    pub(super) fn release_held(&mut self) {
        let Self { state, outputs, .. } = self;
        if let Some(link) = Self::link_of(state) {
            outputs.extend(link.resends.held.drain(..).map(Output::Transmit));
        }
    }

    /// Puts a numbered message out, behind a resend if there is one.
    pub(super) fn put_out(&mut self, message: Transmit) {
        let held_max = self.config.held_max;
        match self.link_mut() {
            Some(link) if link.resends.active.is_some() => {
                // Beyond the bound there are only session messages: the peer finds them missing and has them filled.
                if link.resends.held.len() < held_max {
                    link.resends.held.push_back(message);
                }
            }
            _ => self.outputs.push_back(Output::Transmit(message)),
        }
    }

    /// Would another application message find a place behind the resend under way?
    pub(super) fn has_room(&self) -> bool {
        self.link().is_none_or(|link| {
            link.resends.active.is_none() || link.resends.held.len() < self.config.held_max / 2
        })
    }
}
