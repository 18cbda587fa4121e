//! The configuration agreed with a counterparty.

use std::time::Duration;

use crate::{codec::MsgType, dictionary::Rules, schedule::Schedule};

/// One session's rules of engagement.
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
    /// How long we wait for the answer to our Logout.
    pub logout_timeout: Duration,
    /// Silence, in thousandths of HeartBtInt(108), after which a TestRequest goes out.
    pub test_request_after_permille: u32,
    /// Silence, in thousandths of HeartBtInt(108), after which the connection is given up.
    pub give_up_after_permille: u32,
    /// Longest HeartBtInt(108) that is taken.
    pub heartbeat_max: Duration,
    /// Messages kept while a gap is open; messages beyond this number are requested again later.
    pub queue_max: usize,
    /// Bytes of such messages.
    pub queue_bytes_max: usize,
    /// A gap without progress for this time ends the session.
    pub gap_patience: Duration,
    /// How often the same missing message is requested before the session ends, by us and by the peer.
    pub same_request_max: u32,
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
    /// Must a possible duplicate of a session message carry OrigSendingTime(122)? Some engines leave it out there.
    pub require_122_on_admin: bool,
    /// Send SessionStatus(1409) in Logouts? Not before FIXT.1.1: earlier versions lack the field.
    pub session_status: bool,
    pub texts: Texts,
}

/// The texts that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texts {
    /// TestReqID(112) of our TestRequests.
    pub test_request_id: &'static str,
    /// Text(58) of Logouts.
    pub incorrect_begin_string: &'static str,
    pub no_seq_num: &'static str,
    pub unexpected_logon: &'static str,
    /// A gap without progress, or that was requested too often.
    pub gap_given_up: &'static str,
    /// The peer requests the same messages repeatedly.
    pub same_request: &'static str,
    /// The schedule's window has ended.
    pub session_over: &'static str,
}

impl Texts {
    /// The texts that most engines use and counterparties' tools recognize.
    pub const COMMON: Self = Self {
        test_request_id: "TEST",
        incorrect_begin_string: "Incorrect BeginString",
        no_seq_num: "Received message without MsgSeqNum",
        unexpected_logon: "Unexpected Logon",
        gap_given_up: "Missing messages were not resent",
        same_request: "Same messages requested too often",
        session_over: "End of session",
    };
}

impl SessionConfig {
    /// Common rules for a pair of CompIDs: 120 s of latency, a TestRequest after 1.2 heartbeats of silence, the end
    /// after 2.4, no schedule.
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
            logout_timeout: Duration::from_secs(2),
            test_request_after_permille: 1200,
            give_up_after_permille: 2400,
            heartbeat_max: Duration::from_secs(3600),
            queue_max: 4096,
            queue_bytes_max: 4 * 1024 * 1024,
            gap_patience: Duration::from_secs(60),
            same_request_max: 3,
            same_request_window: Duration::ZERO,
            resend_request_chunk: None,
            resend_slice: 256,
            never_resent: &[],
            held_max: 4096,
            last_msg_seq_num_processed: false,
            next_expected_msg_seq_num: false,
            require_122_on_admin: true,
            session_status: false,
            texts: Texts::COMMON,
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
