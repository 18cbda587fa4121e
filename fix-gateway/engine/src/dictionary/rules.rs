//! The check of a message against its dictionaries, in a fixed order of which the first failure counts.
//!
//! 1. header, body and trailer each in one piece (14);
//! 2. the message type exists (11);
//! 3. required fields of header, trailer, body, then of the groups' entries (1);
//! 4. header, trailer, body: their fields by ascending tag, each for repetition (13), emptiness (4), datatype (6),
//!    value (5), an existing tag (0), a tag of this message (2), and a group's count (16);
//! 5. the same inside the groups' entries.

use crate::{
    codec::{Encoding, Field, MessageRef},
    tag::{self, Tag},
};

use super::{Dictionary, FieldDef, Section};

/// SessionRejectReason(373), with the text that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    InvalidTag = 0,
    RequiredTagMissing = 1,
    TagNotInMessage = 2,
    TagWithoutValue = 4,
    ValueIncorrect = 5,
    DataFormat = 6,
    CompIdProblem = 9,
    SendingTimeAccuracy = 10,
    InvalidMsgType = 11,
    TagRepeated = 13,
    TagOutOfOrder = 14,
    GroupCount = 16,
    ApplicationVersion = 18,
}

impl RejectReason {
    /// The number that goes into SessionRejectReason(373).
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The text that goes into Text(58).
    pub const fn text(self) -> &'static str {
        match self {
            Self::InvalidTag => "Invalid tag number",
            Self::RequiredTagMissing => "Required tag missing",
            Self::TagNotInMessage => "Tag not defined for this message type",
            Self::TagWithoutValue => "Tag specified without a value",
            Self::ValueIncorrect => "Value is incorrect (out of range) for this tag",
            Self::DataFormat => "Incorrect data format for value",
            Self::CompIdProblem => "CompID problem",
            Self::SendingTimeAccuracy => "SendingTime accuracy problem",
            Self::InvalidMsgType => "Invalid MsgType",
            Self::TagRepeated => "Tag appears more than once",
            Self::TagOutOfOrder => "Tag specified out of required order",
            Self::GroupCount => "Incorrect NumInGroup count for repeating group",
            Self::ApplicationVersion => "Invalid/Unsupported application version",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub reason: RejectReason,
    /// RefTagID(371), as it came.
    pub tag: Option<String>,
    /// Text(58), where it says more than the reason.
    pub detail: Option<&'static str>,
}

impl Fault {
    pub fn at(reason: RejectReason, tag: Tag) -> Self {
        Self { reason, tag: Some(tag.to_string()), detail: None }
    }

    pub const fn whole(reason: RejectReason) -> Self {
        Self { reason, tag: None, detail: None }
    }

    /// Text(58).
    pub fn text(&self) -> &'static str {
        self.detail.unwrap_or(self.reason.text())
    }
}

/// The dictionaries of a session and how strict it is.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Header, trailer and session messages.
    pub session: &'static Dictionary,
    /// Application messages; the same one before FIXT.
    pub application: &'static Dictionary,
    /// Fields of ours beyond the dictionary: MsgType (empty for any) and the definition. A field that the dictionary
    /// knows keeps the dictionary's datatype and values.
    pub extra: &'static [(&'static str, FieldDef)],
    /// Message types that the version does not have and a later one has: beyond the header they are passed as they are,
    /// for the application to refuse (BusinessMessageReject).
    pub later: &'static [&'static str],
    /// Message types whose body may have any tag: one that is not theirs is checked for its form and passed.
    pub tolerant: &'static [&'static str],
    /// The encoding of text, which MessageEncoding(347) may name.
    pub encoding: Encoding,
    /// Is an empty value an error?
    pub require_values: bool,
    /// Must header, body and trailer each be in one piece?
    pub check_order: bool,
    /// Is an unknown tag of the user-defined range (5000 and up) an error?
    pub check_user_defined: bool,
}

/// A message's fields by section; group entries apart from the top level.
#[derive(Default)]
struct Parts {
    header: Vec<Field>,
    body: Vec<Field>,
    trailer: Vec<Field>,
    /// Count fields that differ from the number of entries.
    miscounted: Vec<Tag>,
    /// The first fault inside a group's entry.
    inner: Option<Fault>,
}

impl Rules {
    /// Strict rules of one version (`FIX.4.2`, `FIX.4.4`, or `FIXT.1.1` with `FIX.5.0SP2`).
    pub fn strict(begin_string: &str, application: &str) -> Option<Self> {
        Some(Self {
            session: Dictionary::named(begin_string)?,
            application: Dictionary::named(application)?,
            extra: &[],
            later: &[],
            tolerant: &[],
            encoding: Encoding::Utf8,
            require_values: true,
            check_order: true,
            check_user_defined: true,
        })
    }

    /// Checks everything about a message that needs no session state.
    pub fn check(&self, message: MessageRef<'_>) -> Result<(), Fault> {
        if self.is_plainly_right(message) { Ok(()) } else { self.check_exactly(message) }
    }

    /// The first fault in the order of the module's documentation.
    pub(super) fn check_exactly(&self, message: MessageRef<'_>) -> Result<(), Fault> {
        let msg_type = message.msg_type();
        let section = self.session.message(msg_type).or_else(|| self.application.message(msg_type));
        let parts = self.part(message, section);
        if self.check_order {
            self.check_structure(message)?;
        }
        let Some(section) = section else {
            if !self.later.iter().any(|later| later.as_bytes() == msg_type) {
                return Err(Fault::whole(RejectReason::InvalidMsgType));
            }
            Self::check_required(self.session.header(), &parts.header)?;
            return self.check_section(message, &parts, &parts.header, None);
        };
        Self::check_required(self.session.header(), &parts.header)?;
        Self::check_required(self.session.trailer(), &parts.trailer)?;
        Self::check_required(section, &parts.body)?;
        if let Some(missing) =
            parts.inner.as_ref().filter(|fault| fault.reason == RejectReason::RequiredTagMissing)
        {
            return Err(missing.clone());
        }
        self.check_section(message, &parts, &parts.header, None)?;
        self.check_section(message, &parts, &parts.trailer, None)?;
        self.check_section(message, &parts, &parts.body, Some(section))?;
        parts.inner.map_or(Ok(()), Err)
    }

    /// Is this a tag of the standard header?
    pub fn is_header(&self, tag: Tag) -> bool {
        self.session.header().has_anywhere(tag)
    }

    fn is_trailer(&self, tag: Tag) -> bool {
        self.session.trailer().has(tag)
    }

    fn definition(&self, msg_type: &[u8], tag: Tag) -> Option<&'static FieldDef> {
        // A transport's own messages know the transport's fields only: a field of the application's version is
        // an unknown tag there.
        let is_of_session =
            self.is_header(tag) || self.is_trailer(tag) || self.session.message(msg_type).is_some();
        let known = if is_of_session { self.session.field(tag) } else { self.application.field(tag) };
        known.or_else(|| self.extra_field(msg_type, tag))
    }

    pub(super) fn extra_field(&self, msg_type: &[u8], tag: Tag) -> Option<&'static FieldDef> {
        self.extra
            .iter()
            .find(|(of, field)| field.tag == tag && (of.is_empty() || of.as_bytes() == msg_type))
            .map(|(_, field)| field)
    }

    /// A tag of the user-defined range that nobody defined, where those are no error.
    pub(super) fn is_user_defined(&self, tag: Tag) -> bool {
        let is_known = || self.application.field(tag).or_else(|| self.session.field(tag)).is_some();
        tag >= 5000 && !self.check_user_defined && !is_known()
    }

    fn is_tolerant(&self, msg_type: &[u8]) -> bool {
        self.tolerant.iter().any(|tolerant| tolerant.as_bytes() == msg_type)
    }

    fn check_structure(&self, message: MessageRef<'_>) -> Result<(), Fault> {
        let mut seen = 0;
        for field in message.fields() {
            let section = if self.is_header(field.tag) {
                0
            } else if self.is_trailer(field.tag) {
                2
            } else {
                1
            };
            if section < seen {
                return Err(Fault::at(RejectReason::TagOutOfOrder, field.tag));
            }
            seen = section;
        }
        Ok(())
    }

    fn part(&self, message: MessageRef<'_>, section: Option<&Section>) -> Parts {
        let mut parts = Parts::default();
        let fields = message.fields();
        let mut at = 0;
        while let Some(field) = fields.get(at) {
            at += 1;
            let (list, groups) = if self.is_header(field.tag) {
                (&mut parts.header, Some(self.session.header()))
            } else if self.is_trailer(field.tag) {
                (&mut parts.trailer, None)
            } else {
                (&mut parts.body, section)
            };
            list.push(*field);
            if let Some(group) = groups.and_then(|section| section.group(field.tag)) {
                at = self.walk_group(message, group, field, at, &mut parts);
            }
        }
        parts
    }

    /// Walks the entries after a count field; answers the place of the first field that is not theirs.
    fn walk_group(
        &self,
        message: MessageRef<'_>,
        group: &Section,
        count: &Field,
        from: usize,
        parts: &mut Parts,
    ) -> usize {
        let mut entries = 0_u64;
        let mut entry: Vec<Tag> = Vec::new();
        let mut at = from;
        while let Some(field) = message.fields().get(at).filter(|field| group.has(field.tag)) {
            if field.tag == group.first() {
                if entries > 0 {
                    note_missing(group, &entry, parts);
                }
                entries += 1;
                entry.clear();
            } else if entries == 0 {
                // A member before the delimiter begins no entry.
                break;
            } else if entry.contains(&field.tag) {
                parts.inner.get_or_insert(Fault::at(RejectReason::TagRepeated, field.tag));
            }
            entry.push(field.tag);
            if let Err(fault) = self.check_value(message, field) {
                parts.inner.get_or_insert(fault);
            }
            at += 1;
            if let Some(nested) = group.group(field.tag) {
                at = self.walk_group(message, nested, field, at, parts);
            }
        }
        if entries > 0 {
            note_missing(group, &entry, parts);
        }
        if crate::SeqNum::parse(message.value(count)).map(|said| said.0) != Some(entries) {
            parts.miscounted.push(count.tag);
            if !parts.body.iter().chain(&parts.header).any(|top| top.value == count.value) {
                parts.inner.get_or_insert(Fault::at(RejectReason::GroupCount, count.tag));
            }
        }
        at
    }

    fn check_required(section: &Section, fields: &[Field]) -> Result<(), Fault> {
        let missing = section.required.iter().find(|tag| !fields.iter().any(|field| field.tag == **tag));
        missing.map_or(Ok(()), |tag| Err(Fault::at(RejectReason::RequiredTagMissing, *tag)))
    }

    /// `section` is given for the body only: header and trailer fields are known by their section.
    fn check_section(
        &self,
        message: MessageRef<'_>,
        parts: &Parts,
        fields: &[Field],
        section: Option<&Section>,
    ) -> Result<(), Fault> {
        let mut ascending = fields.to_vec();
        ascending.sort_by_key(|field| field.tag);
        let mut previous = None;
        for field in &ascending {
            if previous == Some(field.tag) && field.tag != 0 {
                return Err(Fault::at(RejectReason::TagRepeated, field.tag));
            }
            previous = Some(field.tag);
            self.check_value(message, field)?;
            let Some(section) = section else { continue };
            if self.extra_field(message.msg_type(), field.tag).is_some() {
                continue;
            }
            let is_foreign = !section.has(field.tag);
            if is_foreign && (self.is_user_defined(field.tag) || self.is_tolerant(message.msg_type())) {
                continue;
            }
            if self.definition(message.msg_type(), field.tag).is_none() {
                let tag = String::from_utf8_lossy(message.tag_text(field)).into_owned();
                return Err(Fault { reason: RejectReason::InvalidTag, tag: Some(tag), detail: None });
            }
            if is_foreign {
                return Err(Fault::at(RejectReason::TagNotInMessage, field.tag));
            }
            if parts.miscounted.contains(&field.tag) {
                return Err(Fault::at(RejectReason::GroupCount, field.tag));
            }
        }
        Ok(())
    }

    fn check_value(&self, message: MessageRef<'_>, field: &Field) -> Result<(), Fault> {
        let value = message.value(field);
        if value.is_empty() {
            let fault = Fault {
                reason: RejectReason::TagWithoutValue,
                tag: Some(String::from_utf8_lossy(message.tag_text(field)).into_owned()),
                detail: None,
            };
            return if self.require_values { Err(fault) } else { Ok(()) };
        }
        if field.tag == tag::MESSAGE_ENCODING && !self.encoding.is_named(value) {
            let detail = Some(self.encoding.refusal());
            return Err(Fault { detail, ..Fault::at(RejectReason::ValueIncorrect, field.tag) });
        }
        // The type is checked as a type that exists, not as a value.
        let Some(definition) = self.definition(message.msg_type(), field.tag) else { return Ok(()) };
        if !definition.kind.accepts(value) {
            return Err(Fault::at(RejectReason::DataFormat, field.tag));
        }
        let listed =
            !definition.values.is_empty() && !matches!(field.tag, tag::MSG_TYPE | tag::MESSAGE_ENCODING);
        if listed && !definition.kind.is_one_of(value, definition.values) {
            return Err(Fault::at(RejectReason::ValueIncorrect, field.tag));
        }
        Ok(())
    }
}

fn note_missing(group: &Section, entry: &[Tag], parts: &mut Parts) {
    if let Some(tag) = group.required.iter().find(|tag| !entry.contains(tag)) {
        parts.inner.get_or_insert(Fault::at(RejectReason::RequiredTagMissing, *tag));
    }
}
