//! Messages inside a session.
//!
//! Order of checks: sequence number present, CompIDs present, BeginString, dictionary, SendingTime, CompIDs right,
//! then the number itself. A number too high queues the message and requests the gap; one too low ends the session
//! unless the message is marked as a possible duplicate.

use crate::{
    SeqNum, UtcNanos,
    codec::{Body, MessageRef, MsgType, SOH},
    dictionary::{Fault, RejectReason},
    tag::{self, Tag},
};

use super::{Now, Output, Session, State, Status, Violation, WireResponse};

/// What is known of a message that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discarded {
    pub msg_type: String,
    pub seq: SeqNum,
}

impl Discarded {
    /// By the first bytes of its frame.
    pub fn of(head: &[u8]) -> Option<Self> {
        let value = |name: &[u8]| {
            // The last field may be cut.
            let fields = head.split(|byte| *byte == SOH);
            let whole = fields.take(head.iter().filter(|byte| **byte == SOH).count());
            whole.filter_map(|field| field.strip_prefix(name)).next()
        };
        let msg_type =
            value(b"35=").filter(|kind| kind.len() <= 3 && kind.iter().all(u8::is_ascii_graphic))?;
        let msg_type = String::from_utf8_lossy(msg_type).into_owned();
        Some(Self { msg_type, seq: SeqNum::parse(value(b"34=")?)? })
    }
}

/// A number compared with the expected one.
enum Turn {
    Next,
    Early,
    Late,
}

impl Session {
    /// A message arrived.
    pub fn handle_message(&mut self, now: Now, message: MessageRef<'_>) {
        self.now = now;
        match self.state {
            State::Idle => {}
            State::AwaitingLogon => self.first_message(message),
            // The driver broke its contract, or the peer sent before its authentication: end the connection.
            State::Authenticating { .. } | State::Resetting { .. } => self.hang_up(),
            State::LoggedOn(_) | State::LoggingOut { .. } => {
                if let Some(link) = self.link_mut() {
                    link.last_received = now.mono;
                    link.test_request_is_out = false;
                }
                self.in_session(message);
            }
        }
    }

    /// A message of more than MaxMessageSize(383) was discarded. In its turn its number is used up, and it gets a Reject;
    /// otherwise it is as if it had not come.
    pub fn handle_discarded(&mut self, now: Now, discarded: &Discarded) {
        self.now = now;
        if !self.is_logged_on() || discarded.seq != self.next_in {
            return self.handle_garbled(now);
        }
        self.next_in = discarded.seq.next();
        self.note_progress(discarded.seq);
        // Other. FIX 4.2 has no number for it.
        let reason = (!self.config.is_42()).then_some("99");
        let most = self.config.max_message_size.unwrap_or_default();
        let body = self
            .body()
            .field(tag::REF_SEQ_NUM, discarded.seq.to_string())
            .field(tag::TEXT, format!("the message is longer than {most} bytes, MaxMessageSize(383)"))
            .field(tag::REF_MSG_TYPE, &discarded.msg_type)
            .maybe(tag::SESSION_REJECT_REASON, reason);
        self.emit(MsgType::REJECT, body);
    }

    fn in_session(&mut self, message: MessageRef<'_>) {
        let Some(seq) = message.seq() else { return self.respond(message, Violation::NoSeqNum) };
        if let Err(violation) = self.check_stateless(message) {
            return self.respond(message, violation);
        }
        match message.msg_type() {
            // Received before, like any other duplicate.
            b"A" if message.is_yes(tag::POSS_DUP_FLAG) && seq < self.next_in => self.too_low(message, seq),
            b"A" => self.logon_in_session(message),
            b"5" => self.logout(seq),
            b"2" => self.resend_request(message, seq),
            b"4" if !message.is_yes(tag::GAP_FILL_FLAG) => self.sequence_reset(message),
            _ => match self.turn(seq) {
                Turn::Next => {
                    if self.process(message, seq) {
                        self.outputs.push_back(Output::Deliver { seq, queued: None });
                    }
                }
                // A Reject is never held back: it may be about the very request that would fill the gap.
                Turn::Early if message.msg_type() == b"3" => self.done_early(seq),
                Turn::Early => self.too_high(message, seq),
                Turn::Late => self.too_low(message, seq),
            },
        }
    }

    fn check_stateless(&self, message: MessageRef<'_>) -> Result<(), Violation> {
        for tag in [tag::SENDER_COMP_ID, tag::TARGET_COMP_ID] {
            if message.get(tag).is_none() {
                return Err(Violation::CompIdMissing { tag });
            }
        }
        if message.begin_string() != self.config.begin_string.as_bytes() {
            // A Logout is processed with any BeginString.
            return if message.msg_type() == b"5" { Ok(()) } else { Err(Violation::IncorrectBeginString) };
        }
        self.config.rules.check(message).map_err(Violation::Malformed)?;
        if !self.config.is_recent(message, self.now.utc) {
            return Err(Violation::SendingTimeOff);
        }
        let config = &self.config;
        if message.get(tag::SENDER_COMP_ID) != Some(config.target_comp_id.as_bytes())
            || message.get(tag::TARGET_COMP_ID) != Some(config.sender_comp_id.as_bytes())
        {
            return Err(Violation::CompIdWrong);
        }
        let is_other = |version: &[u8]| !config.is_default_version(version);
        if config.is_fixt() && message.get(tag::APPL_VER_ID).is_some_and(is_other) {
            return Err(Violation::WrongApplVerId);
        }
        let time = |tag| message.get(tag).and_then(UtcNanos::parse);
        let is_possible_duplicate = message.is_yes(tag::POSS_DUP_FLAG);
        if is_possible_duplicate && time(tag::ORIG_SENDING_TIME) > time(tag::SENDING_TIME) {
            return Err(Violation::PossDupFromTheFuture);
        }
        Ok(())
    }

    fn turn(&self, seq: SeqNum) -> Turn {
        match seq.cmp(&self.next_in) {
            std::cmp::Ordering::Equal => Turn::Next,
            std::cmp::Ordering::Greater => Turn::Early,
            std::cmp::Ordering::Less => Turn::Late,
        }
    }

    /// Acts upon the message whose turn it is. `true` when it is for the application.
    pub(super) fn process(&mut self, message: MessageRef<'_>, seq: SeqNum) -> bool {
        if message.msg_type() == b"4" {
            self.gap_fill(message, seq);
            return false;
        }
        self.next_in = seq.next();
        self.note_progress(seq);
        match message.msg_type() {
            b"0" | b"3" => self.persist(),
            b"1" => {
                let body = self.body().maybe(tag::TEST_REQ_ID, message.get(tag::TEST_REQ_ID));
                self.emit(MsgType::HEARTBEAT, body);
            }
            _ => return true,
        }
        false
    }

    fn too_low(&mut self, message: MessageRef<'_>, seq: SeqNum) {
        if !message.is_yes(tag::POSS_DUP_FLAG) {
            return self.respond(message, Violation::SeqTooLow { expected: self.next_in, received: seq });
        }
        // Received before: nothing to do.
        if message.get(tag::ORIG_SENDING_TIME).is_none() && message.msg_type() != b"4" {
            self.respond(message, Violation::PossDupWithoutOrigSendingTime);
        }
    }

    /// A Logout is processed with any number.
    fn logout(&mut self, seq: SeqNum) {
        if seq == self.next_in {
            self.next_in = seq.next();
            self.persist();
        }
        if self.is_logged_on() {
            let body = self.logout_body(None, Some(Status::LogoutComplete));
            self.emit(MsgType::LOGOUT, body);
        }
        self.hang_up();
    }

    /// Answers a violation according to [`Violation::response`].
    pub(super) fn respond(&mut self, message: MessageRef<'_>, violation: Violation) {
        match violation.response() {
            WireResponse::Hangup => self.hang_up(),
            WireResponse::Reject(fault) => self.reject(message, &fault),
            WireResponse::RejectThenLogout(fault) => {
                self.reject(message, &fault);
                self.begin_logout(None, None);
            }
            WireResponse::Logout(text) => {
                self.count(message);
                self.persist();
                self.begin_logout(Some(&text), None);
            }
            WireResponse::LogoutThenHangup(text) => {
                let body = self.logout_body(Some(&text), None);
                self.emit(MsgType::LOGOUT, body);
                self.hang_up();
            }
        }
    }

    /// A message that is answered instead of acted upon uses up its number, when it is its turn.
    fn count(&mut self, message: MessageRef<'_>) {
        // A SequenceReset is about the numbers themselves: one that is refused changes none.
        if message.seq() == Some(self.next_in) && message.msg_type() != b"4" {
            self.next_in = self.next_in.next();
            self.note_progress(self.next_in.previous());
        }
    }

    /// A Reject or BusinessMessageReject is not answered with a Reject: two sides would go on for ever.
    fn reject(&mut self, message: MessageRef<'_>, fault: &Fault) {
        self.count(message);
        if matches!(message.msg_type(), b"3" | b"j") {
            return self.persist();
        }
        let seq = message.seq();
        let is_42 = self.config.is_42();
        let code = fault.reason.code();
        // FIX 4.2 knows reasons up to 11.
        let code = Some(code).filter(|code| !is_42 || *code <= RejectReason::InvalidMsgType.code());
        let mut body = reversed_route(message);
        if let Some(seq) = seq {
            body.push(tag::REF_SEQ_NUM, seq.to_string().as_bytes());
        }
        let body = body
            .field(tag::TEXT, fault.text())
            .maybe(tag::REF_TAG_ID, fault.tag.as_deref())
            .field(tag::REF_MSG_TYPE, message.msg_type())
            .maybe(tag::SESSION_REJECT_REASON, code.map(|code| code.to_string()));
        self.emit(MsgType::REJECT, body);
    }
}

/// The routing fields of an answer: back along the way the message came. Empty ones are left out.
pub fn reversed_route(message: MessageRef<'_>) -> Body {
    const PAIRS: [(Tag, Tag); 6] = [
        (tag::DELIVER_TO_COMP_ID, tag::ON_BEHALF_OF_COMP_ID),
        (tag::DELIVER_TO_SUB_ID, tag::ON_BEHALF_OF_SUB_ID),
        (tag::ON_BEHALF_OF_COMP_ID, tag::DELIVER_TO_COMP_ID),
        (tag::ON_BEHALF_OF_SUB_ID, tag::DELIVER_TO_SUB_ID),
        (tag::DELIVER_TO_LOCATION_ID, tag::ON_BEHALF_OF_LOCATION_ID),
        (tag::ON_BEHALF_OF_LOCATION_ID, tag::DELIVER_TO_LOCATION_ID),
    ];
    PAIRS.iter().fold(Body::new(), |body, (from, to)| {
        body.maybe(*to, message.get(*from).filter(|value| !value.is_empty()))
    })
}

/// The body of a BusinessMessageReject(j) of `message`. The routing fields belong to the header and precede
/// RefSeqNum(45).
pub fn business_reject(message: MessageRef<'_>, ref_id: Option<&str>, reason: u8, text: &str) -> Body {
    reversed_route(message)
        .maybe(tag::REF_SEQ_NUM, message.seq().map(|seq| seq.to_string()))
        .field(tag::TEXT, text)
        .field(tag::REF_MSG_TYPE, message.msg_type())
        .maybe(tag::BUSINESS_REJECT_REF_ID, ref_id)
        .field(tag::BUSINESS_REJECT_REASON, reason.to_string())
}
