//! From a frame to the index of its fields: length and checksum checked, nothing copied.

use crate::tag::{self, Tag};

use super::{
    SOH,
    message::{Field, MessageRef, slice},
};

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

/// Checks frames and indexes them, in a buffer that is used again and again.
#[derive(Debug, Default)]
pub struct Parser {
    fields: Vec<Field>,
}

impl Parser {
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Checks a frame and indexes it.
    pub fn parse<'a>(&'a mut self, frame: &'a [u8]) -> Result<MessageRef<'a>, Garbled> {
        index(frame, &mut self.fields)?;
        Ok(MessageRef::new(frame, &self.fields))
    }
}

/// Checks `frame` and writes the index of its fields to `fields`, whose old content goes.
///
/// The tag of a field may be any integer (`0`, `-1`, `034` become tag 0: such a message is answered with a Reject);
/// anything else in its place makes the frame garbled.
fn index(frame: &[u8], fields: &mut Vec<Field>) -> Result<(), Garbled> {
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
    Ok(Field { tag, value: place(value)?, end: place(end)? })
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
    // From after the SOH of BodyLength(9) to the SOH before `10=`, inclusive.
    let counted_to = check_sum.value - 3;
    if u32::try_from(declared) != Ok(counted_to - body_length.end - 1) {
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
    let summed = slice(frame, 0, counted_to).iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
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
