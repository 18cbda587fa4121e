//! The accepted fields of a message, and the rules for their text.
//!
//! A field that the version's dictionary allows and that is not in [`TAKEN`] is rejected by its tag: its sender expects
//! an effect that it would not have.

use dvp_domain::text::{ID_MAX, TextFault, check_id, check_line};
use dvp_fix::{codec::MessageRef, dictionary::Dictionary, tag::Tag};

use crate::dictionaries::{Messages, TAKEN, TakenField};

/// The fault of a field in a well-formed message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldFault {
    #[error("tag {0} is not supported")]
    NotTaken(Tag),
    #[error("{}({}) {problem}", .field.name, .field.tag)]
    Text { field: &'static TakenField, problem: TextFault },
    #[error("{name}({tag}) required")]
    Missing { name: &'static str, tag: Tag },
}

/// Checks every field of the body of one of the messages that [`Messages`] has.
pub(crate) fn check(message: MessageRef<'_>) -> Result<(), FieldFault> {
    let messages = Messages::of(message.msg_type());
    let Some(envelope) = envelope(message) else { return Ok(()) };
    for field in message.fields().iter().filter(|field| is_body(envelope, field.tag)) {
        let taken = find(field.tag).filter(|taken| taken.is_taken_in(messages));
        check_text(taken.ok_or(FieldFault::NotTaken(field.tag))?, message.value(field))?;
    }
    Ok(())
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
