//! Looking at many bytes at once.
//!
//! Against `memchr`, called once a field, this takes a third of the time: fields are short, and calls are not free.

use wide::u8x16;

use crate::tag::Tag;

use super::SOH;

/// Bytes looked at together by [`delimiters`].
const BLOCK: usize = 64;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Which of the 64 bytes from `base` on are SOH: bit 0 for the first. Bytes past the end are none.
#[inline]
pub(super) fn delimiters(frame: &[u8], base: usize) -> u64 {
    let rest = frame.get(base..).unwrap_or(b"");
    match rest.first_chunk::<BLOCK>() {
        Some(block) => block_delimiters(block),
        None => {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            block_delimiters(&block)
        }
    }
}

#[inline]
fn block_delimiters(block: &[u8; BLOCK]) -> u64 {
    let (parts, _) = block.as_chunks::<16>();
    parts.iter().enumerate().fold(0, |mask, (at, part)| {
        let hits = u8x16::new(*part).simd_eq(u8x16::splat(SOH)).to_bitmask();
        mask | u64::from(hits) << (16 * at)
    })
}

/// Is there an SOH among the eight bytes of either word?
#[inline]
pub(super) const fn hold_delimiter(first: u64, second: u64) -> bool {
    equal(first, SOH) | equal(second, SOH) != 0
}

/// The place of the first byte of `word` that equals `byte`, 8 when there is none.
#[inline]
const fn first_equal(word: u64, byte: u8) -> u32 {
    equal(word, byte).trailing_zeros() / 8
}

/// Marks, by its highest bit, the first byte of `word` that equals `byte`. Bytes behind it may be marked by mistake,
/// none in front of it.
#[inline]
const fn equal(word: u64, byte: u8) -> u64 {
    let differing = word ^ (LOW * byte as u64);
    differing.wrapping_sub(LOW) & !differing & HIGH
}

/// The least number of each count of digits, without leading zeros.
const LEAST: [Tag; 8] = [0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000];

/// A tag of 1 to 7 digits, the first of them not 0, with `=` behind it: the tag and its number of digits. `None` for
/// everything else, and near the end of the frame.
#[inline]
pub(super) fn short_tag(frame: &[u8], at: usize) -> Option<(Tag, u32)> {
    let word = u64::from_le_bytes(*frame.get(at..)?.first_chunk()?);
    let digits = first_equal(word, b'=');
    if digits == 0 || digits > 7 {
        return None;
    }
    // The digits in the highest bytes, values instead of characters, and zeros in front.
    let values = (word ^ (LOW * 0x30)) << (64 - 8 * digits);
    if (values.wrapping_add(LOW * 0x76) | values) & HIGH != 0 {
        return None;
    }
    // Neighbours are joined to pairs, pairs to fours, fours to eight.
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let eight = fours.wrapping_mul(10_000).wrapping_add(fours >> 32);
    let tag = Tag::try_from(eight & 0xffff_ffff).ok()?;
    // Not looked at as a byte of its own: the word would be loaded in pieces.
    let least = LEAST.get(usize::try_from(digits).ok()?)?;
    (tag >= *least).then_some((tag, digits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn delimiters_match_a_plain_search(
            bytes in prop::collection::vec(prop_oneof![Just(SOH), Just(0), Just(2), Just(0x81), any::<u8>()], 0..200),
        ) {
            for base in 0..=bytes.len() {
                let expected = bytes[base..].iter().take(BLOCK).enumerate()
                    .fold(0_u64, |mask, (at, byte)| mask | u64::from(*byte == SOH) << at);
                prop_assert_eq!(delimiters(&bytes, base), expected);
            }
        }

        #[test]
        fn only_short_tags_are_read_as_numbers(
            head in prop::collection::vec(prop_oneof![8 => b'0'..=b'9', 1 => any::<u8>()], 0..10),
            tail in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let bytes = [&head[..], b"=", &tail[..]].concat();
            let equals = bytes.iter().position(|byte| *byte == b'=').unwrap();
            let head = &bytes[..equals];
            let is_short = bytes.len() >= 8 && (1..=7).contains(&equals) && head[0] != b'0'
                && head.iter().all(u8::is_ascii_digit);
            let number = || std::str::from_utf8(head).unwrap().parse().unwrap();
            prop_assert_eq!(short_tag(&bytes, 0), is_short.then(|| (number(), u32::try_from(equals).unwrap())));
        }
    }
}
