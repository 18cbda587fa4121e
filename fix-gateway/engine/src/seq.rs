//! Message sequence numbers.

use std::fmt;

/// A MsgSeqNum(34). The first message of a session is 1; 0 appears only as "no end" in ResendRequest(2) and in
/// SequenceReset(4), whose own number a reset ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeqNum(pub u64);

impl SeqNum {
    /// The number of the first message after a reset.
    pub const FIRST: Self = Self(1);

    /// The number after this one. Saturates: at one message a nanosecond the end is 584 years away.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number before this one, 0 before 1.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Digits only: no sign, no space, at most 18 digits, so that no peer can bring a number near overflow.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some(Self(text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))))
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
