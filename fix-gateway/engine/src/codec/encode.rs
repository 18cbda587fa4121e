//! Writes messages: `8 9 35`, header fields by ascending tag, the body as given, `10`.

use crate::{
    SeqNum, UtcNanos,
    tag::{self, Tag},
};

use super::SOH;

/// The fields of a message beyond the standard header, as they go over the wire.
///
/// Header fields that the application sets ([`Body::header_field`]) are kept apart, because they go in front. The
/// bytes of both are what the store keeps: a resend writes them again unchanged under a new header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    bytes: Vec<u8>,
}

impl Body {
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Fields in their wire form, from a store.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Appends a field. The caller keeps the order: ascending tags, the entries of a group after its count.
    ///
    /// A value is cut at the first SOH, which it cannot carry.
    #[must_use]
    pub fn field(mut self, tag: Tag, value: impl AsRef<[u8]>) -> Self {
        self.push(tag, value.as_ref());
        self
    }

    /// Appends a field when there is a value.
    #[must_use]
    pub fn maybe(self, tag: Tag, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.field(tag, value),
            None => self,
        }
    }

    /// Appends the fields of another body.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.bytes.extend_from_slice(&other.bytes);
        self
    }

    /// Appends a field in place.
    pub fn push(&mut self, tag: Tag, value: &[u8]) {
        write_field(&mut self.bytes, tag, value);
    }

    /// The fields in their wire form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Parts at the first field that is not one of [`MERGED`].
    fn split(&self) -> (Vec<(Tag, &[u8])>, &[u8]) {
        let mut merged = Vec::new();
        let mut rest = &self.bytes[..];
        while let Some((tag, value, after)) = first_field(rest).filter(|(tag, ..)| MERGED.contains(tag)) {
            merged.push((tag, value));
            rest = after;
        }
        (merged, rest)
    }
}

/// Header fields an application may put in front of its body; they are moved to their place in the header.
const MERGED: [Tag; 10] = [
    tag::POSS_RESEND,
    tag::ON_BEHALF_OF_COMP_ID,
    tag::ON_BEHALF_OF_SUB_ID,
    tag::DELIVER_TO_COMP_ID,
    tag::DELIVER_TO_SUB_ID,
    tag::ON_BEHALF_OF_LOCATION_ID,
    tag::DELIVER_TO_LOCATION_ID,
    50,
    57,
    tag::APPL_VER_ID,
];

/// What the standard header says.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub begin_string: &'a str,
    pub msg_type: &'a str,
    pub seq: SeqNum,
    pub sender_comp_id: &'a str,
    pub target_comp_id: &'a str,
    pub sending_time: UtcNanos,
    /// When the message was first sent, for a message sent again: sets PossDupFlag(43) and OrigSendingTime(122).
    pub orig_sending_time: Option<UtcNanos>,
    /// LastMsgSeqNumProcessed(369), for sessions that say it.
    pub last_processed: Option<SeqNum>,
}

/// Appends the message to `out`; `scratch` is working space whose content goes.
pub fn encode(head: &Head<'_>, body: &Body, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    let sending_time = head.sending_time.to_millis_text();
    let orig_sending_time = head.orig_sending_time.map(UtcNanos::to_millis_text);
    let seq = head.seq.to_string();
    let last_processed = head.last_processed.map(|seq| seq.to_string());
    let (mut fields, rest) = body.split();
    fields.extend([
        (tag::MSG_SEQ_NUM, seq.as_bytes()),
        (tag::SENDER_COMP_ID, head.sender_comp_id.as_bytes()),
        (tag::SENDING_TIME, sending_time.as_bytes()),
        (tag::TARGET_COMP_ID, head.target_comp_id.as_bytes()),
    ]);
    if let Some(orig) = &orig_sending_time {
        fields.extend([(tag::POSS_DUP_FLAG, &b"Y"[..]), (tag::ORIG_SENDING_TIME, orig.as_bytes())]);
    }
    if let Some(last) = &last_processed {
        fields.push((tag::LAST_MSG_SEQ_NUM_PROCESSED, last.as_bytes()));
    }
    fields.sort_by_key(|(tag, _)| *tag);

    scratch.clear();
    write_field(scratch, tag::MSG_TYPE, head.msg_type.as_bytes());
    for (tag, value) in fields {
        write_field(scratch, tag, value);
    }
    scratch.extend_from_slice(rest);

    let begin = out.len();
    write_field(out, tag::BEGIN_STRING, head.begin_string.as_bytes());
    write_field(out, tag::BODY_LENGTH, scratch.len().to_string().as_bytes());
    out.extend_from_slice(scratch);
    let sum = out[begin..].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    write_field(out, tag::CHECK_SUM, format!("{sum:03}").as_bytes());
}

fn write_field(out: &mut Vec<u8>, tag: Tag, value: &[u8]) {
    out.extend_from_slice(tag.to_string().as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.split(|byte| *byte == SOH).next().unwrap_or(b""));
    out.push(SOH);
}

fn first_field(bytes: &[u8]) -> Option<(Tag, &[u8], &[u8])> {
    let equals = bytes.iter().position(|byte| *byte == b'=')?;
    let end = bytes.iter().position(|byte| *byte == SOH)?;
    let tag = std::str::from_utf8(bytes.get(..equals)?).ok()?.parse().ok()?;
    Some((tag, bytes.get(equals + 1..end)?, &bytes[end + 1..]))
}
