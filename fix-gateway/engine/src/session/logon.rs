//! From the first message to an agreed session.
//!
//! No state of the session changes before the driver has authenticated the peer: an unauthenticated Logon with
//! ResetSeqNumFlag(141) must cost nothing.

use std::time::Duration;

use crate::{
    SeqNum,
    codec::{MessageRef, MsgType},
    tag,
};

use super::{Credentials, Link, Output, Session, State, Violation, config::HEARTBEAT_MAX, gap, resend};

impl Session {
    /// Looks at the first message of a connection.
    pub(super) fn first_message(&mut self, message: MessageRef<'_>) {
        self.keep_schedule();
        if self.is_open() && self.is_proper_logon(message) {
            self.ask_who_it_is(message, None);
        } else {
            self.respond(message, Violation::NoProperLogon);
        }
    }

    /// A Logon inside a session: it may request a reset of both numbers and nothing else.
    pub(super) fn logon_in_session(&mut self, message: MessageRef<'_>) {
        let reset = message.is_yes(tag::RESET_SEQ_NUM_FLAG);
        match std::mem::replace(&mut self.state, State::Idle) {
            State::LoggedOn(link) if reset && self.is_proper_logon(message) => {
                self.ask_who_it_is(message, Some(link));
            }
            other => {
                self.state = other;
                self.respond(message, Violation::UnexpectedLogon);
            }
        }
    }

    /// The driver's answer to [`Output::Authenticate`].
    pub fn handle_authentication(&mut self, now: super::Now, is_genuine: bool) {
        self.now = now;
        let State::Authenticating { logon, .. } = std::mem::replace(&mut self.state, State::AwaitingLogon)
        else {
            return;
        };
        if is_genuine {
            self.agree(logon.view());
        } else {
            self.respond(logon.view(), Violation::NotAuthenticated);
        }
    }

    fn is_proper_logon(&self, message: MessageRef<'_>) -> bool {
        let config = &self.config;
        message.msg_type() == b"A"
            && message.begin_string() == config.begin_string.as_bytes()
            && message.get(tag::SENDER_COMP_ID) == Some(config.target_comp_id.as_bytes())
            && message.get(tag::TARGET_COMP_ID) == Some(config.sender_comp_id.as_bytes())
            && message.seq().is_some_and(|seq| seq >= SeqNum::FIRST)
            && config.rules.check(message).is_ok()
            && self.is_recent(message)
            && message.get(tag::ENCRYPT_METHOD) == Some(b"0")
            && Self::heartbeat_of(message).is_some()
            && (config.default_appl_ver_id.is_none()
                || message
                    .get(tag::DEFAULT_APPL_VER_ID)
                    .is_some_and(|version| config.is_default_version(version)))
            && self.is_reset_acceptable(message)
    }

    /// FIX session protocol, "ResetSeqNumFlag": such a Logon has MsgSeqNum(34) 1.
    fn is_reset_acceptable(&self, message: MessageRef<'_>) -> bool {
        !message.is_yes(tag::RESET_SEQ_NUM_FLAG)
            || (self.config.reset_allowed && message.seq() == Some(SeqNum::FIRST))
    }

    /// `None`: HeartBtInt(108) is negative or too large. `Some(ZERO)`: no heartbeats.
    fn heartbeat_of(message: MessageRef<'_>) -> Option<Duration> {
        let seconds = SeqNum::parse(message.get(tag::HEART_BT_INT)?)?.0;
        Some(Duration::from_secs(seconds)).filter(|interval| *interval <= HEARTBEAT_MAX)
    }

    fn ask_who_it_is(&mut self, logon: MessageRef<'_>, link: Option<Box<Link>>) {
        let text = |tag| logon.text(tag).map(str::to_owned);
        self.outputs.push_back(Output::Authenticate(Credentials {
            username: text(tag::USERNAME),
            password: text(tag::PASSWORD).or_else(|| text(tag::RAW_DATA)),
        }));
        self.state = State::Authenticating { logon: Box::new(logon.to_owned()), link };
    }

    fn agree(&mut self, logon: MessageRef<'_>) {
        if logon.is_yes(tag::RESET_SEQ_NUM_FLAG) || self.config.reset_on_logon {
            self.next_in = SeqNum::FIRST;
            self.next_out = SeqNum::FIRST;
            self.state = State::Resetting { logon: Box::new(logon.to_owned()), kept: 0 };
            // The number before is our Logon's.
            self.outputs.push_back(Output::Reset { first_kept: SeqNum::FIRST.next() });
        } else {
            self.agree_on(logon, None);
        }
    }

    /// Goes on with a Logon that the numbers begin anew with, if there is one.
    pub(super) fn agree_after_reset(&mut self) -> bool {
        if !matches!(self.state, State::Resetting { .. }) {
            return false;
        }
        if let State::Resetting { logon, kept } = std::mem::replace(&mut self.state, State::AwaitingLogon) {
            self.agree_on(logon.view(), Some(kept));
        }
        true
    }

    /// `kept`: the numbers were reset, and this number of messages is kept under new ones.
    fn agree_on(&mut self, logon: MessageRef<'_>, kept: Option<u64>) {
        let (Some(seq), Some(heartbeat)) = (logon.seq(), Self::heartbeat_of(logon)) else {
            return self.respond(logon, Violation::NoProperLogon);
        };
        let reset = logon.is_yes(tag::RESET_SEQ_NUM_FLAG);
        self.state = State::LoggedOn(Box::new(Link {
            heartbeat: Some(heartbeat).filter(|interval| !interval.is_zero()),
            last_sent: self.now.mono,
            last_received: self.now.mono,
            test_request_is_out: false,
            gap: None,
            queue: gap::Queue::default(),
            resends: resend::Resends::default(),
        }));
        if seq < self.next_in {
            // A Logon cannot be a duplicate worth ignoring: without an answer there would be no session.
            return self.respond(logon, Violation::SeqTooLow { expected: self.next_in, received: seq });
        }
        // After a reset that the peer does not know of, its expected number has no meaning.
        let peer_expects = self.expected_by(logon).filter(|_| kept.is_none());
        if let Some(received) = peer_expects.filter(|received| *received > self.next_out) {
            let expected = self.next_out;
            return self.respond(logon, Violation::NextExpectedTooHigh { expected, received });
        }
        let is_next = seq == self.next_in;
        if is_next {
            self.next_in = seq.next();
        }
        let answer = self.acknowledge(logon, reset);
        self.send_kept(kept.unwrap_or(0));
        if !is_next {
            self.count_when_due(seq);
            // FIX 4.4 volume 2, "Logon": answer it first, then request the missing messages. A peer that
            // processes NextExpectedMsgSeqNum(789) needs no request.
            if self.expected_by(logon).is_some() {
                self.await_gap(seq);
            } else {
                self.request_gap(seq);
            }
        }
        if let Some(begin) = peer_expects.filter(|begin| *begin < answer) {
            self.resend((begin.max(SeqNum::FIRST), answer));
        }
        self.outputs.push_back(Output::LoggedOn);
    }

    /// NextExpectedMsgSeqNum(789), where both sides process it.
    fn expected_by(&self, logon: MessageRef<'_>) -> Option<SeqNum> {
        let said = || logon.get(tag::NEXT_EXPECTED_MSG_SEQ_NUM).and_then(SeqNum::parse);
        if self.config.says_next_expected() { said() } else { None }
    }

    fn acknowledge(&mut self, logon: MessageRef<'_>, reset: bool) -> SeqNum {
        let expected = self.config.says_next_expected().then(|| self.next_in.to_string());
        let body = self
            .body()
            .field(tag::ENCRYPT_METHOD, "0")
            .maybe(tag::HEART_BT_INT, logon.get(tag::HEART_BT_INT))
            .maybe(tag::RESET_SEQ_NUM_FLAG, reset.then_some("Y"))
            .maybe(tag::NEXT_EXPECTED_MSG_SEQ_NUM, expected)
            .maybe(tag::DEFAULT_APPL_VER_ID, logon.get(tag::DEFAULT_APPL_VER_ID));
        self.emit(MsgType::LOGON, body)
    }
}
