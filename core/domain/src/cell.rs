//! The cell of a deployment: one database with its processes, contracts and relayer accounts, and its partners.
//!
//! A deployment without cells has none. With cells, every identifier that the service issues carries the cell's three
//! digits after the version digit of its UUIDv7, in the 12 bits `rand_a` that RFC 9562 leaves to the application. A
//! proxy reads them there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A cell, `001` to `fff`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellId(u16);

/// The text is not a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cell has three lowercase hex digits, 001 to fff")]
pub struct NotACell;

impl CellId {
    /// The cell in a UUIDv7.
    #[must_use]
    pub const fn mark(self, mut uuid: [u8; 16]) -> [u8; 16] {
        let [high, low] = self.0.to_be_bytes();
        uuid[6] = (uuid[6] & 0xf0) | high;
        uuid[7] = low;
        uuid
    }

    /// The three digits in the place of an identifier's cell. An identifier from before its database had a cell has random
    /// ones there.
    pub fn of_id(id: &str) -> Option<Self> {
        let (_, unique) = id.split_once('_').unwrap_or(("", id));
        let mut digits = unique.bytes().filter(|byte| *byte != b'-');
        let text: Vec<u8> = digits.by_ref().skip(13).take(3).collect();
        let is_whole = digits.count() == 16;
        std::str::from_utf8(&text).ok().filter(|_| is_whole).and_then(|text| text.parse().ok())
    }
}

impl FromStr for CellId {
    type Err = NotACell;

    fn from_str(text: &str) -> Result<Self, NotACell> {
        let is_form = text.len() == 3 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = u16::from_str_radix(text, 16).ok().filter(|number| is_form && *number != 0);
        number.map(Self).ok_or(NotACell)
    }
}

impl TryFrom<String> for CellId {
    type Error = NotACell;

    fn try_from(text: String) -> Result<Self, NotACell> {
        text.parse()
    }
}

impl From<CellId> for String {
    fn from(cell: CellId) -> Self {
        cell.to_string()
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_three_lowercase_hex_digits() {
        for text in ["001", "00a", "fff"] {
            assert_eq!(text.parse::<CellId>().unwrap().to_string(), text);
        }
        for text in ["", "000", "1", "00A", "+0a", "0x1", "1000", " 01", "00g"] {
            assert_eq!(text.parse::<CellId>(), Err(NotACell), "{text:?}");
        }
    }

    #[test]
    fn a_mark_is_read_again_and_keeps_all_other_bits() {
        let uuid = [0x01, 0x9a, 0xbc, 0xde, 0xf0, 0x12, 0x7f, 0xff, 0x8f, 1, 2, 3, 4, 5, 6, 7];
        let cell: CellId = "00a".parse().unwrap();
        let marked = cell.mark(uuid);
        assert_eq!((marked[6], marked[7]), (0x70, 0x0a));
        assert_eq!((&marked[..6], &marked[8..]), (&uuid[..6], &uuid[8..]));
        for id in ["exe_019abcdef012700a8f01020304050607", "evt_019abcde-f012-700a-8f01-020304050607"] {
            assert_eq!(CellId::of_id(id), Some(cell), "{id}");
        }
        for id in [
            "exe_1",
            "exe_019abcdef01270008f01020304050607",
            "order-7",
            "exe_019abcdef012700a8f010203040506077",
        ] {
            assert_eq!(CellId::of_id(id), None, "{id}");
        }
    }
}
