//! The script of a test session, and what the message archive has of each of its steps.
//!
//! A step is done when its messages are there, whenever that was: the order of the steps is the script's, for people.
//! Nothing is read or written here.
//!
//! Kept by `fix-gateway/tests/it/certification.rs::a_peer_that_follows_the_script_passes_every_step`.

#[cfg(test)]
mod tests;

use chrono::{DateTime, Utc};
use dvp_store::fix::archive::ArchivedMessage;

use crate::orders::tags;

/// A message of the archive, with its fields.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: DateTime<Utc>,
    pub is_outbound: bool,
    pub seq: u64,
    pub msg_type: String,
    fields: Vec<(u32, String)>,
}

impl From<&ArchivedMessage> for Seen {
    fn from(message: &ArchivedMessage) -> Self {
        let pairs = message.content.split('|').filter_map(|pair| pair.split_once('='));
        let fields = pairs.filter_map(|(tag, value)| Some((tag.parse().ok()?, value.to_owned())));
        Self {
            at: message.at,
            is_outbound: message.is_outbound,
            seq: message.seq.and_then(|seq| u64::try_from(seq).ok()).unwrap_or_default(),
            msg_type: message.msg_type.clone(),
            fields: fields.collect(),
        }
    }
}

impl Seen {
    /// The first value of a field; empty without it.
    pub fn get(&self, tag: u32) -> &str {
        self.fields.iter().find(|(known, _)| *known == tag).map_or("", |(_, value)| value)
    }

    fn is(&self, is_outbound: bool, msg_type: &str) -> bool {
        self.is_outbound == is_outbound && self.msg_type == msg_type
    }

    fn number(&self, tag: u32) -> u64 {
        self.get(tag).parse().unwrap_or_default()
    }

    fn is_duplicate(&self) -> bool {
        self.get(POSS_DUP_FLAG) == "Y"
    }

    fn fills_gap(&self) -> bool {
        self.msg_type == SEQUENCE_RESET && self.get(GAP_FILL_FLAG) == "Y"
    }
}

const LOGON: &str = "A";
const LOGOUT: &str = "5";
const RESEND_REQUEST: &str = "2";
const SEQUENCE_RESET: &str = "4";
const ORDER: &str = "D";
const CANCEL: &str = "F";
const REPORT: &str = "8";
const CANCEL_REJECT: &str = "9";

const BEGIN_SEQ_NO: u32 = 7;
const END_SEQ_NO: u32 = 16;
const NEW_SEQ_NO: u32 = 36;
const POSS_DUP_FLAG: u32 = 43;
const GAP_FILL_FLAG: u32 = 123;
const RESET_SEQ_NUM_FLAG: u32 = 141;

/// What a peer does in the test session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Logon,
    Fill,
    Refusal,
    Cancel,
    Resend,
    Reset,
    DropCopy,
    Logout,
}

/// The messages of a step, or what is missing.
pub type Found<'a> = Result<Vec<&'a Seen>, String>;

impl Step {
    /// The script of a session that trades, in order. The copy is of the partner's session for drop copies, if it has one.
    pub fn script(is_drop_copy: bool, has_copy: bool) -> Vec<Self> {
        let mut steps = vec![Self::Logon];
        if !is_drop_copy {
            steps.extend([Self::Fill, Self::Refusal, Self::Cancel]);
        }
        if is_drop_copy || has_copy {
            steps.push(Self::DropCopy);
        }
        steps.extend([Self::Resend, Self::Reset, Self::Logout]);
        steps
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Logon => "logon",
            Self::Fill => "fill",
            Self::Refusal => "refusal",
            Self::Cancel => "cancel",
            Self::Resend => "resend",
            Self::Reset => "reset",
            Self::DropCopy => "drop-copy",
            Self::Logout => "logout",
        }
    }

    /// What is expected of the peer.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Logon => "Log on.",
            Self::Fill => {
                "Send a NewOrderSingle(D) that can be filled, and take its reports from New to Filled."
            }
            Self::Refusal => {
                "Send a NewOrderSingle(D) that is refused, for example of the Symbol(55) NONE/USD."
            }
            Self::Cancel => {
                "Send a NewOrderSingle(D) that rests, and cancel it by OrderCancelRequest(F) before it is filled."
            }
            Self::Resend => {
                "Leave a gap and have it filled: request application messages again by ResendRequest(2), or answer ours."
            }
            Self::Reset => {
                "Begin at 1 again: a Logon(A) with ResetSeqNumFlag(141)=Y, or a SequenceReset(4) without GapFillFlag(123)."
            }
            Self::DropCopy => "Take the copy of an ExecutionReport(8) over the session for drop copies.",
            Self::Logout => "Send a Logout(5), and close the connection after ours.",
        }
    }

    /// What a session's messages have of this step, and those of the other session that its reports are copied to. Both
    /// ascend by time.
    pub fn find<'a>(self, messages: &'a [Seen], copies: Option<&'a [Seen]>) -> Found<'a> {
        let or = |found: Option<_>, missing: &str| found.ok_or_else(|| missing.to_owned());
        match self {
            Self::Logon => or(answered(messages, LOGON, |_| true), "no Logon(A) was accepted"),
            Self::Fill => fill(messages),
            Self::Refusal => or(refusal(messages), "no order was refused"),
            Self::Cancel => cancel(messages),
            Self::Resend => resend(messages),
            Self::Reset => or(reset(messages), "the peer did not reset the numbers"),
            Self::DropCopy => or(drop_copy(messages, copies), "no ExecutionReport(8) was copied"),
            Self::Logout => or(logout(messages), "no Logout(5) was answered after the Logon(A)"),
        }
    }
}

/// A message of the peer and our answer of the same type.
fn answered<'a>(messages: &'a [Seen], kind: &str, fits: impl Fn(&Seen) -> bool) -> Option<Vec<&'a Seen>> {
    messages.iter().enumerate().find_map(|(at, message)| {
        let is_asked = message.is(false, kind) && fits(message);
        let mut later = messages.get(at + 1..)?.iter();
        let answer = later.find(|answer| answer.is(true, kind) && fits(answer));
        answer.filter(|_| is_asked).map(|answer| vec![message, answer])
    })
}

/// The first sending of each report that names a ClOrdID.
fn reports<'a>(messages: &'a [Seen], id: &'a str) -> impl Iterator<Item = &'a Seen> {
    let of =
        move |seen: &&Seen| seen.is(true, REPORT) && !seen.is_duplicate() && seen.get(tags::CL_ORD_ID) == id;
    messages.iter().filter(of)
}

fn of_kind<'a>(messages: &'a [Seen], kind: &'a str) -> impl Iterator<Item = (&'a Seen, &'a str)> {
    let sent = messages.iter().filter(move |message| message.is(false, kind) && !message.is_duplicate());
    sent.map(|message| (message, message.get(tags::CL_ORD_ID)))
}

fn fill(messages: &[Seen]) -> Found<'_> {
    let mut missing = "no NewOrderSingle(D) was sent".to_owned();
    for (order, id) in of_kind(messages, ORDER) {
        let all: Vec<&Seen> = reports(messages, id).collect();
        let place = |status: &str| all.iter().position(|report| report.get(tags::ORD_STATUS) == status);
        let course = place("0").zip(place("2")).and_then(|(new, filled)| all.get(new..=filled));
        if let Some(course) = course {
            return Ok([order].into_iter().chain(course.iter().copied()).collect());
        }
        let last = all.last();
        let status = last.map_or("not answered", |report| status_word(report.get(tags::ORD_STATUS)));
        missing = format!("the last order, {id}, is {status}");
    }
    Err(missing)
}

fn status_word(ord_status: &str) -> &'static str {
    match ord_status {
        "0" => "New, and not Filled",
        "2" => "Filled without having been New",
        "4" => "Canceled",
        "8" => "Rejected",
        "A" => "PendingNew",
        "C" => "Expired",
        _ => "neither New nor Filled",
    }
}

fn refusal(messages: &[Seen]) -> Option<Vec<&Seen>> {
    of_kind(messages, ORDER).find_map(|(order, id)| {
        let refused = reports(messages, id).find(|report| report.get(tags::ORD_STATUS) == "8");
        refused.map(|refused| vec![order, refused])
    })
}

fn cancel(messages: &[Seen]) -> Found<'_> {
    let mut missing = "no OrderCancelRequest(F) was sent".to_owned();
    for (request, id) in of_kind(messages, CANCEL) {
        if let Some(cancelled) = reports(messages, id).find(|report| report.get(tags::ORD_STATUS) == "4") {
            return Ok(vec![request, cancelled]);
        }
        let mut rejects = messages.iter().filter(|message| message.is(true, CANCEL_REJECT));
        let reject = rejects.find(|reject| reject.get(tags::CL_ORD_ID) == id);
        missing = match reject {
            Some(reject) => format!("the cancel request {id} was rejected: {}", reject.get(tags::TEXT)),
            None => format!("the cancel request {id} is not answered"),
        };
    }
    Err(missing)
}

/// A ResendRequest(2) of either side, and the messages that close the gap, at least one of them an application message
/// when the peer requested.
fn resend(messages: &[Seen]) -> Found<'_> {
    let mut missing = "no ResendRequest(2) was sent".to_owned();
    for (at, request) in messages.iter().enumerate().filter(|(_, message)| message.msg_type == RESEND_REQUEST)
    {
        let by_us = request.is_outbound;
        let (before, after) = messages.split_at(at);
        let is_reset = |message: &Seen| message.msg_type == LOGON && message.get(RESET_SEQ_NUM_FLAG) == "Y";
        let before = before.get(before.iter().rposition(is_reset).unwrap_or_default()..).unwrap_or_default();
        let sent = before.iter().filter(|message| message.is_outbound != by_us && !message.is_duplicate());
        let newest = sent.map(|message| message.seq).max().unwrap_or_default();
        // Of ours, the newest is the one that revealed the gap; it was received.
        let newest = if by_us { newest.saturating_sub(1) } else { newest };
        let end = match request.number(END_SEQ_NO) {
            0 => newest,
            end => end.min(newest),
        };
        let mut next = request.number(BEGIN_SEQ_NO);
        let mut found = vec![request];
        for answer in after.iter().filter(|answer| answer.is_outbound != by_us) {
            if next > end {
                break;
            }
            if answer.seq != next || !(answer.is_duplicate() || answer.fills_gap()) {
                continue;
            }
            next = if answer.fills_gap() { answer.number(NEW_SEQ_NO) } else { next + 1 };
            found.push(answer);
        }
        let has_message = found.iter().skip(1).any(|answer| !answer.fills_gap());
        if next > end && found.len() > 1 && (by_us || has_message) {
            return Ok(found);
        }
        missing = if next > end {
            format!("the ResendRequest(2) number {} had no application message for its answer", request.seq)
        } else {
            format!("the ResendRequest(2) number {} is answered up to {next} of {end}", request.seq)
        };
    }
    Err(missing)
}

fn reset(messages: &[Seen]) -> Option<Vec<&Seen>> {
    let by_logon = answered(messages, LOGON, |logon| logon.get(RESET_SEQ_NUM_FLAG) == "Y");
    by_logon.or_else(|| {
        let is_reset = |message: &&Seen| message.is(false, SEQUENCE_RESET) && !message.fills_gap();
        messages.iter().find(is_reset).map(|reset| vec![reset])
    })
}

/// A report and its copy; of a session for drop copies, any report.
fn drop_copy<'a>(messages: &'a [Seen], copies: Option<&'a [Seen]>) -> Option<Vec<&'a Seen>> {
    let mut reports = messages.iter().filter(|message| message.is(true, REPORT));
    let Some(copies) = copies else { return reports.next().map(|report| vec![report]) };
    reports.find_map(|report| {
        let is_copy =
            |copy: &&Seen| copy.is(true, REPORT) && copy.get(tags::EXEC_ID) == report.get(tags::EXEC_ID);
        copies.iter().find(is_copy).map(|copy| vec![report, copy])
    })
}

/// A Logout of either side that the other answered, after a Logon that was accepted.
fn logout(messages: &[Seen]) -> Option<Vec<&Seen>> {
    let logged_on = messages.iter().position(|message| message.is(true, LOGON))?;
    let mut logouts = messages.get(logged_on..)?.iter().filter(|message| message.msg_type == LOGOUT);
    let mut first = logouts.next()?;
    for second in logouts {
        if second.is_outbound != first.is_outbound {
            return Some(vec![first, second]);
        }
        first = second;
    }
    None
}
