//! A frame as fields: length and checksum checked, every field's place known, nothing copied but the frame itself.

use crate::{
    seq::SeqNum,
    tag::{self, Tag},
};

use super::SOH;

/// Where a field is in its frame. `at..value - 1` is the tag's text, `value..end` the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// 0 when the tag is a number but no legal tag.
    pub tag: Tag,
    pub at: u32,
    pub value: u32,
    pub end: u32,
}

/// Why a frame is no message. Such a frame is ignored and uses up no sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    #[error("does not begin with 8, 9 and 35")]
    Header,
    #[error("body length is wrong")]
    BodyLength,
    #[error("checksum is wrong")]
    CheckSum,
    #[error("a field is not of the form tag=value")]
    Field,
    #[error("a data field does not have the length announced")]
    Data,
    #[error("more fields than allowed")]
    TooManyFields,
}

/// More fields than any message of ours or of a sane peer has.
const FIELDS_MAX: usize = 4096;

/// A checked frame and the index of its fields, in the order of the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
    fields: Vec<Field>,
}

impl Message {
    /// Checks a frame and indexes it.
    pub fn parse(frame: &[u8]) -> Result<Self, Garbled> {
        let mut fields = Vec::with_capacity(32);
        index(frame, &mut fields)?;
        Ok(Self { bytes: frame.to_vec(), fields })
    }

    /// All fields, 8 first and 10 last.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// A field's value, as it came.
    pub fn value(&self, field: &Field) -> &[u8] {
        slice(&self.bytes, field.value, field.end)
    }

    /// A field's tag, as it came: what RefTagID(371) repeats when the tag is not a legal one.
    pub fn tag_text(&self, field: &Field) -> &[u8] {
        slice(&self.bytes, field.at, field.value.saturating_sub(1))
    }

    /// The value of the first field with this tag.
    pub fn get(&self, tag: Tag) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.tag == tag).map(|field| self.value(field))
    }

    /// The value of the first field with this tag, when it is UTF-8.
    pub fn text(&self, tag: Tag) -> Option<&str> {
        self.get(tag).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Is the field there and `Y`?
    pub fn is_yes(&self, tag: Tag) -> bool {
        self.get(tag) == Some(b"Y")
    }

    /// MsgType(35): there by construction.
    pub fn msg_type(&self) -> &[u8] {
        self.fields.get(2).map_or(b"", |field| self.value(field))
    }

    /// BeginString(8): there by construction.
    pub fn begin_string(&self) -> &[u8] {
        self.fields.first().map_or(b"", |field| self.value(field))
    }

    /// MsgSeqNum(34), when it is there and a number.
    pub fn seq(&self) -> Option<SeqNum> {
        self.get(tag::MSG_SEQ_NUM).and_then(SeqNum::parse)
    }

    /// The frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Replaced by `|` the delimiters, by `***` the values of [`tag::SECRET`]: for logs.
    pub fn redacted(&self) -> String {
        let mut out = String::with_capacity(self.bytes.len());
        for field in &self.fields {
            out.push_str(&String::from_utf8_lossy(self.tag_text(field)));
            out.push('=');
            if tag::SECRET.contains(&field.tag) {
                out.push_str("***");
            } else {
                out.push_str(&String::from_utf8_lossy(self.value(field)));
            }
            out.push('|');
        }
        out
    }
}

/// Never the raw bytes: a Logon carries a password.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.redacted())
    }
}

fn slice(bytes: &[u8], from: u32, to: u32) -> &[u8] {
    let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
    bytes.get(place(from)..place(to)).unwrap_or(b"")
}

/// Checks `frame` and writes the index of its fields to `fields`, whose old content goes.
///
/// The tag of a field may be any integer (`0`, `-1`, `034` become tag 0: such a message is answered with a Reject);
/// anything else in its place makes the frame garbled.
pub fn index(frame: &[u8], fields: &mut Vec<Field>) -> Result<(), Garbled> {
    fields.clear();
    let mut at = 0;
    while at < frame.len() {
        if fields.len() == FIELDS_MAX {
            return Err(Garbled::TooManyFields);
        }
        let field = field_at(frame, at, fields.last())?;
        at = usize::try_from(field.end).unwrap_or(usize::MAX).saturating_add(1);
        fields.push(field);
    }
    check_envelope(frame, fields)
}

fn field_at(frame: &[u8], at: usize, previous: Option<&Field>) -> Result<Field, Garbled> {
    let rest = &frame[at..];
    let equals = rest.iter().take(16).position(|byte| *byte == b'=').ok_or(Garbled::Field)?;
    let tag = parse_tag(&rest[..equals]).ok_or(Garbled::Field)?;
    let value = at + equals + 1;
    let end = match previous.filter(|field| data_tag_of(field.tag) == Some(tag)) {
        Some(length_field) => {
            let length = length(slice(frame, length_field.value, length_field.end)).ok_or(Garbled::Data)?;
            let end = value.checked_add(length).ok_or(Garbled::Data)?;
            if frame.get(end) != Some(&SOH) {
                return Err(Garbled::Data);
            }
            end
        }
        None => value + frame[value..].iter().position(|byte| *byte == SOH).ok_or(Garbled::Field)?,
    };
    let place = |at: usize| u32::try_from(at).map_err(|_| Garbled::TooManyFields);
    Ok(Field { tag, at: place(at)?, value: place(value)?, end: place(end)? })
}

fn check_envelope(frame: &[u8], fields: &[Field]) -> Result<(), Garbled> {
    let [begin_string, body_length, msg_type, .., check_sum] = fields else { return Err(Garbled::Header) };
    if (begin_string.tag, body_length.tag, msg_type.tag)
        != (tag::BEGIN_STRING, tag::BODY_LENGTH, tag::MSG_TYPE)
    {
        return Err(Garbled::Header);
    }
    if check_sum.tag != tag::CHECK_SUM {
        return Err(Garbled::CheckSum);
    }
    let declared = length(slice(frame, body_length.value, body_length.end)).ok_or(Garbled::BodyLength)?;
    if u32::try_from(declared) != Ok(check_sum.at - msg_type.at) {
        return Err(Garbled::BodyLength);
    }
    // FIX 4.4 volume 2, CheckSum: always three digits.
    let [hundreds, tens, ones] = slice(frame, check_sum.value, check_sum.end) else {
        return Err(Garbled::CheckSum);
    };
    if ![hundreds, tens, ones].iter().all(|digit| digit.is_ascii_digit()) {
        return Err(Garbled::CheckSum);
    }
    let stated = u32::from(hundreds - b'0') * 100 + u32::from(tens - b'0') * 10 + u32::from(ones - b'0');
    let summed = slice(frame, 0, check_sum.at).iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if stated == u32::from(summed) { Ok(()) } else { Err(Garbled::CheckSum) }
}

/// Digits to a length; zeros in front are tolerated.
pub(super) fn length(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits
        .iter()
        .try_fold(0_usize, |value, digit| value.checked_mul(10)?.checked_add(usize::from(digit - b'0')))
}

/// `Some(0)` is an integer that is no legal tag, `None` is no integer.
fn parse_tag(text: &[u8]) -> Option<Tag> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if text[0] == b'-' || text[0] == b'0' || text.len() > 9 {
        return Some(0);
    }
    Some(text.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

/// The data field whose length this tag announces.
const fn data_tag_of(length_tag: Tag) -> Option<Tag> {
    Some(match length_tag {
        90 => 91,
        93 => 89,
        95 => 96,
        212 => 213,
        348 => 349,
        350 => 351,
        352 => 353,
        354 => 355,
        356 => 357,
        358 => 359,
        360 => 361,
        362 => 363,
        364 => 365,
        445 => 446,
        618 => 619,
        621 => 622,
        1184 => 1185,
        1277 => 1278,
        1280 => 1281,
        1397 => 1398,
        1401 => 1402,
        1403 => 1404,
        1468 => 1469,
        1525 => 1527,
        _ => return None,
    })
}
