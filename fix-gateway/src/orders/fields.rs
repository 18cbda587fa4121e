//! The accepted fields of a message, and the rules for their text.
//!
//! A field that the version's dictionary allows and that is neither in [`TAKEN`] nor in the session's [`IgnoreList`] is
//! rejected by its tag: its sender expects an effect that it would not have.

use std::collections::BTreeSet;

use dvp_domain::text::{ID_MAX, TEXT_MAX, TextFault, check_id, check_line};
use dvp_fix::{
    codec::{Field, MessageRef},
    dictionary::Dictionary,
    tag::Tag,
};

use super::tags;
use crate::dictionaries::{IGNORED, Messages, OWN_TAGS, TAKEN, TakenField};

/// The fields that a session reads, checks for their form, and ignores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IgnoreList {
    tags: BTreeSet<Tag>,
    user_defined: bool,
}

impl IgnoreList {
    /// `agreed`: tags with commas between them, and `user-defined`; `None`: the default.
    pub(crate) fn agreed(agreed: Option<&str>) -> Self {
        let Some(agreed) = agreed else {
            return Self { tags: IGNORED.iter().map(|field| field.tag).collect(), user_defined: true };
        };
        let parts = || agreed.split(',').map(str::trim);
        Self {
            tags: parts().filter_map(|part| part.parse().ok()).collect(),
            user_defined: parts().any(|part| part == "user-defined"),
        }
    }

    pub(crate) const fn has_user_defined(&self) -> bool {
        self.user_defined
    }

    /// Is the field ignored with this value?
    fn has(&self, tag: Tag, value: &[u8], today: &[u8]) -> bool {
        if tag >= 5000 {
            return self.user_defined && !OWN_TAGS.contains(&tag);
        }
        let values = IGNORED.iter().find(|field| field.tag == tag).map_or(&[][..], |field| field.values);
        self.tags.contains(&tag)
            && (values.is_empty() || values.iter().any(|known| known.as_bytes() == value))
            && (tag != tags::SETTL_DATE || value == today)
    }
}

/// The fault of a field in a well-formed message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldFault {
    #[error("tag {0} is not supported")]
    NotTaken(Tag),
    #[error("{}({}) {problem}", .field.name, .field.tag)]
    Text { field: &'static TakenField, problem: TextFault },
    #[error("tag {tag} {problem}")]
    Ignored { tag: Tag, problem: TextFault },
    #[error("{name}({tag}) required")]
    Missing { name: &'static str, tag: Tag },
}

/// Checks every field of the body of one of the messages that [`Messages`] has.
pub(crate) fn check(message: MessageRef<'_>, ignored: &IgnoreList) -> Result<(), FieldFault> {
    let messages = Messages::of(message.msg_type());
    let Some(envelope) = envelope(message) else { return Ok(()) };
    let body = application(envelope).message(message.msg_type());
    // SendingTime(52) is near to our clock.
    let today = message.get(dvp_fix::tag::SENDING_TIME).and_then(|time| time.get(..8)).unwrap_or_default();
    let mut fields = message.fields().iter().filter(|field| is_body(envelope, field.tag)).peekable();
    while let Some(field) = fields.next() {
        let value = message.value(field);
        if let Some(taken) = find(field.tag).filter(|taken| taken.is_taken_in(messages)) {
            check_text(taken, value)?;
            continue;
        }
        if !ignored.has(field.tag, value, today) {
            return Err(FieldFault::NotTaken(field.tag));
        }
        check_ignored(field.tag, value)?;
        // The fields of a group belong to it.
        let at_any_level = body.and_then(|body| {
            body.group(field.tag).or_else(|| body.group(tags::NO_RELATED_SYM)?.group(field.tag))
        });
        if let Some(group) = at_any_level {
            while let Some(member) = fields.next_if(|member| group.has_anywhere(member.tag)) {
                check_ignored(member.tag, message.value(member))?;
            }
        }
    }
    Ok(())
}

/// The fields of a group at the top of the body, its count first.
pub(crate) fn group(message: MessageRef<'_>, count: Tag) -> impl Iterator<Item = &Field> {
    let group = envelope(message)
        .and_then(|envelope| application(envelope).message(message.msg_type())?.group(count));
    let fields = message.fields();
    let at = fields.iter().position(|field| field.tag == count).filter(|_| group.is_some());
    let (first, rest) = at.map_or((&[][..], &[][..]), |at| fields[at..].split_at(1));
    let is_member = move |field: &&Field| group.is_some_and(|group| group.has_anywhere(field.tag));
    first.iter().chain(rest.iter().take_while(is_member))
}

/// An ignored field has no effect, but its value must be text without control characters, 1,024 characters at most.
fn check_ignored(tag: Tag, value: &[u8]) -> Result<(), FieldFault> {
    check_line(&String::from_utf8_lossy(value), TEXT_MAX)
        .map_err(|problem| FieldFault::Ignored { tag, problem })
}

/// The dictionary of application messages beside an envelope's.
fn application(envelope: &'static Dictionary) -> &'static Dictionary {
    if envelope.message(b"D").is_some() {
        envelope
    } else {
        Dictionary::named("FIX.5.0SP2").unwrap_or(envelope)
    }
}

/// The dictionary that has the message's header and trailer.
pub(super) fn envelope(message: MessageRef<'_>) -> Option<&'static Dictionary> {
    std::str::from_utf8(message.begin_string()).ok().and_then(Dictionary::named)
}

/// Does the tag belong to neither header nor trailer?
pub(super) fn is_body(envelope: &Dictionary, tag: Tag) -> bool {
    !envelope.header().has_anywhere(tag) && !envelope.trailer().has(tag)
}

/// A required identifier that an answer can repeat.
pub(crate) fn id<'a>(message: MessageRef<'a>, tag: Tag) -> Result<&'a str, FieldFault> {
    let field = find(tag);
    let missing = FieldFault::Missing { name: field.map_or("", |field| field.name), tag };
    let (Some(field), Some(value)) = (field, message.get(tag)) else { return Err(missing) };
    check_text(field, value)?;
    std::str::from_utf8(value).map_err(|_| missing)
}

/// A value that an answer may repeat: `None` when it is absent or could not be stored.
pub(crate) fn repeatable<'a>(message: MessageRef<'a>, tag: Tag) -> Option<&'a str> {
    let max = find(tag).map_or(ID_MAX, |field| field.max);
    message.text(tag).filter(|text| check_line(text, max).is_ok())
}

fn find(tag: Tag) -> Option<&'static TakenField> {
    TAKEN.iter().find(|field| field.tag == tag)
}

/// Prose is not stored: only its length is checked.
fn check_text(field: &'static TakenField, value: &[u8]) -> Result<(), FieldFault> {
    const PROSE: Tag = 58;
    let text = String::from_utf8_lossy(value);
    let is_id = field.max == ID_MAX;
    let checked = check_line(&text, field.max);
    match checked.and_then(|()| if is_id { check_id(&text) } else { Ok(()) }) {
        Err(problem) if field.tag != PROSE || matches!(problem, TextFault::TooLong { .. }) => {
            Err(FieldFault::Text { field, problem })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
