//! A frame as fields: every field's place known, nothing copied.
//!
//! [`MessageRef`] borrows the frame and its index, for all readers; [`Message`] owns both, for messages that are kept.

use crate::{
    seq::SeqNum,
    tag::{self, Tag},
};

use super::{Garbled, Parser, SOH};

/// Where a field's value is in its frame: `value..end`. In front of it are the tag's text and `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// 0 when the tag is a number but no legal tag.
    pub tag: Tag,
    pub value: u32,
    pub end: u32,
}

impl Field {
    /// Stands in room for fields that are not there yet.
    pub(super) const NONE: Self = Self { tag: 0, value: 0, end: 0 };
}

/// A checked frame and the index of its fields, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MessageRef<'a> {
    bytes: &'a [u8],
    fields: &'a [Field],
}

impl<'a> MessageRef<'a> {
    /// `fields` is the index of `bytes`.
    pub(super) const fn new(bytes: &'a [u8], fields: &'a [Field]) -> Self {
        Self { bytes, fields }
    }

    /// All fields, 8 first and 10 last.
    pub const fn fields(self) -> &'a [Field] {
        self.fields
    }

    /// A field's value, as it came.
    pub fn value(self, field: &Field) -> &'a [u8] {
        slice(self.bytes, field.value, field.end)
    }

    /// Everything from the value of one field to the end of another behind it.
    pub(super) fn between(self, first: &Field, last: &Field) -> &'a [u8] {
        slice(self.bytes, first.value, last.end)
    }

    /// A field's tag as received: RefTagID(371) repeats it when the tag is not a legal one.
    pub fn tag_text(self, field: &Field) -> &'a [u8] {
        let before = slice(self.bytes, 0, field.value.saturating_sub(1));
        // A tag contains no SOH, unlike the field before it.
        before.rsplit(|byte| *byte == SOH).next().unwrap_or(b"")
    }

    /// The value of the first field with this tag.
    pub fn get(self, tag: Tag) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.tag == tag).map(|field| self.value(field))
    }

    /// The value of the first field with this tag, when it is UTF-8.
    pub fn text(self, tag: Tag) -> Option<&'a str> {
        self.get(tag).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Is the field there and `Y`?
    pub fn is_yes(self, tag: Tag) -> bool {
        self.get(tag) == Some(b"Y")
    }

    /// MsgType(35): there by construction.
    pub fn msg_type(self) -> &'a [u8] {
        self.fields.get(2).map_or(b"", |field| self.value(field))
    }

    /// BeginString(8): there by construction.
    pub fn begin_string(self) -> &'a [u8] {
        self.fields.first().map_or(b"", |field| self.value(field))
    }

    /// MsgSeqNum(34), when it is there and a number.
    pub fn seq(self) -> Option<SeqNum> {
        self.get(tag::MSG_SEQ_NUM).and_then(SeqNum::parse)
    }

    /// The frame.
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// A copy that may be kept.
    pub fn to_owned(self) -> Message {
        Message { bytes: self.bytes.to_vec(), fields: self.fields.to_vec() }
    }

    /// Replaced by `|` the delimiters, by `***` the values of [`tag::SECRET`]: for logs.
    pub fn redacted(self) -> String {
        let mut out = String::with_capacity(self.bytes.len());
        for field in self.fields {
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
impl std::fmt::Debug for MessageRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.redacted())
    }
}

/// A message that is kept: one beyond a gap, or a Logon that waits for a decision.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
    fields: Vec<Field>,
}

impl Message {
    /// Checks a frame, indexes it, and copies it.
    pub fn parse(frame: &[u8]) -> Result<Self, Garbled> {
        Parser::new().parse(frame).map(MessageRef::to_owned)
    }

    /// The borrowed form.
    pub fn view(&self) -> MessageRef<'_> {
        MessageRef { bytes: &self.bytes, fields: &self.fields }
    }

    /// See [`MessageRef::fields`].
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// See [`MessageRef::value`].
    pub fn value(&self, field: &Field) -> &[u8] {
        self.view().value(field)
    }

    /// See [`MessageRef::get`].
    pub fn get(&self, tag: Tag) -> Option<&[u8]> {
        self.view().get(tag)
    }

    /// See [`MessageRef::text`].
    pub fn text(&self, tag: Tag) -> Option<&str> {
        self.view().text(tag)
    }

    /// See [`MessageRef::is_yes`].
    pub fn is_yes(&self, tag: Tag) -> bool {
        self.view().is_yes(tag)
    }

    /// See [`MessageRef::msg_type`].
    pub fn msg_type(&self) -> &[u8] {
        self.view().msg_type()
    }

    /// See [`MessageRef::begin_string`].
    pub fn begin_string(&self) -> &[u8] {
        self.view().begin_string()
    }

    /// See [`MessageRef::seq`].
    pub fn seq(&self) -> Option<SeqNum> {
        self.view().seq()
    }
}

/// Never the raw bytes: a Logon carries a password.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view().fmt(f)
    }
}

pub(super) fn slice(bytes: &[u8], from: u32, to: u32) -> &[u8] {
    let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
    bytes.get(place(from)..place(to)).unwrap_or(b"")
}
