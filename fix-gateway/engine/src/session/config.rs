//! What is agreed with a counterparty before the first byte.

use std::time::Duration;

use crate::dictionary::Rules;

/// One session's rules of engagement.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    pub begin_string: String,
    /// Ours: SenderCompID(49) of what we send.
    pub sender_comp_id: String,
    /// The peer's.
    pub target_comp_id: String,
    /// DefaultApplVerID(1137) of a FIXT session.
    pub default_appl_ver_id: Option<String>,
    pub rules: Rules,
    /// Both numbers begin at 1 with every Logon.
    pub reset_on_logon: bool,
    /// May the peer ask for a reset by ResetSeqNumFlag(141)?
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
    /// Messages kept while a gap is open; what comes beyond is asked for again later.
    pub queue_max: usize,
    /// Messages asked for at once; `None` asks for all.
    pub resend_request_chunk: Option<u64>,
    /// Stored messages taken at once while answering a ResendRequest.
    pub resend_slice: u64,
    /// Say LastMsgSeqNumProcessed(369) in every message?
    pub last_msg_seq_num_processed: bool,
    pub texts: Texts,
}

/// What we say in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texts {
    /// TestReqID(112) of our TestRequests.
    pub test_request_id: &'static str,
}

impl Texts {
    /// The words most engines use, and counterparties' tools know.
    pub const COMMON: Self = Self { test_request_id: "TEST" };
}

impl SessionConfig {
    /// Common rules for a pair of CompIDs: 120 s of latency, a TestRequest after 1.2 heartbeats of silence, the end
    /// after 2.4.
    pub fn new(begin_string: &str, sender_comp_id: &str, target_comp_id: &str, rules: Rules) -> Self {
        Self {
            begin_string: begin_string.to_owned(),
            sender_comp_id: sender_comp_id.to_owned(),
            target_comp_id: target_comp_id.to_owned(),
            default_appl_ver_id: None,
            rules,
            reset_on_logon: false,
            reset_allowed: true,
            max_latency: Duration::from_secs(120),
            logout_timeout: Duration::from_secs(2),
            test_request_after_permille: 1200,
            give_up_after_permille: 2400,
            heartbeat_max: Duration::from_secs(3600),
            queue_max: 4096,
            resend_request_chunk: None,
            resend_slice: 256,
            last_msg_seq_num_processed: false,
            texts: Texts::COMMON,
        }
    }

    /// `FIX.4.4:DVP->ACME`.
    pub fn session_id(&self) -> String {
        format!("{}:{}->{}", self.begin_string, self.sender_comp_id, self.target_comp_id)
    }
}
