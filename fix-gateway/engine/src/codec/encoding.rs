//! The encoding of text on the wire. Between reading and writing all text is UTF-8.

use super::{Body, Garbled, Message, MessageRef, SOH, encode, parse};

/// How a session's text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    #[default]
    Utf8,
    Latin1,
}

/// Not the name of an [`Encoding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not UTF-8 or ISO-8859-1")]
pub struct NoEncoding;

impl std::str::FromStr for Encoding {
    type Err = NoEncoding;

    fn from_str(name: &str) -> Result<Self, NoEncoding> {
        [Self::Utf8, Self::Latin1].into_iter().find(|known| known.is_named(name.as_bytes())).ok_or(NoEncoding)
    }
}

impl Encoding {
    /// As MessageEncoding(347) names it, in any case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Latin1 => "ISO-8859-1",
        }
    }

    /// Does MessageEncoding(347) name it?
    pub fn is_named(self, value: &[u8]) -> bool {
        value.eq_ignore_ascii_case(self.as_str().as_bytes())
    }

    /// Text(58) about a MessageEncoding(347) that names another.
    pub(crate) const fn refusal(self) -> &'static str {
        match self {
            Self::Utf8 => "MessageEncoding(347) of this session is UTF-8",
            Self::Latin1 => "MessageEncoding(347) of this session is ISO-8859-1",
        }
    }

    /// Is a frame the same in UTF-8?
    pub fn is_plain(self, frame: &[u8]) -> bool {
        self == Self::Utf8 || frame.is_ascii()
    }

    /// A message as a frame with its text in UTF-8. Data fields keep their bytes.
    pub fn decoded(self, message: MessageRef<'_>) -> Vec<u8> {
        if self.is_plain(message.bytes()) {
            return message.bytes().to_vec();
        }
        let mut out = Vec::with_capacity(message.bytes().len() * 2);
        let content = encode::open(&mut out, message.begin_string());
        let fields = message.fields();
        let mut before = 0;
        for field in fields.get(2..fields.len().saturating_sub(1)).unwrap_or_default() {
            out.extend_from_slice(message.tag_text(field));
            out.push(b'=');
            let value = message.value(field);
            if parse::data_tag_of(before) == Some(field.tag) {
                out.extend_from_slice(value);
            } else {
                for byte in value {
                    out.extend_from_slice(char::from(*byte).encode_utf8(&mut [0; 2]).as_bytes());
                }
            }
            out.push(SOH);
            before = field.tag;
        }
        encode::close(&mut out, 0, content);
        out
    }

    /// The same for a message that is kept.
    pub fn message(self, message: Message) -> Result<Message, Garbled> {
        if self.is_plain(message.view().bytes()) {
            return Ok(message);
        }
        Message::parse(&self.decoded(message.view()))
    }

    /// The fields of a body as they go over the wire; `None`: as they are. Quotation marks and dashes that
    /// the encoding does not have become those that it has; other letters become `?`.
    pub(crate) fn encoded(self, body: &Body) -> Option<Body> {
        if self.is_plain(body.as_bytes()) {
            return None;
        }
        let text = String::from_utf8_lossy(body.as_bytes());
        Some(Body::from_bytes(text.chars().map(latin_1).collect()))
    }
}

fn latin_1(letter: char) -> u8 {
    match letter {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => b'\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => b'"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => b'-',
        other => u8::try_from(u32::from(other)).unwrap_or(b'?'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `|` for SOH, with the right length and checksum.
    fn frame(content: &[u8]) -> Vec<u8> {
        let content: Vec<u8> = content.iter().map(|byte| if *byte == b'|' { SOH } else { *byte }).collect();
        let mut out = Vec::new();
        let begin = encode::open(&mut out, b"FIX.4.4");
        out.extend_from_slice(&content);
        encode::close(&mut out, 0, begin);
        out
    }

    #[test]
    fn latin_1_is_read_as_utf_8_with_a_length_of_its_own_and_data_unchanged() {
        let came = frame(b"35=D|49=A|58=caf\xe9 \xa3|95=3|96=\xe9\xff\xe9|20010=J\xfcrg|");
        let message = Message::parse(&came).unwrap();
        let read = Encoding::Latin1.message(message.clone()).unwrap();
        let expected = frame(b"35=D|49=A|58=caf\xc3\xa9 \xc2\xa3|95=3|96=\xe9\xff\xe9|20010=J\xc3\xbcrg|");
        assert_eq!(read.view().bytes(), expected);
        assert_eq!((read.text(58), read.text(20010)), (Some("café £"), Some("Jürg")));
        assert_eq!(read.get(96), Some(&b"\xe9\xff\xe9"[..]));
        assert_eq!(Encoding::Utf8.message(message.clone()).unwrap(), message);
        let plain = Message::parse(&frame(b"35=D|49=A|58=coffee|")).unwrap();
        assert_eq!(Encoding::Latin1.message(plain.clone()).unwrap(), plain);
    }

    #[test]
    fn what_latin_1_does_not_have_is_transcribed_or_marked() {
        let body = Body::new().field(58, "Jürg’s – 東京, “Ő”").field(60, "x");
        let encoded = Encoding::Latin1.encoded(&body).unwrap();
        assert_eq!(encoded.as_bytes(), b"58=J\xfcrg's - ??, \"?\"\x0160=x\x01");
        assert_eq!(Encoding::Utf8.encoded(&body), None);
    }

    #[test]
    fn an_encoding_has_the_name_of_message_encoding() {
        assert_eq!("iso-8859-1".parse(), Ok(Encoding::Latin1));
        assert_eq!("UTF-8".parse(), Ok(Encoding::Utf8));
        assert_eq!("Shift_JIS".parse::<Encoding>(), Err(NoEncoding));
    }
}
