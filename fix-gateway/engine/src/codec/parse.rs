//! From a frame to the index of its fields: length and checksum checked, nothing copied.

use crate::tag::{self, Tag};

use super::{
    SOH,
    message::{Field, MessageRef, slice},
    scan,
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

/// `=` comes within this many bytes, or there is no tag.
const TAG_MAX: usize = 16;

/// More fields than 64 bytes can hold: each takes three bytes at least.
const SLOTS: usize = 32;

/// Checks frames and indexes them, in a buffer that is used again and again.
#[derive(Debug, Default)]
pub struct Parser {
    /// The fields of the latest frame, and behind them room for more.
    fields: Vec<Field>,
}

impl Parser {
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Checks a frame and indexes it.
    ///
    /// The tag of a field may be any integer (`0`, `-1`, `034` become tag 0: such a message is answered with a
    /// Reject); anything else in its place makes the frame garbled.
    pub fn parse<'a>(&'a mut self, frame: &'a [u8]) -> Result<MessageRef<'a>, Garbled> {
        let count = self.index(frame)?;
        let fields = self.fields.get(..count).unwrap_or_default();
        check_envelope(frame, fields)?;
        Ok(MessageRef::new(frame, fields))
    }

    /// Writes the positions of all fields and returns their number.
    ///
    /// Delimiters are found 64 bytes at a time, so that where one field ends does not wait for where the one before
    /// it did. A field that announces the length of the next is rare: from there on they are taken one by one.
    fn index(&mut self, frame: &[u8]) -> Result<usize, Garbled> {
        let length = u32::try_from(frame.len()).map_err(|_| Garbled::TooManyFields)?;
        // The trailer has seven bytes in every proper frame. With it behind a field, eight bytes can be looked at.
        let body = match frame.last_chunk() {
            Some([b'1', b'0', b'=', _, _, _, SOH]) => length - 7,
            _ => 0,
        };
        let (mut at, mut base, mut count) = (0, 0, 0);
        while base < body {
            let mut delimiters = scan::delimiters(frame, wide(base));
            if body - base < 64 {
                delimiters &= (1 << (body - base)) - 1;
            }
            if self.fields.len() < count + SLOTS {
                self.fields.resize(count + 2 * SLOTS, Field::NONE);
            }
            let Some(slots) = self.fields[count..].first_chunk_mut::<SLOTS>() else { break };
            let mut used = 0;
            while delimiters != 0 {
                let end = base + delimiters.trailing_zeros();
                delimiters &= delimiters - 1;
                let (tag, value) = match scan::short_tag(frame, wide(at)) {
                    Some((tag, digits)) => (tag, at + digits + 1),
                    None => odd_tag_at(frame, at)?,
                };
                slots[used % SLOTS] = Field { tag, value, end };
                used += 1;
                at = end + 1;
                if is_length_tag(tag) {
                    return self.index_one_by_one(frame, at, count + used);
                }
            }
            count += used;
            if count > FIELDS_MAX {
                return Err(Garbled::TooManyFields);
            }
            base += 64;
        }
        match self.fields.get_mut(count) {
            Some(slot) if at == body && body > 0 => {
                *slot = Field { tag: tag::CHECK_SUM, value: body + 3, end: body + 6 };
                Ok(count + 1)
            }
            _ => self.index_one_by_one(frame, at, count),
        }
    }

    /// Data fields may hold delimiters: each field is looked at only once the one before it is understood.
    fn index_one_by_one(&mut self, frame: &[u8], from: u32, count: usize) -> Result<usize, Garbled> {
        self.fields.truncate(count);
        let mut at = from;
        while wide(at) < frame.len() {
            if self.fields.len() == FIELDS_MAX {
                return Err(Garbled::TooManyFields);
            }
            let field = field_at(frame, at, self.fields.last())?;
            at = field.end + 1;
            self.fields.push(field);
        }
        Ok(self.fields.len())
    }
}

/// A place in a frame as an index; a `usize` has 32 bits at least wherever this runs.
#[inline]
fn wide(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// A tag of an unusual form, and where its value begins.
#[cold]
fn odd_tag_at(frame: &[u8], at: u32) -> Result<(Tag, u32), Garbled> {
    let field = frame.get(wide(at)..).unwrap_or_default();
    let equals = field.iter().take(TAG_MAX).position(|byte| *byte == b'=').ok_or(Garbled::Field)?;
    let tag = parse_tag(&field[..equals]).ok_or(Garbled::Field)?;
    Ok((tag, at + u32::try_from(equals).map_err(|_| Garbled::Field)? + 1))
}

fn field_at(frame: &[u8], at: u32, previous: Option<&Field>) -> Result<Field, Garbled> {
    let (tag, value) = odd_tag_at(frame, at)?;
    let rest = frame.get(wide(value)..).unwrap_or_default();
    let bytes = match previous.filter(|field| data_tag_of(field.tag) == Some(tag)) {
        Some(length_field) => {
            let length = length(slice(frame, length_field.value, length_field.end)).ok_or(Garbled::Data)?;
            if rest.get(length) != Some(&SOH) {
                return Err(Garbled::Data);
            }
            length
        }
        None => rest.iter().position(|byte| *byte == SOH).ok_or(Garbled::Field)?,
    };
    Ok(Field { tag, value, end: value + u32::try_from(bytes).map_err(|_| Garbled::Data)? })
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

/// Does [`data_tag_of`] know the tag?
fn is_length_tag(tag: Tag) -> bool {
    /// A bit for each tag.
    const TAGS: [u64; 24] = {
        let mut bits = [0; 24];
        let mut tag = 0;
        while tag < 24 * 64 {
            if data_tag_of(tag).is_some() {
                bits[(tag / 64) as usize] |= 1 << (tag % 64);
            }
            tag += 1;
        }
        bits
    };
    usize::try_from(tag / 64)
        .ok()
        .and_then(|word| TAGS.get(word))
        .is_some_and(|bits| bits >> (tag % 64) & 1 == 1)
}

/// The data field whose length this tag announces. Below 1536, see [`is_length_tag`].
pub(super) const fn data_tag_of(length_tag: Tag) -> Option<Tag> {
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
