//! Answers to ResendRequest(2).
//!
//! Stored messages come from the driver in slices. What was stored is sent again with PossDupFlag(43); runs of numbers
//! without a stored message, session messages above all, are covered by one SequenceReset-GapFill each.

use crate::{
    SeqNum,
    codec::{MessageRef, MsgType},
    tag,
};

use super::{Now, Output, Session, Stored, Transmit, Violation};

/// A resend under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resend {
    /// The next number to look for.
    cursor: SeqNum,
    end: SeqNum,
    /// Where the run without stored messages began.
    gap_begin: Option<SeqNum>,
}

impl Session {
    /// Answered whatever its own number is: two sides that wait for each other would wait for ever.
    pub(super) fn resend_request(&mut self, message: MessageRef<'_>, seq: SeqNum) {
        let number = |tag| message.get(tag).and_then(SeqNum::parse);
        let (Some(begin), Some(end)) = (number(tag::BEGIN_SEQ_NO), number(tag::END_SEQ_NO)) else {
            return self.respond(message, Violation::ResendRangeWrong { tag: tag::BEGIN_SEQ_NO });
        };
        let last = self.next_out.previous();
        // 0 is "no end"; before 4.2 it was 999999, which some peers still send.
        let end = if end == SeqNum(0) || end > last { last } else { end };
        if begin < SeqNum::FIRST || begin > last {
            return self.respond(message, Violation::ResendRangeWrong { tag: tag::BEGIN_SEQ_NO });
        }
        if begin > end {
            return self.respond(message, Violation::ResendRangeWrong { tag: tag::END_SEQ_NO });
        }
        if seq == self.next_in {
            self.advance_in();
        }
        if let Some(link) = self.link_mut() {
            link.resend = Some(Resend { cursor: begin, end, gap_begin: None });
        }
        self.fetch_next();
    }

    fn fetch_next(&mut self) {
        let slice = self.config.resend_slice.max(1);
        let Some(resend) = self.link().and_then(|link| link.resend) else { return };
        let to = SeqNum(resend.cursor.0.saturating_add(slice - 1)).min(resend.end);
        self.outputs.push_back(Output::Fetch { from: resend.cursor, to });
    }

    /// The driver's answer to [`Output::Fetch`]: what is stored between `from` and `to`, by ascending number.
    pub fn handle_stored(&mut self, now: Now, to: SeqNum, messages: Vec<Stored>) {
        self.now = now;
        let Some(mut resend) = self.link_mut().and_then(|link| link.resend.take()) else { return };
        for message in messages {
            if message.seq < resend.cursor || message.seq > to || !message.resend {
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
                sending_time: now.utc,
                orig_sending_time: Some(message.sending_time),
            }));
        }
        if resend.cursor <= to {
            resend.gap_begin.get_or_insert(resend.cursor);
            resend.cursor = to.next();
        }
        if to >= resend.end {
            let after = resend.end.next();
            self.fill_gap(&mut resend, after);
        } else {
            if let Some(link) = self.link_mut() {
                link.resend = Some(resend);
            }
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
            sending_time: self.now.utc,
            orig_sending_time: Some(self.now.utc),
        }));
    }
}
