//! MsgType(35) as a value: small enough to be copied, so that no message needs a string for it.

use std::fmt;

/// Longer than any type of the standard, and than any user-defined one (`U` and up to two characters) in use.
const LEN_MAX: usize = 7;

/// A message type: 1 to 7 printable ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MsgType {
    len: u8,
    bytes: [u8; LEN_MAX],
}

macro_rules! types {
    ($($name:ident = $text:literal),* $(,)?) => {
        $(pub const $name: Self = Self::new($text).expect("one or two printable characters");)*
    };
}

impl MsgType {
    types! {
        HEARTBEAT = "0", TEST_REQUEST = "1", RESEND_REQUEST = "2", REJECT = "3", SEQUENCE_RESET = "4", LOGOUT = "5",
        EXECUTION_REPORT = "8", ORDER_CANCEL_REJECT = "9", LOGON = "A", NEW_ORDER_SINGLE = "D", QUOTE = "S",
        QUOTE_REQUEST_REJECT = "AG", QUOTE_ACKNOWLEDGEMENT = "b", BUSINESS_MESSAGE_REJECT = "j",
        ORDER_MASS_CANCEL_REPORT = "r", SECURITY_LIST = "y", MARKET_DATA_SNAPSHOT = "W", MARKET_DATA_REQUEST_REJECT = "Y",
    }

    /// `None` when the text is empty, longer than 7 bytes, or not printable ASCII.
    pub const fn new(text: &str) -> Option<Self> {
        Self::from_bytes(text.as_bytes())
    }

    /// Like [`MsgType::new`], for a value as it came.
    pub const fn from_bytes(text: &[u8]) -> Option<Self> {
        if text.is_empty() || text.len() > LEN_MAX {
            return None;
        }
        let mut bytes = [0; LEN_MAX];
        let mut len: u8 = 0;
        let mut at = 0;
        while at < text.len() {
            if !text[at].is_ascii_graphic() {
                return None;
            }
            bytes[at] = text[at];
            at += 1;
            len += 1;
        }
        Some(Self { len, bytes })
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Does the type belong to the session layer? Such a message is never sent again.
    pub fn is_session(&self) -> bool {
        matches!(self.as_bytes(), b"0" | b"1" | b"2" | b"3" | b"4" | b"5" | b"A")
    }
}

impl fmt::Display for MsgType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for MsgType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
