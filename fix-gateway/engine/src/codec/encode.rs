//! Writes messages: `8 9 35`, header fields by ascending tag, the body as given, `10`.

use crate::{
    SeqNum, Stamp,
    tag::{self, Tag},
};

use super::{Field, MessageRef, MsgType, SOH, scan, text};

/// The fields of a message beyond the standard header, as they go over the wire.
///
/// Fields of the standard header that the application appends before all others are moved to their place in the header.
/// The store keeps these bytes: a resend writes them again unchanged under a new header.
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
    #[inline]
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

    /// Appends a field in place. Where the tag is a constant, its text is one, too.
    #[inline(always)]
    pub fn push(&mut self, tag: Tag, value: &[u8]) {
        text::push_field(&mut self.bytes, tag, value);
    }

    /// Appends a field of a message unchanged: a data field may contain SOH; its length tag gives its end.
    pub fn copy(&mut self, message: MessageRef<'_>, field: &Field) {
        text::push_tag(&mut self.bytes, field.tag);
        self.bytes.extend_from_slice(message.value(field));
        self.bytes.push(SOH);
    }

    /// Appends fields that stand next to each other in a message, as they came and in one piece.
    pub fn copy_run(&mut self, message: MessageRef<'_>, run: &[Field]) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        text::push_tag(&mut self.bytes, first.tag);
        self.bytes.extend_from_slice(message.between(first, last));
        self.bytes.push(SOH);
    }

    /// The fields in their wire form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a field with a number in place.
    pub fn push_number(&mut self, tag: Tag, value: u64) {
        write_number(&mut self.bytes, tag, value);
    }

    /// Appends a field with a number.
    #[must_use]
    pub fn number(mut self, tag: Tag, value: u64) -> Self {
        self.push_number(tag, value);
        self
    }

    /// Empties the body and keeps its buffer.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Parts at the first field that is not merged into the header.
    fn split(&self) -> (&[u8], &[u8]) {
        if scan::short_tag(&self.bytes, 0).is_some_and(|(tag, _)| !is_merged(tag)) {
            return (&[], &self.bytes);
        }
        let mut rest = &self.bytes[..];
        while let Some((_, _, after)) = first_field(rest).filter(|(tag, ..)| is_merged(*tag)) {
            rest = after;
        }
        self.bytes.split_at(self.bytes.len() - rest.len())
    }
}

/// Is this a header field that an application may put in front of its body? It is moved to its place in the header.
fn is_merged(tag: Tag) -> bool {
    matches!(tag, tag::SENDER_SUB_ID | tag::APPL_VER_ID)
        || MERGED_TO_122.contains(&tag)
        || MERGED_TO_369.contains(&tag)
}

/// Those between TargetCompID(56) and OrigSendingTime(122).
const MERGED_TO_122: [Tag; 4] =
    [tag::TARGET_SUB_ID, tag::POSS_RESEND, tag::ON_BEHALF_OF_COMP_ID, tag::ON_BEHALF_OF_SUB_ID];

/// Those between OrigSendingTime(122) and LastMsgSeqNumProcessed(369).
const MERGED_TO_369: [Tag; 4] = [
    tag::DELIVER_TO_COMP_ID,
    tag::DELIVER_TO_SUB_ID,
    tag::ON_BEHALF_OF_LOCATION_ID,
    tag::DELIVER_TO_LOCATION_ID,
];

#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub begin_string: &'a str,
    pub msg_type: MsgType,
    pub seq: SeqNum,
    pub sender_comp_id: &'a str,
    pub target_comp_id: &'a str,
    pub sending_time: Stamp,
    /// When the message was first sent, for a message sent again: sets PossDupFlag(43) and OrigSendingTime(122).
    pub orig_sending_time: Option<Stamp>,
    /// LastMsgSeqNumProcessed(369), for sessions that send it.
    pub last_processed: Option<SeqNum>,
}

/// Digits of BodyLength(9) for which room is left while the length is not known; most messages need as many.
const LENGTH_DIGITS: usize = 3;

/// Appends the message to `out`.
pub fn encode(head: &Head<'_>, body: &Body, out: &mut Vec<u8>) {
    let begin = out.len();
    let content = open(out, head.begin_string.as_bytes());
    text::push_field(out, tag::MSG_TYPE, head.msg_type.as_bytes());
    let (merged, rest) = body.split();
    write_header(out, head, merged);
    out.extend_from_slice(rest);
    close(out, begin, content);
}

/// Begins a message, and returns where its counted bytes begin.
#[inline]
pub(super) fn open(out: &mut Vec<u8>, begin_string: &[u8]) -> usize {
    text::push_field(out, tag::BEGIN_STRING, begin_string);
    out.extend_from_slice(b"9=000\x01");
    out.len()
}

/// Ends the message that begins at `begin`: fills BodyLength(9) in, and appends CheckSum(10).
#[inline]
pub(super) fn close(out: &mut Vec<u8>, begin: usize, content: usize) {
    patch_length(out, content);
    let sum = out[begin..].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    let sum = u64::from(sum);
    let [hundreds, tens, ones] = [sum / 100, sum / 10, sum].map(text::digit);
    out.extend_from_slice(&[b'1', b'0', b'=', hundreds, tens, ones, SOH]);
}

/// The standard header after MsgType(35), by ascending tag.
fn write_header(out: &mut Vec<u8>, head: &Head<'_>, merged: &[u8]) {
    write_number(out, tag::MSG_SEQ_NUM, head.seq.0);
    if head.orig_sending_time.is_some() {
        text::push_field(out, tag::POSS_DUP_FLAG, b"Y");
    }
    text::push_field(out, tag::SENDER_COMP_ID, head.sender_comp_id.as_bytes());
    write_merged(out, merged, &[tag::SENDER_SUB_ID]);
    write_time(out, tag::SENDING_TIME, head.sending_time);
    text::push_field(out, tag::TARGET_COMP_ID, head.target_comp_id.as_bytes());
    write_merged(out, merged, &MERGED_TO_122);
    if let Some(orig) = head.orig_sending_time {
        write_time(out, tag::ORIG_SENDING_TIME, orig);
    }
    write_merged(out, merged, &MERGED_TO_369);
    if let Some(last) = head.last_processed {
        write_number(out, tag::LAST_MSG_SEQ_NUM_PROCESSED, last.0);
    }
    write_merged(out, merged, &[tag::APPL_VER_ID]);
}

/// Writes those of the `merged` fields that have one of `tags`, by ascending tag.
#[inline]
fn write_merged(out: &mut Vec<u8>, merged: &[u8], tags: &[Tag]) {
    if !merged.is_empty() {
        write_each_merged(out, merged, tags);
    }
}

fn write_each_merged(out: &mut Vec<u8>, merged: &[u8], tags: &[Tag]) {
    for wanted in tags {
        let mut rest = merged;
        while let Some((tag, value, after)) = first_field(rest) {
            if tag == *wanted {
                text::push_field(out, tag, value);
            }
            rest = after;
        }
    }
}

/// Writes the length of the bytes after `content` into BodyLength(9) in front of it.
fn patch_length(out: &mut Vec<u8>, content: usize) {
    let mut length = out.len() - content;
    if (100..1000).contains(&length) {
        for place in 2..=LENGTH_DIGITS + 1 {
            out[content - place] = b'0' + u8::try_from(length % 10).unwrap_or(0);
            length /= 10;
        }
        return;
    }
    let digits = length.to_string();
    let from = content - 1 - LENGTH_DIGITS;
    out.splice(from..content - 1, digits.bytes());
}

fn write_time(out: &mut Vec<u8>, tag: Tag, time: Stamp) {
    text::push_tag(out, tag);
    out.extend_from_slice(time.text().as_ref());
    out.push(SOH);
}

fn write_number(out: &mut Vec<u8>, tag: Tag, value: u64) {
    text::push_tag(out, tag);
    text::push(out, value);
    out.push(SOH);
}

fn first_field(bytes: &[u8]) -> Option<(Tag, &[u8], &[u8])> {
    let equals = bytes.iter().position(|byte| *byte == b'=')?;
    let end = bytes.iter().position(|byte| *byte == SOH)?;
    let tag = std::str::from_utf8(bytes.get(..equals)?).ok()?.parse().ok()?;
    Some((tag, bytes.get(equals + 1..end)?, &bytes[end + 1..]))
}
