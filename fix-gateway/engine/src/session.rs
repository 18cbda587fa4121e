//! A FIX session as a state machine without IO.
//!
//! ```text
//! Idle ──connect──> AwaitingLogon ──Logon──> Authenticating ──yes──> LoggedOn ──we log out──> LoggingOut
//!   ^                     │                        │  ^                 │  │                       │
//!   │<────────────────────┴───────────no───────────┘  └─Logon, 141=Y ───┘  │                       │
//!   └<──────────────────────── Disconnect / disconnected() ────────────────┴───────────────────────┘
//! ```
//!
//! The driver reads both clocks once a turn, passes events in (`handle_…`), and then carries out the
//! [`Output`]s in the order given, stopping at the first it cannot carry out. Invariants:
//!
//! - [`Output::Persist`] precedes the [`Output::Transmit`] that depends on it, so a crash costs a resend and never
//!   lets one number stand for two messages;
//! - nothing changes, no number and no store, before the peer is authenticated;
//! - a gap is requested once; messages beyond it wait in a bounded queue;
//! - every [`Output::Authenticate`] and [`Output::Fetch`] is answered before the next message is handed in;
//! - a reset keeps the messages that the peer has not received, under new numbers ([`Session::handle_kept`]).

mod calendar;
mod config;
mod gap;
mod inbound;
mod logon;
mod output;
mod resend;
mod supervision;
mod timers;
mod violation;

use std::{collections::VecDeque, sync::Arc, time::Instant};

pub use config::SessionConfig;
pub use inbound::{Discarded, business_reject, reversed_route};
pub use logon::LogonFault;
pub use output::{Credentials, Output, ResendSlice, Stored, Transmit};
pub use violation::{Violation, WireResponse};

use crate::{
    SeqNum, Stamp, UtcNanos,
    codec::{Body, Head, Message, MsgType, encode},
    tag,
};

/// The clocks, read once by the driver per turn.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For timers.
    pub mono: Instant,
    /// For SendingTime(52).
    pub utc: UtcNanos,
    /// For the session's schedule: `utc`, unless a sandbox is ahead of it.
    pub calendar: UtcNanos,
}

impl Now {
    /// Both clocks, and no sandbox that is ahead.
    pub const fn of(mono: Instant, utc: UtcNanos) -> Self {
        Self { mono, utc, calendar: utc }
    }
}

/// Buffers kept for the bodies of messages to come.
const SPARE_MAX: usize = 64;
/// A buffer that held more than this is not kept.
const SPARE_BYTES_MAX: usize = 4096;

/// The peer is not logged on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not logged on")]
pub struct NotLoggedOn;

/// Why an application message cannot be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("not logged on")]
    NotLoggedOn,
    /// Too much waits behind a resend already.
    #[error("a resend is under way")]
    Resending,
}

/// The values of SessionStatus(1409) that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    LogoutComplete = 4,
}

/// One session: its numbers, and the connection when there is one.
#[derive(Debug)]
pub struct Session {
    config: Arc<SessionConfig>,
    next_in: SeqNum,
    next_out: SeqNum,
    /// The durable part of `next_in`: the limit of LastMsgSeqNumProcessed(369).
    durable_in: SeqNum,
    state: State,
    outputs: VecDeque<Output>,
    /// When the latest event was handed in.
    now: Now,
    calendar: calendar::Calendar,
    /// Bodies whose buffers are used again.
    spare: Vec<Body>,
}

#[derive(Debug)]
enum State {
    Idle,
    AwaitingLogon,
    /// The driver is authenticating this Logon. `link` is the session to reset, if the Logon came inside one.
    Authenticating {
        logon: Box<Message>,
        link: Option<Box<Link>>,
    },
    /// Both numbers restart with this Logon. It is answered once the driver has given the number of kept messages.
    Resetting {
        logon: Box<Message>,
        kept: u64,
    },
    LoggedOn(Box<Link>),
    /// Our Logout is out; the peer has until `deadline` to answer.
    LoggingOut {
        link: Box<Link>,
        deadline: Instant,
    },
}

/// The state between Logon and the end of the connection.
#[derive(Debug)]
struct Link {
    /// HeartBtInt(108); `None` is 0: no heartbeats.
    heartbeat: Option<std::time::Duration>,
    last_sent: Instant,
    last_received: Instant,
    test_request_is_out: bool,
    gap: Option<gap::Gap>,
    queue: gap::Queue,
    resends: resend::Resends,
}

impl Session {
    /// A session that goes on where `next_in` and `next_out` left off.
    pub fn new(config: Arc<SessionConfig>, now: Now, next_in: SeqNum, next_out: SeqNum) -> Self {
        let calendar = calendar::Calendar::new(&config.schedule, now);
        Self {
            config,
            next_in,
            next_out,
            durable_in: next_in,
            state: State::Idle,
            outputs: VecDeque::new(),
            now,
            calendar,
            spare: Vec::new(),
        }
    }

    /// The number that the peer's next message must have.
    pub const fn next_in(&self) -> SeqNum {
        self.next_in
    }

    /// Everything before `next_in` is durable, with all its effects. A peer may discard messages that it is notified of
    /// as processed.
    pub const fn note_durable(&mut self, next_in: SeqNum) {
        self.durable_in = next_in;
    }

    /// The number that our next message will have.
    pub const fn next_out(&self) -> SeqNum {
        self.next_out
    }

    /// May application messages be transmitted?
    pub const fn is_logged_on(&self) -> bool {
        matches!(self.state, State::LoggedOn(_))
    }

    /// Is there a connection, in any state?
    pub const fn is_connected(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// A connection was made for this session. Its first message must be a Logon.
    pub fn connect(&mut self, now: Now) {
        self.now = now;
        self.outputs.clear();
        self.state = State::AwaitingLogon;
    }

    /// The connection has ended, on either side.
    pub fn disconnected(&mut self) {
        self.state = State::Idle;
        self.outputs.clear();
        self.look_at_schedule_soon();
    }

    /// A frame arrived that is no message. In a session it is ignored, FIX 4.4 volume 2, "Message integrity": its
    /// number is not used up, so the gap shows with the next message. Before Logon the connection is closed.
    pub fn handle_garbled(&mut self, now: Now) {
        self.now = now;
        if matches!(self.state, State::AwaitingLogon) {
            self.hang_up();
        }
    }

    /// Takes the next output. Queued messages whose turn has come are processed here, one at a time, so that the
    /// driver's effects of one precede the session's output about the next.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if !self.agree_after_reset() && !self.request_next_chunk() && !self.process_queued() {
                return None;
            }
        }
    }

    /// Sends an application message of our own accord.
    pub fn send(&mut self, now: Now, msg_type: MsgType, body: Body) -> Result<SeqNum, SendError> {
        if !self.is_logged_on() {
            return Err(SendError::NotLoggedOn);
        }
        if !self.has_room() {
            return Err(SendError::Resending);
        }
        self.now = now;
        Ok(self.emit(msg_type, body))
    }

    /// Takes the next outbound number for a message whose content is not known yet, or that is stored because the
    /// peer is not logged on. The driver persists the number together with the message.
    pub fn reserve(&mut self) -> SeqNum {
        let seq = self.next_out;
        self.next_out = seq.next();
        seq
    }

    /// The driver's answer to [`Output::Reset`]: the number of messages kept under the numbers from `first_kept` on.
    /// Without a call none is kept.
    pub fn handle_kept(&mut self, messages: u64) {
        match &mut self.state {
            State::Resetting { kept, .. } => *kept = messages,
            State::Idle
            | State::AwaitingLogon
            | State::Authenticating { .. }
            | State::LoggedOn(_)
            | State::LoggingOut { .. } => {
                self.next_out = SeqNum(SeqNum::FIRST.0.saturating_add(messages));
            }
        }
    }

    /// An operator has set the numbers while the peer was not connected.
    pub fn set_numbers(&mut self, next_in: SeqNum, next_out: SeqNum) {
        (self.next_in, self.next_out, self.durable_in) = (next_in, next_out, next_in);
    }

    /// Requests the end of the session from the peer.
    pub fn log_out(&mut self, now: Now, text: &str) -> Result<(), NotLoggedOn> {
        if !self.is_logged_on() {
            return Err(NotLoggedOn);
        }
        self.now = now;
        self.begin_logout(Some(text), Some(Status::LogoutComplete));
        Ok(())
    }

    /// Writes the message as it goes over the wire, appending to `out`. Called when it is about to be written:
    /// heartbeats are counted from here.
    pub fn encode(&mut self, now: Now, message: &Transmit, out: &mut Vec<u8>) {
        if let Some(link) = self.link_mut() {
            link.last_sent = now.mono;
        }
        let head = Head {
            begin_string: &self.config.begin_string,
            msg_type: message.msg_type,
            seq: message.seq,
            sender_comp_id: &self.config.sender_comp_id,
            target_comp_id: &self.config.target_comp_id,
            sending_time: message.sending_time,
            orig_sending_time: message.orig_sending_time,
            last_processed: self.config.last_msg_seq_num_processed.then(|| self.durable_in.previous()),
        };
        let encoded = self.config.rules.encoding.encoded(&message.body);
        encode(&head, encoded.as_ref().unwrap_or(&message.body), out);
    }

    /// An empty body, with the buffer of one that was given back if there is one.
    pub fn body(&mut self) -> Body {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back the body of a message that was encoded.
    pub fn recycle(&mut self, mut body: Body) {
        if self.spare.len() < SPARE_MAX && body.as_bytes().len() <= SPARE_BYTES_MAX {
            body.clear();
            self.spare.push(body);
        }
    }

    fn link(&self) -> Option<&Link> {
        match &self.state {
            State::LoggedOn(link) | State::LoggingOut { link, .. } => Some(link),
            State::Authenticating { link, .. } => link.as_deref(),
            State::Idle | State::AwaitingLogon | State::Resetting { .. } => None,
        }
    }

    fn link_mut(&mut self) -> Option<&mut Link> {
        Self::link_of(&mut self.state)
    }

    fn link_of(state: &mut State) -> Option<&mut Link> {
        match state {
            State::LoggedOn(link) | State::LoggingOut { link, .. } => Some(link),
            State::Authenticating { link, .. } => link.as_deref_mut(),
            State::Idle | State::AwaitingLogon | State::Resetting { .. } => None,
        }
    }

    /// Numbers a message and puts it out.
    fn emit(&mut self, msg_type: MsgType, body: Body) -> SeqNum {
        let seq = self.reserve();
        self.persist();
        let sent = self.now.mono;
        if let Some(link) = self.link_mut() {
            // Counted from now on already, so that a timer in the same turn does not send it again.
            link.last_sent = link.last_sent.max(sent);
        }
        let sending_time = self.stamp();
        self.put_out(Transmit { seq, msg_type, body, sending_time, orig_sending_time: None });
        seq
    }

    /// Now, as the session's messages have it.
    fn stamp(&self) -> Stamp {
        self.stamp_of(self.now.utc)
    }

    /// A time, as the session's messages have it.
    pub fn stamp_of(&self, time: UtcNanos) -> Stamp {
        Stamp { time, precision: self.config.time_precision }
    }

    fn persist(&mut self) {
        self.outputs.push_back(Output::Persist { next_in: self.next_in, next_out: self.next_out });
    }

    fn logout_body(&mut self, text: Option<&str>, status: Option<Status>) -> Body {
        let status = status.filter(|_| self.config.session_status && self.config.is_fixt());
        let body = self.body().maybe(tag::TEXT, text);
        match status {
            Some(status) => body.number(tag::SESSION_STATUS, u64::from(status as u8)),
            None => body,
        }
    }

    fn begin_logout(&mut self, text: Option<&str>, status: Option<Status>) {
        if matches!(self.state, State::LoggingOut { .. }) {
            // Sent once; the deadline stands.
            return;
        }
        let body = self.logout_body(text, status);
        self.emit(MsgType::LOGOUT, body);
        let deadline = self.now.mono + config::LOGOUT_TIMEOUT;
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::LoggedOn(link) => State::LoggingOut { link, deadline },
            other @ (State::Idle
            | State::AwaitingLogon
            | State::Authenticating { .. }
            | State::Resetting { .. }
            | State::LoggingOut { .. }) => other,
        };
    }

    fn hang_up(&mut self) {
        self.release_held();
        self.state = State::Idle;
        self.outputs.push_back(Output::Disconnect);
        self.look_at_schedule_soon();
    }
}
