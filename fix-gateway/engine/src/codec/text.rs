//! Fields as text, written without a call for each piece: most tags and values are shorter than two words.

use crate::tag::Tag;

use super::{SOH, scan};

/// Digits of the longest `u64`.
const DIGITS_MAX: usize = 20;

/// Tags below this are written from a table.
const COMMON_TAGS: usize = 1024;

/// A tag and `=`, and in the last byte how many bytes that is.
static TAGS: [[u8; 8]; COMMON_TAGS] = {
    let mut table = [[0; 8]; COMMON_TAGS];
    let mut tag: u16 = 0;
    while (tag as usize) < COMMON_TAGS {
        let digits: u8 = if tag < 10 {
            1
        } else if tag < 100 {
            2
        } else if tag < 1000 {
            3
        } else {
            4
        };
        let mut rest = tag;
        let mut at = digits;
        while at > 0 {
            at -= 1;
            table[tag as usize][at as usize] = digit(rest as u64);
            rest /= 10;
        }
        table[tag as usize][digits as usize] = b'=';
        table[tag as usize][7] = digits + 1;
        tag += 1;
    }
    table
};

/// Appends a field. The value is cut at its first SOH.
#[inline(always)]
pub(super) fn push_field(out: &mut Vec<u8>, tag: Tag, value: &[u8]) {
    let common = usize::try_from(tag).ok().and_then(|tag| TAGS.get(tag));
    if let Some(tag) = common
        && (1..=16).contains(&value.len())
        && push_short_field(out, *tag, value)
    {
        return;
    }
    push_tag(out, tag);
    out.extend_from_slice(value.split(|byte| *byte == SOH).next().unwrap_or_default());
    out.push(SOH);
}

/// A field of a common tag with a value of 1 to 16 bytes, in stores of eight bytes that overlap. `false`, and nothing
/// appended, when the value holds a delimiter.
#[inline(always)]
fn push_short_field(out: &mut Vec<u8>, tag: [u8; 8], value: &[u8]) -> bool {
    /// More than a tag, a value and the stores past their ends need.
    const ROOM: usize = 32;
    let bytes = value.len();
    let (first, last, last_at) = match (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last), bytes - 8),
        _ => (up_to_seven(value), 0, 0),
    };
    let last = if bytes < 8 { first } else { last };
    if scan::hold_delimiter(first, last) {
        return false;
    }
    let from = out.len();
    out.extend_from_slice(&[0; ROOM]);
    let Some(room) = out.get_mut(from..).and_then(|room| room.first_chunk_mut::<ROOM>()) else {
        return false;
    };
    let begin = usize::from(tag[7] & 7);
    let last_at = begin + (last_at & 15);
    room[..8].copy_from_slice(&tag);
    room[begin..begin + 8].copy_from_slice(&first.to_le_bytes());
    room[last_at..last_at + 8].copy_from_slice(&last.to_le_bytes());
    room[begin + (bytes & 31).min(16)] = SOH;
    out.truncate(from + begin + bytes + 1);
    true
}

/// One to seven bytes as a word.
#[inline(always)]
fn up_to_seven(value: &[u8]) -> u64 {
    let byte = |at: usize| u64::from(value.get(at).copied().unwrap_or(0)) << (8 * at);
    let bytes = value.len();
    match (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        // The two may overlap, where they agree.
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (bytes - 4))
        }
        // One to three bytes are the first, the middle and the last.
        _ => byte(0) | byte(bytes / 2) | byte(bytes.saturating_sub(1)),
    }
}

/// Appends a tag and `=`.
#[inline]
pub(super) fn push_tag(out: &mut Vec<u8>, tag: Tag) {
    match usize::try_from(tag).ok().and_then(|tag| TAGS.get(tag)) {
        Some(text) => {
            out.extend_from_slice(text);
            out.truncate(out.len() - 8 + usize::from(text[7]));
        }
        None => {
            push(out, u64::from(tag));
            out.push(b'=');
        }
    }
}

/// Appends `value` in decimal.
pub(super) fn push(out: &mut Vec<u8>, value: u64) {
    let mut text = [b'0'; DIGITS_MAX];
    let mut at = DIGITS_MAX - 1;
    let mut rest = value;
    while rest > 9 {
        text[at] = digit(rest % 10);
        rest /= 10;
        at -= 1;
    }
    text[at] = digit(rest);
    out.extend_from_slice(&text[at..]);
}

/// The last digit of a value.
pub(crate) const fn digit(value: u64) -> u8 {
    b'0' + (value % 10) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_match_the_standard_librarys_format() {
        for value in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_field_is_its_tag_and_its_value_up_to_a_delimiter(
            tag in prop_oneof![0_u32..1100, any::<u32>()],
            value in prop::collection::vec(prop_oneof![20 => any::<u8>(), 1 => Just(SOH)], 0..40),
        ) {
            let mut out = b"before".to_vec();
            push_field(&mut out, tag, &value);
            let kept = value.split(|byte| *byte == SOH).next().unwrap();
            prop_assert_eq!(out, [b"before", tag.to_string().as_bytes(), b"=", kept, b"\x01"].concat());
        }
    }
}
