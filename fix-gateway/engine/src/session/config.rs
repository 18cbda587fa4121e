//! The configuration agreed with a counterparty.

use std::time::Duration;

use crate::{Precision, codec::MsgType, dictionary::Rules, schedule::Schedule};

/// How long we wait for the answer to our Logout.
pub(super) const LOGOUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Silence, in thousandths of HeartBtInt(108), after which a TestRequest goes out.
pub(super) const TEST_REQUEST_AFTER_PERMILLE: u32 = 1200;
/// Silence, in thousandths of HeartBtInt(108), after which the connection is given up.
pub(super) const GIVE_UP_AFTER_PERMILLE: u32 = 2400;
/// The longest HeartBtInt(108) that is accepted.
pub(super) const HEARTBEAT_MAX: Duration = Duration::from_secs(3600);
/// A gap without progress for this time ends the session.
pub(super) const GAP_PATIENCE: Duration = Duration::from_secs(60);
/// How often the same missing message is requested before the session ends, by us and by the peer.
pub(super) const SAME_REQUEST_MAX: u32 = 3;

#[derive(Debug, Clone)]
pub struct SessionConfig {
    pub begin_string: String,
    /// Ours: SenderCompID(49) of our messages.
    pub sender_comp_id: String,
    /// The peer's.
    pub target_comp_id: String,
    /// DefaultApplVerID(1137) of a FIXT session.
    pub default_appl_ver_id: Option<String>,
    pub rules: Rules,
    /// When there is a session. Both numbers begin at 1 when a window of the schedule begins.
    pub schedule: Schedule,
    /// Both numbers begin at 1 with every Logon, whether it asks for that or not.
    pub reset_on_logon: bool,
    /// May the peer ask for a reset by ResetSeqNumFlag(141)? If not, such a Logon is refused.
    pub reset_allowed: bool,
    /// How far SendingTime(52) may be from our clock, either way.
    pub max_latency: Duration,
    /// Messages kept while a gap is open; messages beyond this number are requested again later.
    pub queue_max: usize,
    /// Bytes of such messages.
    pub queue_bytes_max: usize,
    /// A ResendRequest(2) equal to the one before is ignored when it comes within this time of it, or while that is
    /// still being answered. Zero answers every one.
    pub same_request_window: Duration,
    /// Messages in one ResendRequest(2); `None` requests all.
    pub resend_request_chunk: Option<u64>,
    /// Stored messages taken at once while answering a ResendRequest.
    pub resend_slice: usize,
    /// Types that are stale by the time they would be sent again: a resend passes over them.
    pub never_resent: &'static [MsgType],
    /// Messages of ours that wait behind a resend; beyond that, application messages are refused and session
    /// messages left to the next resend.
    pub held_max: usize,
    /// Send LastMsgSeqNumProcessed(369) in every message?
    pub last_msg_seq_num_processed: bool,
    /// Send and process NextExpectedMsgSeqNum(789) in Logons? Not before FIX 4.4: earlier versions lack the field.
    pub next_expected_msg_seq_num: bool,
    /// The longest message that the driver takes, sent as MaxMessageSize(383) in our Logon.
    pub max_message_size: Option<usize>,
    /// The fraction of a second of the timestamps that are sent.
    pub time_precision: Precision,
    /// Send SessionStatus(1409) in Logouts? Not before FIXT.1.1: earlier versions lack the field.
    pub session_status: bool,
}

impl SessionConfig {
    /// Common rules for a pair of CompIDs: 120 s of latency, no schedule.
    pub fn new(begin_string: &str, sender_comp_id: &str, target_comp_id: &str, rules: Rules) -> Self {
        Self {
            begin_string: begin_string.to_owned(),
            sender_comp_id: sender_comp_id.to_owned(),
            target_comp_id: target_comp_id.to_owned(),
            default_appl_ver_id: None,
            rules,
            schedule: Schedule::CONTINUOUS,
            reset_on_logon: false,
            reset_allowed: true,
            max_latency: Duration::from_secs(120),
            queue_max: 4096,
            queue_bytes_max: 4 * 1024 * 1024,
            same_request_window: Duration::ZERO,
            resend_request_chunk: None,
            resend_slice: 256,
            never_resent: &[],
            held_max: 4096,
            last_msg_seq_num_processed: false,
            next_expected_msg_seq_num: false,
            max_message_size: None,
            time_precision: Precision::Millis,
            session_status: false,
        }
    }

    /// `FIX.4.4:DVP->ACME`.
    pub fn session_id(&self) -> String {
        format!("{}:{}->{}", self.begin_string, self.sender_comp_id, self.target_comp_id)
    }

    pub(super) fn is_42(&self) -> bool {
        self.begin_string == "FIX.4.2"
    }

    pub(super) fn is_fixt(&self) -> bool {
        self.begin_string.starts_with("FIXT")
    }

    /// Is this the version of the session's application messages?
    pub(super) fn is_default_version(&self, version: &[u8]) -> bool {
        self.default_appl_ver_id.as_ref().is_some_and(|default| default.as_bytes() == version)
    }

    /// Do both sides' Logons carry NextExpectedMsgSeqNum(789)?
    pub(super) fn says_next_expected(&self) -> bool {
        self.next_expected_msg_seq_num && !self.is_42()
    }
}
