//! From the first message to an agreed session.
//!
//! No state of the session changes before the driver has authenticated the peer: an unauthenticated Logon with
//! ResetSeqNumFlag(141) must cost nothing.

use std::time::Duration;

use crate::{
    SeqNum, UtcNanos,
    codec::{MessageRef, MsgType},
    tag::{self, Tag},
};

use super::{
    Credentials, Link, Output, Session, SessionConfig, State, Violation, config::HEARTBEAT_MAX, gap, resend,
};

/// What is wrong with a Logon. Only an authenticated peer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogonFault {
    #[error("no Logon(A) of this session")]
    NotOfSession,
    #[error("MsgSeqNum(34) must be a number from 1 on")]
    SeqNum,
    /// By the dictionary. Without a tag it is about the whole message.
    #[error("tag {tag}: {text}")]
    Field { tag: Tag, text: &'static str },
    #[error("SendingTime(52) is more than {} seconds from our clock", .0.as_secs())]
    SendingTime(Duration),
    #[error("EncryptMethod(98) must be 0")]
    EncryptMethod,
    #[error("HeartBtInt(108) must be 0 to {}", HEARTBEAT_MAX.as_secs())]
    HeartBtInt,
    #[error("DefaultApplVerID(1137) is not the session's")]
    Version,
    #[error("ResetSeqNumFlag(141)=Y is not agreed for this session")]
    ResetNotAgreed,
    #[error("ResetSeqNumFlag(141)=Y needs MsgSeqNum(34) 1")]
    ResetNumber,
}

impl SessionConfig {
    /// Checks everything about a Logon but the credentials and the numbers.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_logon(&self, message: MessageRef<'_>, now: UtcNanos) -> Result<(), LogonFault> {
        let is_of_session = message.msg_type() == b"A"
            && message.begin_string() == self.begin_string.as_bytes()
            && message.get(tag::SENDER_COMP_ID) == Some(self.target_comp_id.as_bytes())
            && message.get(tag::TARGET_COMP_ID) == Some(self.sender_comp_id.as_bytes());
        let demand = |is_so: bool, fault: LogonFault| if is_so { Ok(()) } else { Err(fault) };
        demand(is_of_session, LogonFault::NotOfSession)?;
        demand(message.seq().is_some_and(|seq| seq >= SeqNum::FIRST), LogonFault::SeqNum)?;
        self.rules.check(message).map_err(|fault| LogonFault::Field {
            text: fault.text(),
            tag: fault.tag.and_then(|tag| tag.parse().ok()).unwrap_or(0),
        })?;
        demand(self.is_recent(message, now), LogonFault::SendingTime(self.max_latency))?;
        demand(message.get(tag::ENCRYPT_METHOD) == Some(b"0"), LogonFault::EncryptMethod)?;
        demand(heartbeat_of(message).is_some(), LogonFault::HeartBtInt)?;
        let version = message.get(tag::DEFAULT_APPL_VER_ID);
        let is_its_version = self.default_appl_ver_id.is_none()
            || version.is_some_and(|version| self.is_default_version(version));
        demand(is_its_version, LogonFault::Version)?;
        if message.is_yes(tag::RESET_SEQ_NUM_FLAG) {
            demand(self.reset_allowed, LogonFault::ResetNotAgreed)?;
            // FIX session protocol, "ResetSeqNumFlag".
            demand(message.seq() == Some(SeqNum::FIRST), LogonFault::ResetNumber)?;
        }
        Ok(())
    }

    /// Is SendingTime(52) as near to our clock as agreed?
    pub(super) fn is_recent(&self, message: MessageRef<'_>, now: UtcNanos) -> bool {
        let sent = message.get(tag::SENDING_TIME).and_then(UtcNanos::parse);
        sent.is_some_and(|sent| u128::from(sent.abs_diff(now)) <= self.max_latency.as_nanos())
    }
}

/// `None`: HeartBtInt(108) is negative or too large. `Some(ZERO)`: no heartbeats.
fn heartbeat_of(message: MessageRef<'_>) -> Option<Duration> {
    let seconds = SeqNum::parse(message.get(tag::HEART_BT_INT)?)?.0;
    Some(Duration::from_secs(seconds)).filter(|interval| *interval <= HEARTBEAT_MAX)
}

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
        self.config.check_logon(message, self.now.utc).is_ok()
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
        let (Some(seq), Some(heartbeat)) = (logon.seq(), heartbeat_of(logon)) else {
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
            .maybe(tag::MAX_MESSAGE_SIZE, self.config.max_message_size.map(|most| most.to_string()))
            .maybe(tag::NEXT_EXPECTED_MSG_SEQ_NUM, expected)
            .maybe(tag::DEFAULT_APPL_VER_ID, logon.get(tag::DEFAULT_APPL_VER_ID));
        self.emit(MsgType::LOGON, body)
    }
}
